"""Runs of code, which Temporal SDK workers decide, as the command line shows them."""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest

from perdure.api.policies import ParentClosePolicy
from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.history import fork_of_code
from perdure.engine.inputs import ChildOutcome
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import WorkflowStart
from perdure.engine.versioning import DeploymentVersion
from perdure.view.runs.describe import as_data, describe
from perdure.view.runs.events import table
from perdure.view.runs.follow import Changes
from perdure.view.runs.run import read_run
from perdure.view.runs.summaries import table as listed
from perdure.view.runs.timeline import spans
from perdure.view.runs.tree import tree
from support.engine.coded import STICKY, Coded, activity, timer
from support.view.coderun import object_of, page, view_of
from support.view.flow import Flow, golden, plain

WRONG = Failure(kind=FailureKind.APPLICATION, type="RuntimeError", message="no such\nstep")


def child(number: str, workflow_id: str, **said: Any) -> cmd.StartChildWorkflowExecution:
    start = WorkflowStart(workflow_type="Payment", workflow_id=workflow_id, task_queue="orders")
    return cmd.StartChildWorkflowExecution(child_id=number, start=start, **said)


def take(run: Coded, name: str, seconds: float, identity: str = "77@worker") -> dict[str, Any]:
    """A worker takes an attempt."""
    open_ = next(each for each in run.state.activities.values() if each.activity_id == name)
    held = {"scheduled_event_id": open_.scheduled_event_id, "attempt": open_.attempt, "fence": "f"}
    assert run.ask(inp.ActivityDispatched, seconds, **held, identity=identity).ok
    return held


def fail_task(
    run: Coded, seconds: float, failure: Failure = WRONG, cause: str = "WorkflowWorkerUnhandledFailure"
) -> None:
    run.take(seconds)
    assert run.ask(inp.TaskFailed, seconds, token=run.token, cause=cause, failure=failure, identity="77@worker").ok


def shown(run: Coded) -> str:
    return plain(describe(view_of(run), page(run)))


def steps_of(run: Coded) -> str:
    return plain(tree(view_of(run), page(run)))


# Activities


def test_an_activity_of_a_worker_shows_task_queue_and_worker_but_no_pods() -> None:
    run = Coded.begin()
    run.decide(activity("1"), activity("2"), seconds=1)
    held = take(run, "1", 2)
    assert steps_of(run) == golden("""
        STEP  STATUS       KIND           TRIES  START  TIME
        ├─ 1  ● Running    activity work  1      +1s    1s
        │    task queue orders, worker 77@worker
        └─ 2  ◔ Scheduled  activity work  1      +1s    1s
             attempt 1 waits for a worker
             task queue orders
    """)
    assert golden("""
        Pending activities
          1 (work)  ● Running
            Attempt:      1
            Task queue:   orders
            Worker:       77@worker
            Scheduled:    2026-01-01T00:00:01Z (1s ago)
            Started:      2026-01-01T00:00:02Z (0s ago)
            Times out:    in 1m (StartToClose)
          2 (work)  ◔ Scheduled
            Attempt:      1
            Task queue:   orders
    """) in shown(run)
    assert "perdure task-queue describe -n shop orders" in shown(run)
    run.ask(inp.ActivityReported, 3, **held, result=1)
    assert "├─ 1  ✓ Succeeded  activity work  1      +1s    2s\n│    task queue orders, worker 77@worker" in steps_of(
        run
    )
    assert "pod" not in shown(run)
    first, second = as_data(view_of(run), page(run))["steps"]
    assert (first["taskQueue"], first["worker"], first.get("pods")) == ("orders", "77@worker", None)
    assert (second["taskQueue"], second.get("worker")) == ("orders", None)


def test_a_pod_activity_of_a_code_run_shows_its_pods() -> None:
    run = Coded.begin()
    by_pod = cmd.ScheduleActivityTask(
        activity_id="1",
        activity_type="resize",
        task_queue="pods/films",
        start_to_close_timeout=timedelta(seconds=60),
    )
    run.decide(by_pod, seconds=1)
    assert "     attempt 1 waits for its pod\n     pod k9-5-1" in steps_of(run)
    assert "Pod:          k9-5-1" in shown(run)
    assert "Task queue:   pods/films" not in shown(run)


