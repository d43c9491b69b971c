"""Commands: what a worker asks for, as the engine's commands."""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

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

from perdure.api.parent_close_policy import ParentClosePolicy
from perdure.engine import commands as cmd
from perdure.engine.failures import Failure
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import StartExtras, WorkflowStart
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.frontend import failures, priorities
from perdure.frontend import payloads as data
from perdure.frontend.callbacks import to_engine
from perdure.frontend.endpoints import Endpoints
from perdure.frontend.enums import from_enum
from perdure.frontend.given import (
    UNLIMITED,
    OversizeError,
    UnfitError,
    duration,
    duration_or_none,
    few,
    name,
    retry_policy,
)
from perdure.frontend.nexus_headers import lowered
from perdure.frontend.starts import check_beside, cron_refused, input_of, queue_of_code, workflow_named

_SCHEDULE_OPERATION = "ScheduleNexusOperationCommandAttributes"
_BAD_UPDATE = "BadUpdateWorkflowExecutionMessage"
_SYSTEM_ENDPOINT = "__temporal_system"
"""Of Temporal's own operations: SignalWithStartWorkflowExecution is the only one so far."""
_NO_SYSTEM_OPERATIONS = (
    "workflows cannot start workflows with a signal: Nexus endpoint `__temporal_system` is not served; "
    "call SignalWithStartWorkflowExecution from an activity"
)


