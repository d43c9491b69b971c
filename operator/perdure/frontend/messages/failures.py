"""Convert failures between Temporal's message and the engine's tree."""

from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import ActivityType, Payload, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import (
    ApplicationErrorCategory,
    NexusHandlerErrorRetryBehavior,
)
from temporalio.api.enums.v1 import (
    RetryState as ProtoRetryState,
)
from temporalio.api.enums.v1 import (
    TimeoutType as ProtoTimeoutType,
)
from temporalio.api.failure.v1 import Failure as ProtoFailure

from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages import values
from perdure.frontend.messages.values import UNLIMITED, from_enum, to_enum

MAX_DEPTH = 50


def to_json(failure: ProtoFailure, depth: int = 0) -> Failure:
    """Convert Temporal's failure to the engine's.

    Raises:
        UnfitError: A field is invalid.
    """
    info = failure.WhichOneof("failure_info")
    fields: dict[str, Any] = {
        "message": failure.message,
        "source": failure.source or None,
        "stack_trace": failure.stack_trace or None,
    }
    if failure.HasField("encoded_attributes"):
        fields["encoded_attributes"] = _payloads_json([failure.encoded_attributes])
    if failure.HasField("cause") and depth < MAX_DEPTH:
        fields["cause"] = to_json(failure.cause, depth + 1)
    fields |= _info(failure, info)
    return Failure(**fields)


def _payloads_json(payloads: Sequence[Payload]) -> Any:
    """Convert payloads of any size, because a run ends if its failure is too large."""
    return data.to_json(payloads, limit=UNLIMITED)


def _info(failure: ProtoFailure, info: str | None) -> dict[str, Any]:
    match info:
        case "timeout_failure_info":
            timeout = failure.timeout_failure_info
            kind = from_enum(ProtoTimeoutType, timeout.timeout_type) if timeout.timeout_type else "StartToClose"
            return {
                "kind": FailureKind.TIMEOUT,
                "timeout_type": TimeoutType(kind),
                "last_heartbeat_details": _payloads_json(timeout.last_heartbeat_details.payloads),
            }
        case "canceled_failure_info":
            cancelled = failure.canceled_failure_info
            return {"kind": FailureKind.CANCELLED, "details": _payloads_json(cancelled.details.payloads)}
        case "terminated_failure_info":
            return {"kind": FailureKind.TERMINATED}
        case "server_failure_info":
            return {"kind": FailureKind.SERVER, "non_retryable": failure.server_failure_info.non_retryable}
        case "activity_failure_info":
            activity = failure.activity_failure_info
            return {
                "kind": FailureKind.ACTIVITY,
                "activity": activity.activity_type.name or None,
                "activity_id": activity.activity_id or None,
                "scheduled_event_id": activity.scheduled_event_id or None,
                "started_event_id": activity.started_event_id or None,
                "identity": activity.identity or None,
                "retry_state": _retry_state(activity.retry_state),
            }
        case "child_workflow_execution_failure_info":
            child = failure.child_workflow_execution_failure_info
            return {
                "kind": FailureKind.CHILD_WORKFLOW,
                "namespace": child.namespace or None,
                "workflow_id": child.workflow_execution.workflow_id or None,
                "run_id": child.workflow_execution.run_id or None,
                "workflow_type": child.workflow_type.name or None,
                "scheduled_event_id": child.initiated_event_id or None,
                "started_event_id": child.started_event_id or None,
                "retry_state": _retry_state(child.retry_state),
            }
        case "nexus_operation_execution_failure_info":
            operation = failure.nexus_operation_execution_failure_info
            return {
                "kind": FailureKind.NEXUS_OPERATION,
                "endpoint": operation.endpoint or None,
                "service": operation.service or None,
                "operation": operation.operation or None,
                "operation_token": operation.operation_token or operation.operation_id or None,
                "scheduled_event_id": operation.scheduled_event_id or None,
            }
        case "nexus_handler_failure_info":
            handler = failure.nexus_handler_failure_info
            behavior = from_enum(NexusHandlerErrorRetryBehavior, handler.retry_behavior)
            return {
                "kind": FailureKind.NEXUS_HANDLER,
                "type": handler.type or None,
                "retry_behavior": behavior if handler.retry_behavior else None,
            }
        case None:
            return {"kind": FailureKind.APPLICATION, "kindless": True}
        case _:
            return _application(failure)


