"""The nearest prototypes: all of a classifier at once, or found in the database."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.errors import DataError, needs_extra
from sfumato.serve.store.database import Database
from sfumato.serve.store.rows import WITH_CLASSES, named, no_classifier, of
from sfumato.serve.store.schema import classes, classifiers

with needs_extra("the store", "serve"):
    from pgvector.sqlalchemy import VECTOR
    from sqlalchemy import Connection, Double, TextClause, bindparam, cast, func, select, text

MANY = 100_000  # prototypes of a classifier, from which on `Search.index` makes an index

_INDEXED = 2_000  # the longest vectors that pgvector's HNSW takes
_CANDIDATES = 200  # of an HNSW search; pgvector takes up to 1,000


@dataclass(frozen=True)
class Prototypes:
    """The classes of a classifier at one moment: a row of `vectors`, means, for each label."""

    version: int
    labels: tuple[str, ...]
    vectors: np.ndarray  # (K, D) float32
    examples: tuple[int, ...]
    weights: np.ndarray  # (K,) float64, the sums of those of the examples


@dataclass(frozen=True)
class Neighbour:
    """A class near a query, and of how many examples its prototype is."""

    label: str
    squared_euclidean: float
    examples: int


class Search(Database):
    """Prototypes, and those nearest to a query."""

    def prototypes(self, tenant: str, classifier: str, *, newer_than: int | None = None) -> Prototypes | None:
        """The prototypes of a classifier, all of one version; None where that is `newer_than` still."""
        this = named(tenant, classifier)
        # One statement sees one moment.
        query = (
            select(
                *(classifiers.c.version, classifiers.c.dimension),
                *(classes.c.label, classes.c.sum, classes.c.weight, classes.c.examples),
            )
            .select_from(WITH_CLASSES)
            .where(*this)
            .order_by(classes.c.id)
        )
        with self._reading() as connection:
            version = connection.scalar(select(classifiers.c.version).where(*this))
            if version is not None and version == newer_than:
                return None
            rows = connection.execute(query).all()
        if not rows:
            raise no_classifier()
        version, dimension = rows[0][:2]
        rows = [row for row in rows if row.label is not None]
        sums = np.frombuffer(b"".join(row.sum for row in rows), "<f8").reshape(len(rows), dimension or 0)
        weights = np.array([row.weight for row in rows])
        return Prototypes(
            version,
            tuple(row.label for row in rows),
            (sums / weights[:, None]).astype(np.float32),
            tuple(row.examples for row in rows),
            weights,
        )

    def nearest(
        self, tenant: str, classifier: str, queries: np.ndarray, *, count: int
    ) -> list[list[Neighbour]]:
        """The classes with the nearest prototypes, found in the database: for galleries of 100,000 and more.

        Exact; or where `index` has made one, by an HNSW index, which may miss some (benchmarks/store.py).
        SQLite reads all prototypes in every call: better keep them at hand, see `prototypes`.

        Args:
            tenant, classifier: where.
            queries: (Q, D) finite.
            count: how many for each, the nearest first.

        Raises:
            DataError: queries of another dimension.
        """
        if not self._postgresql:
            gallery = self.prototypes(tenant, classifier)
            assert gallery is not None
            if not gallery.labels:
                return [[] for _ in queries]
            _check_queries(queries, gallery.vectors.shape[1])
            return _nearest(gallery, queries, count)
        with self._reading() as connection:
            row = connection.execute(
                select(classifiers.c.dimension).where(*named(tenant, classifier))
            ).one_or_none()
            if row is None:
                raise no_classifier()
            if row.dimension is None:
                return [[] for _ in queries]
            _check_queries(queries, row.dimension)
            by_index = count <= _CANDIDATES and _has_index(connection, classifier)
            if by_index:
                # Never by reading and sorting all, which the planner likes for queries of many columns.
                connection.execute(text("set local enable_sort = off"))
                connection.execute(text(f"set local hnsw.ef_search = {_CANDIDATES}"))
                # Past what was deleted and not yet vacuumed.
                connection.execute(text("set local hnsw.iterative_scan = strict_order"))
            statement = _by_distance(tenant, classifier, row.dimension, count, by_index=by_index)
            return [
                [
                    Neighbour(row.label, row.distance**2, row.examples)
                    for row in connection.execute(statement, {"wanted": query.astype(np.float32)})
                ]
                for query in queries
            ]

    def index(self, tenant: str, classifier: str) -> bool:
        """Make `nearest` fast for a classifier of 100,000 classes and more: an HNSW index of its own.

        Source: Malkov & Yashunin 2018, as pgvector builds it: M = 16 links, 64 candidates. Enrolment goes on
        meanwhile, and keeps the index up to date later. It takes minutes: call it in the background, as often
        as you like. SQLite has no such index, and pgvector none for vectors of more than 2,000 numbers.

        Returns:
            Whether there is one now.
        """
        if not self._postgresql:
            return False
        of_classifier = (
            select(func.count(classes.c.id), func.max(classifiers.c.dimension))
            .select_from(WITH_CLASSES)
            .where(*named(tenant, classifier))
            .group_by(classifiers.c.id)
        )
        lock = int.from_bytes(hashlib.sha256(classifier.encode()).digest()[:7])
        with self._outside_transactions() as connection:
            row = connection.execute(of_classifier).one_or_none()
            if row is None:
                raise no_classifier()
            count, dimension = row
            if _has_index(connection, classifier):
                return True
            if count < MANY or dimension > _INDEXED:
                return False
            if not connection.scalar(select(func.pg_try_advisory_lock(lock))):
                return False  # another process makes it now
            try:
                # One that was interrupted is there, and of no use.
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
    """PostgreSQL's statement for the classes nearest to a vector `wanted`."""
    vector: Any = classes.c.vector
    if by_index:
        vector = cast(vector, VECTOR(dimension))
    wanted = bindparam("wanted", type_=VECTOR(dimension))
    distance = vector.op("<->", return_type=Double)(cast(wanted, wanted.type))
    # A partial index is used where its condition stands in the query, as text.
    only = classes.c.classifier == bindparam("only", classifier, literal_execute=True)
    return (
        select(classes.c.label, distance.label("distance"), classes.c.examples)
        .where(of(classes, tenant), only)
        .order_by(distance)
        .limit(count)
    )