def test_a_step_with_a_worker_activity_shows_no_pods() -> None:
    flow = Flow(
        "activities: [{name: reserve, startToCloseTimeout: 5m, worker: {taskQueue: orders, type: Reserve}}]\n"
        "steps: [{name: reserve, activity: {name: reserve}}]\n"
    )
    assert plain(tree(flow.run(), flow.page())).splitlines()[1:] == [
        "└─ reserve  ◔ Scheduled  activity reserve  1      +0s    0s",
        "     attempt 1 waits for a worker",
        "     task queue orders",
    ]


def test_the_history_shows_task_queue_and_worker_of_an_activity() -> None:
    run = Coded.begin()
    run.decide(activity("1"), seconds=1)
    run.ask(inp.ActivityReported, 3, **take(run, "1", 2), result=1)
    reported = plain(table(object_of(run)["status"]["history"]["events"], page(run)))
    assert "ActivityTaskScheduled     1 (work)  task queue orders\n" in reported
    assert "ActivityTaskStarted       attempt 1  by 77@worker\n" in reported


# Ids


def test_ids_of_different_kinds_do_not_collide_and_are_not_paths() -> None:
    run = Coded.begin()
    signal = cmd.SignalExternalWorkflowExecution(signal_id="", workflow_id="other", signal_name="go")
    run.decide(activity("1"), activity("a/b[2]"), timer("1", 60), signal, signal, seconds=1)
    assert [line[:38].rstrip() for line in steps_of(run).splitlines() if line[0] in "├└"] == [
        "├─ 1        ◔ Scheduled  activity work",
        "├─ a/b[2]   ◔ Scheduled  activity work",
        "├─ timer 1  ◔ Waiting    timer 1m",
        "├─ other    ● Running    signal go",
        "└─ other    ● Running    signal go",
    ]
    paths = [step.path for step in view_of(run).steps]
    assert paths == ["1", "a/b[2]", "timer 1", "signal other", "signal other (9)"]
    changes = Changes()
    list(changes.lines(view_of(run), page(run)))
    assert list(changes.lines(view_of(run), page(run))) == []


def test_open_work_scheduled_in_sealed_events_is_shown() -> None:
    run = Coded.begin()
    run.decide(activity("1"), timer("1", 60), child("3.1", "pay-1"), seconds=1)
    sealed = object_of(run)
    sealed["status"]["history"]["events"] = []
    found = read_run(sealed, now=run.now).steps
    assert [(step.path, step.kind, step.state) for step in found] == [
        ("1", "activity", "Scheduled"),
        ("timer 1", "timer", "Waiting"),
        ("child pay-1", "child", "Pending"),
    ]


# Children


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (ChildOutcome.COMPLETED, "Completed"),
        (ChildOutcome.FAILED, "Failed"),
        (ChildOutcome.CANCELLED, "Cancelled"),
        (ChildOutcome.TIMED_OUT, "TimedOut"),
        (ChildOutcome.TERMINATED, "Terminated"),
    ],
)
def test_a_child_is_one_line_with_its_status(outcome: ChildOutcome, state: str) -> None:
    run = Coded.begin()
    run.decide(child("3.1", "pay-1"), seconds=1)
    (number,) = run.state.children
    assert steps_of(run).splitlines()[1] == "└─ pay-1  ○ Pending  child Payment         +1s    0s"
    run.at(2, inp.ChildStarted(initiated_event_id=int(number), run_id="c1"))
    assert steps_of(run).splitlines()[1] == "└─ pay-1  ● Running  child Payment         +1s    1s"
    assert "Pending children\n  pay-1  k9-5  has started\n" in shown(run)
    assert "how the child of `pay-1` stands" not in shown(run)
    gone = Failure(kind=FailureKind.APPLICATION, type="NoMoney", message="broke")
    run.at(4, inp.ChildClosed(initiated_event_id=int(number), run_id="c1", outcome=outcome, failure=gone))
    line, *notes = steps_of(run).splitlines()[1:]
    assert line.startswith("└─ pay-1  ")
    assert line.split()[3:5] == [state, "child"]
    assert line.endswith("+1s    3s")
    assert ("broke" in "".join(notes)) == (outcome in {ChildOutcome.FAILED, ChildOutcome.TERMINATED})
    run.decide(cmd.CompleteWorkflowExecution(), seconds=5)
    assert steps_of(run).splitlines()[1:] == [line, *notes]


