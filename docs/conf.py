"""The documentation site: `make docs` makes the pages of results, and this those of the reference."""

import functools
import gc
import logging
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from generators import notebooks, pages, plain
from sphinx.domains.python import PythonDomain

import sfumato

project = "sfumato"
author = "the sfumato authors"
copyright = "the sfumato authors, Apache-2.0"
version = release = sfumato.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
highlight_language = "text"
exclude_patterns = ["templates", "generators", "_build", "**/.ipynb_checkpoints"]
root_doc = "index"

# Pages are read on a code host as well: links name files, and headings have the anchors of a code host.
myst_heading_anchors = 5
myst_enable_extensions = ["colon_fence"]
suppress_warnings = [
    "myst-nb.lexer",  # of a build that runs no notebook
    "ref.python",  # a short type in a signature may have two targets; it then links to none of them
]

# Notebooks are kept without outputs, and run when the site is built.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE.parent / "build" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 180
nb_execution_show_tb = True
nb_merge_streams = True

autodoc_default_options = {"members": True, "ignore-module-all": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_use_type_comments = False
autodoc_inherit_docstrings = False  # those of libraries are not written as ours
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
default_role = "code"
toc_object_entries = False

html_theme = "furo"
html_title = f"sfumato {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    # Fonts of the system: the pages ask no other host for anything.
    "light_css_variables": {"color-brand-primary": "#7a4b12", "color-brand-content": "#7a4b12"},
    "dark_css_variables": {"color-brand-primary": "#e0a458", "color-brand-content": "#e0a458"},
}

pages.write(HERE / "reference")

# The nodes of a build stay to its end, and nobody reads its hundred thousand messages to developers.
gc.disable()
logging.disable(logging.DEBUG)


# Each type of each signature is looked for among the ends of all names, three times if it is of a library.
find_any = PythonDomain.find_obj


@functools.lru_cache(maxsize=1)
def last_parts(domain, _count):
    return {name.rpartition(".")[2] for name in domain.objects}


def find_ours(domain, env, module, owner, name, *more):
    """What Sphinx finds, without its search for a name that no object ends with."""
    ours = name.removesuffix("()").rpartition(".")[2] in last_parts(domain, len(domain.objects))
    return find_any(domain, env, module, owner, name, *more) if ours else []


PythonDomain.find_obj = find_ours


def setup(app):
    """Docstrings are plain text: what reStructuredText would read as markup is kept as it is written."""
    app.connect("source-read", notebooks.link)
    app.connect("autodoc-process-docstring", plain.before_sections, priority=100)
    app.connect("autodoc-process-docstring", plain.after_sections, priority=900)
