"""Examples in the tables, and the prototypes computed from them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.errors import DataError, needs_extra
from sfumato.learn.gallery import mean_of, sum_weighted
from sfumato.serve.store.errors import QuotaError
from sfumato.serve.store.rows import Key, new_id, now, of
from sfumato.serve.store.schema import classes, examples

with needs_extra("the store", "serve"):
    from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

_DIMENSION = 16_000  # the most that pgvector holds

# Built once: building statements takes as long as running them.
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
_OF_A_CLASS = (classes.c.tenant == bindparam("of_tenant"), classes.c.id == bindparam("of_id"))
_UPDATE = (
    update(classes)
    .where(*_OF_A_CLASS)
    .values(
        {name: bindparam(f"new_{name}") for name in ("sum", "weight", "examples", "vector", "version")},
    )
)


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


def check(example: Example) -> None:
    """Raise DataError for an embedding or a weight that cannot be stored."""
    vector = example.embedding
    if vector.ndim != 1 or not 1 <= len(vector) <= _DIMENSION:
        raise DataError(f"an embedding of shape {vector.shape}: it is one row of 1 to {_DIMENSION:,} numbers")
    if not np.isfinite(vector.astype(np.float32)).all():
        raise DataError("an embedding is not finite: nothing was enrolled")
    if not 0 < example.weight < np.inf:
        raise DataError(f"a weight of {example.weight}: it must be above 0 and finite")


def class_rows(connection: Connection, tenant: str, classifier: str, labels: Iterable[str]) -> dict[str, Any]:
    """Read id, sum, weight and examples of the classes with these labels, if they exist."""
    wanted = {"tenant": tenant, "classifier": classifier, "labels": list(labels)}
    return {row.label: row for row in connection.execute(_CLASSES, wanted)}


def find_known(
    connection: Connection, tenant: str, rows: Mapping[str, Any], wanted: Mapping[str, Mapping[str, Example]]
) -> dict[str, dict[str, str]]:
    """Find, by label, given id and id of the wanted examples that the class already has.

    Args:
        connection, tenant: the transaction and the tenant.
        rows: from `class_rows`.
        wanted: examples by given id, by label.
    """
    found: dict[str, dict[str, str]] = {label: {} for label in wanted}
    if rows:
        labels = {row.id: label for label, row in rows.items()}
        given = list({given_id for label in rows for given_id in wanted[label]})
        asked = {"tenant": tenant, "classes": list(labels), "given": given}
        for class_id, given_id, example in connection.execute(_KNOWN, asked):
            if given_id in wanted[labels[class_id]]:
                found[labels[class_id]][given_id] = example
    return found


def common_dimension(new: Iterable[Example], dimension: int | None) -> int:
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


def check_quota(connection: Connection, by: Key, new: int) -> None:
    """Raise QuotaError if a key would pass its quota with the new examples."""
    if by.quota is None:
        return
    mine = connection.scalar(
        select(func.count()).select_from(examples).where(of(examples, by.tenant), examples.c.key == by.id)
    )
    assert mine is not None
    if mine + new > by.quota:
        raise QuotaError(
            f"{new} new examples, but only {max(by.quota - mine, 0)} of the {by.quota} of this key are left: "
            "forget some, or ask the operator for a key with a larger quota"
        )


def add_to_classes(
    connection: Connection,
    tenant: str,
    classifier: str,
    rows: Mapping[str, Any],
    new: Mapping[str, Sequence[Example]],
    *,
    version: int,
) -> dict[str, int]:
    """Add examples to the prototypes of their classes, and create new classes.

    Args:
        connection, tenant, classifier: the transaction and the classifier.
        rows: from `class_rows`.
        new: examples by label, at least one each.
        version: the new version of the classifier.

    Returns:
        the id of each class.
    """
    begun, changed = [], []
    for label, given in new.items():
        embeddings = np.stack([example.embedding for example in given])  # (K, D)
        weights = np.array([example.weight for example in given], np.float64)
        total, weight, count = sum_weighted(embeddings, weights), float(weights.sum()), len(given)
        row = rows.get(label)
        if row is None:
            own = {"tenant": tenant, "classifier": classifier, "label": label, "created": now()}
            begun.append(own | {"version": version} | _prototype(total, weight, count))
        else:
            total = total + np.frombuffer(row.sum, "<f8")
            columns = _prototype(total, weight + row.weight, count + row.examples) | {"version": version}
            told = {f"new_{name}": value for name, value in columns.items()}
            changed.append({"of_tenant": tenant, "of_id": row.id} | told)
    ids = {label: row.id for label, row in rows.items()}
    if begun:
        inserted = connection.execute(insert(classes).returning(classes.c.label, classes.c.id), begun)
        ids.update((row.label, row.id) for row in inserted)
    if changed:
        connection.execute(_UPDATE, changed)
    return ids


def keep(
    connection: Connection,
    tenant: str,
    ids: Mapping[str, int],
    new: Mapping[str, Sequence[Example]],
    by: Key,
) -> dict[str, list[str]]:
    """Store examples by label; `ids`: of the classes. Returns the ids of the examples."""
    created = now()
    rows: dict[str, list[dict[str, Any]]] = {
        label: [
            {
                **{"id": new_id(), "tenant": tenant, "class": ids[label], "key": by.id},
                **{"given_id": example.given_id, "embedding": example.embedding.astype("<f4").tobytes()},
                **{"weight": float(example.weight), "created": created},
            }
            for example in given
        ]
        for label, given in new.items()
    }
    connection.execute(insert(examples), [row for each in rows.values() for row in each])
    return {label: [row["id"] for row in each] for label, each in rows.items()}


def recompute(connection: Connection, tenant: str, class_id: int, *, version: int) -> bool:
    """Recompute the prototype of a class from its examples. Without any, delete the class, return False."""
    rows = connection.execute(
        select(examples.c.embedding, examples.c.weight).where(
            of(examples, tenant), examples.c["class"] == class_id
        )
    ).all()
    this = (of(classes, tenant), classes.c.id == class_id)
    if not rows:
        connection.execute(delete(classes).where(*this))
        return False
    embeddings = np.frombuffer(b"".join(row.embedding for row in rows), "<f4").reshape(len(rows), -1)
    weights = np.array([row.weight for row in rows], np.float64)
    prototype = _prototype(sum_weighted(embeddings, weights), float(weights.sum()), len(rows))
    connection.execute(update(classes).where(*this).values(**prototype, version=version))
    return True


def _prototype(total: np.ndarray, weight: float, count: int) -> dict[str, Any]:
    """Return the columns of a class that depend on its examples."""
    return {
        **{"sum": total.astype("<f8").tobytes(), "weight": weight, "examples": count},
        **{"vector": mean_of(total, weight)},
    }
