"""Failures of steps: how they are built, matched, and shown to expressions."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

import msgspec

from perdure.api.times import show_duration
from perdure.engine import events as ev
from perdure.engine.failures import THEN, Failure, FailureKind, TimeoutType, bounded, shorten
from perdure.language.memory import Failures
from perdure.language.step_paths import Path

EXPRESSION_ERROR = "ExpressionError"
"""Failure type of a step whose expression has no value. It is not retried: the definition of a run does not change."""


DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Failure type of a run whose steps exceeded its `stepsTimeout`. It is a timeout, too: `catch` matches both."""
STEPS_FAILED = "StepsFailed"
"""Failure type of a `continueAsNew` that cannot take effect because steps have failed."""
_MAX_OTHERS: Final = 32 * 1024
"""Bytes of JSON of the failures after the first one that are kept."""
_MAX_OTHER: Final = 2_048
"""Bytes of JSON of each of them."""


class StepError(Exception):
    """A step fails with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def application(type_: str, message: str) -> Failure:
    """Build a failure from the interpreter. It is not retried: a retry would fail in the same way."""
    return Failure(kind=FailureKind.APPLICATION, type=type_, message=message, non_retryable=True)


def timeout(message: str) -> Failure:
    """Build the failure of a step that exceeded its timeout."""
    return Failure(kind=FailureKind.TIMEOUT, message=message, timeout_type=TimeoutType.START_TO_CLOSE)


def deadline(where: str, limit: timedelta, *, of_run: bool) -> Failure:
    """Build the failure of steps that exceeded their `stepsTimeout`.

    Args:
        where: The steps, for the message.
        limit: The `stepsTimeout`.
        of_run: Whether they are the main steps.
    """
    failure = timeout(f"{where} have taken longer than their `stepsTimeout` of {show_duration(limit)}")
    return msgspec.structs.replace(failure, type=DEADLINE_EXCEEDED) if of_run else failure


def steps_of(frame: Path) -> str:
    """The steps of a frame, for messages."""
    return f"the steps of `{frame}`" if frame.text else "the steps"


def added(failures: Failures | None, failure: Failure) -> Failures:
    """Record one more failure. There may be thousands: those that do not fit are only counted."""
    if failures is None:
        return Failures(kept=(failure,), count=1)
    kept = (*failures.kept, bounded(failure, _MAX_OTHER))
    if len(kept) <= failures.count or len(msgspec.json.encode(kept[1:])) > _MAX_OTHERS:
        kept = failures.kept
    return Failures(kept=kept, count=failures.count + 1)


def combined(failures: Failures) -> Failure:
    """The failure of a list of steps or a loop: the first failure, which names the others and has them under `suppressed`."""
    first, *others = failures.kept
    if failures.count > len(failures.kept):
        left = failures.count - len(failures.kept)
        others.append(Failure(kind=FailureKind.SERVER, message=f"{left} more step{'s' if left > 1 else ''} or items"))
    if not others:
        return first
    message = "; ".join([first.message, *(f"{THEN}{failure.message}" for failure in others)])
    return msgspec.structs.replace(first, message=shorten(message), suppressed=(*first.suppressed, *others))


def activity_failure(
    event: ev.ActivityTaskFailed | ev.ActivityTaskTimedOut | ev.ActivityTaskCanceled, activity: str
) -> Failure:
    """Build the failure of a step whose activity did not complete."""
    if isinstance(event, ev.ActivityTaskCanceled):
        cause = Failure(kind=FailureKind.CANCELLED, message="cancelled", details=event.details)
        why, retry_state = "was cancelled", None
    else:
        cause, retry_state = event.failure, event.retry_state
        counted = event.attempt - event.losses
        attempts = f"{counted} attempt{'s' if counted != 1 else ''}" + (
            f" and {event.losses} lost" if event.losses else ""
        )
        why = f"failed after {attempts} ({retry_state}): {cause.message}"
    return Failure(
        kind=FailureKind.ACTIVITY,
        message=shorten(f"step `{event.activity_id}`: activity `{activity}` {why}"),
        activity=activity,
        activity_id=event.activity_id,
        attempt=event.attempt,
        retry_state=retry_state,
        cause=cause,
    )


def child_failure(event: ev.StartChildWorkflowExecutionFailed | ev.ChildNotCompleted) -> Failure:
    """Build the failure of a step whose child did not complete."""
    match event:
        case ev.StartChildWorkflowExecutionFailed():
            cause, what = event.failure, "could not be started"
        case ev.ChildWorkflowExecutionFailed():
            cause, what = event.failure, "failed"
        case ev.ChildWorkflowExecutionCanceled():
            cause, what = (
                Failure(kind=FailureKind.CANCELLED, message="cancelled", details=event.details),
                "was cancelled",
            )
        case ev.ChildWorkflowExecutionTerminated():
            cause, what = Failure(kind=FailureKind.TERMINATED, message=event.reason), "was terminated"
        case _:
            cause, what = timeout("workflow timeout"), "timed out"
    why = f": {cause.message}" if cause.message and cause.message != "cancelled" else ""
    return Failure(
        kind=FailureKind.CHILD_WORKFLOW,
        message=shorten(f"step `{event.child_id}`: child workflow `{event.workflow_id}` {what}{why}"),
        workflow_id=event.workflow_id,
        run_id=getattr(event, "run_id", None) or None,
        retry_state=getattr(event, "retry_state", None),
        cause=cause,
    )


def matches(failure: Failure, types: Collection[str]) -> bool:
    """Whether a failure in the chain has one of the types; an empty list matches every failure."""
    return not types or any(not node.type_names().isdisjoint(types) for node in failure.chain())


def as_json(failure: Failure) -> dict[str, Any]:
    """Return a tree of failures as JSON. Each node has a `type` that `catch` can match."""
    data: dict[str, Any] = msgspec.to_builtins(failure)
    data.setdefault("type", min(failure.type_names()))
    if failure.cause:
        data["cause"] = as_json(failure.cause)
    if failure.suppressed:
        data["suppressed"] = [as_json(one) for one in failure.suppressed]
    return data


def as_variable(failure: Failure, types: Collection[str]) -> dict[str, Any]:
    """Return the value of `error` in expressions: the matching node, with the whole tree as `failure`.

    Without types, it is the first failure that does not only wrap another: an application failure, or a timeout.
    """
    chain = failure.chain()
    wraps = {FailureKind.ACTIVITY, FailureKind.CHILD_WORKFLOW}
    node = next(
        (node for node in chain if (not node.type_names().isdisjoint(types) if types else node.kind not in wraps)),
        failure,
    )
    return {
        "type": node.type or min(node.type_names()),
        "message": node.message,
        "details": node.details,
        "nonRetryable": node.non_retryable,
        "failure": as_json(failure),
    }
