"""Noise of a study: seeded, and for every use a stream of its own."""

from torch import Tensor

from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect import Release, parse
from sfumato.study.grid import Cell

MEASURED, GALLERY, PROBES, OTHERS, RESTORED = range(5)


def release(cell: Cell, clean: Tensor, stream: int, number: int = 0) -> Release:
    """Release (N, C, H, W) uint8 images by the protection of a cell, the same way each time."""
    return parse(cell.protection).release(clean, seeded_noise(cell.seed, stream, number))
