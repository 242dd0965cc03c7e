"""The Python API: a page a package, with the docstrings of its public modules."""

import ast
import importlib
from collections import defaultdict
from pathlib import Path

import sfumato

SOURCE = Path(sfumato.__file__).parent
# Scripts that run as processes of their own, steps of a schema, and the commands, which have a page.
LEFT_OUT = ("sfumato.cli", "sfumato.__main__")


def public_modules() -> dict[str, list[str]]:
    """Package -> its public modules, all with their dotted names, in alphabetical order."""
    packages: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ["sfumato", *path.relative_to(SOURCE).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
            packages[".".join(parts)]
            continue
        name = ".".join(parts)
        if not any(part.startswith("_") for part in parts[1:]) and not name.startswith(LEFT_OUT):
            packages[".".join(parts[:-1])].append(name)
    return {name: modules for name, modules in packages.items() if not name.startswith(LEFT_OUT)}


def pages() -> dict[str, str]:
    """Path below the reference -> text, in reStructuredText, for autodoc."""
    packages = public_modules()
    # Beforehand, in the order in which programs do: autodoc changes what it finds in the middle of an import.
    for package, modules in packages.items():
        for name in (package, *modules):
            importlib.import_module(name)
    found = {f"api/{name}.rst": _page(name, modules) for name, modules in packages.items()}
    names = "\n".join(f"   {name}" for name in packages)
    rows = "\n".join(f"   * - :doc:`{name} <{name}>`\n     - {_first_line(name)}" for name in packages)
    found["api/index.rst"] = (
        f"{_heading('Python', '=')}"
        "Every public module, by package. Names that begin with an underscore are no part of the API.\n\n"
        f".. list-table::\n   :widths: 30 70\n\n{rows}\n\n"
        f".. toctree::\n   :hidden:\n   :maxdepth: 1\n\n{names}\n"
    )
    return found


def _page(package: str, modules: list[str]) -> str:
    text = f"{_heading(package, '=')}.. automodule:: {package}\n\n"
    for name in modules:
        text += f"{_heading(name, '-')}.. automodule:: {name}\n\n"
    return text


def _heading(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n\n"


def _first_line(package: str) -> str:
    source = SOURCE.joinpath(*package.split(".")[1:], "__init__.py").read_text(encoding="utf-8")
    words = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(words.partition("\n\n")[0].split()).replace("*", r"\*").replace("|", r"\|")
