"""What is told of work that no worker asks for, and when it is looked at again. Pure; time is an argument."""

from datetime import timedelta

from engine.coded import STICKY, T0, Coded, activity
from engine.test_nexus import BUSY, answer, scheduled, started
from engine.test_tasks import taken
from perdure.controller.workers import PATIENCE, NoWorkers, look_again_at, unserved
from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.inputs import OperationOutcome
from perdure.engine.state import PendingActivity, PendingOperation, RunState

SECOND = timedelta(seconds=1)
TASK = "no worker polls the task queue `orders`"
ACTIVITY = "activity `work`: no worker polls the task queue `orders` for activities"
OPERATION = "operation `invoices.charge`: no worker polls the task queue of the Nexus endpoint `billing`"


class Pollers(NoWorkers):
    """Ask for some sorts of work."""

    def __init__(self, *sorts: str, version: str = "") -> None:
        self.sorts = sorts
        self.version = version

    def version_of(self, namespace: str, state: RunState, activity: PendingActivity | None = None) -> str:
        assert (namespace, state.closed, activity) == ("shop", False, activity)
        return self.version

    def polled(
        self, namespace: str, task_queue: str, *, activities: bool = False, version: str = "", told: bool = False
    ) -> bool:
        del told
        assert (namespace, task_queue, version) == ("shop", "orders", self.version)
        return ("activities" if activities else "tasks") in self.sorts

    def handled(self, namespace: str, operation: PendingOperation, *, told: bool = False) -> bool:
        del told
        assert (namespace, operation.endpoint) == ("shop", "billing")
        return "operations" in self.sorts


def told(run: Coded, after: timedelta, *polled: str, before: bool = False) -> str:
    """What is told; `polled` are the sorts of work that somebody asks for."""
    return unserved(run.state, T0 + after, Pollers(*polled), "shop", told=before)


def look(run: Coded, after: timedelta) -> timedelta | None:
    found = look_again_at(run.state, T0 + after)
    return None if found is None else found - (T0 + after)


def test_a_workflow_task_that_nobody_asks_for_is_told_of_after_a_while() -> None:
    run = Coded.begin()
    assert told(run, PATIENCE - SECOND) == ""
    assert told(run, PATIENCE, "tasks") == ""
    assert told(run, PATIENCE) == TASK
    run.take(10)
    assert told(run, 2 * PATIENCE) == ""


def test_a_version_that_nobody_polls_as_is_named() -> None:
    run = Coded.begin()
    found = unserved(run.state, T0 + PATIENCE, Pollers(version="shop:v1"), "shop", told=False)
    assert found == "no worker of version `shop:v1` polls the task queue `orders`"


def test_an_attempt_that_nobody_asks_for_is_told_of_after_a_while() -> None:
    run = Coded.begin()
    run.decide(activity(), activity("b"))
    assert told(run, PATIENCE - SECOND) == ""
    assert told(run, PATIENCE, "activities") == ""
    assert told(run, PATIENCE, "tasks") == ACTIVITY
    taken(run)
    assert told(run, PATIENCE) == ACTIVITY, "another still waits"
    taken(run, "b")
    assert told(run, PATIENCE) == ""


def test_an_operation_that_nobody_handles_is_told_of_after_a_while_and_between_its_calls() -> None:
    run = scheduled()
    assert told(run, PATIENCE - SECOND) == ""
    assert told(run, PATIENCE, "operations") == ""
    assert told(run, PATIENCE, "tasks", "activities") == OPERATION
    for attempt in range(1, 7):
        due = run.state.operations["5"].calls.due
        answer(run, OperationOutcome.ATTEMPT_FAILED, (due - T0).total_seconds(), attempt, failure=BUSY)
    assert run.state.operations["5"].calls.due == run.now + 32 * SECOND
    assert told(run, 40 * SECOND) == OPERATION
    assert look(run, 40 * SECOND) == 40 * SECOND, "a worker that comes is noticed before the next call"
    started(run, 63, attempt=7)
    assert told(run, 90 * SECOND, "tasks") == ""
    run.decide(seconds=90)
    assert look(run, 90 * SECOND) is None


def test_a_cancellation_that_nobody_handles_is_told_of_after_a_while() -> None:
    run = started(scheduled())
    run.decide(cmd.RequestCancelNexusOperation(scheduled_event_id=5), seconds=20)
    assert told(run, 20 * SECOND + PATIENCE - SECOND) == ""
    assert told(run, 20 * SECOND + PATIENCE) == OPERATION
    assert run.ask(inp.OperationCancelReported, 30, scheduled_event_id=5, attempt=1).ok
    assert told(run, 60 * SECOND, "tasks") == ""


def test_what_was_told_of_stays_told_of_in_its_next_attempt() -> None:
    """A sticky queue's time runs out; nobody has asked since."""
    run = Coded.begin()
    run.decide(sticky_queue=STICKY, sticky_timeout=timedelta(seconds=10))
    run.signal()
    assert told(run, PATIENCE) == TASK
    run.at(10)
    assert run.task.scheduled_time == T0 + timedelta(seconds=10)
    assert told(run, PATIENCE + SECOND, before=True) == TASK
    assert told(run, PATIENCE + SECOND, "tasks", before=True) == ""


def test_a_worker_may_have_its_tasks_for_as_long_as_one_may_take() -> None:
    run = Coded.begin(workflow_task_timeout=timedelta(seconds=60))
    assert told(run, timedelta(seconds=59)) == ""
    assert told(run, timedelta(seconds=60)) == TASK


def test_what_may_not_start_is_not_told_of() -> None:
    run = Coded.begin()
    run.decide(activity())
    run.ask(inp.PauseRequested)
    assert told(run, PATIENCE) == ""
    assert look(run, PATIENCE) is None


def test_what_waits_is_looked_at_ever_more_seldom_until_it_is_taken() -> None:
    run = Coded.begin()
    for age, pause in ((0, 10), (5, 10), (30, 30), (3600, 60)):
        assert look(run, age * SECOND) == pause * SECOND
    run.decide(activity())
    assert look(run, 30 * SECOND) == 30 * SECOND
    taken(run)
    assert look(run, PATIENCE) is None


def test_what_has_waited_for_long_does_not_hold_up_what_is_new() -> None:
    run = Coded.begin()
    run.decide(activity())
    run.signal(seconds=40)
    assert look(run, 41 * SECOND) == PATIENCE
