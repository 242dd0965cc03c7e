"""Shared by all audits: the family, the options of a report, and how it is printed and written."""

import hashlib
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import sfumato
from sfumato.base.files import check_writable
from sfumato.cli.show import note, print_json
from sfumato.errors import ConfigError

if TYPE_CHECKING:
    from sfumato.audits.findings import Report

app = typer.Typer(
    help="Find leaks: try all attacks that fit, and say how to mend them.", no_args_is_help=True
)


def _writable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuses a file that cannot be written before the audit, rather than after it."""
    if path is not None:
        check_writable(path, suffix=f".{param.name}")  # --html or --pdf
    return path


Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=_writable, help="Write the report as one self-contained page."),
]
Pdf = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=_writable, help="Also print it as PDF. Needs Chromium or Chrome."),
]
For = Annotated[
    Literal["dpo"] | None,
    typer.Option(
        "--for",
        help="Report to a data-protection officer: singling out, linkability and inference, measured and "
        "proved, the gaps, and the questions of regulators that each figure answers.",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(help="With --for dpo: the share that is accepted (default: 0.09, as in EMA Policy 0070)."),
]


def finish(
    report: "Report",
    as_json: bool,
    html: Path | None = None,
    pdf: Path | None = None,
    audience: str | None = None,
    threshold: float | None = None,
) -> None:
    """Print a report, write its pages, and exit with 1 if something leaks or was not looked at."""
    from sfumato.audits import evidence, findings

    leaks = any(finding.verdict in ("leaks", "not measured") for finding in report.findings)
    if report.audit != "evidence":  # which says itself how to repeat it
        report = replace(report, origin=(*report.origin, *_origin()))
    if audience is not None:
        case = evidence.of_audit(report)
        report = evidence.make_report(case, threshold=evidence.THRESHOLD if threshold is None else threshold)
    elif threshold is not None:
        raise ConfigError(f"--threshold {threshold:g} belongs to --for dpo: add that, or leave it out")
    if as_json:
        print_json(findings.as_json(report))
    else:
        print(findings.as_text(report))
    if html is not None:
        note(f"report: {findings.write_page(report, html)}")
    if pdf is not None:
        from sfumato.study.report import write_pdf

        note(f"PDF: {write_pdf(findings.as_page(report), pdf)}")
    if leaks:
        raise typer.Exit(1)


def _origin() -> Iterator[tuple[str, str]]:
    """Yield the command that runs, the digests of files that it names, the version and the day."""
    words = sys.argv[1:]
    yield "command", shlex.join(["sfumato", *map(_bare, words)])
    for path in dict.fromkeys(Path(word.rpartition("=")[2]) for word in words):
        if path.is_file() and path.suffix.lower() not in (".html", ".pdf"):  # which it writes
            with path.open("rb") as file:
                yield f"SHA-256 of {path.name}", hashlib.file_digest(file, "sha256").hexdigest()
    yield "made by", f"sfumato {sfumato.__version__}, {datetime.now(UTC):%Y-%m-%d} (UTC)"


def _bare(word: str) -> str:
    """Take the folders out of a word of a command: its options stay, and of a path its last part.

    All from the last = or : before the first separator to the last separator goes, whatever it holds.
    """
    word = re.sub(r"=(\d+)/(\d+)(?=[,@]|$)", "=\\1\N{FRACTION SLASH}\\2", word)  # as in cell=1/8
    first = re.search(r"[/\\]|(?<![^=:])~", word)
    if first is not None:
        head, (*_, last) = word[: first.start()], re.split(r"[/\\]", word[first.start() :].rstrip("/\\"))
        option = head[: max(head.rfind("="), head.rfind(":")) + 1]
        if "://" in word:  # no password, no key
            last = last.rpartition("@")[2].partition("?")[0]
        word = re.sub(r"(^|[=:])[A-Za-z]:$", r"\1", option) + ("" if "~" in last[:1] else last)
    return word.replace("\N{FRACTION SLASH}", "/")


def image_shape(text: str) -> tuple[int, int, int]:
    """Parse (C, H, W) from --shape. Raises ConfigError."""
    try:
        channels, height, width = map(int, text.split("x"))
        if min(channels, height, width) < 1:
            raise ValueError
    except ValueError:
        raise ConfigError(f"--shape {text}: write channels x height x width, as 3x28x28") from None
    return channels, height, width
