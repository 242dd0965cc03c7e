"""The nearest classes of a query, among prototypes that are read anew whenever they changed.

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
import torch
from torch import Tensor

from sfumato.errors import needs_extra
from sfumato.learn.prototypes import Refusal, prototype_logits
from sfumato.serve.store import MANY, NotFoundError, Prototypes, Store
from sfumato.wire.messages import GuessedClass, ImageAnswer

with needs_extra("the server", "serve"):
    import anyio.to_thread

_MOST_BYTES = 1 << 30  # of prototypes kept
_LOOKED_AT = 100  # prototypes of a gallery that is too large to keep, over which probabilities are taken
_MOST_TOGETHER = 64  # queries, unless one question has more
_ROUNDING = 1e-5  # of the squares that a logit is made of: what cancelling loses, and more
_EQUAL = 1e-5  # by which distances of prototypes in float32 differ that are equal


class Galleries:
    """Prototypes of the classifiers that were asked for last. State: those, each of one version.

    Every question asks the store whether there is a newer version: what another process enrolled is there.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, str], Prototypes] = OrderedDict()
        self._large: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def answer(
        self, tenant: str, classifier: str, queries: Tensor, *, top: int, refusal: Refusal | None
    ) -> list[ImageAnswer]:
        """The nearest classes of (Q, D) embeddings, the nearest first; no guesses where no class is enrolled.

        A probability is the softmax of minus the squared Euclidean distances from the prototypes, over all
        classes: Snell et al. 2017, Eq. (2). From 100,000 classes on, the nearest are found by the store;
        probabilities are then over the 100 nearest, and ties among these. An index may miss the nearest of
        all: then a query may be refused that is of that class.

        Raises:
            NotFoundError: no such classifier.
        """
        if (tenant, classifier) in self._large:
            return self._from_store(tenant, classifier, queries, top, refusal)
        gallery = self._prototypes(tenant, classifier)
        if len(gallery.labels) >= MANY:
            with self._lock:
                self._large.add((tenant, classifier))
                self._kept.pop((tenant, classifier), None)
            threading.Thread(target=self._store.index, args=(tenant, classifier), daemon=True).start()
            return self._from_store(tenant, classifier, queries, top, refusal)
        if not gallery.labels:
            return [_answer([], None)] * len(queries)
        vectors = torch.from_numpy(gallery.vectors)
        logits = prototype_logits(queries, vectors)
        rows = _nearest(queries, vectors, gallery.labels, logits, min(top, len(gallery.labels)))
        shares = logits.softmax(1).gather(1, rows)
        # Not from the logits, whose large terms cancel.
        squared = (queries[:, None] - vectors[rows]).square().sum(-1)
        answers = []
        for nearest, *numbers in zip(rows.tolist(), shares.tolist(), squared.tolist(), strict=True):
            guesses = [
                GuessedClass(label=gallery.labels[row], probability=share, distance=distance)
                for row, share, distance in zip(nearest, *numbers, strict=True)
            ]
            refused = None
            if refusal is not None:
                refused = refusal.refuses(guesses[0].distance, gallery.examples[nearest[0]])
            answers.append(_answer(guesses, refused))
        return answers

    def _prototypes(self, tenant: str, classifier: str) -> Prototypes:
        key = (tenant, classifier)
        with self._lock:
            kept = self._kept.get(key)
        try:
            newer = self._store.prototypes(
                tenant, classifier, newer_than=None if kept is None else kept.version
            )
        except NotFoundError:
            with self._lock:
                self._kept.pop(key, None)
            raise
        gallery = newer or kept
        assert gallery is not None  # without a version of ours, any is newer
        with self._lock:
            self._kept[key] = gallery
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and self._bytes() > _MOST_BYTES:
                self._kept.popitem(last=False)
        return gallery

    def _bytes(self) -> int:
        return sum(gallery.vectors.nbytes for gallery in self._kept.values())

    def _from_store(
        self, tenant: str, classifier: str, queries: Tensor, top: int, refusal: Refusal | None
    ) -> list[ImageAnswer]:
        answers = []
        found = self._store.nearest(tenant, classifier, queries.numpy(), count=max(top, _LOOKED_AT))
        for query, neighbours in zip(queries.numpy(), found, strict=True):
            distances = np.array([neighbour.squared_euclidean for neighbour in neighbours])
            order = _order(query, [neighbour.label for neighbour in neighbours], distances)
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


def _nearest(queries: Tensor, vectors: Tensor, labels: Sequence[str], logits: Tensor, count: int) -> Tensor:
    """The rows of the nearest prototypes: (Q, D) queries, (K, D) vectors, (Q, K) logits -> (Q, count)."""
    values, rows = logits.topk(min(count + 1, len(labels)))
    rows = rows[:, :count]
    # What is nearly as far by the logits, whose terms may be infinite, is looked at again.
    slack = _ROUNDING * (queries.square().sum(1, keepdim=True) - values[:, -1:])
    clear = (values[:, :-1] - values[:, 1:] > slack).all(1)
    for number in (~clear).nonzero()[:, 0].tolist():
        query = queries[number]
        near = (~(logits[number] < values[number, count - 1] - slack[number])).nonzero()[:, 0]
        squared = (query - vectors[near]).square().sum(-1)
        order = _order(query.numpy(), [labels[row] for row in near.tolist()], squared.numpy())
        rows[number] = near[order[:count]]
    return rows


def _order(query: np.ndarray, labels: Sequence[str], squared: np.ndarray) -> np.ndarray:
    """The classes of these labels, the nearest first; ties at random, by a hash of query and label.

    Args:
        query: (D,).
        labels, squared: of each class, and its squared distance from the query.
    """
    order = squared.argsort(kind="stable")
    steps = squared[order[1:]] > squared[order[:-1]] * (1 + _EQUAL)
    if steps.all():
        return order
    groups = [0, *steps.cumsum().tolist()]
    seed = blake2b(query.tobytes()).digest()
    drawn = [blake2b(labels[row].encode(), key=seed, digest_size=8).digest() for row in order]
    return order[sorted(range(len(order)), key=lambda place: (groups[place], drawn[place]))]


def _answer(guesses: list[GuessedClass], none_of_these: bool | None) -> ImageAnswer:
    return ImageAnswer(guesses=guesses, none_of_these=none_of_these)


@dataclass(frozen=True)
class _Question:
    """What one request asks of a classifier."""

    queries: Tensor  # (Q, D)
    top: int
    refusal: Refusal | None
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
        self, tenant: str, classifier: str, queries: Tensor, *, top: int, refusal: Refusal | None
    ) -> list[ImageAnswer]:
        """As Galleries.answer."""
        key = (tenant, classifier)
        question = _Question(queries, top, refusal, asyncio.get_running_loop().create_future())
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
                # All are for one model, of one refusal.
                while waiting and len(waiting[0].queries) <= room:
                    room -= len(waiting[0].queries)
                    questions.append(waiting.popleft())
                await self._answer(key, questions)
        finally:  # also where the loop ends: the next question begins anew
            del self._waiting[key]

    async def _answer(self, key: tuple[str, str], questions: list[_Question]) -> None:
        top, refusal = max(question.top for question in questions), questions[0].refusal
        try:
            queries = torch.cat([question.queries for question in questions])
            answers = await anyio.to_thread.run_sync(
                lambda: self._galleries.answer(*key, queries, top=top, refusal=refusal)
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
