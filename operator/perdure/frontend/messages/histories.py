"""Convert the events of the engine to Temporal's events.

Events and attributes have Temporal's names, so most fields of a message are filled from the attribute with the same name,
depending on the type of the field. `_SPECIAL` handles attributes that are elsewhere in Temporal's messages.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from temporalio.api import enums
from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.common.v1 import RetryPolicy as ProtoRetryPolicy
from temporalio.api.deployment.v1 import InheritedAutoUpgradeInfo as ProtoInheritedAutoUpgradeInfo
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import (
    ContinueAsNewVersioningBehavior,
    EventType,
    TaskQueueKind,
    UpdateAdmittedEventOrigin,
)
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Request
from temporalio.api.workflow.v1 import VersioningOverride as ProtoOverride

from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import OPERATOR
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import WORKFLOWS_QUEUE, task_timeout
from perdure.engine.versioning import ONE_TIME, DeploymentVersion, InheritedAutoUpgradeInfo, VersioningOverride
from perdure.frontend.messages import failures
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.nexus import callback_to_proto, links_from_json
from perdure.frontend.messages.values import snake_case, to_enum

RunIds = Callable[[str], str]
"""Returns the run ID of a WorkflowRun by its name; empty if it is not known."""
MAX_BYTES = 3 * 1024 * 1024
"""Size limit of a page in bytes: SDKs accept responses of up to 4 MiB."""
_SERVICE, _RESETTER = "history-service", "history-resetter"
"""The identity of Temporal's server in events that no client has requested (service/history/consts)."""
_MAY_IGNORE = (
    ev.WorkflowExecutionPaused,
    ev.WorkflowExecutionUnpaused,
    ev.WorkflowExecutionOptionsUpdated,
    ev.NexusOperationCancelRequestCompleted,
    ev.NexusOperationCancelRequestFailed,
)
"""Event types that older workers do not know (sdk-core rejects the whole history) and may ignore."""
_PRINCIPAL = "kubernetes"
"""Type of the principals of events: users of Kubernetes, including ServiceAccounts."""
_CAUSES = {
    "WorkflowExecutionAlreadyStarted": "WorkflowAlreadyExists",
    "ExternalWorkflowExecutionNotFound": "ExternalWorkflowExecutionNotFound",
}
_NAMESPACES = ("namespace", "namespace_id")
_PARENTS_NAMESPACES = ("parent_workflow_namespace", "parent_workflow_namespace_id")


