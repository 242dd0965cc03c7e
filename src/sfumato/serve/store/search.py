"""The nearest prototypes: all of a classifier at once, or by a search in the database."""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

import numpy as np

from sfumato.errors import DataError, needs_extra
from sfumato.serve.store.database import Database
from sfumato.serve.store.rows import WITH_CLASSES, check_id, is_classifier, no_classifier, of
from sfumato.serve.store.schema import classes, classifiers

with needs_extra("the store", "serve"):
    from pgvector.sqlalchemy import VECTOR
    from sqlalchemy import Connection, Double, TextClause, bindparam, cast, func, select, text

MANY = 100_000  # prototypes of a classifier from which `Search.index` builds an index

_INDEXED = 2_000  # the longest vectors that pgvector's HNSW takes
_CANDIDATES = 200  # of an HNSW search; pgvector takes up to 1,000
_PART = 10_000  # prototypes of SQLite read together

# Built once: building it takes as long as running it.
_VERSION = select(classifiers.c.version, classifiers.c.forgotten).where(
    classifiers.c.tenant == bindparam("tenant"), classifiers.c.id == bindparam("classifier")
)
_VERSION_IN_SQLITE = "select version from classifiers where tenant = ? and id = ?"


@dataclass(frozen=True)
class Prototypes:
    """The classes of a classifier at one moment: a row of `vectors`, means, for each label."""

    version: int
    ids: np.ndarray  # (K,) int64 of the classes, ascending
    labels: tuple[str, ...]
    vectors: np.ndarray  # (K, D) float32
    examples: tuple[int, ...]
    weights: np.ndarray  # (K,) float64, the sums of the weights of examples

    def with_changes(self, changed: "Prototypes") -> "Prototypes":
        """Merge changed and new prototypes; no class was forgotten meanwhile."""
        places = np.searchsorted(self.ids, changed.ids)
        known = places < len(self.ids)
        known[known] = self.ids[places[known]] == changed.ids[known]
        old, new = places[known], np.flatnonzero(~known)
        vectors = np.concatenate([self.vectors, changed.vectors[new]])
        weights = np.concatenate([self.weights, changed.weights[new]])
        vectors[old], weights[old] = changed.vectors[known], changed.weights[known]
        examples = [*self.examples, *(changed.examples[row] for row in new)]
        for place, row in zip(old, np.flatnonzero(known), strict=True):
            examples[place] = changed.examples[row]
        labels = (*self.labels, *(changed.labels[row] for row in new))
        ids = np.concatenate([self.ids, changed.ids[new]])
        return Prototypes(changed.version, ids, labels, vectors, tuple(examples), weights)


@dataclass(frozen=True)
class Neighbour:
    """A class near a query, and the number of its examples."""

    label: str
    squared_euclidean: float
    examples: int


