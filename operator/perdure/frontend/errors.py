"""Errors in the form that Temporal SDKs understand: a gRPC status with a detail of one of Temporal's types."""

from collections.abc import Sequence

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.enums.v1 import ResourceExhaustedCause
from temporalio.api.errordetails.v1 import (
    ActivityExecutionAlreadyStartedFailure,
    MultiOperationExecutionFailure,
    NamespaceNotFoundFailure,
    NexusOperationExecutionAlreadyStartedFailure,
    NotFoundFailure,
    PermissionDeniedFailure,
    QueryFailedFailure,
    ResourceExhaustedFailure,
    WorkflowExecutionAlreadyStartedFailure,
    WorkflowNotReadyFailure,
)
from temporalio.api.failure.v1 import Failure, MultiOperationExecutionAborted

TOO_LARGE = "Blob data size exceeds limit."
"""The message of Temporal's server, which SDKs recognize."""
STATUS_DETAILS = "grpc-status-details-bin"
"""Trailer with the status of an error."""
_MAX_MESSAGE = 2048
_MAX_FAILURE = 2560
"""Bytes. An error travels in HTTP/2 trailers, its message once percent-encoded and once in Base64, with its details. Many SDKs
accept 16 KiB of trailers, and take more for a broken connection."""


class RpcError(Exception):
    """An RPC fails with a code, a message and optionally a detail."""

    def __init__(self, code: grpc.StatusCode, message: str, detail: Message | None = None) -> None:
        self.message = _shortened(message, _MAX_MESSAGE)
        super().__init__(self.message)
        self.code = code
        self.detail = detail

    def status(self) -> GrpcStatus:
        """The status to send with the code."""
        made = GrpcStatus(code=self.code.value[0], message=self.message)
        if self.detail is not None:
            packed = AnyMessage()
            packed.Pack(self.detail)
            made.details.append(packed)
        return made

    def trailers(self) -> tuple[tuple[str, bytes], ...]:
        """The trailers to send with the code: the status, if it has a detail."""
        return ((STATUS_DETAILS, self.status().SerializeToString()),) if self.detail is not None else ()


class CompletedError(RpcError):
    """The run closed before it could process a request."""

    def __init__(self) -> None:
        super().__init__(grpc.StatusCode.NOT_FOUND, "workflow execution already completed", NotFoundFailure())


def invalid(message: str, detail: Message | None = None) -> RpcError:
    """Build the error for a request that cannot be understood or executed, now or later."""
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, message, detail)


def not_found(message: str) -> RpcError:
    """Build the error for an object that does not exist."""
    return RpcError(grpc.StatusCode.NOT_FOUND, message, NotFoundFailure())


def namespace_not_found(namespace: str) -> RpcError:
    """Build the error for a namespace that does not exist."""
    message = f"Namespace {namespace} is not found."
    return RpcError(grpc.StatusCode.NOT_FOUND, message, NamespaceNotFoundFailure(namespace=namespace))


def already_started(message: str, run_id: str, first_run_id: str, request_id: str = "") -> RpcError:
    """Build the error for a workflow ID that is in use."""
    detail = WorkflowExecutionAlreadyStartedFailure(
        start_request_id=request_id, run_id=run_id, first_execution_run_id=first_run_id
    )
    return RpcError(grpc.StatusCode.ALREADY_EXISTS, message, detail)


def activity_already_started(run_id: str, request_id: str = "") -> RpcError:
    """Build the error for the ID of a standalone activity that is in use."""
    detail = ActivityExecutionAlreadyStartedFailure(start_request_id=request_id, run_id=run_id)
    return RpcError(grpc.StatusCode.ALREADY_EXISTS, "activity execution already started", detail)


def operation_already_started(run_id: str, request_id: str = "") -> RpcError:
    """Build the error for the ID of a standalone Nexus operation that is in use."""
    detail = NexusOperationExecutionAlreadyStartedFailure(start_request_id=request_id, run_id=run_id)
    message = f"nexus operation execution already started: request_id={request_id}, run_id={run_id}"
    return RpcError(grpc.StatusCode.ALREADY_EXISTS, message, detail)


def exists(message: str) -> RpcError:
    """Build the error for a name that is in use."""
    return RpcError(grpc.StatusCode.ALREADY_EXISTS, message)


