"""Convert a worker's response to a workflow task: its commands and messages become commands of the engine, in order.

Commands and attributes have Temporal's names, so most attributes are read from the field with the same name, depending on the
type of the field. `_SPECIAL` handles the others. The messages are about updates: accepted, rejected, completed.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache
from typing import Any

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from temporalio.api import enums
from temporalio.api.command.v1 import Command as ProtoCommand
from temporalio.api.common.v1 import Payloads, SearchAttributes
from temporalio.api.enums.v1 import CommandType, WorkflowIdReusePolicy
from temporalio.api.enums.v1 import ParentClosePolicy as ProtoParentClosePolicy
from temporalio.api.protocol.v1 import Message
from temporalio.api.update.v1 import Acceptance, Rejection, Response
from temporalio.api.update.v1 import Request as UpdateRequest

from perdure.api.policies import ParentClosePolicy
from perdure.engine import commands as cmd
from perdure.engine.failures import Failure
from perdure.engine.starts import StartExtras, WorkflowStart
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.frontend.matching.dispatch import requested_priority
from perdure.frontend.messages import failures
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.nexus import callbacks_to_engine, lowered_headers
from perdure.frontend.messages.values import (
    UNLIMITED,
    OversizeError,
    UnfitError,
    check_count,
    duration,
    duration_or_none,
    from_enum,
    name,
    retry_policy,
    snake_case,
)
from perdure.frontend.nexus.endpoints import Endpoints
from perdure.frontend.runs.starts import check_extras, cron_refused, input_of, queue_of_code, workflow_named
from perdure.runtime.blobs import Room

BAD_UPDATE = "BadUpdateWorkflowExecutionMessage"
_LAST = (
    CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION,
)
"""Commands that close a workflow."""
_CAUSES = {
    "ScheduleActivityTask": "BadScheduleActivityAttributes",
    "RequestCancelActivityTask": "BadRequestCancelActivityAttributes",
    "ContinueAsNewWorkflowExecution": "BadContinueAsNewAttributes",
    "StartChildWorkflowExecution": "BadStartChildExecutionAttributes",
    "SignalExternalWorkflowExecution": "BadSignalWorkflowExecutionAttributes",
    "UpsertWorkflowSearchAttributes": "BadSearchAttributes",
}
"""The failure cause if a command cannot be executed; for other commands such as StartTimer, it is BadStartTimerAttributes."""
_REQUIRED = frozenset(
    {"activity_id", "activity_type", "task_queue", "timer_id", "marker_name", "signal_name", "workflow_id"}
)
_OPTIONAL = frozenset({"run_id", "cron_schedule"})
"""Attributes that are IDs or names, and so have a maximum length: those that must be set, and the others."""
_SYSTEM_ENDPOINT = "__temporal_system"
"""The endpoint of Temporal's own operations; SignalWithStartWorkflowExecution is the only one so far."""
_NO_SYSTEM_OPERATIONS = (
    "workflows cannot start workflows with a signal: Nexus endpoint `__temporal_system` is not served; "
    "call SignalWithStartWorkflowExecution from an activity"
)
_REUSE = ("AllowDuplicate", "AllowDuplicateFailedOnly", "RejectDuplicate")
_CLOSE = {
    "Terminate": ParentClosePolicy.TERMINATE,
    "RequestCancel": ParentClosePolicy.REQUEST_CANCEL,
    "Abandon": ParentClosePolicy.ABANDON,
}


