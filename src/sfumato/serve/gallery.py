"""The nearest classes of a query, among prototypes that are kept in memory: what changed is read anew.

A process keeps a GiB of their numbers, of all galleries together: more than three million prototypes of 64,
with their labels beside them. There the search is exact. A gallery that does not fit is searched by the
database, by an index where it is PostgreSQL.

Codes of a few bits are often as far from several classes. Among these the order is drawn by a hash of the
query and the labels: each comes first for as many queries, and a question that is asked again, in whatever
company and of whichever server, has the same answer.
"""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from sfumato.errors import needs_extra
from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.learn.refusal import Refusal
from sfumato.serve.store import NotFoundError, Prototypes, Store
from sfumato.wire.messages import GuessedClass, ImageAnswer

with needs_extra("the server", "serve"):
    import anyio.to_thread

_MOST_BYTES = 1 << 30  # of the numbers that are kept of prototypes
_BESIDE = 28  # bytes of a prototype beside its vector: id, weight, square and hash
_LOOKED_AT = 100  # prototypes of a gallery that is too large to keep, over which probabilities are taken
_MOST_TOGETHER = 64  # queries, unless one question has more
_ROUNDING = 1e-5  # of the squares that a logit is made of: what cancelling loses, and more
_EQUAL = 1e-5  # by which distances of prototypes in float32 differ that are equal


@dataclass(frozen=True)
class _Gallery:
    """The prototypes of a classifier at one moment, and what is computed of them once.

    Attributes:
        stored: as the store has them.
        vectors: (K, D) float32 prototypes.
        squares: (K,) their squared norms.
        shots: of how many examples each is for a refusal, see CodePrototypes.posterior.
        hashes: (K,) uint64 of the labels, by which ties are broken.
    """

    stored: Prototypes
    vectors: np.ndarray
    squares: np.ndarray
    shots: Sequence[float]
    hashes: np.ndarray

    @classmethod
    def of(
        cls, stored: Prototypes, codes: CodePrototypes | None, before: "_Gallery | None" = None
    ) -> "_Gallery":
        """Of what the store has.

        Args:
            stored: see above.
            codes: how prototypes are made; None for means.
            before: the same classifier at another moment, some of whose labels may stand in their places.
        """
        vectors = stored.vectors
        shots: Sequence[float] = stored.examples
        if codes is not None and stored.labels:
            vectors, counted = codes.posterior(vectors, stored.weights, np.array(stored.examples))
            shots = counted.tolist()
        labels, hashes = stored.labels, np.zeros(0, np.uint64)
        if before is not None and labels[: len(before.hashes)] == before.stored.labels:
            hashes = before.hashes
        hashes = np.concatenate([hashes, _hashes(labels[len(hashes) :])])
        return cls(stored, vectors, np.einsum("kd,kd->k", vectors, vectors), shots, hashes)

    @property
    def bytes(self) -> int:
        """What its numbers take."""
        of_means = 0 if self.vectors is self.stored.vectors else self.vectors.nbytes
        return _bytes_of(*self.stored.vectors.shape) + of_means


def _bytes_of(count: int, dimension: int) -> int:
    return count * (4 * dimension + _BESIDE)


