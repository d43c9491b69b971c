"""Commands: what a worker asks for, as the engine's commands."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from temporalio.api.command.v1 import Command as ProtoCommand
from temporalio.api.common.v1 import RetryPolicy as ProtoRetryPolicy
from temporalio.api.enums.v1 import CommandType, ContinueAsNewInitiator, WorkflowIdReusePolicy
from temporalio.api.enums.v1 import ParentClosePolicy as ProtoParentClosePolicy
from temporalio.api.protocol.v1 import Message
from temporalio.api.update.v1 import Acceptance, Rejection, Response
from temporalio.api.update.v1 import Request as UpdateRequest

from perdure.engine import commands as cmd
from perdure.engine.failures import Failure
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import ParentClosePolicy, StartExtras, WorkflowStart
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.frontend import failures
from perdure.frontend import payloads as data
from perdure.frontend.enums import from_enum

_BAD_UPDATE = "BadUpdateWorkflowExecutionMessage"


class BadCommandError(Exception):
    """A command that cannot be obeyed; `cause` is in the words of WorkflowTaskFailedCause."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(slots=True)
class Answered:
    """What a worker's answer says: commands in order, and what became of updates."""

    commands: list[cmd.Command] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    rejected: dict[str, Failure] = field(default_factory=dict)


def duration(message: Any, name: str) -> timedelta | None:
    """A duration; None where it is not set, or zero."""
    return (getattr(message, name).ToTimedelta() or None) if message.HasField(name) else None


def retry_policy(policy: ProtoRetryPolicy) -> RetryPolicy:
    """A retry policy; what it does not say gets Temporal's defaults.

    Raises:
        ValueError: it cannot be followed; the message is Temporal's.
    """
    first = policy.initial_interval.ToTimedelta() or timedelta(seconds=1)
    coefficient = policy.backoff_coefficient or 2.0
    longest = policy.maximum_interval.ToTimedelta() or None
    if policy.initial_interval.ToTimedelta() < timedelta(0):
        raise ValueError("InitialInterval cannot be negative on retry policy.")
    if coefficient < 1:
        raise ValueError("BackoffCoefficient cannot be less than 1 on retry policy.")
    if longest is not None and longest < first:
        raise ValueError("MaximumInterval cannot be less than InitialInterval on retry policy.")
    if policy.maximum_attempts < 0:
        raise ValueError("MaximumAttempts cannot be negative on retry policy.")
    return RetryPolicy(
        initial_interval=first,
        backoff_coefficient=coefficient,
        maximum_interval=longest,
        maximum_attempts=policy.maximum_attempts,
        non_retryable_error_types=tuple(policy.non_retryable_error_types),
    )


@dataclass(frozen=True, slots=True)
class Known:
    """The updates of a run."""

    waiting: Collection[str]
    """Those that somebody has asked for, and no worker has accepted or rejected."""
    accepted: Collection[str]


