"""Repeated and unrecorded acknowledgments are reported."""

from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Outcome, UpdateRef

from simulated.sdk.acknowledged import Acknowledged
from simulated.sdk.acknowledged_updates import LOST, AcknowledgedUpdates
from simulated.sdk.decisions import payloads
from simulated.sdk.updates import REJECTED

TIME = "2026-11-22T00:00:00Z"


def run(uid: str, *signals: str) -> dict[str, Any]:
    """A run of YAML that has got signals."""
    events = [
        {
            "eventId": number,
            "eventTime": TIME,
            "eventType": "WorkflowExecutionSignaled",
            "signalName": "news",
            "input": value,
        }
        for number, value in enumerate(signals, start=2)
    ]
    return {"metadata": {"uid": uid, "name": uid}, "spec": {"workflow": {"name": "any"}}, "events": events}


def found(acknowledged: Acknowledged, failures: list[str], *runs: dict[str, Any]) -> str:
    acknowledged.check(runs, lambda run: run["events"])
    return " ".join(failures)


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def acknowledged(failures: list[str]) -> Acknowledged:
    return Acknowledged(failures.append)


def test_an_accepted_signal_recorded_once_is_valid(acknowledged: Acknowledged, failures: Any) -> None:
    acknowledged.signalled("flow", "one")
    assert found(acknowledged, failures, run("a", "one"), run("b")) == ""


def test_a_lost_signal_is_reported(acknowledged: Acknowledged, failures: Any) -> None:
    acknowledged.signalled("flow", "one")
    assert "signal one to flow was accepted, and 0 runs have it" in found(acknowledged, failures, run("a", "two"))


def test_a_signal_in_two_runs_is_reported_unless_one_is_a_reset(acknowledged: Acknowledged, failures: Any) -> None:
    acknowledged.signalled("flow", "one")
    assert "2 runs have it" in found(acknowledged, failures, run("a", "one"), run("b", "one"))
    failures.clear()
    acknowledged.resets.add("flow")
    assert found(acknowledged, failures, run("a", "one"), run("b", "one")) == ""


def test_a_signal_recorded_twice_in_a_run_is_reported(acknowledged: Acknowledged, failures: Any) -> None:
    assert "signal one is 2 times in run a" in found(acknowledged, failures, run("a", "one", "one"))


def test_a_started_run_that_does_not_exist_is_reported(acknowledged: Acknowledged, failures: Any) -> None:
    acknowledged.started("flow", "request", "gone")
    assert "do not exist" in found(acknowledged, failures, run("a"))


def test_two_runs_of_one_request_are_reported(acknowledged: Acknowledged, failures: Any) -> None:
    acknowledged.started("flow", "request", "a")
    acknowledged.started("flow", "request", "b")
    assert failures == ["one request has started runs a and b of flow"]


def test_two_decisions_of_one_task_are_reported(acknowledged: Acknowledged, failures: Any) -> None:
    acknowledged.decided("a", 3, b"one")
    acknowledged.decided("a", 3, b"one")  # the same response, repeated
    assert failures == []
    acknowledged.decided("a", 3, b"two")
    assert failures == ["two decisions of task 3 of run a are accepted"]


def test_two_reports_of_one_attempt_are_reported(acknowledged: Acknowledged, failures: Any) -> None:
    acknowledged.reported(b"token")
    acknowledged.reported(b"token")
    assert failures == ["two reports of attempt token are accepted"]


UPDATE = UpdateRef(update_id="u")
UPDATE.workflow_execution.run_id = "a"
DONE, OTHER = (Outcome(success=payloads(value)) for value in ("done", "other"))
REJECTION = Outcome()
REJECTION.failure.message = REJECTED


def accepted() -> HistoryEvent:
    made = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED)
    made.workflow_execution_update_accepted_event_attributes.protocol_instance_id = "u"
    return made


def completed(outcome: Outcome = DONE) -> HistoryEvent:
    made = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED)
    said = made.workflow_execution_update_completed_event_attributes
    said.meta.update_id = "u"
    said.outcome.CopyFrom(outcome)
    return made


@pytest.mark.parametrize(
    ("answer", "history"),
    [
        (None, [accepted()]),
        (None, [accepted(), completed()]),
        (DONE, [accepted(), completed()]),
        (LOST, [accepted()]),
        (REJECTION, []),
    ],
)
def test_an_answer_about_an_update_that_agrees_with_the_history_is_valid(
    answer: Outcome | None, history: list[HistoryEvent], failures: list[str]
) -> None:
    updates = AcknowledgedUpdates(failures.append)
    updates.answered(UPDATE, answer)
    updates.check("a", history)
    assert failures == []


@pytest.mark.parametrize(
    ("answer", "history"),
    [
        (None, []),
        (None, [accepted(), accepted()]),
        (None, [completed()]),
        (DONE, [accepted()]),
        (DONE, [accepted(), completed(), completed()]),
        (DONE, [accepted(), completed(OTHER)]),
        (LOST, [accepted(), completed()]),
        (REJECTION, [accepted()]),
    ],
)
def test_an_answer_about_an_update_that_differs_from_the_history_is_reported(
    answer: Outcome | None, history: list[HistoryEvent], failures: list[str]
) -> None:
    updates = AcknowledgedUpdates(failures.append)
    updates.answered(UPDATE, answer)
    updates.check("a", history)
    assert "update u of run a" in failures[0]


def test_two_outcomes_of_one_update_are_reported(failures: list[str]) -> None:
    updates = AcknowledgedUpdates(failures.append)
    updates.answered(UPDATE, DONE)
    updates.answered(UPDATE, DONE)
    updates.answered(UPDATE, None)
    assert failures == []
    updates.answered(UPDATE, OTHER)
    assert "has two outcomes" in failures[0]


STARTED = {
    "workflowType": "Order",
    "workflowId": "a",
    "taskQueue": "orders",
    "workflowTaskTimeout": "PT10S",
    "successor": "b",
}
STARTED |= dict.fromkeys(("originalExecutionRunId", "firstExecutionRunId", "rootRunId"), "a")
TASK = {"taskQueue": "orders", "startToCloseTimeout": "PT10S"}


def coded(*events: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A run of code with a history."""
    numbered = [
        {"eventId": number, "eventTime": TIME, "eventType": kind, **fields}
        for number, (kind, fields) in enumerate(events, 1)
    ]
    spec = {"workflow": {"type": "Order", "taskQueue": "orders"}}
    return {"metadata": {"uid": "a", "name": "a"}, "spec": spec, "status": {}, "events": numbered}


CANCELLATION = (("WorkflowExecutionCancelRequested", {}), ("WorkflowExecutionCanceled", {}))


def test_a_run_that_is_cancelled_before_it_can_begin_has_no_workflow_task(
    acknowledged: Acknowledged, failures: list[str]
) -> None:
    """Found in a fleet of mixed versions: the owner of the parent cancels a child before the owner of the child starts it."""
    assert found(acknowledged, failures, coded(("WorkflowExecutionStarted", STARTED), *CANCELLATION)) == ""


def test_a_cancelled_run_whose_workers_have_not_decided_is_reported(
    acknowledged: Acknowledged, failures: list[str]
) -> None:
    events = ("WorkflowExecutionStarted", STARTED), ("WorkflowTaskScheduled", TASK), *CANCELLATION
    assert "run a does not replay: event 4 is" in found(acknowledged, failures, coded(*events))
