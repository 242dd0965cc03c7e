"""Run a study: every cell without a record, one after the other or many at once.

A stopped study resumes. The process that makes a cell, or a network that several need, claims it: no two make
the same, neither workers of one run nor those of another in the same directory.
"""

import os
import pickle
import platform
import sys
import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sfumato
from sfumato import data
from sfumato.base import engines, memory
from sfumato.base.engines import Engine, EngineConfig
from sfumato.base.files import claim
from sfumato.base.settings import yaml_of
from sfumato.data.copies import find_shared
from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.stored import Stored
from sfumato.data.splitting import in_turns, split_for_task
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import BusyError, ConfigError, DataError
from sfumato.study import cells as kinds
from sfumato.study import grid
from sfumato.study.cells import Cell, method_of
from sfumato.study.choose.results import load_all
from sfumato.study.grid import StudyConfig
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.measure import accuracy, inference, looks
from sfumato.study.preflight import follows
from sfumato.study.records import names_of, read_json, source_of, write_json
from sfumato.study.vocabulary import CLASSIFIER, FEW_SHOT, GREY_IMAGES, JUDGED, LEARNERS, split_measure

__all__ = ["Prepared", "Progress", "prepare", "run"]

_AGAIN = 2.0  # seconds until a cell that waits for a network of another is tried again
# Each process would import them for itself. One that is not installed is left out.
_MODULES = ("sfumato.study.run", "torch._dynamo", "sklearn.ensemble", "sklearn.svm")
_SENT = 256 << 20  # bytes of images at most that a process gets from the first; it reads larger data itself


@dataclass(frozen=True)
class Prepared:
    """A study with its data, before anything is trained."""

    config: StudyConfig  # its episodes fit if the caller wished so
    data: tuple[LabelledImages, ...]  # with splits that suit the task, once for each fold
    notes: tuple[str, ...]  # the changes made for that, and the files that were left out, a sentence each
    varied: Mapping[str, Any] = field(default_factory=dict)  # key -> its value, for a study with `vary`
    others: tuple["Prepared", ...] = ()  # the study with the further combinations of values

    @property
    def variants(self) -> tuple["Prepared", ...]:
        """The study with each combination of the values of `vary`; itself alone without."""
        return (self, *self.others)


def prepare(config: StudyConfig, *, fit: bool = False, loaded: LabelledImages | None = None) -> Prepared:
    """Loads the data of a study, and splits it as the study says.

    With `fit` episodes are made smaller if classes are too small for them; see `grid.fit_to_data`. `loaded`
    is the data of an earlier Prepared; None reads it. Raises DataError, ConfigError: it does not fit.
    """
    read = {} if loaded is None else {yaml_of(config.data): loaded}
    made = []
    for varied, own in grid.variants(config):
        if (key := yaml_of(own.data)) not in read:
            settings = {"strict": False, **own.data}  # leaves out unreadable files
            read[key] = data.load(settings.pop("source"), **settings)
        made.append(replace(_prepare(own, read[key], fit=fit), varied=varied))
    return replace(made[0], others=tuple(made[1:]))


def _prepare(config: StudyConfig, loaded: LabelledImages, *, fit: bool) -> Prepared:
    task, parts = config.task, [loaded]
    labels: dict[str, Any] = {"target": task.target, "sensitive": task.sensitive}
    if task.folds > 1:
        parts, words = in_turns(loaded, **labels, folds=task.folds)
    else:
        parts[0], words = split_for_task(loaded, **labels, episodic=config.episodic, split_by=task.split_by)
    fitted = reduce(grid.fit_to_data, parts, config) if fit else config
    grey = f"the images are {GREY_IMAGES}" if loaded.are_grey else ""
    both = map(str, find_shared(parts[0], target=task.target, secret=task.sensitive))
    notes = (loaded.describe_left_out(), grey, words, *both, *grid.fitting(config, fitted))
    return Prepared(fitted, tuple(parts), tuple(filter(None, notes)))


