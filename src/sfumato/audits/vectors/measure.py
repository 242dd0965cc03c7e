"""The measures of vectors: naming, attributes, links without names, and other forms of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.attack import plda, sets
from sfumato.errors import DataError
from sfumato.study.choose.estimates import Estimate, estimate_of, hits_of_rates

Transform = Callable[[np.ndarray], np.ndarray]  # (N, D) float32 -> (N, d) float32

SIZES = (1, 10, 100)  # vectors of one person
_FEWEST = 8  # people with two vectors: four who teach, and four to name
_LEARNED = 4_000  # vectors of other people at most, to learn from
_NUMBERS = 128  # of a vector for models: principal components of others'
_UNEVEN = 10.0  # the ratio of two deviations from which numbers are evened out, too
_TELLING, _PLACES = 16, 6  # numbers that are looked at alone, and decimals of theirs
_ROUNDED = 2e-3  # of a place: numbers that end there may be a little smaller
_CARRIES = 5.0  # times as much as most: a number that tells as much of people is named
_DRAWS = 5  # of galleries, panels and sets
_NEIGHBOURS, _ASKED = 10, 1_000  # vectors whose neighbours are compared
_BLOCK = 1_000  # rows compared at once
_COPY = 0.01  # of the squared distance of two random vectors: below, two are nearly copies
_BY_CHANCE = 0.01  # of vectors have a neighbour as near if nothing links any two
_CODE = 8  # bits


@dataclass(frozen=True)
class Halves:
    """Rows of people from whom adversaries and remedies learn, and of those whom they are tried on."""

    learned: np.ndarray
    asked: np.ndarray


def split(people: np.ndarray, seed: int) -> Halves:
    """Split people with two vectors or more into halves; the others teach.

    Raises DataError: fewer than eight people have two vectors.
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
        """With the interval over people."""
        return _estimate(self.point.named, self.point.tries)

    @property
    def linked(self) -> Estimate:
        """How often two sets of as many vectors are joined."""
        return _estimate(self.point.linked, self.point.tries)


def _estimate(rates: np.ndarray, tries: np.ndarray) -> Estimate:
    return estimate_of(hits_of_rates(rates.tolist(), tries.tolist()))


def name_people(
    values: np.ndarray, people: np.ndarray, halves: Halves, seed: int, telling: np.ndarray | None = None
) -> dict[int, Named]:
    """Name people from 1, 10 and 100 vectors; each number with all people who have enough.

    Adversaries see the vectors; each number divided by its deviation, if these differ; and `telling` (N, K).
    """
    own, spread = people[halves.asked], values[halves.learned].std(0)
    views = {"": values}
    if spread.max() > _UNEVEN * spread[spread > 0].min(initial=np.inf):
        views[", numbers evened out"] = values / np.where(spread > 0, spread, 1)
    if telling is not None:
        views[", numbers that tell most"] = telling
    asked, learned = halves.asked, halves.learned
    shown = {words: sets.few(each[asked], each[learned], most=_NUMBERS) for words, each in views.items()}
    able = {size: np.flatnonzero(np.bincount(own) >= sets.pictures_for(size)) for size in SIZES}
    found: dict[int, Named] = {}
    for size in reversed(SIZES):
        if size in found or len(able[size]) < _FEWEST // 2:
            continue
        rows = np.isin(own, able[size])
        made = sets.curve(
            {words: (each[rows], others) for words, (each, others) in shown.items()},
            own[rows],
            people[halves.learned],
            most=size,
            further={"naive Bayes": sets.by_variances},
            draws=_DRAWS,
            seed=seed,
        )
        # A smaller number is tried with more people, if there are more.
        points = [point for point in made.points if len(able.get(point.releases, ())) == len(able[size])]
        found |= {point.releases: Named(point, made.panel) for point in points}
    return dict(sorted(found.items()))


def find_telling(values: np.ndarray, people: np.ndarray, halves: Halves) -> tuple[np.ndarray, np.ndarray]:
    """Find single numbers that tell of people: by their values, their spread, or their last decimals.

    Only those who teach are looked at. From (N, D) numbers as they are in the file it returns (N, K), values
    of the most telling ones; and their places, if they tell far more than most, and may not belong there.
    """
    middle = np.median(values[halves.learned], axis=0)
    looks: list[Transform] = [lambda x: x, lambda x: np.log(np.abs(x - middle) + 1e-12)]
    for place in range(_PLACES):
        looks.append(lambda x, by=10.0**place: (np.abs(x) * by + _ROUNDED) % 1)  # type: ignore[misc]
        looks.append(lambda x, by=10.0**place: (x * by + _ROUNDED) % 1)  # type: ignore[misc]
    factors = np.stack([_factors(look(values[halves.learned]), people[halves.learned]) for look in looks])
    of_each = factors.max(0)  # (D,)
    most = of_each.argsort()[::-1][:_TELLING]
    carriers = most[of_each[most] > _CARRIES * max(1.0, float(np.median(of_each)))]
    telling = carriers if len(carriers) else most
    told = [looks[factors[:, each].argmax()](values)[:, each] for each in telling]
    return np.stack(told, 1).astype(np.float32), carriers


