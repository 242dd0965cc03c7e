"""Classifiers of a tenant: their classes, the embeddings of examples, and who enrolled and forgot what."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np

from sfumato.errors import DataError, needs_extra
from sfumato.serve.store.database import Database
from sfumato.serve.store.errors import NotFoundError, QuotaError
from sfumato.serve.store.keys import Key
from sfumato.serve.store.rows import (
    ID,
    WITH_CLASSES,
    check_text,
    for_update,
    moment,
    named,
    new_id,
    no_classifier,
    now,
    of,
    storable,
)
from sfumato.serve.store.schema import audit, classes, classifiers, examples, keys
from sfumato.serve.store.search import drop_index
from sfumato.wire.messages import AuditLine, ClassifierInfo, ClassSummary, EnrolledExamples

with needs_extra("the store", "serve"):
    from sqlalchemy import Connection, delete, func, insert, select, update

Action = Literal[
    "create classifier", "delete classifier", "enrol", "forget example", "forget class", "forget everything"
]

_DIMENSION = 16_000  # the most that pgvector holds


@dataclass(frozen=True)
class Example:
    """What is kept of one released image: its digest, its embedding, and what that weighs in a prototype."""

    digest: str
    embedding: np.ndarray  # (D,) float32
    weight: float = 1.0


class Classifiers(Database):
    """Named sets of classes, each for the embeddings of one model; and the log of their changes."""

    def create_classifier(self, tenant: str, *, name: str, model: str, by: Key) -> ClassifierInfo:
        """Begin a classifier, without classes. Raises ConflictError where the tenant has one of that name."""
        check_text("name of a classifier", name)
        check_text("model", model)
        row: dict[str, Any] = {"id": new_id(), "name": name, "model": model, "created": now(), "version": 0}
        conflict = f"a classifier {name!r} already exists: use it, or choose another name"
        with self._conflicts(conflict), self._changing(tenant, by) as connection:
            connection.execute(insert(classifiers).values(tenant=tenant, **row))
            _note(connection, by, "create classifier", 0, classifier=row["id"])
        return _classifier(row)

    def classifier(self, tenant: str, classifier: str) -> ClassifierInfo:
        """The one with this id."""
        query = select(*_CLASSIFIER).where(*named(tenant, classifier))
        with self._reading() as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            raise no_classifier()
        return _classifier(row)

    def classifiers(self, tenant: str) -> list[ClassifierInfo]:
        """All of a tenant, the oldest first."""
        query = select(*_CLASSIFIER).where(of(classifiers, tenant))
        query = query.order_by(classifiers.c.created, classifiers.c.id)
        with self._reading() as connection:
            return [_classifier(row) for row in connection.execute(query).mappings()]

    def delete_classifier(self, tenant: str, classifier: str, *, by: Key) -> int:
        """Forget a classifier with all its classes. Returns how many examples were forgotten."""
        with self._forgetting(tenant, by) as connection:
            _lock(connection, tenant, classifier)
            forgotten = _drop(connection, tenant, [classifier])
            _note(connection, by, "delete classifier", forgotten, classifier=classifier)
        self._drop_indices([classifier])
        return forgotten

    def enrol(
        self, tenant: str, classifier: str, label: str, examples: Sequence[Example], *, by: Key
    ) -> EnrolledExamples:
        """Add examples to a class, and begin the class where it is new: all of them, or none.

        The prototype is the weighted mean of the embeddings. An example whose digest the class has already is
        left as it is, so that the same call can be sent again.

        Args:
            tenant, classifier: where.
            label: of the class, 1 to 200 characters.
            examples: with finite embeddings, as long as all others of the classifier, and weights above 0.
            by: whose examples they are.

        Returns:
            Ids: of the new examples, in order, then of those that were known.

        Raises:
            DataError: a label or an embedding that cannot be.
            QuotaError: the key would pass its quota.
        """
        check_text("label", label)
        distinct = {example.digest: example for example in examples}
        for example in distinct.values():
            _check(example)
        with self._changing(tenant, by) as connection:
            if by.quota is not None:  # two calls of one key, for two classifiers, take turns
                mine = (of(keys, tenant), keys.c.id == by.id)
                connection.execute(for_update(select(keys.c.id).where(*mine)))
            dimension = _lock(connection, tenant, classifier)
            class_row = _class_row(connection, tenant, classifier, label)
            known = {} if class_row is None else _known(connection, tenant, class_row.id, distinct)
            new = [example for digest, example in distinct.items() if digest not in known]
            ids: list[str] = []
            if new:
                dimension = _common_dimension(new, dimension)
                _check_quota(connection, by, len(new))
                class_id = _add_to_class(connection, tenant, classifier, label, class_row, new)
                ids = _insert(connection, tenant, class_id, new, by)
                _grow(connection, tenant, classifier, dimension=dimension)
                _note(connection, by, "enrol", len(new), classifier=classifier, label=label)
        return EnrolledExamples(new=len(ids), known=len(known), examples=[*ids, *known.values()])

    def classes(self, tenant: str, classifier: str) -> list[ClassSummary]:
        """The classes of a classifier, the oldest first."""
        # Without classes, one row of nulls.
        query = (
            select(classes.c.label, classes.c.examples, classes.c.created)
            .select_from(WITH_CLASSES)
            .where(*named(tenant, classifier))
            .order_by(classes.c.id)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
        if not rows:
            raise no_classifier()
        return [
            ClassSummary(label=label, examples=count, created=moment(created))
            for label, count, created in rows
            if label is not None
        ]

    def forget_example(self, tenant: str, classifier: str, example: str, *, by: Key) -> int:
        """Forget one example: 1. Its class goes with the last.

        The prototype is computed anew from the examples that are left, so that nothing of this one stays in
        it, as it would by rounding if it were subtracted.
        """
        with self._forgetting(tenant, by) as connection:
            _lock(connection, tenant, classifier)
            query = (
                select(classes.c.id, classes.c.label)
                .join(examples, of(examples, tenant) & (examples.c["class"] == classes.c.id))
                .where(of(classes, tenant), classes.c.classifier == classifier, examples.c.id == example)
            )
            row = connection.execute(query).one_or_none() if ID.fullmatch(example) else None
            if row is None:
                raise NotFoundError("no such example in this classifier")
            connection.execute(delete(examples).where(of(examples, tenant), examples.c.id == example))
            _recompute(connection, tenant, row.id)
            _grow(connection, tenant, classifier)
            what = {"classifier": classifier, "label": row.label, "example": example}
            _note(connection, by, "forget example", 1, **what)
        return 1

    def forget_class(self, tenant: str, classifier: str, label: str, *, by: Key) -> int:
        """Forget a class. Returns how many examples were forgotten.

        The audit log names it still, until `forget_everything`.
        """
        with self._forgetting(tenant, by) as connection:
            _lock(connection, tenant, classifier)
            row = _class_row(connection, tenant, classifier, label) if storable(label) else None
            if row is None:
                raise NotFoundError("no such class in this classifier: list those there are")
            gone = delete(examples).where(of(examples, tenant), examples.c["class"] == row.id)
            forgotten = connection.execute(gone).rowcount
            connection.execute(delete(classes).where(of(classes, tenant), classes.c.id == row.id))
            _grow(connection, tenant, classifier)
            _note(connection, by, "forget class", forgotten, classifier=classifier, label=label)
        return forgotten

    def forget_everything(self, tenant: str, *, by: Key) -> int:
        """Forget all classifiers of a tenant, and the labels in its audit log. Returns how many examples.

        Its keys stay, and so do the entries of its audit log, which name no class any more.
        """
        with self._forgetting(tenant, by) as connection:
            query = select(classifiers.c.id).where(of(classifiers, tenant)).order_by(classifiers.c.id)
            mine = list(connection.scalars(for_update(query)))
            forgotten = _drop(connection, tenant, mine)
            connection.execute(update(audit).where(of(audit, tenant)).values(label=None))
            _note(connection, by, "forget everything", forgotten)
        self._drop_indices(mine)
        return forgotten

    def audit(self, tenant: str, *, since: datetime | None = None, most: int = 1000) -> list[AuditLine]:
        """Who changed what, the newest first, and no more than `most` entries.

        An entry has no label where it is about no class, or everything was forgotten since; its `examples`
        are how many were enrolled or forgotten.
        """
        query = select(audit).where(of(audit, tenant))
        if since is not None:
            query = query.where(audit.c.time >= since.timestamp())
        with self._reading() as connection:
            rows = connection.execute(query.order_by(audit.c.id.desc()).limit(most)).mappings().all()
        return [AuditLine(**{**row, "time": moment(row["time"])}) for row in rows]

    @contextmanager
    def _changing(self, tenant: str, by: Key) -> Iterator[Connection]:
        """A transaction that changes something of a tenant, by one of its keys."""
        if by.tenant != tenant:
            raise NotFoundError(f"no key {by.id!r} in this tenant")
        with self._writing() as connection:
            yield connection

    @contextmanager
    def _forgetting(self, tenant: str, by: Key) -> Iterator[Connection]:
        """As _changing; and afterwards nothing of what was forgotten is in the file of SQLite's log."""
        with self._changing(tenant, by) as connection:
            yield connection
        self._empty_log()

    def _drop_indices(self, gone: Sequence[str]) -> None:
        if self._postgresql:
            with self._outside_transactions() as connection:
                for classifier in gone:
                    connection.execute(drop_index(classifier))