def test_a_child_that_could_not_be_started_has_failed() -> None:
    run = Coded.begin()
    run.decide(child("3.1", "pay-1"), seconds=1)
    (number,) = run.state.children
    taken = Failure(kind=FailureKind.APPLICATION, type="WorkflowExecutionAlreadyStarted", message="it is open")
    run.at(2, inp.ChildStartFailed(initiated_event_id=int(number), failure=taken))
    assert steps_of(run).splitlines()[1:] == [
        "└─ pay-1  ✗ Failed  child Payment         +1s    1s",
        "     WorkflowExecutionAlreadyStarted: it is open",
    ]


def test_a_child_open_at_the_end_of_the_run_is_stopped_or_continues() -> None:
    run = Coded.begin()
    run.decide(child("3.1", "pay-1"), child("3.2", "pay-2", parent_close_policy=ParentClosePolicy.ABANDON), seconds=1)
    for number in run.state.children:
        run.at(2, inp.ChildStarted(initiated_event_id=int(number), run_id=f"c{number}"))
    run.decide(cmd.CompleteWorkflowExecution(), seconds=5)
    assert steps_of(run) == golden("""
        STEP      STATUS     KIND           TRIES  START  TIME
        ├─ pay-1  ⊘ Stopped  child Payment         +1s    4s
        │    interrupted when the run ended Completed
        └─ pay-2  ● Running  child Payment         +1s    4s
             keeps running after the run ended Completed
    """)


# Why it does not go on


def test_a_task_without_a_worker_shows_its_age_and_task_queue() -> None:
    run = Coded.begin()
    run.at(20)
    assert golden("""
        Workflow:     Order
        Task queue:   orders
        Workflow ID:  order-1
        Run ID:       11111111-2222-3333-4444-555555555555
        Status:       ● Running
        Task:         no worker has answered since 2026-01-01T00:00:00Z (20s ago)
    """) in shown(run)
    assert golden("""
        What next
          no worker has answered; see which workers poll task queue `orders`:
            perdure task-queue describe -n shop orders
    """) in shown(run)
    assert as_data(view_of(run), page(run))["code"] == {
        "taskQueue": "orders",
        "task": {"attempt": 1, "scheduledTime": "2026-01-01T00:00:00Z"},
    }


def test_a_task_in_progress_shows_its_worker() -> None:
    run = Coded.begin()
    run.take(3, identity="77@worker")
    assert "Task:         running by 77@worker since 2026-01-01T00:00:03Z (0s ago)\n" in shown(run)
    assert "no worker has answered" not in shown(run)


def test_a_failing_task_shows_its_cause_and_the_remedy() -> None:
    run = Coded.begin()
    fail_task(run, 22)
    fail_task(run, 23)
    assert golden("""
        Task:         attempt 3, no worker has answered since 2026-01-01T00:00:23Z (0s ago); failed before:
                      WorkflowWorkerUnhandledFailure: no such
    """) in shown(run)
    assert golden("""
        What next
          the workflow task fails: fix the code and deploy the worker of `orders`; the run then continues. Details:
            perdure history -n shop k9 --detailed
    """) in shown(run)
    run.decide(timer("1", 60), seconds=30)
    assert "failed before" not in shown(run)
    assert "Task:         none; the run waits for its pending work\n" in shown(run)


def test_a_failing_task_on_a_pinned_version_needs_a_move_to_the_fixed_one() -> None:
    run = Coded.begin()
    version = DeploymentVersion(deployment_name="shop", build_id="7")
    run.decide(timer("1", 60), seconds=1, versioning_behavior="Pinned", deployment_version=version)
    run.signal(seconds=2)
    fail_task(run, 3)
    said = " ".join(shown(run).split())
    assert (
        "the run stays on version `7` of its code: fix the code, deploy it, and move the run to the new version" in said
    )
    assert "perdure set-version -n shop k9" in said


def test_a_timeout_of_a_sticky_task_is_not_shown_as_a_failure() -> None:
    run = Coded.begin()
    run.decide(timer("1", 60), seconds=1, sticky_queue=STICKY, sticky_timeout=timedelta(seconds=5))
    run.signal(seconds=2)
    run.at(10)
    assert "WorkflowTaskTimedOut" in run.names
    assert "Task:         no worker has answered since 2026-01-01T00:00:10Z (0s ago)\n" in shown(run)


