"""Classifiers of a tenant: their classes, the embeddings of examples, and the log of changes."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sfumato.errors import needs_extra
from sfumato.serve.store import examples as stored
from sfumato.serve.store.database import Database
from sfumato.serve.store.errors import NotFoundError
from sfumato.serve.store.examples import Example
from sfumato.serve.store.journal import note, note_each
from sfumato.serve.store.rows import (
    ID,
    WITH_CLASSES,
    Key,
    check_id,
    check_new_name,
    check_text,
    for_update,
    is_classifier,
    moment,
    new_id,
    no_classifier,
    now,
    of,
    storable,
)
from sfumato.serve.store.schema import audit, classes, classifiers, examples, keys
from sfumato.serve.store.search import drop_index
from sfumato.wire.messages import AuditLine, ClassifierInfo, ClassSummary, EnrolledExamples, Forgotten

with needs_extra("the store", "serve"):
    from sqlalchemy import Connection, bindparam, delete, func, insert, select, update


class Classifiers(Database):
    """Named sets of classes, each for the embeddings of one model; and the log of their changes."""

    def create_classifier(self, tenant: str, *, name: str, model: str, by: Key) -> ClassifierInfo:
        """Create a classifier without classes. Raises ConflictError if the tenant has one of that name."""
        check_new_name("name of a classifier", name, [each.name for each in self.classifiers(tenant)])
        check_text("model", model)
        row: dict[str, Any] = {"id": new_id(), "name": name, "model": model, "created": now(), "version": 0}
        conflict = f"a classifier {name!r} already exists: use it, or choose another name"
        with self._conflicts(conflict), self._changing(tenant, by) as connection:
            connection.execute(insert(classifiers).values(tenant=tenant, **row))
            note(connection, by, "create classifier", 0, classifier=row["id"])
        return _classifier(row | {"classes": 0})

    def classifier(self, tenant: str, classifier: str) -> ClassifierInfo:
        """Return the classifier with this id, or else of this name."""
        called = (classifiers.c.id == classifier) | (classifiers.c.name == classifier)
        query = select(*_CLASSIFIER).where(of(classifiers, tenant), called)
        with self._reading() as connection:
            rows = connection.execute(query).mappings().all() if storable(classifier) else []
        if not rows:
            raise no_classifier()
        return _classifier(min(rows, key=lambda row: row["id"] != classifier))

    def classifiers(self, tenant: str) -> list[ClassifierInfo]:
        """List the classifiers of a tenant, the oldest first."""
        query = select(*_CLASSIFIER).where(of(classifiers, tenant))
        query = query.order_by(classifiers.c.created, classifiers.c.id)
        with self._reading() as connection:
            return [_classifier(row) for row in connection.execute(query).mappings()]

    def delete_classifier(self, tenant: str, classifier: str, *, by: Key) -> Forgotten:
        """Forget a classifier with all its classes, and remove their labels from the audit log."""
        with self._forgetting(tenant, by) as connection:
            _lock(connection, tenant, classifier)
            forgotten = _drop(connection, tenant, [classifier])
            connection.execute(update(audit).where(*_entries_of(tenant, classifier)).values(label=None))
            note(connection, by, "delete classifier", forgotten, classifier=classifier)
        self._drop_indices([classifier])
        return Forgotten(forgotten=forgotten)

    def enrol(
        self, tenant: str, classifier: str, label: str, examples: Sequence[Example], *, by: Key
    ) -> EnrolledExamples:
        """Add examples to a class: see enrol_many.

        Returns:
            counts, and ids: of the new examples, in order, then of the known ones.
        """
        return self.enrol_many(tenant, classifier, {label: examples}, by=by)[label]

    def enrol_many(
        self, tenant: str, classifier: str, given: Mapping[str, Sequence[Example]], *, by: Key
    ) -> dict[str, EnrolledExamples]:
        """Add examples to classes, and create new classes: all of them, or none, in one transaction.

        The prototype is the weighted mean of the embeddings. An example with a given id that its class has is
        left unchanged, so that it is safe to repeat the call.

        Args:
            tenant, classifier: the classifier.
            given: examples by label, of 1 to 200 characters; their embeddings are finite and as long as all
                others of the classifier, their weights above 0.
            by: the key that enrols them.

        Returns:
            for each label, counts that add up to the given examples, and ids: of the new examples, in order,
            then of the known ones.

        Raises:
            DataError: an invalid label or embedding.
            QuotaError: the key would pass its quota.
        """
        wanted = {label: {example.given_id: example for example in each} for label, each in given.items()}
        for label, distinct in wanted.items():
            check_text("label", label)
            for example in distinct.values():
                stored.check(example)
        with self._changing(tenant, by) as connection:
            if by.quota is not None:  # two calls of one key, for two classifiers, take turns
                mine = (of(keys, tenant), keys.c.id == by.id)
                connection.execute(for_update(select(keys.c.id).where(*mine)))
            locked = _lock(connection, tenant, classifier)
            there = stored.class_rows(connection, tenant, classifier, wanted)
            known = stored.find_known(connection, tenant, there, wanted)
            new = {
                label: fresh
                for label, distinct in wanted.items()
                if (fresh := [one for name, one in distinct.items() if name not in known[label]])
            }
            ids: dict[str, list[str]] = {}
            if new:
                every = [example for each in new.values() for example in each]
                dimension = stored.common_dimension(every, locked.dimension)
                stored.check_quota(connection, by, len(every))
                version = locked.version + 1
                class_ids = stored.add_to_classes(connection, tenant, classifier, there, new, version=version)
                ids = stored.keep(connection, tenant, class_ids, new, by)
                _grow(connection, tenant, classifier, version=version, dimension=dimension)
                entries = [{"label": label, "examples": len(each)} for label, each in new.items()]
                note_each(connection, by, "enrol", entries, classifier=classifier)
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
        # A classifier without classes gives one row of nulls.
        query = (
            select(classes.c.label, classes.c.examples, classes.c.created)
            .select_from(WITH_CLASSES)
            .where(*is_classifier(tenant, classifier))
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

    def forget_example(self, tenant: str, classifier: str, example: str, *, by: Key) -> Forgotten:
        """Forget one example. The last one takes its class with it, see forget_class.

        The prototype is recomputed from the remaining examples: after a subtraction, rounding would leave a
        trace of this one.
        """
        with self._forgetting(tenant, by) as connection:
            version = _lock(connection, tenant, classifier).version + 1
            query = (
                select(classes.c.id, classes.c.label)
                .join(examples, of(examples, tenant) & (examples.c["class"] == classes.c.id))
                .where(of(classes, tenant), classes.c.classifier == classifier, examples.c.id == example)
            )
            row = connection.execute(query).one_or_none() if ID.fullmatch(example) else None
            if row is None:
                raise NotFoundError("no such example in this classifier")
            connection.execute(delete(examples).where(of(examples, tenant), examples.c.id == example))
            left = stored.recompute(connection, tenant, row.id, version=version)
            gone = {} if left else {"forgotten": version}
            _grow(connection, tenant, classifier, version=version, **gone)
            called = None if left else _rename(connection, tenant, classifier, row.label)
            what = {"classifier": classifier, "label": called or row.label, "example": example}
            note(connection, by, "forget example", 1, **what)
        return Forgotten(forgotten=1, logged_as=called)

    def forget_class(self, tenant: str, classifier: str, label: str, *, by: Key) -> Forgotten:
        """Forget a class with its examples; the audit log replaces its label by a random name."""
        with self._forgetting(tenant, by) as connection:
            version = _lock(connection, tenant, classifier).version + 1
            there = stored.class_rows(connection, tenant, classifier, [label] if storable(label) else [])
            if label not in there:
                raise NotFoundError("no such class in this classifier: list its classes")
            gone = delete(examples).where(of(examples, tenant), examples.c["class"] == there[label].id)
            forgotten = connection.execute(gone).rowcount
            connection.execute(delete(classes).where(of(classes, tenant), classes.c.id == there[label].id))
            _grow(connection, tenant, classifier, version=version, forgotten=version)
            called = _rename(connection, tenant, classifier, label)
            note(connection, by, "forget class", forgotten, classifier=classifier, label=called)
        return Forgotten(forgotten=forgotten, logged_as=called)

    def forget_everything(self, tenant: str, *, by: Key) -> Forgotten:
        """Forget all classifiers of a tenant, and the labels in its audit log.

        Its keys and the entries of its audit log stay; they name no class any more.
        """
        with self._forgetting(tenant, by) as connection:
            query = select(classifiers.c.id).where(of(classifiers, tenant)).order_by(classifiers.c.id)
            mine = list(connection.scalars(for_update(query)))
            forgotten = _drop(connection, tenant, mine)
            connection.execute(update(audit).where(of(audit, tenant)).values(label=None))
            note(connection, by, "forget everything", forgotten)
        self._drop_indices(mine)
        return Forgotten(forgotten=forgotten)

    def audit(self, tenant: str, *, since: datetime | None = None, most: int = 1000) -> list[AuditLine]:
        """List the changes and who made them, the newest first, at most `most` entries.

        An entry has no label if it concerns no class, or if its classifier was deleted since; a forgotten
        class has a random name. `examples` is the number enrolled or forgotten.
        """
        query = select(audit).where(of(audit, tenant))
        if since is not None:
            query = query.where(audit.c.time >= since.timestamp())
        with self._reading() as connection:
            rows = connection.execute(query.order_by(audit.c.id.desc()).limit(most)).mappings().all()
        return [AuditLine(**{**row, "time": moment(row["time"])}) for row in rows]

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
        with self._tidying():
            self._empty_log()

    def _drop_indices(self, gone: Sequence[str]) -> None:
        if self._postgresql:
            with self._tidying(), self._outside_transactions() as connection:
                for classifier in gone:
                    connection.execute(drop_index(classifier))


_LOCK = for_update(  # built once, like the statements of `stored`
    select(classifiers.c.dimension, classifiers.c.version).where(
        classifiers.c.tenant == bindparam("of_tenant"), classifiers.c.id == bindparam("of_classifier")
    )
)
_CLASSES = (
    select(func.count())
    .where(classes.c.tenant == classifiers.c.tenant, classes.c.classifier == classifiers.c.id)
    .scalar_subquery()
)
_CLASSIFIER = [
    *(classifiers.c[name] for name in ("id", "name", "model", "created", "version")),
    _CLASSES.label("classes"),
]


def _classifier(row: Any) -> ClassifierInfo:
    return ClassifierInfo(**{**row, "created": moment(row["created"])})


def _lock(connection: Connection, tenant: str, classifier: str) -> Any:
    """Make other writers of a classifier wait. Returns its version, and its dimension (None at first)."""
    check_id(classifier)
    asked = {"of_tenant": tenant, "of_classifier": classifier}
    row = connection.execute(_LOCK, asked).one_or_none()
    if row is None:
        raise no_classifier()
    return row


def _entries_of(tenant: str, classifier: str) -> tuple[Any, Any]:
    """Return the condition for the entries of one classifier in the audit log."""
    return of(audit, tenant), audit.c.classifier == classifier


def _rename(connection: Connection, tenant: str, classifier: str, label: str) -> str:
    """Replace a class in the audit log by a random name, which still links its entries."""
    called = f"forgotten-{secrets.token_hex(4)}"
    its = (*_entries_of(tenant, classifier), audit.c.label == label)
    connection.execute(update(audit).where(*its).values(label=called))
    return called


def _grow(connection: Connection, tenant: str, classifier: str, **values: int) -> None:
    """Update a classifier: its version and other columns."""
    connection.execute(update(classifiers).where(*is_classifier(tenant, classifier)).values(**values))


def _drop(connection: Connection, tenant: str, gone: Sequence[str]) -> int:
    """Delete classifiers with all they contain. Returns the number of examples."""
    mine = select(classes.c.id).where(of(classes, tenant), classes.c.classifier.in_(gone))
    forgotten = connection.execute(
        delete(examples).where(of(examples, tenant), examples.c["class"].in_(mine))
    ).rowcount
    connection.execute(delete(classes).where(of(classes, tenant), classes.c.classifier.in_(gone)))
    connection.execute(delete(classifiers).where(of(classifiers, tenant), classifiers.c.id.in_(gone)))
    return forgotten
