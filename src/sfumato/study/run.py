"""Run a study: every cell that has no record yet, one after the other or many at once.

A stopped study resumes. Each cell, and each network that several need, is claimed by the process that makes
it: no two make the same, neither workers of one run nor those of another in the same directory.
"""

import os
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

from sfumato import data, engines, memory, telemetry
from sfumato.data.labelled import LabelledImages
from sfumato.data.splitting import suited
from sfumato.engines import Engine, EngineConfig, lost_workers
from sfumato.errors import BusyError, DataError
from sfumato.files import claimed
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.grid import StudyConfig
from sfumato.study.lab import Lab, Progress, versions
from sfumato.study.records import read_json, source_of, write_json

__all__ = ["Progress", "run"]

_AGAIN = 2.0  # seconds until a cell that waits for a network of another is tried again


def run(
    config: StudyConfig,
    directory: str | os.PathLike[str],
    *,
    fit: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    engine: EngineConfig | None = None,
) -> Path:
    """Make every record of a study that is not there yet, and return the directory.

    The same settings, seed and number of threads give the same results on every engine.

    Args:
        config: see `grid.load`.
        directory: where study.json, records/ and models/ are kept; for a cluster, one that all nodes have
            under this path, with locks that hold among them (as NFS 4 has).
        fit: make episodes smaller where the classes are too small for them; see `grid.fitted`.
        force: go on in a folder that holds the run of a study of another name, or of other data; its records
            stay, and its study.json is replaced.
        progress: see Progress; None for silence, Progress.printed() for a line of each cell.
        engine: where cells run; one after the other in this process unless something else is named.

    Raises:
        DataError, ConfigError: the data does not fit the study; said before anything is trained.
        BudgetExceededError: nor does the budget of private meta-learning have room for a step; said as early.
        SfumatoError: worker processes were lost; what was finished is kept.
    """
    progress = progress or Progress()
    directory = Path(directory).absolute()
    loaded, words = _load(config)
    if not force:
        _check_own(directory, config.name, source_of(loaded.name))
    for sentence in filter(None, (loaded.skipped_in_words, words)):
        progress.note(sentence)
    if fit:
        fitted = grid.fitted(config, loaded)
        for sentence in grid.fitting(config, fitted):
            progress.note(sentence)
        config = fitted
    lab = Lab(config, loaded, directory, progress)
    cells = grid.cells(config)
    listed = [{"digest": lab.digest(cell), "kind": cell.kind, "cell": cell.coordinates} for cell in cells]
    write_json(directory / "study.json", lab.description(listed))
    waiting = deque(
        (cell, entry)
        for cell, entry in zip(cells, listed, strict=True)
        if not _path(directory, entry).exists()
    )
    engine = engine or EngineConfig(workers=1)
    if waiting and engine.name == "local" and engine.workers == 1:
        _one_after_the_other(lab, directory, waiting, len(cells), progress)
    elif waiting:
        with engines.engine(engine, preload=["sfumato.study.run"]) as found:
            _at_once(found, config, directory, waiting, len(cells), progress)
    progress.cell("done", len(cells), len(cells))
    return directory


_Task = tuple[Cell, dict[str, Any]]


def _check_own(directory: Path, name: str, source: str) -> None:
    """Raise DataError for a folder that another study ran in, or one of other data."""
    path = directory / "study.json"
    if not path.exists():
        return
    before = read_json(path, "name another folder")
    theirs = before.get("name"), before.get("data", {}).get("source")
    if theirs != (name, source):
        raise DataError(
            f"{directory}: holds the run of study {theirs[0]!r} on {theirs[1]}, and this is {name!r} on "
            f"{source}: name another folder, or replace that run with --force"
        )


def _load(config: StudyConfig) -> tuple[LabelledImages, str]:
    """The data, with splits that suit the task where it names none; and what was done for that.

    Files that cannot be read are left out, unless the data is `strict`.
    """
    settings, task = {"strict": False, **config.data}, config.task
    loaded = data.load(settings.pop("source"), **settings)
    return suited(
        loaded,
        target=task.target,
        sensitive=task.sensitive,
        episodic=config.episodic,
        split_by=task.split_by,
    )


def _path(directory: Path, entry: dict[str, Any]) -> Path:
    return directory / "records" / f"{entry['digest']}.json"


def _one_after_the_other(
    lab: Lab, directory: Path, waiting: deque[_Task], total: int, progress: Progress
) -> None:
    tried = 0
    while waiting:
        cell, entry = waiting.popleft()
        progress.cell(str(cell), total - len(waiting) - 1, total)
        if _measure(lab, directory, cell, entry):
            tried = 0
            continue
        waiting.append((cell, entry))
        tried += 1
        if tried == len(waiting):  # another process is making all that is left
            time.sleep(_AGAIN)
            tried = 0


def _at_once(
    engine: Engine,
    config: StudyConfig,
    directory: Path,
    waiting: deque[_Task],
    total: int,
    progress: Progress,
) -> None:
    """Keep all workers busy. A cell that needs what another is making goes back, and others come first."""
    running: dict[Future[bool], _Task] = {}
    held_up: list[_Task] = []
    while waiting or running or held_up:
        while waiting and len(running) < max(1, engine.workers):
            cell, entry = waiting.popleft()
            running[engine.submit(_measure_there, config, directory, cell, entry)] = cell, entry
        done = total - len(waiting) - len(running) - len(held_up)
        progress.cell("; ".join(str(cell) for cell, _ in running.values()), done, total)
        if not running:
            time.sleep(_AGAIN)
        finished, _ = wait(running, timeout=_AGAIN, return_when=FIRST_COMPLETED)
        retry = not finished
        for future in finished:
            task = running.pop(future)
            with lost_workers():
                made = future.result()
            retry |= made
            if not made:
                held_up.append(task)
        if retry:
            waiting.extendleft(reversed(held_up))
            held_up.clear()


_kept: tuple[StudyConfig, Path, Lab] | None = None


def _measure_there(config: StudyConfig, directory: Path, cell: Cell, entry: dict[str, Any]) -> bool:
    """`_measure` in a process that keeps the lab for later cells."""
    global _kept
    if _kept is None or _kept[:2] != (config, directory):
        _kept = config, directory, Lab(config, _load(config)[0], directory, Progress())
    return _measure(_kept[2], directory, cell, entry)


def _measure(lab: Lab, directory: Path, cell: Cell, entry: dict[str, Any]) -> bool:
    """Make the record of a cell. -> False where another process is making it, or what it needs."""
    path = _path(directory, entry)
    try:
        with claimed(path):
            if path.exists():
                return True
            start = time.perf_counter()
            facts = {"sfumato.cell.kind": cell.kind, "sfumato.cell.digest": entry["digest"]}
            with telemetry.timed("study cell", facts), memory.kept():
                result = lab.measure(cell)
            seconds = round(time.perf_counter() - start, 2)
            write_json(path, {**entry, "result": result, "seconds": seconds, "versions": versions()})
    except BusyError:
        return False
    return True
