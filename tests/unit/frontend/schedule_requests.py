"""Schedules that a Temporal client requests, and the objects that the operator creates."""

from typing import Any

from google.protobuf.duration_pb2 import Duration
from temporalio.api.schedule.v1 import Schedule, ScheduleSpec

from perdure.api.names import schedule_name
from perdure.frontend.schedules import messages
from perdure.frontend.schedules.messages import ClientOptions


def seconds(number: int) -> Duration:
    return Duration(seconds=number)


def asked(**spec: Any) -> Schedule:
    made = Schedule(spec=ScheduleSpec(**spec))
    start = made.action.start_workflow
    start.workflow_id, start.workflow_type.name, start.task_queue.name = "report", "Report", "reports"
    return made


def made_of(said: Schedule, schedule_id: str = "nightly", **options: Any) -> dict[str, Any]:
    """The object as the API server would have stored it."""
    name = schedule_name(schedule_id)
    obj = messages.new_schedule(
        said,
        {"Key": "Keyword"},
        namespace="shop",
        name=name,
        schedule_id=schedule_id,
        options=ClientOptions(**options),
        identity="me",
    )
    obj["metadata"] |= {"uid": "u-1", "generation": 1, "creationTimestamp": "2026-11-21T13:00:00Z"}
    return obj
