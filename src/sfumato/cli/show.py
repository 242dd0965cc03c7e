"""Output of the commands: notes, progress, tables, JSON and the run of a study."""

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from sfumato.base.files import check_writable, printable

if TYPE_CHECKING:
    from sfumato.base.engines import EngineConfig
    from sfumato.study.board import Row
    from sfumato.study.choose.results import Results
    from sfumato.study.run import Prepared

_WIDEST = 10_000  # characters of a table


@dataclass
class Volume:
    """How much a command prints besides results; `sfumato -q` and `-v` set it."""

    quiet: bool = False  # only warnings and errors: no progress, no notes of choices
    verbose: bool = False  # tracebacks of errors, and the logs of libraries
    keeps: bool = False  # the same command resumes if it is stopped now; see `keeping_work`


VOLUME = Volume()


@contextmanager
def keeping_work() -> Iterator[None]:
    """Marks a block whose finished work a later run of the same command takes: Ctrl-C within it says so."""
    VOLUME.keeps = True
    yield
    VOLUME.keeps = False  # an interrupt does not come here


def note(words: str) -> None:
    """Print a note on a choice to standard error, unless quiet."""
    if words and not VOLUME.quiet:
        typer.echo(words, err=True)


def stderr() -> Console:
    """Return the console for progress."""
    return Console(stderr=True, soft_wrap=True, quiet=VOLUME.quiet)


def print_json(value: Any) -> None:
    """Print a value as a line of JSON; numbers that are not finite are null, since JSON has no infinity."""
    print(json.dumps(_finite(value)), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def print_config(config: Any) -> None:
    """Print a configuration as YAML, as a study file writes it."""
    import yaml

    print(yaml.safe_dump(dataclasses.asdict(config), sort_keys=False), end="")


def settings_of(kind: str) -> Any:
    """Make the option --settings of a command whose --set has the keys of a configuration, `module:Class`."""
    words = "List the keys of --set with their defaults, and stop."
    return typer.Option(
        "--settings",
        is_eager=True,
        callback=lambda wanted: print_settings(kind) if wanted else None,
        help=words,
    )


def print_settings(kind: str) -> NoReturn:
    """Print the keys of a configuration, `module:Class`, with their types and defaults, and stop."""
    from sfumato.base.registry import load
    from sfumato.base.settings import list_keys

    for key, hint, default in list_keys(load(kind)):
        print(f"{key}={default}  ({hint})")
    raise typer.Exit


AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of text.")]
Check = Annotated[bool, typer.Option("--check", help="Say what this data can show, and stop: train nothing.")]
Yes = Annotated[
    bool, typer.Option("--yes", help="Go on without asking if this data is too small for the question.")
]
NoPictures = Annotated[
    bool,
    typer.Option("--no-pictures", help="Show and record no image. Use a new folder: old records hold them."),
]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print the settings that would be used, as YAML, and stop.")
]


def bars() -> Progress:
    """Make progress bars with counts, elapsed time and about the time that is left, on standard error."""
    times = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("left"))
    columns = (BarColumn(), MofNCompleteColumn(), *times, TextColumn("{task.description}"))
    return Progress(*columns, console=stderr(), speed_estimate_period=math.inf)


@contextmanager
def bar(words: str) -> Iterator[Callable[..., None]]:
    """Show one progress bar; yields a function of the numbers done and planned, after other words if any."""
    with bars() as progress:
        task = progress.add_task(words)

        def advance(*told: Any) -> None:
            *new, done, total = told
            progress.update(task, description=new[0] if new else words, completed=done, total=total or None)

        yield advance


def print_table(table: Table) -> None:
    """Print a table whose names stay whole, with longer lines than a narrow terminal has."""
    Console(width=_WIDEST).print(table)