class Galleries:
    """Prototypes of the classifiers that were asked for last.

    State: those, each of one version, no more of them than _MOST_BYTES; and which are searched by the store.
    Every question asks the store whether there is a newer version: what another process enrolled is there.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, str], _Gallery] = OrderedDict()
        self._elsewhere: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def answer(
        self,
        tenant: str,
        classifier: str,
        queries: np.ndarray,
        *,
        top: int,
        refusal: Refusal | None,
        codes: CodePrototypes | None = None,
    ) -> list[ImageAnswer]:
        """The nearest classes of (Q, D) embeddings, the nearest first; no guesses where no class is enrolled.

        A probability is the softmax of minus the squared Euclidean distances from the prototypes, over all
        classes: Snell et al. 2017, Eq. (2). Of a gallery that is too large to keep, or has an index, the
        nearest are found by the store; probabilities are then over the 100 nearest, and ties among these. An
        index may miss the nearest of all: then a query may be refused that is of that class. Prototypes are
        plain means there, and nothing is refused of codes.

        Args:
            tenant, classifier, queries: see above.
            top: how many classes.
            refusal: of these queries.
            codes: how prototypes are made, for all questions of a classifier; None for means.

        Raises:
            NotFoundError: no such classifier.
        """
        gallery = self._gallery(tenant, classifier, codes)
        if gallery is None:
            of_store = None if codes is not None else refusal
            return self._from_store(tenant, classifier, queries, top, of_store)
        if not gallery.stored.labels:
            return [_answer([], None)] * len(queries)
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers too large to compare
            logits = _logits(queries, gallery)
            rows, shares = _nearest(queries, gallery, logits, min(top, len(gallery.stored.labels)))
            # Not from the logits, whose large terms cancel.
            away = queries[:, None] - gallery.vectors[rows]
            squared = np.einsum("qkd,qkd->qk", away, away)
        answers = []
        for nearest, *numbers in zip(rows.tolist(), shares.tolist(), squared.tolist(), strict=True):
            guesses = [
                GuessedClass(label=gallery.stored.labels[row], probability=share, distance=distance)
                for row, share, distance in zip(nearest, *numbers, strict=True)
            ]
            refused = None
            if refusal is not None:
                refused = refusal.refuses(numbers[1][0], gallery.shots[nearest[0]])
            answers.append(_answer(guesses, refused))
        return answers

    def _gallery(self, tenant: str, classifier: str, codes: CodePrototypes | None) -> _Gallery | None:
        """The prototypes of now; None where the store searches them."""
        key = (tenant, classifier)
        with self._lock:
            if key in self._elsewhere:
                return None
            kept = self._kept.get(key)
        if kept is None and _bytes_of(*self._store.count(tenant, classifier)) > _MOST_BYTES:
            self._leave_to_store(key)
            return None
        try:
            newer = self._store.prototypes(tenant, classifier, known=None if kept is None else kept.stored)
        except NotFoundError:
            with self._lock:
                self._kept.pop(key, None)
            raise
        gallery = kept if newer is None else _Gallery.of(newer, codes, kept)
        assert gallery is not None  # without one of ours, any is newer
        if gallery.bytes > _MOST_BYTES:  # it has grown
            self._leave_to_store(key)
            return gallery
        with self._lock:
            self._kept[key] = gallery
            self._kept.move_to_end(key)
            while sum(each.bytes for each in self._kept.values()) > _MOST_BYTES:
                self._kept.popitem(last=False)
        return gallery

    def _leave_to_store(self, key: tuple[str, str]) -> None:
        """Let the store search a gallery from now on; meanwhile it makes an index, which takes minutes."""
        with self._lock:
            self._elsewhere.add(key)
            self._kept.pop(key, None)
        threading.Thread(target=self._store.index, args=key, daemon=True).start()

    def _from_store(
        self, tenant: str, classifier: str, queries: np.ndarray, top: int, refusal: Refusal | None
    ) -> list[ImageAnswer]:
        answers = []
        found = self._store.nearest(tenant, classifier, queries, count=max(top, _LOOKED_AT))
        for query, neighbours in zip(queries, found, strict=True):
            distances = np.array([neighbour.squared_euclidean for neighbour in neighbours])
            order = _order(query, _hashes([neighbour.label for neighbour in neighbours]), distances)
            near, distances = [neighbours[row] for row in order], distances[order]
            shares = np.exp(distances.min(initial=np.inf) - distances)
            shares /= shares.sum()
            guesses = [
                GuessedClass(
                    label=neighbour.label, probability=float(share), distance=neighbour.squared_euclidean
                )
                for neighbour, share in zip(near[:top], shares, strict=False)
            ]
            refused = None
            if refusal is not None and near:
                refused = refusal.refuses(near[0].squared_euclidean, near[0].examples)
            answers.append(_answer(guesses, refused))
        return answers


def _logits(queries: np.ndarray, gallery: _Gallery) -> np.ndarray:
    """Minus the squared distances: (Q, D) queries -> (Q, K). Source: Snell et al. 2017, Eq. (2)."""
    logits: np.ndarray = queries @ gallery.vectors.T
    logits *= 2
    logits -= np.einsum("qd,qd->q", queries, queries)[:, None]
    logits -= gallery.squares
    return logits


def _nearest(
    queries: np.ndarray, gallery: _Gallery, logits: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the nearest prototypes, and their shares of the softmax over all: each (Q, count)."""
    rows, values = _largest(logits, min(count + 1, logits.shape[1]))
    chosen, vectors, each = rows[:, :count], gallery.vectors, np.arange(len(rows))[:, None]
    # What is nearly as far by the logits, whose terms may be infinite, is looked at again.
    slack = _ROUNDING * (np.einsum("qd,qd->q", queries, queries) - values[:, -1])
    clear = values[:, :-1] - values[:, 1:] > slack[:, None]
    if not clear.all():
        for number in (~clear.all(1)).nonzero()[0].tolist():
            near = rows[number]
            if not clear[number, -1]:  # others may tie with the last
                near = (~(logits[number] < values[number, count - 1] - slack[number])).nonzero()[0]
            away = vectors[near] - queries[number]
            order = _order(queries[number], gallery.hashes[near], np.einsum("kd,kd->k", away, away))
            chosen[number] = near[order[:count]]
    powers = np.exp(logits - values[:, :1])
    return chosen, powers[each, chosen] / powers.sum(1, keepdims=True)


