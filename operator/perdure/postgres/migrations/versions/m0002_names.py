"""The index by which runs are found by the name of their object, and the runs that clients have deleted a short time ago."""

from alembic import op

revision = "0002"
down_revision = "0001"

_CHANGES = """
CREATE INDEX runs_by_name ON perdure.runs (namespace, name, start_time DESC);

CREATE TABLE perdure.deleted (
    run_id text COLLATE "C" PRIMARY KEY,
    deleted_at timestamptz NOT NULL
);
"""


def upgrade() -> None:
    """Create them."""
    op.execute(_CHANGES)