class Reader:
    """Reads one answer of a worker."""

    def __init__(self, task: int, types: Mapping[str, str], namespace: str = "", updates: Known | None = None) -> None:
        """Begin.

        Args:
            task: The id of its WorkflowTaskStarted.
            types: The search attributes that are known, and the type of each.
            namespace: Of the workflow.
            updates: What can be accepted and rejected; None: anything.
        """
        self._namespace = namespace
        self._task = task
        self._types = types
        self._updates = updates
        self._number = 0
        self._decided: set[str] = set()

    def read(self, commands: Sequence[ProtoCommand], messages: Sequence[Message]) -> Answered:
        """The whole answer.

        Raises:
            BadCommandError: one of the commands cannot be obeyed.
        """
        answered = Answered()
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
        early = Answered()
        for message in waiting.values():
            self._message(message, early)
        answered.commands[:0] = early.commands
        answered.accepted[:0] = early.accepted
        answered.completed[:0] = early.completed
        answered.rejected |= early.rejected
        return answered

    def _message(self, message: Message, answered: Answered) -> None:
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
                    name=request.input.name,
                    input=data.to_json(request.input.args.payloads),
                    header=data.fields_to_json(request.input.header.fields),
                    identity=request.meta.identity,
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
                    result=None if failed else data.to_json(response.outcome.success.payloads),
                    failure=failures.to_json(response.outcome.failure) if failed else None,
                )
            )
        else:
            raise BadCommandError(_BAD_UPDATE, f"unknown message {message.body.type_url}")

    def _need_asked(self, update: str, request: UpdateRequest) -> None:
        """An update is answered once, if it was asked for; one that only the worker still knows is told with the answer."""
        if self._updates is None:
            return
        if update in self._updates.accepted or update in self._decided:
            raise BadCommandError(_BAD_UPDATE, f"update {update!r} was accepted or rejected before")
        told = bool(update and request.input.name) and request.meta.update_id == update
        if update not in self._updates.waiting and not told:
            raise BadCommandError(_BAD_UPDATE, f"update {update!r} was not found")
        self._decided.add(update)

    def _own(self, cause: str, namespace: str) -> None:
        """A command is about the namespace of its workflow."""
        if namespace not in {"", self._namespace}:
            message = f"unable to process cross namespace command between {self._namespace} and {namespace}"
            raise BadCommandError(cause, message)

    def _command(self, command: ProtoCommand) -> cmd.Command:
        kind = from_enum(CommandType, command.command_type)
        convert = self._converters.get(kind)
        if convert is None:
            raise BadCommandError("FeatureDisabled", f"command {kind or command.command_type} is not supported")
        attributes = getattr(command, f"{_snake(kind)}_command_attributes")
        metadata = data.user_metadata_to_json(command.user_metadata) if command.HasField("user_metadata") else None
        return convert(self, attributes, metadata)

    # One by one

    def _schedule_activity(self, said: Any, metadata: Any) -> cmd.Command:
        where = said.task_queue.name
        _need(
            "BadScheduleActivityAttributes", said.activity_id, "ActivityId is not set on ScheduleActivityTaskCommand."
        )
        _need(
            "BadScheduleActivityAttributes",
            said.activity_type.name,
            "ActivityType is not set on ScheduleActivityTaskCommand.",
        )
        _need("BadScheduleActivityAttributes", where, "TaskQueue is not set on ScheduleActivityTaskCommand.")
        return cmd.ScheduleActivityTask(
            activity_id=said.activity_id,
            activity_type=said.activity_type.name,
            task_queue=where,
            input=data.to_json(said.input.payloads),
            header=data.fields_to_json(said.header.fields),
            schedule_to_close_timeout=duration(said, "schedule_to_close_timeout"),
            schedule_to_start_timeout=duration(said, "schedule_to_start_timeout"),
            start_to_close_timeout=duration(said, "start_to_close_timeout"),
            heartbeat_timeout=duration(said, "heartbeat_timeout"),
            retry_policy=_policy(said, "BadScheduleActivityAttributes") or RetryPolicy(),
            priority=data.message_to_json(said.priority) if said.HasField("priority") else None,
            user_metadata=metadata,
        )

    def _start_timer(self, said: Any, metadata: Any) -> cmd.Command:
        wait = said.start_to_fire_timeout.ToTimedelta()
        _need("BadStartTimerAttributes", said.timer_id, "TimerId is not set on StartTimerCommand.")
        return cmd.StartTimer(
            timer_id=said.timer_id, start_to_fire_timeout=max(wait, timedelta(0)), user_metadata=metadata
        )

    def _cancel_timer(self, said: Any, _: Any) -> cmd.Command:
        return cmd.CancelTimer(timer_id=said.timer_id)

    def _cancel_activity(self, said: Any, _: Any) -> cmd.Command:
        return cmd.RequestCancelActivityTask(scheduled_event_id=said.scheduled_event_id)

    def _complete(self, said: Any, _: Any) -> cmd.Command:
        return cmd.CompleteWorkflowExecution(result=data.to_json(said.result.payloads))

    def _fail(self, said: Any, _: Any) -> cmd.Command:
        return cmd.FailWorkflowExecution(failure=failures.to_json(said.failure))

    def _cancel(self, said: Any, _: Any) -> cmd.Command:
        return cmd.CancelWorkflowExecution(details=data.to_json(said.details.payloads))

    def _marker(self, said: Any, metadata: Any) -> cmd.Command:
        return cmd.RecordMarker(
            marker_name=said.marker_name,
            details={name: data.to_json(each.payloads) for name, each in said.details.items()} or None,
            header=data.fields_to_json(said.header.fields),
            failure=failures.to_json(said.failure) if said.HasField("failure") else None,
            user_metadata=metadata,
        )

    def _continue(self, said: Any, _: Any) -> cmd.Command:
        attributes = None
        if said.HasField("search_attributes"):
            attributes = self._attributes("BadContinueAsNewAttributes", said.search_attributes.indexed_fields)
        return cmd.ContinueAsNewWorkflowExecution(
            input=data.to_json(said.input.payloads),
            workflow_type=said.workflow_type.name,
            task_queue=said.task_queue.name,
            workflow_run_timeout=duration(said, "workflow_run_timeout"),
            workflow_task_timeout=duration(said, "workflow_task_timeout"),
            retry_policy=_policy(said, "BadContinueAsNewAttributes"),
            new_run_backoff=duration(said, "backoff_start_interval"),
            header=data.fields_to_json(said.header.fields),
            memo=(data.fields_to_json(said.memo.fields) or {}) if said.HasField("memo") else None,
            search_attributes=attributes,
            initiator=from_enum(ContinueAsNewInitiator, said.initiator) if said.initiator else "",
            failure=failures.to_json(said.failure) if said.HasField("failure") else None,
            last_completion_result=data.to_json(said.last_completion_result.payloads),
        )

    def _start_child(self, said: Any, metadata: Any) -> cmd.Command:
        cause = "BadStartChildExecutionAttributes"
        self._own(cause, said.namespace)
        _need(cause, said.workflow_id, "Required field WorkflowId is not set on StartChildWorkflowExecutionCommand.")
        _need(
            cause,
            said.workflow_type.name,
            "Required field WorkflowType is not set on StartChildWorkflowExecutionCommand.",
        )
        if said.cron_schedule:
            message = "CronSchedule is not offered for children: start the child from a schedule, or continue as new"
            raise BadCommandError(cause, message)
        policy = from_enum(ProtoParentClosePolicy, said.parent_close_policy)
        reuse = from_enum(WorkflowIdReusePolicy, said.workflow_id_reuse_policy)
        extras = StartExtras(
            header=data.fields_to_json(said.header.fields),
            memo=data.fields_to_json(said.memo.fields),
            user_metadata=metadata,
            priority=data.message_to_json(said.priority) if said.HasField("priority") else None,
        )
        return cmd.StartChildWorkflowExecution(
            child_id=f"{self._task}.{self._number}",
            start=WorkflowStart(
                workflow_type=said.workflow_type.name,
                task_queue="" if said.task_queue.name == WORKFLOWS_QUEUE else said.task_queue.name,
                workflow_id=said.workflow_id,
                workflow_id_reuse_policy=reuse if reuse in _REUSE else "AllowDuplicate",
                input=data.to_json(said.input.payloads),
                workflow_execution_timeout=duration(said, "workflow_execution_timeout"),
                workflow_run_timeout=duration(said, "workflow_run_timeout"),
                workflow_task_timeout=duration(said, "workflow_task_timeout"),
                retry_policy=_policy(said, cause),
                search_attributes=self._attributes(cause, said.search_attributes.indexed_fields),
                extras=extras,
            ),
            parent_close_policy=_CLOSE.get(policy, ParentClosePolicy.TERMINATE),
            user_metadata=metadata,
        )

    def _signal_external(self, said: Any, metadata: Any) -> cmd.Command:
        cause = "BadSignalWorkflowExecutionAttributes"
        self._own(cause, said.namespace)
        _need(cause, said.signal_name, "SignalName is not set on SignalExternalWorkflowExecutionCommand.")
        return cmd.SignalExternalWorkflowExecution(
            signal_id="",
            workflow_id=said.execution.workflow_id,
            run_id=said.execution.run_id,
            signal_name=said.signal_name,
            input=data.to_json(said.input.payloads),
            header=data.fields_to_json(said.header.fields),
            child_workflow_only=said.child_workflow_only,
            control=said.control,
            user_metadata=metadata,
        )

    def _cancel_external(self, said: Any, _: Any) -> cmd.Command:
        self._own("BadRequestCancelExternalWorkflowExecutionAttributes", said.namespace)
        return cmd.RequestCancelExternalWorkflowExecution(
            workflow_id=said.workflow_id,
            run_id=said.run_id,
            child_workflow_only=said.child_workflow_only,
            reason=said.reason,
            control=said.control,
        )

    def _upsert(self, said: Any, _: Any) -> cmd.Command:
        found = self._attributes("BadSearchAttributes", said.search_attributes.indexed_fields, keep_removed=True)
        return cmd.UpsertWorkflowSearchAttributes(search_attributes=found)

    def _modify(self, said: Any, _: Any) -> cmd.Command:
        return cmd.ModifyWorkflowProperties(upserted_memo=data.upserted(said.upserted_memo.fields))

    def _attributes(self, cause: str, fields: Any, *, keep_removed: bool = False) -> dict[str, Any]:
        try:
            return data.attributes_to_json(fields, self._types, keep_removed=keep_removed)
        except ValueError as error:
            raise BadCommandError(cause, f"a search attribute is no JSON: {error}") from error

    _converters: ClassVar[dict[str, Callable[["Reader", Any, Any], cmd.Command]]] = {
        "ScheduleActivityTask": _schedule_activity,
        "RequestCancelActivityTask": _cancel_activity,
        "StartTimer": _start_timer,
        "CancelTimer": _cancel_timer,
        "CompleteWorkflowExecution": _complete,
        "FailWorkflowExecution": _fail,
        "CancelWorkflowExecution": _cancel,
        "RequestCancelExternalWorkflowExecution": _cancel_external,
        "RecordMarker": _marker,
        "ContinueAsNewWorkflowExecution": _continue,
        "StartChildWorkflowExecution": _start_child,
        "SignalExternalWorkflowExecution": _signal_external,
        "UpsertWorkflowSearchAttributes": _upsert,
        "ModifyWorkflowProperties": _modify,
    }


def _policy(said: Any, cause: str) -> RetryPolicy | None:
    if not said.HasField("retry_policy"):
        return None
    try:
        return retry_policy(said.retry_policy)
    except ValueError as error:
        raise BadCommandError(cause, str(error)) from error


def _need(cause: str, value: str, message: str) -> None:
    if not value:
        raise BadCommandError(cause, message)


def _snake(kind: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).lstrip("_")


_REUSE = ("AllowDuplicate", "AllowDuplicateFailedOnly", "RejectDuplicate")
_CLOSE = {
    "Terminate": ParentClosePolicy.TERMINATE,
    "RequestCancel": ParentClosePolicy.REQUEST_CANCEL,
    "Abandon": ParentClosePolicy.ABANDON,
}
