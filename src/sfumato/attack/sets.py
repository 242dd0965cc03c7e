"""Name people by many releases: adversaries know releases of each person and get n more of one of them.

Some pictures of each person are known, in a gallery; n of the others, drawn again and again, are named among
the people of a panel. One half of the people chooses the adversary, and the other half measures how often
they are right, both ways: the largest of many figures would be large by luck. A panel is of one half, since a
person named too often takes from others. The same comparisons count the people who are recognised as the
person of a label, and the labels of two services that are found to belong together. NumPy computes it, so
that vectors are audited without PyTorch.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from sfumato.attack import plda
from sfumato.dp.naming import MOST_OUTPUTS
from sfumato.errors import DataError

SIZES = (1, 3, 10, 30, 100)  # releases of one person
PANEL = 100  # people in a panel at most
_FEWEST = 4  # people who can be named: two in each half
DRAWS = 10  # of galleries, panels and sets
_STEPS, _RATE = 100, 0.05  # of a logistic regression
_AT_ONCE = 1 << 16  # log-probabilities of logistic regressions
_WEIGHT = 0.03  # of the squares of its weights, in its loss
_COMPONENTS = 64  # of products, for PLDA
_NUMBERS = 32  # of a release at most, to try products of pairs
_FEW = 80  # of a release at most, for models: principal components of others'
_PRIOR = 20.0  # releases that the common distribution weighs in a table, next to those of a person
_ROGUE = 100.0  # times the median deviation, from which a number hides the others
_OWN = 1.0  # vectors of others that the variance of a number weighs, next to a person's own
_SAMPLED = 4_000  # sets of which the scores are kept, or one of each person of a panel
_FALSE_ALARMS, _COMPARED = 0.01, 200_000  # and pairs of two people that set its threshold

Scores = Callable[[int], np.ndarray]  # n -> (B, P, G, P), how well each set of n fits each person
Linker = Callable[[np.ndarray], Scores]  # a gallery, (B, P, H, d), that may be as small as a set


@dataclass(frozen=True)
class Panels:
    """Numbers of releases: of known people, of the same to be named, and of others."""

    gallery: np.ndarray  # (B, P, H, d), of P people in each of B panels
    probes: np.ndarray  # (B, P, H', d)
    others: np.ndarray  # (M, d)
    of_others: np.ndarray  # (M,) int64, who they are

    @property
    def own(self) -> np.ndarray:
        """(P·H,) who is on each release of the gallery of a panel."""
        return np.arange(self.gallery.shape[1]).repeat(self.gallery.shape[2])

    def of(self, features: Callable[[np.ndarray], np.ndarray]) -> "Panels":
        """Map the numbers of each release to others."""
        gallery, probes, others = map(features, (self.gallery, self.probes, self.others))
        return Panels(gallery, probes, others, self.of_others)


@dataclass(frozen=True)
class Point:
    """How well n releases of one person identify them; arrays are (P,), of the people looked for."""

    releases: int  # n
    people: np.ndarray  # int64 codes
    named: np.ndarray  # shares of tries named rightly, by the adversary whom the other half chose
    tries: np.ndarray  # int64, how often a gallery, a panel and sets were drawn for each
    chosen: tuple[str, str]  # by the first half and by the second
    rates: Mapping[str, np.ndarray]  # of each adversary, as `named`
    half: np.ndarray  # bool, whether a person is in the second half
    accepted: float  # the share of sets accepted as the right person's, if 1 in 100 of others is too
    equal_error: float  # the share of right persons refused at the threshold that accepts as many others
    linked: np.ndarray  # as `named`, with n in the gallery, too, by who learns from others of their service
    scores: tuple[np.ndarray, ...]  # (m, P) of some sets and the people of a panel, by those who are chosen
    right: np.ndarray  # (m,) int64, the column of the right person
    shown: np.ndarray  # (m,) int64, the number of that person in `people`

    @property
    def by_adversary(self) -> dict[str, float]:
        """The shares of each adversary, of all people."""
        return {name: float(np.average(rates, weights=self.tries)) for name, rates in self.rates.items()}


@dataclass(frozen=True)
class Curve:
    """How naming grows with the number of releases."""

    points: tuple[Point, ...]  # by rising n, of the same people
    panel: int  # the number of people in a panel: guessing is right in 1/panel
    pictures: int  # of each person
    known: int  # of these, in a gallery
    others: int  # people to learn from


def pictures_for(releases: int) -> int:
    """Return how many pictures of a person are needed: n to name them by, half as many to know them by."""
    return releases + max(1, releases // 2)


def in_two_scenes(people: ArrayLike, scenes: ArrayLike) -> np.ndarray:
    """(N,) bool, whether the person on a picture is in two scenes: one to know them by, one to name."""
    people = np.asarray(people)
    codes, scenes_of = np.unique(np.unique(np.stack([people, scenes]), axis=1)[0], return_counts=True)
    return np.isin(people, codes[scenes_of > 1])


def measurable(people: ArrayLike, most: int = SIZES[-1]) -> int:
    """The most releases, of SIZES, that half of those with two pictures have; 0 for fewer than four."""
    counts = np.unique(people, return_counts=True)[1]
    enough = {size: int((counts >= pictures_for(size)).sum()) for size in SIZES if size <= most}
    least = max(_FEWEST, enough[1] / 2)
    return max((size for size, able in enough.items() if able >= least), default=0)


def curve(
    views: Mapping[str, tuple[ArrayLike, ArrayLike]],
    people: ArrayLike,
    of_others: ArrayLike,
    *,
    scenes: ArrayLike | None = None,
    least: int = SIZES[0],
    most: int = SIZES[-1],
    sent: Callable[[np.ndarray], np.ndarray] = lambda numbers: numbers,
    further: Mapping[str, Callable[["Panels"], "Linker"]] = MappingProxyType({}),
    panel: int = PANEL,
    draws: int = DRAWS,
    seed: int,
) -> Curve:
    """Measure how often people are named from 1, 3, 10, ... releases of them, see the module.

    Args:
        views: words -> (N, d) numbers of each release, as somebody sees it, and (M, d) of other people's.
        people, of_others: (N,) and (M,) int64, who is on each; looked for are those with enough pictures.
        scenes: (N,) int64, equal for releases of one picture, which stay together; None if all differ.
        least, most: of the numbers of releases.
        sent: turns (..., T, d) numbers into those sent, image after image; called for each order anew.
        further: adversaries who learn from other people, such as `by_variances` and `set_network`.
        draws: how often galleries, panels of at most `panel` people and sets are drawn, by the seed.
    """
    people, of_others = np.asarray(people), np.asarray(of_others)
    scenes = None if scenes is None else np.asarray(scenes)
    able = people if scenes is None else people[in_two_scenes(people, scenes)]
    size = measurable(able, most)
    if not size:
        what = "have two pictures" if scenes is None else "are in two scenes"
        raise DataError(f"fewer than four people {what}: there is nobody to look for")
    draw = np.random.default_rng(seed)
    codes, counts = np.unique(able, return_counts=True)
    looked_for = codes[counts >= pictures_for(size)]
    pictures = int(counts[counts >= pictures_for(size)].min())
    half = draw.permutation(len(looked_for)) % 2
    panel = min(panel, len(looked_for) // 2)
    rows_of = [np.flatnonzero(people == code) for code in looked_for]
    deals = [_deal(rows_of, half, scenes, panel, pictures, size, draw) for _ in range(draws)]
    _, known, probes = (min(part.shape[-1] for part in parts) for parts in zip(*deals, strict=True))
    who = np.concatenate([members for members, _, _ in deals])  # (B, P), numbers of `looked_for`
    rows = np.concatenate(
        [np.concatenate([first[..., :known], second[..., :probes]], -1) for _, first, second in deals]
    )
    panels = {}
    for words, (values, others) in views.items():
        first, second = np.split(np.asarray(sent(np.asarray(values)[rows]), np.float32), [known], 2)
        panels[words] = Panels(first, second, np.asarray(others, np.float32), of_others)
    sizes = [each for each in SIZES if least <= each <= min(size, probes)]
    namers: dict[str, Scores] = {}
    linkers: dict[str, tuple[Linker, np.ndarray]] = {}
    for words, shown in panels.items():
        namers |= dict(adversaries(shown, words))
        for name, linker in _of_other_people(shown, words, further):
            namers[name] = linker(shown.gallery)
            linkers[name] = linker, shown.gallery
    points = tuple(_point(each, namers, linkers, who, half, looked_for) for each in sizes)
    return Curve(points, panel, known + probes, known, len(np.unique(of_others)))


def few(values: ArrayLike, others: ArrayLike, *, most: int = _FEW) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of releases, as `most` principal components of others' if they are more."""
    scale = even(np.asarray(others))
    own, learned = np.asarray(values) / scale, np.asarray(others) / scale
    if learned.shape[1] <= most:
        return own, learned
    components = plda.principal_components(learned, most)
    return own @ components, learned @ components