class BadCommandError(Exception):
    """A command that cannot be executed.

    Attributes:
        cause: Why, as a name of WorkflowTaskFailedCause.
        terminates: Whether it ends the workflow, and not only the task, because no retry makes a payload smaller
            (workflow_task_completed_handler.go).
    """

    def __init__(self, cause: str, message: str, *, terminates: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.terminates = terminates


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


@dataclass(slots=True)
class CommandReader:
    """Reads one response of a worker."""

    task: int
    """The ID of its WorkflowTaskStarted."""
    types: Mapping[str, str]
    """The types of the registered search attributes, by name."""
    namespace: str = ""
    """The namespace of the workflow."""
    updates: KnownUpdates | None = None
    """The updates that can be accepted and rejected; None: any update."""
    task_queue: str = ""
    """The task queue of the workflow, which is the default for its children."""
    endpoints: Endpoints = field(default_factory=dict)
    """The endpoints of Nexus operations."""
    room: Room = field(default_factory=Room)
    """The space that is left in the status of the workflow."""
    number: int = 0
    """The number of the current command within the response."""
    decided: set[str] = field(default_factory=set)
    """The updates that the response has accepted or rejected so far."""

    def read(self, commands: Sequence[ProtoCommand], messages: Sequence[Message]) -> TaskAnswer:
        """Read the whole response.

        Raises:
            BadCommandError: One of the commands cannot be executed.
            UnfitError: The response is malformed. It changes nothing, not even the task.
        """
        _check_sequence(commands)
        answered = TaskAnswer()
        waiting = {message.id: message for message in messages}
        if len(waiting) < len(messages):
            raise BadCommandError(BAD_UPDATE, "several messages have the same id")
        for command in commands:
            self.number += 1
            if command.command_type == CommandType.COMMAND_TYPE_PROTOCOL_MESSAGE:
                message = waiting.pop(command.protocol_message_command_attributes.message_id, None)
                if message is None:
                    raise BadCommandError(BAD_UPDATE, "a command refers to a message that does not exist")
                self._read_message(message, answered)
            else:
                answered.commands.append(self._command(command))
        early = TaskAnswer()
        for message in waiting.values():
            self._read_message(message, early)
        answered.commands[:0] = early.commands
        answered.accepted[:0] = early.accepted
        answered.completed[:0] = early.completed
        answered.rejected |= early.rejected
        return answered

    # Messages

    def _read_message(self, message: Message, answer: TaskAnswer) -> None:
        """Apply a message about an update to the response."""
        try:
            self._read_update(message, answer)
        except (DecodeError, UnfitError) as error:
            terminates = isinstance(error, OversizeError)
            raise BadCommandError(BAD_UPDATE, f"message {message.id}: {error}", terminates=terminates) from error

    def _read_update(self, message: Message, answer: TaskAnswer) -> None:
        update = message.protocol_instance_id
        acceptance, rejection, response = Acceptance(), Rejection(), Response()
        if message.body.Unpack(acceptance):
            request = acceptance.accepted_request
            self._check_open(update, request)
            answer.accepted.append(update)
            answer.commands.append(
                cmd.AcceptUpdate(
                    update_id=update,
                    accepted_request_message_id=acceptance.accepted_request_message_id,
                    accepted_request_sequencing_event_id=acceptance.accepted_request_sequencing_event_id,
                    **recorded_request(request),
                )
            )
        elif message.body.Unpack(rejection):
            self._check_open(update, rejection.rejected_request)
            answer.rejected[update] = failures.to_json(rejection.failure)
        elif message.body.Unpack(response):
            failed = response.outcome.HasField("failure")
            answer.completed.append(update)
            answer.commands.append(
                cmd.CompleteUpdate(
                    update_id=update,
                    identity=response.meta.identity,
                    result=None if failed else _payloads_json(response.outcome.success),
                    failure=failures.to_json(response.outcome.failure) if failed else None,
                )
            )
        else:
            raise BadCommandError(BAD_UPDATE, f"unknown message {message.body.type_url}")

    def _check_open(self, update: str, request: UpdateRequest) -> None:
        """Check that an update is open; if only the worker knows it, the response includes the request."""
        if self.updates is None:
            return
        if update in self.updates.accepted or update in self.decided:
            raise BadCommandError(BAD_UPDATE, f"update {update!r} was already accepted or rejected")
        included = bool(update and request.input.name) and request.meta.update_id == update
        if update not in self.updates.waiting and not included:
            raise BadCommandError(BAD_UPDATE, f"update {update!r} was not found")
        self.decided.add(update)

    # Commands

    def _command(self, command: ProtoCommand) -> cmd.Command:
        """Convert a command to the command of the engine with the same name."""
        kind = from_enum(CommandType, command.command_type)
        made: Any = getattr(cmd, kind, None)
        if made is None:
            raise BadCommandError("FeatureDisabled", f"command {kind or command.command_type} is not supported")
        attributes = getattr(command, f"{snake_case(kind)}_command_attributes")
        room = None if command.command_type in _LAST else self.room
        try:
            metadata = data.user_metadata_to_json(command.user_metadata) if command.HasField("user_metadata") else None
            known = _SPECIAL[made](self, attributes, metadata) if made in _SPECIAL else {}
            if metadata is not None and "user_metadata" in _attributes(made):
                known["user_metadata"] = metadata
            converted: cmd.Command = self.copied(made, attributes, room, known)
        except UnfitError as error:
            terminates = isinstance(error, OversizeError)
            cause = _CAUSES.get(kind, f"Bad{kind}Attributes")
            raise BadCommandError(cause, f"{error} ({kind}Command)", terminates=terminates) from error
        return converted

    def copied(self, kind: Any, proto: Any, room: Room | None, known: Mapping[str, Any]) -> Any:
        """Build an object of the engine from `known` attributes and the fields of a message with the names of the others.

        Raises:
            UnfitError: A value is not valid.
        """
        found = dict(known)
        for each, required in _common(kind, proto.DESCRIPTOR):
            if each.name not in found and (required or not each.has_presence or proto.HasField(each.name)):
                found[each.name] = self._value(proto, each, room, required=required)
        return kind(**found)

    def _value(self, proto: Any, descriptor: FieldDescriptor, room: Room | None, *, required: bool) -> Any:
        """Read one field of a message, by its type."""
        named = descriptor.name
        value = getattr(proto, named)
        if descriptor.enum_type is not None:
            return from_enum(getattr(enums.v1, descriptor.enum_type.name), value) if value else ""
        match descriptor.message_type.name if descriptor.message_type is not None else "":
            case "Duration":
                return duration(proto, named) if required else duration_or_none(proto, named)
            case "Failure":
                return failures.to_json(value)
            case "Header":
                return data.header_to_json(proto)
            case "Payload":
                return data.to_json([value], limit=UNLIMITED)
            case "Payloads":
                return _payloads_json(value, room)
            case "Priority":
                return requested_priority(proto)
            case "RetryPolicy":
                return retry_policy(value)
            case "SearchAttributes":
                return self.attributes(value)
            case "ActivityType" | "TaskQueue":
                value = value.name
        if named in _REQUIRED or named in _OPTIONAL:
            return name(value, _title(named), required=named in _REQUIRED)
        return value

    def attributes(self, search_attributes: SearchAttributes, *, keep_removed: bool = False) -> dict[str, Any]:
        """Convert search attributes to their stored form.

        Raises:
            BadCommandError: A search attribute is not registered, or has another type.
        """
        try:
            return data.attributes_to_json(
                search_attributes.indexed_fields, self.types, self.namespace, keep_removed=keep_removed
            )
        except UnfitError as error:
            raise BadCommandError("BadSearchAttributes", str(error)) from error

    def check_namespace(self, namespace: str) -> None:
        """Check that a command names no other namespace.

        Raises:
            UnfitError: The command names another namespace.
        """
        if self.namespace and namespace not in {"", self.namespace}:
            raise UnfitError(f"unable to process cross namespace command between {self.namespace} and {namespace[:63]}")


def _check_sequence(commands: Sequence[ProtoCommand]) -> None:
    kinds = [command.command_type for command in commands]
    for kind in kinds[:-1]:
        if kind in _LAST:
            sequence = ", ".join(from_enum(CommandType, each) for each in kinds)
            closing = from_enum(CommandType, kind)
            raise UnfitError(f"invalid command sequence: [{sequence}], command {closing} must be the last command.")
    if CommandType.COMMAND_TYPE_UNSPECIFIED in kinds:
        raise UnfitError("unknown command type: Unspecified")


def recorded_request(request: UpdateRequest) -> dict[str, Any]:
    """The part of the request that the acceptance of an update records.

    Raises:
        UnfitError: The arguments or the header cannot be stored.
    """
    return {
        "name": request.input.name,
        "input": _payloads_json(request.input.args),
        "header": data.header_to_json(request.input),
        "identity": request.meta.identity,
        "request_id": request.request_id,
        "completion_callbacks": callbacks_to_engine(request.completion_callbacks),
    }


def _payloads_json(payloads: Payloads, room: Room | None = None) -> Any:
    """Convert payloads. Large payloads, and payloads that exceed `room`, become blobs.

    Raises:
        UnfitError: The payloads exceed the size limit of a blob.
    """
    return data.to_json(payloads.payloads, allow_blob=True, room=room)


@cache
def _title(named: str) -> str:
    return "".join(map(str.capitalize, named.split("_")))


@cache
def _attributes(kind: Any) -> dict[str, bool]:
    """The attributes of a class of the engine by name, and whether each must be set."""
    if issubclass(kind, msgspec.Struct):
        return {each.name: each.required for each in msgspec.structs.fields(kind)}
    fields = kind.__dataclass_fields__.values()
    return {each.name: each.default is MISSING and each.default_factory is MISSING for each in fields}


@cache
def _common(kind: Any, descriptor: Descriptor) -> list[tuple[FieldDescriptor, bool]]:
    """The fields of a message with the name of an attribute of a class, and whether each must be set."""
    ours = _attributes(kind)
    return [(each, ours[each.name] or each.name in _REQUIRED) for each in descriptor.fields if each.name in ours]


# Attributes that are elsewhere in Temporal's messages, or have rules of their own


def _cancel_timer(_reader: CommandReader, proto: Any, _: Any) -> dict[str, Any]:
    return {"timer_id": proto.timer_id}


def _marker(reader: CommandReader, proto: Any, _: Any) -> dict[str, Any]:
    check_count(proto.details)
    return {"details": {each: _payloads_json(kept, reader.room) for each, kept in proto.details.items()} or None}


def _continue(reader: CommandReader, proto: Any, _: Any) -> dict[str, Any]:
    found_by = reader.attributes(proto.search_attributes) if proto.HasField("search_attributes") else None
    extras = StartExtras(
        header=data.header_to_json(proto),
        memo=data.memo_to_json(proto.memo),
        last_completion_result=_payloads_json(proto.last_completion_result),
    )
    check_extras(extras)
    return {
        "input": input_of(proto.input.payloads, by_name=False, allow_blob=True),
        "workflow_type": name(proto.workflow_type.name, "WorkflowType", required=False),
        "task_queue": queue_of_code(proto.task_queue.name),
        "new_run_backoff": duration_or_none(proto, "backoff_start_interval"),
        "header": extras.header,
        "memo": (extras.memo or {}) if proto.HasField("memo") else None,
        "last_completion_result": extras.last_completion_result,
        "failure": failures.to_json(proto.failure) if proto.HasField("failure") else None,
        "search_attributes": found_by,
    }


def _start_child(reader: CommandReader, proto: Any, metadata: Any) -> dict[str, Any]:
    reader.check_namespace(proto.namespace)
    by_name = proto.task_queue.name == WORKFLOWS_QUEUE
    if mistake := cron_refused(proto.cron_schedule, by_name=by_name):
        raise UnfitError(
            f"invalid CronSchedule on StartChildWorkflowExecutionCommand: {mistake} WorkflowId={proto.workflow_id[:63]} "
            f"WorkflowType={proto.workflow_type.name[:63]} Namespace={proto.namespace or reader.namespace}"
        )
    if by_name:
        workflow_named(proto.workflow_type.name)
    extras = StartExtras(
        header=data.header_to_json(proto),
        memo=data.memo_to_json(proto.memo),
        user_metadata=metadata,
        priority=requested_priority(proto),
        cron_schedule=proto.cron_schedule,
    )
    check_extras(extras)
    reuse = from_enum(WorkflowIdReusePolicy, proto.workflow_id_reuse_policy)
    start = {
        "workflow_type": name(proto.workflow_type.name, "Required field WorkflowType"),
        "task_queue": "" if by_name else queue_of_code(proto.task_queue.name or reader.task_queue),
        "workflow_id": name(proto.workflow_id, "Required field WorkflowId"),
        "workflow_id_reuse_policy": reuse if reuse in _REUSE else "AllowDuplicate",
        "input": input_of(proto.input.payloads, by_name=by_name, allow_blob=not by_name, room=reader.room),
        "extras": extras,
    }
    return {
        "child_id": f"{reader.task}.{reader.number}",
        "start": reader.copied(WorkflowStart, proto, reader.room, start),
        "retry_policy": None,  # part of `start`
        "parent_close_policy": _CLOSE.get(
            from_enum(ProtoParentClosePolicy, proto.parent_close_policy), ParentClosePolicy.TERMINATE
        ),
    }


def _signal_external(reader: CommandReader, proto: Any, _: Any) -> dict[str, Any]:
    reader.check_namespace(proto.namespace)
    return {
        "signal_id": "",
        "workflow_id": name(proto.execution.workflow_id, "WorkflowId"),
        "run_id": name(proto.execution.run_id, "RunId", required=False),
    }


def _cancel_external(reader: CommandReader, proto: Any, _: Any) -> dict[str, Any]:
    reader.check_namespace(proto.namespace)
    return {}


def _schedule_operation(reader: CommandReader, proto: Any, _: Any) -> dict[str, Any]:
    endpoint = reader.endpoints.get(proto.endpoint)
    if endpoint is None:
        if proto.endpoint == _SYSTEM_ENDPOINT:
            raise UnfitError(_NO_SYSTEM_OPERATIONS)
        raise UnfitError(f'endpoint "{proto.endpoint[:200]}" not found')
    if not endpoint.admits(reader.namespace):
        raise UnfitError(f'caller namespace "{reader.namespace}" unauthorized for "{proto.endpoint}"')
    message = proto.DESCRIPTOR.name
    return {
        "endpoint_id": endpoint.id,
        "handler_namespace": endpoint.namespace,
        "service": name(proto.service, f"{message}.Service", required=False),
        "operation": name(proto.operation, f"{message}.Operation", required=False),
        "request_id": str(uuid.uuid4()),
        "nexus_header": lowered_headers(proto.nexus_header, f"{message}.NexusHeader"),
    }


def _upsert(reader: CommandReader, proto: Any, _: Any) -> dict[str, Any]:
    for missing, what in (
        (not proto.HasField("search_attributes"), "SearchAttributes"),
        (not proto.search_attributes.indexed_fields, "IndexedFields"),
    ):
        if missing:
            raise UnfitError(f"{what} is not set on UpsertWorkflowSearchAttributesCommand.")
    return {"search_attributes": reader.attributes(proto.search_attributes, keep_removed=True)}


def _modify(_reader: CommandReader, proto: Any, _: Any) -> dict[str, Any]:
    if not proto.HasField("upserted_memo"):
        raise UnfitError("UpsertedMemo is not set on ModifyWorkflowPropertiesCommand.")
    return {"upserted_memo": data.upserted(proto.upserted_memo.fields)}


_SPECIAL: dict[type[cmd.Command], Callable[[CommandReader, Any, Any], dict[str, Any]]] = {
    cmd.CancelTimer: _cancel_timer,
    cmd.RecordMarker: _marker,
    cmd.ContinueAsNewWorkflowExecution: _continue,
    cmd.StartChildWorkflowExecution: _start_child,
    cmd.SignalExternalWorkflowExecution: _signal_external,
    cmd.RequestCancelExternalWorkflowExecution: _cancel_external,
    cmd.ScheduleNexusOperation: _schedule_operation,
    cmd.UpsertWorkflowSearchAttributes: _upsert,
    cmd.ModifyWorkflowProperties: _modify,
}
"""Read the attributes of these commands that are elsewhere in Temporal's messages, or have rules of their own."""
