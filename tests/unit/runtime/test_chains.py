"""Data passed from a run to its successor is equivalent."""

import json
from datetime import timedelta

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.api.kinds.retrypolicy import COEFFICIENT_PATTERN, RetryPolicyChoice
from perdure.api.policies import ParentClosePolicy
from perdure.api.times import LONGEST
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import SHORTEST_RUN, StartExtras, WorkflowStart
from perdure.engine.state import PendingChild
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import (
    child_run,
    continuation_of,
    depth_of,
    extras_of,
    parent_of,
    retry_policy_json,
    successor_run,
)
from support.engine.coded import Coded
from support.engine.script import Drive, Reacting


def written(policy: RetryPolicy) -> RetryPolicyChoice:
    """Write a policy as the API accepts it, or raise its error."""
    return RetryPolicyChoice.parse(retry_policy_json(policy))


@given(st.from_regex(COEFFICIENT_PATTERN, fullmatch=True).filter(lambda text: float(text) >= 1))
@example("999999.9")
@example("999999.999999999")
@example("123456.789")
@example("1.0000001")
@example("1.000000001")
@example("100000")
@example("10")
def test_backoff_coefficients_survive_formatting(text: str) -> None:
    again = written(RetryPolicy(backoff_coefficient=float(text))).exponential
    assert again is not None
    assert float(again.backoff_coefficient) == float(text)
    assert "e" not in again.backoff_coefficient


@given(st.floats(min_value=1, allow_nan=False, allow_infinity=True), st.timedeltas(min_value=timedelta(microseconds=1)))
def test_any_retry_policy_of_a_temporal_client_can_be_stored(coefficient: float, length: timedelta) -> None:
    policy = RetryPolicy(backoff_coefficient=coefficient, initial_interval=length, maximum_interval=length)
    again = written(policy).exponential
    assert again is not None
    assert float(again.backoff_coefficient) == pytest.approx(min(coefficient, 999_999.999999999), abs=1e-9)
    assert again.initial_interval == again.maximum_interval
    assert abs(again.initial_interval - min(length, LONGEST)) <= timedelta(milliseconds=1)


def test_requests_processed_by_a_run_are_not_processed_by_its_successor() -> None:
    goes_on = Reacting((), WorkflowExecutionSignaled=[(cmd.ContinueAsNewWorkflowExecution(),)])
    before = Drive.by(goes_on, successor="next")
    asked = inp.SignalRequested(request_id="one", signal_name="go")
    before.ask(1, asked)
    run = {"metadata": {"name": "flow", "namespace": "orders", "uid": "u-1"}, "spec": {"workflow": {"name": "flow"}}}
    tie = continuation_of(successor_run(run, before.state, before.history[-1]))
    assert tie is not None
    after = Drive.by(Reacting(), applied=tie.applied)
    assert after.ask(1, asked).ok
    assert [type(event).__name__ for event in after.history] == ["WorkflowExecutionStarted"]
    after.ask(2, inp.SignalRequested(request_id="two", signal_name="go"))
    assert [type(event).__name__ for event in after.history][1:] == ["WorkflowExecutionSignaled"]


FLOW = {"metadata": {"name": "flow", "namespace": "orders", "uid": "u-1"}, "spec": {"workflow": {"name": "flow"}}}


def continued_by(backoff: timedelta | None, lasts: timedelta) -> timedelta:
    """How long the next run waits that follows one which has waited for `backoff` and then run for `lasts`."""
    drive = Drive.by(
        Reacting((), WorkflowExecutionSignaled=[(cmd.ContinueAsNewWorkflowExecution(),)]),
        successor="next",
        first_workflow_task_backoff=backoff,
    )
    drive.ask(
        ((backoff or timedelta(0)) + lasts).total_seconds(), inp.SignalRequested(request_id="one", signal_name="go")
    )
    tie = continuation_of(successor_run(FLOW, drive.state, drive.history[-1]))
    assert tie is not None
    return tie.backoff or timedelta(0)


@given(st.timedeltas(timedelta(0), 3 * SHORTEST_RUN), st.timedeltas(timedelta(0), 3 * SHORTEST_RUN))
def test_runs_that_continue_as_new_start_at_least_a_second_apart(backoff: timedelta, lasts: timedelta) -> None:
    waits = continued_by(backoff or None, lasts)
    assert timedelta(0) <= waits <= SHORTEST_RUN
    assert lasts + waits >= SHORTEST_RUN - timedelta(microseconds=1)


