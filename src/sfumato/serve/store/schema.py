"""The tables of the store, the same ones in SQLite and PostgreSQL.

Every table names the tenant, and the keys between tables include it: a row cannot refer to another tenant's
row. There is no column for an image or a release. Times are seconds since 1970, UTC.
"""

from typing import Any

import numpy as np
from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine


class Vector(TypeDecorator[np.ndarray]):
    """(D,) float32: pgvector's type in PostgreSQL, the bytes (little-endian) in SQLite."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type for this database."""
        return dialect.type_descriptor(VECTOR() if dialect.name == "postgresql" else LargeBinary())

    def process_bind_param(self, value: np.ndarray | None, dialect: Dialect) -> Any:
        """Convert a value for the database."""
        return value if value is None or dialect.name == "postgresql" else value.astype("<f4").tobytes()


Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself in an INTEGER only

VERSION = 1  # of all tables together

metadata = MetaData()

versions = Table("sfumato_version", metadata, Column("version", Integer, primary_key=True))

tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created", Double, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),  # SHA-256 of the secret
    Column("role", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("rate", Integer),  # requests a minute; null: no limit
    Column("quota", Integer),  # examples stored at most; null: no limit
    Column("created", Double, nullable=False),
    Column("expires", Double),  # invalid from then on; null: never
    Column("revoked", Double),
    UniqueConstraint("tenant", "id"),
)

# The private key that signs answer tables, in one row: every process of the service uses it.
signing = Table(
    "signing",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("private", LargeBinary, nullable=False),  # of Ed25519, 32 bytes
)

classifiers = Table(
    "classifiers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("dimension", Integer),  # null until the first example
    UniqueConstraint("tenant", "id"),
    UniqueConstraint("tenant", "name"),
)

classes = Table(
    "classes",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("classifier", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("examples", Integer, nullable=False),
    Column("sum", LargeBinary, nullable=False),  # (D,) float64, little-endian: weighted sum of embeddings
    Column("weight", Double, nullable=False),  # sum of the weights
    Column("vector", Vector, nullable=False),  # sum / weight, to search in
    ForeignKeyConstraint(["tenant", "classifier"], ["classifiers.tenant", "classifiers.id"]),
    UniqueConstraint("tenant", "id"),
    UniqueConstraint("classifier", "label"),
)

examples = Table(
    "examples",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("class", Id, nullable=False),
    Column("key", Text, nullable=False),  # who enrolled it
    Column("given_id", Text, nullable=False),  # see Example
    Column("embedding", LargeBinary, nullable=False),  # (D,) float32, little-endian
    Column("weight", Double, nullable=False),
    Column("created", Double, nullable=False),
    ForeignKeyConstraint(["tenant", "class"], ["classes.tenant", "classes.id"]),
    ForeignKeyConstraint(["tenant", "key"], ["keys.tenant", "keys.id"]),
    UniqueConstraint("class", "given_id"),
    Index("examples_of_a_tenant", "tenant", "class"),
    Index("examples_of_a_key", "tenant", "key"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("time", Double, nullable=False),
    Column("key", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("classifier", Text),
    Column("label", Text),
    Column("example", Text),
    Column("examples", Integer, nullable=False),
    ForeignKeyConstraint(["tenant", "key"], ["keys.tenant", "keys.id"]),
    Index("audit_of_a_tenant", "tenant", "id"),
)
