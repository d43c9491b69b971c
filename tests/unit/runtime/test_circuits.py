"""Circuit breakers: states and transitions."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from perdure.api.kinds.retrypolicy import Circuit, CircuitBreaker
from perdure.api.phases import CircuitState
from perdure.engine.state import CircuitReport, CircuitResult
from perdure.runtime.attempts import RunRef
from perdure.runtime.circuits import REMEMBERED, Holder, admit, count, holder, read_holder, release

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BREAKER = CircuitBreaker(failure_threshold=3, open_duration=timedelta(seconds=60), success_threshold=2)
A, B = "run-a/2/1", "run-b/2/1"


def report_of(result: CircuitResult, at: float = 0) -> CircuitReport:
    return CircuitReport(policy="shared", result=result, time=NOW + timedelta(seconds=at))


def after(*results: str, circuit: Circuit | None = None) -> Circuit:
    circuit = circuit or Circuit()
    for number, result in enumerate(results):
        circuit = count(BREAKER, circuit, f"run/{number}/1", report_of(CircuitResult(result), number))
    return circuit


OPEN = after("Failed", "Failed", "Failed")


def test_consecutive_failures_open_the_circuit_for_a_while() -> None:
    assert after("Failed", "Failed").state is CircuitState.CLOSED
    assert OPEN.state is CircuitState.OPEN
    assert OPEN.open_until == NOW + timedelta(seconds=62)
    same, held = admit("shared", OPEN, A, NOW + timedelta(seconds=61))
    assert same is OPEN
    assert held is not None
    assert held.until == OPEN.open_until
    assert "shared" in held.reason


def test_a_success_resets_the_count_of_failures() -> None:
    assert after("Failed", "Failed", "Succeeded", "Failed", "Failed").state is CircuitState.CLOSED
    assert after("Failed", "Failed", "Released", "Failed").state is CircuitState.OPEN


def test_a_late_report_of_an_earlier_success_does_not_reset_the_count() -> None:
    circuit = after("Failed", "Failed")
    assert count(BREAKER, circuit, A, report_of(CircuitResult.SUCCEEDED, 0.5)) is circuit


def half_open(who: str = A) -> Circuit:
    circuit, held = admit("shared", OPEN, who, NOW + timedelta(seconds=62))
    assert held is None
    return circuit


def test_a_half_open_circuit_admits_one_attempt_at_a_time() -> None:
    circuit = half_open()
    assert (circuit.state, circuit.trial) == (CircuitState.HALF_OPEN, A)
    again, held = admit("shared", circuit, A, NOW)
    assert held is None
    assert again == circuit
    _, held = admit("shared", circuit, B, NOW)
    assert held is not None
    assert A in held.reason


def test_enough_successful_trials_close_the_circuit_and_one_failure_reopens_it() -> None:
    first = count(BREAKER, half_open(), A, report_of(CircuitResult.SUCCEEDED, 70))
    assert (first.state, first.trial, first.consecutive_successes) == (CircuitState.HALF_OPEN, None, 1)
    second, _ = admit("shared", first, B, NOW)
    closed = count(BREAKER, second, B, report_of(CircuitResult.SUCCEEDED, 80))
    assert (closed.state, closed.consecutive_failures) == (CircuitState.CLOSED, 0)
    opened = count(BREAKER, second, B, report_of(CircuitResult.FAILED, 80))
    assert (opened.state, opened.open_until) == (CircuitState.OPEN, NOW + timedelta(seconds=140))


def test_reports_of_other_attempts_are_ignored_while_open_or_half_open() -> None:
    for circuit in (OPEN, half_open()):
        for result in CircuitResult:
            assert count(BREAKER, circuit, B, report_of(result, 100)) is circuit


def test_a_released_or_abandoned_trial_makes_room_for_the_next() -> None:
    assert count(BREAKER, half_open(), A, report_of(CircuitResult.RELEASED)).trial is None
    assert release(half_open(), A).trial is None
    assert release(half_open(), B).trial == A


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(CircuitResult)), max_size=30))
def test_repeated_reports_count_once(reports: list[tuple[int, CircuitResult]]) -> None:
    once = twice = Circuit()
    for number, (run, result) in enumerate(reports):
        who = f"run-{run}/{number}/1"
        report = report_of(result, number)
        once = count(BREAKER, once, who, report)
        twice = count(BREAKER, count(BREAKER, twice, who, report), who, report)
        assert once == twice
        assert len(once.counted) <= REMEMBERED
        assert (once.state is CircuitState.OPEN) == (once.consecutive_failures >= BREAKER.failure_threshold)


def test_the_holder_of_a_trial_identifies_its_attempt() -> None:
    run = RunRef(namespace="shop", name="a.b-c", uid="uid", workflow_id="any/thing")
    assert read_holder(holder(run, "12/3")) == Holder("a.b-c", "uid", 12, 3)
    for broken in ("", "run", "run/1/2", "run/uid/x/1", "run/uid/1", "run//1/2", "/uid/1/2", "run/uid/1/2/3"):
        assert read_holder(broken) is None


def test_reports_of_a_recreated_run_count_separately() -> None:
    circuit = Circuit()
    for uid in ("first", "second", "third"):
        run = RunRef(namespace="shop", name="order", uid=uid, workflow_id="order")
        circuit = count(BREAKER, circuit, holder(run, "2/1"), report_of(CircuitResult.FAILED))
    assert circuit.state is CircuitState.OPEN


def test_holders_with_the_longest_names_fit_into_the_status() -> None:
    run = RunRef(namespace="shop", name="r" * 253, uid="4fa1cc1e-6dd9-4c05-9be1-6f5b9cb8e2a1", workflow_id="w")
    longest = holder(run, f"{2**53}/{2**53}")
    circuit = Circuit(state=CircuitState.HALF_OPEN, trial=longest, counted=[longest] * REMEMBERED)
    assert Circuit.parse(circuit.dump()) == circuit
