"""Some test images as they are, as they leave the device, and as they are denoised and restored."""

import base64
from typing import TYPE_CHECKING, Any

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Model, Picture
from sfumato.study.protocol import Kind
from sfumato.study.vocabulary import ATTACKS, IMAGES, release_kind, views_of

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab


class Result(Model):
    """Pictures as data: URIs of PNG files, of the same images in each list; None for no such view."""

    original: list[Picture]
    released: list[Picture]
    denoised: list[Picture] | None
    restored: list[Picture] | None = None


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One, for releases that are images."""
    return [Cell("pictures", spec, seed)] if config.pictures and release_kind(spec) in IMAGES else []


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    config = lab.config
    decided = {"pictures": config.pictures, "views": config.views, **lab.training_settings()}
    if _restores(config, cell):
        decided |= lab.adversaries.undoing(cell.protection)
    return decided


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Makes the pictures of every view."""
    from sfumato.study.parts.learners.views import view_release

    config = lab.config
    clean = lab.test.images[lab.some_of_the_test(config.pictures, cell.seed)]
    views = [*views_of(config, cell.protection), *(["restored"] if _restores(config, cell) else [])]
    release = lab.release(cell, clean)
    shown = {view: as_uris(view_release(lab, cell, release, view)) for view in dict.fromkeys(views)}
    return {
        "original": as_uris(clean),
        "released": shown["released"],
        "denoised": shown.get("denoised"),
        "restored": shown.get("restored"),
    }


def as_uris(batch: "Tensor") -> list[str]:
    """(N, C, H, W) uint8 images as data: URIs."""
    from sfumato import images

    return ["data:image/png;base64," + base64.b64encode(images.encode(image)).decode() for image in batch]


def _restores(config: "StudyConfig", cell: Cell) -> bool:
    """Whether an adversary restores images of this protection."""
    attacks = config.attacks if config.task.sensitive is not None else []
    return cell.protection != "none" and any(ATTACKS[name].view == "restored" for name in attacks)


KIND = Kind(Result, cells, settings, measure)
