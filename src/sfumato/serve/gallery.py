"""The nearest classes of a query, among prototypes that are kept in memory: what changed is read anew.

A process keeps a GiB of their numbers, of all galleries together: more than three million prototypes of 64,
with their labels beside them. There the search is exact. A gallery that does not fit is searched by the
database, by an index where it is PostgreSQL. What is computed of prototypes is sfumato.learn.gallery, which
studies measure.
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

_MOST_BYTES = 1 << 30  # of the numbers that are kept of prototypes
_BESIDE = 28  # bytes of a prototype beside its vector: id, weight, square and hash
_LOOKED_AT = 100  # prototypes of a gallery that is too large to keep, over which probabilities are taken
_PART = 4_096  # queries of very many that are compared together
_MOST_TOGETHER = 64  # queries, unless one question has more


@dataclass(frozen=True)
class _Kept:
    """The prototypes of a classifier at one moment: as the store has them, and what is computed of them."""

    stored: Prototypes
    gallery: Gallery

    @classmethod
    def of(cls, stored: Prototypes, codes: CodePrototypes | None, before: "_Kept | None" = None) -> "_Kept":
        """Of what the store has; `before`: the same classifier at another moment."""
        earlier = None if before is None else before.gallery
        examples = np.array(stored.examples, np.int64)
        return cls(
            stored, Gallery.of(stored.labels, stored.vectors, stored.weights, examples, codes, earlier)
        )

    @property
    def bytes(self) -> int:
        """What its numbers take."""
        of_means = 0 if self.gallery.vectors is self.stored.vectors else self.gallery.vectors.nbytes
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

    def name_all(
        self,
        tenant: str,
        classifier: str,
        queries: np.ndarray,
        *,
        refusal: Refusal | None,
        codes: CodePrototypes,
    ) -> tuple[Prototypes, np.ndarray, np.ndarray] | None:
        """The nearest class of each of very many queries, as `answer` names them.

        Args:
            tenant, classifier, queries, refusal, codes: see answer.

        Returns:
            The prototypes; (Q,) the row of the nearest; (Q,) bool, which are of none of the classes. None if
            the classifier is too large to be kept in memory.

        Raises:
            NotFoundError: no such classifier.
        """
        kept = self._gallery(tenant, classifier, codes)
        if kept is None:
            return None
        rows, none = np.zeros(len(queries), np.int64), np.zeros(len(queries), bool)
        for start in range(0, len(queries) if kept.stored.labels else 0, _PART):
            part = slice(start, start + _PART)
            named = kept.gallery.name(queries[part], top=1, refusal=refusal)
            rows[part] = named.rows[:, 0]
            if named.none_of_these is not None:
                none[part] = named.none_of_these
        return kept.stored, rows, none

    def _gallery(self, tenant: str, classifier: str, codes: CodePrototypes | None) -> _Kept | None:
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
        gallery = kept if newer is None else _Kept.of(newer, codes, kept)
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
