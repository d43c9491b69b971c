"""Convert a worker's response to a workflow task: its commands and messages become commands of the engine, in order.

The messages are about updates: accepted, rejected, completed.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError
from temporalio.api.command.v1 import Command as ProtoCommand
from temporalio.api.common.v1 import Payloads, SearchAttributes
from temporalio.api.enums.v1 import (
    CommandType,
    ContinueAsNewInitiator,
    ContinueAsNewVersioningBehavior,
    WorkflowIdReusePolicy,
)
from temporalio.api.enums.v1 import ParentClosePolicy as ProtoParentClosePolicy
from temporalio.api.protocol.v1 import Message
from temporalio.api.update.v1 import Acceptance, Rejection, Response
from temporalio.api.update.v1 import Request as UpdateRequest

from perdure.api.policies import ParentClosePolicy
from perdure.engine import commands as cmd
from perdure.engine.failures import Failure
from perdure.engine.retry import RetryPolicy
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
)
from perdure.frontend.nexus.endpoints import Endpoints
from perdure.frontend.runs.start_requests import check_extras, cron_refused, input_of, queue_of_code, workflow_named
from perdure.runtime.blobs import Room

BAD_UPDATE = "BadUpdateWorkflowExecutionMessage"
_LAST = (
    CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION,
)
"""Commands that close a workflow."""

_SCHEDULE_OPERATION = "ScheduleNexusOperationCommandAttributes"
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
class CommandContext:
    """The context in which a command is read."""

    task: int
    """The ID of the WorkflowTaskStarted."""
    types: Mapping[str, str]
    """The types of the registered search attributes, by name."""
    namespace: str = ""
    """The namespace of the workflow."""
    task_queue: str = ""
    """The task queue of the workflow, which is the default for its children."""
    endpoints: Endpoints = field(default_factory=dict)
    """The endpoints of Nexus operations."""
    room: Room = field(default_factory=Room)
    """The space that is left in the status of the workflow."""
    number: int = 0
    """The number of the command within its task."""

    @property
    def child_id(self) -> str:
        """The ID of a child that the command starts."""
        return f"{self.task}.{self.number}"

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


def engine_command(command: ProtoCommand, context: CommandContext) -> cmd.Command:
    """Convert a command of a worker to a command of the engine.

    Raises:
        BadCommandError: The command cannot be executed.
    """
    kind = from_enum(CommandType, command.command_type)
    convert, cause = _CONVERTERS.get(kind, (None, ""))
    if convert is None:
        raise BadCommandError("FeatureDisabled", f"command {kind or command.command_type} is not supported")
    attributes = getattr(command, f"{_snake(kind)}_command_attributes")
    try:
        metadata = data.user_metadata_to_json(command.user_metadata) if command.HasField("user_metadata") else None
        return convert(context, attributes, metadata)
    except UnfitError as error:
        terminates = isinstance(error, OversizeError)
        raise BadCommandError(cause, f"{error} ({kind}Command)", terminates=terminates) from error


# One function per command; each raises UnfitError if the command cannot be executed


def _schedule_activity(context: CommandContext, proto: Any, metadata: Any) -> cmd.Command:
    return cmd.ScheduleActivityTask(
        activity_id=name(proto.activity_id, "ActivityId"),
        activity_type=name(proto.activity_type.name, "ActivityType"),
        task_queue=name(proto.task_queue.name, "TaskQueue"),
        input=_payloads_json(proto.input, context.room),
        header=data.header_to_json(proto),
        schedule_to_close_timeout=duration_or_none(proto, "schedule_to_close_timeout"),
        schedule_to_start_timeout=duration_or_none(proto, "schedule_to_start_timeout"),
        start_to_close_timeout=duration_or_none(proto, "start_to_close_timeout"),
        heartbeat_timeout=duration_or_none(proto, "heartbeat_timeout"),
        retry_policy=_policy(proto) or RetryPolicy(),
        priority=requested_priority(proto),
        user_metadata=metadata,
    )


def _start_timer(_context: CommandContext, proto: Any, metadata: Any) -> cmd.Command:
    return cmd.StartTimer(
        timer_id=name(proto.timer_id, "TimerId"),
        start_to_fire_timeout=duration(proto, "start_to_fire_timeout"),
        user_metadata=metadata,
    )


def _cancel_timer(_context: CommandContext, proto: Any, _: Any) -> cmd.Command:
    return cmd.CancelTimer(timer_id=proto.timer_id)


def _cancel_activity(_context: CommandContext, proto: Any, _: Any) -> cmd.Command:
    return cmd.RequestCancelActivityTask(scheduled_event_id=proto.scheduled_event_id)


def _complete(_context: CommandContext, proto: Any, _: Any) -> cmd.Command:
    return cmd.CompleteWorkflowExecution(result=_payloads_json(proto.result))


def _fail(_context: CommandContext, proto: Any, _: Any) -> cmd.Command:
    return cmd.FailWorkflowExecution(failure=failures.to_json(proto.failure))


def _cancel(_context: CommandContext, proto: Any, _: Any) -> cmd.Command:
    return cmd.CancelWorkflowExecution(details=_payloads_json(proto.details))


def _marker(context: CommandContext, proto: Any, metadata: Any) -> cmd.Command:
    check_count(proto.details)
    return cmd.RecordMarker(
        marker_name=name(proto.marker_name, "MarkerName"),
        details={each: _payloads_json(kept, context.room) for each, kept in proto.details.items()} or None,
        header=data.header_to_json(proto),
        failure=failures.to_json(proto.failure) if proto.HasField("failure") else None,
        user_metadata=metadata,
    )


def _continue(context: CommandContext, proto: Any, _: Any) -> cmd.Command:
    attributes = None
    if proto.HasField("search_attributes"):
        attributes = context.attributes(proto.search_attributes)
    extras = StartExtras(
        header=data.header_to_json(proto),
        memo=data.memo_to_json(proto.memo),
        last_completion_result=_payloads_json(proto.last_completion_result),
    )
    check_extras(extras)
    return cmd.ContinueAsNewWorkflowExecution(
        input=input_of(proto.input.payloads, by_name=False, allow_blob=True),
        workflow_type=name(proto.workflow_type.name, "WorkflowType", required=False),
        task_queue=queue_of_code(proto.task_queue.name),
        workflow_run_timeout=duration_or_none(proto, "workflow_run_timeout"),
        workflow_task_timeout=duration_or_none(proto, "workflow_task_timeout"),
        retry_policy=_policy(proto),
        new_run_backoff=duration_or_none(proto, "backoff_start_interval"),
        header=extras.header,
        memo=(extras.memo or {}) if proto.HasField("memo") else None,
        search_attributes=attributes,
        initiator=from_enum(ContinueAsNewInitiator, proto.initiator) if proto.initiator else "",
        failure=failures.to_json(proto.failure) if proto.HasField("failure") else None,
        last_completion_result=extras.last_completion_result,
        cron_schedule=name(proto.cron_schedule, "CronSchedule", required=False),
        initial_versioning_behavior=_initial_behavior(proto.initial_versioning_behavior),
    )


def _start_child(context: CommandContext, proto: Any, metadata: Any) -> cmd.Command:
    context.check_namespace(proto.namespace)
    by_name = proto.task_queue.name == WORKFLOWS_QUEUE
    if mistake := cron_refused(proto.cron_schedule, by_name=by_name):
        raise UnfitError(
            f"invalid CronSchedule on StartChildWorkflowExecutionCommand: {mistake} WorkflowId={proto.workflow_id[:63]} "
            f"WorkflowType={proto.workflow_type.name[:63]} Namespace={proto.namespace or context.namespace}"
        )
    if by_name:
        workflow_named(proto.workflow_type.name)
    policy = from_enum(ProtoParentClosePolicy, proto.parent_close_policy)
    reuse = from_enum(WorkflowIdReusePolicy, proto.workflow_id_reuse_policy)
    extras = StartExtras(
        header=data.header_to_json(proto),
        memo=data.memo_to_json(proto.memo),
        user_metadata=metadata,
        priority=requested_priority(proto),
        cron_schedule=proto.cron_schedule,
    )
    check_extras(extras)
    return cmd.StartChildWorkflowExecution(
        child_id=context.child_id,
        start=WorkflowStart(
            workflow_type=name(proto.workflow_type.name, "Required field WorkflowType"),
            task_queue="" if by_name else queue_of_code(proto.task_queue.name or context.task_queue),
            workflow_id=name(proto.workflow_id, "Required field WorkflowId"),
            workflow_id_reuse_policy=reuse if reuse in _REUSE else "AllowDuplicate",
            input=input_of(proto.input.payloads, by_name=by_name, allow_blob=not by_name, room=context.room),
            workflow_execution_timeout=duration_or_none(proto, "workflow_execution_timeout"),
            workflow_run_timeout=duration_or_none(proto, "workflow_run_timeout"),
            workflow_task_timeout=duration_or_none(proto, "workflow_task_timeout"),
            retry_policy=_policy(proto),
            search_attributes=context.attributes(proto.search_attributes),
            extras=extras,
        ),
        parent_close_policy=_CLOSE.get(policy, ParentClosePolicy.TERMINATE),
        user_metadata=metadata,
    )


def _signal_external(context: CommandContext, proto: Any, metadata: Any) -> cmd.Command:
    context.check_namespace(proto.namespace)
    return cmd.SignalExternalWorkflowExecution(
        signal_id="",
        workflow_id=name(proto.execution.workflow_id, "WorkflowId"),
        run_id=name(proto.execution.run_id, "RunId", required=False),
        signal_name=name(proto.signal_name, "SignalName"),
        input=_payloads_json(proto.input, context.room),
        header=data.header_to_json(proto),
        child_workflow_only=proto.child_workflow_only,
        control=proto.control,
        user_metadata=metadata,
    )


def _cancel_external(context: CommandContext, proto: Any, _: Any) -> cmd.Command:
    context.check_namespace(proto.namespace)
    return cmd.RequestCancelExternalWorkflowExecution(
        workflow_id=name(proto.workflow_id, "WorkflowId"),
        run_id=name(proto.run_id, "RunId", required=False),
        child_workflow_only=proto.child_workflow_only,
        reason=proto.reason,
        control=proto.control,
    )


def _schedule_operation(context: CommandContext, proto: Any, metadata: Any) -> cmd.Command:
    endpoint = context.endpoints.get(proto.endpoint)
    if endpoint is None:
        if proto.endpoint == _SYSTEM_ENDPOINT:
            raise UnfitError(_NO_SYSTEM_OPERATIONS)
        raise UnfitError(f'endpoint "{proto.endpoint[:200]}" not found')
    if not endpoint.admits(context.namespace):
        raise UnfitError(f'caller namespace "{context.namespace}" unauthorized for "{proto.endpoint}"')
    return cmd.ScheduleNexusOperation(
        endpoint=proto.endpoint,
        endpoint_id=endpoint.id,
        handler_namespace=endpoint.namespace,
        service=name(proto.service, f"{_SCHEDULE_OPERATION}.Service", required=False),
        operation=name(proto.operation, f"{_SCHEDULE_OPERATION}.Operation", required=False),
        request_id=str(uuid.uuid4()),
        input=data.to_json([proto.input], limit=UNLIMITED) if proto.HasField("input") else None,
        schedule_to_close_timeout=duration_or_none(proto, "schedule_to_close_timeout"),
        schedule_to_start_timeout=duration_or_none(proto, "schedule_to_start_timeout"),
        start_to_close_timeout=duration_or_none(proto, "start_to_close_timeout"),
        nexus_header=lowered_headers(proto.nexus_header, f"{_SCHEDULE_OPERATION}.NexusHeader"),
        user_metadata=metadata,
    )


def _cancel_operation(_context: CommandContext, proto: Any, metadata: Any) -> cmd.Command:
    return cmd.RequestCancelNexusOperation(scheduled_event_id=proto.scheduled_event_id, user_metadata=metadata)


def _upsert(context: CommandContext, proto: Any, _: Any) -> cmd.Command:
    for missing, what in (
        (not proto.HasField("search_attributes"), "SearchAttributes"),
        (not proto.search_attributes.indexed_fields, "IndexedFields"),
    ):
        if missing:
            raise UnfitError(f"{what} is not set on UpsertWorkflowSearchAttributesCommand.")
    found = context.attributes(proto.search_attributes, keep_removed=True)
    return cmd.UpsertWorkflowSearchAttributes(search_attributes=found)


def _modify(_context: CommandContext, proto: Any, _: Any) -> cmd.Command:
    if not proto.HasField("upserted_memo"):
        raise UnfitError("UpsertedMemo is not set on ModifyWorkflowPropertiesCommand.")
    return cmd.ModifyWorkflowProperties(upserted_memo=data.upserted(proto.upserted_memo.fields))


def _initial_behavior(value: int) -> str:
    return from_enum(ContinueAsNewVersioningBehavior, value) if value else ""


def _policy(proto: Any) -> RetryPolicy | None:
    return retry_policy(proto.retry_policy) if proto.HasField("retry_policy") else None


def _payloads_json(payloads: Payloads, room: Room | None = None) -> Any:
    """Convert payloads. Large payloads, and payloads that exceed `room`, become blobs.

    Raises:
        UnfitError: The payloads exceed the size limit of a blob.
    """
    return data.to_json(payloads.payloads, allow_blob=True, room=room)


def _snake(kind: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).lstrip("_")


_CONVERTERS: dict[str, tuple[Callable[[CommandContext, Any, Any], cmd.Command], str]] = {
    "ScheduleActivityTask": (_schedule_activity, "BadScheduleActivityAttributes"),
    "RequestCancelActivityTask": (_cancel_activity, "BadRequestCancelActivityAttributes"),
    "StartTimer": (_start_timer, "BadStartTimerAttributes"),
    "CancelTimer": (_cancel_timer, "BadCancelTimerAttributes"),
    "CompleteWorkflowExecution": (_complete, "BadCompleteWorkflowExecutionAttributes"),
    "FailWorkflowExecution": (_fail, "BadFailWorkflowExecutionAttributes"),
    "CancelWorkflowExecution": (_cancel, "BadCancelWorkflowExecutionAttributes"),
    "RequestCancelExternalWorkflowExecution": (
        _cancel_external,
        "BadRequestCancelExternalWorkflowExecutionAttributes",
    ),
    "RecordMarker": (_marker, "BadRecordMarkerAttributes"),
    "ContinueAsNewWorkflowExecution": (_continue, "BadContinueAsNewAttributes"),
    "StartChildWorkflowExecution": (_start_child, "BadStartChildExecutionAttributes"),
    "SignalExternalWorkflowExecution": (_signal_external, "BadSignalWorkflowExecutionAttributes"),
    "ScheduleNexusOperation": (_schedule_operation, "BadScheduleNexusOperationAttributes"),
    "RequestCancelNexusOperation": (_cancel_operation, "BadRequestCancelNexusOperationAttributes"),
    "UpsertWorkflowSearchAttributes": (_upsert, "BadSearchAttributes"),
    "ModifyWorkflowProperties": (_modify, "BadModifyWorkflowPropertiesAttributes"),
}
"""The function that reads each kind of command, and the failure cause if the command cannot be executed."""


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
        "input": _payloads_json(request.input.args),
        "header": data.header_to_json(request.input),
        "identity": request.meta.identity,
        "request_id": request.request_id,
        "completion_callbacks": callbacks_to_engine(request.completion_callbacks),
    }


class UpdateMessages:
    """Reads the messages of one response."""

    def __init__(self, updates: KnownUpdates | None) -> None:
        """`updates` can be accepted and rejected; None: any update."""
        self._updates = updates
        self._decided: set[str] = set()

    def read(self, message: Message, answer: TaskAnswer) -> None:
        """Apply a message to the response.

        Raises:
            BadCommandError: The message cannot be applied.
        """
        try:
            self._read(message, answer)
        except (DecodeError, UnfitError) as error:
            terminates = isinstance(error, OversizeError)
            raise BadCommandError(BAD_UPDATE, f"message {message.id}: {error}", terminates=terminates) from error

    def _read(self, message: Message, answer: TaskAnswer) -> None:
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
        if self._updates is None:
            return
        if update in self._updates.accepted or update in self._decided:
            raise BadCommandError(BAD_UPDATE, f"update {update!r} was already accepted or rejected")
        included = bool(update and request.input.name) and request.meta.update_id == update
        if update not in self._updates.waiting and not included:
            raise BadCommandError(BAD_UPDATE, f"update {update!r} was not found")
        self._decided.add(update)


def _check_sequence(commands: Sequence[ProtoCommand]) -> None:
    kinds = [command.command_type for command in commands]
    for kind in kinds[:-1]:
        if kind in _LAST:
            sequence = ", ".join(from_enum(CommandType, each) for each in kinds)
            closing = from_enum(CommandType, kind)
            raise UnfitError(f"invalid command sequence: [{sequence}], command {closing} must be the last command.")
    if CommandType.COMMAND_TYPE_UNSPECIFIED in kinds:
        raise UnfitError("unknown command type: Unspecified")


class CommandReader:
    """Reads one response of a worker."""

    def __init__(
        self,
        task: int,
        types: Mapping[str, str],
        namespace: str = "",
        updates: KnownUpdates | None = None,
        task_queue: str = "",
        *,
        endpoints: Endpoints | None = None,
        status_size: int = 0,
    ) -> None:
        """Prepare to read a response.

        Args:
            task: The ID of its WorkflowTaskStarted.
            types: The types of the registered search attributes, by name.
            namespace: The namespace of the workflow.
            updates: The updates that can be accepted and rejected; None: any update.
            task_queue: The task queue of the workflow, which is the default for its children.
            endpoints: The endpoints of Nexus operations.
            status_size: The size of the workflow's status, in bytes.
        """
        self._context = CommandContext(task, types, namespace, task_queue, endpoints or {}, Room(status_size))
        self._messages = UpdateMessages(updates)

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
            self._context.number += 1
            if command.command_type == CommandType.COMMAND_TYPE_PROTOCOL_MESSAGE:
                message = waiting.pop(command.protocol_message_command_attributes.message_id, None)
                if message is None:
                    raise BadCommandError(BAD_UPDATE, "a command refers to a message that does not exist")
                self._messages.read(message, answered)
            else:
                answered.commands.append(engine_command(command, self._context))
        early = TaskAnswer()
        for message in waiting.values():
            self._messages.read(message, early)
        answered.commands[:0] = early.commands
        answered.accepted[:0] = early.accepted
        answered.completed[:0] = early.completed
        answered.rejected |= early.rejected
        return answered
