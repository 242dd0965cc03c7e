"""The risk from many releases of one person: how naming grows with their number; see sfumato.attack.sets."""

from functools import partial
from typing import TYPE_CHECKING, Any

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Model
from sfumato.study.protocol import Kind
from sfumato.study.vocabulary import IMAGES, attacks_of, release_kind

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from sfumato.attack.sets import Curve
    from sfumato.data.labelled import LabelledImages
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

_VERSION = 2  # raised when the same adversaries would find more or less
_AT_LEAST = 10  # releases to look at, for any number of a recommendation
_LEARNED = 4_000  # releases of other people at most to learn from


class Point(Model):
    """The risk from n releases of one person.

    Attributes:
        releases: n.
        named: for each person the share of tries that name them correctly, by the adversary whom the
            other half of the people chose.
        tries: of each person.
        chosen: that adversary, by the first half and by the second.
        by_adversary: the share of each adversary, of all people.
        accepted: the share of sets accepted as the right person's, at 1 in 100 false acceptances.
        linked: for each person the share of tries that link the labels of two services, which have n
            releases of each person.
    """

    releases: int
    named: tuple[float, ...]
    tries: tuple[int, ...]
    chosen: tuple[str, str]
    by_adversary: dict[str, float]
    accepted: float
    linked: tuple[float, ...]


class Result(Model):
    """How naming grows with the number of releases.

    Attributes:
        points: by rising n, of the same people; none if fewer than four have two pictures, in two scenes.
        panel: the number of people to choose from; guessing is right in 1/panel.
        pictures: of each person, some in a gallery and some to be named.
        enough: number of releases -> how many of `able` people have enough pictures for it.
        able: how many people have two pictures, in two scenes.
        stopped: whether larger numbers were skipped, since smaller ones name too many already.
    """

    points: tuple[Point, ...]
    panel: int
    pictures: int
    enough: dict[int, int]
    able: int
    stopped: bool = False


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each protection, if there are adversaries."""
    wanted = (spec != "none" or config.board) and attacks_of(config, spec)
    return [Cell("many", spec, seed)] if wanted else []


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    bounds = lab.config.recommend
    decided = {"sensitive": lab.adversaries.sensitive, "many": _VERSION, "releases": bounds.releases}
    if release_kind(cell.protection) in IMAGES:
        decided |= lab.adversaries.recogniser() | {"at_most": bounds.reidentification_at_most}
    return decided


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Names everybody from 1, 3, 10, ... releases of them, as far as their pictures reach.

    For pixels, which tell the most, it uses further pictures of the test people only if those of the
    test do not name too many already: more releases never tell less.
    """
    from sfumato.attack import sets

    bounds, adversaries = lab.config.recommend, lab.adversaries
    most = max(_AT_LEAST, bounds.releases)
    pixels = release_kind(cell.protection) in IMAGES
    people, further = (_able(each, adversaries.sensitive) for each in (lab.test, adversaries.further))
    people = people if pixels else further
    made = _curve(lab, cell, people, most)
    last = made.points[-1] if made else None
    larger = pixels and len(further) > len(people)
    stopped = larger and last is not None and float(last.named.mean()) > bounds.reidentification_at_most
    if larger and not stopped:
        people = further
        made = _curve(lab, cell, people, most)
    counts = people.label(adversaries.sensitive).codes.unique(return_counts=True)[1]
    return {
        "points": [
            {
                "releases": point.releases,
                "named": _round(point.named),
                "tries": point.tries.tolist(),
                "chosen": point.chosen,
                "by_adversary": {name: round(share, 4) for name, share in point.by_adversary.items()},
                "accepted": round(point.accepted, 4),
                "linked": _round(point.linked),
            }
            for point in (made.points if made else ())
        ],
        "panel": made.panel if made else 0,
        "pictures": made.pictures if made else 0,
        "enough": {
            str(size): int((counts >= sets.pictures_for(size)).sum()) for size in sets.SIZES if size <= most
        },
        "able": int((counts >= sets.pictures_for(1)).sum()),
        "stopped": stopped,
    }


def _able(data: "LabelledImages", sensitive: str) -> "LabelledImages":
    """The images of people who are in two scenes or more; all if no copies are known."""
    import torch

    from sfumato.attack import sets

    if "original" not in data.labels:
        return data
    able = sets.in_two_scenes(data.label(sensitive).codes, data.label("original").codes)
    return data.rows(torch.from_numpy(able).nonzero()[:, 0])


def _round(shares: "np.ndarray") -> list[float]:
    return [round(share, 4) for share in shares.tolist()]


def _curve(lab: "Lab", cell: Cell, people: "LabelledImages", most: int) -> "Curve | None":
    """The curve from these people's pictures; None if fewer than four have two."""
    from sfumato.attack import sets
    from sfumato.attack.set_network import by_network
    from sfumato.study.lab.streams import MANY
    from sfumato.study.parts.attacks import values

    codes = people.label(lab.adversaries.sensitive).codes
    if not sets.measurable(codes, most):
        return None
    learned, of_others = values.release_others(lab, cell, most=_LEARNED, copies=1)
    asked = lab.release(cell, people.images, MANY)
    views = {
        words: sets.few(reading(asked), reading(learned[0]))
        for words, reading in values.readings(lab, cell, asked).items()
    }
    if release_kind(cell.protection) in IMAGES and lab.config.adversary.weights is not None:
        # A recogniser that a study trains names fewer than models of the values do.
        views[", on embeddings"] = sets.few(*(_embed(lab, cell, each) for each in (asked, learned[0])))
    scenes = people.labels["original"].codes if "original" in people.labels else None
    further = {"network": partial(by_network, seed=cell.seed)}
    return sets.curve(views, codes, of_others, scenes=scenes, most=most, further=further, seed=cell.seed)


def _embed(lab: "Lab", cell: Cell, released: Any) -> "Tensor":
    """A public face network's embeddings of releases."""
    images = released.images()
    faces = lab.adversaries.faces_on(images)
    cut = lab.adversaries.cut(images, None if faces is None else faces.landmarks)
    return lab.adversaries.static(cell.seed).embed(cut)


KIND = Kind(Result, cells, settings, measure)
