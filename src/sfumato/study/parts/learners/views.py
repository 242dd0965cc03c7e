"""The views of releases: themselves, denoised, or restored by an adversary."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from sfumato.study.cells import Cell
from sfumato.study.parts.learners import few_shot

if TYPE_CHECKING:
    from sfumato.study.lab.lab import Lab


def view_release(lab: "Lab", cell: Cell, release: Any, view: str) -> Tensor:
    """(N, C, H, W) uint8 images: a view of a release, by its name in vocabulary.VIEWS."""
    shown: Tensor
    match view:
        case "denoised":
            model = few_shot.train_or_read(lab, cell.protection, cell.seed, "denoised")
            shown = model.denoise(release.images())
        case "restored":
            shown = lab.adversaries.undone(cell, release)
        case "shape":
            shown = release.shapes()
        case _:
            shown = release.images()
    return shown
