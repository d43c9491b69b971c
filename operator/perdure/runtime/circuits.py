"""Circuit breakers, which the attempts of all runs share: whether an attempt may start, and what its end changes. Pure.

    Closed ──failureThreshold failures in a row──▶ Open ──openDuration──▶ HalfOpen ──successThreshold successes──▶ Closed
                                                    ▲                       │ one attempt at a time
                                                    └───────one failure─────┘

A breaker belongs to a RetryPolicy, and its state is `status.circuit` there.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from perdure.api.kinds.retrypolicy import Circuit, CircuitBreaker
from perdure.api.phases import CircuitState
from perdure.engine.state import CircuitReport, CircuitResult
from perdure.runtime.attempts import RunRef

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