def test_a_watch_shows_once_that_a_task_fails_and_that_it_recovers() -> None:
    run, changes = Coded.begin(), Changes()

    def look() -> list[str]:
        return list(changes.lines(view_of(run), page(run)))

    look()
    fail_task(run, 22)
    again = "the workflow task is retried: WorkflowWorkerUnhandledFailure: RuntimeError: no such step"
    assert look() == [f"+22s ● k9 Running: WorkflowTaskFailed; {again}"]
    fail_task(run, 23)
    assert look() == []
    run.decide(seconds=30)
    assert look() == ["+30s ● k9 Running"]


def test_a_delayed_code_run_does_not_refer_to_a_workflow() -> None:
    run = Coded.begin(first_workflow_task_backoff=timedelta(seconds=60))
    assert "Status:       ○ Pending (StartDelayed)" in shown(run)
    assert "workflow.perdure.dev" not in shown(run)


def test_a_timed_out_task_is_shown_as_timed_out() -> None:
    run = Coded.begin()
    run.take(0)
    run.at(10)
    assert "failed before: StartToClose timeout" in " ".join(shown(run).split())


def test_a_run_that_waits_for_a_signal_or_update_shows_it() -> None:
    run = Coded.begin()
    run.decide(seconds=1)
    assert "Task:         none; the run waits for a signal or an update\n" in shown(run)
    run.signal(seconds=2)
    run.decide(cmd.CompleteWorkflowExecution())
    assert "Task:" not in shown(run)
    assert "Task queue:   orders\n" in shown(run)


def test_a_yaml_run_shows_no_task_queue() -> None:
    flow = Flow()
    assert "Task" not in plain(describe(flow.run(), flow.page()))
    by_type = {**flow.object, "spec": {"workflow": {"type": "order-flow", "taskQueue": "workflows"}}}
    assert read_run(by_type, now=flow.now).code is None


@pytest.mark.parametrize("width", [80, 200])
def test_the_history_shows_the_complete_failure_of_a_task(width: int) -> None:
    run = Coded.begin()
    fail_task(run, 22)
    reported = plain(table(object_of(run)["status"]["history"]["events"], page(run, width)))
    below = "\n    " if width == 80 else "        "
    assert f"WorkflowTaskFailed{below}WorkflowWorkerUnhandledFailure: no such  by 77@worker" in reported


# Failures


def test_a_run_failed_by_an_activity_shows_its_innermost_cause() -> None:
    run = Coded.begin()
    run.decide(activity("1", retry_policy=RetryPolicy(maximum_attempts=1)), seconds=1)
    missing = Failure(
        kind=FailureKind.APPLICATION, type="NotFoundError", message="Activity function upper is not there"
    )
    run.ask(inp.ActivityReported, 3, **take(run, "1", 2), failure=missing)
    reported = Failure(
        kind=FailureKind.ACTIVITY,
        message="Activity task failed",
        activity_id="1",
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
        cause=missing,
    )
    run.decide(cmd.FailWorkflowExecution(failure=reported), seconds=4)
    want = "Activity task failed: NotFoundError: Activity function upper is not there"
    assert plain(listed([view_of(run)], page(run), wide=True)).endswith(want)
    assert "caused by NotFoundError: Activity function upper is not there\n" in shown(run)
    assert want in "".join(Changes().lines(view_of(run), page(run)))
    assert want in plain(table(object_of(run)["status"]["history"]["events"], page(run, 200)))


def test_a_cause_contained_in_the_message_is_not_repeated() -> None:
    flow = Flow().started(1).completed(10)
    flow.failed(12, Failure(kind=FailureKind.APPLICATION, type="CardDeclined", message="no funds", non_retryable=True))
    assert flow.run().message.count("no funds") <= 1
    assert "Message:" not in plain(describe(flow.run(), flow.page()))


# Search attributes, memo, and payloads (issue 44, C 3 and C 6)


def wrapped(text: str, encoding: str = "json/plain") -> dict[str, Any]:
    """A payload as it is stored if its JSON is not written as Perdure writes it, such as those of the TypeScript SDK."""
    data = base64.b64encode(text.encode()).decode()
    return {"payloads": [{"metadata": {"encoding": encoding}, "data": data}]}


