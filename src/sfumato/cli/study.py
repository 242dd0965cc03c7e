"""`sfumato study`: run a study file, or make the report of a run anew."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Compare protections: run a study file, make its report.", no_args_is_help=True)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A study file (YAML).")],
    out: Annotated[Path | None, typer.Option(help="Where to keep the run (default: runs/NAME).")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a setting, as task.shot=1."),
    ] = None,
) -> None:
    """Run a study, or go on with one that was stopped, and write its report."""
    from sfumato.cli.show import run_study
    from sfumato.study import grid

    config = grid.load(file, overrides or [])
    run_study(config, out or Path("runs") / config.name)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(help="The folder of a run.")],
) -> None:
    """Make the report of a run from its records, also of one that is not finished."""
    from sfumato.cli.show import conclude
    from sfumato.study.report import write

    conclude(directory, write(directory))
