"""Repeated and unrecorded acknowledgments are reported."""

from typing import Any

import pytest

from simulated.sdk.acknowledged import Acknowledged

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
