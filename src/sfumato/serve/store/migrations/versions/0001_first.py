"""The first tables."""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import VECTOR

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make them."""
    postgresql = op.get_bind().dialect.name == "postgresql"
    if postgresql:
        op.execute("create extension if not exists vector")
    op.create_table(
        "tenants",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("rate", sa.Integer),
        sa.Column("quota", sa.Integer),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double),
        sa.Column("revoked", sa.Double),
        sa.UniqueConstraint("tenant", "id"),
    )
    op.create_table(
        "windows",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("used", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(["tenant", "key"], ["keys.tenant", "keys.id"]),
    )
    op.create_table(
        "classifiers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("dimension", sa.Integer),
        sa.UniqueConstraint("tenant", "id"),
        sa.UniqueConstraint("tenant", "name"),
    )
    op.create_table(
        "classes",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("classifier", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("examples", sa.Integer, nullable=False),
        sa.Column("sum", sa.LargeBinary, nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        sa.Column("vector", VECTOR() if postgresql else sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(["tenant", "classifier"], ["classifiers.tenant", "classifiers.id"]),
        sa.UniqueConstraint("tenant", "id"),
        sa.UniqueConstraint("classifier", "label"),
    )
    op.create_table(
        "examples",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("class", _ID, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("given_id", sa.Text, nullable=False),
        sa.Column("embedding", sa.LargeBinary, nullable=False),
        sa.Column("weight", sa.Double, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["tenant", "class"], ["classes.tenant", "classes.id"]),
        sa.ForeignKeyConstraint(["tenant", "key"], ["keys.tenant", "keys.id"]),
        sa.UniqueConstraint("class", "given_id"),
    )
    op.create_index("examples_of_a_tenant", "examples", ["tenant", "class"])
    op.create_index("examples_of_a_key", "examples", ["tenant", "key"])
    op.create_table(
        "audit",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("classifier", sa.Text),
        sa.Column("label", sa.Text),
        sa.Column("example", sa.Text),
        sa.Column("examples", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(["tenant", "key"], ["keys.tenant", "keys.id"]),
    )
    op.create_index("audit_of_a_tenant", "audit", ["tenant", "id"])