def query_failed(failure: Failure) -> RpcError:
    """Build the error for a query that the workflow answered with a failure; a large failure is shortened."""
    return invalid(failure.message, QueryFailedFailure(failure=_fitting(failure)))


def busy(message: str) -> RpcError:
    """Build the error for a request that cannot be served at the moment; SDKs retry it."""
    detail = ResourceExhaustedFailure(cause=ResourceExhaustedCause.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW)
    return RpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, message, detail)


def exhausted(message: str) -> RpcError:
    """Build the error for a limit of the frontend that is reached; SDKs retry later."""
    detail = ResourceExhaustedFailure(cause=ResourceExhaustedCause.RESOURCE_EXHAUSTED_CAUSE_CONCURRENT_LIMIT)
    return RpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, message, detail)


def too_large(size: int, limit: int) -> RpcError:
    """Build the error for a message that is too large, with the text of gRPC in Go: SDKs recognize it and do not retry."""
    text = f"grpc: received message larger than max ({size} vs. {limit})"
    return RpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, text)


def not_ready(message: str) -> RpcError:
    """Build the error for a workflow that no worker has started to process."""
    return RpcError(grpc.StatusCode.FAILED_PRECONDITION, message, WorkflowNotReadyFailure())


def precondition(message: str) -> RpcError:
    """Build the error for a workflow that is not in the state that the request requires."""
    return RpcError(grpc.StatusCode.FAILED_PRECONDITION, message)


def unavailable(message: str) -> RpcError:
    """Build the error for a failed request to the Kubernetes API; SDKs retry it."""
    return RpcError(grpc.StatusCode.UNAVAILABLE, message)


def damaged(message: str) -> RpcError:
    """Build the error for a run whose stored state cannot be read until someone repairs it."""
    return RpcError(grpc.StatusCode.DATA_LOSS, message)


def too_late(message: str) -> RpcError:
    """Build the error for a request that nobody answered in time."""
    return RpcError(grpc.StatusCode.DEADLINE_EXCEEDED, message)


def aborted(message: str) -> RpcError:
    """Build the error for a request that lost a race against another one; SDKs retry it."""
    return RpcError(grpc.StatusCode.ABORTED, message)


def unauthenticated(message: str) -> RpcError:
    """Build the error for a caller without a valid token."""
    return RpcError(grpc.StatusCode.UNAUTHENTICATED, message)


def denied(message: str) -> RpcError:
    """Build the error for a caller without the necessary permission."""
    return RpcError(grpc.StatusCode.PERMISSION_DENIED, message, PermissionDeniedFailure(reason=message))


def unimplemented(message: str) -> RpcError:
    """Build the error for an RPC or an option that is not implemented."""
    return RpcError(grpc.StatusCode.UNIMPLEMENTED, message)


def multi_operation_failed(failed: int, errors: Sequence[RpcError | None]) -> RpcError:
    """Build the error for several operations of one request: the `failed`-th of them failed, and none was executed."""
    detail = MultiOperationExecutionFailure()
    for error in errors:
        status = detail.statuses.add()
        if error is None:
            status.code = grpc.StatusCode.ABORTED.value[0]
            status.message = "Operation was aborted."
            packed = AnyMessage()
            packed.Pack(MultiOperationExecutionAborted())
            status.details.append(packed)
            continue
        status.code = error.code.value[0]
        status.message = error.message
        status.details.extend(error.status().details)
    cause = errors[failed]
    assert cause is not None
    return RpcError(cause.code, "Update-with-Start could not be executed.", detail)


def _fitting(failure: Failure) -> Failure:
    """Return a failure that fits into the trailers of an error, if necessary without its causes and details."""
    if failure.ByteSize() <= _MAX_FAILURE:
        return failure
    made = Failure(
        message=_shortened(failure.message, _MAX_FAILURE // 3),
        source=_shortened(failure.source, 64),
        stack_trace=_shortened(failure.stack_trace, _MAX_FAILURE // 3),
    )
    if failure.HasField("application_failure_info"):
        info = failure.application_failure_info
        made.application_failure_info.type = _shortened(info.type, 256)
        made.application_failure_info.non_retryable = info.non_retryable
    return made


def _shortened(text: str, size: int) -> str:
    """Return a text of at most `size` bytes in UTF-8; one that was cut ends with an ellipsis."""
    raw = text.encode(errors="replace")
    return text if len(raw) <= size else raw[: size - len("…".encode())].decode(errors="ignore") + "…"
