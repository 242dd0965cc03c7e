"""The store of the cloud: classifiers, their classes, and the prototypes computed from examples."""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from sfumato.errors import DataError
from sfumato.learn.gallery import mean_of, sum_weighted
from sfumato.serve.store import search
from sfumato.serve.store.database import ConflictError, NotFoundError, QuotaError
from sfumato.serve.store.keys import (
    ID,
    Key,
    Keys,
    check_new_name,
    check_text,
    moment,
    new_id,
    note,
    now,
    storable,
)
from sfumato.serve.store.schema import audit, classes, classifiers, examples, keys
from sfumato.serve.store.search import Neighbour
from sfumato.wire.messages import AuditLine, ClassifierInfo, ClassSummary, EnrolledExamples, Forgotten

_DIMENSION = 16_000  # the most that pgvector holds


@dataclass(frozen=True)
class Example:
    """The stored form of one released image.

    Attributes:
        given_id: by which its class recognises it, whatever was released; the enrolling party chooses it.
        embedding, weight: its contribution to the prototype, and the weight of that.
    """

    given_id: str
    embedding: np.ndarray  # (D,) float32
    weight: float = 1.0


@dataclass(frozen=True)
class Prototypes:
    """The classes of a classifier at one moment: a row of `vectors`, means, for each label."""

    version: int
    labels: tuple[str, ...]
    vectors: np.ndarray  # (K, D) float32
    examples: tuple[int, ...]
    weights: np.ndarray  # (K,) float64, the sums of the weights of examples