class Historian:
    """Converts the events of one run."""

    def __init__(self, namespace: str, run_ids: RunIds, *, by_step: bool = False) -> None:
        """Convert events of a namespace.

        Args:
            namespace: The namespace.
            run_ids: Finds the next run of a chain by its name.
            by_step: Whether the IDs in events are paths of steps, because the run is one of a Workflow.
        """
        self._namespace = namespace
        self._run_ids = run_ids
        self._by_step = by_step

    def all(self, events: Iterable[ev.AnyEvent]) -> list[HistoryEvent]:
        """Convert all events."""
        return [self.one(event) for event in events]

    def page(self, events: Sequence[ev.AnyEvent]) -> list[HistoryEvent]:
        """Convert the first events, up to the size limit of a response."""
        made: list[HistoryEvent] = []
        total = 0
        for event in events:
            made.append(self.one(event))
            total += made[-1].ByteSize()
            if total + data.missing_bytes() > MAX_BYTES and len(made) > 1:
                return made[:-1]
        return made

    def one(self, event: ev.AnyEvent) -> HistoryEvent:
        """Convert one event."""
        name = type(event).__name__
        made = HistoryEvent(
            event_id=event.event_id, event_type=to_enum(EventType, name), task_id=event.event_id, version=0
        )
        made.event_time.FromDatetime(event.event_time)
        made.worker_may_ignore = isinstance(event, _MAY_IGNORE)
        if event.principal:
            made.principal.type, made.principal.name = _PRINCIPAL, event.principal
        metadata = data.user_metadata(event.user_metadata)
        if metadata is not None:
            made.user_metadata.CopyFrom(metadata)
        elif self._by_step and (step := _step_of(event)):
            made.user_metadata.summary.CopyFrom(data.one_payload(step))
        made.links.extend(links_from_json(getattr(event, "links", None)))
        if isinstance(event, ev.WorkflowExecutionUpdateAccepted):
            made.links.extend(link for each in event.completion_callbacks for link in links_from_json(each.links))
        attributes = getattr(made, f"{snake_case(name)}_event_attributes")
        attributes.SetInParent()
        self._fill(attributes, event)
        return made

    def _fill(self, attributes: Any, event: ev.AnyEvent) -> None:
        fields = attributes.DESCRIPTOR.fields_by_name
        source: Any = event.start if isinstance(event, ev.StartChildWorkflowExecutionInitiated) else None
        for holder in (source, source.extras if source is not None else None, event):
            if holder is not None:
                _copy(attributes, fields, holder)
        for name in _NAMESPACES if getattr(event, "parent", None) is None else (*_NAMESPACES, *_PARENTS_NAMESPACES):
            if name in fields:
                setattr(attributes, name, self._namespace)
        if "workflow_execution" in fields:
            attributes.workflow_execution.CopyFrom(_execution(event))
        following = getattr(event, "new_workflow_run", "")
        if following:
            attributes.new_execution_run_id = self._run_ids(following)
        special = _SPECIAL.get(type(event))
        if special is not None:
            special(attributes, event)
        if self._by_step and isinstance(event, ev.WorkflowExecutionStarted):
            attributes.task_queue.name = WORKFLOWS_QUEUE


def _step_of(event: ev.AnyEvent) -> str:
    """The path of the step whose action an event starts; empty for other events."""
    match event:
        case ev.ActivityTaskScheduled():
            return event.activity_id
        case ev.TimerStarted():
            return event.timer_id
        case ev.StartChildWorkflowExecutionInitiated():
            return event.child_id
        case ev.SignalExternalWorkflowExecutionInitiated():
            return event.signal_id
        case _:
            return ""


def request_of(origin: str) -> str:
    """Return a request ID for an action without a client's request. It is the same for the same origin."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, origin))


def _execution(event: Any) -> WorkflowExecution:
    return WorkflowExecution(workflow_id=event.workflow_id, run_id=getattr(event, "run_id", ""))


def _copy(target: Any, fields: Any, source: Any) -> None:
    """Fill the fields that have the name of one of our attributes."""
    for name in source.__struct_fields__:
        field = fields.get(name)
        value = getattr(source, name)
        if field is not None and value is not None and not field.is_repeated and name not in {"namespace", "parent"}:
            put(target, field, value)


def put(target: Any, field: FieldDescriptor, value: Any) -> None:
    """Fill one field of a message, by its type."""
    if field.message_type is None:
        if field.enum_type is not None:
            kind = getattr(enums.v1, field.enum_type.name)
            setattr(target, field.name, to_enum(kind, str(value.value if isinstance(value, StrEnum) else value)))
        else:
            setattr(target, field.name, value)
        return
    sub: Message = getattr(target, field.name)
    made = _message(field.message_type.name, value)
    if made is not None:
        sub.CopyFrom(made)
    elif isinstance(value, timedelta):
        sub.FromTimedelta(value)  # type: ignore[attr-defined]
    elif isinstance(value, datetime):
        sub.FromDatetime(value)  # type: ignore[attr-defined]
    elif field.message_type.name in {"WorkflowType", "ActivityType", "TaskQueue"}:
        if value:
            sub.name = value  # type: ignore[attr-defined]
    elif isinstance(value, dict):
        ParseDict(value, sub, ignore_unknown_fields=True)


def _message(kind: str, value: Any) -> Message | None:
    match kind:
        case "Payload":
            return data.one_payload(value)
        case "Payloads":
            return Payloads(payloads=data.from_json(value))
        case "Failure" if isinstance(value, Failure):
            return failures.to_proto(value)
        case "Header":
            return data.header(value)
        case "Memo":
            return data.memo(value)
        case "SearchAttributes":
            return data.attributes(value)
        case "WorkerDeploymentVersion" | "VersioningOverride" | "InheritedAutoUpgradeInfo":
            return _of_versioning(value)
        case "RetryPolicy" if isinstance(value, RetryPolicy):
            return retry_policy(value)
        case _:
            return None


def deployment_version(version: DeploymentVersion) -> WorkerDeploymentVersion:
    """A version as Temporal's."""
    return WorkerDeploymentVersion(deployment_name=version.deployment_name, build_id=version.build_id)