_CLASSIFIER = [classifiers.c[name] for name in ("id", "name", "model", "created", "version")]


def _classifier(row: Any) -> ClassifierInfo:
    return ClassifierInfo(**{**row, "created": moment(row["created"])})


def _lock(connection: Connection, tenant: str, classifier: str) -> int | None:
    """Make other writers of this classifier wait. Returns its dimension; None before the first example."""
    query = select(classifiers.c.dimension).where(*named(tenant, classifier))
    row = connection.execute(for_update(query)).one_or_none()
    if row is None:
        raise no_classifier()
    return row.dimension  # type: ignore[no-any-return]


def _grow(connection: Connection, tenant: str, classifier: str, **values: Any) -> None:
    connection.execute(
        update(classifiers)
        .where(*named(tenant, classifier))
        .values(version=classifiers.c.version + 1, **values)
    )


def _note(connection: Connection, by: Key, action: Action, count: int, **what: str) -> None:
    row = {"tenant": by.tenant, "time": now(), "key": by.id, "action": action, "examples": count}
    connection.execute(insert(audit).values(**row, **what))


def _class_row(connection: Connection, tenant: str, classifier: str, label: str) -> Any:
    """Id, sum, weight and examples of a class; None where there is none of that label."""
    return connection.execute(
        select(classes.c.id, classes.c.sum, classes.c.weight, classes.c.examples).where(
            of(classes, tenant), classes.c.classifier == classifier, classes.c.label == label
        )
    ).one_or_none()