def print_board(rows: "Sequence[Row]") -> None:
    """Print the rows of a board, which others may have written, and the reasons why some do not count."""
    tasks = list(dict.fromkeys(name for row in rows for name in row.tasks))
    counts = list(dict.fromkeys(count for row in rows for count in row.named))
    table = Table("protection", *tasks, *(f"named from {count}" for count in counts), box=None)
    for name in ("bits", "surest 1% right", "strongest", "proof", "bytes", "ms", "marks"):
        table.add_column(name)

    def share(made: Mapping[Any, Any], key: object) -> str:
        return f"{made[key].value:.1%}" if key in made else ""

    for row in rows:
        shares = [*(share(row.tasks, name) for name in tasks), *(share(row.named, count) for count in counts)]
        best = "" if row.strongest is None else f"{row.strongest.top1.value:.1%}"
        cost = [f"{row.bytes:,}", f"{row.milliseconds:.2f}", "!" * len(row.marks)]
        spec, proof = (escape(printable(text)) for text in (row.protection, row.proof or "none"))
        sure = (f"{row.bits.value:.2f}", f"{row.surest.value:.0%}") if row.bits and row.surest else ("", "")
        table.add_row(spec, *shares, *sure, best, proof, *cost)
    print_table(table)
    print("Named among", "; ".join(dict.fromkeys(str(row.had) for row in rows)))
    for row in rows:
        for mark in row.marks:
            print(printable(f"! {row.protection}: {mark}"))


def run_study(
    prepared: "Prepared",
    directory: Path,
    options: Mapping[str, str],
    engine: "EngineConfig",
    *,
    force: bool,
    check: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Run a study after its pre-flight, unless that is all, and print the advice and path of its report.

    `options` are those for bounds and folds, see preflight.show.
    """
    from sfumato.errors import require
    from sfumato.study import preflight, report, run

    require("a study", "study", "sklearn", "matplotlib", "jinja2")
    looked = [preflight.look(part.config, part.data) for part in prepared.variants]
    for sentence in prepared.notes if check else ():  # a run says them itself
        note(sentence)
    say = print if check else note
    if check and as_json:
        print_json([made.as_json() for made in looked] if prepared.others else looked[0].as_json())
    else:
        for part, made in zip(prepared.variants, looked, strict=True):
            if part.varied:
                say(part.config.title)
            preflight.show(made, say, options=options)
    if check:
        return
    check_writable(directory, folder=True)
    if not all(made.fits for made in looked):
        go_on(yes=yes)
    held = 0 if prepared.config.pictures else report.holding_pictures(directory)
    if held:
        note(f"{directory / 'records'}: {held} records of an earlier run hold images: share a new folder")
    with bars() as progress, keeping_work():
        cells = progress.add_task("cells")
        training = progress.add_task("", visible=False)

        def on_cell(words: str, done: int, total: int) -> None:
            progress.update(cells, completed=done, total=total, description=words)
            progress.update(training, visible=False)

        def on_step(done: int, total: int) -> None:
            progress.update(training, completed=done, total=total, description="training", visible=True)

        told = run.Progress(on_cell, on_step, progress.console.print)
        run.run(prepared, directory, force=force, progress=told, engine=engine)
        progress.update(cells, description="writing the report")
        every = report.load_all(directory)
        path = report.write(directory, every)
    conclude(directory, every, path, artefacts=prepared.config.artefacts, as_json=as_json)


def go_on(*, yes: bool) -> None:
    """Ask whether to run a study that cannot show its bound; without a terminal it says so and runs."""
    if yes:
        note("going on (--yes)")
    elif not sys.stdin.isatty():
        note("going on: there is no terminal to ask at. --check stops here")
    elif not typer.confirm("Go on nevertheless?", err=True):
        raise typer.Exit


def conclude(
    directory: Path,
    every: "Sequence[Results]",
    path: Path,
    *,
    artefacts: str | None = None,
    as_json: bool = False,
) -> None:
    """Print the advice of a run, the path of its report, and the next commands, for artefacts elsewhere."""
    from sfumato.study import report
    from sfumato.study.choose.results import next_commands

    first, *others = every
    if others:
        if as_json:
            print_json([report.as_json(results) for results in every])
            return
        for number, results in enumerate(every, 1):
            page = f"report: {report.page_of(path.parent, number)}"
            print("\n".join([results.study["title"], *results.advice.lines, page]))
        return
    if first.study.get("board") and not as_json:
        from sfumato.study.board import join

        print_board(join([directory]))
        print(f"report: {path}")
        return
    trained = None if artefacts is None else Path(artefacts)
    commands = next_commands(directory, first, artefacts=trained)
    if as_json:
        print_json({**report.as_json(first), "report": str(path), "next": commands})
    else:
        print("\n".join([*first.advice.lines, f"report: {path}", *commands]))
