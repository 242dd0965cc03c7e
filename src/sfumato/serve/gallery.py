"""The nearest classes of a query, among prototypes that are read anew whenever they changed."""

import asyncio
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sfumato.errors import needs_extra
from sfumato.learn.prototypes import Refusal, prototype_logits
from sfumato.serve.store import MANY, NotFoundError, Prototypes, Store

with needs_extra("the server", "serve"):
    import anyio.to_thread

_MOST_BYTES = 1 << 30  # of prototypes kept
_LOOKED_AT = 100  # prototypes of a gallery that is too large to keep, over which probabilities are taken
_MOST_TOGETHER = 64  # queries, unless one question has more


@dataclass(frozen=True)
class Guess:
    """A class that a query may be of.

    Attributes:
        label: its name.
        probability: softmax of minus the squared distances, over all classes: Snell et al. 2017, Eq. (2).
        distance: the squared Euclidean one, from its prototype.
    """

    label: str
    probability: float
    distance: float


@dataclass(frozen=True)
class Answer:
    """What a query may be of, the nearest first; and whether it is of none of these, where that is known."""

    guesses: tuple[Guess, ...]
    none_of_these: bool | None


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
    ) -> list[Answer]:
        """The nearest classes of (Q, D) embeddings; no guesses where no class is enrolled.

        From 100,000 classes on, the nearest are found by the store; probabilities are then over the 100
        nearest. An index may miss the nearest of all: then a query may be refused that is of that class.

        Raises:
            NotFoundError: no such classifier.
        """
        if (tenant, classifier) in self._large:
            return self._from_store(tenant, classifier, queries, top, refusal)
        found = self._prototypes(tenant, classifier)
        if len(found.labels) >= MANY:
            with self._lock:
                self._large.add((tenant, classifier))
                self._kept.pop((tenant, classifier), None)
            threading.Thread(target=self._store.index, args=(tenant, classifier), daemon=True).start()
            return self._from_store(tenant, classifier, queries, top, refusal)
        if not found.labels:
            return [Answer((), None)] * len(queries)
        vectors = torch.from_numpy(found.vectors)
        probabilities = prototype_logits(queries, vectors).softmax(1)
        values, places = probabilities.topk(min(top, len(found.labels)))
        # Not from the logits, whose large terms cancel.
        squared = (queries[:, None] - vectors[places]).square().sum(-1)
        answers = []
        for each, shares, distances in zip(places.tolist(), values.tolist(), squared.tolist(), strict=True):
            guesses = tuple(
                Guess(found.labels[place], share, distance)
                for place, share, distance in zip(each, shares, distances, strict=True)
            )
            refused = None
            if refusal is not None:
                refused = refusal.refuses(distances[0], found.examples[each[0]])
            answers.append(Answer(guesses, refused))
        return answers

    def _prototypes(self, tenant: str, classifier: str) -> Prototypes:
        place = (tenant, classifier)
        with self._lock:
            kept = self._kept.get(place)
        try:
            newer = self._store.prototypes(
                tenant, classifier, newer_than=None if kept is None else kept.version
            )
        except NotFoundError:
            with self._lock:
                self._kept.pop(place, None)
            raise
        found = newer or kept
        assert found is not None  # without a version of ours, any is newer
        with self._lock:
            self._kept[place] = found
            self._kept.move_to_end(place)
            while (
                len(self._kept) > 1 and sum(each.vectors.nbytes for each in self._kept.values()) > _MOST_BYTES
            ):
                self._kept.popitem(last=False)
        return found

    def _from_store(
        self, tenant: str, classifier: str, queries: Tensor, top: int, refusal: Refusal | None
    ) -> list[Answer]:
        found = self._store.nearest(tenant, classifier, queries.numpy(), count=max(top, _LOOKED_AT))
        answers = []
        for near in found:
            distances = np.array([each.squared_euclidean for each in near])
            shares = np.exp(distances.min(initial=np.inf) - distances)
            shares /= shares.sum()
            guesses = [
                Guess(each.label, float(share), each.squared_euclidean)
                for each, share in zip(near[:top], shares, strict=False)
            ]
            refused = None
            if refusal is not None and near:
                refused = refusal.refuses(near[0].squared_euclidean, near[0].examples)
            answers.append(Answer(tuple(guesses), refused))
        return answers


@dataclass(frozen=True)
class _Question:
    """What one request asks of a classifier."""

    queries: Tensor  # (Q, D)
    top: int
    refusal: Refusal | None
    answers: asyncio.Future[list[Answer]]


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
    ) -> list[Answer]:
        """As Galleries.answer."""
        place = (tenant, classifier)
        question = _Question(queries, top, refusal, asyncio.get_running_loop().create_future())
        if place in self._waiting:
            self._waiting[place].append(question)
        else:
            self._waiting[place] = deque([question])
            task = asyncio.create_task(self._work(place))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        return await question.answers

    async def _work(self, place: tuple[str, str]) -> None:
        waiting = self._waiting[place]
        try:
            while waiting:
                questions = [waiting.popleft()]
                room = _MOST_TOGETHER - len(questions[0].queries)
                # All are for one model, of one refusal.
                while waiting and len(waiting[0].queries) <= room:
                    room -= len(waiting[0].queries)
                    questions.append(waiting.popleft())
                await self._answer(place, questions)
        finally:  # also where the loop ends: the next question begins anew
            del self._waiting[place]

    async def _answer(self, place: tuple[str, str], questions: list[_Question]) -> None:
        top, refusal = max(question.top for question in questions), questions[0].refusal
        try:
            queries = torch.cat([question.queries for question in questions])
            found = await anyio.to_thread.run_sync(
                lambda: self._galleries.answer(*place, queries, top=top, refusal=refusal)
            )
        except Exception as error:  # whatever it is, it is those questions' alone
            for question in questions:
                if not question.answers.done():
                    question.answers.set_exception(error)
            return
        begin = 0
        for question in questions:
            own = found[begin : begin + len(question.queries)]
            begin += len(own)
            if not question.answers.done():  # who asked may be gone
                question.answers.set_result(
                    [replace(each, guesses=each.guesses[: question.top]) for each in own]
                )
