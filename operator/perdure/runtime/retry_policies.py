"""The status of a RetryPolicy: the first waits between attempts, whether it is valid, and its circuit breaker. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api.kinds.retrypolicy import Circuit
from perdure.api.kinds.status import read_conditions, set_condition
from perdure.api.phases import CircuitState
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.api.times import format_decimal_duration
from perdure.engine.retry import RetryPolicy

PREVIEWED: Final = 8
"""Number of waits in `status.preview`."""

SHOWN: Final = 5
"""Number of waits in `status.waits`; further ones are shown as `…`."""

_CIRCUIT: Final = {
    CircuitState.CLOSED: (True, ConditionReason.CIRCUIT_CLOSED),
    CircuitState.OPEN: (False, ConditionReason.CIRCUIT_OPEN),
    CircuitState.HALF_OPEN: (False, ConditionReason.CIRCUIT_HALF_OPEN),
}


def backoffs(policy: RetryPolicy, count: int = PREVIEWED) -> list[timedelta]:
    """Return the first waits between attempts, even if the limits of the policy allow fewer."""
    return [policy.interval(attempt) for attempt in range(1, count + 1)]


def backoff_preview(policy: RetryPolicy) -> str:
    """Return the waits between all possible attempts if each fails immediately: `1s 2s 4s 8s 16s …`."""
    shown: list[str] = []
    waited = timedelta(0)
    for attempt in range(1, SHOWN + 2):
        wait = policy.interval(attempt)
        waited += wait
        if policy.limit(attempt=attempt, waited=waited) is not None:
            break
        shown.append("…" if attempt > SHOWN else format_decimal_duration(wait))
    return " ".join(shown) or "none"


def limits(policy: RetryPolicy) -> str:
    """Return how often a failure is retried, as a sentence without a full stop."""
    google = policy.cloud_scheduler
    if google is None:
        retries = policy.maximum_attempts - 1
        return "retries without limit" if retries < 0 else f"retries {_times(retries)}" if retries else "does not retry"
    lasting = format_decimal_duration(google.max_retry_duration)
    match bool(google.retry_count), bool(google.max_retry_duration):
        case False, False:
            return "does not retry: `retryCount` and `maxRetryDuration` are both 0"
        case True, False:
            return f"retries {_times(google.retry_count)}"
        case False, True:
            return f"retries 5 times at most, until {lasting} after the first attempt"
        case _:
            return f"retries at least {_times(google.retry_count)}, and until {lasting} after the first attempt"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def policy_status(
    before: dict[str, Any],
    policy: RetryPolicy | None,
    circuit: Circuit | None,
    *,
    generation: int,
    mistakes: Sequence[str] = (),
    now: datetime,
) -> dict[str, Any]:
    """The status of a RetryPolicy.

    Args:
        before: The status so far.
        policy: The retry policy; None if it is invalid.
        circuit: The state of its circuit breaker, if it has one.
        generation: Its `metadata.generation`.
        mistakes: The errors of an invalid policy.
        now: The current time, for conditions that change.
    """
    conditions = read_conditions(before)

    def set_status(kind: ConditionType, status: bool, reason: ConditionReason, message: str) -> None:
        nonlocal conditions
        conditions = set_condition(conditions, kind, status, reason, message, now=now, observed_generation=generation)

    if policy is None:
        set_status(ConditionType.READY, False, ConditionReason.INVALID_SPEC, "; ".join(mistakes))
    else:
        set_status(ConditionType.READY, True, ConditionReason.ACCEPTED, limits(policy))
    if circuit is None:
        conditions = [c for c in conditions if c.type != ConditionType.CIRCUIT_CLOSED]
    else:
        closed, reason = _CIRCUIT[circuit.state]
        set_status(ConditionType.CIRCUIT_CLOSED, closed, reason, _circuit_message(circuit))
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": [condition.dump() for condition in conditions],
        "preview": [format_decimal_duration(wait) for wait in backoffs(policy)] if policy else [],
    }
    if policy is not None:
        status["waits"] = backoff_preview(policy)
    if circuit is not None:
        status["circuit"] = circuit.dump()
    elif policy is None and "circuit" in before:
        status["circuit"] = before["circuit"]  # until the spec is valid
    return status


def _circuit_message(circuit: Circuit) -> str:
    match circuit.state:
        case CircuitState.OPEN:
            until = "" if circuit.open_until is None else circuit.open_until.strftime(" until %Y-%m-%dT%H:%M:%SZ")
            return f"{circuit.consecutive_failures} attempts failed in a row; no attempt is started{until}"
        case CircuitState.HALF_OPEN:
            return "one attempt at a time is admitted as a trial"
        case _:
            return ""
