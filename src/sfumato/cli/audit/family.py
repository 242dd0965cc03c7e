"""The family of the audit commands, and how each prints its findings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

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
    help="Attack your own protections, models and updates; say what leaks and what to change.",
    no_args_is_help=True,
)

Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the report as one page that needs nothing else."),
]


def say(report: "Report", *, html: Path | None, as_json: bool) -> None:
    """Print a report, and write its page."""
    from sfumato.audits import findings

    if as_json:
        print_json(findings.as_json(report))
    else:
        print(findings.as_text(report))
    if html is not None:
        from sfumato.audits import page

        note(f"report: {page.write(report, html)}")
