"""The report of an audit as one self-contained HTML file, in the style of a study's report."""

import base64
import os
from pathlib import Path

from sfumato import study
from sfumato.audits.findings import Picture, Report
from sfumato.base.files import whole
from sfumato.errors import needs_extra


def render(report: Report) -> str:
    """Render the page as text: a pure function of the report; the same report gives the same bytes.

    Raises:
        MissingExtraError: Jinja2 is not installed.
    """
    with needs_extra("a page", "study"):
        import jinja2

    # The style sheet of a study's report is shared.
    styles = Path(study.__file__).parent / "report" / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([Path(__file__).parent / "templates", styles]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["source"] = _source
    return environment.get_template("audit.html").render(report=report)


def write(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write the page, whole or not at all. Raises as `render`."""
    path = Path(path)
    page = render(report)
    with whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="")
    return path


def _source(picture: Picture) -> str:
    """Encode a picture as a data: URI."""
    from sfumato import images  # with PyTorch, which a report without pictures can do without

    return "data:image/png;base64," + base64.b64encode(images.encode(picture.image)).decode()
