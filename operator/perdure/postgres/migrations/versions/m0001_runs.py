"""The table of finished runs, in partitions by the month of their end."""

from alembic import op

revision = "0001"
down_revision = None

_TABLES = """
CREATE TABLE perdure.runs (
    namespace text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    closed_at timestamptz NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    workflow_type text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    failure text NOT NULL,
    start_time timestamptz NOT NULL,
    execution_time timestamptz NOT NULL,
    duration_ns numeric NOT NULL,
    task_queue text COLLATE "C" NOT NULL,
    history_length bigint NOT NULL,
    history_size bigint NOT NULL,
    parent_workflow_id text COLLATE "C",
    parent_run_id text COLLATE "C",
    root_workflow_id text COLLATE "C" NOT NULL,
    root_run_id text COLLATE "C" NOT NULL,
    first_run_id text COLLATE "C" NOT NULL,
    endpoint text COLLATE "C",
    service text COLLATE "C",
    request_id text COLLATE "C",
    attributes jsonb NOT NULL,
    version text COLLATE "C" NOT NULL,
    commit_number bigint NOT NULL,
    listed bytea NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (run_id, closed_at)
) PARTITION BY RANGE (closed_at);

ALTER TABLE perdure.runs ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE INDEX runs_by_start ON perdure.runs (namespace, kind, start_time DESC, run_id DESC);
CREATE INDEX runs_by_workflow_id ON perdure.runs (namespace, left(workflow_id, 256), start_time DESC);
CREATE INDEX runs_by_type ON perdure.runs (namespace, left(workflow_type, 256), start_time DESC, run_id DESC);
CREATE INDEX runs_by_attributes ON perdure.runs USING gin (attributes jsonb_path_ops);

CREATE TABLE perdure.attribute_types (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    type text NOT NULL,
    PRIMARY KEY (namespace, name)
);
"""


def upgrade() -> None:
    """Create the tables."""
    op.execute(_TABLES)
