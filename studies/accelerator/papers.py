"""What claims on the papers wait for, by its worth: FS-PIC at length, Meta-Clip at less noise.

    studies/accelerator/run.sh OUT --only papers+student
    python studies/accelerator/papers.py OUT --keep     # puts what is done into studies/results

On the card: the settings of studies/omniglot-long.yaml that have no record in studies/results yet, and those of
studies/lfw-published-longer.yaml. On processors beside it: Meta-Clip and its rivals at less noise inside, each with settings that
its seed chose, see `sweep` of studies/clipping.py; then the comparisons there that have no record, such as Reptile's.
"""

import sys
import traceback
from dataclasses import asdict, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import clipping
import torch
from pool import Options, Task, card, file_of, lines, one_of_each_kind, options, run
from rows import RESULTS, Rows

from sfumato.study import cells as kinds
from sfumato.study import grid, records
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.run import _measure, description, entry, prepare

CLIPPING = clipping.RECORDS
STUDIES = ("omniglot-long", "lfw-published-longer")
NOISES = (0.03, 0.1, 0.01, 0.003)  # the paper's, 0.373, has records
SWEPT = {"norms": ("fixed at *", "meta-clip"), "adaclip": ("adaclip",), "logarithm": ("in the logarithm*",)}
CLEAN = "every protection"  # of one training on clear images
_TRAINING = {"epochs": 1, "episodes_per_epoch": 2, "validation_episodes": 3, "denoiser_width": 4}
SMALL = (*(f"training.{key}={value}" for key, value in _TRAINING.items()), "task.episodes=6")  # of a trial


def tasks() -> list[Task]:
    """Those of the card, then those of processors."""
    made = [task for name in STUDIES for task in _trainings(name)]
    made += [*_sweeps("norms", "adaclip"), *_sweeps("logarithm")]
    done = set(clipping.RECORDS)
    for about, seeds, names in clipping.COMPARED:
        policies = clipping.policies(clipping.chosen(about[0]), names)
        for seed, name in product(seeds, policies):
            comparison = clipping.Comparison(*about, seed)
            settings = {**asdict(comparison), "policy": name}
            if (task := f"{comparison.name}, {name}") not in done:
                made.append(Task(task, settings, about[0], on_card=False))
    return made


def _sweeps(*parts: str) -> list[Task]:
    done, made = set(clipping.RECORDS), []
    for seed, noise, part in product(clipping.SEEDS, NOISES, parts):
        whole = clipping.Comparison("maml", 1, None, seed, clipping.STEPS, noise).name
        settings = {"noise": noise, "part": part, "seed": seed}
        if f"{whole}, {SWEPT[part][-1].rstrip('*')}" not in done:
            made.append(Task(f"noise {noise:g}, {part}, seed {seed}", settings, part, on_card=False))
    return made


def _trainings(name: str) -> list[Task]:
    """One for each few-shot model of a study that lacks a record; the model of clear images is that of all protections."""
    cells = [row["cell"] for row in _known(name) if row["kind"] == "accuracy"]
    done = {(cell["protection"], cell["learner"], cell["seed"]) for cell in cells}
    config = grid.load(Path(__file__).parents[1] / f"{name}.yaml")
    missing = [
        (CLEAN if learner == "clean" else spec, learner, seed)
        for seed, spec, learner in product(config.seeds, config.specs, config.learners)
        if spec != "none" and (spec, learner, seed) not in done
    ]
    made = []
    for spec, learner, seed in dict.fromkeys(missing):
        settings = {"study": name, "learner": learner, "protection": spec, "seed": seed}
        made.append(Task(f"{name}, {learner}, {spec}, seed {seed}", settings, f"{name}, {learner}"))
    return made