def test_a_child_records_its_depth_which_its_successors_keep() -> None:
    start = WorkflowStart(workflow_type="flow", workflow_id="flow")
    pending = PendingChild(
        initiated_event_id=5,
        child_id="again",
        workflow_id="flow",
        workflow_type="flow",
        parent_close_policy=ParentClosePolicy.ABANDON,
        start=start,
    )
    parent = RunRef(namespace="orders", name="flow", uid="u-1", workflow_id="flow")
    child = child_run(parent, pending, depth_of(FLOW) + 1)
    child["metadata"]["uid"] = "u-2"
    assert (depth_of(FLOW), depth_of(child)) == (0, 1)
    grandchild = child_run(parent, pending, depth_of(child) + 1)
    assert depth_of(grandchild) == 2
    drive = Drive.by(
        Reacting((), WorkflowExecutionSignaled=[(cmd.ContinueAsNewWorkflowExecution(),)]), successor="next"
    )
    drive.ask(1, inp.SignalRequested(request_id="one", signal_name="go"))
    grandchild["metadata"]["uid"] = "u-3"
    assert depth_of(successor_run(grandchild, drive.state, drive.history[-1])) == 2


def test_a_child_of_an_older_operator_has_depth_one() -> None:
    old = {"name": "flow", "workflowId": "flow", "runId": "u-1", "initiatedEventId": 5}
    run = {"metadata": {"annotations": {"perdure.dev/parent": json.dumps(old)}}}
    assert parent_of(run) is not None
    assert depth_of(run) == 1


CODE = {
    "metadata": {"name": "order", "namespace": "orders", "uid": "u-1", "annotations": {}},
    "spec": {
        "workflow": {"type": "Order", "taskQueue": "orders"},
        "searchAttributes": {"Customer": "ada"},
        "retryPolicy": {"exponential": {"initialInterval": "1s"}},
        "runTimeout": "1h",
    },
}


def test_continue_as_new_of_code_passes_on_only_given_fields() -> None:
    extras = StartExtras(
        memo={"note": "first"}, identity="me", user_metadata={"summary": "s"}, priority={"priorityKey": 1}
    )
    run = json.loads(json.dumps(CODE))
    run["metadata"]["annotations"]["perdure.dev/start"] = msgspec.json.encode(extras).decode()
    before = Coded.begin(
        memo={"note": "first"},
        search_attributes={"Customer": "ada"},
        workflow_run_timeout=timedelta(hours=1),
        workflow_task_timeout=timedelta(seconds=20),
        retry_policy=RetryPolicy(),
    )
    before.decide(cmd.ContinueAsNewWorkflowExecution(workflow_run_timeout=timedelta(minutes=5)))
    closing = before.events[-1]
    assert isinstance(closing, ev.WorkflowExecutionContinuedAsNew)
    assert (closing.workflow_type, closing.task_queue) == ("Order", "orders")
    assert closing.workflow_run_timeout == timedelta(minutes=5)
    assert closing.workflow_task_timeout == timedelta(seconds=20)
    after = successor_run(run, before.state, closing)
    assert after["spec"]["workflow"] == {"type": "Order", "taskQueue": "orders"}
    assert after["spec"]["runTimeout"] == "5m"
    assert "searchAttributes" not in after["spec"]
    assert "retryPolicy" not in after["spec"]
    assert extras_of(after) == StartExtras(initiator="Workflow", priority={"priorityKey": 1})


def test_a_child_inherits_unset_fields_of_the_priority() -> None:
    extras = StartExtras(priority={"fairnessKey": "other"})
    start = WorkflowStart(workflow_type="Kid", task_queue="kids", workflow_id="kid", extras=extras)
    pending = PendingChild(
        initiated_event_id=5,
        child_id="1",
        workflow_id="kid",
        workflow_type="Kid",
        parent_close_policy=ParentClosePolicy.ABANDON,
        start=start,
    )
    parent = RunRef(namespace="orders", name="flow", uid="u-1", workflow_id="flow")
    child = child_run(parent, pending, 1, {"priorityKey": 2, "fairnessKey": "tenant"})
    assert extras_of(child).priority == {"priorityKey": 2, "fairnessKey": "other"}
    assert extras_of(child_run(parent, pending)).priority == {"fairnessKey": "other"}
