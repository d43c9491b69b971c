"""Reports of work without workers, and the time of the next check. Pure; time is an argument."""

from datetime import timedelta

from perdure.controller.workers import PATIENCE, NoWorkers, next_poll_check, unserved
from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.inputs import OperationOutcome
from perdure.engine.state import PendingActivity, PendingOperation, RunState
from support.engine.coded import STICKY, T0, Coded, activity, taken
from support.engine.nexus import BUSY, answer, scheduled, started

SECOND = timedelta(seconds=1)
TASK = "no worker polls the task queue `orders`"
ACTIVITY = "activity `work`: no worker polls the task queue `orders` for activities"
OPERATION = "operation `invoices.charge`: no worker polls the task queue of the Nexus endpoint `billing`"


class Pollers(NoWorkers):
    """Workers that poll for some kinds of work."""

    def __init__(self, *sorts: str, version: str = "") -> None:
        self.sorts = sorts
        self.version = version

    def version_of(self, namespace: str, state: RunState, activity: PendingActivity | None = None) -> str:
        assert (namespace, state.closed, activity) == ("shop", False, activity)
        return self.version

    def polled(
        self, namespace: str, task_queue: str, *, activities: bool = False, version: str = "", reported: bool = False
    ) -> bool:
        del reported
        assert (namespace, task_queue, version) == ("shop", "orders", self.version)
        return ("activities" if activities else "tasks") in self.sorts

    def handled(self, namespace: str, operation: PendingOperation, *, reported: bool = False) -> bool:
        del reported
        assert (namespace, operation.endpoint) == ("shop", "billing")
        return "operations" in self.sorts


def message_at(run: Coded, after: timedelta, *polled: str, before: bool = False) -> str:
    """The reported message; `polled` are the kinds of work that workers poll for."""
    return unserved(run.state, T0 + after, Pollers(*polled), "shop", reported=before)


def look(run: Coded, after: timedelta) -> timedelta | None:
    found = next_poll_check(run.state, T0 + after)
    return None if found is None else found - (T0 + after)


def test_a_workflow_task_without_a_worker_is_reported_after_a_while() -> None:
    run = Coded.begin()
    assert message_at(run, PATIENCE - SECOND) == ""
    assert message_at(run, PATIENCE, "tasks") == ""
    assert message_at(run, PATIENCE) == TASK
    run.take(10)
    assert message_at(run, 2 * PATIENCE) == ""


def test_a_version_without_pollers_is_named() -> None:
    run = Coded.begin()
    found = unserved(run.state, T0 + PATIENCE, Pollers(version="shop:v1"), "shop", reported=False)
    assert found == "no worker of version `shop:v1` polls the task queue `orders`"


def test_an_attempt_without_a_worker_is_reported_after_a_while() -> None:
    run = Coded.begin()
    run.decide(activity(), activity("b"))
    assert message_at(run, PATIENCE - SECOND) == ""
    assert message_at(run, PATIENCE, "activities") == ""
    assert message_at(run, PATIENCE, "tasks") == ACTIVITY
    taken(run)
    assert message_at(run, PATIENCE) == ACTIVITY, "another still waits"
    taken(run, "b")
    assert message_at(run, PATIENCE) == ""


def test_an_operation_without_a_handler_is_reported_after_a_while_and_between_calls() -> None:
    run = scheduled()
    assert message_at(run, PATIENCE - SECOND) == ""
    assert message_at(run, PATIENCE, "operations") == ""
    assert message_at(run, PATIENCE, "tasks", "activities") == OPERATION
    for attempt in range(1, 7):
        due = run.state.operations["5"].calls.due
        answer(run, OperationOutcome.ATTEMPT_FAILED, (due - T0).total_seconds(), attempt, failure=BUSY)
    assert run.state.operations["5"].calls.due == run.now + 32 * SECOND
    assert message_at(run, 40 * SECOND) == OPERATION
    assert look(run, 40 * SECOND) == 40 * SECOND, "a worker that comes is noticed before the next call"
    started(run, 63, attempt=7)
    assert message_at(run, 90 * SECOND, "tasks") == ""
    run.decide(seconds=90)
    assert look(run, 90 * SECOND) is None


def test_a_cancellation_without_a_handler_is_reported_after_a_while() -> None:
    run = started(scheduled())
    run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5), seconds=20)
    assert message_at(run, 20 * SECOND + PATIENCE - SECOND) == ""
    assert message_at(run, 20 * SECOND + PATIENCE) == OPERATION
    assert run.ask(inp.OperationCancelReported, 30, scheduled_event_id=5, attempt=1).ok
    assert message_at(run, 60 * SECOND, "tasks") == ""


def test_a_missing_worker_remains_reported_during_the_next_attempt() -> None:
    """The timeout of a sticky queue expires, and no worker has polled since."""
    run = Coded.begin()
    run.decide(sticky_queue=STICKY, sticky_timeout=timedelta(seconds=10))
    run.signal()
    assert message_at(run, PATIENCE) == TASK
    run.at(10)
    assert run.task.scheduled_time == T0 + timedelta(seconds=10)
    assert message_at(run, PATIENCE + SECOND, before=True) == TASK
    assert message_at(run, PATIENCE + SECOND, "tasks", before=True) == ""


def test_a_missing_worker_is_not_reported_before_the_task_timeout() -> None:
    run = Coded.begin(workflow_task_timeout=timedelta(seconds=60))
    assert message_at(run, timedelta(seconds=59)) == ""
    assert message_at(run, timedelta(seconds=60)) == TASK


def test_work_that_must_not_start_is_not_reported() -> None:
    run = Coded.begin()
    run.decide(activity())
    run.ask(inp.PauseRequested)
    assert message_at(run, PATIENCE) == ""
    assert look(run, PATIENCE) is None


def test_waiting_work_is_checked_less_and_less_often() -> None:
    run = Coded.begin()
    for age, pause in ((0, 10), (5, 10), (30, 30), (3600, 60)):
        assert look(run, age * SECOND) == pause * SECOND
    run.decide(activity())
    assert look(run, 30 * SECOND) == 30 * SECOND
    taken(run)
    assert look(run, PATIENCE) is None


def test_old_waiting_work_does_not_delay_the_check_of_new_work() -> None:
    run = Coded.begin()
    run.decide(activity())
    run.signal(seconds=40)
    assert look(run, 41 * SECOND) == PATIENCE
