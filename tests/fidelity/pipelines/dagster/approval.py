from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import work

DECISIONS = Path("decisions")


@dg.op(retry_policy=dg.RetryPolicy(max_retries=3))
def build(version: str) -> str:
    return work.build(version)


@dg.op(retry_policy=dg.RetryPolicy(max_retries=3))
def decide(image: str, approved: bool) -> str:
    return (work.publish if approved else work.withdraw)(image)


@dg.job
def prepare():
    build()


@dg.job
def finish():
    decide()


@dg.sensor(job=finish, minimum_interval_seconds=30)
def approvals(context: dg.SensorEvaluationContext):
    waiting = dg.RunsFilter(job_name="prepare", statuses=[dg.DagsterRunStatus.SUCCESS])
    for record in context.instance.get_run_records(waiting):
        run = record.dagster_run
        decision = DECISIONS / run.run_id
        late = datetime.now(UTC) - record.create_timestamp > timedelta(days=1)
        if decision.exists() or late:
            approved = decision.exists() and decision.read_text() == "yes"
            image = f"image:{run.run_config['ops']['build']['inputs']['version']}"
            inputs = {"image": image, "approved": approved}
            yield dg.RunRequest(run_key=run.run_id, run_config={"ops": {"decide": {"inputs": inputs}}})


definitions = dg.Definitions(jobs=[prepare, finish], sensors=[approvals])
