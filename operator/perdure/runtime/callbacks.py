"""Nexus operations of other runs that the end of a run or of an update completes. Pure.

A handler that starts or updates a workflow for an operation passes on the callback that it was called with. The token in the
callback identifies the operation. The request ID in the token is a secret: without it, no operation is completed.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import OperationOutcome
from perdure.engine.starts import Callback

SYSTEM_URL = "temporal://system"
"""URL of the callbacks of this server's own operations (common/nexus/constants.go)."""
TOKEN_HEADER = "temporal-callback-token"  # noqa: S105 (the name of a header)
OPERATION_TOKEN_HEADER = "nexus-operation-token"  # noqa: S105 (the name of a header)


class CallbackToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Identifies a Nexus operation, with proof that its handler was called.

    Another run carries it. Operators of all versions read it, without the fields that only a newer one knows.
    """

    namespace: str
    name: str
    """Name of the WorkflowRun that scheduled the operation."""
    workflow_id: str
    run_id: str
    scheduled_event_id: int
    request_id: str

    def text(self) -> str:
        """Encode it as one word."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


UPDATE_LOST = Failure(
    kind=FailureKind.APPLICATION,
    type="AcceptedUpdateCompletedWorkflow",
    message="Workflow Update failed because the Workflow completed before the Update completed.",
    source="Server",
    non_retryable=True,
)
"""The outcome of an accepted update that did not end before the workflow did (workflow/update/abort_reason.go)."""


@dataclass(frozen=True, slots=True)
class OperationCompletion:
    """The outcome of the operation that started a run or an update."""

    outcome: OperationOutcome
    result: Any = None
    failure: Failure | None = None


def token_of(callback: Callback) -> CallbackToken | None:
    """The token of a callback; None if the callback does not belong to this server."""
    text = callback.header.get(TOKEN_HEADER, "")
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=CallbackToken)
    except (binascii.Error, ValueError, RecursionError):
        return None


def completion_of(closing: ev.AnyEvent, *, standalone: bool = False) -> OperationCompletion:
    """Return the outcome of an operation whose workflow or standalone activity closes with this event and does not continue.

    As on Temporal's server (service/history/workflow/mutable_state_impl.go: GetNexusCompletion).
    """
    match closing:
        case ev.WorkflowExecutionCompleted():
            return OperationCompletion(OperationOutcome.COMPLETED, result=_first(closing.result))
        case ev.WorkflowExecutionCanceled():
            failure = Failure(kind=FailureKind.CANCELLED, message="operation canceled", details=closing.details)
            return OperationCompletion(OperationOutcome.CANCELED, failure=failure)
        case ev.WorkflowExecutionFailed():
            return OperationCompletion(OperationOutcome.FAILED, failure=closing.failure)
        case ev.WorkflowExecutionTimedOut():
            failure = Failure(kind=FailureKind.TIMEOUT, message="operation exceeded internal timeout")
            return OperationCompletion(OperationOutcome.FAILED, failure=closing.failure or failure)
        case _:
            reason = closing.reason if standalone and isinstance(closing, ev.WorkflowExecutionTerminated) else ""
            failure = Failure(kind=FailureKind.TERMINATED, message=reason or "operation terminated")
            return OperationCompletion(OperationOutcome.FAILED, failure=failure)


def update_completion(
    ended: ev.WorkflowExecutionUpdateCompleted | None, rejection: Failure | None
) -> OperationCompletion:
    """Return the outcome of an operation that started an update (mutable_state_impl.go: GetNexusUpdateCompletion).

    Args:
        ended: The event with the outcome of the update; None if the update was rejected, or the workflow closed first.
        rejection: The failure with which a worker rejected the update.
    """
    failure = ended.failure if ended is not None else rejection or UPDATE_LOST
    if ended is None or failure is not None:
        return OperationCompletion(OperationOutcome.FAILED, failure=failure)
    return OperationCompletion(OperationOutcome.COMPLETED, result=_first(ended.result))


def _first(result: Any) -> Any:
    """Return the first payload of a result; an operation has only one."""
    if isinstance(result, dict) and set(result) == {"payloads"} and isinstance(result["payloads"], list):
        return {"payloads": result["payloads"][:1]}
    return result
