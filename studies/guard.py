"""How often the guard of a service refuses a release that is what it says: measured, beside what is stated.

`python studies/guard.py --data DIR [--seed N]` writes studies/results/guard.jsonl, and prints it. DIR has
lfw_faces_84.npz, caltech101_84.npz and cifar10_jpeg_subset.npz (data/README.md); faces and flat images are
drawn. Without noise nothing is checked that an honest release could lack.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from unpack import picture

from sfumato import data, images
from sfumato.base.proportions import wilson
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import SpecError
from sfumato.protect import parse
from sfumato.protect.recognition import chances
from sfumato.protect.release import cell_of
from sfumato.serve.tripwire import FALSE_ALARM
from sfumato.study.records import write_rows

RECORD = Path(__file__).parent / "results" / "guard.jsonl"

CELLS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 21, 24, 28, 32, 36, 42)
NOISES = [
    *(f"dp-pix:cell={{}},epsilon={epsilon}" for epsilon in (0.1, 0.5, 1, 3, 10, 30)),
    *("dp-pix:cell={},epsilon=3,pixels=16", "dp-pix:cell={},epsilon=3,variant=published"),
    *(f"dp-pix-gaussian:cell={{}},rho={rho}" for rho in (0.01, 0.5, 5)),
]
GAUSSIAN = [f"gaussian:sigma={sigma}" for sigma in (2, 5, 10, 20, 40, 80, 160)]
BOUNDS = (0.1, 0.01, 0.001, FALSE_ALARM)


def photographs(path: Path, count: int) -> Tensor:
    """Equally spaced images of a packed set."""
    packed = dict(np.load(path))
    rows = np.linspace(0, len(packed["offset"]) - 2, count).astype(int)
    return torch.stack(
        [images.as_tensor(np.asarray(picture(packed, row)).transpose(2, 0, 1)) for row in rows]
    )


def sets(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The images, by name."""
    faces = photographs(folder / "lfw_faces_84.npz", 400)
    yield "lfw", faces
    yield "lfw, grey", faces[:, :1].contiguous()
    yield "caltech101", photographs(folder / "caltech101_84.npz", 200)
    yield "cifar10", photographs(folder / "cifar10_jpeg_subset.npz", 200)
    yield "drawn faces", data.load("faces", identities=24, images_per_identity=9, headwear=18, size=48).images
    yield "flat", torch.arange(256, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 84, 84).contiguous()


def measure(folder: Path, seed: int) -> dict[str, Any]:
    """Counts of releases, and of those that each bound says are improbable."""
    counted: dict[str, Any] = {}
    for name, clean in sets(folder):
        stated = []
        for number, spec in enumerate([*(n.format(cell) for cell in CELLS for n in NOISES), *GAUSSIAN]):
            try:
                protection = parse(spec)
            except SpecError:  # so little noise that it protects nothing
                continue
            if 2 * cell_of(protection) > clean.shape[2]:
                continue  # fewer than two whole cells: nothing to predict from
            release = protection.release(clean, seeded_noise(seed, number))
            stated.append(chances(release, protection.law(tuple(clean.shape[1:])))[0])  # type: ignore[attr-defined]
        alone = np.concatenate(stated)
        counted[name] = {
            "releases": len(alone),
            "least": float(alone.min()),
            **{f"at most {bound:g}": int((alone <= bound).sum()) for bound in BOUNDS},
        }
    total = sum(counts["releases"] for counts in counted.values())
    alarms = sum(counts[f"at most {FALSE_ALARM:g}"] for counts in counted.values())
    return {
        "seed": seed,
        "stated": FALSE_ALARM,
        "noise": {"releases": total, "refused": alarms, "interval": wilson(alarms, total), "sets": counted},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    result = measure(given.data, given.seed)
    write_rows(RECORD, [result])
    print(json.dumps(result, indent=1))
