"""The tables of the store, the same ones in SQLite and PostgreSQL.

Every table names the tenant, and the keys between tables include it: a row cannot refer to another tenant's
row. There is no column for an image or a release. Times are seconds since 1970, UTC.
"""

from typing import Any

import numpy as np
import sqlalchemy as sa
from pgvector.sqlalchemy import VECTOR


class Vector(sa.TypeDecorator[np.ndarray]):
    """(D,) float32: pgvector's type in PostgreSQL, the bytes (little-endian) in SQLite."""

    impl = sa.LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Return the type for this database."""
        return dialect.type_descriptor(VECTOR() if dialect.name == "postgresql" else sa.LargeBinary())

    def process_bind_param(self, value: np.ndarray | None, dialect: sa.Dialect) -> Any:
        """Convert a value for the database."""
        return value if value is None or dialect.name == "postgresql" else value.astype("<f4").tobytes()


Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers rows by itself in an INTEGER only


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _times(*names: str, nullable: bool = False) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Double, nullable=nullable) for name in names]


VERSION = 1  # of all tables together

metadata = sa.MetaData()

versions = sa.Table("sfumato_version", metadata, sa.Column("version", sa.Integer, primary_key=True))

tenants = sa.Table("tenants", metadata, sa.Column("name", sa.Text, primary_key=True), *_times("created"))

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),  # SHA-256 of the secret
    *_texts("role", "name"),
    sa.Column("rate", sa.Integer),  # requests a minute; null: no limit
    sa.Column("quota", sa.Integer),  # examples stored at most; null: no limit
    *_times("created"),
    *_times("expires", "revoked", nullable=True),  # invalid from then on; null: never
    sa.UniqueConstraint("tenant", "id"),
)

# The private key that signs answer tables, in one row: every process of the service uses it.
signing = sa.Table(
    "signing",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("private", sa.LargeBinary, nullable=False),  # of Ed25519, 32 bytes
)

classifiers = sa.Table(
    "classifiers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
    *_texts("name", "model"),
    *_times("created"),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("dimension", sa.Integer),  # null until the first example
    sa.UniqueConstraint("tenant", "id"),
    sa.UniqueConstraint("tenant", "name"),
)

classes = sa.Table(
    "classes",
    metadata,
    sa.Column("id", Id, primary_key=True),
    *_texts("tenant", "classifier", "label"),
    *_times("created"),
    sa.Column("examples", sa.Integer, nullable=False),
    sa.Column("sum", sa.LargeBinary, nullable=False),  # (D,) float64, little-endian, weighted
    sa.Column("weight", sa.Double, nullable=False),  # sum of the weights
    sa.Column("vector", Vector, nullable=False),  # sum / weight, to search in
    sa.ForeignKeyConstraint(["tenant", "classifier"], ["classifiers.tenant", "classifiers.id"]),
    sa.UniqueConstraint("tenant", "id"),
    sa.UniqueConstraint("classifier", "label"),
)

examples = sa.Table(
    "examples",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    *_texts("tenant"),
    sa.Column("class", Id, nullable=False),
    *_texts("key", "given_id"),  # who enrolled it; see Example
    sa.Column("embedding", sa.LargeBinary, nullable=False),  # (D,) float32, little-endian
    sa.Column("weight", sa.Double, nullable=False),
    *_times("created"),
    sa.ForeignKeyConstraint(["tenant", "class"], ["classes.tenant", "classes.id"]),
    sa.ForeignKeyConstraint(["tenant", "key"], ["keys.tenant", "keys.id"]),
    sa.UniqueConstraint("class", "given_id"),
    sa.Index("examples_of_a_tenant", "tenant", "class"),
    sa.Index("examples_of_a_key", "tenant", "key"),
)

shares = sa.Table(
    "shares",
    metadata,
    sa.Column("id", Id, primary_key=True),
    *_texts("tenant", "classifier", "key", "given_id", "content"),  # content: a message of Shares
    *_times("received"),
    sa.ForeignKeyConstraint(["tenant", "classifier"], ["classifiers.tenant", "classifiers.id"]),
    sa.ForeignKeyConstraint(["tenant", "key"], ["keys.tenant", "keys.id"]),
    sa.UniqueConstraint("classifier", "given_id"),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", Id, primary_key=True),
    *_texts("tenant"),
    *_times("time"),
    *_texts("key", "action"),
    *(sa.Column(name, sa.Text) for name in ("classifier", "label", "example")),
    sa.Column("examples", sa.Integer, nullable=False),
    sa.ForeignKeyConstraint(["tenant", "key"], ["keys.tenant", "keys.id"]),
    sa.Index("audit_of_a_tenant", "tenant", "id"),
)
