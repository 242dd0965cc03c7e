"""An adversary's reconstructions of images: from the numbers that were released, or from shared gradients."""

from typing import TYPE_CHECKING, Any

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Model, Picture
from sfumato.study.protocol import Kind, rebuilder_of
from sfumato.study.vocabulary import RECONSTRUCTIONS, not_taken, release_kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

_IMAGES, _SHOWN = 100, 4


class Result(Model):
    """Means over `images` test images, by the names of the measures; None for infinite ones.

    Attributes:
        originals, pictures: some images and their reconstructions, as data: URIs of PNG files; none if
            a study wants no pictures.
    """

    measures: dict[str, float | None]
    images: int
    originals: tuple[Picture, ...] = ()
    pictures: tuple[Picture, ...] = ()


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each attack that is possible on these releases."""
    if spec == "none":
        return []
    kind = release_kind(spec)
    return [
        Cell("reconstruction", spec, seed, (("attack", name),))
        for name in config.reconstructions
        if kind in RECONSTRUCTIONS[name].releases
    ]


def find_omissions(config: "StudyConfig", spec: str) -> dict[str, tuple[str, ...]]:
    """Attacks that are impossible on these releases."""
    if spec == "none":
        return {}
    return not_taken("reconstruction", RECONSTRUCTIONS, config.reconstructions, spec)


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    decided = rebuilder_of(cell.subject).settings(lab, cell)
    shown = {} if lab.config.pictures else {"shown": 0}
    return {"measures": lab.config.measures, **shown, **decided}


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Rebuilds test images, and compares them with the originals."""
    from sfumato.study.parts.kinds.pictures import as_uris
    from sfumato.study.parts.kinds.similarity import compare_images

    rows = lab.some_of_the_test(_IMAGES, cell.seed)
    clean = lab.test.images[rows]
    rebuilt = rebuilder_of(cell.subject).rebuild(lab, cell, clean)
    shown = _SHOWN if lab.config.pictures else 0
    return {
        "measures": compare_images(lab, cell, rows, rebuilt),
        "images": len(rows),
        "originals": as_uris(clean[:shown]),
        "pictures": as_uris(rebuilt[:shown]),
    }


KIND = Kind(Result, cells, settings, measure, find_omissions)