def _known(
    connection: Connection, tenant: str, class_id: int, distinct: dict[str, Example]
) -> dict[str, str]:
    """Digest and id of the examples that a class has already."""
    query = select(examples.c.digest, examples.c.id).where(
        of(examples, tenant), examples.c["class"] == class_id, examples.c.digest.in_(distinct)
    )
    return {row.digest: row.id for row in connection.execute(query)}


def _common_dimension(new: Sequence[Example], dimension: int | None) -> int:
    """The dimension of a classifier with new examples; `dimension`: of those that it has."""
    dimension = dimension or len(new[0].embedding)
    for example in new:
        if len(example.embedding) != dimension:
            raise DataError(
                f"an embedding of {len(example.embedding)} numbers, where this classifier has {dimension}: "
                "embed with the model that the classifier was made for"
            )
    return dimension


def _check_quota(connection: Connection, by: Key, new: int) -> None:
    if by.quota is None:
        return
    mine = connection.scalar(
        select(func.count()).select_from(examples).where(of(examples, by.tenant), examples.c.key == by.id)
    )
    assert mine is not None
    if mine + new > by.quota:
        raise QuotaError(
            f"{new} new examples, where {max(by.quota - mine, 0)} of the {by.quota} of this key are "
            "left: forget some, or ask the operator for a key with a larger quota"
        )


