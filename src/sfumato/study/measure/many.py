"""The risk from many releases of one person: how naming grows with their number; see attack.sets."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.assess import identity
from sfumato.attack import sets
from sfumato.attack.set_network import by_network
from sfumato.attack.sets import Curve
from sfumato.data.labelled import LabelledImages
from sfumato.study.cells import Cell, Facts, Kind
from sfumato.study.grid import StudyConfig
from sfumato.study.lab import lab as labs
from sfumato.study.lab.lab import Lab
from sfumato.study.measure.attack import readings
from sfumato.study.vocabulary import IMAGES, attacks_of, release_kind

_VERSION = 3  # raised when the same adversaries would find more or less
_AT_LEAST = 10  # releases to look at, for any number of a recommendation
_LEARNED = 4_000  # releases of other people at most to learn from


def _cells(config: StudyConfig, spec: str, seed: int) -> list[Cell]:
    wanted = (spec != "none" or config.board) and attacks_of(config, spec)
    return [Cell("many", spec, seed)] if wanted else []


def _settings(lab: Lab, cell: Cell) -> Facts:
    bounds = lab.config.recommend
    decided = {"sensitive": lab.adversaries.sensitive, "many": _VERSION, "releases": bounds.releases}
    decided |= {"others": lab.config.adversary.others, "seen": lab.data.digest}
    if release_kind(cell.protection) in IMAGES:
        decided |= lab.adversaries.of_clear() | {"at_most": bounds.reidentification_at_most}
    return decided


def _measure(lab: Lab, cell: Cell) -> Facts:
    """Names everybody from 1, 3, 10, ... releases of them, as far as their pictures reach.

    For pixels, which tell the most, it uses further pictures of the test people only if those of the
    test do not name too many already: more releases never tell less.
    """
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
    enough = {size: int((counts >= sets.pictures_for(size)).sum()) for size in (1, *sets.SIZES)}
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
                **identity.by_person(point.scores, point.right, point.shown, point.half[point.shown]),
            }
            for point in (made.points if made else ())
        ],
        "panel": made.panel if made else 0,
        "known": made.known if made else None,
        "others": made.others if made else None,
        "pictures": made.pictures if made else 0,
        "enough": {str(size): enough[size] for size in sets.SIZES if size <= most},
        "able": enough[1],
        "stopped": stopped,
    }


def _able(data: LabelledImages, sensitive: str) -> LabelledImages:
    """The images of people who are in two scenes or more; all if no copies are known."""
    if "original" not in data.labels:
        return data
    able = sets.in_two_scenes(data.label(sensitive).codes, data.label("original").codes)
    return data.rows(torch.from_numpy(able).nonzero()[:, 0])


def _round(shares: np.ndarray) -> list[float]:
    return [round(share, 4) for share in shares.tolist()]


def _curve(lab: Lab, cell: Cell, people: LabelledImages, most: int) -> Curve | None:
    """The curve from these people's pictures; None if fewer than four have two."""
    codes = people.label(lab.adversaries.sensitive).codes
    if not sets.measurable(codes, most):
        return None
    gallery, _ = lab.adversaries.gallery(cell)
    learned, of_others = gallery.learn_from(most=_LEARNED, copies=1)
    asked = lab.release(cell, people.images, labs.MANY)
    views = {
        words: sets.few(reading(asked), reading(learned[0]))
        for words, reading in readings(replace(gallery, asked=people.images[:1])).items()
    }
    if gallery.images and lab.config.adversary.weights is not None:
        # A recogniser that a study trains names fewer than models of the values do.
        views[", on embeddings"] = sets.few(*(_embed(lab, cell, each) for each in (asked, learned[0])))
    scenes = people.labels["original"].codes if "original" in people.labels else None
    further = {"network": partial(by_network, seed=cell.seed)}
    return sets.curve(views, codes, of_others, scenes=scenes, most=most, further=further, seed=cell.seed)


def _embed(lab: Lab, cell: Cell, released: Any) -> Tensor:
    shown, recognisers = released.images(), lab.adversaries.recognisers
    cut = recognisers.cut(shown, recognisers.find(shown)[0])
    return lab.adversaries.static(cell.seed).embed(cut)


MANY = Kind(_cells, _settings, _measure)