def _of_versioning(value: DeploymentVersion | VersioningOverride | InheritedAutoUpgradeInfo) -> Message:
    match value:
        case DeploymentVersion():
            return deployment_version(value)
        case VersioningOverride():
            return versioning_override(value)
        case InheritedAutoUpgradeInfo():
            return _inherited_upgrade(value)


def _inherited_upgrade(info: InheritedAutoUpgradeInfo) -> ProtoInheritedAutoUpgradeInfo:
    initial = info.continue_as_new_initial_versioning_behavior
    return ProtoInheritedAutoUpgradeInfo(
        source_deployment_version=deployment_version(info.source_deployment_version),
        continue_as_new_initial_versioning_behavior=to_enum(ContinueAsNewVersioningBehavior, initial),
    )


def versioning_override(override: VersioningOverride) -> ProtoOverride:
    """A versioning override as Temporal's."""
    made = ProtoOverride()
    if override.version is None:
        made.auto_upgrade = True
    elif override.behavior == ONE_TIME:
        made.one_time.target_deployment_version.CopyFrom(deployment_version(override.version))
    else:
        made.pinned.behavior = ProtoOverride.PinnedOverrideBehavior.PINNED_OVERRIDE_BEHAVIOR_PINNED
        made.pinned.version.CopyFrom(deployment_version(override.version))
    return made


def retry_policy(policy: RetryPolicy) -> ProtoRetryPolicy:
    """Convert a retry policy, including all defaults."""
    made = ProtoRetryPolicy(
        backoff_coefficient=policy.backoff_coefficient,
        maximum_attempts=policy.maximum_attempts,
        non_retryable_error_types=policy.non_retryable_error_types,
    )
    made.initial_interval.FromTimedelta(policy.initial_interval)
    longest = policy.maximum_interval if policy.maximum_interval is not None else 100 * policy.initial_interval
    made.maximum_interval.FromTimedelta(longest)
    return made


# Attributes that are elsewhere in Temporal's messages


def _started(attributes: Any, event: ev.WorkflowExecutionStarted) -> None:
    if event.parent is not None:
        attributes.parent_workflow_execution.CopyFrom(
            WorkflowExecution(workflow_id=event.parent.workflow_id, run_id=event.parent.run_id)
        )
        attributes.parent_initiated_event_id = event.parent.initiated_event_id
        if event.root_run_id:
            attributes.root_workflow_execution.CopyFrom(
                WorkflowExecution(workflow_id=event.root_workflow_id, run_id=event.root_run_id)
            )
    if started_by_a_workflow(event):
        attributes.workflow_run_timeout.SetInParent()
    attributes.attempt = event.attempt
    failure = event.continued_failure
    if failure is not None and failure.kind is FailureKind.TIMEOUT and not failure.source:
        attributes.continued_failure.source = "Server"
    attributes.completion_callbacks.extend(map(callback_to_proto, event.completion_callbacks))
    attributes.first_workflow_task_backoff.SetInParent()
    attributes.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL


def started_by_a_workflow(event: ev.WorkflowExecutionStarted) -> bool:
    """Whether a command started the run. Temporal's server then shows a run timeout even if there is none."""
    return event.parent is not None or event.initiator == "Workflow"


