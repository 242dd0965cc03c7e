"""Signed tables of all answers of a classifier, for devices that send no query."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cached_property, partial

import numpy as np
from anyio.to_thread import run_sync as in_thread
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.errors import BusyError, DataError
from sfumato.serve.gallery import Galleries
from sfumato.serve.served import Served, code_of
from sfumato.serve.store import Store
from sfumato.wire import tables
from sfumato.wire.messages import ClassifierInfo
from sfumato.wire.tables import AnswerTable

_PART = 1 << 20  # pairs of a code and a class that are compared together
_BYTES = 24  # of memory for each
_MOST_KEPT = 64 << 20  # bytes of tables
_MOST_WAITING = 8  # requests, while a table is made for another

Take = Callable[[int], None]  # takes bytes of the room of all requests, see service.Room


class AnswerTables:
    """Makes tables, one at a time and once for each version of a classifier.

    State: the key that signs them, once read from the store; the last tables, at most _MOST_KEPT bytes; and
    how many requests wait.
    """

    def __init__(self, store: Store, galleries: Galleries) -> None:
        self._store, self._galleries = store, galleries
        self._kept: dict[tuple[str, str], AnswerTable] = {}
        self._turn, self._waiting = asyncio.Lock(), 0

    async def make(
        self,
        tenant: str,
        info: ClassifierInfo,
        model: Served,
        take: Take,
        gone: Callable[[], Awaitable[bool]],
    ) -> AnswerTable | None:
        """Make the table of a classifier as it is now, see sfumato.wire.tables; None if it has no class.

        The answers are those of `Galleries.answer` for the same codes, `none of these` included.

        Args:
            tenant, info, model: the classifier, and its model, for which why_no_table has no reason.
            take: counts the memory of the work.
            gone: whether nobody waits for the table any more: then it is not finished.

        Raises:
            NotFoundError: no such classifier.
            DataError: more classes than a table can have.
            BusyError: too many wait, or there is no room.
        """
        codes, demand, key = model.codes, model.demand, (tenant, info.id)
        assert codes is not None
        assert demand.made_of is not None
        async with self._one_at_a_time():
            before = self._kept.get(key)
            if before and before.header.version == info.version:
                return before
            kept = await in_thread(self._galleries.read, tenant, info.id, codes)
            if kept is None or len(kept.stored.labels) > tables.MOST_CLASSES:
                raise DataError(f"a table has at most {tables.MOST_CLASSES:,} classes: classify by queries")
            labels, refusal = kept.stored.labels, codes.refusal_of(code_of(demand.spec))
            if not labels:
                return None
            header = tables.Header(
                classifier=info.id,
                name=info.name,
                version=kept.stored.version,
                model=model.name,
                bits=model.dimension,
                refuses=refusal is not None,
                made_of=demand.made_of,
                labels=labels,
                signer=self._private.public_key().public_bytes_raw().hex(),
            )
            queries = 2 * tables.codes_of(header.bits).astype(np.float32) - 1  # (2^b, b), of 1 and -1
            rows, none = np.zeros(len(queries), np.int64), np.zeros(len(queries), bool)
            take(_BYTES * (_PART + len(rows)))
            step = max(1, _PART // len(labels))
            for start in range(0, len(queries), step):
                if await gone():
                    raise BusyError("nobody waits for this table any more", seconds=0)
                part = slice(start, start + step)
                named = await in_thread(partial(kept.gallery.name, queries[part], top=1, refusal=refusal))
                rows[part] = named.rows[:, 0]
                if named.none_of_these is not None:
                    none[part] = named.none_of_these
            self._kept.pop(key, None)
            table = self._kept[key] = await in_thread(
                tables.sign_table, header, rows, none, self._private.sign
            )
            while sum(len(each.content) for each in self._kept.values()) > _MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
            return table

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        if self._waiting >= _MOST_WAITING:
            raise BusyError("other tables are made now: ask again later", seconds=10)
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._store.signing_key())


def has_answers(model: Served) -> bool:
    """Whether a table of the model has the answers to all codes: these are of at most 16 bits."""
    codes = model.codes
    return codes is not None and codes.bits is not None and codes.bits <= tables.MOST_BITS


def why_no_table(model: Served) -> str | None:
    """Say why devices get no table of a model, and name the cure; None if they get one."""
    if has_answers(model):
        return None
    return (
        f"the model {model.name} ({model.kind}) has no table, which only codes of at most {tables.MOST_BITS} "
        "bits have (`sfumato train code`): classify by queries"
    )