def run(
    config: StudyConfig | Prepared,
    directory: str | os.PathLike[str],
    *,
    fit: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    engine: EngineConfig | None = None,
) -> Path:
    """Makes every missing record of a study, and returns the directory.

    The same settings, seed and number of threads give the same results on every engine.

    Args:
        config, fit: see `grid.load` and `prepare`; or a prepared study, which has its data.
        directory: of study.json, records/ and models/; for a cluster, one that all nodes have under this
            path, with locks that hold among them (as NFS 4 has).
        force: continue in a folder of another study, or of other data: only its study.json is replaced.
        progress: None for silence, Progress(cell=print, note=print) for a line per cell.
        engine: runs the cells; one after the other in this process by default.

    What does not fit the data, or no budget of private meta-learning has room for, is an error before any
    training. If worker processes are lost, all finished work is kept.
    """
    progress = progress or Progress()
    directory = Path(directory).absolute()
    prepared = config if isinstance(config, Prepared) else prepare(config, fit=fit)
    if not force:
        _check_own(directory, prepared.config.name, prepared.data[0])
    for sentence in dict.fromkeys(chain.from_iterable(part.notes for part in prepared.variants)):
        progress.note(sentence)
    plans: list[tuple[Prepared, list[Lab], list[_Task]]] = []
    for part in prepared.variants:
        labs = [Lab(part.config, each, directory, progress) for each in part.data]
        for lab in labs:
            check(lab)
            if "adversary.known" in part.varied and (few := lab.adversaries.cut_gallery):
                raise ConfigError(f"vary: {few}: leave this value out, or add photographs of the people")
        tasks = [(cell, entry(_lab_of(labs, cell), cell)) for cell in kinds.cells(part.config)]
        plans.append((part, labs, tasks))

    def keep() -> None:
        described = [description(labs, [listed for _, listed in tasks]) for _, labs, tasks in plans]
        write_json(directory / "study.json", _join([part.varied for part in prepared.variants], described))

    keep()
    engine = engine or EngineConfig(workers=1)
    for number, (part, labs, tasks) in enumerate(plans):
        total = len(tasks)
        waiting = deque(task for task in tasks if not _path_of(directory, task[1]).exists())
        if waiting and engine.name == "local" and engine.workers == 1:
            _one_after_the_other(labs, directory, waiting, total, progress)
        elif waiting:
            begin = _bring(part.config, directory, part.data)
            with engines.engine(engine, preload=_MODULES, begin=begin) as found:
                _at_once(found, part.config, directory, waiting, total, progress)
        for cell in looks.list_examples(part.config, _find_recommended(part.config, directory, number)):
            tasks.append((cell, entry(_lab_of(labs, cell), cell)))
            _one_after_the_other(labs, directory, deque(tasks[-1:]), total, progress)
            keep()
        progress.cell("done", total, total)
    return directory


_Task = tuple[Cell, dict[str, Any]]  # a cell, and what study.json lists of it


def entry(lab: Lab, cell: Cell) -> dict[str, Any]:
    """What study.json lists of a cell."""
    return {"digest": kinds.digest(lab, cell), "kind": cell.kind, "cell": cell.coordinates}


def _path_of(directory: Path, entry: dict[str, Any]) -> Path:
    return directory / "records" / f"{entry['digest']}.json"


def check(lab: Lab) -> None:
    """Raises DataError or ConfigError now rather than after an hour: labels, class sizes, too large cells."""
    config = lab.config
    if config.episodic:
        accuracy.FEW_SHOT.check(lab)
    for name in {LEARNERS[name].method: name for name in config.learners}.values():
        if LEARNERS[name].method != FEW_SHOT:
            method_of(LEARNERS[name]).check(lab)
    if config.task.sensitive is not None and (config.attacks or JUDGED.intersection(config.measures)):
        lab.adversaries.check()
    inference.check(lab)
    for spec in config.specs:
        if spec in lab.recipes:
            lab.recipes[spec].trained.check(lab)
        else:
            lab.protection_of(spec, 0).release(lab.test.images[:1], seeded_noise(0))


def _find_recommended(config: StudyConfig, directory: Path, number: int) -> str | None:
    """The spec that the records of a run recommend; with `vary` those of one combination of values."""
    advice = load_all(directory)[number].advice
    own = {spec: spec for spec in config.specs} | {
        name: spec for spec, name in names_of(config.specs).items()
    }
    return own[advice.setting.protection] if advice.setting else None