def _factors(values: np.ndarray, people: np.ndarray) -> np.ndarray:
    """(M, D) numbers -> (D,) variances between people, by those within them."""
    values = (values - values.mean(0)) / values.std(0).clip(min=1e-9)
    _, counts, means, rows = plda.group(values, people)
    between = (counts[:, None] * means**2).sum(0) / (len(counts) - 1)
    within = ((values - means[rows]) ** 2).sum(0) / max(1, len(people) - len(counts))
    return np.asarray(between / (within + 1e-6))


@dataclass(frozen=True)
class Form:
    """One way to keep vectors."""

    name: str  # for JSON and words, such as "sign bits"
    bytes: int  # of a vector
    transform: Transform  # from the vectors as they are
    outputs: int | None = None  # the number of different releases, if it is small
    remedy: bool = True  # whether it is meant to protect
    without: tuple[str, ...] = ()  # the names of numbers that it leaves out


def forms(
    learned: np.ndarray, target: np.ndarray | None, carriers: np.ndarray, names: Sequence[str]
) -> Iterator[Form]:
    """Yield the vectors as they are, as a small database keeps them, and remedies.

    `learned` are (M, D) vectors of people who are not looked for afterwards; `target` (M,) int64 classes of
    the attribute that is to be kept, -1 if unknown; `carriers` the numbers that tell most.
    """
    mean, width = learned.mean(0), learned.shape[1]
    yield Form("float32", 4 * width, lambda x: x, remedy=False)
    yield Form("sign bits", -(-width // 8), lambda x: _signs(x - mean), remedy=False)
    if len(carriers):
        yield Form(
            f"all but {' and '.join(names)}",
            4 * (width - len(carriers)),
            lambda x: np.delete(x, carriers, axis=1),
            without=tuple(names),
        )
    components = plda.principal_components(learned, _CODE)
    bits = components.shape[1]
    yield Form(f"code of {bits} bits", 1, lambda x: _signs((x - mean) @ components), 2**bits)
    if target is not None:
        known = target >= 0
        answer, classes = classify(learned[known], target[known]), int(target.max()) + 1
        one_hot = np.eye(classes, dtype=np.float32)
        words = f"answer alone, one of {classes} classes"
        yield Form(words, 1, lambda x: one_hot[answer(x).argmax(1)], classes)


def _signs(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, np.float32(1), np.float32(-1))


def classify(values: np.ndarray, classes: np.ndarray) -> Transform:
    """Fit a logistic regression; the result maps vectors to log-probabilities of classes."""
    mean, spread = values.mean(0), values.std(0).clip(min=1e-3)

    def scale(x: np.ndarray) -> np.ndarray:
        return np.column_stack([(x - mean) / spread, np.ones(len(x), np.float32)])

    weights = sets.regress(scale(values)[None], classes, int(classes.max()) + 1)[0]
    return lambda x: sets.log_softmax(scale(x) @ weights)


@dataclass(frozen=True)
class Inferred:
    """How often an attribute is inferred from a vector, with its interval, and by the commonest class."""

    share: Estimate
    base: float
    people: int
    vectors: int


def infer(values: np.ndarray, classes: np.ndarray, people: np.ndarray, halves: Halves) -> Inferred:
    """Infer an attribute by a logistic regression that learned it from other people; -1 is unknown.

    Raises DataError: one of the halves does not show two classes.
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


def find_twins(values: np.ndarray, seed: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Look for the nearest other of each vector, and compare with vectors that share their covariance alone.

    For that, the numbers of each principal component are shuffled. Returns the share whose nearest other is
    nearer than shuffled vectors have one; (N,) these nearest others; and (K, 2) rows of nearly equal pairs.
    """
    centred = values - values.mean(0)
    draw = np.random.default_rng(seed)
    axes = np.linalg.eigh(np.cov(centred.T.astype(np.float64)))[1].astype(np.float32)
    shuffled = draw.permuted(centred @ axes, axis=0)
    nearest, similarity = _nearest(_unit(centred), np.arange(len(centred)))
    some = draw.choice(len(centred), min(len(centred), 2 * _BLOCK), replace=False)
    threshold = np.quantile(_nearest(_unit(shuffled), some)[1], 1 - _BY_CHANCE)
    distances = ((centred - centred[nearest]) ** 2).sum(1)
    usual = np.median(((centred - centred[draw.permutation(len(centred))]) ** 2).sum(1))
    close = np.flatnonzero(distances < _COPY * usual)
    copies = np.unique(np.sort(np.stack([close, nearest[close]], 1), 1), axis=0)
    return float((similarity > threshold).mean()), nearest, copies


def _unit(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True).clip(min=1e-12))


def _nearest(unit: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The most similar other row of each of some rows, and its cosine."""
    rows, values = [], []
    for block in np.array_split(asked, -(-len(asked) // _BLOCK)):
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
    others, nearest = people[asked, None] != people[order], []
    for each in (values, changed):
        unit = _unit(each - each.mean(0))
        cosines = np.where(others, unit[asked] @ unit[order].T, -2)
        count = min(_NEIGHBOURS, len(order) - 1)
        nearest.append(np.argpartition(-cosines, count, axis=1)[:, :count])
    return float(np.mean([np.isin(*pair).mean() for pair in zip(*nearest, strict=True)]))
