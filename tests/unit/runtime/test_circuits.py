"""Circuit breakers, as a state and what happens to it."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from perdure.api.retrypolicy import Circuit, CircuitBreaker, CircuitState
from perdure.engine.state import CircuitReport, CircuitResult
from perdure.runtime.attempts import RunRef
from perdure.runtime.circuits import REMEMBERED, Holder, admit, count, holder, read_holder, release

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BREAKER = CircuitBreaker(failure_threshold=3, open_duration=timedelta(seconds=60), success_threshold=2)
A, B = "run-a/2/1", "run-b/2/1"


def told(result: CircuitResult, at: float = 0) -> CircuitReport:
    return CircuitReport(policy="shared", result=result, time=NOW + timedelta(seconds=at))


def after(*results: str, circuit: Circuit | None = None) -> Circuit:
    circuit = circuit or Circuit()
    for number, result in enumerate(results):
        circuit = count(BREAKER, circuit, f"run/{number}/1", told(CircuitResult(result), number))
    return circuit


OPEN = after("Failed", "Failed", "Failed")


def test_failures_in_a_row_open_it_for_a_while() -> None:
    assert after("Failed", "Failed").state is CircuitState.CLOSED
    assert OPEN.state is CircuitState.OPEN
    assert OPEN.open_until == NOW + timedelta(seconds=62)
    same, held = admit("shared", OPEN, A, NOW + timedelta(seconds=61))
    assert same is OPEN
    assert held is not None
    assert held.until == OPEN.open_until
    assert "shared" in held.reason


def test_a_success_in_between_begins_the_row_anew() -> None:
    assert after("Failed", "Failed", "Succeeded", "Failed", "Failed").state is CircuitState.CLOSED
    assert after("Failed", "Failed", "Released", "Failed").state is CircuitState.OPEN


def test_a_success_that_came_before_the_last_failure_and_is_told_late_ends_no_row() -> None:
    circuit = after("Failed", "Failed")
    assert count(BREAKER, circuit, A, told(CircuitResult.SUCCEEDED, 0.5)) is circuit


def half_open(who: str = A) -> Circuit:
    circuit, held = admit("shared", OPEN, who, NOW + timedelta(seconds=62))
    assert held is None
    return circuit


def test_after_a_while_one_attempt_at_a_time_is_let_through() -> None:
    circuit = half_open()
    assert (circuit.state, circuit.trial) == (CircuitState.HALF_OPEN, A)
    again, held = admit("shared", circuit, A, NOW)
    assert held is None
    assert again == circuit
    _, held = admit("shared", circuit, B, NOW)
    assert held is not None
    assert A in held.reason


def test_enough_successes_close_it_and_one_failure_opens_it_again() -> None:
    first = count(BREAKER, half_open(), A, told(CircuitResult.SUCCEEDED, 70))
    assert (first.state, first.trial, first.consecutive_successes) == (CircuitState.HALF_OPEN, None, 1)
    second, _ = admit("shared", first, B, NOW)
    closed = count(BREAKER, second, B, told(CircuitResult.SUCCEEDED, 80))
    assert (closed.state, closed.consecutive_failures) == (CircuitState.CLOSED, 0)
    opened = count(BREAKER, second, B, told(CircuitResult.FAILED, 80))
    assert (opened.state, opened.open_until) == (CircuitState.OPEN, NOW + timedelta(seconds=140))


def test_what_others_tell_while_it_is_open_or_tried_is_old() -> None:
    for circuit in (OPEN, half_open()):
        for result in CircuitResult:
            assert count(BREAKER, circuit, B, told(result, 100)) is circuit


def test_a_trial_that_says_nothing_or_is_abandoned_makes_room_for_the_next() -> None:
    assert count(BREAKER, half_open(), A, told(CircuitResult.RELEASED)).trial is None
    assert release(half_open(), A).trial is None
    assert release(half_open(), B).trial == A


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(CircuitResult)), max_size=30))
def test_telling_twice_is_telling_once(reports: list[tuple[int, CircuitResult]]) -> None:
    once = twice = Circuit()
    for number, (run, result) in enumerate(reports):
        who = f"run-{run}/{number}/1"
        report = told(result, number)
        once = count(BREAKER, once, who, report)
        twice = count(BREAKER, count(BREAKER, twice, who, report), who, report)
        assert once == twice
        assert len(once.counted) <= REMEMBERED
        assert (once.state is CircuitState.OPEN) == (once.consecutive_failures >= BREAKER.failure_threshold)


def test_an_attempt_is_named_so_that_it_can_be_found() -> None:
    run = RunRef(namespace="shop", name="a.b-c", uid="uid", workflow_id="any/thing")
    assert read_holder(holder(run, "12/3")) == Holder("a.b-c", "uid", 12, 3)
    for broken in ("", "run", "run/1/2", "run/uid/x/1", "run/uid/1", "run//1/2", "/uid/1/2", "run/uid/1/2/3"):
        assert read_holder(broken) is None


def test_a_run_that_was_made_again_under_its_name_counts_anew() -> None:
    circuit = Circuit()
    for uid in ("first", "second", "third"):
        run = RunRef(namespace="shop", name="order", uid=uid, workflow_id="order")
        circuit = count(BREAKER, circuit, holder(run, "2/1"), told(CircuitResult.FAILED))
    assert circuit.state is CircuitState.OPEN


def test_the_longest_names_fit_into_the_status() -> None:
    run = RunRef(namespace="shop", name="r" * 253, uid="4fa1cc1e-6dd9-4c05-9be1-6f5b9cb8e2a1", workflow_id="w")
    longest = holder(run, f"{2**53}/{2**53}")
    circuit = Circuit(state=CircuitState.HALF_OPEN, trial=longest, counted=[longest] * REMEMBERED)
    assert Circuit.parse(circuit.dump()) == circuit