class Store(Keys):
    """The store of the cloud: its keys, its classifiers, and the search among them.

    State: that of Keys. Any number of threads and processes may use the same store, and each sees new
    examples at once.

    Methods raise StoreError, with the cure, if the database cannot be used; and NotFoundError for objects
    that the tenant does not have, whether they do not exist or belong to another tenant.
    """

    def create_classifier(self, tenant: str, *, name: str, model: str, by: Key) -> ClassifierInfo:
        """Create a classifier without classes. Raises ConflictError if the tenant has one of that name."""
        check_new_name("name of a classifier", name, [each.name for each in self.classifiers(tenant)])
        check_text("model", model)
        row: dict[str, Any] = {"id": new_id(), "name": name, "model": model, "created": now(), "version": 0}
        conflict = f"a classifier {name!r} already exists: use it, or choose another name"
        with self._conflicts(conflict), self._changing(tenant, by) as connection:
            connection.execute(insert(classifiers).values(tenant=tenant, **row))
            note(connection, by, "create classifier", classifier=row["id"])
        return _classifier(row | {"classes": 0})

    def classifier(self, tenant: str, classifier: str) -> ClassifierInfo:
        """Return the classifier with this id, or else of this name."""
        called = (classifiers.c.id == classifier) | (classifiers.c.name == classifier)
        query = select(*_CLASSIFIER).where(_of(classifiers, tenant), called)
        with self._reading() as connection:
            rows = connection.execute(query).mappings().all() if storable(classifier) else []
        if not rows:
            raise _no_classifier()
        return _classifier(min(rows, key=lambda row: row["id"] != classifier))

    def classifiers(self, tenant: str) -> list[ClassifierInfo]:
        """List the classifiers of a tenant, the oldest first."""
        query = select(*_CLASSIFIER).where(_of(classifiers, tenant))
        query = query.order_by(classifiers.c.created, classifiers.c.id)
        with self._reading() as connection:
            return [_classifier(row) for row in connection.execute(query).mappings()]

    def delete_classifier(self, tenant: str, classifier: str, *, by: Key) -> Forgotten:
        """Forget a classifier with all its classes, and remove their labels from the audit log."""
        with self._forgetting(tenant, by) as connection:
            _lock(connection, tenant, classifier)
            forgotten = _drop(connection, tenant, [classifier])
            its = (_of(audit, tenant), audit.c.classifier == classifier)
            connection.execute(update(audit).where(*its).values(label=None))
            note(connection, by, "delete classifier", examples=forgotten, classifier=classifier)
        self._drop_indices([classifier])
        return Forgotten(forgotten=forgotten)

    def enrol(
        self, tenant: str, classifier: str, label: str, examples: Sequence[Example], *, by: Key
    ) -> EnrolledExamples:
        """Add examples to a class: see enrol_many."""
        return self.enrol_many(tenant, classifier, {label: examples}, by=by)[label]

    def enrol_many(
        self, tenant: str, classifier: str, given: Mapping[str, Sequence[Example]], *, by: Key
    ) -> dict[str, EnrolledExamples]:
        """Add examples to classes, and create new classes: all of them, or none, in one transaction.

        The prototype is the weighted mean of the embeddings. An example with a given id that its class has is
        left as_it_came, so that it is safe to repeat the call.

        Args:
            tenant, classifier, by: the classifier, and the key that enrols.
            given: examples by label, of 1 to 200 characters.

        Returns:
            for each label, counts that add up to the given examples, and ids: of the new examples, in order,
            then of the known ones.

        Raises:
            DataError: an invalid label; or an embedding that is not finite, or not as long as all others.
            QuotaError: the key would pass its quota.
        """
        wanted = {label: {example.given_id: example for example in each} for label, each in given.items()}
        for label, distinct in wanted.items():
            check_text("label", label)
            for example in distinct.values():
                _check(example)
        with self._changing(tenant, by) as connection:
            locked = _lock(connection, tenant, classifier)
            there = _class_rows(connection, tenant, classifier, wanted)
            known = _find_known(connection, tenant, there, wanted)
            new = {
                label: fresh
                for label, distinct in wanted.items()
                if (fresh := [one for name, one in distinct.items() if name not in known[label]])
            }
            ids: dict[str, list[str]] = {}
            if new:
                every = [example for each in new.values() for example in each]
                dimension = _common_dimension(every, locked.dimension)
                _check_quota(connection, by, len(every))
                class_ids = _add_to_classes(connection, tenant, classifier, there, new)
                ids = _keep(connection, class_ids, new, by)
                _grow(connection, tenant, classifier, version=locked.version + 1, dimension=dimension)
                entries = [{"label": label, "examples": len(each)} for label, each in new.items()]
                note(connection, by, "enrol", *entries, classifier=classifier)
        enrolled = {}
        for label, each in given.items():
            own, before = ids.get(label, []), there[label].examples if label in there else 0
            enrolled[label] = EnrolledExamples(
                new=len(own),
                known=len(each) - len(own),
                total=before + len(own),
                examples=[*own, *known[label].values()],
            )
        return enrolled

    def classes(self, tenant: str, classifier: str) -> list[ClassSummary]:
        """List the classes of a classifier, the oldest first."""
        rows = self._rows_of_classes(
            tenant, classifier, classes.c.label, classes.c.examples, classes.c.created
        )
        return [
            ClassSummary(label=label, examples=count, created=moment(created))
            for label, count, created in rows
            if label is not None
        ]

    def forget_example(self, tenant: str, classifier: str, example: str, *, by: Key) -> Forgotten:
        """Forget one example. The last one takes its class with it, see forget_class.

        The prototype is recomputed from the remaining examples: after a subtraction, rounding would leave a
        trace of this one.
        """
        with self._forgetting(tenant, by) as connection:
            version = _lock(connection, tenant, classifier).version + 1
            query = (
                select(classes.c.id, classes.c.label)
                .join(examples, _of(examples, tenant) & (examples.c["class"] == classes.c.id))
                .where(_of(classes, tenant), classes.c.classifier == classifier, examples.c.id == example)
            )
            row = connection.execute(query).one_or_none() if ID.fullmatch(example) else None
            if row is None:
                raise NotFoundError("no such example in this classifier")
            connection.execute(delete(examples).where(_of(examples, tenant), examples.c.id == example))
            left = _recompute(connection, tenant, row.id)
            _grow(connection, tenant, classifier, version=version)
            called = None if left else _rename(connection, tenant, classifier, row.label)
            what = {"classifier": classifier, "label": called or row.label, "example": example}
            note(connection, by, "forget example", examples=1, **what)
        return Forgotten(forgotten=1, logged_as=called)

    def forget_class(self, tenant: str, classifier: str, label: str, *, by: Key) -> Forgotten:
        """Forget a class with its examples; the audit log replaces its label by a random name."""
        with self._forgetting(tenant, by) as connection:
            version = _lock(connection, tenant, classifier).version + 1
            there = _class_rows(connection, tenant, classifier, [label] if storable(label) else [])
            if label not in there:
                raise NotFoundError("no such class in this classifier: list its classes")
            gone = delete(examples).where(_of(examples, tenant), examples.c["class"] == there[label].id)
            forgotten = connection.execute(gone).rowcount
            connection.execute(delete(classes).where(_of(classes, tenant), classes.c.id == there[label].id))
            _grow(connection, tenant, classifier, version=version)
            called = _rename(connection, tenant, classifier, label)
            note(connection, by, "forget class", examples=forgotten, classifier=classifier, label=called)
        return Forgotten(forgotten=forgotten, logged_as=called)

    def forget_everything(self, tenant: str, *, by: Key) -> Forgotten:
        """Forget all classifiers of a tenant, and the labels in its audit log.

        Its keys and the entries of its audit log stay; they name no class any more.
        """
        with self._forgetting(tenant, by) as connection:
            query = select(classifiers.c.id).where(_of(classifiers, tenant)).order_by(classifiers.c.id)
            mine = list(connection.scalars(query.with_for_update(key_share=True)))
            forgotten = _drop(connection, tenant, mine)
            connection.execute(update(audit).where(_of(audit, tenant)).values(label=None))
            note(connection, by, "forget everything", examples=forgotten)
        self._drop_indices(mine)
        return Forgotten(forgotten=forgotten)

    def audit(self, tenant: str, *, since: datetime | None = None, most: int = 1000) -> list[AuditLine]:
        """List the changes and who made them, the newest first, at most `most` entries.

        A forgotten class has a random name there, and none after its classifier was deleted.
        """
        query = select(audit).where(_of(audit, tenant))
        if since is not None:
            query = query.where(audit.c.time >= since.timestamp())
        with self._reading() as connection:
            rows = connection.execute(query.order_by(audit.c.id.desc()).limit(most)).mappings().all()
        return [AuditLine(**{**row, "time": moment(row["time"])}) for row in rows]

    def version(self, tenant: str, classifier: str) -> int:
        """Read the version of a classifier, which grows with every change; every question does so.

        In SQLite by the driver alone: SQLAlchemy takes ten times as long.
        """
        _check_id(classifier)
        if self._postgresql:
            with self._reading() as connection:
                row = connection.execute(_VERSION, {"tenant": tenant, "classifier": classifier}).one_or_none()
        else:
            with self._cursor() as cursor:
                cursor.execute(_VERSION_IN_SQLITE, (tenant, classifier))
                row = cursor.fetchone()
        if row is None:
            raise _no_classifier()
        return int(row[0])

    def prototypes(self, tenant: str, classifier: str) -> Prototypes:
        """Read the prototypes of a classifier, all of one version."""
        # In PostgreSQL, the bytes of the sum are read faster than the text of the vector.
        numbers = classes.c.sum if self._postgresql else classes.c.vector
        rows = self._rows_of_classes(
            *(tenant, classifier, classifiers.c.version, classifiers.c.dimension),
            *(classes.c.label, numbers, classes.c.weight, classes.c.examples),
        )
        version, dimension = rows[0].version, rows[0].dimension or 0
        if rows[0].label is None:
            return Prototypes(version, (), np.zeros((0, dimension), np.float32), (), np.zeros(0))
        _, _, labels, parts, weights, counts = zip(*rows, strict=True)
        kind = "<f8" if self._postgresql else "<f4"
        vectors = np.frombuffer(bytearray().join(parts), kind).reshape(len(rows), dimension)
        weighed = np.array(weights, np.float64)
        if self._postgresql:
            vectors = (vectors / weighed[:, None]).astype(np.float32)
        return Prototypes(version, labels, vectors, counts, weighed)

    def _rows_of_classes(self, tenant: str, classifier: str, *columns: Any) -> Sequence[Any]:
        """Read columns of each class of a classifier, the oldest first; without a class, one row of nulls."""
        query = select(*columns).select_from(_WITH_CLASSES).where(*_is(tenant, classifier))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(classes.c.id)).all()
        if not rows:
            raise _no_classifier()
        return rows

    def count(self, tenant: str, classifier: str) -> tuple[int, int]:
        """Count the prototypes of a classifier, and the numbers of each; 0 before the first."""
        query = (
            select(func.count(classes.c.id), func.coalesce(func.max(classifiers.c.dimension), 0))
            .select_from(_WITH_CLASSES)
            .where(*_is(tenant, classifier))
            .group_by(classifiers.c.id)
        )
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise _no_classifier()
        return row[0], row[1]

    def nearest(
        self, tenant: str, classifier: str, queries: np.ndarray, *, count: int
    ) -> list[list[Neighbour]]:
        """Find the classes with the nearest prototypes in PostgreSQL: for galleries too large to cache.

        Exact, unless `index` has built an HNSW index, which may miss some (benchmarks/store.py).

        Args:
            tenant, classifier, queries: (Q, D) queries of a classifier.
            count: the number for each query, the nearest first.

        Raises:
            DataError: the queries have another dimension, or are not finite.
            ConflictError: the store is SQLite's, which has no search of vectors.
        """
        if not self._postgresql:
            raise ConflictError("a gallery of more than 1 GiB needs a store in PostgreSQL, which searches it")
        _, dimension = self.count(tenant, classifier)
        if not dimension:
            return [[] for _ in queries]
        if queries.ndim != 2 or queries.shape[1] != dimension or not np.isfinite(queries).all():
            raise DataError(
                f"queries of shape {queries.shape}: they must be rows of {dimension} finite numbers"
            )
        with self._reading() as connection:
            return search.nearest(connection, tenant, classifier, queries, count)

    def index(self, tenant: str, classifier: str) -> bool:
        """Speed up `nearest` in PostgreSQL: see search.index. Returns whether there is an index now."""
        if not self._postgresql:
            return False
        count, dimension = self.count(tenant, classifier)
        with self._outside_transactions() as connection:
            return search.index(connection, classifier, count, dimension)

    @contextmanager
    def _changing(self, tenant: str, by: Key) -> Iterator[Connection]:
        """Open a transaction that changes objects of a tenant, by one of its keys."""
        if by.tenant != tenant:
            raise NotFoundError(f"no key {by.id!r} in this tenant")
        with self._writing() as connection:
            yield connection

    @contextmanager
    def _forgetting(self, tenant: str, by: Key) -> Iterator[Connection]:
        """Open a transaction like _changing; afterwards SQLite's log has nothing of the forgotten data."""
        with self._changing(tenant, by) as connection:
            yield connection
        if not self._postgresql:
            with self._tidying(), self._cursor() as cursor:
                # It waits for readers; on timeout the next call does the work.
                cursor.execute("pragma wal_checkpoint(truncate)")

    def _drop_indices(self, gone: Sequence[str]) -> None:
        if self._postgresql:
            with self._tidying(), self._outside_transactions() as connection:
                for classifier in gone:
                    connection.execute(search.drop_index(classifier))


