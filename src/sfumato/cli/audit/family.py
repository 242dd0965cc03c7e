"""The family of the audit commands, and how each prints its findings."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer.core import TyperGroup

from sfumato.base.files import check_writable
from sfumato.cli.show import note, print_json
from sfumato.errors import ConfigError

if TYPE_CHECKING:
    from sfumato.audits.findings import Report


class _Family(TyperGroup):
    """Refuses `sfumato audit SPEC`, an old form, and names the new one."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        first = args[0] if args else "--help"
        if first not in self.commands and first != "--help":
            raise ConfigError(
                f"sfumato audit {' '.join(args)}: say what to audit, one of {', '.join(self.commands)}: "
                "for a protection write `sfumato audit protection SPEC`"
            )
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Family,
    help="Find what leaks: try all attacks that fit, and say what to change.",
    no_args_is_help=True,
)


def _writable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuses a file that cannot be written before the audit, rather than after it."""
    if path is not None:
        check_writable(path, suffix=f".{param.name}")  # --html or --pdf
    return path


Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        callback=_writable,
        help="Write the report as one page that needs nothing else.",
    ),
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
Pdf = Annotated[
    Path | None,
    typer.Option(
        "--pdf",
        metavar="FILE",
        callback=_writable,
        help="Also print it as PDF. Needs Chromium or Chrome.",
    ),
]


def say(
    report: "Report",
    *,
    html: Path | None,
    as_json: bool,
    audience: str | None = None,
    threshold: float | None = None,
    pdf: Path | None = None,
) -> None:
    """Print a report, for an audience if one is named, and write its page.

    Raises:
        typer.Exit: with 1, if something leaks or was not looked at.
    """
    leaks = any(finding.verdict in ("leaks", "not measured") for finding in report.findings)
    from sfumato.audits import evidence, findings

    if audience is not None:
        case = evidence.of_audit(report, command=_command())
        report = evidence.make_report(case, threshold=evidence.THRESHOLD if threshold is None else threshold)
    elif threshold is not None:
        raise ConfigError(f"--threshold {threshold:g} belongs to --for dpo: add that, or leave it out")
    if as_json:
        print_json(findings.as_json(report))
    else:
        print(findings.as_text(report))
    if html is not None:
        from sfumato.audits import page

        note(f"report: {page.write(report, html)}")
    if pdf is not None:
        from sfumato.audits import page
        from sfumato.study.report import write_pdf

        note(f"PDF: {write_pdf(page.render(report), pdf)}")
    if leaks:
        raise typer.Exit(1)


def _command() -> str:
    """The command that runs, without folders of this machine."""
    return shlex.join(["sfumato", *(Path(word).name if word[:1] in "/~" else word for word in sys.argv[1:])])
