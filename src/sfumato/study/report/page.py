"""The page of a report, section by section."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sfumato.base.files import whole
from sfumato.errors import needs_extra
from sfumato.study.choose.estimates import (
    Estimate,
    Study,
    Together,
    accuracies,
    belonging,
    classifier_in_words,
    clean_learner,
    curves,
    episodic,
    guessing,
    interval_in_words,
    is_repeated,
    learner_in_words,
    missing,
    percent,
    risks,
)
from sfumato.study.choose.reading import load_all
from sfumato.study.choose.recommend import SAID, Recommendation, recommend
from sfumato.study.records import Record
from sfumato.study.report.answers import answers
from sfumato.study.report.originals import without_pictures
from sfumato.study.report.tables import all_tables, join_tables
from sfumato.study.vocabulary import ATTACKS


def write(directory: str | os.PathLike[str], *, pictures: bool = True) -> Path:
    """Writes report.html and tables/*.csv of a run, each whole or not at all.

    It removes a table of an earlier report that has no rows now. A study with `vary` has a page for each
    combination of its values, see `page_of`; its tables have them as their first columns.

    Args:
        directory: of the run; or its file of rows, next to which a folder of that name gets the report.
        pictures: whether the page shows images, original ones among them; the records keep them.

    Returns:
        The path of the first page.

    Raises:
        DataError: see load.
        MissingExtraError: matplotlib or Jinja2 is not installed.
    """
    loaded = load_all(directory)
    directory = Path(directory)
    if directory.is_file():
        directory = directory.with_suffix("")
    pages = [render(study, records, pictures=pictures) for study, records in loaded]
    for of_values in zip(*(all_tables(study, records) for study, records in loaded), strict=True):
        table = join_tables(of_values, [study.get("varied", {}) for study, _ in loaded])
        path = directory / "tables" / f"{table.name}.csv"
        if table.rows:
            _write(path, table.csv)
        else:
            path.unlink(missing_ok=True)
    paths = [_write(page_of(directory, number), page) for number, page in enumerate(pages, 1)]
    return paths[0]


def page_of(directory: Path, number: int) -> Path:
    """The page of the n-th combination of the values of `vary`; 1 for a study without."""
    return directory / ("report.html" if number == 1 else f"report-{number}.html")


def render(study: Study, records: Sequence[Record], *, summary: bool = False, pictures: bool = True) -> str:
    """The page of a study as text; for a summary the part above the sections: one page of paper.

    If it shows original images a notice says so; without `pictures` it holds none.
    """
    with needs_extra("a report", "study"):
        import jinja2
        import markupsafe

        from sfumato.study.report.sections import SECTIONS
        from sfumato.study.report.sections.made import format_value

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "markup": markupsafe.Markup,
        "percent": percent,
        "interval": _interval,
        "classifier": classifier_in_words,
        "learner": learner_in_words,
        "shown": format_value,
    }
    records = records if pictures else without_pictures(records)
    advice = recommend(study, records)
    environment.globals |= _common_values(study, records, advice)
    made = [] if summary else [section(study, records) for section in SECTIONS]
    sections = [
        (section, markupsafe.Markup(environment.get_template(f"{name}.html").render(section.values)))
        for section in made
        if section
        for name in (section.template or section.name,)
    ]
    examples = _examples(study, records, advice)
    return environment.get_template("page.html").render(
        sections=sections,
        originals=bool(examples) or any(section.originals for section, _ in sections),
        summary=_summary(study, records),
        answers=answers(study, records, advice),
        examples=examples,
        many=_many(study, records, advice),
        absent=missing(study, records),
    )


def _examples(study: Study, records: Sequence[Record], advice: Recommendation) -> Sequence[Any]:
    """Images and their releases by the recommended setting; none without one."""
    made = {
        record.cell.protection: record.result.examples for record in belonging(study, records, "examples")
    }
    return made.get(advice.setting.protection, ()) if advice.setting else ()


def _many(study: Study, records: Sequence[Record], advice: Recommendation) -> Sequence[Together]:
    """How naming grows with the number of releases of the recommended setting; nothing without one."""
    curve = curves(study, records).get(advice.setting.protection) if advice.setting else None
    return [point for point in curve.points if point.releases in SAID] if curve else []


def _common_values(study: Study, records: Sequence[Record], advice: Recommendation) -> dict[str, Any]:
    """The values that every template may show."""
    return {
        "study": study,
        "task": study["task"],
        "advice": advice,
        "attacks": ATTACKS,
        "attacked": bool(belonging(study, records, "attack")),
        "apart": bool(study["task"].get("secret_is_task")),
        "episodic": episodic(study),
        "several": is_repeated(study),
        "spread": interval_in_words(study),
    }


def _summary(study: Study, records: Sequence[Record]) -> list[str]:
    """The first paragraphs, in plain language."""
    task, data = study["task"], study["data"]
    sensitive = task.get("sensitive")
    count = sum(spec != "none" for spec in study["protections"])
    channels, height, width = data["shape"]
    colour = "grey" if channels == 1 or data.get("grey") else "colour"
    examples = ""
    if episodic(study):
        plural = "" if task["shot"] == 1 else "s"
        examples = f", from {task['shot']} example{plural} of each of {task['way']} classes"
    first = (
        "A device protects its images before it sends them. A service learns to classify what it receives by "
        f"{task['target']}{examples}. This study tries {count} protections on {data['images']:,} {colour} "
        f"images of {width} × {height} pixels ({data['source']}). It measures how often the service is right"
    )
    first += (
        f", and how often an adversary finds out the "
        f"{' or '.join([sensitive, *(task.get('attributes') or [])])}."
        if sensitive
        else ". It names no secret: no adversary was tried."
    )
    clean = accuracies(study, records).get(("none", clean_learner(study)))
    clear = risks(study, records).get(("none", "reidentify-static"))
    if clean is None:
        return [first]
    second = (
        f"Without protection the service is right on {percent(clean.value)} of images "
        f"(guessing: {percent(guessing(study, records) or 0)})"
    )
    if clear:
        second += (
            f", and the adversary names the right {sensitive} on {percent(clear.top1.value)} of them "
            f"(guessing: {percent(clear.chance)})"
        )
    return [first, f"{second}."]


def _interval(estimate: Estimate) -> str:
    return f"{100 * estimate.low:.1f}–{100 * estimate.high:.1f}"


def _write(path: Path, text: str) -> Path:
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
    return path
