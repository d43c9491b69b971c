"""Updates, as simulated workflow code handles them, and the messages about them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message as AnyMessage
from temporalio.api.command.v1 import Command
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.history.v1 import (
    HistoryEvent,
    WorkflowExecutionUpdateAcceptedEventAttributes,
    WorkflowExecutionUpdateAdmittedEventAttributes,
)
from temporalio.api.protocol.v1 import Message
from temporalio.api.update.v1 import Acceptance, Meta, Outcome, Rejection, Request, Response

from simulated.sdk.decisions import Decision, first_value, payloads

REJECTED: Final = "as the validator says"
"""The message of each rejection."""


@dataclass(frozen=True, slots=True)
class Update:
    """An update that workflow code must handle."""

    update_id: str
    request: Request
    message_id: str
    sequencing_event_id: int
    """The last event before it."""

    @property
    def how(self) -> str:
        """How the code handles it."""
        return str(first_value(self.request.input.args))

    @classmethod
    def sent(cls, message: Message) -> "Update":
        """The update in a message of a workflow task."""
        request = Request()
        message.body.Unpack(request)
        return cls(message.protocol_instance_id, request, message.id, message.event_id)

    @classmethod
    def admitted(cls, event_id: int, attributes: WorkflowExecutionUpdateAdmittedEventAttributes) -> "Update":
        """An update that a reset has passed to the run."""
        update_id = attributes.request.meta.update_id
        return cls(update_id, attributes.request, f"{update_id}/request", event_id)

    @classmethod
    def recorded(cls, attributes: WorkflowExecutionUpdateAcceptedEventAttributes) -> "Update":
        """An update that was accepted. One that was admitted before has its request only in that event."""
        return cls(
            attributes.protocol_instance_id,
            attributes.accepted_request,
            attributes.accepted_request_message_id,
            attributes.accepted_request_sequencing_event_id,
        )


def accepted_in(events: Iterable[HistoryEvent]) -> list[Update]:
    """The updates that a decision has accepted, by the events that follow its WorkflowTaskCompleted."""
    found = []
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            break
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            found.append(Update.recorded(event.workflow_execution_update_accepted_event_attributes))
    return found


def accept(update: Update) -> Decision:
    """Accept an update."""
    acceptance = Acceptance(
        accepted_request_message_id=update.message_id,
        accepted_request_sequencing_event_id=update.sequencing_event_id,
        accepted_request=update.request,
    )
    return _protocol_message(
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED, update.update_id, "accept", acceptance
    )


def succeed(update_id: str, result: Any) -> Decision:
    """Complete an update."""
    return _complete(update_id, Outcome(success=payloads(result)))


def fail(update_id: str, message: str) -> Decision:
    """Complete an update with a failure."""
    outcome = Outcome()
    outcome.failure.message = message
    outcome.failure.application_failure_info.type = "Planned"
    return _complete(update_id, outcome)


def _complete(update_id: str, outcome: Outcome) -> Decision:
    response = Response(meta=Meta(update_id=update_id), outcome=outcome)
    return _protocol_message(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED, update_id, "complete", response)


def _protocol_message(event: int, update_id: str, what: str, body: AnyMessage) -> Decision:
    message = Message(id=f"{update_id}/{what}", protocol_instance_id=update_id)
    message.body.Pack(body)
    command = Command(command_type=CommandType.COMMAND_TYPE_PROTOCOL_MESSAGE)
    command.protocol_message_command_attributes.message_id = message.id
    return Decision(event, update_id, command, message)


def reject(update: Update) -> Message:
    """Reject an update. No event records that."""
    rejection = Rejection(
        rejected_request_message_id=update.message_id,
        rejected_request_sequencing_event_id=update.sequencing_event_id,
        rejected_request=update.request,
    )
    rejection.failure.message = REJECTED
    rejection.failure.application_failure_info.type = "Planned"
    message = Message(id=f"{update.update_id}/reject", protocol_instance_id=update.update_id)
    message.body.Pack(rejection)
    return message
