"""The answers of a service from prototypes, and their measurement in a study: the same code for both.

A refusal is measured on validation images. Classes differ, and few are measured: so a rate has an interval
over CLASSES, however many images they have.

Codes of a few bits are often equally far from several classes. A hash of the query and the labels draws the
order of these: each comes first equally often, and a repeated query has the same answer on any server.

Made of arrays, as code_prototypes, without PyTorch: a service that compares codes does not install it.
"""

import math
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sfumato.base.proportions import of_groups
from sfumato.learn.code_prototypes import CodePrototypes, measure_spread
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
_ROUNDING = 1e-5  # of the squares in a logit: a bound on the loss by cancelling
_EQUAL = 1e-5  # a bound on the difference, in float32, of equal distances


def sum_weighted(embeddings: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(K, D) examples and the weight of each, (K,) -> (D,) float64; `mean_of` makes a prototype of it."""
    return np.asarray(weights.astype(np.float64) @ embeddings.astype(np.float64))


def mean_of(total: np.ndarray, weight: float) -> np.ndarray:
    """The weighted mean of the examples of a class: (D,) float32."""
    return np.asarray((total / weight).astype(np.float32))


def squares(rows: np.ndarray) -> np.ndarray:
    """The squared norms of (..., D) rows."""
    return np.asarray(np.einsum("...d,...d->...", rows, rows))


class Named(NamedTuple):
    """The nearest classes of some queries."""

    rows: np.ndarray  # (Q, top) of the labels, the nearest first
    shares: np.ndarray  # (Q, top), their shares of the softmax over all classes
    squared: np.ndarray  # (Q, top) squared distances
    none_of_these: np.ndarray | None  # (Q,) bool; None without a refusal


@dataclass(frozen=True)
class Gallery:
    """The prototypes of some classes, and values that are computed once from them."""

    labels: tuple[str, ...]  # of the classes
    vectors: np.ndarray  # (N, D) float32 prototypes
    squares: np.ndarray  # (N,) their squared norms
    shots: np.ndarray  # (N,) the examples of each, for a refusal, see CodePrototypes.posterior
    hashes: np.ndarray  # (N,) uint64 of the labels, which break ties

    @classmethod
    def of(
        cls,
        labels: tuple[str, ...],
        means: np.ndarray,
        weights: np.ndarray,
        examples: np.ndarray,
        codes: CodePrototypes | None,
    ) -> "Gallery":
        """Makes a gallery from the means of the examples of each class, (N, D), see mean_of.

        `weights` and `examples` are the sums of the examples' weights, and their numbers, (N,); `codes` makes
        prototypes of means, None leaves the means themselves.
        """
        vectors, shots = means, examples.astype(np.float64)
        if codes is not None and labels:
            vectors, shots = codes.posterior(means, weights, examples)
        hashes = np.frombuffer(b"".join(_digest(label.encode()) for label in labels), np.uint64)
        return cls(labels, vectors, squares(vectors), shots, hashes)

    def name(self, queries: np.ndarray, *, top: int, refusal: Refusal | None) -> Named:
        """The nearest classes of (Q, D) queries; there is at least one class.

        A share is of the softmax of minus the squared Euclidean distances, over all classes: Snell et al.
        2017, Eq. (2). A query belongs to none of these if no class accepts it, near or far: a class of few
        examples may accept it from farther away than one of many.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # for numbers too large to compare
            logits = _logits(queries, self)
            rows, shares = _nearest(queries, self, logits, min(top, len(self.labels)))
            # Not from the logits, whose large terms cancel.
            squared = squares(queries[:, None] - self.vectors[rows])
            none = None
            if refusal is not None:
                near = refusal.accepts(squared, self.shots[rows]).any(1)
                none = np.logical_not(near | refusal.accepts(-logits, self.shots).any(1))
        return Named(rows, shares, squared, none)


def _logits(queries: np.ndarray, gallery: "Gallery") -> np.ndarray:
    """Minus the squared distances: (Q, D) queries -> (Q, K). Source: Snell et al. 2017, Eq. (2)."""
    logits: np.ndarray = queries @ gallery.vectors.T
    logits *= 2
    logits -= squares(queries)[:, None]
    logits -= gallery.squares
    return logits


def _nearest(
    queries: np.ndarray, gallery: "Gallery", logits: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the nearest prototypes, and their shares of the softmax over all: each (Q, count)."""
    rows, values = _largest(logits, min(count + 1, logits.shape[1]))
    chosen, vectors, each = rows[:, :count], gallery.vectors, np.arange(len(rows))[:, None]
    # Classes that are nearly as far by the logits, whose terms may be infinite, are compared again.
    slack = _ROUNDING * (squares(queries) - values[:, -1])
    clear = values[:, :-1] - values[:, 1:] > slack[:, None]
    if not clear.all():
        for number in (~clear.all(1)).nonzero()[0].tolist():
            near = rows[number]
            if not clear[number, -1]:  # others may tie with the last
                near = (~(logits[number] < values[number, count - 1] - slack[number])).nonzero()[0]
            away = vectors[near] - queries[number]
            chosen[number] = near[order(queries[number], gallery.hashes[near], squares(away))[:count]]
    powers = np.exp(logits - values[:, :1])
    return chosen, powers[each, chosen] / powers.sum(1, keepdims=True)


def _largest(logits: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the largest of (Q, K) logits, the largest first, and these: (Q, count) each."""
    each = np.arange(len(logits))[:, None]
    if count == 2 < logits.shape[1]:  # of tens of thousands, in a tenth of the time
        first = logits.argmax(1)[:, None]
        values = logits[each, first]
        logits[each, first] = -np.inf
        rows = np.column_stack([first, logits.argmax(1)])
        logits[each, first] = values
    elif count < logits.shape[1]:
        rows = np.argpartition(logits, -count, 1)[:, -count:]
        rows = rows[each, np.argsort(-logits[each, rows], 1)]
    else:
        rows = np.argsort(-logits, 1)
    return rows, logits[each, rows]


def order(query: np.ndarray, hashes: np.ndarray, squared: np.ndarray) -> np.ndarray:
    """The classes of these hashes, the nearest first; ties at random, by a hash of query and label."""
    rows = squared.argsort(kind="stable")
    distances = squared[rows]
    steps = distances[1:] > distances[:-1] * (1 + _EQUAL)
    if steps.all():
        return rows
    groups = np.concatenate(([0], steps.cumsum()))
    drawn = _mix(hashes[rows] ^ np.frombuffer(_digest(query.tobytes()), np.uint64))
    return rows[np.lexsort((drawn, groups))]


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


def _mix(words: np.ndarray) -> np.ndarray:
    """uint64 -> uint64, each bit from all of them: the end of SplitMix64 (Steele, Lea & Flood 2014)."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ words >> np.uint64(31))


def answers_of_episodes(
    embeddings: np.ndarray,
    places: np.ndarray,
    *,
    shot: int,
    weights: np.ndarray | None = None,
    codes: CodePrototypes | None = None,
    refusal: Refusal | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """The answers of a service to the queries of each episode, with its support as enrolled examples.

    `places` are (E, N, K + Q) indices of the (n, D) embeddings; the first `shot` of a class are support.
    `weights` are (n,) that of each in a prototype, None for 1; for `codes` see Gallery.of. -> (E, N, Q) bool:
    which are named correctly, and which are accepted; None without a refusal.
    """
    weights = np.ones(len(embeddings)) if weights is None else weights
    way, hits, accepted = places.shape[1], [], []
    for episode in places:
        gallery = _gallery_of(episode[:, :shot], embeddings, weights, codes)
        queries = embeddings[episode[:, shot:].ravel()]
        named = gallery.name(queries, top=1, refusal=refusal)
        hits.append(named.rows[:, 0].reshape(way, -1) == np.arange(way)[:, None])
        if named.none_of_these is not None:
            accepted.append(~named.none_of_these.reshape(way, -1))
    return np.stack(hits), np.stack(accepted) if accepted else None


def gallery_of_classes(
    embeddings: np.ndarray, classes: np.ndarray, weights: np.ndarray, codes: CodePrototypes | None
) -> Gallery:
    """The gallery of (n, D) examples of (n,) int classes, whose numbers are its labels."""
    labels, examples = np.unique(classes, return_counts=True)
    rows = [(classes == each).nonzero()[0] for each in labels]
    sums = np.array([weights[each].sum() for each in rows])
    means = [mean_of(sum_weighted(embeddings[each], weights[each]), weights[each].sum()) for each in rows]
    return Gallery.of(tuple(map(str, labels)), np.stack(means), sums, examples, codes)


def _gallery_of(
    support: np.ndarray, embeddings: np.ndarray, weights: np.ndarray, codes: CodePrototypes | None
) -> Gallery:
    """The gallery of (N, K) indices of embeddings; see answers_of_episodes."""
    rows, classes = support.ravel(), np.arange(len(support)).repeat(support.shape[1])
    return gallery_of_classes(embeddings[rows], classes, weights[rows], codes)


def measure_prototypes(
    clean: "Tensor",
    noisy: "Tensor",
    classes: "Tensor",
    *,
    way: int,
    shot: int,
    code: Code,
    words: np.ndarray | None = None,
) -> dict[str, Any]:
    """The prototypes' entries of a card, measured on validation images: see CodePrototypes.

    `clean` and `noisy` are (n, D) codes without noise, bits as 1 and -1, and with that of `code`, `words`
    those of their codebook. See also measure_refusal.
    """
    import torch

    made = CodePrototypes(code.bits, clean.shape[1], words=words)
    embedded = torch.from_numpy(made.unbias(clean.numpy(), replace(code, flip=None, epsilon=None)))
    spread = measure_spread(embedded, classes, bits=made.are_signs)
    made = replace(made, spread=spread)
    embeddings = made.unbias(noisy.numpy(), code).astype(np.float32)
    more: dict[str, Any] = {"weights": np.full(len(embeddings), made.weight(code)), "codes": made}
    refusal, reason = measure_refusal(embeddings, classes.numpy(), way=way, shot=shot, **more)
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

    Two classes have none: with both enrolled, no image is of another one. For the other arguments see
    answers_of_episodes. -> the refusal and "", or None and the reason.
    """
    draw = np.random.default_rng(0)
    weights = np.ones(len(embeddings)) if weights is None else weights
    images = [draw.permutation((classes == each).nonzero()[0]) for each in np.unique(classes)]
    images = [images[each] for each in draw.permutation(len(images)) if len(images[each]) > shot]
    images = images[:_MOST_CLASSES]
    way = min(way, len(images) - 1)
    if way < 2:
        return None, f"{len(images)} classes of validation images: a refusal is measured with three or more"
    asked = [rows[:_QUERIES] for rows in images]
    queries, kinds = np.concatenate(asked), np.arange(len(asked))
    enrolled, distances = [], []
    for number in range(max(len(images), _SUPPORTS * len(images) // way)):
        first = number % len(images)  # so that each is enrolled
        chosen = np.array([first, *draw.permutation(np.delete(kinds, first))[: way - 1]])
        # All but one, which is the query and so never among the examples.
        rows = [np.delete(images[each], draw.integers(len(asked[each]))) for each in chosen]
        support = np.stack([draw.permutation(each)[:shot] for each in rows])
        gallery = _gallery_of(support, embeddings, weights, codes)
        scaled = squares(embeddings[queries][:, None] - gallery.vectors) / (1 + 1 / gallery.shots)
        scaled[np.isin(queries, support)] = np.nan
        enrolled.append(chosen)
        distances.append(scaled)
    of_queries = kinds.repeat([len(each) for each in asked])
    trials = _Trials(of_queries, np.stack(enrolled), np.stack(distances))
    threshold = threshold_of(trials.own())
    # The rates of a class are by the threshold of the others: its own images would have chosen it.
    of_others = [threshold_of(trials.own(each)) for each in range(len(images))]
    accepted, refused = trials.rates(np.array(of_others))
    if refused.share < max(LEAST_REFUSED, 2 * (1 - accepted.share)):
        others, own = f"{refused.share:.0%} of queries of other classes", f"{1 - accepted.share:.0%}"
        return None, f"it would refuse {others}, and {own} of those of {way} enrolled ones"
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


class _Trials(NamedTuple):
    """Galleries of some of K classes at a time, and queries of all classes."""

    classes: np.ndarray  # (Q,) of the queries
    enrolled: np.ndarray  # (T, N) classes of each gallery
    # (T, Q, N) squared, divided by the scale of the class's examples; nan for an example of the gallery.
    distances: np.ndarray

    def own(self, without: int | None = None) -> np.ndarray:
        """The distances of images, but for those of a class, from the prototypes of their own classes."""
        own = self.enrolled[:, None, :] == self.classes[:, None]
        own &= (self.classes != without)[:, None]
        return np.asarray(self.distances[own & np.isfinite(self.distances)])

    def rates(self, thresholds: np.ndarray) -> list[Interval]:
        """The accepted and the refused share among N classes, with the threshold of each, (K,).

        The variance is that of the jackknife (Efron & Stein 1981) over classes, enrolled and others.
        """
        classes, number, count = self.classes, len(thresholds), self.enrolled.shape[1]
        hits, asked = np.zeros((len(classes), number)), np.zeros((len(classes), number))
        for enrolled, distances in zip(self.enrolled, self.distances, strict=True):
            hits[:, enrolled] += distances <= thresholds[classes, None]
            asked[:, enrolled] += np.isfinite(distances)
        missed = 1 - np.divide(hits, asked, out=np.full_like(hits, np.nan), where=asked > 0)
        others = [classes != each for each in range(number)]
        parts = np.stack([_shares(missed[own], classes[own], count) for own in others])  # (K, 2)
        shares, variances = _shares(missed, classes, count), parts.var(0) * (number - 1)
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
