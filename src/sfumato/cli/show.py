"""What the commands show while they work, and when they are done."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_WIDEST = 10_000  # characters

if TYPE_CHECKING:
    from sfumato.engines import EngineConfig
    from sfumato.study.grid import StudyConfig


@contextmanager
def bars(console: Console) -> Iterator[Progress]:
    """Progress bars with counts and elapsed time."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        yield progress


def print_table(table: Table) -> None:
    """Print a table whose names stay whole: where the terminal is narrower, its lines are longer."""
    for column in table.columns:
        column.no_wrap = True
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    Console(width=max(console.width, needed)).print(table, crop=False)


def run_study(
    config: "StudyConfig",
    directory: Path,
    *,
    fit: bool = False,
    force: bool = False,
    engine: "EngineConfig | None" = None,
) -> None:
    """Run a study with progress bars, write its report, and print what it recommends and where it is."""
    from sfumato.errors import require
    from sfumato.study import report, run

    require("a study", "study", "sklearn", "matplotlib", "jinja2")
    console = Console(stderr=True, soft_wrap=True)
    with bars(console) as progress:
        cells = progress.add_task("cells")
        training = progress.add_task("", visible=False)

        def on_cell(words: str, done: int, total: int) -> None:
            progress.update(cells, completed=done, total=total, description=words)
            progress.update(training, visible=False)

        def on_step(done: int, total: int) -> None:
            progress.update(training, completed=done, total=total, description="training", visible=True)

        told = run.Progress(on_cell, on_step, console.print)
        run.run(config, directory, fit=fit, force=force, progress=told, engine=engine)
        progress.update(cells, description="writing the report")
        path = report.write(directory)
    conclude(directory, path, artefacts=None if config.artefacts is None else Path(config.artefacts))


def conclude(directory: Path, path: Path, *, artefacts: Path | None = None) -> None:
    """Print what the run in a directory recommends, where its report is, and what uses the recommendation.

    Args:
        directory: of the run.
        path: of its report.
        artefacts: the folder of trained protections, where it is not that of the run.
    """
    from sfumato.study import recommend, report, use

    study, records = report.load(directory)
    found = recommend.recommend(study, records)
    for line in found.lines:
        print(line)
    print(f"report: {path}")
    if found.setting is not None:
        for line in use.commands(directory, study, records, found.setting, artefacts=artefacts):
            print(line)
