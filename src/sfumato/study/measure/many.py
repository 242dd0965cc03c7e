"""The risk from many releases of one person: how naming grows with their number; see attack.sets."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.assess import identity
from sfumato.attack import sets
from sfumato.attack.ensemble import See
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
_FEW = 40  # people at most for numbers of releases that not everybody has

# Words -> how a release is read as (N, D) numbers, and these of other people; who they are.
_Seen = tuple[dict[str, tuple[See, Tensor]], Tensor]


def _cells(config: StudyConfig, spec: str, seed: int) -> list[Cell]:
    wanted = (spec != "none" or config.board) and attacks_of(config, spec)
    return [Cell("many", spec, seed)] if wanted else []


def _settings(lab: Lab, cell: Cell) -> Facts:
    bounds = lab.config.recommend
    decided = {"sensitive": lab.adversaries.sensitive, "many": _VERSION, "releases": bounds.releases}
    decided |= {"others": lab.config.adversary.others, "seen": lab.data.digest}
    if release_kind(cell.protection) in IMAGES:
        decided |= lab.adversaries.of_clear()
    return decided


def _measure(lab: Lab, cell: Cell) -> Facts:
    """Names everybody from 1, 3, 10, ... releases of them, as far as half of their pictures reach.

    Larger numbers are measured on those of them who have enough pictures, in smaller panels. For pixels,
    which tell the most, everybody has the pictures of the test alone, and those few further ones.
    """
    adversaries, most = lab.adversaries, max(_AT_LEAST, lab.config.recommend.releases)
    further = _able(adversaries.further, adversaries.sensitive)
    pixels = release_kind(cell.protection) in IMAGES
    people, seen = _able(lab.test, adversaries.sensitive) if pixels else further, _look(lab, cell)
    curves = [_curve(lab, cell, people, seen, range(1, most + 1))]
    reached = curves[0].points[-1].releases if curves[0] else most
    for size in sets.SIZES:
        if reached < size <= most:
            few = _with_pictures(further, adversaries.sensitive, size)
            curves.append(_curve(lab, cell, few, seen, range(size, size + 1)))
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
                **({"panel": curve.panel, "known": curve.known} if curve and curve is not curves[0] else {}),
            }
            for curve in curves
            for point in (curve.points if curve else ())
        ],
        **{name: getattr(curves[0], name, 0) for name in ("panel", "known", "others", "pictures")},
        "enough": {str(size): enough[size] for size in sets.SIZES if size <= most},
        "able": enough[1],
    }


def _with_pictures(people: LabelledImages, sensitive: str, releases: int) -> LabelledImages:
    """The images of up to _FEW people who have pictures for this many releases."""
    codes = people.label(sensitive).codes
    names, counts = codes.unique(return_counts=True)
    names = names[counts >= sets.pictures_for(releases)][:_FEW]
    return people.rows(torch.isin(codes, names).nonzero()[:, 0])


def _able(data: LabelledImages, sensitive: str) -> LabelledImages:
    if "original" not in data.labels:
        return data
    able = sets.in_two_scenes(data.label(sensitive).codes, data.label("original").codes)
    return data.rows(torch.from_numpy(able).nonzero()[:, 0])


def _round(shares: np.ndarray) -> list[float]:
    return [round(share, 4) for share in shares.tolist()]


def _look(lab: Lab, cell: Cell) -> _Seen:
    gallery, _ = lab.adversaries.gallery(cell)
    (released,), of_others = gallery.learn_from(most=_LEARNED, copies=1)
    ways = dict(readings(replace(gallery, asked=gallery.known[:1])))
    if gallery.images and lab.config.adversary.weights is not None:
        # A recogniser that a study trains names fewer than models of the values do.
        ways[", on embeddings"] = partial(_embed, lab, cell)
    return {words: (see, see(released)) for words, see in ways.items()}, of_others


def _curve(lab: Lab, cell: Cell, people: LabelledImages, seen: _Seen, sizes: range) -> Curve | None:
    """The curve from these people's pictures; None if fewer than four have two."""
    codes = people.label(lab.adversaries.sensitive).codes
    if not sets.measurable(codes, sizes[-1]):
        return None
    asked = lab.release(cell, people.images, labs.MANY)
    views = {words: sets.few(see(asked), others) for words, (see, others) in seen[0].items()}
    scenes = people.labels["original"].codes if "original" in people.labels else None
    how: dict[str, Any] = {"further": {"network": partial(by_network, seed=cell.seed)}, "seed": cell.seed}
    return sets.curve(views, codes, seen[1], scenes=scenes, least=sizes[0], most=sizes[-1], **how)


def _embed(lab: Lab, cell: Cell, released: Any) -> Tensor:
    shown, recognisers = released.images(), lab.adversaries.recognisers
    cut = recognisers.cut(shown, recognisers.find(shown)[0])
    return lab.adversaries.static(cell.seed).embed(cut)


MANY = Kind(_cells, _settings, _measure)