def _application(failure: ProtoFailure) -> dict[str, Any]:
    application = failure.application_failure_info
    delay = None
    if application.HasField("next_retry_delay"):
        delay = values.duration(application, "next_retry_delay")
    category = None
    if application.category:
        category = from_enum(ApplicationErrorCategory, application.category)
    return {
        "kind": FailureKind.APPLICATION,
        "type": application.type or None,
        "non_retryable": application.non_retryable,
        "details": _payloads_json(application.details.payloads),
        "next_retry_delay": delay,
        "category": category,
    }


def _retry_state(value: int) -> RetryState | None:
    try:
        return RetryState(from_enum(ProtoRetryState, value)) if value else None
    except ValueError:
        return None


def to_proto(failure: Failure) -> ProtoFailure:
    """Convert the engine's failure to Temporal's."""
    made = ProtoFailure(message=failure.message, source=failure.source or "", stack_trace=failure.stack_trace or "")
    if failure.encoded_attributes is not None:
        made.encoded_attributes.CopyFrom(data.one_payload(failure.encoded_attributes))
    if failure.cause is not None:
        made.cause.CopyFrom(to_proto(failure.cause))
    _fill_info(made, failure)
    return made


def _fill_info(message: ProtoFailure, failure: Failure) -> None:
    match failure.kind:
        case FailureKind.APPLICATION if failure.kindless:
            pass
        case FailureKind.APPLICATION:
            application = message.application_failure_info
            application.SetInParent()
            application.type = failure.type or ""
            application.non_retryable = failure.non_retryable
            if failure.details is not None:
                application.details.payloads.extend(data.from_json(failure.details))
            if failure.next_retry_delay is not None:
                application.next_retry_delay.FromTimedelta(failure.next_retry_delay)
            if failure.category:
                application.category = to_enum(ApplicationErrorCategory, failure.category)
        case FailureKind.TIMEOUT:
            kind = failure.timeout_type or TimeoutType.START_TO_CLOSE
            message.timeout_failure_info.timeout_type = to_enum(ProtoTimeoutType, kind.value)
            if failure.last_heartbeat_details is not None:
                message.timeout_failure_info.last_heartbeat_details.payloads.extend(
                    data.from_json(failure.last_heartbeat_details)
                )
        case FailureKind.CANCELLED:
            message.canceled_failure_info.SetInParent()
            if failure.details is not None:
                message.canceled_failure_info.details.payloads.extend(data.from_json(failure.details))
        case FailureKind.TERMINATED:
            message.terminated_failure_info.SetInParent()
        case FailureKind.SERVER:
            message.server_failure_info.non_retryable = failure.non_retryable
        case FailureKind.ACTIVITY:
            activity = message.activity_failure_info
            activity.activity_type.CopyFrom(ActivityType(name=failure.activity or ""))
            activity.activity_id = failure.activity_id or ""
            activity.scheduled_event_id = failure.scheduled_event_id or 0
            activity.started_event_id = failure.started_event_id or 0
            activity.identity = failure.identity or ""
            if failure.retry_state is not None:
                activity.retry_state = to_enum(ProtoRetryState, failure.retry_state.value)
        case FailureKind.CHILD_WORKFLOW:
            child = message.child_workflow_execution_failure_info
            child.namespace = failure.namespace or ""
            child.workflow_execution.CopyFrom(
                WorkflowExecution(workflow_id=failure.workflow_id or "", run_id=failure.run_id or "")
            )
            child.workflow_type.CopyFrom(WorkflowType(name=failure.workflow_type or ""))
            child.initiated_event_id = failure.scheduled_event_id or 0
            child.started_event_id = failure.started_event_id or 0
            if failure.retry_state is not None:
                child.retry_state = to_enum(ProtoRetryState, failure.retry_state.value)
        case FailureKind.NEXUS_OPERATION:
            operation = message.nexus_operation_execution_failure_info
            operation.endpoint, operation.service = failure.endpoint or "", failure.service or ""
            operation.operation = failure.operation or ""
            operation.operation_id = operation.operation_token = failure.operation_token or ""
            operation.scheduled_event_id = failure.scheduled_event_id or 0
        case FailureKind.NEXUS_HANDLER:
            handler = message.nexus_handler_failure_info
            handler.type = failure.type or ""
            if failure.retry_behavior is not None:
                handler.retry_behavior = to_enum(NexusHandlerErrorRetryBehavior, failure.retry_behavior)