class BadCommandError(Exception):
    """A command that cannot be executed.

    Attributes:
        cause: Why, in the words of WorkflowTaskFailedCause.
        terminates: Whether it ends the workflow, and not only the task: no retry makes a payload smaller
            (workflow_task_completed_handler.go).
    """

    def __init__(self, cause: str, message: str, *, terminates: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.terminates = terminates


@dataclass(slots=True)
class TaskAnswer:
    """The content of a worker's answer: commands in order, and the outcomes of updates."""

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


def asked_by(request: UpdateRequest) -> dict[str, Any]:
    """What the command that accepts an update records of the request.

    Raises:
        UnfitError: the arguments or the header cannot be kept.
    """
    return {
        "name": request.input.name,
        "input": _whole(request.input.args),
        "header": data.header_to_json(request.input),
        "identity": request.meta.identity,
        "request_id": request.request_id,
        "completion_callbacks": to_engine(request.completion_callbacks),
    }


_LAST = (
    CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION,
)
"""Commands that close a workflow."""


def _check_sequence(commands: Sequence[ProtoCommand]) -> None:
    kinds = [command.command_type for command in commands]
    for kind in kinds[:-1]:
        if kind in _LAST:
            told = ", ".join(from_enum(CommandType, each) for each in kinds)
            closing = from_enum(CommandType, kind)
            raise UnfitError(f"invalid command sequence: [{told}], command {closing} must be the last command.")
    if CommandType.COMMAND_TYPE_UNSPECIFIED in kinds:
        raise UnfitError("unknown command type: Unspecified")


class CommandReader:
    """Reads one answer of a worker."""

    def __init__(
        self,
        task: int,
        types: Mapping[str, str],
        namespace: str = "",
        updates: KnownUpdates | None = None,
        task_queue: str = "",
        *,
        endpoints: Endpoints | None = None,
    ) -> None:
        """Begin.

        Args:
            task: The id of its WorkflowTaskStarted.
            types: The search attributes that are registered, and the type of each.
            namespace: Of the workflow.
            updates: What can be accepted and rejected; None: anything.
            task_queue: Of the workflow; that of a child which names none.
            endpoints: Of Nexus operations.
        """
        self._endpoints = endpoints or {}
        self._task = task
        self._task_queue = task_queue
        self._namespace = namespace
        self._types = types
        self._updates = updates
        self._number = 0
        self._decided: set[str] = set()

    def read(self, commands: Sequence[ProtoCommand], messages: Sequence[Message]) -> TaskAnswer:
        """The whole answer.

        Raises:
            BadCommandError: One of the commands cannot be executed.
            UnfitError: the answer is malformed; it changes nothing, not even the task.
        """
        _check_sequence(commands)
        answered = TaskAnswer()
        waiting = {message.id: message for message in messages}
        if len(waiting) < len(messages):
            raise BadCommandError(_BAD_UPDATE, "several messages have the same id")
        for command in commands:
            self._number += 1
            if command.command_type == CommandType.COMMAND_TYPE_PROTOCOL_MESSAGE:
                message = waiting.pop(command.protocol_message_command_attributes.message_id, None)
                if message is None:
                    raise BadCommandError(_BAD_UPDATE, "a command names a message that is not there")
                self._message(message, answered)
            else:
                answered.commands.append(self._command(command))
        early = TaskAnswer()
        for message in waiting.values():
            self._message(message, early)
        answered.commands[:0] = early.commands
        answered.accepted[:0] = early.accepted
        answered.completed[:0] = early.completed
        answered.rejected |= early.rejected
        return answered

    def _message(self, message: Message, answered: TaskAnswer) -> None:
        try:
            self._said(message, answered)
        except (DecodeError, UnfitError) as error:
            terminates = isinstance(error, OversizeError)
            raise BadCommandError(_BAD_UPDATE, f"message {message.id}: {error}", terminates=terminates) from error

    def _said(self, message: Message, answered: TaskAnswer) -> None:
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
                    **asked_by(request),
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
                    result=None if failed else _whole(response.outcome.success),
                    failure=failures.to_json(response.outcome.failure) if failed else None,
                )
            )
        else:
            raise BadCommandError(_BAD_UPDATE, f"unknown message {message.body.type_url}")

    def _need_asked(self, update: str, request: UpdateRequest) -> None:
        """An update is answered once, if it was asked for; one that only the worker still knows comes with the answer."""
        if self._updates is None:
            return
        if update in self._updates.accepted or update in self._decided:
            raise BadCommandError(_BAD_UPDATE, f"update {update!r} was accepted or rejected before")
        told = bool(update and request.input.name) and request.meta.update_id == update
        if update not in self._updates.waiting and not told:
            raise BadCommandError(_BAD_UPDATE, f"update {update!r} was not found")
        self._decided.add(update)

    def _command(self, command: ProtoCommand) -> cmd.Command:
        kind = from_enum(CommandType, command.command_type)
        convert, cause = self._converters.get(kind, (None, ""))
        if convert is None:
            raise BadCommandError("FeatureDisabled", f"command {kind or command.command_type} is not supported")
        attributes = getattr(command, f"{_snake(kind)}_command_attributes")
        try:
            metadata = data.user_metadata_to_json(command.user_metadata) if command.HasField("user_metadata") else None
            return convert(self, attributes, metadata)
        except UnfitError as error:
            terminates = isinstance(error, OversizeError)
            raise BadCommandError(cause, f"{error} ({kind}Command)", terminates=terminates) from error

    # One by one: each raises UnfitError if it cannot be executed

    def _schedule_activity(self, said: Any, metadata: Any) -> cmd.Command:
        return cmd.ScheduleActivityTask(
            activity_id=name(said.activity_id, "ActivityId"),
            activity_type=name(said.activity_type.name, "ActivityType"),
            task_queue=name(said.task_queue.name, "TaskQueue"),
            input=_whole(said.input),
            header=data.header_to_json(said),
            schedule_to_close_timeout=duration_or_none(said, "schedule_to_close_timeout"),
            schedule_to_start_timeout=duration_or_none(said, "schedule_to_start_timeout"),
            start_to_close_timeout=duration_or_none(said, "start_to_close_timeout"),
            heartbeat_timeout=duration_or_none(said, "heartbeat_timeout"),
            retry_policy=_policy(said) or RetryPolicy(),
            priority=priorities.asked_for(said),
            user_metadata=metadata,
        )

    def _start_timer(self, said: Any, metadata: Any) -> cmd.Command:
        return cmd.StartTimer(
            timer_id=name(said.timer_id, "TimerId"),
            start_to_fire_timeout=duration(said, "start_to_fire_timeout"),
            user_metadata=metadata,
        )

    def _cancel_timer(self, said: Any, _: Any) -> cmd.Command:
        return cmd.CancelTimer(timer_id=said.timer_id)

    def _cancel_activity(self, said: Any, _: Any) -> cmd.Command:
        return cmd.RequestCancelActivityTask(scheduled_event_id=said.scheduled_event_id)

    def _complete(self, said: Any, _: Any) -> cmd.Command:
        return cmd.CompleteWorkflowExecution(result=_whole(said.result))

    def _fail(self, said: Any, _: Any) -> cmd.Command:
        return cmd.FailWorkflowExecution(failure=failures.to_json(said.failure))

    def _cancel(self, said: Any, _: Any) -> cmd.Command:
        return cmd.CancelWorkflowExecution(details=_whole(said.details))

    def _marker(self, said: Any, metadata: Any) -> cmd.Command:
        few(said.details)
        return cmd.RecordMarker(
            marker_name=name(said.marker_name, "MarkerName"),
            details={each: _whole(kept) for each, kept in said.details.items()} or None,
            header=data.header_to_json(said),
            failure=failures.to_json(said.failure) if said.HasField("failure") else None,
            user_metadata=metadata,
        )

    def _continue(self, said: Any, _: Any) -> cmd.Command:
        attributes = None
        if said.HasField("search_attributes"):
            attributes = self._attributes(said.search_attributes)
        extras = StartExtras(
            header=data.header_to_json(said),
            memo=data.memo_to_json(said.memo),
            last_completion_result=_whole(said.last_completion_result),
        )
        check_beside(extras)
        return cmd.ContinueAsNewWorkflowExecution(
            input=input_of(said.input.payloads, by_name=False, apart=True),
            workflow_type=name(said.workflow_type.name, "WorkflowType", required=False),
            task_queue=queue_of_code(said.task_queue.name),
            workflow_run_timeout=duration_or_none(said, "workflow_run_timeout"),
            workflow_task_timeout=duration_or_none(said, "workflow_task_timeout"),
            retry_policy=_policy(said),
            new_run_backoff=duration_or_none(said, "backoff_start_interval"),
            header=extras.header,
            memo=(extras.memo or {}) if said.HasField("memo") else None,
            search_attributes=attributes,
            initiator=from_enum(ContinueAsNewInitiator, said.initiator) if said.initiator else "",
            failure=failures.to_json(said.failure) if said.HasField("failure") else None,
            last_completion_result=extras.last_completion_result,
            cron_schedule=name(said.cron_schedule, "CronSchedule", required=False),
            initial_versioning_behavior=_initial_behavior(said.initial_versioning_behavior),
        )

    def _start_child(self, said: Any, metadata: Any) -> cmd.Command:
        self._here(said.namespace)
        by_name = said.task_queue.name == WORKFLOWS_QUEUE
        if mistake := cron_refused(said.cron_schedule, by_name=by_name):
            raise UnfitError(
                f"invalid CronSchedule on StartChildWorkflowExecutionCommand: {mistake} WorkflowId={said.workflow_id[:63]} "
                f"WorkflowType={said.workflow_type.name[:63]} Namespace={said.namespace or self._namespace}"
            )
        if by_name:
            workflow_named(said.workflow_type.name)
        policy = from_enum(ProtoParentClosePolicy, said.parent_close_policy)
        reuse = from_enum(WorkflowIdReusePolicy, said.workflow_id_reuse_policy)
        extras = StartExtras(
            header=data.header_to_json(said),
            memo=data.memo_to_json(said.memo),
            user_metadata=metadata,
            priority=priorities.asked_for(said),
            cron_schedule=said.cron_schedule,
        )
        check_beside(extras)
        return cmd.StartChildWorkflowExecution(
            child_id=f"{self._task}.{self._number}",
            start=WorkflowStart(
                workflow_type=name(said.workflow_type.name, "Required field WorkflowType"),
                task_queue="" if by_name else queue_of_code(said.task_queue.name or self._task_queue),
                workflow_id=name(said.workflow_id, "Required field WorkflowId"),
                workflow_id_reuse_policy=reuse if reuse in _REUSE else "AllowDuplicate",
                input=input_of(said.input.payloads, by_name=by_name, apart=not by_name),
                workflow_execution_timeout=duration_or_none(said, "workflow_execution_timeout"),
                workflow_run_timeout=duration_or_none(said, "workflow_run_timeout"),
                workflow_task_timeout=duration_or_none(said, "workflow_task_timeout"),
                retry_policy=_policy(said),
                search_attributes=self._attributes(said.search_attributes),
                extras=extras,
            ),
            parent_close_policy=_CLOSE.get(policy, ParentClosePolicy.TERMINATE),
            user_metadata=metadata,
        )

    def _signal_external(self, said: Any, metadata: Any) -> cmd.Command:
        self._here(said.namespace)
        return cmd.SignalExternalWorkflowExecution(
            signal_id="",
            workflow_id=name(said.execution.workflow_id, "WorkflowId"),
            run_id=name(said.execution.run_id, "RunId", required=False),
            signal_name=name(said.signal_name, "SignalName"),
            input=data.to_json(said.input.payloads, apart=True),
            header=data.header_to_json(said),
            child_workflow_only=said.child_workflow_only,
            control=said.control,
            user_metadata=metadata,
        )

    def _cancel_external(self, said: Any, _: Any) -> cmd.Command:
        self._here(said.namespace)
        return cmd.RequestCancelExternalWorkflowExecution(
            workflow_id=name(said.workflow_id, "WorkflowId"),
            run_id=name(said.run_id, "RunId", required=False),
            child_workflow_only=said.child_workflow_only,
            reason=said.reason,
            control=said.control,
        )

    def _schedule_operation(self, said: Any, metadata: Any) -> cmd.Command:
        endpoint = self._endpoints.get(said.endpoint)
        if endpoint is None:
            if said.endpoint == _SYSTEM_ENDPOINT:
                raise UnfitError(_NO_SYSTEM_OPERATIONS)
            raise UnfitError(f'endpoint "{said.endpoint[:200]}" not found')
        if not endpoint.admits(self._namespace):
            raise UnfitError(f'caller namespace "{self._namespace}" unauthorized for "{said.endpoint}"')
        return cmd.ScheduleNexusOperation(
            endpoint=said.endpoint,
            endpoint_id=endpoint.id,
            handler_namespace=endpoint.namespace,
            service=name(said.service, f"{_SCHEDULE_OPERATION}.Service", required=False),
            operation=name(said.operation, f"{_SCHEDULE_OPERATION}.Operation", required=False),
            request_id=str(uuid.uuid4()),
            input=data.to_json([said.input], most=UNLIMITED) if said.HasField("input") else None,
            schedule_to_close_timeout=duration_or_none(said, "schedule_to_close_timeout"),
            schedule_to_start_timeout=duration_or_none(said, "schedule_to_start_timeout"),
            start_to_close_timeout=duration_or_none(said, "start_to_close_timeout"),
            nexus_header=lowered(said.nexus_header, f"{_SCHEDULE_OPERATION}.NexusHeader"),
            user_metadata=metadata,
        )

    def _cancel_operation(self, said: Any, metadata: Any) -> cmd.Command:
        return cmd.RequestCancelNexusOperation(scheduled_event_id=said.scheduled_event_id, user_metadata=metadata)

    def _upsert(self, said: Any, _: Any) -> cmd.Command:
        for missing, what in (
            (not said.HasField("search_attributes"), "SearchAttributes"),
            (not said.search_attributes.indexed_fields, "IndexedFields"),
        ):
            if missing:
                raise UnfitError(f"{what} is not set on UpsertWorkflowSearchAttributesCommand.")
        found = self._attributes(said.search_attributes, keep_removed=True)
        return cmd.UpsertWorkflowSearchAttributes(search_attributes=found)

    def _modify(self, said: Any, _: Any) -> cmd.Command:
        if not said.HasField("upserted_memo"):
            raise UnfitError("UpsertedMemo is not set on ModifyWorkflowPropertiesCommand.")
        return cmd.ModifyWorkflowProperties(upserted_memo=data.upserted(said.upserted_memo.fields))

    def _attributes(self, said: SearchAttributes, *, keep_removed: bool = False) -> dict[str, Any]:
        try:
            return data.attributes_to_json(said.indexed_fields, self._types, self._namespace, keep_removed=keep_removed)
        except UnfitError as error:
            raise BadCommandError("BadSearchAttributes", str(error)) from error

    def _here(self, namespace: str) -> None:
        if self._namespace and namespace not in {"", self._namespace}:
            raise UnfitError(
                f"unable to process cross namespace command between {self._namespace} and {namespace[:63]}"
            )

    _converters: ClassVar[dict[str, tuple[Callable[["CommandReader", Any, Any], cmd.Command], str]]] = {
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
    """How each kind of command is read, and the failure of a task whose command cannot be executed."""


def _initial_behavior(said: int) -> str:
    return from_enum(ContinueAsNewVersioningBehavior, said) if said else ""


def _policy(said: Any) -> RetryPolicy | None:
    return retry_policy(said.retry_policy) if said.HasField("retry_policy") else None


def _whole(said: Payloads) -> Any:
    """Payloads; large ones in a blob.

    Raises:
        UnfitError: they are larger than a blob may be.
    """
    return data.to_json(said.payloads, apart=True)


def _snake(kind: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).lstrip("_")


_REUSE = ("AllowDuplicate", "AllowDuplicateFailedOnly", "RejectDuplicate")
_CLOSE = {
    "Terminate": ParentClosePolicy.TERMINATE,
    "RequestCancel": ParentClosePolicy.REQUEST_CANCEL,
    "Abandon": ParentClosePolicy.ABANDON,
}