def _known(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"{name}.jsonl"
    return [row for _, row in records.read_run(path) if "digest" in row] if path.exists() else []


def work(task: Task, given: Options) -> dict[str, Any]:
    """What a task adds to the records of its study or script."""
    if "study" in task.settings:
        return train_few_shot(task, given)
    rows = Rows(given.out / "rows" / file_of(task.name).replace("safetensors", "jsonl"))
    rows.path.unlink(missing_ok=True)
    (sweep if "noise" in task.settings else compare)(task, given, rows)
    return {"rows": dict(rows)}


def sweep(task: Task, given: Options, rows: Rows) -> None:
    """Some policies at one noise."""
    noise, part, seed = task.settings.values()
    begin_comparison(rows, given)
    steps = max(8, round(given.scale * clipping.STEPS))
    clipping.sweep(noise, seed, SWEPT[part], torch.device("cpu"), steps=steps)


def compare(task: Task, given: Options, rows: Rows) -> None:
    """One policy of a comparison."""
    settings = dict(task.settings)
    name = settings.pop("policy")
    clipping.RECORDS = CLIPPING
    known = clipping.policies(clipping.chosen(settings["algorithm"]), (name,))
    begin_comparison(rows, given)
    if given.scale < 1:
        settings["steps"] = 8
    clipping.measure(clipping.Comparison(**settings), known, torch.device("cpu"))


def begin_comparison(rows: Rows, given: Options) -> None:
    """Write records of policies to a file of one's own; in a trial after few episodes."""
    clipping.RECORDS = rows
    if given.scale < 1:
        clipping.EPISODES = clipping.VALIDATED = clipping.ON_THE_WAY = 4


@cache
def lab_of(name: str, given: Options) -> Lab:
    """The data of a study, read once by each process."""
    card()
    config = grid.load(Path(__file__).parents[1] / f"{name}.yaml", SMALL if given.scale < 1 else ())
    prepared = prepare(config, fit=True)
    return Lab(prepared.config, prepared.data[0], given.out / name, Progress())


def train_few_shot(task: Task, given: Options) -> dict[str, Any]:
    """The records of one model; what fails is left to `sfumato study run`, so that no training is lost."""
    name, learner, spec, seed = task.settings.values()
    lab, made, failed = lab_of(name, given), [], []
    for cell in kinds.cells(lab.config):
        if cell.seed != seed or cell.protection == "none" or spec not in (cell.protection, CLEAN):
            continue
        # Who learns from what is released measures the release as well.
        which = dict(cell.which)
        by_view = "denoised" if which.get("view") == "denoised" else "protected"
        if (which.get("learner") or by_view) != learner:
            continue
        listed = entry(lab, cell)
        try:
            assert _measure([lab], given.out / name, cell, listed)  # no other process makes it
            made.append(records.read_json(_path(name, listed, given), records.CURE))
        except Exception:
            failed.append(str(cell))
            print(f"papers: {cell} failed", traceback.format_exc(), flush=True)
    return {"records": made, "failed": failed}


def _path(name: str, record: dict[str, Any], given: Options) -> Path:
    return given.out / name / "records" / f"{record['digest']}.json"


def put_back(given: Options) -> None:
    """Give the folders of the studies the records that there are, so that they are not made again."""
    of = {name: _known(name) for name in STUDIES if given.scale == 1}
    for line in lines("papers", given):
        of.setdefault(line["settings"].get("study", ""), []).extend(line["result"].get("records", []))
    for name in STUDIES:
        for record in of.get(name, []):
            records.write_json(_path(name, record, given), record)


def keep(given: Options) -> None:
    """Put the rows and records of finished tasks into studies/results."""
    for line in lines("papers", given):
        CLIPPING.update(line["result"].get("rows", {}))
    put_back(given)
    for name in STUDIES:
        lab = lab_of(name, given)
        listed = [entry(lab, cell) for cell in kinds.cells(lab.config)]
        made = sum(_path(name, each, given).exists() for each in listed)
        print(f"{name}: {made} of {len(listed)} records")
        if made:
            records.write_json(given.out / name / "study.json", description([lab], listed))
            records.pack(given.out / name, RESULTS / f"{name}.jsonl")


def main() -> int:
    """Do what there is time for, or keep what is done."""
    if "--keep" in sys.argv:
        sys.argv.remove("--keep")
        keep(options(__doc__))
        return 0
    given = options(__doc__)
    put_back(given)
    todo = tasks()
    if given.scale < 1:
        todo = one_of_each_kind(todo[::-1])
    # More processes would not make a card faster that computes for one of them at a time.
    return run("papers", todo, work, replace(given, on_card=max(1, given.workers // 2)))


if __name__ == "__main__":
    raise SystemExit(main())
