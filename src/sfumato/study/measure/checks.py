"""Whether the adversaries of a board can have worked on a release, and its costs; see study.board."""

import statistics
import time
from typing import Any

from torch import Tensor

from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect import parse
from sfumato.protect.release import KINDS
from sfumato.study.cells import Cell, Facts, Kind
from sfumato.study.lab.lab import Lab
from sfumato.study.vocabulary import IMAGES

_IMAGES, _TIMED = 200, 20
_ROUNDING = 0.02  # of a number between 0 and 1: batches of networks round differently
_FEW = 0.5  # of the numbers of a release: where signs decide, rounding grows to some of them


def _measure(lab: Lab, cell: Cell) -> Facts:
    """Releases some test images twice, each once more alone, and compares."""
    # Not the lab's own, which remembers releases.
    protection: Any = parse(lab.protection(cell).spec, takes=KINDS)
    images = lab.test.images[lab.some_of_the_test(_IMAGES, cell.seed)]
    noisy = protection.draws_noise
    first, again = (protection.release(images, seeded_noise(noise)) for noise in (0, 0 if noisy else 1))
    packets = first.pack()
    alone, seconds = [], []
    for row in range(len(images)):
        start = time.perf_counter()
        alone.append(protection.release(images[row : row + 1], seeded_noise(0)))
        seconds.append(time.perf_counter() - start)
    apart = [_differ(first.rows([row]).vectors(), each.vectors()) for row, each in enumerate(alone)]
    return {
        "milliseconds": round(1e3 * statistics.median(seconds[-_TIMED:]), 3),
        "bytes_of_image": images[0].numel(),
        "bytes_declared": first.bytes_per_image,
        "bytes_most": max(map(len, packets)),
        "unchanged": _share_equal(first, images),
        "repeats": packets == again.pack(),
        "depends": 0.0 if noisy else sum(apart) / len(apart),
        "own_type": not type(first).__module__.startswith("sfumato.") or first.spec != protection.spec,
        "images": len(images),
    }


def _differ(first: Tensor, second: Tensor) -> bool:
    return first.shape != second.shape or ((first - second).abs() > _ROUNDING).double().mean().item() > _FEW


def _share_equal(release: Any, images: Tensor) -> float:
    if getattr(release, "kind", "pixels") not in IMAGES:
        return 0.0
    same: float = (release.images() == images).flatten(1).all(1).double().mean().item()
    return same


CHECKS = Kind(
    lambda config, spec, seed: (
        [Cell("checks", spec, seed)] if config.board and seed == config.seeds[0] else []
    ),
    lambda lab, cell: {"checks": 1},
    _measure,
)
