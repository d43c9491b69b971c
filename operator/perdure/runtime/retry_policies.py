"""RetryPolicies: their status (the first backoff intervals, and whether they are valid), and their circuit breakers. Pure.

A circuit breaker decides whether an attempt may start; the end of each attempt changes the shared state::

    Closed ──failureThreshold failures in a row──▶ Open ──openDuration──▶ HalfOpen ──successThreshold successes──▶ Closed
                                                    ▲                       │ one attempt at a time
                                                    └───────one failure─────┘
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api.kinds.retrypolicy import Circuit, CircuitBreaker
from perdure.api.kinds.status import read_conditions, set_condition
from perdure.api.phases import CircuitState
from perdure.api.reasons import ConditionReason, ConditionType
from perdure.api.times import format_decimal_duration
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import CircuitReport, CircuitResult
from perdure.runtime.attempts import RunRef

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


REMEMBERED: Final = 100
"""Number of recently counted attempts to remember, so that none is counted twice after a crash."""


@dataclass(frozen=True, slots=True)
class Held:
    """An attempt may not start yet."""

    reason: str
    until: datetime | None
    """The end of the wait; None: the end of the trial attempt."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An attempt, as `status.circuit` names it."""

    run: str
    """Name of the WorkflowRun, for users."""
    uid: str
    """UID of the WorkflowRun: a run that was deleted and re-created under the same name is a different run."""
    event: int
    """The event that scheduled the activity."""
    attempt: int


def holder(run: RunRef, key: str) -> str:
    """Name an attempt, as `status.circuit.trial` does.

    Args:
        run: The run of the attempt.
        key: The attempt within the run, as in `RunState.reports`: ``<scheduled event>/<attempt>``.
    """
    return f"{run.name}/{run.uid}/{key}"


def read_holder(text: str) -> Holder | None:
    """Read the attempt from `status.circuit.trial`; None if it is not valid."""
    parts = text.split("/")
    if len(parts) != 4 or not all(parts):  # noqa: PLR2004 (as `holder` writes it)
        return None
    run, uid, event, attempt = parts
    if not (event.isdecimal() and attempt.isdecimal()):
        return None
    return Holder(run, uid, int(event), int(attempt))


def admit(policy: str, circuit: Circuit, attempt: str, now: datetime) -> tuple[Circuit, Held | None]:
    """Decide whether an attempt may start.

    Args:
        policy: Name of the RetryPolicy.
        circuit: State of its circuit breaker.
        attempt: The attempt.
        now: The time.

    Returns:
        The state to record before the attempt starts, and None; or the same state, and why the attempt must wait.
    """
    match circuit.state:
        case CircuitState.CLOSED:
            return circuit, None
        case CircuitState.OPEN if circuit.open_until is not None and now < circuit.open_until:
            until = circuit.open_until.strftime("%Y-%m-%dT%H:%M:%SZ")
            return circuit, Held(
                f"the circuit breaker of RetryPolicy `{policy}` is open until {until}", until=circuit.open_until
            )
        case CircuitState.HALF_OPEN if circuit.trial not in {None, attempt}:
            reason = (
                f"the circuit breaker of RetryPolicy `{policy}` admits one attempt at a time, currently {circuit.trial}"
            )
            return circuit, Held(reason, until=None)
        case _:
            successes = circuit.consecutive_successes if circuit.state is CircuitState.HALF_OPEN else 0
            taken = {"state": CircuitState.HALF_OPEN, "trial": attempt, "consecutive_successes": successes}
            return circuit.model_copy(update={**taken, "open_until": None}), None


def count(breaker: CircuitBreaker, circuit: Circuit, attempt: str, report: CircuitReport) -> Circuit:
    """Count the end of an attempt. The same report counts once.

    An attempt that started before the circuit opened and ends while it is open or half-open changes nothing: its report is stale.

    Args:
        breaker: The settings of the breaker.
        circuit: The state of the breaker.
        attempt: The attempt.
        report: The report of the end of the attempt.

    Returns:
        The new state; the same object if nothing has changed.
    """
    if attempt in circuit.counted:
        return circuit
    changes = _changes(breaker, circuit, attempt, report)
    if not changes:
        return circuit
    return circuit.model_copy(update={**changes, "counted": [*circuit.counted, attempt][-REMEMBERED:]})


def release(circuit: Circuit, attempt: str) -> Circuit:
    """Admit another trial attempt in place of one that will never report its end, because its run no longer exists."""
    return circuit.model_copy(update={"trial": None}) if circuit.trial == attempt else circuit


def _changes(breaker: CircuitBreaker, circuit: Circuit, attempt: str, report: CircuitReport) -> dict[str, object]:
    if circuit.state is CircuitState.CLOSED:
        return _while_closed(breaker, circuit, report)
    if circuit.state is CircuitState.HALF_OPEN and circuit.trial == attempt:
        return _tried(breaker, circuit, report)
    return {}


def _while_closed(breaker: CircuitBreaker, circuit: Circuit, report: CircuitReport) -> dict[str, object]:
    failures = circuit.consecutive_failures
    match report.result:
        case CircuitResult.FAILED if failures + 1 >= breaker.failure_threshold:
            return _opened(breaker, circuit, report)
        case CircuitResult.FAILED:
            return {"consecutive_failures": failures + 1, "last_failure_time": report.time}
        case CircuitResult.SUCCEEDED if failures and not _older(report, circuit):
            return {"consecutive_failures": 0}
        case _:
            return {}


def _tried(breaker: CircuitBreaker, circuit: Circuit, report: CircuitReport) -> dict[str, object]:
    """Count the end of the trial attempt."""
    successes = circuit.consecutive_successes + 1
    if report.result is CircuitResult.FAILED:
        return _opened(breaker, circuit, report)
    if report.result is CircuitResult.RELEASED:
        return {"trial": None}
    if successes < breaker.success_threshold:
        return {"trial": None, "consecutive_successes": successes}
    return {"state": CircuitState.CLOSED, "consecutive_failures": 0, "consecutive_successes": 0, "trial": None}


def _opened(breaker: CircuitBreaker, circuit: Circuit, report: CircuitReport) -> dict[str, object]:
    return {
        "state": CircuitState.OPEN,
        "opened_at": report.time,
        "open_until": report.time + breaker.open_duration,
        "last_failure_time": report.time,
        "consecutive_failures": circuit.consecutive_failures + 1,
        "consecutive_successes": 0,
        "trial": None,
    }


def _older(report: CircuitReport, circuit: Circuit) -> bool:
    """Whether a success is older than the last failure: if it is reported late, it does not end the series of failures."""
    return circuit.last_failure_time is not None and report.time < circuit.last_failure_time
