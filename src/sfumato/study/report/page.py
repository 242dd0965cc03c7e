"""The page of a report, section by section."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sfumato.base.files import whole
from sfumato.base.settings import yaml_of
from sfumato.errors import ConfigError, SfumatoError, needs_extra
from sfumato.study.choose.figures import Estimate, percent
from sfumato.study.choose.recommend import SAID
from sfumato.study.choose.results import Results, load_all
from sfumato.study.report.tables import FILES, join_tables, show, show_estimate, tables

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = ("--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_SECONDS = 120
_ALONE: Mapping[str, str] = {}


def write(
    directory: str | os.PathLike[str], every: Sequence[Results] | None = None, *, pictures: bool = True
) -> Path:
    """Writes report.html and tables/*.csv of a run, each whole or not at all, and returns the first page.

    It removes a table of an earlier report that has no rows now. A study with `vary` has a page for each
    combination of its values, see `page_of`; its tables have them as their first columns.
    A file of rows has its report in a folder of its name beside it. `every` holds the results, if they are
    read already; without `pictures` the page shows no images. It raises DataError as load does, and
    MissingExtraError without matplotlib or Jinja2.
    """
    every = load_all(directory) if every is None else every
    directory = Path(directory)
    if directory.is_file():
        directory = directory.with_suffix("")
    values = (yaml_of(results.study.get("varied", {}))[1:-1] for results in every)
    variants = {page_of(directory, number).name: words for number, words in enumerate(values, 1)}
    pages = [render(results, pictures=pictures, variants=variants) for results in every]
    made = join_tables([(results.study.get("varied", {}), tables(results)) for results in every])
    for name in FILES:
        path = directory / "tables" / f"{name}.csv"
        if name in made:
            _write(path, made[name].csv)
        else:
            path.unlink(missing_ok=True)
    for name, page in zip(variants, pages, strict=True):
        _write(directory / name, page)
    return page_of(directory, 1)


def page_of(directory: Path, number: int) -> Path:
    """The page of the n-th combination of the values of `vary`; 1 for a study without."""
    return directory / ("report.html" if number == 1 else f"report-{number}.html")


def render(
    results: Results, *, summary: bool = False, pictures: bool = True, variants: Mapping[str, str] = _ALONE
) -> str:
    """The page of a study as text; for a summary the part above the sections: one page of paper.

    If it shows original images a notice says so; without `pictures` it holds none. `variants`: the file of
    each combination of the values of `vary`, with these in words; the page links them.
    """
    with needs_extra("a report", "study"):
        import jinja2  # noqa: F401
        import markupsafe

        from sfumato.study.report import guarantees, sections
    order = [sections.frontier, sections.accuracy, sections.risk, sections.many, sections.log_rank_privacy]
    order += [sections.groups, sections.inference, sections.reconstruction, sections.tells, sections.pictures]
    order += [guarantees.guarantees, guarantees.training, guarantees.full_tables, guarantees.describe_making]
    results = results if pictures else results.without_pictures()
    template = _environment().get_template
    study, advice = results.study, results.advice
    common = {"results": results, "study": study, "task": study["task"], "advice": advice}
    common |= {"attacked": bool(results.risks), "among": guarantees.AMONG}
    made = [section for make in order if (section := make(results))] if not summary else []
    parts = [template(f"{section.name}.html").render(common, **section.values) for section in made]
    chosen = advice.setting and advice.setting.protection
    shown = (each.result.examples for each in results.of("examples") if each.cell.protection == chosen)
    examples = next(shown, ())
    page: str = template("page.html").render(
        common,
        sections=list(zip(made, map(markupsafe.Markup, parts), strict=True)),
        originals=bool(examples) or any(section.originals for section in made),
        examples=examples,
        summary=summary,
        said=SAID,
        variants=variants,
        varied=yaml_of(study.get("varied", {}))[1:-1],
    )
    return page


@cache
def _environment() -> Any:
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"markup": markupsafe.Markup, "percent": percent, "shown": show}
    environment.filters["estimate"] = show_estimate
    return environment


def as_json(results: Results) -> dict[str, Any]:
    """The content of a report, fit for JSON; shares from 0 to 1, with the ends of their intervals."""

    def share(estimate: Estimate | None) -> dict[str, float] | None:
        return {name: vars(estimate)[name] for name in ("value", "low", "high")} if estimate else None

    advice = results.advice
    proofs = {
        spec: [{"people": naming.candidates, "at_most": naming.at_most} for naming in proof.naming]
        for spec, proof in results.proofs.items()
    }
    return {
        "study": results.study["name"],
        **({"varied": results.study["varied"]} if "varied" in results.study else {}),
        "recommended": advice.setting and advice.setting.protection,
        "headline": advice.headline,
        "answers": [vars(answer) for answer in advice.answers],
        "settings": [
            {
                "protection": each.protection,
                "learner": each.learner,
                "accuracy": share(each.accuracy),
                "reidentification": share(each.risk.top1 if each.risk else None),
                "adversary": each.risk and each.risk.adversary,
                "chance": each.risk and each.risk.chance,
                "inferred": {inferred.attack: share(inferred.top1) for inferred in each.inferred},
                "proved": proofs.get(each.protection, []),
                "complete": each.complete,
                "on_frontier": each.on_frontier,
            }
            for each in results.settings
        ],
        "missing": results.missing,
    }


def holding_pictures(directory: Path) -> int:
    """How many record files in the directory of a run hold images, also those of an earlier study."""
    paths = (directory / "records").glob("*.json")
    return sum('"data:image/' in path.read_text(encoding="utf-8") for path in paths)


def _write(path: Path, text: str) -> None:
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_pdf(page: str, path: str | os.PathLike[str]) -> Path:
    """Prints an HTML page that needs no other file; the PDF appears whole or not at all.

    Raises ConfigError without Chromium or Chrome, and SfumatoError if it does not print the page.
    """
    path = Path(path)
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise ConfigError(
            "a PDF is printed by Chromium or Chrome, and none is installed: install one, or print "
            "the page from any browser"
        )
    with tempfile.TemporaryDirectory() as folder, whole(path) as temporary:
        source, printed = Path(folder) / "page.html", Path(folder) / "page.pdf"
        source.write_text(page, encoding="utf-8")
        # Its own sandbox does not start for root; the page runs no script and makes no request.
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [browser, *_FLAGS, *root, f"--user-data-dir={folder}/profile", "--no-pdf-header-footer"]
        try:
            command += [f"--print-to-pdf={printed}", source.as_uri()]
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
            shutil.copyfile(printed, temporary)
        except (OSError, subprocess.SubprocessError) as error:
            raise SfumatoError(f"{browser} did not print the page: print the page from a browser") from error
    return path
