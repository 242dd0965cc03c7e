"""By which version of its classifier a class was changed last, so that only what is newer need be read."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Of what is there already, nobody has kept anything: any version will do."""
    op.add_column("classifiers", sa.Column("forgotten", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("classes", sa.Column("version", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("classes_by_version", "classes", ["classifier", "version"])
