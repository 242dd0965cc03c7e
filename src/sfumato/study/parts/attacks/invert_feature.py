"""Feature inversion in a study: an adversary's decoder draws the image behind released numbers."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from sfumato.study.cells import Cell
from sfumato.study.protocol import Rebuilder

if TYPE_CHECKING:
    from sfumato.study.lab.lab import Lab


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the rebuilt images, besides cell, data and artefacts."""
    return lab.adversaries.undoing(cell.protection)


def rebuild(lab: "Lab", cell: Cell, clean: Tensor) -> Tensor:
    """The images drawn from the releases of (N, C, H, W) uint8 images; of the same shape."""
    return lab.adversaries.undone(cell, lab.release(cell, clean))


REBUILDER = Rebuilder(settings, rebuild)