def _options_updated(attributes: Any, event: ev.WorkflowExecutionOptionsUpdated) -> None:
    if event.attached_request_id:
        attributes.ClearField("identity")
    attached, kept = map(callback_to_proto, event.attached_completion_callbacks), attributes
    if event.update_id:
        attributes.ClearField("attached_request_id")
        kept = attributes.workflow_update_options.add(update_id=event.update_id)
        kept.attached_request_id = event.attached_request_id
    kept.attached_completion_callbacks.extend(attached)


def _continued(attributes: Any, event: ev.WorkflowExecutionContinuedAsNew) -> None:
    if event.new_run_backoff is not None:
        attributes.backoff_start_interval.FromTimedelta(event.new_run_backoff)
    attributes.workflow_run_timeout.SetInParent()
    attributes.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL


def _task_scheduled(attributes: Any, event: ev.WorkflowTaskScheduled) -> None:
    kind = TaskQueueKind.TASK_QUEUE_KIND_STICKY if event.sticky else TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    attributes.task_queue.CopyFrom(TaskQueue(name=event.task_queue, kind=kind, normal_name=event.normal_name))


def _task_failed(attributes: Any, event: ev.WorkflowTaskFailed) -> None:
    """Convert a failed task: the server rejected the response, or the worker reported a failure of its code."""
    if event.failure is not None and event.failure.type == event.cause:
        attributes.failure.server_failure_info.SetInParent()
    if event.cause == "UnhandledCommand":
        attributes.failure.message = event.cause
        attributes.failure.server_failure_info.SetInParent()
    if event.cause == "ResetWorkflow":
        attributes.failure.reset_workflow_failure_info.SetInParent()
    if event.cause in {"ResetWorkflow", "ForceCloseCommand"}:
        attributes.identity = _SERVICE


def _signaled(attributes: Any, event: ev.WorkflowExecutionSignaled) -> None:
    if event.external is not None:
        attributes.external_workflow_execution.CopyFrom(_execution(event.external))
        attributes.request_id = request_of(f"{event.external.run_id}/{event.external.initiated_event_id}")
        attributes.identity = _SERVICE


def _cancel_requested(attributes: Any, event: ev.WorkflowExecutionCancelRequested) -> None:
    if event.identity == OPERATOR:
        attributes.identity = _SERVICE
    if event.external is not None:
        attributes.external_workflow_execution.CopyFrom(_execution(event.external))
        attributes.external_initiated_event_id = event.external.initiated_event_id
        attributes.identity = _SERVICE


def _terminated(attributes: Any, event: ev.WorkflowExecutionTerminated) -> None:
    if event.reset_run:
        attributes.identity = _RESETTER
    elif event.identity == OPERATOR:
        attributes.identity = _SERVICE


def _timer_started(attributes: Any, event: ev.TimerStarted) -> None:
    if not event.start_to_fire_timeout:
        attributes.ClearField("start_to_fire_timeout")


def _activity_scheduled(attributes: Any, event: ev.ActivityTaskScheduled) -> None:  # noqa: ARG001 (like the others)
    attributes.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    for name in ("schedule_to_close_timeout", "schedule_to_start_timeout", "start_to_close_timeout"):
        getattr(attributes, name).SetInParent()
    attributes.heartbeat_timeout.SetInParent()


def _activity_timed_out(attributes: Any, event: ev.ActivityTaskTimedOut) -> None:  # noqa: ARG001 (like the others)
    attributes.failure.source = "Server"


def _operation_scheduled(attributes: Any, event: ev.NexusOperationScheduled) -> None:
    attributes.nexus_header.update(event.nexus_header)


def _operation_completed(attributes: Any, event: ev.NexusOperationCompleted) -> None:
    if event.result is None:
        attributes.result.CopyFrom(data.null_payload())


def _operation_started(attributes: Any, event: ev.NexusOperationStarted) -> None:
    attributes.operation_id = event.operation_token


def _marker(attributes: Any, event: ev.MarkerRecorded) -> None:
    for name, value in (event.details or {}).items():
        attributes.details[name].CopyFrom(Payloads(payloads=data.from_json(value)))


