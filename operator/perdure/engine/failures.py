"""Failures: a tree like Temporal's (temporal.api.failure.v1.Failure).

The outermost failure is the one that the run sees (an activity failed); its causes explain it (a timeout, an application error).

A parent's failure wraps the failure of its child, and each status holds several copies. So the sizes of messages and of whole
trees are limited: see `shorten` and `bounded`.
"""

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from perdure.api.json_values import nests_deeper
from perdure.api.stored import StoredStruct

MAX_MESSAGE: Final = 4_096
"""The size limit of a message that quotes other messages, in characters."""
MAX_SIZE: Final = 64 * 1024
"""The size limit of a failure in a history, in bytes of JSON."""
_MAX_LEVELS: Final = 220
"""The depth limit of a failure in a history, in levels of JSON; the status adds some levels around it."""
_ELLIPSIS: Final = " … "
_TEXTS: Final = ("message", "type", "source", "stack_trace", "log", "identity")
_VALUES: Final = ("details", "last_heartbeat_details", "encoded_attributes")


class FailureKind(StrEnum):
    """The kind of a node in the tree."""

    APPLICATION = "Application"
    """The user's code failed, with its own type and message."""
    ACTIVITY = "Activity"
    """An activity failed permanently; the cause says how its last attempt ended."""
    CHILD_WORKFLOW = "ChildWorkflow"
    """A child workflow did not complete; the cause says why."""
    TIMEOUT = "Timeout"
    """One of the timeouts fired; `timeout_type` says which."""
    CANCELLED = "Cancelled"
    """It stopped after a cancellation request."""
    TERMINATED = "Terminated"
    """It was terminated from outside."""
    SERVER = "Server"
    """The platform failed: a pod was lost, a definition could not be evaluated."""
    NEXUS_OPERATION = "NexusOperation"
    """A Nexus operation did not complete; the cause says why."""
    NEXUS_HANDLER = "NexusHandler"
    """The handler of a Nexus operation rejected or failed a call; `type` is the type of the error."""


class TimeoutType(StrEnum):
    """The timeout that fired, with Temporal's names."""

    START_TO_CLOSE = "StartToClose"
    SCHEDULE_TO_START = "ScheduleToStart"
    SCHEDULE_TO_CLOSE = "ScheduleToClose"
    HEARTBEAT = "Heartbeat"


class RetryState(StrEnum):
    """Why retrying continues or stopped (temporal.api.enums.v1.RetryState)."""

    IN_PROGRESS = "InProgress"
    """Another attempt follows."""
    NON_RETRYABLE_FAILURE = "NonRetryableFailure"
    """The failure is marked as not retryable, or the policy lists its type."""
    TIMEOUT = "Timeout"
    """The next attempt would not start before the schedule-to-close timeout."""
    MAXIMUM_ATTEMPTS_REACHED = "MaximumAttemptsReached"
    """The policy allows no further attempt."""
    RETRY_POLICY_NOT_SET = "RetryPolicyNotSet"
    """There is no retry policy."""
    CANCEL_REQUESTED = "CancelRequested"
    """A cancellation was requested, so no further attempt starts."""


_WRAPPERS = frozenset({FailureKind.ACTIVITY, FailureKind.CHILD_WORKFLOW, FailureKind.NEXUS_OPERATION})
"""Kinds that only name the part of a run that failed; the cause says why."""
THEN: Final = "then failed as well: "
"""Precedes the message of each suppressed failure in the message of the first one."""