# Built once: building statements takes as long as running them.
_VERSION = select(classifiers.c.version).where(
    classifiers.c.tenant == bindparam("tenant"), classifiers.c.id == bindparam("classifier")
)
_VERSION_IN_SQLITE = "select version from classifiers where tenant = ? and id = ?"
_LOCK = (
    select(classifiers.c.dimension, classifiers.c.version)
    .where(classifiers.c.tenant == bindparam("of_tenant"), classifiers.c.id == bindparam("of_classifier"))
    .with_for_update(key_share=True)
)
_CLASSES = select(classes.c.label, classes.c.id, classes.c.sum, classes.c.weight, classes.c.examples).where(
    classes.c.tenant == bindparam("tenant"),
    classes.c.classifier == bindparam("classifier"),
    classes.c.label.in_(bindparam("labels", expanding=True)),
)
_KNOWN = select(examples.c["class"], examples.c.given_id, examples.c.id).where(
    examples.c.tenant == bindparam("tenant"),
    examples.c["class"].in_(bindparam("classes", expanding=True)),
    examples.c.given_id.in_(bindparam("given", expanding=True)),
)
_UPDATE = (
    update(classes)
    .where(classes.c.tenant == bindparam("of_tenant"), classes.c.id == bindparam("of_id"))
    .values({name: bindparam(f"new_{name}") for name in ("sum", "weight", "examples", "vector")})
)
_COUNT = (
    select(func.count())
    .where(classes.c.tenant == classifiers.c.tenant, classes.c.classifier == classifiers.c.id)
    .scalar_subquery()
)
_CLASSIFIER = [
    *(classifiers.c[name] for name in ("id", "name", "model", "created", "version")),
    _COUNT.label("classes"),
]
_WITH_CLASSES = classifiers.outerjoin(
    classes, (classes.c.tenant == classifiers.c.tenant) & (classes.c.classifier == classifiers.c.id)
)


