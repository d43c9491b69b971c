"""What is written anew of a run, for another one that goes on for it, says what it said before."""

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.script import Drive, Reacting
from perdure.api.durations import LONGEST
from perdure.api.retrypolicy import COEFFICIENT_PATTERN, RetryPolicyChoice
from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.retry import RetryPolicy
from perdure.runtime.chains import continuation_of, retry_policy_json, successor_run


def written(policy: RetryPolicy) -> RetryPolicyChoice:
    """As the API takes it; raises what it refuses it with."""
    return RetryPolicyChoice.parse(retry_policy_json(policy))


@given(st.from_regex(COEFFICIENT_PATTERN, fullmatch=True).filter(lambda text: float(text) >= 1))
@example("999999.9")
@example("999999.999999999")
@example("123456.789")
@example("1.0000001")
@example("1.000000001")
@example("100000")
@example("10")
def test_every_coefficient_survives_being_written_anew(text: str) -> None:
    again = written(RetryPolicy(backoff_coefficient=float(text))).exponential
    assert again is not None
    assert float(again.backoff_coefficient) == float(text)
    assert "e" not in again.backoff_coefficient


@given(st.floats(min_value=1, allow_nan=False, allow_infinity=True), st.timedeltas(min_value=timedelta(microseconds=1)))
def test_whatever_a_client_of_temporal_asks_for_can_be_written(coefficient: float, length: timedelta) -> None:
    policy = RetryPolicy(backoff_coefficient=coefficient, initial_interval=length, maximum_interval=length)
    again = written(policy).exponential
    assert again is not None
    assert float(again.backoff_coefficient) == pytest.approx(min(coefficient, 999_999.999999999), abs=1e-9)
    assert again.initial_interval == again.maximum_interval
    assert abs(again.initial_interval - min(length, LONGEST)) <= timedelta(milliseconds=1)


def test_what_a_run_has_heeded_the_next_one_does_not_heed_again() -> None:
    goes_on = Reacting((), WorkflowExecutionSignaled=[(cmd.ContinueAsNewWorkflowExecution(),)])
    before = Drive.by(goes_on, successor="next")
    asked = inp.SignalRequested(request_id="one", signal_name="go")
    before.ask(1, asked)
    run = {"metadata": {"name": "flow", "namespace": "orders", "uid": "u-1"}, "spec": {"workflow": {"name": "flow"}}}
    tie = continuation_of(successor_run(run, before.state, before.history[-1]))
    assert tie is not None
    after = Drive.by(Reacting(), heeded=tie.heeded)
    assert after.ask(1, asked).ok
    assert [type(event).__name__ for event in after.history] == ["WorkflowExecutionStarted"]
    after.ask(2, inp.SignalRequested(request_id="two", signal_name="go"))
    assert [type(event).__name__ for event in after.history][1:] == ["WorkflowExecutionSignaled"]
