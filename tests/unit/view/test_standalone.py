"""Standalone activities and standalone Nexus operations, as the command line shows them."""

from perdure.engine import inputs as inp
from perdure.engine.inputs import OperationOutcome
from perdure.view.page import Page
from perdure.view.runs.describe import describe
from perdure.view.runs.run import RunView, read_run
from perdure.view.runs.summaries import table as listed
from support.engine import standalone_nexus
from support.engine.script import Drive, application
from support.engine.standalone import begin, take, worker
from support.view.flow import plain
from support.view.standalone import object_of


def view_of(run: Drive) -> RunView:
    """The run as the command reads it."""
    return read_run(object_of(run), now=run.now)


def shown(run: Drive) -> str:
    return plain(describe(view_of(run), Page(now=run.now, width=100)))


def test_an_open_activity_shows_worker_and_last_failure() -> None:
    run = begin()
    take(run, 0)
    worker(run, 1, failure=application("declined"))
    take(run, 2)
    text = shown(run)
    assert "Activity:     Do (standalone)" in text
    assert "Task queue:   q" in text
    assert "Activity ID:  charge-1" in text
    assert "declined" in text
    assert "Workflow:" not in text


def test_a_closed_activity_shows_its_outcome_and_suggests_no_reset() -> None:
    run = begin()
    take(run, 0)
    worker(run, 1, result={"receipt": 5})
    text = shown(run)
    assert 'Output:       {"receipt":5}' in text
    assert "Completed" in text
    run = begin()
    run.ask(1, inp.TerminateRequested(request_id="t", reason="no more"))
    text = shown(run)
    assert "no more" in text
    assert "reset" not in text


def test_a_paused_activity_shows_who_paused_it() -> None:
    run = begin()
    run.ask(1, inp.PauseRequested(request_id="p", reason="lunch", identity="ann"))
    assert view_of(run).phase == "Paused"
    assert "by ann: lunch" in shown(run)


def test_a_list_shows_the_type_and_the_activity_id() -> None:
    run = begin()
    text = plain(listed([view_of(run)], Page(now=run.now, width=200), wide=True))
    heading, row = (line.split() for line in text.splitlines())
    assert row[heading.index("WORKFLOW")] == "Do"
    assert row[heading.index("WORKFLOW-ID")] == "charge-1"


def operation_of(run: Drive) -> RunView:
    """The run of a standalone Nexus operation as the command reads it."""
    found = object_of(run)
    found["spec"] = {
        "nexusOperation": {"endpoint": "billing", "service": "payments", "operation": "charge"},
        "workflowId": "charge-1",
    }
    return read_run(found, now=run.now)


def test_an_open_operation_shows_its_endpoint_and_its_calls() -> None:
    run = standalone_nexus.begin()
    standalone_nexus.report(run, 1, OperationOutcome.ATTEMPT_FAILED, failure=application("busy"))
    text = plain(describe(operation_of(run), Page(now=run.now, width=100)))
    assert "Operation:    payments.charge (standalone)" in text
    assert "Endpoint:     billing" in text
    assert "Operation ID: charge-1" in text
    assert "busy" in text
    assert "Workflow:" not in text


def test_a_closed_operation_shows_its_outcome_and_suggests_no_reset() -> None:
    run = standalone_nexus.begin()
    standalone_nexus.report(run, 1, OperationOutcome.FAILED, failure=standalone_nexus.BOOM)
    text = plain(describe(operation_of(run), Page(now=run.now, width=100)))
    assert "boom" in text
    assert "retry" not in text


def test_a_list_shows_the_operation_and_its_id() -> None:
    run = standalone_nexus.begin()
    text = plain(listed([operation_of(run)], Page(now=run.now, width=200), wide=True))
    heading, row = (line.split() for line in text.splitlines())
    assert row[heading.index("WORKFLOW")] == "payments.charge"
    assert row[heading.index("WORKFLOW-ID")] == "charge-1"