def _of(table: Any, tenant: str) -> Any:
    """Return the condition that a row belongs to a tenant."""
    return table.c.tenant == tenant


def _is(tenant: str, classifier: str) -> tuple[Any, Any]:
    """Return the condition for one classifier. Raises NotFoundError for an id that no row can have."""
    _check_id(classifier)
    return _of(classifiers, tenant), classifiers.c.id == classifier


def _check_id(classifier: str) -> None:
    if not ID.fullmatch(classifier):
        raise _no_classifier()


def _no_classifier() -> NotFoundError:
    """Make the error for a classifier that does not exist, or belongs to another tenant."""
    return NotFoundError("no such classifier here: list your classifiers")


def _classifier(row: Any) -> ClassifierInfo:
    return ClassifierInfo(**{**row, "created": moment(row["created"])})


def _lock(connection: Connection, tenant: str, classifier: str) -> Any:
    """Make other writers of a classifier wait. Returns its version, and its dimension (None at first)."""
    _check_id(classifier)
    asked = {"of_tenant": tenant, "of_classifier": classifier}
    row = connection.execute(_LOCK, asked).one_or_none()
    if row is None:
        raise _no_classifier()
    return row


def _grow(connection: Connection, tenant: str, classifier: str, **values: int) -> None:
    """Update a classifier: its version and other columns."""
    connection.execute(update(classifiers).where(*_is(tenant, classifier)).values(**values))


