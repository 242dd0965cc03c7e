"""Releases of a study: by seeded noise, with a stream of its own for every use."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect import Release, parse
from sfumato.protect.release import made_of
from sfumato.study.grid import Cell

MEASURED, GALLERY, PROBES, OTHERS, RESTORED = range(5)


def release(cell: Cell, clean: Tensor, stream: int, number: int = 0) -> Release:
    """Release (N, C, H, W) uint8 images by the protection of a cell, the same way each time."""
    return parse(cell.protection).release(clean, seeded_noise(cell.seed, stream, number))


def artefacts_of(specs: Iterable[str]) -> dict[str, Any]:
    """What belongs into a digest beside these specs: the artefacts that they name, where any does."""
    found = {spec: made_of(parse(spec)) for spec in specs}
    artefacts = {spec: digest for spec, digest in found.items() if digest is not None}
    return {"artefacts": artefacts} if artefacts else {}
