"""The commands of simulated workflow code, each with the event that must record it."""

import json
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any, Final

from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, Payloads, RetryPolicy
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.protocol.v1 import Message

QUEUE: Final = "code"
"""The task queue of the workers."""
PODS: Final = "pods/tools"
"""The task queue of the activities that run in pods."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A command of a worker."""

    event: int
    """The type of the event that records it."""
    about: str
    """What the command is about, as `about` reads it from that event."""
    command: Command
    message: Message | None = None
    """The message that the command is about, if it is about an update."""


def payloads(*values: Any) -> Payloads:
    """Encode values as SDKs do."""
    encoded = [Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(each).encode()) for each in values]
    return Payloads(payloads=encoded)


def first_value(attributes: Payloads) -> Any:
    """The first of encoded values; None if there is none."""
    return json.loads(attributes.payloads[0].data) if attributes.payloads else None


def activity(name: str, kind: str, queue: str, heartbeat: timedelta | None) -> Decision:
    """Schedule an activity."""
    command = Command(command_type=CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK)
    attributes = command.schedule_activity_task_command_attributes
    attributes.activity_id, attributes.activity_type.name, attributes.task_queue.name = name, kind, queue
    attributes.start_to_close_timeout.FromTimedelta(timedelta(seconds=15))
    if heartbeat is not None:
        attributes.heartbeat_timeout.FromTimedelta(heartbeat)
    attributes.retry_policy.CopyFrom(RetryPolicy(backoff_coefficient=1.5, maximum_attempts=8))
    attributes.retry_policy.initial_interval.FromTimedelta(timedelta(seconds=1))
    return Decision(EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, name, command)


def cancel_activity(scheduled_event_id: int) -> Decision:
    """Request the cancellation of an activity."""
    command = Command(command_type=CommandType.COMMAND_TYPE_REQUEST_CANCEL_ACTIVITY_TASK)
    command.request_cancel_activity_task_command_attributes.scheduled_event_id = scheduled_event_id
    return Decision(EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED, str(scheduled_event_id), command)


def timer(name: str, length: timedelta) -> Decision:
    """Start a timer."""
    command = Command(command_type=CommandType.COMMAND_TYPE_START_TIMER)
    command.start_timer_command_attributes.timer_id = name
    command.start_timer_command_attributes.start_to_fire_timeout.FromTimedelta(length)
    return Decision(EventType.EVENT_TYPE_TIMER_STARTED, name, command)


def cancel_timer(name: str) -> Decision:
    """Cancel a timer."""
    command = Command(command_type=CommandType.COMMAND_TYPE_CANCEL_TIMER)
    command.cancel_timer_command_attributes.timer_id = name
    return Decision(EventType.EVENT_TYPE_TIMER_CANCELED, name, command)


def child(workflow_id: str, kind: str, queue: str, input_: Any, parent_close_policy: int) -> Decision:
    """Start a child workflow."""
    command = Command(command_type=CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION)
    attributes = command.start_child_workflow_execution_command_attributes
    attributes.workflow_id, attributes.workflow_type.name, attributes.task_queue.name = workflow_id, kind, queue
    attributes.input.CopyFrom(payloads(input_))
    attributes.parent_close_policy = parent_close_policy
    return Decision(EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED, workflow_id, command)


def signal(workflow_id: str, value: str) -> Decision:
    """Signal another workflow."""
    command = Command(command_type=CommandType.COMMAND_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION)
    attributes = command.signal_external_workflow_execution_command_attributes
    attributes.execution.workflow_id, attributes.signal_name = workflow_id, "news"
    attributes.input.CopyFrom(payloads(value))
    return Decision(EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED, workflow_id, command)


def cancel_child(workflow_id: str) -> Decision:
    """Request the cancellation of a child workflow."""
    command = Command(command_type=CommandType.COMMAND_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION)
    attributes = command.request_cancel_external_workflow_execution_command_attributes
    attributes.workflow_id, attributes.child_workflow_only = workflow_id, True
    return Decision(EventType.EVENT_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED, workflow_id, command)


def complete(result: Any) -> Decision:
    """Complete the workflow."""
    command = Command(command_type=CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION)
    command.complete_workflow_execution_command_attributes.result.CopyFrom(payloads(result))
    return Decision(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, "", command)


def fail(message: str) -> Decision:
    """Fail the workflow."""
    command = Command(command_type=CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION)
    failure = command.fail_workflow_execution_command_attributes.failure
    failure.message = message
    failure.application_failure_info.type = "Planned"
    return Decision(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, "", command)


def cancel() -> Decision:
    """End the workflow as cancelled."""
    command = Command(command_type=CommandType.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION)
    command.cancel_workflow_execution_command_attributes.SetInParent()
    return Decision(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, "", command)


def continue_as_new(input_: Any) -> Decision:
    """Continue the workflow as a new run."""
    command = Command(command_type=CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION)
    attributes = command.continue_as_new_workflow_execution_command_attributes
    attributes.workflow_type.name, attributes.task_queue.name = "Flow", QUEUE
    attributes.input.CopyFrom(payloads(input_))
    return Decision(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW, "", command)


_ENDS: Final = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
    }
)
_NAMES: Final = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: "activity_id",
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED: "scheduled_event_id",
    EventType.EVENT_TYPE_TIMER_STARTED: "timer_id",
    EventType.EVENT_TYPE_TIMER_CANCELED: "timer_id",
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED: "workflow_id",
    EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: "workflow_execution.workflow_id",
    EventType.EVENT_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: "workflow_execution.workflow_id",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "protocol_instance_id",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED: "meta.update_id",
}
"""The field that says what a recorded command is about."""


def about(type_: int, attributes: Any) -> str | None:
    """What a recorded command is about; None if the event records no command."""
    if type_ in _ENDS:
        return ""
    return str(attrgetter(_NAMES[type_])(attributes)) if type_ in _NAMES else None