def _largest(logits: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of the largest of (Q, K) logits, the largest first, and these: (Q, count) each."""
    each = np.arange(len(logits))[:, None]
    if count < logits.shape[1]:
        rows = np.argpartition(logits, -count, 1)[:, -count:]
        rows = rows[each, np.argsort(-logits[each, rows], 1)]
    else:
        rows = np.argsort(-logits, 1)
    return rows, logits[each, rows]


def _order(query: np.ndarray, hashes: np.ndarray, squared: np.ndarray) -> np.ndarray:
    """The classes of these hashes, the nearest first; ties at random, by a hash of query and label.

    Args:
        query: (D,).
        hashes: (K,) of the labels, see _hashes.
        squared: (K,) of each class, its squared distance from the query.
    """
    order = squared.argsort(kind="stable")
    distances = squared[order]
    steps = distances[1:] > distances[:-1] * (1 + _EQUAL)
    if steps.all():
        return order
    groups = np.concatenate(([0], steps.cumsum()))
    drawn = _mixed(hashes[order] ^ np.frombuffer(_digest(query.tobytes()), np.uint64))
    return order[np.lexsort((drawn, groups))]


def _hashes(labels: Sequence[str]) -> np.ndarray:
    """(K,) uint64 of the labels."""
    return np.frombuffer(b"".join(_digest(label.encode()) for label in labels), np.uint64)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


def _mixed(words: np.ndarray) -> np.ndarray:
    """uint64 -> uint64, each bit by all of them: the end of SplitMix64 (Steele, Lea & Flood 2014)."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = words ^ words >> np.uint64(31)
    return mixed


def _answer(guesses: list[GuessedClass], none_of_these: bool | None) -> ImageAnswer:
    return ImageAnswer(guesses=guesses, none_of_these=none_of_these)


@dataclass(frozen=True)
class _Question:
    """What one request asks of a classifier."""

    queries: np.ndarray  # (Q, D) float32
    top: int
    refusal: Refusal | None
    codes: CodePrototypes | None
    answers: asyncio.Future[list[ImageAnswer]]


class Together:
    """Answers questions about one classifier that come together by one look into the store.

    State: the questions that wait for each classifier which is being asked about, in one event loop.
    Whether there is a newer version is asked after a question came, never before: it is answered by all that
    was acknowledged until then, through whichever process.
    """

    def __init__(self, galleries: Galleries) -> None:
        self._galleries = galleries
        self._waiting: dict[tuple[str, str], deque[_Question]] = {}
        self._working: set[asyncio.Task[None]] = set()

    async def answer(
        self,
        tenant: str,
        classifier: str,
        queries: np.ndarray,
        *,
        top: int,
        refusal: Refusal | None,
        codes: CodePrototypes | None = None,
    ) -> list[ImageAnswer]:
        """As Galleries.answer."""
        key = (tenant, classifier)
        question = _Question(queries, top, refusal, codes, asyncio.get_running_loop().create_future())
        if key in self._waiting:
            self._waiting[key].append(question)
        else:
            self._waiting[key] = deque([question])
            task = asyncio.create_task(self._work(key))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        return await question.answers

    async def _work(self, key: tuple[str, str]) -> None:
        waiting = self._waiting[key]
        try:
            while waiting:
                questions = [waiting.popleft()]
                room = _MOST_TOGETHER - len(questions[0].queries)
                # All are for one model; codes of other noise have another refusal.
                refusal = questions[0].refusal
                while waiting and len(waiting[0].queries) <= room and waiting[0].refusal == refusal:
                    room -= len(waiting[0].queries)
                    questions.append(waiting.popleft())
                await self._answer(key, questions)
        finally:  # also where the loop ends: the next question begins anew
            del self._waiting[key]

    async def _answer(self, key: tuple[str, str], questions: list[_Question]) -> None:
        top, first = max(question.top for question in questions), questions[0]
        try:
            queries = np.concatenate([question.queries for question in questions])
            answers = await anyio.to_thread.run_sync(
                lambda: self._galleries.answer(
                    *key, queries, top=top, refusal=first.refusal, codes=first.codes
                )
            )
        except Exception as error:  # whatever it is, it is those questions' alone
            for question in questions:
                if not question.answers.done():
                    question.answers.set_exception(error)
            return
        for question in questions:
            own, answers = answers[: len(question.queries)], answers[len(question.queries) :]
            if not question.answers.done():  # who asked may be gone
                question.answers.set_result(own if question.top == top else _fewer(own, question.top))


def _fewer(answers: list[ImageAnswer], top: int) -> list[ImageAnswer]:
    """No more than so many guesses of each."""
    return [_answer(answer.guesses[:top], answer.none_of_these) for answer in answers]
