"""The measures of vectors: naming, attributes, links without names, and neighbours that are kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sfumato.attack import plda, sets
from sfumato.audits.vectors.forms import classify
from sfumato.errors import DataError
from sfumato.study.choose.estimates import Estimate, estimate_of, hits_of_rates

SIZES = (1, 10, 100)  # vectors of one person
_FEWEST = 8  # people with two vectors: four who teach, and four to name
_LEARNED = 4_000  # vectors of other people at most, to learn from
_NUMBERS = 128  # of a vector for models: principal components of others'
_UNEVEN = 10.0  # the ratio of two deviations from which numbers are evened out, too
_TELLING, _PLACES = 16, 6  # numbers that are looked at alone, and places of theirs
_ROUNDED = 2e-3  # of a place: numbers that end there may be a little smaller
_CARRIES = 5.0  # times as much as most: a number that tells as much of people is named
_DRAWS = 5  # of galleries, panels and sets
_NEIGHBOURS, _ASKED = 10, 1_000  # vectors whose neighbours are compared
_BLOCK = 1_000  # rows compared at once
_COPY = 0.01  # of the squared distance of two random vectors: below, two are nearly copies
_BY_CHANCE = 0.01  # of vectors have a neighbour as near if nothing links any two


@dataclass(frozen=True)
class Halves:
    """Rows of people from whom adversaries and remedies learn, and of those whom they are tried on."""

    learned: np.ndarray
    asked: np.ndarray


def split(people: np.ndarray, seed: int) -> Halves:
    """Split people with two vectors or more into halves; the others teach.

    Raises:
        DataError: fewer than eight people have two vectors.
    """
    counts = np.bincount(people)
    able = np.flatnonzero(counts > 1)
    if len(able) < _FEWEST:
        raise DataError(
            f"{len(able)} of {(counts > 0).sum()} people have two vectors or more: at least {_FEWEST} are "
            "needed, half of them to learn from and half to name: add vectors, or leave out --people"
        )
    order = np.random.default_rng(seed).permutation(able)
    asked = np.isin(people, order[: len(able) // 2])
    place = np.full(len(counts), len(counts))
    place[order] = np.arange(len(order))
    others = np.flatnonzero(~asked)
    return Halves(others[place[people[others]].argsort(kind="stable")][:_LEARNED], np.flatnonzero(asked))


@dataclass(frozen=True)
class Named:
    """How well vectors of one person identify them: a point of `sets.curve`, with the size of its panel."""

    point: sets.Point
    panel: int

    @property
    def named(self) -> Estimate:
        """How often, with the interval over people."""
        return _estimate(self.point.named, self.point.tries)

    @property
    def linked(self) -> Estimate:
        """The same of two sets of as many vectors."""
        return _estimate(self.point.linked, self.point.tries)

    @property
    def figures(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "people": len(self.point.people),
            "named": self.named.value,
            "low": self.named.low,
            "high": self.named.high,
            "chance": 1 / self.panel,
            "worst": float(self.point.named.max()),
            "over_half": float((self.point.named > 0.5).mean()),
            "linked": self.linked.value,
            "accepted": self.point.accepted,
            "equal_error": self.point.equal_error,
            "adversaries": self.point.by_adversary,
        }


def _estimate(rates: np.ndarray, tries: np.ndarray) -> Estimate:
    return estimate_of(hits_of_rates(rates.tolist(), tries.tolist()))


def name_people(
    values: np.ndarray, people: np.ndarray, halves: Halves, seed: int, telling: np.ndarray | None = None
) -> dict[int, Named]:
    """Name people from 1, 10 and 100 vectors; each number with all people who have enough.

    Adversaries see the vectors as they are; each number divided by its deviation, if these differ; and the
    `telling` numbers, (N, K), alone.
    """
    own, spread = people[halves.asked], values[halves.learned].std(0)
    views = {"": values}
    if spread.max() > _UNEVEN * spread[spread > 0].min(initial=np.inf):
        views[", numbers evened out"] = values / np.where(spread > 0, spread, 1)
    if telling is not None:
        views[", numbers that tell most"] = telling
    shown = {
        words: sets.few(each[halves.asked], each[halves.learned], most=_NUMBERS)
        for words, each in views.items()
    }
    counts = np.bincount(own)
    able = {size: np.flatnonzero(counts >= sets.pictures_for(size)) for size in SIZES}
    found: dict[int, Named] = {}
    for size in sorted(SIZES, reverse=True):
        if size in found or len(able[size]) < _FEWEST // 2:
            continue
        rows = np.isin(own, able[size])
        made = sets.curve(
            {words: (each[rows], others) for words, (each, others) in shown.items()},
            own[rows],
            people[halves.learned],
            most=size,
            naive_bayes=True,
            draws=_DRAWS,
            seed=seed,
        )
        # A smaller number is tried with more people, if there are more.
        points = [point for point in made.points if len(able.get(point.releases, ())) == len(able[size])]
        found |= {point.releases: Named(point, made.panel) for point in points}
    return dict(sorted(found.items()))


def join(forms: Mapping[str, Mapping[int, Named]]) -> dict[int, Named]:
    """Name people of the first form by adversaries who compute each of the others, too."""
    found = {}
    for size, stored in next(iter(forms.values())).items():
        points = {
            f" of {form}" * (number > 0): named[size].point
            for number, (form, named) in enumerate(forms.items())
            if size in named
        }
        found[size] = Named(sets.join(points), stored.panel)
    return found


def find_telling(values: np.ndarray, people: np.ndarray, halves: Halves) -> tuple[np.ndarray, np.ndarray]:
    """Find what single numbers tell of people: by their values, their spread, or their last decimals.

    Args: (N, D) numbers as they are in the file. Only those who teach are looked at.

    Returns:
        (N, K), values of the most telling numbers; and their places in a vector, if they tell far more of
        people than most, and may not belong to it.
    """
    middle = np.median(values[halves.learned], axis=0)
    looks: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda x: x,
        lambda x: np.log(np.abs(x - middle) + 1e-12),
        *(partial(_decimals, place=place, signed=signed) for place in range(_PLACES) for signed in (0, 1)),
    ]
    factors = np.stack([_factors(look(values[halves.learned]), people[halves.learned]) for look in looks])
    of_each = factors.max(0)  # (D,)
    most = of_each.argsort()[::-1][:_TELLING]
    carriers = most[of_each[most] > _CARRIES * max(1.0, float(np.median(of_each)))]
    told = [
        looks[factors[:, number].argmax()](values)[:, number]
        for number in (carriers if len(carriers) else most)
    ]
    return np.stack(told, 1).astype(np.float32), carriers


def _decimals(x: np.ndarray, *, place: int, signed: int) -> np.ndarray:
    decimals: np.ndarray = ((x if signed else np.abs(x)) * 10.0**place + _ROUNDED) % 1
    return decimals


def _factors(values: np.ndarray, people: np.ndarray) -> np.ndarray:
    """(M, D) numbers -> (D,) variances between people, by those within them."""
    values = (values - values.mean(0)) / values.std(0).clip(min=1e-9)
    _, counts, means, rows = plda.group(values, people)
    between = (counts[:, None] * means**2).sum(0) / (len(counts) - 1)
    within = ((values - means[rows]) ** 2).sum(0) / max(1, len(people) - len(counts))
    factors: np.ndarray = between / (within + 1e-6)
    return factors


@dataclass(frozen=True)
class Inferred:
    """How often an attribute is inferred from a vector, with its interval, and by the commonest class."""

    share: Estimate
    base: float
    people: int
    vectors: int


def infer(values: np.ndarray, classes: np.ndarray, people: np.ndarray, halves: Halves) -> Inferred:
    """Infer an attribute by a logistic regression that learned it from other people; -1 is unknown.

    Raises:
        DataError: one of the halves does not show two classes.
    """
    learned, asked = (rows[classes[rows] >= 0] for rows in (halves.learned, halves.asked))
    if len(np.unique(classes[learned])) < 2 or not len(asked):
        raise DataError(
            f"{len(learned)} vectors that teach show {len(np.unique(classes[learned]))} classes, and "
            f"{len(asked)} are asked: label more of them"
        )
    right = classify(values[learned], classes[learned])(values[asked]).argmax(1) == classes[asked]
    _, places, tries = np.unique(people[asked], return_inverse=True, return_counts=True)
    share = _estimate(np.bincount(places, right) / tries, tries)
    return Inferred(share, float(np.bincount(classes[asked]).max() / len(asked)), len(tries), len(asked))


@dataclass(frozen=True)
class Twins:
    """What links vectors if nobody says whose they are.

    Attributes:
        linked: the share whose nearest other is nearer than vectors without groups have one.
        groups: the sizes of the groups that these links make, descending.
        copies: (K, 2) rows of pairs that are nearly equal.
        same: the share of vectors whose nearest other is of the same person; None if people are unknown.
        by_chance: how often a random other is.
    """

    linked: float
    groups: tuple[int, ...]
    copies: np.ndarray
    same: float | None
    by_chance: float | None


def find_twins(values: np.ndarray, people: np.ndarray | None, seed: int) -> Twins:
    """Look for the nearest other of each vector, and compare with vectors that share their covariance alone.

    The numbers of each principal component are shuffled for that comparison: only their distribution stays.
    """
    centred = values - values.mean(0)
    draw = np.random.default_rng(seed)
    axes = np.linalg.eigh(np.cov(centred.T.astype(np.float64)))[1].astype(np.float32)
    shuffled = draw.permuted(centred @ axes, axis=0)
    unit, of_shuffled = map(_unit, (centred, shuffled))
    nearest, similarity = _nearest(unit, np.arange(len(unit)))
    some = draw.choice(len(unit), min(len(unit), 2 * _BLOCK), replace=False)
    threshold = np.quantile(_nearest(of_shuffled, some)[1], 1 - _BY_CHANCE)
    linked = similarity > threshold
    group = np.arange(len(unit))
    for row in np.flatnonzero(linked).tolist():
        first, second = _root(group, row), _root(group, int(nearest[row]))
        group[max(first, second)] = min(first, second)
    sizes = np.bincount([_root(group, row) for row in np.flatnonzero(linked).tolist()])
    distances = ((centred - centred[nearest]) ** 2).sum(1)
    usual = np.median(((centred - centred[draw.permutation(len(centred))]) ** 2).sum(1))
    close = np.flatnonzero(distances < _COPY * usual)
    copies = np.unique(np.sort(np.stack([close, nearest[close]], 1), 1), axis=0)
    same = by_chance = None
    if people is not None:
        counts = np.bincount(people)
        by_chance = float((counts * (counts - 1)).sum() / (len(people) * (len(people) - 1)))
        same = float((people[nearest] == people).mean())
    return Twins(
        float(linked.mean()), tuple(np.sort(sizes[sizes > 1])[::-1].tolist()), copies, same, by_chance
    )


def _unit(x: np.ndarray) -> np.ndarray:
    unit: np.ndarray = x / np.linalg.norm(x, axis=1, keepdims=True).clip(min=1e-12)
    return unit


def _root(group: np.ndarray, row: int) -> int:
    while group[row] != row:
        group[row] = group[group[row]]
        row = group[row]
    return int(row)


def _nearest(unit: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The most similar other row of each of some rows, and its cosine."""
    rows, values = [], []
    for start in range(0, len(asked), _BLOCK):
        block = asked[start : start + _BLOCK]
        cosines = unit[block] @ unit.T
        cosines[np.arange(len(block)), block] = -2
        rows.append(cosines.argmax(1))
        values.append(cosines.max(1))
    return np.concatenate(rows), np.concatenate(values)


def neighbours_kept(values: np.ndarray, changed: np.ndarray, people: np.ndarray, seed: int) -> float:
    """The share of the ten nearest vectors of other people that are still among the ten nearest."""
    draw = np.random.default_rng(seed)
    asked = draw.choice(len(values), min(_ASKED, len(values)), replace=False)
    order = draw.permutation(len(values))  # equal ones are taken by chance
    before, after = (_neighbours(each, people, asked, order) for each in (values, changed))
    return float(np.mean([np.isin(*pair).mean() for pair in zip(before, after, strict=True)]))


def _neighbours(values: np.ndarray, people: np.ndarray, asked: np.ndarray, order: np.ndarray) -> np.ndarray:
    unit = _unit(values - values.mean(0))
    cosines = unit[asked] @ unit[order].T
    cosines[people[asked, None] == people[order]] = -2
    count = min(_NEIGHBOURS, len(order) - 1)
    return order[np.argpartition(-cosines, count, axis=1)[:, :count]]
