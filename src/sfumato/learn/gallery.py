"""The answers of a service from prototypes, and their measurement in a study: the same code for both.

Codes of a few bits are often equally far from several classes. A hash of the query and the labels draws the
order of these: each comes first equally often, and a repeated query has the same answer on any server.

Made of arrays, without PyTorch: a service that compares codes does not install it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.learn.refusal import Refusal

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
        return cls(labels, vectors, squares(vectors), shots, hashes_of(labels))

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


def hashes_of(labels: Sequence[str]) -> np.ndarray:
    """(K,) uint64 of the labels."""
    return np.frombuffer(b"".join(_digest(label.encode()) for label in labels), np.uint64)


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
    way = places.shape[1]
    hits, accepted = [], []
    for episode in places:
        gallery = gallery_of_support(embeddings, episode[:, :shot], weights, codes)
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
    totals = [sum_weighted(embeddings[each], weights[each]) for each in rows]
    means = [mean_of(total, weight) for total, weight in zip(totals, sums, strict=True)]
    return Gallery.of(tuple(map(str, labels)), np.stack(means), sums, examples, codes)


def gallery_of_support(
    embeddings: np.ndarray, support: np.ndarray, weights: np.ndarray, codes: CodePrototypes | None
) -> Gallery:
    """The gallery of (N, K) indices of embeddings; see answers_of_episodes."""
    rows = support.ravel()
    classes = np.arange(len(support)).repeat(support.shape[1])
    return gallery_of_classes(embeddings[rows], classes, weights[rows], codes)
