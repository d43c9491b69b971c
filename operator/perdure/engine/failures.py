"""Failures: a tree, as Temporal's (temporal.api.failure.v1.Failure).

The outermost failure says what the run saw (an activity failed); its causes say why (a timeout, an application error).
"""

from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec


class FailureKind(StrEnum):
    """What sort of failure a node of the tree is."""

    APPLICATION = "Application"
    """The user's code failed, with a type and a message of its own."""
    ACTIVITY = "Activity"
    """An activity failed for good; the cause says how its last attempt ended."""
    CHILD_WORKFLOW = "ChildWorkflow"
    """A child workflow did not complete; the cause says why."""
    TIMEOUT = "Timeout"
    """One of the timeouts fired; `timeout_type` says which."""
    CANCELLED = "Cancelled"
    """It was asked to stop, and stopped."""
    TERMINATED = "Terminated"
    """It was stopped from outside, unasked."""
    SERVER = "Server"
    """The platform failed: a pod was lost, a definition could not be evaluated."""


class TimeoutType(StrEnum):
    """Which timeout fired, in Temporal's words."""

    START_TO_CLOSE = "StartToClose"
    SCHEDULE_TO_START = "ScheduleToStart"
    SCHEDULE_TO_CLOSE = "ScheduleToClose"
    HEARTBEAT = "Heartbeat"


class RetryState(StrEnum):
    """Why retrying goes on or stopped (temporal.api.enums.v1.RetryState)."""

    IN_PROGRESS = "InProgress"
    NON_RETRYABLE_FAILURE = "NonRetryableFailure"
    TIMEOUT = "Timeout"
    MAXIMUM_ATTEMPTS_REACHED = "MaximumAttemptsReached"
    RETRY_POLICY_NOT_SET = "RetryPolicyNotSet"
    CANCEL_REQUESTED = "CancelRequested"


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One node of a failure tree.

    `kind` decides which of the other fields mean something; `cause` is the failure below this one.
    """

    kind: FailureKind
    message: str = ""
    type: str | None = None
    """Application: the type that `catch` and `nonRetryableErrorTypes` match, exactly."""
    details: Any = None
    """Application: any JSON value the failing code gave along."""
    non_retryable: bool = False
    next_retry_delay: timedelta | None = None
    """Application: replaces the computed interval for the one wait that follows."""
    timeout_type: TimeoutType | None = None
    last_heartbeat_details: Any = None
    activity: str | None = None
    activity_id: str | None = None
    attempt: int | None = None
    retry_state: RetryState | None = None
    source: str | None = None
    stack_trace: str | None = None
    log: str | None = None
    """The end of the log of the container that failed, at most 4 KiB."""
    workflow_type: str | None = None
    workflow_id: str | None = None
    run_id: str | None = None
    category: str | None = None
    """Application: ``Benign`` where it is no cause for alarm."""
    scheduled_event_id: int | None = None
    """Activity, ChildWorkflow: the event that asked for it."""
    started_event_id: int | None = None
    identity: str | None = None
    """Activity: the worker that did it."""
    namespace: str | None = None
    encoded_attributes: Any = None
    """Message and stack trace as a codec of the user's has left them, opaque."""
    cause: "Failure | None" = None
    suppressed: "tuple[Failure, ...]" = ()
    """Failures of the compensations and handlers that ran because of this one."""

    def chain(self) -> "list[Failure]":
        """This failure and its causes, outermost first."""
        found: list[Failure] = []
        node: Failure | None = self
        while node is not None:
            found.append(node)
            node = node.cause
        return found

    def type_names(self) -> frozenset[str]:
        """The names under which this node can be listed in an error-type list.

        An application failure goes by its type. A timeout goes by ``TemporalTimeout:<type>``, the name Temporal's server
        matches non-retryable types against (service/history/workflow/retry.go), and by ``Timeout``.
        """
        match self.kind:
            case FailureKind.TIMEOUT:
                return frozenset({"Timeout", f"TemporalTimeout:{self.timeout_type}"})
            case FailureKind.APPLICATION if self.type:
                return frozenset({self.type})
            case _:
                return frozenset({self.kind.value})