def update_request(event: ev.WorkflowExecutionUpdateAdmitted | ev.WorkflowExecutionUpdateAccepted) -> Request:
    """The request of an update."""
    request = Request()
    request.request_id = event.request_id
    request.completion_callbacks.extend(map(callback_to_proto, event.completion_callbacks))
    request.meta.update_id = event.update_id
    request.meta.identity = event.identity
    request.input.name = event.name
    if event.input is not None:
        request.input.args.payloads.extend(data.from_json(event.input))
    header = data.header(event.header)
    if header is not None:
        request.input.header.CopyFrom(header)
    return request


def _update_admitted(attributes: Any, event: ev.WorkflowExecutionUpdateAdmitted) -> None:
    attributes.request.CopyFrom(update_request(event))
    attributes.origin = UpdateAdmittedEventOrigin.UPDATE_ADMITTED_EVENT_ORIGIN_REAPPLY


def _update_accepted(attributes: Any, event: ev.WorkflowExecutionUpdateAccepted) -> None:
    attributes.protocol_instance_id = event.update_id
    if event.name:
        attributes.accepted_request.CopyFrom(update_request(event))


def _update_completed(attributes: Any, event: ev.WorkflowExecutionUpdateCompleted) -> None:
    attributes.meta.update_id = event.update_id
    attributes.meta.identity = event.identity
    if event.failure is not None:
        attributes.outcome.failure.CopyFrom(failures.to_proto(event.failure))
    else:
        attributes.outcome.success.payloads.extend(data.from_json(event.result))
        attributes.outcome.success.SetInParent()


def _failed_to_reach(attributes: Any, event: Any) -> None:
    field = attributes.DESCRIPTOR.fields_by_name["cause"]
    kind = getattr(enums.v1, field.enum_type.name)
    attributes.cause = to_enum(kind, _CAUSES.get(event.failure.type or "", ""))


def _child_initiated(attributes: Any, event: ev.StartChildWorkflowExecutionInitiated) -> None:
    attributes.control = ""
    attributes.workflow_id = event.start.workflow_id
    attributes.workflow_run_timeout.SetInParent()
    start = event.start
    longest = start.workflow_run_timeout or start.workflow_execution_timeout
    attributes.workflow_task_timeout.FromTimedelta(task_timeout(start.workflow_task_timeout, longest))
    attributes.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL


_SPECIAL: dict[type[ev.Event], Callable[[Any, Any], None]] = {
    ev.WorkflowExecutionStarted: _started,
    ev.WorkflowExecutionContinuedAsNew: _continued,
    ev.WorkflowExecutionSignaled: _signaled,
    ev.WorkflowExecutionCancelRequested: _cancel_requested,
    ev.WorkflowExecutionTerminated: _terminated,
    ev.WorkflowTaskScheduled: _task_scheduled,
    ev.WorkflowTaskFailed: _task_failed,
    ev.TimerStarted: _timer_started,
    ev.ActivityTaskScheduled: _activity_scheduled,
    ev.ActivityTaskTimedOut: _activity_timed_out,
    ev.WorkflowExecutionOptionsUpdated: _options_updated,
    ev.NexusOperationScheduled: _operation_scheduled,
    ev.NexusOperationCompleted: _operation_completed,
    ev.NexusOperationStarted: _operation_started,
    ev.MarkerRecorded: _marker,
    ev.WorkflowExecutionUpdateAdmitted: _update_admitted,
    ev.WorkflowExecutionUpdateAccepted: _update_accepted,
    ev.WorkflowExecutionUpdateCompleted: _update_completed,
    ev.StartChildWorkflowExecutionInitiated: _child_initiated,
    ev.StartChildWorkflowExecutionFailed: _failed_to_reach,
    ev.SignalExternalWorkflowExecutionFailed: _failed_to_reach,
    ev.RequestCancelExternalWorkflowExecutionFailed: _failed_to_reach,
}