def even(values: np.ndarray) -> np.ndarray:
    """(N, D) -> (D,) numbers to divide by: deviations, if one, as of a time, hides the others, else 1."""
    spread = values.std(0)
    shown = spread[spread > 0]
    if not len(shown) or spread.max() <= _ROGUE * np.median(shown):
        return np.ones_like(spread)
    return np.where(spread > 0, spread, 1)


def join(points: Mapping[str, Point]) -> Point:
    """Name the same people by all adversaries of several points, and at least as often as any point does."""
    first, *_ = points.values()  # which says who is linked
    rates = {f"{name}{words}": each for words, point in points.items() for name, each in point.rates.items()}
    named, chosen = _state(rates, first.tries, first.half)
    joined = replace(first, named=named, chosen=chosen, rates=rates)
    best = max((joined, *points.values()), key=lambda point: float(point.named.mean()))
    return replace(joined, named=best.named, chosen=best.chosen)


def _deal(
    rows_of: Sequence[np.ndarray],
    half: np.ndarray,
    scenes: np.ndarray | None,
    panel: int,
    pictures: int,
    size: int,
    draw: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw panels, and rows of known and of tested releases: (B, P), (B, P, H), (B, P, H')."""
    order = draw.permutation(len(rows_of))
    halves = [order[half[order] == side] for side in (0, 1)]
    members = np.concatenate([each[: len(each) // panel * panel] for each in halves]).reshape(-1, panel)
    probes = max(size, pictures // 2)
    sides: list[list[np.ndarray]] = []
    for member in members.ravel():
        rows = draw.permutation(rows_of[member])
        of_scene = np.unique(rows if scenes is None else scenes[rows], return_inverse=True)[1]
        place = draw.permutation(of_scene.max() + 1)
        asked = place[of_scene] < min(max(round(len(place) * probes / pictures), 1), len(place) - 1)
        sides.append([rows[~asked][: pictures - probes], rows[asked][:probes]])
    first, second = (
        np.stack([side[: min(map(len, of_side))] for side in of_side]).reshape(*members.shape, -1)
        for of_side in zip(*sides, strict=True)
    )
    return members, first, second


def _point(
    size: int,
    namers: Mapping[str, Scores],
    linkers: Mapping[str, tuple[Linker, np.ndarray]],
    who: np.ndarray,
    half: np.ndarray,
    codes: np.ndarray,
) -> Point:
    fits = {name: scores(size) for name, scores in namers.items()}
    counts = np.bincount(who.ravel(), minlength=len(codes))
    there = counts > 0

    def rates(fit: np.ndarray) -> np.ndarray:
        """(B, P, G, P) -> (P,) shares of tries named rightly, where equal fits share the one."""
        own = np.arange(fit.shape[1])
        best = fit == fit.max(-1, keepdims=True)
        right = (best[:, own, :, own] / best.sum(-1).swapaxes(0, 1)).mean(2).T  # (B, P)
        sums = np.bincount(who.ravel(), right.ravel(), minlength=len(codes))
        shares: np.ndarray = sums[there] / counts[there]
        return shares

    right = {name: rates(fit) for name, fit in fits.items()}
    named, chosen = _state(right, counts[there], half[there])
    # By galleries with no more releases of each person than a set.
    links = {name: rates(of(gallery[:, :, :size])(size)) for name, (of, gallery) in linkers.items()}
    linked, _ = _state(links, counts[there], half[there])
    verified = {name: _verify(fits[name]) for name in set(chosen)}
    stated = [(*verified[name], half[who] != side) for side, name in enumerate(chosen)]
    panels, members = who.shape
    some = min(fits[chosen[0]].shape[2], max(1, _SAMPLED // who.size))  # sets of each person of a panel
    return Point(
        releases=size,
        people=codes[there],
        named=named,
        tries=counts[there],
        chosen=chosen,
        rates=right,
        half=half[there] == 1,
        accepted=float(np.mean([accepted[other].mean() for accepted, _, other in stated])),
        equal_error=float(np.mean([equal_error for _, equal_error, _ in stated])),
        linked=linked,
        scores=tuple(fits[name][:, :, :some].reshape(-1, members) for name in dict.fromkeys(chosen)),
        right=np.tile(np.arange(members).repeat(some), panels),
        shown=(there.cumsum() - 1)[who].ravel().repeat(some),
    )


def _verify(fit: np.ndarray) -> tuple[np.ndarray, float]:
    """(B, P, G, P) scores of sets -> (B, P) shares accepted at few false alarms, and the equal error."""
    people = np.arange(fit.shape[1])
    own = fit[:, people, :, people]
    of_two = fit.swapaxes(2, 3)[:, ~np.eye(len(people), dtype=bool)].ravel()
    of_two = np.sort(of_two[:: max(1, len(of_two) // _COMPARED)])
    accepted = own > of_two[max(0, int((1 - _FALSE_ALARMS) * len(of_two)) - 1)]
    # At the score of each pair of two as a threshold:
    refused = np.sort(own, None).searchsorted(of_two, "right") / own.size
    alarms = 1 - of_two.searchsorted(of_two, "right") / len(of_two)
    crossing = np.abs(refused - alarms).argmin()
    return accepted.mean(2).T, float((refused[crossing] + alarms[crossing]) / 2)


def _state(
    rates: Mapping[str, np.ndarray], tries: np.ndarray, half: np.ndarray
) -> tuple[np.ndarray, tuple[str, str]]:
    """Take each person's rate by the best adversary on the other half; return the best of each half, too."""
    first, second = (
        max(rates, key=lambda name: round(float(rates[name][here] @ tries[here]), 9))
        for here in (half == 0, half == 1)
    )
    return np.where(half == 1, rates[first], rates[second]), (first, second)


def adversaries(shown: Panels, words: str) -> Iterator[tuple[str, Scores]]:
    """Yield adversaries who see one view of releases and learn from a gallery; `words` follow their names."""
    yield f"whitened means{words}", by_whitened_means(shown, shown.gallery)
    yield f"logistic regression{words}", by_regression(shown)
    pairs = 1 < shown.gallery.shape[-1] <= _NUMBERS
    if pairs:
        yield f"logistic regression of products{words}", by_regression(shown.of(products))
    if _repeat(shown):
        yield f"table{words}", by_counts(shown)
    if pairs and _teach(shown):
        of_pairs = shown.of(products)
        yield f"plda of products{words}", by_plda(of_pairs, _COMPONENTS)(of_pairs.gallery)


def _of_other_people(
    shown: Panels, words: str, further: Mapping[str, Callable[[Panels], Linker]]
) -> Iterator[tuple[str, Linker]]:
    """Yield adversaries who learn from other people alone, so that a gallery may be as small as a set."""
    yield f"means{words}", partial(by_whitened_means, shown, inner=_inner_of_others(shown))
    if _teach(shown):
        yield f"plda{words}", by_plda(shown, None)
        yield from ((f"{name}{words}", teach(shown)) for name, teach in further.items())


def _teach(shown: Panels) -> bool:
    return plda.trainable(shown.others[None], shown.of_others)


def _repeat(shown: Panels) -> bool:
    """Whether releases are so often equal that a table can count them."""
    width = shown.gallery.shape[-1]
    every = np.concatenate([shown.gallery.reshape(-1, width), shown.probes.reshape(-1, width)])
    most = min(MOST_OUTPUTS, shown.gallery[0, :, :, 0].size // 2)
    # A few of them differ as often as most could: no need to sort all.
    return all(len(np.unique(rows, axis=0)) <= most for rows in (every[: most + 1], every))


def products(codes: np.ndarray) -> np.ndarray:
    """(..., b) -> (..., b + b(b - 1)/2), with the products of all pairs appended."""
    first, second = np.triu_indices(codes.shape[-1], 1)
    return np.concatenate([codes, codes[..., first] * codes[..., second]], -1)


def sets(values: np.ndarray, size: int) -> np.ndarray:
    """(B, P, H, ...) -> (B, P, H // n, n, ...), one after the other."""
    count = values.shape[2] // size
    return values[:, :, : count * size].reshape(*values.shape[:2], count, size, *values.shape[3:])


def by_distance(asked: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(B, P, G, d) and (B, P, d) -> (B, P, G, P), minus the squared distances."""
    flat = asked.reshape(len(asked), -1, asked.shape[-1])  # (B, P·G, d)
    squares: np.ndarray = 2 * flat @ known.mT - (known**2).sum(-1)[:, None] - (flat**2).sum(-1, keepdims=True)
    return squares.reshape(*asked.shape[:3], known.shape[1])


def _inner_of_others(shown: Panels) -> np.ndarray:
    """(1, M, d), how releases of other people differ from the mean of their person."""
    _, _, means, rows = plda.group(shown.others, shown.of_others)
    inner: np.ndarray = shown.others - means[rows].astype(np.float32)
    return inner[None]


def by_whitened_means(shown: Panels, gallery: np.ndarray, *, inner: np.ndarray | None = None) -> Scores:
    """Compare means of sets and of a gallery, by the covariance of `inner` differences, or of its own."""
    means = gallery.mean(2)  # (B, P, d)
    inner = (gallery - means[:, :, None]).reshape(len(means), -1, means.shape[2]) if inner is None else inner
    covariance: np.ndarray = inner.mT @ inner / np.float32(inner.shape[1])
    least = 1e-3 * covariance.diagonal(axis1=1, axis2=2).mean(1).clip(min=1e-6)
    identity = np.eye(covariance.shape[-1], dtype=np.float32)
    # The inverse of the factor, and not the factor of the inverse, which rounding may leave without one.
    half: np.ndarray = np.linalg.inv(np.linalg.cholesky(covariance + least[:, None, None] * identity)).mT
    known = means @ half
    return lambda size: by_distance(sets(shown.probes, size).mean(3) @ half[:, None], known)


def add_up(log_likelihoods: np.ndarray) -> Scores:
    """Add up (B, P, H, P) of single releases over sets."""
    return lambda size: sets(log_likelihoods, size).sum(3)


def by_regression(shown: Panels) -> Scores:
    """Score by log-probabilities of logistic regressions, one a panel, all at once."""
    mean = shown.gallery.mean((1, 2), keepdims=True)
    spread = shown.gallery.std((1, 2), keepdims=True, ddof=1).clip(min=1e-3)
    x, z = ((each - mean) / spread for each in (shown.gallery, shown.probes))
    people = x.shape[1]
    known, asked = (each.reshape(len(x), -1, x.shape[3]) for each in (x, z))  # (B, P·H, d)
    logs = log_softmax(asked @ regress(known, shown.own, people))
    return add_up(logs.reshape(*z.shape[:3], people))


def regress(x: np.ndarray, own: np.ndarray, classes: int) -> np.ndarray:
    """Fit logistic regressions of (B, M, d) numbers on (M,) classes, by Adam. -> (B, d, classes) weights."""
    # A few at a time, so that their log-probabilities stay in the cache: twice as fast as all of 100 people.
    at_once = max(1, _AT_ONCE // (x.shape[1] * classes))
    truth, every = np.eye(classes, dtype=np.float32)[own], []
    for part in (x[start : start + at_once] for start in range(0, len(x), at_once)):
        weights = np.zeros((len(part), x.shape[2], classes), np.float32)
        first, second = np.zeros_like(weights), np.zeros_like(weights)  # moments of the gradient
        for step in range(1, _STEPS + 1):
            wrong = log_softmax(part @ weights)
            np.exp(wrong, out=wrong)
            wrong -= truth
            gradient = part.mT @ wrong / np.float32(len(own)) + _WEIGHT * weights
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            rate = _RATE * (1 + math.cos(math.pi * (step - 1) / _STEPS)) / 2
            weights -= rate / (1 - 0.9**step) * first / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        every.append(weights)
    return np.concatenate(every)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities of classes, along the last axis."""
    logs: np.ndarray = logits - logits.max(-1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
    return logs


def by_counts(shown: Panels) -> Scores:
    """Score by how often each person sent each output: the exact table of the gallery, for few outputs."""
    panels, people, asked, width = shown.probes.shape
    truth = np.arange(people).repeat(asked)
    both = zip(
        shown.gallery.reshape(panels, 1, -1, width), shown.probes.reshape(panels, 1, -1, width), strict=True
    )
    tables = [by_table(known, shown.own, probes, truth, prior=_PRIOR) for known, probes in both]
    logs = np.stack([table.log_posteriors[0] - table.log_prior for table in tables])
    return add_up(logs.reshape(panels, people, asked, people))


def by_plda(shown: Panels, dimensions: int | None) -> Linker:
    """Score by likelihood ratios of sets under a model of other people (attack.plda)."""
    model = plda.train(shown.others[None], shown.of_others, dimensions=dimensions)

    def of(gallery: np.ndarray) -> Scores:
        panels, people, known, width = gallery.shape
        own = np.arange(people).repeat(known)
        every = gallery.reshape(panels, 1, -1, width)

        def scores(size: int) -> np.ndarray:
            asked = sets(shown.probes, size)
            both = zip(every, asked.reshape(panels, -1, size, width), strict=True)
            ratios = [model.log_ratios(of_known, own, of_asked)[1] for of_known, of_asked in both]
            return np.stack(ratios).reshape(*asked.shape[:3], people)

        return scores

    return of


def by_variances(shown: Panels) -> Linker:
    """Score by the mean and the variance of each number in a gallery: Gaussian naive Bayes."""
    common = (_inner_of_others(shown)[0].astype(np.float64) ** 2).mean(0).clip(min=1e-12)
    centre = shown.others.mean(0, dtype=np.float64)
    asked = (shown.probes - centre).reshape(len(shown.probes), -1, len(centre))  # (B, P·H, d)

    def of(gallery: np.ndarray) -> Scores:
        known = gallery.shape[2]
        means = gallery.mean(2, dtype=np.float64)
        squares = ((gallery - means[:, :, None]) ** 2).sum(2)
        # Of people of whom few vectors are known they are drawn to those of other people.
        variances = (_OWN * common + squares) / (_OWN + known - 1) * (1 + 1 / known)
        means = means - centre
        theirs = (means**2 / variances + np.log(variances)).sum(-1)[:, None]  # (B, 1, P)
        squared: np.ndarray = asked**2 @ (1 / variances).mT - 2 * asked @ (means / variances).mT + theirs
        return add_up(-squared.reshape(*shown.probes.shape[:3], -1) / 2)

    return of


@dataclass(frozen=True)
class Table:
    """The exact adversary against releases with few outputs: a table of the person whom each output names.

    With p(s), the frequency of each person s, and p(y|s), that of output y in their releases, an adversary is
    right at best with Σ_y max_s p(s)·p(y|s) (Issa, Wagner & Kamath 2020, Sec. II). No network finds more.
    """

    people: np.ndarray  # (I,) int64 codes, ascending
    right: np.ndarray  # (m,) float64 from 0 to 1, how often each probe is named correctly over its releases
    in_sample: float  # how often the table is right on its own releases
    log_posteriors: np.ndarray  # (Q, m, I) ln p(s|y) for the output y of each release of each probe, and
    log_prior: np.ndarray  # (I,) ln p(s), both up to a constant over people

    def success(self, similarities: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """Return how often the likeliest person is right; equal ones are named in turn. (..., I) -> (...)."""
        best = similarities == similarities.max(-1, keepdims=True)
        column = np.searchsorted(self.people, truth)
        right: np.ndarray = best[..., np.arange(len(truth)), column] / best.sum(-1)
        return right

    @property
    def top1(self) -> float:
        """How often the table names photographs correctly that are not in it.

        On average this is at most Σ_y max_s p(s)·p(y|s), the bound of every rule; `in_sample` is at least
        that bound, since the maximum of estimated shares is biased upwards. With more photographs both meet.
        """
        return float(self.right.mean())


def by_table(
    gallery: ArrayLike, identities: ArrayLike, probes: ArrayLike, truth: ArrayLike, *, prior: float = 1.0
) -> Table:
    """Count how often each person's releases give each output, and name the probes by these counts.

    Each output names the person with the highest count, so that p(s) is their share of the gallery. People
    with equal counts are named in turn; so are those with most photographs, for an output without a count.
    (R, n, D) of R releases of each known photograph, drawn independently, and (n,) int64, who is on it; and
    (Q, m, D) and (m,) of the photographs to name. `prior`: the releases that the common distribution weighs,
    next to those of a person, in posteriors. Raises DataError for more than 2^12 different outputs.
    """
    gallery, probes = np.asarray(gallery), np.asarray(probes)
    draws, photographs, width = gallery.shape
    seen = np.concatenate([gallery.reshape(-1, width), probes.reshape(-1, width)])
    outputs, numbers = np.unique(seen, axis=0, return_inverse=True)
    if len(outputs) > MOST_OUTPUTS:
        raise DataError(f"{len(outputs)} different outputs: a table is for {MOST_OUTPUTS} at most")
    people, rows, held = np.unique(identities, return_inverse=True, return_counts=True)
    counted, asked = np.split(numbers.ravel(), [draws * photographs])
    cells = counted * len(people) + np.tile(rows, draws)
    counts = np.bincount(cells, minlength=len(outputs) * len(people)).reshape(-1, len(people)).astype(float)
    in_sample = float(counts.max(1).sum() / len(counted))
    counts[counts.sum(1) == 0] = held
    # Extra releases a person, with everybody's outputs, keep probabilities above 0. An output without a count
    # distinguishes nobody.
    everybody = counts.sum(1, keepdims=True) / len(counted)  # (outputs, 1), p(y)
    logs = np.log((counts + prior * everybody) / everybody)
    posteriors = logs[asked].reshape(len(probes), -1, len(people))
    table = Table(people, np.empty(0), in_sample, posteriors, np.log(held * draws + prior))
    return replace(table, right=table.success(posteriors, np.asarray(truth)).mean(0))
