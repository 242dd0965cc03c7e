"""How much of an image is left in its release, or in a denoised or restored one."""

import math
from typing import TYPE_CHECKING, Any

from sfumato.base.registry import load
from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Guarantee, Model
from sfumato.study.protocol import Kind
from sfumato.study.vocabulary import MEASURES, views_of

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

_IMAGES = 100  # the paper measures SSIM over 100 test images


class Result(Model):
    """Means over `images` test images, by the names of the measures; None for infinite ones.

    Attributes:
        bytes_per_image: that travel; for releases alone.
        guarantee: with its text; for releases alone.
    """

    images: int
    bytes_per_image: int | None = None
    guarantee: Guarantee | None = None

    @property
    def measures(self) -> dict[str, float | None]:
        """Name -> mean."""
        means = self.model_extra or {}
        return {name: means[name] for name in MEASURES if name in means}


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each view."""
    return [Cell("similarity", spec, seed, (("view", view),)) for view in views_of(config, spec)]


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    config, view = lab.config, cell.subject
    decided: dict[str, Any] = {"measures": config.measures}
    if "face-similarity" in config.measures:
        decided |= {"faces": lab.adversaries.recogniser()}
    if view == "denoised":
        decided |= lab.training_settings()
    elif view == "restored":
        decided |= lab.adversaries.undoing(cell.protection)
    return decided


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Compares test images with their views."""
    from sfumato.study.parts.learners.views import view_release

    view = cell.subject
    rows = lab.some_of_the_test(_IMAGES, cell.seed)
    clean = lab.test.images[rows]
    shown = view_release(lab, cell, lab.release(cell, clean), view)
    result: dict[str, Any] = {"images": len(rows), **compare_images(lab, cell, rows, shown)}
    if view == "released":
        result["bytes_per_image"] = lab.release(cell, clean[:1]).bytes_per_image
        result["guarantee"] = lab.guarantee(cell)
    return result


def compare_images(lab: "Lab", cell: Cell, rows: "Tensor", shown: "Tensor") -> dict[str, float | None]:
    """The study's measures for test images and their views.

    Args:
        lab: of the study.
        cell: its seed counts.
        rows: (N,) of the test images.
        shown: (N, C, H, W) uint8 counterparts.

    Returns:
        name -> mean; None for an infinite one.
    """
    from sfumato import images

    means: dict[str, float | None] = {}
    for name in lab.config.measures:
        if name == "face-similarity":
            alike, strangers = lab.adversaries.face_similarity(lab.test.rows(rows), shown, cell.seed)
            means |= {name: alike, "face-similarity_of_two": strangers}
            continue
        clean = images.to_float(lab.test.images[rows])
        mean = _function(name)(clean, images.to_float(shown)).mean().item()
        means[name] = mean if math.isfinite(mean) else None
    return means


def _function(name: str) -> Any:
    """(N, C, H, W) float images and counterparts -> (N,), the function of a measure."""
    function = MEASURES[name].function
    return load(function) if isinstance(function, str) else function


KIND = Kind(Result, cells, settings, measure)