def _rename(connection: Connection, tenant: str, classifier: str, label: str) -> str:
    """Replace a class in the audit log by a random name, which still links its entries."""
    called = f"forgotten-{secrets.token_hex(4)}"
    its = (_of(audit, tenant), audit.c.classifier == classifier, audit.c.label == label)
    connection.execute(update(audit).where(*its).values(label=called))
    return called


def _drop(connection: Connection, tenant: str, gone: Sequence[str]) -> int:
    """Delete classifiers with all they contain. Returns the number of examples."""
    mine = select(classes.c.id).where(_of(classes, tenant), classes.c.classifier.in_(gone))
    forgotten = connection.execute(
        delete(examples).where(_of(examples, tenant), examples.c["class"].in_(mine))
    ).rowcount
    connection.execute(delete(classes).where(_of(classes, tenant), classes.c.classifier.in_(gone)))
    connection.execute(delete(classifiers).where(_of(classifiers, tenant), classifiers.c.id.in_(gone)))
    return forgotten


def _check(example: Example) -> None:
    """Raise DataError for an embedding or a weight that cannot be stored."""
    vector = example.embedding
    if vector.ndim != 1 or not 1 <= len(vector) <= _DIMENSION:
        raise DataError(f"an embedding of shape {vector.shape}: it is one row of 1 to {_DIMENSION:,} numbers")
    if not np.isfinite(vector.astype(np.float32)).all():
        raise DataError("an embedding is not finite: nothing was enrolled")
    if not 0 < example.weight < np.inf:
        raise DataError(f"a weight of {example.weight}: it must be above 0 and finite")


def _class_rows(
    connection: Connection, tenant: str, classifier: str, labels: Iterable[str]
) -> dict[str, Any]:
    """Read id, sum, weight and examples of the classes with these labels, if they exist."""
    wanted = {"tenant": tenant, "classifier": classifier, "labels": list(labels)}
    return {row.label: row for row in connection.execute(_CLASSES, wanted)}


def _find_known(
    connection: Connection, tenant: str, rows: Mapping[str, Any], wanted: Mapping[str, Mapping[str, Example]]
) -> dict[str, dict[str, str]]:
    """Find, by label, given id and id of the wanted examples that the class of `_class_rows` has already."""
    found: dict[str, dict[str, str]] = {label: {} for label in wanted}
    if rows:
        labels = {row.id: label for label, row in rows.items()}
        given = list({given_id for label in rows for given_id in wanted[label]})
        asked = {"tenant": tenant, "classes": list(labels), "given": given}
        for class_id, given_id, example in connection.execute(_KNOWN, asked):
            if given_id in wanted[labels[class_id]]:
                found[labels[class_id]][given_id] = example
    return found


