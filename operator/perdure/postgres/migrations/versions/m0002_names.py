"""The index by which runs are found by the name of their object."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the index."""
    op.execute("CREATE INDEX runs_by_name ON perdure.runs (namespace, name, start_time DESC)")
