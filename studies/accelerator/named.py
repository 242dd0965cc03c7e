"""Who is named in releases and in denoised images at the paper's epsilon: cells of studies/lfw-published-named.yaml.

    studies/accelerator/run.sh OUT --only named

Needs runs/data/lfw, see studies/unpack.py. A task is all that is learned, measured and attacked of one setting and seed: DP-Pix
at every seed, then the other obfuscations seed by seed. Of 16 tasks at once on one NVIDIA H100, six of them these, each took 90
seconds: the 60 tasks take some 15 minutes of a card alone.

A line has the records of its cells, as `sfumato study run` makes them. OUT/named is the folder of that study's run, which goes on
there with what is left: clear images, and many releases of a person, which need no accelerator. OUT/lfw-published-named.jsonl
has what is done so far, for studies/results.
"""

import traceback
from functools import cache
from pathlib import Path
from typing import Any

from pool import Options, Task, card, lines, options, run

from sfumato.study import grid, records
from sfumato.study.description import description
from sfumato.study.lab.lab import Lab
from sfumato.study.lab.progress import Progress
from sfumato.study.parts import kinds
from sfumato.study.run import _measure, entry, prepare

STUDY = Path(__file__).parents[1] / "lfw-published-named.yaml"
LEFT = {"many"}  # kinds of cells that take long, and no network that is trained here
# What a trial does not do.
SMALL = (
    "training.epochs=1",
    "training.episodes_per_epoch=2",
    "training.validation_episodes=3",
    "training.denoiser_width=4",
    "task.episodes=6",
    "adversary.gallery=1",
    "adversary.probes=1",
)


def tasks() -> list[Task]:
    """By their worth."""
    config = grid.load(STUDY)
    pairs = [(spec, seed) for seed in config.seeds for spec in config.specs if spec != "none"]
    pairs.sort(key=lambda pair: not pair[0].startswith("dp-pix"))
    return [Task(f"{spec}, seed {seed}", {"protection": spec, "seed": seed}) for spec, seed in pairs]


@cache
def lab_of(given: Options) -> Lab:
    """The data of the study, read once by each process."""
    card()
    prepared = prepare(grid.load(STUDY, SMALL if given.scale < 1 else ()), fit=True)
    return Lab(prepared.config, prepared.data[0], given.out / "named", Progress())


def work(task: Task, given: Options) -> dict[str, Any]:
    """The records of one setting and seed; what fails is left to `sfumato study run`, so that no training is lost."""
    lab, made, failed = lab_of(given), [], []
    cells = [cell for cell in kinds.cells(lab.config) if cell.kind not in LEFT]
    for cell in sorted(cells, key=lambda cell: cell.kind == "attack"):
        if {"protection": cell.protection, "seed": cell.seed} != task.settings:
            continue
        listed = entry(lab, cell)
        try:
            assert _measure(lab, given.out / "named", cell, listed)  # no other process makes it
            made.append(records.read_json(_path(listed, given), records.CURE))
        except Exception:
            failed.append(str(cell))
            print(f"named: {cell} failed", traceback.format_exc(), flush=True)
    return {"records": made, "failed": failed}


def _path(record: dict[str, Any], given: Options) -> Path:
    return given.out / "named" / "records" / f"{record['digest']}.json"


def pack(given: Options) -> None:
    """Write the study's file of rows."""
    lab, folder = lab_of(given), given.out / "named"
    listed = [entry(lab, cell) for cell in kinds.cells(lab.config)]
    records.write_json(folder / "study.json", description([lab], listed))
    records.pack(folder, given.out / f"{STUDY.stem}.jsonl")


def main() -> int:
    """Go on from the lines that there are, as far as there is time."""
    given = options(__doc__)
    for line in lines("named", given):
        for record in line["result"]["records"]:
            records.write_json(_path(record, given), record)
    failed = run("named", tasks(), work, given)
    pack(given)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
