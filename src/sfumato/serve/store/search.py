"""The nearest prototypes by pgvector, for galleries that are too large for the memory of a server."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from pgvector.sqlalchemy import VECTOR
from sqlalchemy import Connection, Double, TextClause, bindparam, cast, func, select, text

from sfumato.serve.store.schema import classes

MANY = 100_000  # prototypes of a classifier from which `index` builds an index

_INDEXED = 2_000  # the longest vectors that pgvector's HNSW takes
_CANDIDATES = 200  # of an HNSW search; pgvector takes up to 1,000


def nearest(
    connection: Connection, tenant: str, classifier: str, queries: np.ndarray, count: int
) -> list[Sequence[Any]]:
    """Find the `count` classes nearest to each of (Q, D) queries: rows of label, sum, weight and examples."""
    dimension = queries.shape[1]
    by_index = count <= _CANDIDATES and _has_index(connection, classifier)
    if by_index:
        # Forbid reading and sorting all, which the planner prefers for queries of many columns.
        connection.execute(text("set local enable_sort = off"))
        connection.execute(text(f"set local hnsw.ef_search = {_CANDIDATES}"))
        # Skip rows that were deleted and not yet vacuumed.
        connection.execute(text("set local hnsw.iterative_scan = strict_order"))
    vector = cast(classes.c.vector, VECTOR(dimension)) if by_index else classes.c.vector
    wanted = bindparam("wanted", type_=VECTOR(dimension))
    distance = vector.op("<->", return_type=Double)(cast(wanted, wanted.type))
    # A partial index is used if the query contains its condition as text.
    only = classes.c.classifier == bindparam("only", classifier, literal_execute=True)
    columns = (classes.c.label, classes.c.sum, classes.c.weight, classes.c.examples)
    statement = select(*columns).where(classes.c.tenant == tenant, only).order_by(distance).limit(count)
    return [connection.execute(statement, {"wanted": query.astype(np.float32)}).all() for query in queries]


def index(connection: Connection, classifier: str, count: int, dimension: int) -> bool:
    """Build an HNSW index for a classifier of 100,000 classes or more, unless there is one.

    Source: Malkov & Yashunin 2018, as pgvector builds it: M = 16 links, 64 candidates. Enrolment continues
    meanwhile, and keeps the index up to date later. It takes minutes: call it in the background, as often as
    you like, outside of transactions. pgvector has no such index for vectors of more than 2,000 numbers.

    Returns:
        whether there is one now.
    """
    if _has_index(connection, classifier):
        return True
    lock = int.from_bytes(hashlib.sha256(classifier.encode()).digest()[:7])
    if count < MANY or dimension > _INDEXED or not connection.scalar(select(func.pg_try_advisory_lock(lock))):
        return False  # too few, too long, or another process is building it
    try:
        # An interrupted index exists and is unusable.
        connection.execute(drop_index(classifier))
        connection.execute(
            text(
                f'create index concurrently "{_index_name(classifier)}" on classes using hnsw '
                f"((vector::vector({dimension})) vector_l2_ops) where classifier = '{classifier}'"
            )
        )
    finally:
        connection.execute(select(func.pg_advisory_unlock(lock)))
    return True


def drop_index(classifier: str) -> TextClause:
    """Build the statement that drops a classifier's index, outside of a transaction."""
    return text(f'drop index concurrently if exists "{_index_name(classifier)}"')


def _has_index(connection: Connection, classifier: str) -> bool:
    query = text("select indisvalid from pg_index where indexrelid = to_regclass(:name)")
    return bool(connection.scalar(query, {"name": f'"{_index_name(classifier)}"'}))


def _index_name(classifier: str) -> str:
    return f"hnsw_{classifier}"