class Failure(StoredStruct, frozen=True, kw_only=True):
    """One node of a failure tree.

    `kind` determines which other fields are used; `cause` is the failure below this one.
    """

    kind: FailureKind
    message: str = ""
    type: str | None = None
    """Application: the type that `catch` and `nonRetryableErrorTypes` match, exactly. Timeout: one more type that they match."""
    details: Any = None
    """Application: any JSON value from the failing code."""
    non_retryable: bool = False
    next_retry_delay: timedelta | None = None
    """Application: replaces the computed interval before the next attempt."""
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
    """Application: ``Benign`` if it is no cause for alarm."""
    kindless: bool = False
    """Application: whether the SDK set no kind, as for its own errors. Only clients and workers see the difference."""
    scheduled_event_id: int | None = None
    """Activity, ChildWorkflow, NexusOperation: the event that scheduled it."""
    started_event_id: int | None = None
    identity: str | None = None
    """Activity: the worker that ran it."""
    namespace: str | None = None
    endpoint: str | None = None
    service: str | None = None
    operation: str | None = None
    operation_token: str | None = None
    retry_behavior: str | None = None
    """NexusHandler: whether the call is retried, overriding the type of the error."""
    encoded_attributes: Any = None
    """Message and stack trace, encoded by the user's codec, opaque."""
    cause: "Failure | None" = None
    suppressed: "tuple[Failure, ...]" = ()
    """Other failures: of steps that ran next to this one, and of compensations and handlers that ran because of it."""

    def chain(self) -> "list[Failure]":
        """This failure and its causes, outermost first."""
        found: list[Failure] = []
        node: Failure | None = self
        while node is not None:
            found.append(node)
            node = node.cause
        return found

    @property
    def full_message(self) -> str:
        """The message for users, including the type of each application failure, such as `KeyError: 'n'`.

        `message` is the message from the failing code, which expressions see; alone it may be meaningless.
        """
        message, after = self.message, ""
        for other in reversed(self.suppressed):
            addition = f"{THEN}{other.message}"
            if message.endswith(addition):
                shorter = message.removesuffix(addition)
                message = shorter.removesuffix("; ")
                after = shorter[len(message) :] + THEN + other.full_message + after
        cause = self.cause
        if cause is not None and cause.message and message.endswith(cause.message):
            message = message.removesuffix(cause.message) + cause.full_message
        elif self.kind in _WRAPPERS and (first := self.chain()[-1]).kind is FailureKind.APPLICATION:
            message = ": ".join(filter(None, (message, "" if first.message in message else first.full_message)))
        if self.kind is FailureKind.APPLICATION and self.type and not message.startswith(self.type):
            message = f"{self.type}: {message}" if message else self.type
        return message + after

    def type_names(self) -> frozenset[str]:
        """The names of this node in lists of error types.

        The name of an application failure is its type. The names of a timeout are ``TemporalTimeout:<type>``, which Temporal's
        server matches with non-retryable types (service/history/workflow/retry.go), and ``Timeout``.
        """
        match self.kind:
            case FailureKind.TIMEOUT:
                return frozenset(
                    {"Timeout", f"TemporalTimeout:{self.timeout_type}", *([self.type] if self.type else ())}
                )
            case FailureKind.APPLICATION | FailureKind.NEXUS_HANDLER if self.type:
                return frozenset({self.type})
            case _:
                return frozenset({self.kind.value})


def shorten(text: str, limit: int = MAX_MESSAGE) -> str:
    """Cut a text in the middle, because the beginning says which step failed, and the end says why."""
    if len(text) <= limit:
        return text
    kept = max(limit - len(_ELLIPSIS), 0)
    return text[: kept - kept // 2] + _ELLIPSIS + text[len(text) - kept // 2 :]


def bounded(failure: Failure, limit: int = MAX_SIZE) -> Failure:
    """Return a failure that fits the limit: the same one if possible, otherwise with shorter texts and without large values.

    The outermost failure and the innermost cause keep more than the causes between them.

    Args:
        failure: The failure.
        limit: The size limit in bytes of JSON, at least 2 KiB.
    """
    return next(each for each in _ever_smaller(failure) if _fits(each, limit))


def _ever_smaller(failure: Failure) -> Iterator[Failure]:
    yield failure
    outermost, *causes = failure.chain()
    for ends, between in ((16_384, 4_096), (16_384, 1_024), (4_096, 256), (1_024, 64)):
        smaller: Failure | None = None
        for cause in reversed(causes):
            smaller = _abridged(cause, ends if smaller is None else between, smaller)
        yield _abridged(outermost, ends, smaller)
    yield _abridged(outermost, 256, _abridged(causes[-1], 256) if causes else None)
    yield Failure(
        kind=failure.kind, type=failure.type and shorten(failure.type, 64), message=shorten(failure.message, 256)
    )


def _abridged(failure: Failure, length: int, cause: Failure | None = None) -> Failure:
    """Return a failure with shorter texts, without large values, and with another cause.

    Args:
        failure: The failure.
        length: The limit of a text in characters, and of a value in bytes of JSON.
        cause: The new cause.
    """
    texts = {name: text and shorten(text, length) for name in _TEXTS if (text := getattr(failure, name)) is not None}
    large = {name: None for name in _VALUES if not _fits(getattr(failure, name), length)}
    suppressed = tuple(_abridged(each, length // 16) for each in failure.suppressed[: length // 64])
    return msgspec.structs.replace(failure, cause=cause, suppressed=suppressed, **texts, **large)


def _fits(value: Any, limit: int) -> bool:
    return len(msgspec.json.encode(value)) <= limit and not nests_deeper(msgspec.to_builtins(value), _MAX_LEVELS)


def full_message_of(failure: Any) -> str:
    """The full message of a failure in JSON; only its own message if the rest is not valid."""
    try:
        return msgspec.convert(failure, Failure).full_message
    except msgspec.ValidationError:
        return str(failure.get("message") or "") if isinstance(failure, dict) else ""