class Search(Database):
    """Reads prototypes, and finds those nearest to a query."""

    def prototypes(
        self, tenant: str, classifier: str, *, known: Prototypes | None = None
    ) -> Prototypes | None:
        """Read the prototypes of a classifier, all of one version.

        Args:
            tenant, classifier: the classifier.
            known: those of an earlier call. Only changes since then are read, unless a class was forgotten
                since: then all are.

        Returns:
            None if the known ones are of the present version.
        """
        check_id(classifier)
        if known is not None and self._is_version(tenant, classifier, known.version):
            return None
        with self._reading() as connection:
            found = connection.execute(_VERSION, {"tenant": tenant, "classifier": classifier}).one_or_none()
            if found is None:
                raise no_classifier()
            if known is not None and found.version == known.version:
                return None
            if known is not None and found.forgotten <= known.version and known.labels:
                # Checks `forgotten` again: a class may have been lost between the two statements.
                changed = connection.execute(self._all_of(tenant, classifier, since=known.version)).all()
                if changed and changed[0].forgotten <= known.version:
                    return known.with_changes(self._decode(changed))
            rows = connection.execute(self._all_of(tenant, classifier)).all()
        if not rows:
            raise no_classifier()
        return self._decode(rows)

    def _is_version(self, tenant: str, classifier: str, version: int) -> bool:
        """Look whether a classifier of SQLite has this version; every question does so.

        By the driver alone: SQLAlchemy takes ten times as long. False for PostgreSQL, which is asked later.
        """
        if self._postgresql:
            return False
        with (
            self._errors(),
            closing(self._engine.raw_connection()) as connection,
            closing(connection.cursor()) as cursor,
        ):
            cursor.execute(_VERSION_IN_SQLITE, (tenant, classifier))
            return bool(cursor.fetchone() == (version,))

    def count(self, tenant: str, classifier: str) -> tuple[int, int]:
        """Count the prototypes of a classifier, and the numbers of each; 0 before the first."""
        query = (
            select(func.count(classes.c.id), func.coalesce(func.max(classifiers.c.dimension), 0))
            .select_from(WITH_CLASSES)
            .where(*is_classifier(tenant, classifier))
            .group_by(classifiers.c.id)
        )
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise no_classifier()
        return row[0], row[1]

    def _all_of(self, tenant: str, classifier: str, *, since: int | None = None) -> Any:
        """Build the statement for prototypes at one moment; without classes it gives one row of nulls.

        `since`: only those changed after that version.
        """
        # In PostgreSQL, the bytes of the sum are read faster than the text of the vector.
        numbers = classes.c.sum if self._postgresql else classes.c.vector
        query = (
            select(
                *(classifiers.c.version, classifiers.c.dimension, classes.c.id, classes.c.label),
                *(numbers, classes.c.weight, classes.c.examples, classifiers.c.forgotten),
            )
            .select_from(WITH_CLASSES)
            .where(*is_classifier(tenant, classifier))
            .order_by(classes.c.id)
        )
        return query if since is None else query.where(classes.c.version > since)

    def _decode(self, rows: Sequence[Any]) -> Prototypes:
        """Decode prototypes from rows of `_all_of`, at least one."""
        version, dimension = rows[0].version, rows[0].dimension or 0
        if rows[0].id is None:
            none, vectors = np.zeros(0, np.int64), np.zeros((0, dimension), np.float32)
            return Prototypes(version, none, (), vectors, (), np.zeros(0))
        _, _, ids, labels, numbers, weights, examples, _ = zip(*rows, strict=True)
        kind = "<f8" if self._postgresql else "<f4"
        vectors = np.frombuffer(bytearray().join(numbers), kind).reshape(len(rows), dimension)
        weighed = np.array(weights, np.float64)
        if self._postgresql:
            vectors = (vectors / weighed[:, None]).astype(np.float32)
        return Prototypes(version, np.array(ids, np.int64), labels, vectors, examples, weighed)

    def nearest(
        self, tenant: str, classifier: str, queries: np.ndarray, *, count: int
    ) -> list[list[Neighbour]]:
        """Find the classes with the nearest prototypes in the database: for galleries too large to cache.

        Exact, unless `index` has built an HNSW index, which may miss some (benchmarks/store.py). Without an
        index every call reads all prototypes, SQLite's a part at a time: cache them if possible, see
        `prototypes`.

        Args:
            tenant, classifier: the classifier.
            queries: (Q, D) finite.
            count: the number for each query, the nearest first.

        Raises:
            DataError: the queries have another dimension.
        """
        if not self._postgresql:
            return self._nearest_of_all(tenant, classifier, queries, count)
        with self._reading() as connection:
            row = connection.execute(
                select(classifiers.c.dimension).where(*is_classifier(tenant, classifier))
            ).one_or_none()
            if row is None:
                raise no_classifier()
            if row.dimension is None:
                return [[] for _ in queries]
            _check_queries(queries, row.dimension)
            by_index = count <= _CANDIDATES and _has_index(connection, classifier)
            if by_index:
                # Forbid reading and sorting all, which the planner prefers for queries of many columns.
                connection.execute(text("set local enable_sort = off"))
                connection.execute(text(f"set local hnsw.ef_search = {_CANDIDATES}"))
                # Skip rows that were deleted and not yet vacuumed.
                connection.execute(text("set local hnsw.iterative_scan = strict_order"))
            statement = _by_distance(tenant, classifier, row.dimension, count, by_index=by_index)
            return [
                [
                    Neighbour(row.label, row.distance**2, row.examples)
                    for row in connection.execute(statement, {"wanted": query.astype(np.float32)})
                ]
                for query in queries
            ]

    def _nearest_of_all(
        self, tenant: str, classifier: str, queries: np.ndarray, count: int
    ) -> list[list[Neighbour]]:
        """Find the nearest by reading all, a part at a time."""
        query = self._all_of(tenant, classifier).execution_options(yield_per=_PART)
        nearest: list[list[Neighbour]] = [[] for _ in queries]
        with self._reading() as connection:
            there = False
            for rows in connection.execute(query).partitions():
                there, part = True, self._decode(rows)
                if part.labels:
                    _check_queries(queries, part.vectors.shape[1])
                    nearest = _nearest(part, queries, count, beside=nearest)
        if not there:
            raise no_classifier()
        return nearest

    def index(self, tenant: str, classifier: str) -> bool:
        """Speed up `nearest` for a classifier of 100,000 classes or more by an HNSW index.

        Source: Malkov & Yashunin 2018, as pgvector builds it: M = 16 links, 64 candidates. Enrolment
        continues meanwhile, and keeps the index up to date later. It takes minutes: call it in the
        background, as often as you like. SQLite has no such index, nor does pgvector for vectors of more than
        2,000 numbers.

        Returns:
            whether there is one now.
        """
        if not self._postgresql:
            return False
        count, dimension = self.count(tenant, classifier)
        lock = int.from_bytes(hashlib.sha256(classifier.encode()).digest()[:7])
        with self._outside_transactions() as connection:
            if _has_index(connection, classifier):
                return True
            if count < MANY or dimension > _INDEXED:
                return False
            if not connection.scalar(select(func.pg_try_advisory_lock(lock))):
                return False  # another process is building it
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


