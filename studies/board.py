"""The board: one command for all rows, of ours, of published ones (studies/rivals) and of planted ones, whose marks must show.

    python studies/board.py            # runs/board*, then studies/results/board*.jsonl; stopped, it goes on

`sfumato study board studies/results/board.jsonl studies/results/board-weak.jsonl` prints the table. A planted submission,
board-weak, has adversaries with too few photographs to learn from; board-undone has one more adversary, who reads frequencies in
whatever order they are; board-lfw has photographs of LFW, if they are unpacked.
"""

import sys
import tomllib
from pathlib import Path

import sfumato
from sfumato.study import board, grid, records, run

STUDIES = Path(__file__).parent
RIVALS = STUDIES / "rivals"
ROWS = (
    "blur:radius=2",
    "blur:radius=1",
    "pixelize:cell=2,4,8",
    "gaussian:sigma=60",
    "dp-pix:cell=8,epsilon=3,0.5",
    "block:share=0.5",
    "centre-blur:radius=3,share=0.5",
    "planted:way=scramble,carry",
    "dct:way=whole,part,shuffle",
    "linear-removal",
    "k-same:k=5",
    "no-peek:weight=1",
    "cloak:levels=16",
    "deface",
    "code:bits=5,16",
    "answer",
    "feature:dimension=16,noise=0.3",
    "mask:keep=0.1",
)
UNDONE = ("attacks=[reidentify-static, reidentify-adaptive, reidentify-values, reidentify-sorted, gram]",)
RUNS = {  # name -> the study file, what is changed in it, and further protections
    "board": ("board", (), ROWS),
    "board-weak": ("board", ("data.images_per_identity=4", "data.further=0"), ("blur:radius=2",)),
    "board-undone": ("board", UNDONE, ("dct:way=shuffle",)),
    "board-lfw": (STUDIES / "board-lfw.yaml", (), ("deface",)),
}


def register_rivals() -> None:
    """Register what the package studies/rivals has, as its installation would."""
    sys.path.insert(0, str(RIVALS))
    with (RIVALS / "pyproject.toml").open("rb") as opened:
        points = tomllib.load(opened)["project"]["entry-points"]
    for group in ("protections", "adversaries"):
        for name, path in points[f"sfumato.{group}"].items():
            sfumato.register(group, name, path)


def main() -> None:
    """Run all, and pack them."""
    register_rivals()
    for name, (file, changes, protections) in RUNS.items():
        directory = STUDIES.parent / "runs" / name
        config = board.compare(grid.load(file, changes), protections)
        table = Path(config.data["source"].partition(":")[2])
        if not table.exists():
            print(f"{name}: no {table}: python studies/unpack.py lfw ../shared/data runs/data/lfw")
            continue
        run.run(config, directory, progress=run.Progress.printed())
        records.pack(directory, STUDIES / "results" / f"{name}.jsonl")


if __name__ == "__main__":
    main()
