"""The nearest classes of a query, among prototypes cached in memory.

A process caches 1 GiB of prototypes over all galleries: more than three million of 64 numbers, with their
labels. There the search is exact. PostgreSQL searches a gallery that does not fit.
sfumato.learn.gallery computes with prototypes; studies measure it.
"""

import asyncio
import threading
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from anyio.to_thread import run_sync as in_thread

from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.learn.gallery import Gallery
from sfumato.learn.refusal import Refusal
from sfumato.serve.store import NotFoundError, Prototypes, Store
from sfumato.wire.messages import GuessedClass, ImageAnswer

_MOST_BYTES = 1 << 30  # of cached prototypes
_BESIDE = 28  # bytes of a prototype in addition to its vector: weight, square, shots and hash
_QUICK = 1 << 16  # numbers that are compared in less time than a thread starts
_MOST_TOGETHER = 64  # queries, unless one question has more
_LOOKED_AT = 100  # prototypes over which probabilities are taken if a gallery is too large to cache


@dataclass(frozen=True)
class Kept:
    """The prototypes of a classifier at one moment: as stored, and prepared for the search."""

    stored: Prototypes
    gallery: Gallery

    @classmethod
    def of(cls, stored: Prototypes, codes: CodePrototypes | None) -> "Kept":
        """Prepare prototypes; `codes`: see Galleries.answer."""
        examples = np.array(stored.examples, np.int64)
        return cls(stored, Gallery.of(stored.labels, stored.vectors, stored.weights, examples, codes))

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
    searches. Every question asks the store for the version, so that it sees classes of other processes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[tuple[str, str], Kept] = {}  # the one that was read last is the last
        self._large: set[tuple[str, str]] = set()
        self._reading = threading.Lock()
        self._gathering: dict[Hashable, tuple[list[np.ndarray], asyncio.Task[list[ImageAnswer]]]] = {}

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
        classes: Snell et al. 2017, Eq. (2). If a gallery is too large to cache, the store finds the nearest
        classes; probabilities, and ties, are then over the 100 nearest. Prototypes are plain means there, and
        codes are never refused.

        `codes` is the way of making prototypes, the same for all questions of a classifier; None for means.
        Raises NotFoundError for no such classifier, ConflictError if its gallery is too large for this store.
        """
        kept = self.read(tenant, classifier, codes)
        if kept is not None:
            return _name(kept, queries, top, refusal)
        found = self._store.nearest(tenant, classifier, queries, count=max(top, _LOOKED_AT))
        refusal, answers = None if codes is not None else refusal, []
        for query, near in zip(queries, found, strict=True):
            answers += _name(Kept.of(near, None), query[None], top, refusal)
        return answers

    async def ask(
        self,
        tenant: str,
        classifier: str,
        queries: np.ndarray,
        *,
        top: int,
        refusal: Refusal | None,
        codes: CodePrototypes | None = None,
    ) -> list[ImageAnswer]:
        """Answer like `answer`, in an event loop: the same questions of one turn of it together.

        The store is asked after the last of these arrived.
        """
        key = (tenant, classifier, top, refusal)
        parts, task = self._gathering.get(key, ([], None))
        start = sum(map(len, parts))
        if task is None or start + len(queries) > _MOST_TOGETHER:
            start, parts = 0, []
            task = asyncio.create_task(self._answer_together(key, parts, codes))
            self._gathering[key] = parts, task
        parts.append(queries)
        return (await asyncio.shield(task))[start : start + len(queries)]

    async def _answer_together(
        self, key: tuple[str, str, int, Refusal | None], parts: list[np.ndarray], codes: CodePrototypes | None
    ) -> list[ImageAnswer]:
        """Answer the questions that were gathered, at once if that takes less time than starting a thread."""
        if self._gathering[key][0] is parts:
            del self._gathering[key]
        queries = parts[0] if len(parts) == 1 else np.concatenate(parts)
        tenant, classifier, top, refusal = key
        kept = self._kept.get((tenant, classifier))
        if kept is not None and not self._store.is_postgresql:
            quick = len(queries) * kept.gallery.vectors.size <= _QUICK
            if quick and self._store.version(tenant, classifier) == kept.stored.version:
                return _name(kept, queries, top, refusal)
        return await in_thread(
            lambda: self.answer(tenant, classifier, queries, top=top, refusal=refusal, codes=codes)
        )

    def read(self, tenant: str, classifier: str, codes: CodePrototypes | None) -> Kept | None:
        """Return the present prototypes; None if they are too large to cache, and the store searches them."""
        key = (tenant, classifier)
        if key in self._large:
            return None
        kept = self._kept.get(key)
        try:
            if kept is not None and kept.stored.version == self._store.version(*key):
                return kept
            with self._reading:  # one thread: a large gallery is not read twice at once
                kept = self._kept.get(key)
                if kept is not None and kept.stored.version == self._store.version(*key):
                    return kept
                self._kept.pop(key, None)
                if _bytes_of(*self._store.count(*key)) > _MOST_BYTES:
                    self._large.add(key)
                    return None
                kept = self._kept[key] = Kept.of(self._store.prototypes(*key), codes)
                while sum(each.bytes for each in self._kept.values()) > _MOST_BYTES:
                    self._kept.pop(next(iter(self._kept)))
                return kept
        except NotFoundError:
            self._kept.pop(key, None)
            raise


def _name(kept: Kept, queries: np.ndarray, top: int, refusal: Refusal | None) -> list[ImageAnswer]:
    labels = kept.stored.labels
    if not labels:
        return [ImageAnswer(guesses=[], none_of_these=None)] * len(queries)
    named = kept.gallery.name(queries, top=top, refusal=refusal)
    none = [None] * len(queries) if named.none_of_these is None else named.none_of_these.tolist()
    nearest = (each.tolist() for each in (named.rows, named.shares, named.squared))
    return [
        ImageAnswer(
            guesses=[
                GuessedClass(label=labels[row], probability=share, distance=distance)
                for row, share, distance in zip(*numbers, strict=True)
            ],
            none_of_these=refused,
        )
        for *numbers, refused in zip(*nearest, none, strict=True)
    ]
