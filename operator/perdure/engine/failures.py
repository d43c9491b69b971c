"""Failures: a tree, as Temporal's (temporal.api.failure.v1.Failure).

The outermost failure says what the run saw (an activity failed); its causes say why (a timeout, an application error).

A failure passes from a child to its parent, whose own failure wraps it, and each status holds several copies. So messages and
whole trees are bounded: `shorten` and `bounded`.
"""

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from perdure.api.depth import nests_deeper

MAX_MESSAGE: Final = 4_096
"""Characters of a message that quotes the messages of other failures."""
MAX_SIZE: Final = 64 * 1024
"""Bytes of JSON of a failure in a history."""
_MAX_LEVELS: Final = 220
"""Levels of JSON of a failure in a history; the status around it nests some more."""
_ELLIPSIS: Final = " … "
_TEXTS: Final = ("message", "type", "source", "stack_trace", "log", "identity")
_VALUES: Final = ("details", "last_heartbeat_details", "encoded_attributes")


class FailureKind(StrEnum):
    """What sort of failure a node of the tree is."""

    APPLICATION = "Application"
    """The user's code failed, with a type and a message of its own."""
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
    """The handler of a Nexus operation refused or failed a call; `type` is the type of the error."""


class TimeoutType(StrEnum):
    """Which timeout fired, in Temporal's words."""

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
"""Kinds that only say which part of a run has failed; the cause says why."""
_THEN = "then failed as well: "


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
    kindless: bool = False
    """Application: whether the SDK named no kind, as for its own errors. Only clients and workers see the difference."""
    scheduled_event_id: int | None = None
    """Activity, ChildWorkflow, NexusOperation: the event that asked for it."""
    started_event_id: int | None = None
    identity: str | None = None
    """Activity: the worker that did it."""
    namespace: str | None = None
    endpoint: str | None = None
    service: str | None = None
    operation: str | None = None
    operation_token: str | None = None
    retry_behavior: str | None = None
    """NexusHandler: whether the call is retried, where the type of the error does not decide it."""
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

    @property
    def full_message(self) -> str:
        """The message for people, with the type of each application failure in it, such as `KeyError: 'n'`.

        `message` is what the failing code said, and what expressions see; alone it may say nothing.
        """
        message, after = self.message, ""
        for other in reversed(self.suppressed):
            told = f"{_THEN}{other.message}"
            if message.endswith(told):
                shorter = message.removesuffix(told)
                message = shorter.removesuffix("; ")
                after = shorter[len(message) :] + _THEN + other.full_message + after
        cause = self.cause
        if cause is not None and cause.message and message.endswith(cause.message):
            message = message.removesuffix(cause.message) + cause.full_message
        elif self.kind in _WRAPPERS and (first := self.chain()[-1]).kind is FailureKind.APPLICATION:
            message = ": ".join(filter(None, (message, "" if first.message in message else first.full_message)))
        if self.kind is FailureKind.APPLICATION and self.type and not message.startswith(self.type):
            message = f"{self.type}: {message}" if message else self.type
        return message + after

    def type_names(self) -> frozenset[str]:
        """The names under which this node can be listed in an error-type list.

        An application failure goes by its type. A timeout goes by ``TemporalTimeout:<type>``, the name Temporal's server
        matches non-retryable types against (service/history/workflow/retry.go), and by ``Timeout``.
        """
        match self.kind:
            case FailureKind.TIMEOUT:
                return frozenset({"Timeout", f"TemporalTimeout:{self.timeout_type}"})
            case FailureKind.APPLICATION | FailureKind.NEXUS_HANDLER if self.type:
                return frozenset({self.type})
            case _:
                return frozenset({self.kind.value})


def shorten(text: str, limit: int = MAX_MESSAGE) -> str:
    """Cut a text in the middle: the beginning says which step failed, and the end says why."""
    if len(text) <= limit:
        return text
    kept = max(limit - len(_ELLIPSIS), 0)
    return text[: kept - kept // 2] + _ELLIPSIS + text[len(text) - kept // 2 :]


def bounded(failure: Failure, limit: int = MAX_SIZE) -> Failure:
    """Give a failure as it is recorded: the same one if it fits, otherwise with shorter texts and without large values.

    The outermost failure and the innermost cause keep more than the causes between them.

    Args:
        failure: The failure.
        limit: Bytes of JSON that it may have, 2 KiB or more.
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
    """Give a failure with shorter texts, without large values, and with another cause.

    Args:
        failure: The failure.
        length: Characters of a text, and bytes of JSON of a value, that it keeps.
        cause: Its new cause.
    """
    texts = {name: text and shorten(text, length) for name in _TEXTS if (text := getattr(failure, name)) is not None}
    large = {name: None for name in _VALUES if not _fits(getattr(failure, name), length)}
    suppressed = tuple(_abridged(each, length // 16) for each in failure.suppressed[: length // 64])
    return msgspec.structs.replace(failure, cause=cause, suppressed=suppressed, **texts, **large)


def _fits(value: Any, limit: int) -> bool:
    return len(msgspec.json.encode(value)) <= limit and not nests_deeper(msgspec.to_builtins(value), _MAX_LEVELS)


def full_message_of(failure: Any) -> str:
    """The full message of a failure that is given as JSON; its own message where the rest cannot be read."""
    try:
        return msgspec.convert(failure, Failure).full_message
    except msgspec.ValidationError:
        return str(failure.get("message") or "") if isinstance(failure, dict) else ""
