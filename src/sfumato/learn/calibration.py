"""Measures a refusal on validation images, through the gallery of a service.

Classes differ, and few are measured: so a rate has an interval over CLASSES, however many images they have.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.base.proportions import of_groups
from sfumato.learn.code_prototypes import CodePrototypes, measure_spread
from sfumato.learn.gallery import gallery_of_support, squares
from sfumato.learn.refusal import Interval, Refusal
from sfumato.protect.code import Code

if TYPE_CHECKING:
    from torch import Tensor

ACCEPTED = 0.95  # share of queries of enrolled classes that a refusal accepts
LEAST_REFUSED = 0.1  # the least share of queries of other classes that a useful refusal refuses
_MOST_CLASSES = 60  # measured
_QUERIES = 10  # of a class, at most
_SUPPORTS = 40  # of a class, on average
_TRIALS = 4  # the most that a class counts for: its images are alike, as by an intraclass correlation of 1/6


def measure_prototypes(
    clean: "Tensor", noisy: "Tensor", classes: "Tensor", *, way: int, shot: int, code: Code
) -> dict[str, Any]:
    """The prototypes' entries of a card, measured on validation images: see CodePrototypes.

    `clean` and `noisy` are (n, D) codes without noise, bits as 1 and -1, and with that of `code`. See also
    measure_refusal.
    """
    spread = measure_spread(clean, classes, bits=code.bits is not None)
    made = CodePrototypes(code.bits, clean.shape[1], spread)
    embeddings = made.embed(noisy, code).numpy().astype(np.float32)
    weights = np.full(len(embeddings), made.weight(code))
    more: dict[str, Any] = {"way": way, "shot": shot, "weights": weights, "codes": made}
    refusal, reason = measure_refusal(embeddings, classes.numpy(), **more)
    noise = {"flip": code.flip, "norm": code.norm, "noise": code.noise}
    return {"spread": asdict(spread), "refusal": refusal and refusal.card(), "no_refusal": reason, **noise}


def measure_refusal(
    embeddings: np.ndarray,
    classes: np.ndarray,
    *,
    way: int,
    shot: int,
    weights: np.ndarray | None = None,
    codes: CodePrototypes | None = None,
) -> tuple[Refusal | None, str]:
    """The refusal of (n, D) embeddings, measured among `way` enrolled classes, or fewer, of `shot` examples.

    Queries of enrolled classes should be accepted, and those of other classes refused. So two
    classes have no refusal: with both enrolled, no image is of another one. For the other arguments see
    gallery.answers_of_episodes. -> the refusal and "", or None and the reason.
    """
    draw = np.random.default_rng(0)
    weights = np.ones(len(embeddings)) if weights is None else weights
    images = [draw.permutation((classes == each).nonzero()[0]) for each in np.unique(classes)]
    images = [images[each] for each in draw.permutation(len(images)) if len(images[each]) > shot]
    images = images[:_MOST_CLASSES]
    way = min(way, len(images) - 1)
    if way < 2:
        return None, f"{len(images)} classes of validation images: a refusal is measured with three or more"
    trials = _Trials(draw, images, embeddings, weights, codes, way=way, shot=shot)
    threshold = threshold_of(trials.own())
    # The rates of a class are by the threshold of the others: its own images would have chosen it.
    accepted, refused = trials.rates(
        np.array([threshold_of(trials.own(each)) for each in range(len(images))])
    )
    if refused.share < max(LEAST_REFUSED, 2 * (1 - accepted.share)):
        return None, (
            f"it would refuse {refused.share:.0%} of queries of other classes, and {1 - accepted.share:.0%} "
            f"of those of {way} enrolled ones"
        )
    return Refusal(threshold, len(images), way, shot, accepted, refused), ""


def threshold_of(own: np.ndarray) -> float:
    """The threshold that accepts 95% of queries by their scaled distances from their own class.

    Half-way to the next larger distance: codes of a few bits have few distances, and rounding must not decide
    which of them are accepted.
    """
    own = np.sort(own)
    largest = own[math.ceil(ACCEPTED * len(own)) - 1]
    above = own[own > largest * (1 + 1e-5) + 1e-9]
    return float((largest + above[0]) / 2 if len(above) else largest * (1 + 1e-5) + 1e-9)


class _Trials:
    """Galleries of `way` of K classes at a time, of `shot` examples each, and queries of all classes.

    State: the classes of the (Q,) queries, the (T, way) enrolled ones, and the (T, Q, way) squared distances,
    divided by the scale of the class's examples; nan for images that are examples of the gallery.
    """

    def __init__(
        self,
        draw: np.random.Generator,
        images: Sequence[np.ndarray],
        embeddings: np.ndarray,
        weights: np.ndarray,
        codes: CodePrototypes | None,
        *,
        way: int,
        shot: int,
    ) -> None:
        asked = [rows[:_QUERIES] for rows in images]
        queries, self._way = np.concatenate(asked), way
        self._classes = np.repeat(np.arange(len(asked)), [len(each) for each in asked])
        enrolled, distances = [], []
        for number in range(max(len(images), _SUPPORTS * len(images) // way)):
            first = number % len(images)  # so that each is enrolled
            others = draw.permutation(np.delete(np.arange(len(images)), first))
            chosen = np.array([first, *others[: way - 1]])
            # All but one, which is the query and so never among the examples.
            rows = [np.delete(images[each], draw.integers(len(asked[each]))) for each in chosen]
            support = np.stack([draw.permutation(each)[:shot] for each in rows])
            gallery = gallery_of_support(embeddings, support, weights, codes)
            scaled = squares(embeddings[queries][:, None] - gallery.vectors) / (1 + 1 / gallery.shots)
            scaled[np.isin(queries, support)] = np.nan
            enrolled.append(chosen)
            distances.append(scaled)
        self._enrolled, self._distances = np.stack(enrolled), np.stack(distances)

    def own(self, without: int | None = None) -> np.ndarray:
        """The distances of images, but for those of a class, from the prototypes of their own classes."""
        own = self._enrolled[:, None, :] == self._classes[:, None]
        own &= (self._classes != without)[:, None]
        return np.asarray(self._distances[own & np.isfinite(self._distances)])

    def rates(self, thresholds: np.ndarray) -> list[Interval]:
        """The accepted and the refused share among `way` classes, with the threshold of each, (K,).

        The variance is that of the jackknife (Efron & Stein 1981) over classes, enrolled and others.
        """
        classes, number = self._classes, len(thresholds)
        hits, asked = np.zeros((len(classes), number)), np.zeros((len(classes), number))
        for enrolled, distances in zip(self._enrolled, self._distances, strict=True):
            hits[:, enrolled] += distances <= thresholds[classes, None]
            asked[:, enrolled] += np.isfinite(distances)
        missed = 1 - np.divide(hits, asked, out=np.full_like(hits, np.nan), where=asked > 0)
        others = [classes != each for each in range(number)]
        parts = np.stack([_shares(missed[own], classes[own], self._way) for own in others])  # (K, 2)
        shares, variances = _shares(missed, classes, self._way), parts.var(0) * (number - 1)
        more, both = {"groups": number, "trials": _TRIALS * number}, zip(shares, variances, strict=True)
        return [Interval(float(each), *of_groups(float(each), float(by), **more)) for each, by in both]


def _shares(missed: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """The accepted and the refused share among `count` classes, or all others there are: means over classes.

    `missed`: (Q, K) how often each image of (Q,) classes is not accepted by a prototype of each class.
    """
    # (Q, count + 1): the mean over all sets of 0 and more other classes, how often none of them accepts.
    none, kinds = np.zeros((len(classes), count + 1)), np.unique(classes)
    none[:, 0] = 1
    seen, counts = np.zeros((len(classes), 1)), np.arange(1, count + 1)
    for each in kinds:
        other = classes != each
        seen[other] += 1
        share = np.minimum(counts / seen[other], 1)
        before = none[other]
        none[other, 1:] = (1 - share) * before[:, 1:] + share * missed[other, each, None] * before[:, :-1]
    own = missed[np.arange(len(classes)), classes]
    both = np.column_stack([1 - own * none[:, count - 1], none[:, min(count, len(kinds) - 1)]])  # (Q, 2)
    return np.asarray(np.mean([np.nanmean(both[classes == each], 0) for each in kinds], 0))
