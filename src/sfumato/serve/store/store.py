"""The store of the cloud: classifiers, their classes, and the prototypes computed from examples."""

import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
import sqlalchemy as sa
from pgvector.sqlalchemy import VECTOR
from sqlalchemy import bindparam, delete, func, insert, select, update

from sfumato.errors import DataError
from sfumato.learn.gallery import mean_of, sum_weighted
from sfumato.serve import logs
from sfumato.serve.store.database import ConflictError, NotFoundError, QuotaError, StoreError
from sfumato.serve.store.keys import (
    ID,
    Key,
    Keys,
    check_new_name,
    check_text,
    new_id,
    note,
    now,
    record,
    storable,
)
from sfumato.serve.store.schema import audit, classes, classifiers, examples, keys, shares
from sfumato.wire.messages import (
    AuditLine,
    ClassifierInfo,
    ClassSummary,
    EnrolledClass,
    Forgotten,
    KeptShares,
    Shares,
)

_DIMENSION = 16_000  # the most that pgvector holds

_log = logging.getLogger("sfumato.serve")


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
        with self._changing(tenant, by, conflict) as connection:
            connection.execute(insert(classifiers).values(tenant=tenant, **row))
            note(connection, by, "create classifier", classifier=row["id"])
        return record(ClassifierInfo, row | {"classes": 0})

    def classifier(self, tenant: str, classifier: str) -> ClassifierInfo:
        """Return the classifier with this id, or else of this name."""
        called = (classifiers.c.id == classifier) | (classifiers.c.name == classifier)
        rows = self._all(_CLASSIFIERS.where(_of(classifiers, tenant), called)) if storable(classifier) else []
        if not rows:
            raise _no_classifier()
        return record(ClassifierInfo, min(rows, key=lambda row: row.id != classifier))

    def classifiers(self, tenant: str) -> list[ClassifierInfo]:
        """List the classifiers of a tenant, the oldest first."""
        query = _CLASSIFIERS.where(_of(classifiers, tenant))
        rows = self._all(query.order_by(classifiers.c.created, classifiers.c.id))
        return [record(ClassifierInfo, row) for row in rows]

    def delete_classifier(self, tenant: str, classifier: str, *, by: Key) -> Forgotten:
        """Forget a classifier with all its classes, and remove their labels from the audit log."""
        with self._changing(tenant, by) as connection:
            _lock(connection, tenant, classifier)
            forgotten = _drop(connection, tenant, [classifier], audit.c.classifier == classifier)
            note(connection, by, "delete classifier", examples=forgotten, classifier=classifier)
        self._tidy()
        return Forgotten(forgotten=forgotten)

    def enrol(
        self, tenant: str, classifier: str, label: str, examples: Sequence[Example], *, by: Key
    ) -> EnrolledClass:
        """Add examples to a class: see enrol_many."""
        return self.enrol_many(tenant, classifier, {label: examples}, by=by)[0]

    def enrol_many(
        self, tenant: str, classifier: str, given: Mapping[str, Sequence[Example]], *, by: Key
    ) -> list[EnrolledClass]:
        """Add examples to classes, and create new classes: all of them, or none, in one transaction.

        The prototype is the weighted mean of the embeddings. An example with a given id that its class has is
        left as it is, so that it is safe to repeat the call.

        Args:
            tenant, classifier, by: the classifier, and the key that enrols.
            given: examples by label, of 1 to 200 characters.

        Returns:
            for each label, counts that add up to the given examples, and ids: the new ones first.

        Raises:
            DataError: an invalid label; or an embedding that is not finite, or not as long as all others.
            QuotaError: the key would pass its quota.
        """
        wanted = {label: {example.given_id: example for example in each} for label, each in given.items()}
        for label, distinct in wanted.items():
            check_text("label", label)
            _check(distinct.values())
        with self._changing(tenant, by) as connection:
            dimension = _lock(connection, tenant, classifier)
            there = _class_rows(connection, tenant, classifier, wanted)
            known = _find_known(connection, tenant, classifier, wanted)
            new = {
                label: fresh
                for label, distinct in wanted.items()
                if (fresh := [one for name, one in distinct.items() if name not in known[label]])
            }
            ids: dict[str, list[str]] = {}
            if new:
                every = [example for each in new.values() for example in each]
                dimension = dimension or len(every[0].embedding)
                _check(every, dimension)
                _check_quota(connection, by, len(every))
                ids = self._add(connection, classifier, there, new, by)
                _lock(connection, tenant, classifier, grow=1, dimension=dimension)
                entries = [{"label": label, "examples": len(each)} for label, each in new.items()]
                note(connection, by, "enrol", *entries, classifier=classifier)
        enrolled = []
        for label, each in given.items():
            own, before = ids.get(label, []), there[label].examples if label in there else 0
            counts = {"new": len(own), "known": len(each) - len(own), "total": before + len(own)}
            enrolled.append(EnrolledClass(label=label, **counts, examples=[*own, *known[label].values()]))
        return enrolled

    def classes(self, tenant: str, classifier: str) -> list[ClassSummary]:
        """List the classes of a classifier, the oldest first."""
        columns = (classes.c.label, classes.c.examples, classes.c.created)
        rows = self._rows_of_classes(tenant, classifier, *columns)
        return [record(ClassSummary, row) for row in rows if row.label is not None]

    def forget_example(self, tenant: str, classifier: str, example: str, *, by: Key) -> Forgotten:
        """Forget one example. The last one takes its class with it, see forget_class.

        The prototype is recomputed from the remaining examples: after a subtraction, rounding would leave a
        trace of this one.
        """
        with self._changing(tenant, by) as connection:
            _lock(connection, tenant, classifier, grow=1)
            query = (
                select(classes.c.id, classes.c.label)
                .join(examples, _of(examples, tenant) & (examples.c["class"] == classes.c.id))
                .where(_of(classes, tenant), classes.c.classifier == classifier, examples.c.id == example)
            )
            row = connection.execute(query).one_or_none() if ID.fullmatch(example) else None
            if row is None:
                raise NotFoundError("no such example in this classifier")
            forgotten = _forget(connection, classifier, row, by, "forget example", example)
        self._tidy()
        return forgotten

    def forget_class(self, tenant: str, classifier: str, label: str, *, by: Key) -> Forgotten:
        """Forget a class with its examples; the audit log replaces its label by a random name."""
        with self._changing(tenant, by) as connection:
            _lock(connection, tenant, classifier, grow=1)
            there = _class_rows(connection, tenant, classifier, [label] if storable(label) else [])
            if label not in there:
                raise NotFoundError("no such class in this classifier: list its classes")
            forgotten = _forget(connection, classifier, there[label], by, "forget class")
        self._tidy()
        return forgotten

    def forget_everything(self, tenant: str, *, by: Key) -> Forgotten:
        """Forget all classifiers of a tenant, and the labels in its audit log.

        Its keys and the entries of its audit log stay; they name no class any more.
        """
        with self._changing(tenant, by) as connection:
            query = select(classifiers.c.id).where(_of(classifiers, tenant)).order_by(classifiers.c.id)
            mine = list(connection.scalars(query.with_for_update(key_share=True)))
            forgotten = _drop(connection, tenant, mine)
            note(connection, by, "forget everything", examples=forgotten)
        self._tidy()
        return Forgotten(forgotten=forgotten)

    def share(self, tenant: str, classifier: str, given_id: str, sent: Shares, *, by: Key) -> None:
        """Keep a histogram or an alarm; one whose given id is known stays as it is: repeat the call at will.

        Raises DataError if it names a class that the classifier does not have.
        """
        named = [label for label in sent.labels if label is not None]
        with self._changing(tenant, by) as connection:
            _lock(connection, tenant, classifier)
            if lacking := set(named) - set(_class_rows(connection, tenant, classifier, named)):
                raise DataError(f"no such class: {sorted(lacking)[0]!r}: fetch the answer table again")
            row = {"tenant": tenant, "classifier": classifier, "key": by.id, "given_id": given_id}
            content = sent.model_dump_json()
            adding = self._insert(shares).values(**row, received=now(), content=content)
            if connection.execute(adding.on_conflict_do_nothing()).rowcount:
                note(connection, by, "share", classifier=classifier)

    def shares(self, tenant: str, classifier: str) -> list[KeptShares]:
        """List the histograms and alarms of a classifier, the oldest first."""
        joined = classifiers.outerjoin(shares, classifiers.c.id == shares.c.classifier)
        rows = self._rows_of(tenant, classifier, select(shares).select_from(joined).order_by(shares.c.id))
        kept = [(row, Shares.model_validate_json(row.content)) for row in rows if row.id is not None]
        return [
            KeptShares(
                **dict(sent), id=row.given_id, key=row.key, received=row.received, counts=sent.parts_of_each()
            )
            for row, sent in kept
        ]

    def audit(self, tenant: str, *, since: datetime | None = None, most: int = 1000) -> list[AuditLine]:
        """List the changes and who made them, the newest first, at most `most` entries.

        A forgotten class has a random name there, and none after its classifier was deleted.
        """
        query = select(audit).where(_of(audit, tenant))
        if since is not None:
            query = query.where(audit.c.time >= since.timestamp())
        return [record(AuditLine, row) for row in self._all(query.order_by(audit.c.id.desc()).limit(most))]

    def version(self, tenant: str, classifier: str) -> int:
        """Read the version of a classifier, which grows with every change; every question does so.

        By the driver alone: SQLAlchemy takes ten times as long.
        """
        _check_id(classifier)
        mark = "%s" if self.is_postgresql else "?"
        with self._cursor() as cursor:
            query = f"select version from classifiers where tenant = {mark} and id = {mark}"
            row = cursor.execute(query, (tenant, classifier)).fetchone()
        if row is None:
            raise _no_classifier()
        return int(row[0])

    def prototypes(self, tenant: str, classifier: str) -> Prototypes:
        """Read the prototypes of a classifier, all of one version."""
        # In PostgreSQL, the bytes of the sum are read faster than the text of the vector.
        numbers = classes.c.sum if self.is_postgresql else classes.c.vector
        rows = self._rows_of_classes(
            *(tenant, classifier, classifiers.c.version, classifiers.c.dimension),
            *(classes.c.label, numbers, classes.c.weight, classes.c.examples),
        )
        version, dimension = rows[0].version, rows[0].dimension or 0
        filled = [row[2:] for row in rows if row.label is not None]
        return _prototypes(version, dimension, filled, sums=self.is_postgresql)

    def _rows_of_classes(self, tenant: str, classifier: str, *columns: Any) -> Sequence[Any]:
        """Read columns of each class of a classifier, the oldest first; without a class, one row of nulls."""
        query = select(*columns).select_from(_WITH_CLASSES).order_by(classes.c.id)
        return self._rows_of(tenant, classifier, query)

    def _rows_of(self, tenant: str, classifier: str, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        """Read rows of a classifier. Raises NotFoundError if the tenant has none with this id."""
        _check_id(classifier)
        rows = self._all(query.where(_of(classifiers, tenant), classifiers.c.id == classifier))
        if not rows:
            raise _no_classifier()
        return rows

    def count(self, tenant: str, classifier: str) -> tuple[int, int]:
        """Count the prototypes of a classifier, and the numbers of each; 0 before the first."""
        query = select(_COUNT, func.coalesce(classifiers.c.dimension, 0).label("dimension"))
        (row,) = self._rows_of(tenant, classifier, query)
        return row.classes, row.dimension

    def nearest(self, tenant: str, classifier: str, queries: np.ndarray, *, count: int) -> list[Prototypes]:
        """Find the classes with the nearest prototypes by PostgreSQL: for galleries too large to cache.

        Returns `count` classes for each of the (Q, D) queries, the nearest first. Raises DataError if these
        have another dimension or are not finite; ConflictError for SQLite, which has no search of vectors.
        """
        if not self.is_postgresql:
            raise ConflictError("a gallery of more than 1 GiB needs a store in PostgreSQL, which searches it")
        _, dimension = self.count(tenant, classifier)
        if dimension and (queries.shape[1:] != (dimension,) or not np.isfinite(queries).all()):
            raise DataError(
                f"queries of shape {queries.shape}: they must be rows of {dimension} finite numbers"
            )
        columns = (classes.c.label, classes.c.sum, classes.c.weight, classes.c.examples)
        wanted = bindparam("wanted", type_=VECTOR(queries.shape[1]))
        distance = classes.c.vector.op("<->", return_type=sa.Double)(sa.cast(wanted, wanted.type))
        mine = _of(classes, tenant), classes.c.classifier == classifier
        query = select(*columns).where(*mine).order_by(distance).limit(count)
        with self._transaction() as connection:
            found = [connection.execute(query, {"wanted": row.astype(np.float32)}).all() for row in queries]
        return [_prototypes(0, dimension, rows, sums=True) for rows in found]

    @contextmanager
    def _changing(self, tenant: str, by: Key, conflict: str | None = None) -> Iterator[sa.Connection]:
        """Open a transaction that changes objects of a tenant, by one of its keys."""
        if by.tenant != tenant:
            raise NotFoundError(f"no key {by.id!r} in this tenant")
        with self._writing(conflict) as connection:
            yield connection

    def _tidy(self) -> None:
        """Drop all forgotten data from the log of SQLite. If it fails, the change stands, which is logged."""
        try:
            if not self.is_postgresql:
                with self._cursor() as cursor:
                    # It waits for readers; on timeout the next call does the work.
                    cursor.execute("pragma wal_checkpoint(truncate)")
        except StoreError as error:
            logs.event(_log, logging.WARNING, "the store was not tidied up", store=str(error))

    def _add(
        self,
        connection: sa.Connection,
        classifier: str,
        there: Mapping[str, Any],
        new: Mapping[str, Sequence[Example]],
        by: Key,
    ) -> dict[str, list[str]]:
        """Store new examples, at least one for each label, and their prototypes. Returns ids by label.

        `there`: from `_class_rows`.
        """
        created, sums = now(), []
        for label, given in new.items():
            embeddings = np.stack([example.embedding for example in given])  # (K, D)
            weights = np.array([example.weight for example in given], np.float64)
            total, weight, count = sum_weighted(embeddings, weights), float(weights.sum()), len(given)
            if (row := there.get(label)) is not None:
                total = total + np.frombuffer(row.sum, "<f8")
                weight, count = weight + row.weight, count + row.examples
            own = {"tenant": by.tenant, "classifier": classifier, "label": label, "created": created}
            sums.append(own | _prototype(total, weight, count))
        adding = self._insert(classes)
        adding = adding.on_conflict_do_update(
            index_elements=["classifier", "label"],
            set_={name: adding.excluded[name] for name in ("sum", "weight", "examples", "vector")},
        )
        changed = connection.execute(adding.returning(classes.c.label, classes.c.id), sums)
        places = {row.label: row.id for row in changed}
        rows = [
            {
                **{"id": new_id(), "tenant": by.tenant, "class": places[label], "key": by.id},
                **{"given_id": example.given_id, "embedding": example.embedding.astype("<f4").tobytes()},
                **{"weight": float(example.weight), "created": created},
            }
            for label, given in new.items()
            for example in given
        ]
        connection.execute(insert(examples), rows)
        ids = iter([row["id"] for row in rows])
        return {label: list(islice(ids, len(given))) for label, given in new.items()}


# Built once: building statements takes as long as running them.
_LOCK = (
    update(classifiers)
    .where(classifiers.c.tenant == bindparam("of_tenant"), classifiers.c.id == bindparam("of_id"))
    .values(
        version=classifiers.c.version + bindparam("grow"),
        dimension=func.coalesce(classifiers.c.dimension, bindparam("length", type_=sa.Integer)),
    )
    .returning(classifiers.c.dimension)
)
_WANTED = (
    classes.c.tenant == bindparam("tenant"),
    classes.c.classifier == bindparam("classifier"),
    classes.c.label.in_(bindparam("labels", expanding=True)),
)
_CLASSES = select(*(classes.c[name] for name in ("label", "id", "sum", "weight", "examples"))).where(*_WANTED)
_KNOWN = (
    select(classes.c.label, examples.c.given_id, examples.c.id)
    .join(examples, (classes.c.tenant == examples.c.tenant) & (classes.c.id == examples.c["class"]))
    .where(*_WANTED, examples.c.given_id.in_(bindparam("given", expanding=True)))
)
_COUNT = (
    select(func.count())
    .where(classes.c.tenant == classifiers.c.tenant, classes.c.classifier == classifiers.c.id)
    .scalar_subquery()
    .label("classes")
)
_CLASSIFIERS = select(classifiers, _COUNT)
_WITH_CLASSES = classifiers.outerjoin(
    classes, (classes.c.tenant == classifiers.c.tenant) & (classes.c.classifier == classifiers.c.id)
)


def _of(table: Any, tenant: str) -> Any:
    """Return the condition that a row belongs to a tenant."""
    return table.c.tenant == tenant


def _check_id(classifier: str) -> None:
    if not ID.fullmatch(classifier):
        raise _no_classifier()


def _no_classifier() -> NotFoundError:
    """Make the error for a classifier that does not exist, or belongs to another tenant."""
    return NotFoundError("no such classifier here: list your classifiers")


def _lock(
    connection: sa.Connection, tenant: str, classifier: str, *, grow: int = 0, dimension: int | None = None
) -> int | None:
    """Make other writers of a classifier wait; change its version, and its dimension if it has none yet.

    Returns its dimension, None before the first example.
    """
    _check_id(classifier)
    asked = {"of_tenant": tenant, "of_id": classifier, "grow": grow, "length": dimension}
    row = connection.execute(_LOCK, asked).one_or_none()
    if row is None:
        raise _no_classifier()
    length: int | None = row.dimension
    return length


def _forget(
    connection: sa.Connection, classifier: str, row: Any, by: Key, action: str, example: str | None = None
) -> Forgotten:
    """Forget an example of a class, or all (None), and with the last one the class; `row`: its id and label.

    The audit log replaces the label of such a class by a random name, which still links its entries.
    """
    its = (_of(examples, by.tenant), examples.c["class"] == row.id)
    gone = its if example is None else (*its, examples.c.id == example)
    count = connection.execute(delete(examples).where(*gone)).rowcount
    left = connection.execute(select(examples.c.embedding, examples.c.weight).where(*its)).all()
    this, called = (_of(classes, by.tenant), classes.c.id == row.id), None
    if left:
        embeddings = np.frombuffer(b"".join(each.embedding for each in left), "<f4").reshape(len(left), -1)
        weights = np.array([each.weight for each in left], np.float64)
        prototype = _prototype(sum_weighted(embeddings, weights), float(weights.sum()), len(left))
        connection.execute(update(classes).where(*this).values(**prototype))
    else:
        connection.execute(delete(classes).where(*this))
        query = select(shares).where(_of(shares, by.tenant), shares.c.classifier == classifier)
        for each in connection.execute(query).all():  # histograms that name the class
            if row.label in Shares.model_validate_json(each.content).labels:
                connection.execute(delete(shares).where(_of(shares, by.tenant), shares.c.id == each.id))
        called = f"forgotten-{secrets.token_hex(4)}"
        lines = (_of(audit, by.tenant), audit.c.classifier == classifier, audit.c.label == row.label)
        connection.execute(update(audit).where(*lines).values(label=called))
    what = {"classifier": classifier, "label": called or row.label, "example": example}
    note(connection, by, action, examples=count, **what)
    return Forgotten(forgotten=count, logged_as=called)


def _drop(connection: sa.Connection, tenant: str, gone: Sequence[str], *lines: Any) -> int:
    """Delete classifiers, and labels from these lines of the audit log. Returns the number of examples."""
    mine = select(classes.c.id).where(_of(classes, tenant), classes.c.classifier.in_(gone))
    forgotten = connection.execute(
        delete(examples).where(_of(examples, tenant), examples.c["class"].in_(mine))
    ).rowcount
    for table in (classes, shares):
        connection.execute(delete(table).where(_of(table, tenant), table.c.classifier.in_(gone)))
    connection.execute(delete(classifiers).where(_of(classifiers, tenant), classifiers.c.id.in_(gone)))
    connection.execute(update(audit).where(_of(audit, tenant), *lines).values(label=None))
    return forgotten


def _check(new: Iterable[Example], dimension: int | None = None) -> None:
    """Raise DataError for an embedding or a weight that cannot be stored, or is of another dimension."""
    for example in new:
        vector = example.embedding
        if vector.ndim != 1 or not 1 <= len(vector) <= _DIMENSION:
            raise DataError(
                f"an embedding of shape {vector.shape}: it is one row of 1 to {_DIMENSION:,} numbers"
            )
        if not np.isfinite(vector.astype(np.float32)).all():
            raise DataError("an embedding is not finite: nothing was enrolled")
        if not 0 < example.weight < np.inf:
            raise DataError(f"a weight of {example.weight}: it must be above 0 and finite")
        if dimension not in (None, len(vector)):
            raise DataError(
                f"an embedding of {len(vector)} numbers, and this classifier has {dimension}: "
                "embed with the model that the classifier was made for"
            )


def _class_rows(
    connection: sa.Connection, tenant: str, classifier: str, labels: Iterable[str]
) -> dict[str, Any]:
    """Read id, sum, weight and examples of the classes with these labels, if they exist."""
    wanted = {"tenant": tenant, "classifier": classifier, "labels": list(labels)}
    return {row.label: row for row in connection.execute(_CLASSES, wanted)}


def _find_known(
    connection: sa.Connection, tenant: str, classifier: str, wanted: Mapping[str, Mapping[str, Example]]
) -> dict[str, dict[str, str]]:
    """Find, by label, given id and id of the wanted examples that its class has already."""
    asked = {"tenant": tenant, "classifier": classifier, "labels": list(wanted)}
    given = list({given_id for distinct in wanted.values() for given_id in distinct})
    found: dict[str, dict[str, str]] = {label: {} for label in wanted}
    for label, given_id, example in connection.execute(_KNOWN, asked | {"given": given}):
        if given_id in wanted[label]:
            found[label][given_id] = example
    return found


def _check_quota(connection: sa.Connection, by: Key, new: int) -> None:
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


def _prototype(total: np.ndarray, weight: float, count: int) -> dict[str, Any]:
    """Return the columns of a class that depend on its examples."""
    return {
        **{"sum": total.astype("<f8").tobytes(), "weight": weight, "examples": count},
        **{"vector": mean_of(total, weight)},
    }


def _prototypes(version: int, dimension: int, rows: Sequence[Any], *, sums: bool) -> Prototypes:
    """Make prototypes of rows: label, bytes of the sum or else of the mean, weight and examples."""
    labels, parts, weights, counts = zip(*rows, strict=True) if rows else ((), (), (), ())
    kind, weighed = "<f8" if sums else "<f4", np.array(weights, np.float64)
    vectors = np.frombuffer(bytearray().join(parts), kind).reshape(len(rows), dimension)
    if sums:
        vectors = (vectors / weighed[:, None]).astype(np.float32)
    return Prototypes(version, labels, vectors, counts, weighed)