def _by_distance(tenant: str, classifier: str, dimension: int, count: int, *, by_index: bool) -> Any:
    """Build PostgreSQL's statement for the classes nearest to a vector `wanted`."""
    vector: Any = classes.c.vector
    if by_index:
        vector = cast(vector, VECTOR(dimension))
    wanted = bindparam("wanted", type_=VECTOR(dimension))
    distance = vector.op("<->", return_type=Double)(cast(wanted, wanted.type))
    # A partial index is used if the query contains its condition as text.
    only = classes.c.classifier == bindparam("only", classifier, literal_execute=True)
    return (
        select(classes.c.label, distance.label("distance"), classes.c.examples)
        .where(of(classes, tenant), only)
        .order_by(distance)
        .limit(count)
    )


def _nearest(
    gallery: Prototypes, queries: np.ndarray, count: int, *, beside: Iterable[list[Neighbour]]
) -> list[list[Neighbour]]:
    """Find the nearest to each query, in a gallery and among those found before."""
    vectors = gallery.vectors.astype(np.float64)  # (K, D)
    squares = np.einsum("kd,kd->k", vectors, vectors)
    answers = []
    for query, before in zip(queries, beside, strict=True):  # one by one: all would take Q * K numbers
        distances = (squares - 2 * (vectors @ query) + query @ query).clip(min=0)
        rows = np.argpartition(distances, min(count, len(distances)) - 1)[:count]
        rows = rows[distances[rows].argsort(kind="stable")]
        found = [Neighbour(gallery.labels[row], float(distances[row]), gallery.examples[row]) for row in rows]
        answers.append(nsmallest(count, [*before, *found], key=lambda one: one.squared_euclidean))
    return answers


def _has_index(connection: Connection, classifier: str) -> bool:
    query = text("select indisvalid from pg_index where indexrelid = to_regclass(:name)")
    return bool(connection.scalar(query, {"name": f'"{_index_name(classifier)}"'}))


def _index_name(classifier: str) -> str:
    return f"hnsw_{classifier}"


def drop_index(classifier: str) -> TextClause:
    """Build the statement that drops a classifier's index, outside of a transaction."""
    return text(f'drop index concurrently if exists "{_index_name(classifier)}"')


def _check_queries(queries: np.ndarray, dimension: int) -> None:
    if queries.ndim != 2 or queries.shape[1] != dimension or not np.isfinite(queries).all():
        raise DataError(f"queries of shape {queries.shape}: they must be rows of {dimension} finite numbers")
