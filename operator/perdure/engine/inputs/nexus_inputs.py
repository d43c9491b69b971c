"""Responses of handlers to Nexus operations, and the completion of operations that a handler has started."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from perdure.engine.failures import Failure


class OperationOutcome(StrEnum):
    """The result of an operation, or of one attempt to start it."""

    STARTED = "Started"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"
    REFUSED = "Refused"
    """The attempt failed, and a retry would not help."""
    ATTEMPT_FAILED = "AttemptFailed"
    """The attempt failed, and a retry may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationReported:
    """A handler responds to an attempt to start an operation."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    outcome: OperationOutcome
    handler_namespace: str = ""
    operation_token: str = ""
    result: Any = None
    failure: Failure | None = None
    links: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCancelReported:
    """A handler responds to an attempt to cancel an operation."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    failure: Failure | None = None
    """Why the handler rejected the request; None: it has accepted it."""
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEnded:
    """A run that a handler has started has closed, which completes the operation."""

    request_id: str
    scheduled_event_id: int
    operation_request_id: str
    """Request ID of the operation; a client that does not know it cannot complete the operation."""
    handler_namespace: str
    outcome: OperationOutcome
    operation_token: str = ""
    result: Any = None
    failure: Failure | None = None
    links: Any = None


OperationInput: TypeAlias = OperationReported | OperationCancelReported | OperationEnded