def _common_dimension(new: Iterable[Example], dimension: int | None) -> int:
    """Return the dimension of a classifier with new examples; `dimension`: of its present ones."""
    for example in new:
        dimension = dimension or len(example.embedding)
        if len(example.embedding) != dimension:
            raise DataError(
                f"an embedding of {len(example.embedding)} numbers, and this classifier has {dimension}: "
                "embed with the model that the classifier was made for"
            )
    assert dimension is not None  # there is at least one
    return dimension


def _check_quota(connection: Connection, by: Key, new: int) -> None:
    """Raise QuotaError if a key would pass its quota with the new examples.

    Calls of one key, for two classifiers, take turns from here on.
    """
    if by.quota is None:
        return
    key = select(keys.c.id).where(_of(keys, by.tenant), keys.c.id == by.id)
    connection.execute(key.with_for_update(key_share=True))
    stored = select(func.count()).select_from(examples)
    mine = connection.scalar(stored.where(_of(examples, by.tenant), examples.c.key == by.id)) or 0
    if mine + new > by.quota:
        raise QuotaError(
            f"{new} new examples, but only {max(by.quota - mine, 0)} of the {by.quota} of this key are left: "
            "forget some, or ask the operator for a key with a larger quota"
        )


def _add_to_classes(
    connection: Connection,
    tenant: str,
    classifier: str,
    rows: Mapping[str, Any],
    new: Mapping[str, Sequence[Example]],
) -> dict[str, int]:
    """Add examples, at least one for each label, to the prototypes of their classes; create new classes.

    `rows`: from `_class_rows`. Returns the id of each class.
    """
    begun, changed = [], []
    for label, given in new.items():
        embeddings = np.stack([example.embedding for example in given])  # (K, D)
        weights = np.array([example.weight for example in given], np.float64)
        total, weight, count = sum_weighted(embeddings, weights), float(weights.sum()), len(given)
        row = rows.get(label)
        if row is None:
            own = {"tenant": tenant, "classifier": classifier, "label": label, "created": now()}
            begun.append(own | _prototype(total, weight, count))
        else:
            total = total + np.frombuffer(row.sum, "<f8")
            columns = _prototype(total, weight + row.weight, count + row.examples)
            told = {f"new_{name}": value for name, value in columns.items()}
            changed.append({"of_tenant": tenant, "of_id": row.id} | told)
    ids = {label: row.id for label, row in rows.items()}
    if begun:
        inserted = connection.execute(insert(classes).returning(classes.c.label, classes.c.id), begun)
        ids.update((row.label, row.id) for row in inserted)
    if changed:
        connection.execute(_UPDATE, changed)
    return ids


def _keep(
    connection: Connection, ids: Mapping[str, int], new: Mapping[str, Sequence[Example]], by: Key
) -> dict[str, list[str]]:
    """Store examples by label; `ids`: of the classes. Returns the ids of the examples."""
    created = now()
    rows: dict[str, list[dict[str, Any]]] = {
        label: [
            {
                **{"id": new_id(), "tenant": by.tenant, "class": ids[label], "key": by.id},
                **{"given_id": example.given_id, "embedding": example.embedding.astype("<f4").tobytes()},
                **{"weight": float(example.weight), "created": created},
            }
            for example in given
        ]
        for label, given in new.items()
    }
    connection.execute(insert(examples), [row for each in rows.values() for row in each])
    return {label: [row["id"] for row in each] for label, each in rows.items()}


def _recompute(connection: Connection, tenant: str, class_id: int) -> bool:
    """Recompute the prototype of a class from its examples. Without any, delete the class, return False."""
    mine = (_of(examples, tenant), examples.c["class"] == class_id)
    rows = connection.execute(select(examples.c.embedding, examples.c.weight).where(*mine)).all()
    this = (_of(classes, tenant), classes.c.id == class_id)
    if not rows:
        connection.execute(delete(classes).where(*this))
        return False
    embeddings = np.frombuffer(b"".join(row.embedding for row in rows), "<f4").reshape(len(rows), -1)
    weights = np.array([row.weight for row in rows], np.float64)
    prototype = _prototype(sum_weighted(embeddings, weights), float(weights.sum()), len(rows))
    connection.execute(update(classes).where(*this).values(**prototype))
    return True


def _prototype(total: np.ndarray, weight: float, count: int) -> dict[str, Any]:
    """Return the columns of a class that depend on its examples."""
    return {
        **{"sum": total.astype("<f8").tobytes(), "weight": weight, "examples": count},
        **{"vector": mean_of(total, weight)},
    }
