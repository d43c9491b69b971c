"""Nexus operations of a run of code, as the command line shows them."""

from datetime import timedelta
from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.inputs import OperationOutcome
from perdure.view.runs.describe import as_data, describe
from perdure.view.runs.run import read_run
from perdure.view.runs.tree import tree
from support.engine.coded import Coded
from support.engine.nexus import BOOM, BUSY, answer, schedule, scheduled, started
from support.view.coderun import object_of, page, view_of
from support.view.flow import golden, plain


def shown(run: Coded) -> str:
    return plain(describe(view_of(run), page(run)))


def steps_of(run: Coded) -> str:
    return plain(tree(view_of(run), page(run)))


def data_of(run: Coded) -> list[dict[str, Any]]:
    pending: list[dict[str, Any]] = as_data(view_of(run), page(run))["pendingNexusOperations"]
    return pending


def test_an_operation_with_failed_calls_shows_attempt_failure_and_next_attempt() -> None:
    run = scheduled(schedule_to_close_timeout=timedelta(seconds=60))
    answer(run, OperationOutcome.ATTEMPT_FAILED, 1, failure=BUSY)
    assert steps_of(run) == golden("""
        STEP                STATUS        KIND           TRIES  START  TIME
        └─ invoices.charge  ↻ BackingOff  nexus billing  2      +0s    1s
             attempt 2 in 1s; attempt 1 failed: NexusHandler: busy
    """)
    assert golden("""
        Pending Nexus operations
          invoices.charge  ↻ BackingOff
            Endpoint:     billing, handled in namespace bills
            Attempt:      2; in 1s
            Scheduled:    2026-01-01T00:00:00Z (1s ago)
            Times out:    in 59s (ScheduleToClose)
            Last failure: NexusHandler: busy
    """) in shown(run)
    assert "temporal operator nexus endpoint get --name billing\n" in shown(run)
    assert "Task:         none; the run waits for its pending work\n" in shown(run)
    assert data_of(run) == [
        {
            "scheduledEventId": 5,
            "endpoint": "billing",
            "service": "invoices",
            "operation": "charge",
            "handlerNamespace": "bills",
            "state": "BackingOff",
            "attempt": 2,
            "scheduledTime": "2026-01-01T00:00:00Z",
            "nextAttemptTime": "2026-01-01T00:00:02Z",
            "lastFailure": {"kind": "NexusHandler", "message": "busy", "type": "UNAVAILABLE"},
            "deadline": {"time": "2026-01-01T00:01:00Z", "timeout": "ScheduleToClose"},
        }
    ]


def test_an_operation_waits_for_its_handler_when_its_next_attempt_is_due() -> None:
    run = scheduled()
    assert "     attempt 1 waits for its handler" in steps_of(run)
    assert "endpoint get" not in shown(run), "nothing has gone wrong yet"
    answer(run, OperationOutcome.ATTEMPT_FAILED, 1, failure=BUSY)
    run.at(3)
    (pending,) = data_of(run)
    assert (pending["state"], pending["attempt"], "nextAttemptTime" in pending) == ("Scheduled", 2, False)


def test_an_operation_started_by_its_handler_is_running() -> None:
    run = started(scheduled(start_to_close_timeout=timedelta(seconds=30)), 2)
    assert steps_of(run).splitlines()[1:] == [
        "└─ invoices.charge  ● Running  nexus billing  1      +0s    2s",
        "     started in namespace bills",
    ]
    assert golden("""
        Pending Nexus operations
          invoices.charge  ● Running
            Endpoint:     billing, handled in namespace bills
            Attempt:      1
            Token:        token
            Scheduled:    2026-01-01T00:00:00Z (2s ago)
            Started:      2026-01-01T00:00:02Z (0s ago)
            Times out:    in 30s (StartToClose)
    """) in shown(run)


def test_a_cancellation_of_an_operation_shows_its_own_attempts() -> None:
    run = scheduled()
    run.signal(seconds=1)
    run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5), seconds=1)
    assert "Cancellation: yes; sent to the handler once the operation has started\n" in shown(run)
    started(run, 2)
    assert "Cancellation: 2026-01-01T00:00:02Z (0s ago); Scheduled, attempt 1\n" in shown(run)
    run.ask(inp.OperationCancelReported, 3, scheduled_event_id=5, attempt=1, failure=BUSY, retryable=True)
    assert "(1s ago); BackingOff, attempt 2; in 1s; NexusHandler: busy\n" in shown(run)
    assert data_of(run)[0]["cancellation"] == {
        "state": "BackingOff",
        "attempt": 2,
        "requestedTime": "2026-01-01T00:00:02Z",
        "nextAttemptTime": "2026-01-01T00:00:04Z",
        "lastFailure": {"kind": "NexusHandler", "message": "busy", "type": "UNAVAILABLE"},
    }
    run.ask(inp.OperationCancelReported, 5, scheduled_event_id=5, attempt=2)
    assert "Succeeded, attempt 2\n" in shown(run)


@pytest.mark.parametrize(
    ("outcome", "state", "said"),
    [
        (OperationOutcome.COMPLETED, "Succeeded", {"result": 7}),
        (OperationOutcome.FAILED, "Failed", {"failure": BOOM}),
        (OperationOutcome.CANCELED, "Cancelled", {"failure": BOOM}),
    ],
)
def test_a_completed_operation_is_a_step_and_not_pending(
    outcome: OperationOutcome, state: str, said: dict[str, Any]
) -> None:
    run = scheduled()
    answer(run, outcome, 2, **said)
    (step,) = view_of(run).steps
    assert (step.name, step.state, step.end) == ("invoices.charge", state, run.now)
    assert ("boom" in steps_of(run)) == (state == "Failed")
    assert data_of(run) == []
    assert "Pending Nexus operations" not in shown(run)


def test_only_a_started_operation_continues_after_the_run() -> None:
    run = Coded.begin()
    run.decide(schedule(), schedule("op-2"))
    started(run, 1)
    run.decide(cmd.CompleteWorkflowExecution(), seconds=2)
    assert steps_of(run).splitlines()[1:] == [
        "├─ invoices.charge  ● Running  nexus billing         +0s    2s",
        "│    keeps running after the run ended Completed",
        "└─ invoices.charge  ⊘ Stopped  nexus billing         +0s    2s",
        "     interrupted when the run ended Completed",
    ]
    assert data_of(run) == []


def test_an_operation_scheduled_in_sealed_events_is_a_step() -> None:
    run = Coded.begin()
    run.decide(schedule(), schedule("op-2"))
    sealed = object_of(run)
    sealed["status"]["history"]["events"] = []
    steps = read_run(sealed, now=run.now).steps
    assert [(each.path, each.kind, each.state) for each in steps] == [
        ("nexus invoices.charge", "nexus", "Scheduled"),
        ("nexus invoices.charge (6)", "nexus", "Scheduled"),
    ]


def test_the_secret_of_an_operation_is_not_shown() -> None:
    run = scheduled()
    assert run.state.operations["5"].request_id == "op-1"
    assert "op-1" not in shown(run) + str(as_data(view_of(run), page(run)))


def test_unreadable_operations_in_a_status_are_omitted() -> None:
    run = scheduled()
    damaged = object_of(run)
    damaged["status"]["state"]["operations"] = {"5": {"endpoint": 7}, "6": "?"}
    assert read_run(damaged, now=run.now).operations == ()
