"""Updates, and the speculative tasks that deliver them to workers."""

from datetime import timedelta

from perdure.engine import commands as cmd
from perdure.engine import inputs
from perdure.engine.step import next_wake
from support.engine.coded import T0, Coded, timer

# Speculative tasks and updates


def accept(name: str = "u") -> cmd.AcceptUpdate:
    return cmd.AcceptUpdate(update_id=name, name="change")


def test_39_a_rejected_update_leaves_no_event_and_names_the_event_to_go_back_to() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    before = run.names
    run.ask(inputs.TaskRequested)
    assert run.names == before
    token = run.take()
    answer = run.complete(token=token, rejects_only=True, receives_again=True)
    assert (answer.ok, answer.message) == (True, "3")
    assert run.names == before
    assert run.code.task is None


def test_a_repeated_rejection_names_the_reset_event_again() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    run.ask(inputs.TaskRequested)
    token = run.take()
    first, again = (run.complete(token=token, rejects_only=True, receives_again=True) for _ in range(2))
    assert (again.ok, again.message) == (first.ok, first.message) == (True, "3")


def test_a_rejection_is_recorded_if_the_worker_cannot_get_events_again() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    run.ask(inputs.TaskRequested)
    token = run.take()
    answer = run.complete(token=token, rejects_only=True)
    assert (answer.ok, answer.message) == (True, "")
    assert run.since("TimerStarted") == ["WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted"]


def test_an_accepted_update_records_its_workflow_task() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    run.ask(inputs.TaskRequested)
    run.take()
    run.complete(accept(), cmd.CompleteUpdate(update_id="u", result=1))
    assert run.since("TimerStarted") == [
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "WorkflowExecutionUpdateAccepted",
        "WorkflowExecutionUpdateCompleted",
    ]
    record = run.code.updates["u"]
    assert (record.accepted_event_id, record.completed_event_id) == (9, 10)


def test_39_a_speculative_task_becomes_a_normal_task_with_a_new_event() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    run.ask(inputs.TaskRequested)
    run.signal()
    assert run.since("TimerStarted") == ["WorkflowTaskScheduled", "WorkflowExecutionSignaled"]
    assert not run.task.speculative


DELAYED = {"first_workflow_task_backoff": timedelta(hours=1)}


def test_an_update_does_not_wait_for_the_end_of_a_start_delay() -> None:
    run = Coded.begin(**DELAYED)
    run.signal()
    assert run.since("WorkflowExecutionStarted") == ["WorkflowExecutionSignaled"]
    run.ask(inputs.TaskRequested, 5)
    run.take(6)
    run.complete(timer("t", 10), cmd.AcceptUpdate(update_id="u", name="set"))
    assert run.since("WorkflowExecutionSignaled") == [
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "TimerStarted",
        "WorkflowExecutionUpdateAccepted",
    ]
    assert run.state.first_decision_time == T0 + timedelta(seconds=5)
    run.at(16)
    assert run.since("WorkflowExecutionUpdateAccepted") == ["TimerFired", "WorkflowTaskScheduled"]


def test_a_rejected_update_does_not_change_the_start_delay() -> None:
    run = Coded.begin(**DELAYED)
    run.ask(inputs.TaskRequested, 5)
    run.take()
    assert run.complete(rejects_only=True, receives_again=True).ok
    assert run.names == ["WorkflowExecutionStarted"]
    run.signal(seconds=10)
    assert run.since("WorkflowExecutionStarted") == ["WorkflowExecutionSignaled"]
    assert next_wake(run.state, run.now) == T0 + timedelta(hours=1)
    run.at(3600)
    assert run.since("WorkflowExecutionSignaled") == ["WorkflowTaskScheduled"]


def test_an_update_without_a_worker_ends_the_start_delay() -> None:
    run = Coded.begin(**DELAYED)
    run.ask(inputs.TaskRequested, 5)
    run.at(10)
    assert run.since("WorkflowExecutionStarted") == [
        "WorkflowTaskScheduled",
        "WorkflowTaskTimedOut",
        "WorkflowTaskScheduled",
    ]


def test_a_signal_during_a_speculative_task_is_not_lost_when_the_update_is_rejected() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    run.ask(inputs.TaskRequested)
    run.take()
    run.signal()
    run.complete(rejects_only=True, receives_again=True)
    assert run.since("TimerStarted") == [
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "WorkflowExecutionSignaled",
        "WorkflowTaskScheduled",
    ]
