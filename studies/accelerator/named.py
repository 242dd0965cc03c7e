"""Who is named in releases and in denoised images at the paper's epsilon: cells of studies/lfw-published-named.yaml.

    studies/accelerator/run.sh OUT --only named

Needs runs/data/lfw, see studies/unpack.py. A task is all that is learned, measured and attacked of one setting and seed: DP-Pix
at every seed, then the other obfuscations seed by seed. A line has the records of its cells, as `sfumato study run` makes them;
OUT/named is the folder of that study's run, which goes on there with what is left: clear images, and many releases of a
person, which need no accelerator.
"""

import traceback
from functools import cache
from pathlib import Path
from typing import Any

from pool import Options, Task, card, lines, options, run

from sfumato.study import grid
from sfumato.study.lab.lab import Lab
from sfumato.study.lab.progress import Progress
from sfumato.study.parts import kinds
from sfumato.study.records import CURE, read_json, write_json
from sfumato.study.run import _measure, prepare

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
        entry = {"digest": kinds.digest(lab, cell), "kind": cell.kind, "cell": cell.coordinates}
        try:
            assert _measure(lab, given.out / "named", cell, entry)  # no other process makes it
            made.append(read_json(_path(entry, given), CURE))
        except Exception:
            failed.append(str(cell))
            print(f"named: {cell} failed", traceback.format_exc(), flush=True)
    return {"records": made, "failed": failed}


def _path(record: dict[str, Any], given: Options) -> Path:
    return given.out / "named" / "records" / f"{record['digest']}.json"


def main() -> int:
    """Go on from the lines that there are, as far as there is time."""
    given = options(__doc__)
    for line in lines("named", given):
        for record in line["result"]["records"]:
            write_json(_path(record, given), record)
    return run("named", tasks(), work, given)


if __name__ == "__main__":
    raise SystemExit(main())
