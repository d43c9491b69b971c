"""A long activity that resumes where it was interrupted, and a schedule that runs it every night."""

from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError


@activity.defn
async def count_lines(lines: int) -> int:
    """Process a file; after a crash, resume from the last heartbeat."""
    begun = activity.info().heartbeat_details
    at = begun[0] if begun else 0
    while at < lines:
        at += 1
        activity.heartbeat(at)
        if at == lines // 2 and activity.info().attempt == 1:
            raise ApplicationError("the machine went away", type="Lost")
    return at


@workflow.defn
class FileWorkflow:
    """Runs a long activity that heartbeats and resumes where it was interrupted."""

    @workflow.run
    async def run(self, lines: int) -> int:
        """Count the lines."""
        return await workflow.execute_activity(
            count_lines,
            lines,
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200)),
        )


async def count_every_night(client: Client, task_queue: str = "orders") -> ScheduleHandle:
    """Count the lines at two each night; `kubectl get schedules` shows it too."""
    action = ScheduleActionStartWorkflow(FileWorkflow.run, 100, id="nightly-count", task_queue=task_queue)
    spec = ScheduleSpec(cron_expressions=["0 2 * * *"], time_zone_name="Europe/Berlin")
    policy = SchedulePolicy(overlap=ScheduleOverlapPolicy.BUFFER_ONE, catchup_window=timedelta(hours=1))
    return await client.create_schedule("nightly-count", Schedule(action, spec=spec, policy=policy))
