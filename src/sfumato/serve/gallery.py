"""The nearest classes of a query, among prototypes cached in memory; changed ones are read again.

A process caches 1 GiB of prototypes over all galleries: more than three million of 64 numbers, with their
labels. There the search is exact. The database searches a gallery that does not fit, by an index if it is
PostgreSQL. sfumato.learn.gallery computes with prototypes; studies measure it.
"""

import asyncio
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass

import numpy as np

from sfumato.errors import needs_extra
from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.learn.gallery import Gallery, order
from sfumato.learn.refusal import Refusal
from sfumato.serve.store import NotFoundError, Prototypes, Store
from sfumato.wire.messages import GuessedClass, ImageAnswer

with needs_extra("the server", "serve"):
    import anyio.to_thread

_MOST_BYTES = 1 << 30  # of cached prototypes
_BESIDE = 28  # bytes of a prototype in addition to its vector: id, weight, square and hash
_LOOKED_AT = 100  # prototypes over which probabilities are taken if a gallery is too large to cache
_MOST_TOGETHER = 64  # queries, unless one question has more


@dataclass(frozen=True)
class _Kept:
    """The prototypes of a classifier at one moment: as stored, and prepared for the search."""

    stored: Prototypes
    gallery: Gallery

    @classmethod
    def of(cls, stored: Prototypes, codes: CodePrototypes | None, before: "_Kept | None" = None) -> "_Kept":
        """Prepare stored prototypes; `before`: the same classifier at an earlier moment."""
        earlier = None if before is None else before.gallery
        examples = np.array(stored.examples, np.int64)
        return cls(
            stored, Gallery.of(stored.labels, stored.vectors, stored.weights, examples, codes, earlier)
        )

    @property
    def bytes(self) -> int:
        """The size of its numbers."""
        of_means = 0 if self.gallery.vectors is self.stored.vectors else self.gallery.vectors.nbytes
        return _bytes_of(*self.stored.vectors.shape) + of_means


def _bytes_of(count: int, dimension: int) -> int:
    return count * (4 * dimension + _BESIDE)


class Galleries:
    """The prototypes of the classifiers that were asked for last.

    State: a cache of one version each, at most _MOST_BYTES in all; and the classifiers that the store
    searches.

    Every question asks the store whether there is a newer version, so that it sees classes of other
    processes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
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
        """Name the nearest classes of (Q, D) embeddings, the nearest first; no guesses without a class.

        A probability is the softmax of minus the squared Euclidean distances from the prototypes, over all
        classes: Snell et al. 2017, Eq. (2). If a gallery is too large to cache, or has an index, the store
        finds the nearest classes; probabilities, and ties, are then over the 100 nearest. An index may miss
        the
        nearest class: a query of that class may then be refused. Prototypes are plain means there, and codes
        are never refused.

        Args:
            tenant, classifier, queries: the queries of a classifier.
            top: the number of classes.
            refusal: the refusal for these queries.
            codes: the way of making prototypes, the same for all questions of a classifier; None for means.

        Raises:
            NotFoundError: no such classifier.
        """
        kept = self._gallery(tenant, classifier, codes)
        if kept is None:
            of_store = None if codes is not None else refusal
            return self._from_store(tenant, classifier, queries, top, of_store)
        if not kept.stored.labels:
            return [_answer([], None)] * len(queries)
        named = kept.gallery.name(queries, top=top, refusal=refusal)
        refused = [None] * len(queries) if named.none_of_these is None else named.none_of_these.tolist()
        answers = []
        for nearest, *numbers, none in zip(
            *(each.tolist() for each in (named.rows, named.shares, named.squared)), refused, strict=True
        ):
            guesses = [
                GuessedClass(label=kept.stored.labels[row], probability=share, distance=distance)
                for row, share, distance in zip(nearest, *numbers, strict=True)
            ]
            answers.append(_answer(guesses, none))
        return answers

    def cached(
        self, tenant: str, classifier: str, codes: CodePrototypes | None
    ) -> tuple[Prototypes, Gallery] | None:
        """Return the present prototypes, as the store has them and as `answer` compares with them.

        Args:
            tenant, classifier, codes: see answer.

        Returns:
            None if the classifier is too large to cache.

        Raises:
            NotFoundError: no such classifier.
        """
        kept = self._gallery(tenant, classifier, codes)
        return None if kept is None else (kept.stored, kept.gallery)

    def _gallery(self, tenant: str, classifier: str, codes: CodePrototypes | None) -> _Kept | None:
        """Return the present prototypes; None if the store searches them."""
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
        gallery = kept if newer is None else _Kept.of(newer, codes, kept)
        assert gallery is not None  # without a cached one, any is newer
        if gallery.bytes > _MOST_BYTES:  # it grew
            self._leave_to_store(key)
            return gallery
        with self._lock:
            self._kept[key] = gallery
            self._kept.move_to_end(key)
            while sum(each.bytes for each in self._kept.values()) > _MOST_BYTES:
                self._kept.popitem(last=False)
        return gallery

    def _leave_to_store(self, key: tuple[str, str]) -> None:
        """Let the store search a gallery from now on; it builds an index meanwhile, for minutes."""
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
            nearest_first = order(query, [neighbour.label for neighbour in neighbours], distances)
            near, distances = [neighbours[row] for row in nearest_first], distances[nearest_first]
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
                examples = np.array([neighbour.examples for neighbour in near])
                refused = not refusal.accepts(distances, examples).any()
            answers.append(_answer(guesses, refused))
        return answers


def _answer(guesses: list[GuessedClass], none_of_these: bool | None) -> ImageAnswer:
    return ImageAnswer(guesses=guesses, none_of_these=none_of_these)


@dataclass(frozen=True)
class _Question:
    queries: np.ndarray  # (Q, D) float32
    top: int
    refusal: Refusal | None
    codes: CodePrototypes | None
    answers: asyncio.Future[list[ImageAnswer]]


class Together:
    """Answers simultaneous questions about one classifier by one look into the store.

    State: the waiting questions of each classifier that is being asked, in one event loop. The version is
    checked after a question arrived, never before: the answer includes everything acknowledged until then, by
    any process.
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
        """Answer like Galleries.answer."""
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
                # All are for one model; codes with other noise have another refusal.
                refusal = questions[0].refusal
                while waiting and len(waiting[0].queries) <= room and waiting[0].refusal == refusal:
                    room -= len(waiting[0].queries)
                    questions.append(waiting.popleft())
                await self._answer(key, questions)
        finally:  # also if the loop ends: the next question starts again
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
        except Exception as error:  # any error concerns these questions only
            for question in questions:
                if not question.answers.done():
                    question.answers.set_exception(error)
            return
        for question in questions:
            own, answers = answers[: len(question.queries)], answers[len(question.queries) :]
            if not question.answers.done():  # the request may be gone
                question.answers.set_result(own if question.top == top else _fewer(own, question.top))


def _fewer(answers: list[ImageAnswer], top: int) -> list[ImageAnswer]:
    """Cut each answer to its first guesses."""
    return [_answer(answer.guesses[:top], answer.none_of_these) for answer in answers]