def _nearest(gallery: Prototypes, queries: np.ndarray, count: int) -> list[list[Neighbour]]:
    vectors = gallery.vectors.astype(np.float64)  # (K, D)
    squares = np.einsum("kd,kd->k", vectors, vectors)
    answers = []
    for query in queries:  # one by one: all at once would take Q * K numbers
        distances = (squares - 2 * (vectors @ query) + query @ query).clip(min=0)
        rows = np.argpartition(distances, min(count, len(distances)) - 1)[:count]
        rows = rows[distances[rows].argsort(kind="stable")]
        answers.append(
            [Neighbour(gallery.labels[row], float(distances[row]), gallery.examples[row]) for row in rows]
        )
    return answers


def _has_index(connection: Connection, classifier: str) -> bool:
    query = text("select indisvalid from pg_index where indexrelid = to_regclass(:name)")
    return bool(connection.scalar(query, {"name": f'"{_index_name(classifier)}"'}))


def _index_name(classifier: str) -> str:
    return f"hnsw_{classifier}"


def drop_index(classifier: str) -> TextClause:
    """The statement after which a classifier has no index, outside of a transaction."""
    return text(f'drop index concurrently if exists "{_index_name(classifier)}"')


def _check_queries(queries: np.ndarray, dimension: int) -> None:
    if queries.ndim != 2 or queries.shape[1] != dimension or not np.isfinite(queries).all():
        raise DataError(f"queries of shape {queries.shape}: here they are rows of {dimension} finite numbers")