def _check_own(directory: Path, name: str, loaded: LabelledImages) -> None:
    """Raises DataError for a folder of another study, of other data, or of files that are no run's."""
    path = directory / "study.json"
    if not path.exists():
        names = {each.name for each in directory.glob("[!.]*")} - {"records", "models"}
        if names:
            raise DataError(
                f"{directory}: holds {len(names):,} other files, such as {min(names)}, and no run: name a "
                "new folder"
            )
        return
    before, source = read_json(path, "name another folder"), source_of(loaded.name)
    theirs = before.get("data", {})
    # By content: two folders may have one name in a study, and one folder two. Older runs have a name.
    same = (
        theirs["content"] == replace(loaded, splits={}).digest
        if "content" in theirs
        else theirs.get("source") == source
    )
    if before.get("name") != name or not same:
        raise DataError(
            f"{directory}: holds the run of study {before.get('name')!r} on {theirs.get('source')}, and this "
            f"is {name!r} on {source}{'' if same else ', other images or labels'}: name another folder, or "
            "replace that run with --force"
        )


def description(labs: Sequence[Lab], cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of study.json: the settings, the data and the cells. `labs`: one for each fold."""
    lab, *others = labs
    config, task, content = lab.config, lab.config.task, replace(lab.data, splits={}).digest
    folds: list[dict[str, Any]] = [
        {"digest": each.data.digest, "splits": {name: len(rows) for name, rows in each.data.splits.items()}}
        for each in labs
    ]
    if others:  # each image is tested in one fold
        tested = {"test": sum(fold["splits"]["test"] for fold in folds)}
        folds = [{"digest": content, "splits": tested, "folds": folds}]
    left_out = lab.data.describe_left_out(names=False).replace("left out", "Left out of the data", 1)
    told = [find_shared(each.data, target=task.target, secret=task.sensitive) for each in labs]
    both = list(dict.fromkeys(each.words for of_fold in told for each in of_fold))
    told_by_task = task.sensitive is not None and any(
        follows(each.asked.label(task.target).codes, each.asked.label(task.sensitive).codes) for each in labs
    )
    groups = {label: [each.groups(label) for each in labs] for label in task.groups}
    recipes = {recipe.trained.name for recipe in lab.recipes.values()}
    used = {
        "training": True,
        "meta": config.meta_learns,
        "classifier": any(LEARNERS[name].method == CLASSIFIER for name in config.learners),
        **{f"{name}s": name in recipes for name in ("mask", "feature", "code")},
        **{"adversary": True, "student": "reidentify-student" in config.attacks},
        "inversion": bool(config.reconstructions),
    }
    return {
        "name": config.name,
        "title": config.title or config.name,
        "data": {
            "source": source_of(lab.data.name),
            "images": len(lab.data),
            "shape": list(lab.data.images.shape[1:]),
            **({"grey": True} if lab.data.are_grey else {}),
            "content": content,
            **folds[0],
            **({"shared": both} if both else {}),
        },
        "task": {**asdict(config.task), "secret_is_task": told_by_task},
        "protections": config.specs,
        "learners": config.learners,
        "attacks": config.attacks if config.task.sensitive is not None else [],
        "measures": [split_measure(each)[0] for each in config.measures],
        "recommend": asdict(config.recommend),
        "seeds": config.seeds,
        **({"board": True} if config.board else {}),
        **({"groups": groups} if groups else {}),
        **{name: asdict(getattr(config, name)) for name in used if used[name]},
        "left_out": kinds.list_omissions(config) + ([f"{left_out}."] if left_out else []),
        "versions": versions(lab.device),
        "cells": cells,
    }


def _join(varied: Sequence[Mapping[str, Any]], described: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One description of a study with `vary`: the first, the cells of all, and how each differs."""
    first = described[0]
    if not varied[0]:
        return first
    pairs = list(zip(varied, described, strict=True))
    cells = [{**cell, "varied": values} for values, own in pairs for cell in own["cells"]]
    variants = [
        {"varied": values, **{key: own[key] for key in own if key != "cells" and own[key] != first.get(key)}}
        for values, own in pairs
    ]
    return {**first, "cells": cells, "vary": variants}


def versions(device: torch.device) -> dict[str, str]:
    """The versions that a result depends on, for its record, and the GPU that trained if one did."""
    return {
        **({"device": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}),
        "sfumato": sfumato.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": str(torch.get_num_threads()),
        "machine": f"{sys.platform} {platform.machine()}",
    }


def _one_after_the_other(
    labs: Sequence[Lab], directory: Path, waiting: deque[_Task], total: int, progress: Progress
) -> None:
    tried = 0
    while waiting:
        progress.cell(str(waiting[0][0]), total - len(waiting), total)
        if _measure(labs, directory, *waiting[0]):
            waiting.popleft()
            tried = 0
            continue
        waiting.rotate(-1)
        tried = (tried + 1) % len(waiting)
        if not tried:  # another process is making all that is left
            time.sleep(_AGAIN)


def _at_once(
    engine: Engine,
    config: StudyConfig,
    directory: Path,
    waiting: deque[_Task],
    total: int,
    progress: Progress,
) -> None:
    """Keeps all workers busy. A cell that waits for another goes back, and others come first."""
    running: dict[Future[bool], _Task] = {}
    held_up: list[_Task] = []
    at: dict[int, Future[bool]] = {}  # the last cell of each worker, and its protection:
    of: dict[int, str] = {}
    while waiting or running or held_up:
        for worker in range(max(1, engine.workers)):
            if waiting and at.get(worker) not in running:
                others = {of[other] for other, future in at.items() if other != worker and future in running}
                cell, entry = _take_next(waiting, of.get(worker), others)
                at[worker] = engine.submit(_measure_there, config, directory, cell, entry, worker=worker)
                of[worker], running[at[worker]] = cell.protection, (cell, entry)
        done = total - len(waiting) - len(running) - len(held_up)
        progress.cell("; ".join(str(cell) for cell, _ in running.values()), done, total)
        if not running:
            time.sleep(_AGAIN)
        finished = dict(engines.gather(running, timeout=_AGAIN))
        retry = not finished
        for future, made in finished.items():
            task = running.pop(future)
            retry |= made
            if not made:
                held_up.append(task)
        if retry:
            waiting.extendleft(reversed(held_up))
            held_up.clear()


def _take_next(waiting: deque[_Task], own: str | None, others: Container[str]) -> _Task:
    """Takes out a cell of a worker's own protection, else of one that no other is at, else the first."""
    chosen = min(waiting, key=lambda task: (task[0].protection != own, task[0].protection in others))
    waiting.remove(chosen)
    return chosen


_kept: tuple[StudyConfig, Path, list[Lab]] | None = None


def _bring(config: StudyConfig, directory: Path, data: Sequence[LabelledImages]) -> Callable[[], Any] | None:
    """Gives the data to other processes, which need not draw or decode it again; None if it is too large."""
    images = {id(part.images): part.images for part in data}.values()
    if any(isinstance(each, Stored) for each in images) or sum(each.nbytes for each in images) > _SENT:
        return None
    # By value: torch would share memory, if /dev/shm has room.
    return partial(_open_labs, config, directory, pickle.dumps(data))


def _open_labs(config: StudyConfig, directory: Path, data: bytes | None = None) -> list[Lab]:
    """The labs of a process, which keeps them for later cells; `data` is that of another process."""
    global _kept
    if _kept is None or _kept[:2] != (config, directory):
        parts = prepare(config).data if data is None else pickle.loads(data)
        _kept = config, directory, [Lab(config, part, directory, Progress()) for part in parts]
    return _kept[2]


def _measure_there(config: StudyConfig, directory: Path, cell: Cell, entry: dict[str, Any]) -> bool:
    return _measure(_open_labs(config, directory), directory, cell, entry)


def _lab_of(labs: Sequence[Lab], cell: Cell) -> Lab:
    return labs[cell.seed] if len(labs) > 1 else labs[0]


def _measure(labs: Sequence[Lab], directory: Path, cell: Cell, entry: dict[str, Any]) -> bool:
    """Makes the record of a cell. False if another process is making it, or one of its parts."""
    lab, path = _lab_of(labs, cell), _path_of(directory, entry)
    try:
        with claim(path):
            if path.exists():
                return True
            start, used = time.perf_counter(), time.process_time()
            with memory.keep_freed():
                result = kinds.measure(lab, cell)
            seconds = round(time.perf_counter() - start, 2)
            taken = {"seconds": seconds, "processor_seconds": round(time.process_time() - used, 2)}
            write_json(path, {**entry, "result": result, **taken, "versions": versions(lab.device)})
    except BusyError:
        return False
    return True