def _add_to_class(
    connection: Connection, tenant: str, classifier: str, label: str, row: Any, new: Sequence[Example]
) -> int:
    """Add examples to the prototype of a class; `row`: its _class_row, None to begin it. Returns its id."""
    embeddings = np.stack([example.embedding for example in new]).astype(np.float64)  # (K, D)
    weights = np.array([example.weight for example in new], np.float64)
    total, weight, count = weights @ embeddings, float(weights.sum()), len(new)
    if row is None:
        values = {"tenant": tenant, "classifier": classifier, "label": label, "created": now()}
        values |= _prototype(total, weight, count)
        return connection.execute(insert(classes).values(**values).returning(classes.c.id)).scalar_one()  # type: ignore[no-any-return]
    total = total + np.frombuffer(row.sum, "<f8")
    prototype = _prototype(total, weight + row.weight, count + row.examples)
    connection.execute(update(classes).where(of(classes, tenant), classes.c.id == row.id).values(**prototype))
    return row.id  # type: ignore[no-any-return]


def _insert(connection: Connection, tenant: str, class_id: int, new: Sequence[Example], by: Key) -> list[str]:
    """Keep examples. Returns their ids."""
    created = now()
    rows: list[dict[str, Any]] = [
        {
            **{"id": new_id(), "tenant": tenant, "class": class_id, "key": by.id, "digest": example.digest},
            **{"embedding": example.embedding.astype("<f4").tobytes()},
            **{"weight": float(example.weight), "created": created},
        }
        for example in new
    ]
    connection.execute(insert(examples), rows)
    return [row["id"] for row in rows]


def _prototype(total: np.ndarray, weight: float, count: int) -> dict[str, Any]:
    """The columns of a class that depend on its examples."""
    return {
        **{"sum": total.astype("<f8").tobytes(), "weight": weight, "examples": count},
        **{"vector": (total / weight).astype(np.float32)},
    }


def _recompute(connection: Connection, tenant: str, class_id: int) -> None:
    """Make the prototype of a class from its examples; the class goes where there are none."""
    rows = connection.execute(
        select(examples.c.embedding, examples.c.weight).where(
            of(examples, tenant), examples.c["class"] == class_id
        )
    ).all()
    this = (of(classes, tenant), classes.c.id == class_id)
    if not rows:
        connection.execute(delete(classes).where(*this))
        return
    embeddings = np.frombuffer(b"".join(row.embedding for row in rows), "<f4").reshape(len(rows), -1)
    weights = np.array([row.weight for row in rows], np.float64)
    prototype = _prototype(weights @ embeddings.astype(np.float64), float(weights.sum()), len(rows))
    connection.execute(update(classes).where(*this).values(**prototype))


def _drop(connection: Connection, tenant: str, gone: Sequence[str]) -> int:
    """Delete classifiers with all they have. Returns how many examples that were."""
    mine = select(classes.c.id).where(of(classes, tenant), classes.c.classifier.in_(gone))
    forgotten = connection.execute(
        delete(examples).where(of(examples, tenant), examples.c["class"].in_(mine))
    ).rowcount
    connection.execute(delete(classes).where(of(classes, tenant), classes.c.classifier.in_(gone)))
    connection.execute(delete(classifiers).where(of(classifiers, tenant), classifiers.c.id.in_(gone)))
    return forgotten


def _check(example: Example) -> None:
    vector = example.embedding
    if vector.ndim != 1 or not 1 <= len(vector) <= _DIMENSION:
        raise DataError(f"an embedding of shape {vector.shape}: it is one row of 1 to {_DIMENSION:,} numbers")
    if not np.isfinite(vector.astype(np.float32)).all():
        raise DataError("an embedding that is not finite: nothing was enrolled")
    if not 0 < example.weight < np.inf:
        raise DataError(f"a weight of {example.weight}: it is above 0 and finite")