def test_describe_shows_current_search_attributes_and_the_memo() -> None:
    run = Coded.begin()
    found = object_of(run)
    code = found["status"]["state"]["code"]
    code["searchAttributes"] = {"Customer": "C-8", "Rate": {"type": "Double", "value": "0.5"}}
    code["memo"] = {"team": wrapped('{"name": "accounts"}')}
    described = read_run(found, now=run.now)
    lines = [line.plain for line in describe(described, page(run))]
    at = lines.index("Search attributes")
    assert lines[at + 1 : at + 3] == ["  Customer: C-8", "  Rate: 0.5"]
    assert lines[lines.index("Memo") + 1] == '  team: {"name":"accounts"}'
    data = as_data(described, page(run))
    assert data["searchAttributes"] == {"Customer": "C-8", "Rate": "0.5"}
    assert data["memo"] == {"team": {"name": "accounts"}}


@pytest.mark.parametrize(
    ("payload", "want"),
    [
        (wrapped('{"b": 1, "a": 2}'), {"b": 1, "a": 2}),
        ({"payloads": [{"json": "A-1"}, wrapped("[1]")["payloads"][0]]}, ["A-1", [1]]),
        (wrapped("secret", "binary/encrypted"), wrapped("secret", "binary/encrypted")["payloads"][0]),
        ({"payloads": [7]}, {"payloads": [7]}),  # a value of a user
    ],
)
def test_payloads_are_shown_as_their_values(payload: Any, want: Any) -> None:
    run = Coded.begin()
    found = object_of(run)
    found["status"]["history"]["events"][0]["input"] = payload
    described = read_run(found, now=run.now)
    assert as_data(described, page(run))["input"] == want
    shown_as = json.dumps(want, separators=(",", ":"))
    assert f"Input:        {shown_as[:60]}" in plain(describe(described, page(run, 200)))
    assert f"input {shown_as}" in plain(table(found["status"]["history"]["events"], page(run, 200)))


def test_a_failed_run_of_code_is_retried_from_the_task_that_started_what_failed() -> None:
    """Issue 44, C 3: the last workflow task reads the failure again, so a reset to it fails again immediately."""
    run = Coded.begin()
    run.decide(activity("1", retry_policy=RetryPolicy(maximum_attempts=1)))
    started = run.names.index("WorkflowTaskStarted") + 1
    run.ask(inp.ActivityReported, 3, **take(run, "1", 2), failure=WRONG)
    run.decide(cmd.FailWorkflowExecution(failure=WRONG), seconds=4)
    assert view_of(run).phase == "Failed"
    assert view_of(run).failed_from == started
    assert "perdure retry -n shop k9\n" in plain(describe(view_of(run), page(run)))
    assert not fork_of_code(run.events, started).activities


def test_code_that_fails_by_itself_is_reset_to_its_last_task() -> None:
    run = Coded.begin()
    run.decide(cmd.FailWorkflowExecution(failure=WRONG), seconds=4)
    assert "--type LastWorkflowTask" in plain(describe(view_of(run), page(run)))


def test_code_that_fails_by_itself_on_a_pinned_version_is_retried_on_the_current_one() -> None:
    run = Coded.begin()
    version = DeploymentVersion(deployment_name="shop", build_id="7")
    failing = cmd.FailWorkflowExecution(failure=WRONG)
    run.decide(failing, seconds=4, versioning_behavior="Pinned", deployment_version=version)
    assert "perdure retry -n shop k9 --to-version current" in plain(describe(view_of(run), page(run)))


def test_activities_of_code_are_named_by_their_type_as_well() -> None:
    """Two days of new users: progress and traces named them by their numbers only."""
    run, changes = Coded.begin(), Changes()
    list(changes.lines(view_of(run), page(run)))
    run.decide(activity("1"), timer("1", 60), seconds=1)
    lines = [line.partition(" ")[2] for line in changes.lines(view_of(run), page(run))]
    assert lines[0].startswith("◔ 1 (work) Scheduled")
    assert lines[1].startswith("◔ timer 1 Waiting")
    assert [span.name for span in spans(view_of(run), [])] == ["1 (work)", "timer 1"]
    assert "1 (work)  ◔ Scheduled" in shown(run)
