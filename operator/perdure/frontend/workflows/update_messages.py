"""Messages of workers about updates: accepted, rejected, completed."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError
from temporalio.api.protocol.v1 import Message
from temporalio.api.update.v1 import Acceptance, Rejection, Response
from temporalio.api.update.v1 import Request as UpdateRequest

from perdure.engine import commands as cmd
from perdure.engine.failures import Failure
from perdure.frontend.messages import failures
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.callbacks import to_engine
from perdure.frontend.messages.values import OversizeError, UnfitError
from perdure.frontend.workflows.command_conversion import BadCommandError, whole

BAD_UPDATE = "BadUpdateWorkflowExecutionMessage"


@dataclass(slots=True)
class TaskAnswer:
    """The content of a worker's response: commands in order, and the outcomes of updates."""

    commands: list[cmd.Command] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    rejected: dict[str, Failure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownUpdates:
    """The updates of a run."""

    waiting: Collection[str]
    """Requested updates that no worker has accepted or rejected."""
    accepted: Collection[str]


def recorded_request(request: UpdateRequest) -> dict[str, Any]:
    """The part of the request that the acceptance of an update records.

    Raises:
        UnfitError: The arguments or the header cannot be stored.
    """
    return {
        "name": request.input.name,
        "input": whole(request.input.args),
        "header": data.header_to_json(request.input),
        "identity": request.meta.identity,
        "request_id": request.request_id,
        "completion_callbacks": to_engine(request.completion_callbacks),
    }


class UpdateMessages:
    """Reads the messages of one response."""

    def __init__(self, updates: KnownUpdates | None) -> None:
        """`updates` can be accepted and rejected; None: any update."""
        self._updates = updates
        self._decided: set[str] = set()

    def read(self, message: Message, answered: TaskAnswer) -> None:
        """Apply a message to the response.

        Raises:
            BadCommandError: The message cannot be applied.
        """
        try:
            self._read(message, answered)
        except (DecodeError, UnfitError) as error:
            terminates = isinstance(error, OversizeError)
            raise BadCommandError(BAD_UPDATE, f"message {message.id}: {error}", terminates=terminates) from error

    def _read(self, message: Message, answered: TaskAnswer) -> None:
        update = message.protocol_instance_id
        acceptance, rejection, response = Acceptance(), Rejection(), Response()
        if message.body.Unpack(acceptance):
            request = acceptance.accepted_request
            self._need_asked(update, request)
            answered.accepted.append(update)
            answered.commands.append(
                cmd.AcceptUpdate(
                    update_id=update,
                    accepted_request_message_id=acceptance.accepted_request_message_id,
                    accepted_request_sequencing_event_id=acceptance.accepted_request_sequencing_event_id,
                    **recorded_request(request),
                )
            )
        elif message.body.Unpack(rejection):
            self._need_asked(update, rejection.rejected_request)
            answered.rejected[update] = failures.to_json(rejection.failure)
        elif message.body.Unpack(response):
            failed = response.outcome.HasField("failure")
            answered.completed.append(update)
            answered.commands.append(
                cmd.CompleteUpdate(
                    update_id=update,
                    identity=response.meta.identity,
                    result=None if failed else whole(response.outcome.success),
                    failure=failures.to_json(response.outcome.failure) if failed else None,
                )
            )
        else:
            raise BadCommandError(BAD_UPDATE, f"unknown message {message.body.type_url}")

    def _need_asked(self, update: str, request: UpdateRequest) -> None:
        """Check that an update is open; if only the worker knows it, the response includes the request."""
        if self._updates is None:
            return
        if update in self._updates.accepted or update in self._decided:
            raise BadCommandError(BAD_UPDATE, f"update {update!r} was already accepted or rejected")
        included = bool(update and request.input.name) and request.meta.update_id == update
        if update not in self._updates.waiting and not included:
            raise BadCommandError(BAD_UPDATE, f"update {update!r} was not found")
        self._decided.add(update)
