"""How many images a second one core draws of each procedural world, against the 1,000 required.

Usage: python benchmarks/worlds.py
"""

import time
from collections.abc import Callable

import torch

from sfumato.data.faces import faces
from sfumato.data.glyphs import glyphs
from sfumato.data.labelled import LabelledImages

REQUIRED = 1000  # images of 64x64 a second
SIZE = 64


def best_rate(draw: Callable[[], LabelledImages], *, repeats: int = 3) -> float:
    """Images a second, tables and labels included; the best run, since others only add waiting."""
    best = 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        count = len(draw())
        best = max(best, count / (time.perf_counter() - start))
    return best


def main() -> None:
    torch.set_num_threads(1)
    worlds: dict[str, Callable[[], LabelledImages]] = {
        "glyphs": lambda: glyphs(classes=200, drawers=20, size=SIZE),
        "faces": lambda: faces(identities=134, images_per_identity=30, headwear=100, size=SIZE),
    }
    for name, draw in worlds.items():
        rate = best_rate(draw)
        print(
            f"{name:<7} {rate:8,.0f} images of {SIZE}x{SIZE} a second on one core, "
            f"{rate / REQUIRED:5.1f} times the {REQUIRED:,} required"
        )


if __name__ == "__main__":
    main()
