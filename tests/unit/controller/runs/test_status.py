"""The status of a run for states of the real engine; times are seconds since the start."""

import json
from typing import Any

import msgspec
import pytest

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.api.kinds.workflowrun import WorkflowRunStatus
from perdure.api.reasons import ConditionReason
from perdure.controller.reconcile.record import Status
from perdure.controller.runs.deciders import RunDecider
from perdure.controller.runs.status import MAX_STATUS, Hindrances, StatusComposer, is_near_limit
from perdure.controller.workflows.definitions import Definition
from perdure.engine import history
from perdure.engine.commands import FailWorkflowExecution
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.inputs import AttemptStarted, AttemptWaiting, HeartbeatRead, TaskFailed
from perdure.engine.retry import RetryPolicy
from perdure.engine.step import MAX_BYTES, MAX_EVENTS
from perdure.language.compiler import compile_program
from perdure.language.step_failures import as_json
from perdure.runtime.revisions import Content
from support.engine.coded import Coded
from support.engine.script import T0, Drive, Reacting, activity, application, seconds, timer
from support.language.resumed import Run, do

COMPOSER = StatusComposer("uid-1")


def known(status: Status) -> None:
    """Check that the API has every field of the status, and parses the written values."""
    stored = json.loads(json.dumps(status))
    stands_in(stored, WorkflowRunStatus.parse(stored).dump(), "status")


def stands_in(part: Any, parsed: Any, path: str) -> None:
    if isinstance(part, dict):
        for key, value in part.items():
            assert key in parsed, f"the API does not know {path}.{key}"
            stands_in(value, parsed[key], f"{path}.{key}")
    elif isinstance(part, list):
        assert len(part) == len(parsed)
        for index, (mine, its) in enumerate(zip(part, parsed, strict=True)):
            stands_in(mine, its, f"{path}[{index}]")
    else:
        assert part == parsed, path


def run_with(status: Status | None = None, name: str = "order-1") -> dict[str, Any]:
    """A run with a status."""
    return {"metadata": {"name": name, "uid": "uid-1", "generation": 3}, "status": status or {}}


def composed(drive: Drive, old: Status | None = None, name: str = "order-1") -> Status:
    """The status after the last step; the history so far is in `old`."""
    assert drive.last is not None
    status = COMPOSER.compose(run_with(old, name), drive.state, drive.last.events, drive.now)
    known(status)
    return status


def succeeded(status: Status) -> dict[str, Any]:
    (condition,) = status["conditions"]
    assert condition["type"] == "Succeeded"
    assert condition["observedGeneration"] == 3
    found: dict[str, Any] = condition
    return found


# Open runs


def test_a_started_run_shows_what_it_waits_for() -> None:
    status = composed(Drive.of(activity("book", input={"n": 1})))
    assert {key: status[key] for key in ("phase", "runId", "firstRunId", "attempt", "startTime", "progress")} == {
        "phase": "Running",
        "runId": "uid-1",
        "firstRunId": "uid-1",
        "attempt": 1,
        "startTime": "2026-01-01T00:00:00Z",
        "progress": "",
    }
    assert status["observedGeneration"] == 3
    assert status["pendingActivities"] == [
        {
            "step": "book",
            "activity": "book",
            "attempt": 1,
            "state": "Scheduled",
            "scheduledTime": "2026-01-01T00:00:00Z",
            "pod": "order-1-2-1",
        }
    ]
    assert status["pendingTimers"] == []
    assert (succeeded(status)["status"], succeeded(status)["reason"]) == ("Unknown", "Running")
    assert not {"completionTime", "output", "failure", "definition"} & set(status)


def test_a_running_attempt_shows_its_start_and_last_heartbeat() -> None:
    drive = Drive.of(activity("book", heartbeat_timeout=seconds(30)))
    drive.started(1)
    drive.at(
        3, HeartbeatRead(scheduled_event_id=2, attempt=1, time=T0 + seconds(2.5), details={"page": 4, "none": None})
    )
    (entry,) = composed(drive)["pendingActivities"]
    assert entry["state"] == "Started"
    assert entry["startedTime"] == "2026-01-01T00:00:01Z"
    assert entry["lastHeartbeatTime"] == "2026-01-01T00:00:02.500000Z"
    assert entry["heartbeatDetails"] == {"page": 4, "none": None}
    assert "nextAttemptTime" not in entry


def test_a_pending_attempt_shows_the_reason_until_it_starts() -> None:
    drive = Drive.of(activity("book"))
    drive.at(1, AttemptWaiting(scheduled_event_id=2, attempt=1, reason="exceeded quota"))
    (entry,) = composed(drive)["pendingActivities"]
    assert entry["waitingReason"] == "exceeded quota"
    drive.started(2)
    assert "waitingReason" not in composed(drive)["pendingActivities"][0]


def test_a_run_shows_what_blocks_its_attempts() -> None:
    drive = Drive.by(Reacting((activity("book"), activity("pay"))))
    waits = {"attempt": 1, "reason": "ErrImagePull"}
    assert not drive.at(1, AttemptWaiting(scheduled_event_id=2, **waits)).durable
    assert drive.at(6, AttemptWaiting(scheduled_event_id=2, stuck=True, **waits)).durable
    status = composed(drive)
    assert (status["phase"], succeeded(status)["reason"]) == ("Running", "AttemptNotStarting")
    assert succeeded(status)["message"] == "step `book`: attempt 1 does not start: ErrImagePull"
    assert not drive.at(7, AttemptWaiting(scheduled_event_id=3, stuck=True, **waits)).durable
    assert not drive.at(8, AttemptStarted(scheduled_event_id=2, attempt=1, time=drive.now)).durable
    assert drive.at(9, AttemptStarted(scheduled_event_id=3, attempt=1, time=drive.now)).durable
    assert (succeeded(composed(drive))["reason"], succeeded(composed(drive))["message"]) == ("Running", "")


def test_a_run_shows_the_limits_that_its_attempts_wait_for() -> None:
    drive = Drive.by(Reacting((activity("book"), activity("pay"))))
    waits = {
        "attempt": 1,
        "reason": "WorkflowLimit `db` is full: it allows 1 holder",
        "queued": True,
        "commit_now": True,
    }
    for number in (2, 3):
        assert drive.at(1, AttemptWaiting(scheduled_event_id=number, **waits)).durable
    status = composed(drive)
    assert (status["phase"], succeeded(status)["reason"]) == ("Running", "LimitReached")
    assert (
        succeeded(status)["message"] == "step `book` (and 1 more) waits: WorkflowLimit `db` is full: it allows 1 holder"
    )
    assert "pod" not in status["pendingActivities"][0]
    assert not drive.at(8, AttemptStarted(scheduled_event_id=2, attempt=1, time=drive.now)).durable
    assert drive.at(9, AttemptWaiting(scheduled_event_id=3, attempt=1, reason="ContainerCreating")).durable
    assert (succeeded(composed(drive))["reason"], succeeded(composed(drive))["message"]) == ("Running", "")


def test_an_activity_in_backoff_shows_its_next_attempt_and_last_failure() -> None:
    drive = Drive.of(activity("book"))
    drive.started(1)
    drive.failed(2, application("refused", details=[1]))
    (entry,) = composed(drive)["pendingActivities"]
    assert entry == {
        "step": "book",
        "activity": "book",
        "attempt": 2,
        "state": "BackingOff",
        "scheduledTime": "2026-01-01T00:00:00Z",
        "lastFailure": {"kind": "Application", "type": "Declined", "message": "refused", "details": [1]},
        "nextAttemptTime": "2026-01-01T00:00:03Z",
    }


def test_an_activity_after_its_backoff_is_scheduled_and_keeps_its_last_failure() -> None:
    drive = Drive.of(activity("book"))
    drive.failed(2)
    drive.at(3)
    (entry,) = composed(drive)["pendingActivities"]
    assert (entry["state"], entry["attempt"]) == ("Scheduled", 2)
    assert entry["lastFailure"]["type"] == "Declined"
    assert "nextAttemptTime" not in entry


def test_a_lost_attempt_has_a_failure_with_a_type() -> None:
    drive = Drive.of(activity("book"))
    drive.lost(2)
    (entry,) = composed(drive)["pendingActivities"]
    assert entry["lastFailure"] == {"kind": "Server", "type": "Server", "message": "node gone"}


def test_a_timer_shows_when_it_fires() -> None:
    status = composed(Drive.of(timer("nap", 90)))
    assert status["pendingTimers"] == [{"step": "nap", "fireTime": "2026-01-01T00:01:30Z"}]
    assert status["pendingActivities"] == []


def test_a_failed_decision_is_shown_in_the_condition_and_the_run_stays_open() -> None:
    drive = Drive.of(activity("book"))
    first = composed(drive)
    drive.script.broken = True
    drive.completed(5)
    status = composed(drive, first)
    assert status["phase"] == "Running"
    condition = succeeded(status)
    assert (condition["status"], condition["reason"]) == ("Unknown", "WorkflowTaskFailed")
    assert condition["message"] == "the script is broken"
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    drive.script.broken = False
    drive.at(7)
    assert succeeded(composed(drive, status))["reason"] == "Completed"


# Closed runs


def test_a_completed_run_shows_its_output_and_completion_time() -> None:
    drive = Drive.of()
    status = composed(drive)
    assert (status["phase"], status["output"]) == ("Completed", 0)
    assert status["completionTime"] == "2026-01-01T00:00:00Z"
    assert (succeeded(status)["status"], succeeded(status)["reason"]) == ("True", "Completed")
    assert "failure" not in status
    assert status["pendingActivities"] == []


def test_a_failed_run_shows_its_failure() -> None:
    drive = Drive.of(activity("book", retry_policy=RetryPolicy(maximum_attempts=1)))
    drive.failed(4, application("refused"))
    status = composed(drive)
    assert status["phase"] == "Failed"
    assert status["failure"] == {"kind": "Application", "type": "Declined", "message": "refused"}
    assert status["completionTime"] == "2026-01-01T00:00:04Z"
    condition = succeeded(status)
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Failed", "Declined: refused")
    assert "output" not in status


def test_a_run_that_timed_out_shows_it() -> None:
    drive = Drive.of(activity("book"), workflow_run_timeout=seconds(30))
    drive.at(30)
    status = composed(drive)
    assert status["phase"] == "TimedOut"
    assert status["failure"] == {
        "kind": "Timeout",
        "type": "TemporalTimeout:StartToClose",
        "message": "workflow timeout: the runTimeout of 30s has passed",
        "timeoutType": "StartToClose",
    }
    assert (succeeded(status)["status"], succeeded(status)["reason"]) == ("False", "TimedOut")


@pytest.mark.parametrize(("length", "condition", "failure"), [(40_000, 32_768, 40_000), (100_000, 16_394, 16_384)])
def test_a_very_long_message_is_truncated_in_condition_and_failure(length: int, condition: int, failure: int) -> None:
    drive = Drive.of(FailWorkflowExecution(failure=application("x" * length)))
    status = composed(drive)
    known(status)
    assert len(succeeded(status)["message"]) == condition
    assert len(status["failure"]["message"]) == failure


# Through time


def test_a_condition_keeps_its_transition_time_until_it_changes() -> None:
    drive = Drive.of(activity("book"), timer("nap", 10))
    status = composed(drive)
    times = [succeeded(status)["lastTransitionTime"]]
    drive.failed(2)
    status = composed(drive, status)
    times.append(succeeded(status)["lastTransitionTime"])
    drive.completed(4)
    status = composed(drive, status)
    times.append(succeeded(status)["lastTransitionTime"])
    drive.at(14)
    status = composed(drive, status)
    times.append(succeeded(status)["lastTransitionTime"])
    assert times == ["2026-01-01T00:00:00Z"] * 3 + ["2026-01-01T00:00:14Z"]
    assert status["phase"] == "Completed"


def test_the_history_is_appended_and_its_size_recorded() -> None:
    drive = Drive.of(activity("book"), timer("nap", 10))
    status = composed(drive)
    assert len(status["history"]["events"]) == 2
    drive.completed(4, "ü")
    status = composed(drive, status)
    drive.at(5)
    status = composed(drive, status)
    reported = history.decode_events(status["history"]["events"])
    assert list(reported) == drive.history
    assert status["history"]["nextEventId"] == len(drive.history) + 1
    assert status["history"]["segments"] == 0
    assert status["history"]["sizeBytes"] == sum(
        len(json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode())
        for event in status["history"]["events"]
    )


def test_sealed_segments_remain_counted() -> None:
    drive = Drive.of(activity("book"))
    old = {"history": {"events": [], "segments": 4, "lastSegmentHash": "h", "sizeBytes": 1000, "nextEventId": 90}}
    status = composed(drive, old)
    assert (status["history"]["segments"], status["history"]["lastSegmentHash"]) == (4, "h")
    assert status["history"]["sizeBytes"] > 1000


def test_the_status_contains_the_state_for_a_restart() -> None:
    drive = Drive.of(activity("book", input={"n": None}))
    drive.failed(2)
    status = json.loads(json.dumps(composed(drive)))
    assert history.decode_state(status["state"]) == drive.state


def test_the_definition_is_stored_if_it_came_from_a_workflow() -> None:
    definition = {"steps": [{"name": "a", "set": {"x": None}}]}
    composer, program = StatusComposer("uid-1"), compile_program(WorkflowSpec.parse(definition))
    content = Content(workflow="order", definition=definition)
    composer.define(RunDecider(decider=None, definition=Definition(program, "order", content)))
    status = composer.compose(run_with(), Drive.of(activity("book")).state, (), T0)
    assert (status["definition"], status["progress"]) == (definition, "0/1")
    assert "revision" not in status


def test_a_run_refers_to_its_revision_and_never_to_another_one() -> None:
    definition = {"steps": [{"name": "a", "set": {"x": None}}]}
    composer, program = StatusComposer("uid-1"), compile_program(WorkflowSpec.parse(definition))
    content = Content(workflow="order", definition=definition)
    kept = Definition(program, "order", content, revision=content.reference())
    composer.define(RunDecider(decider=None, definition=kept))
    status = composer.compose(run_with(), Drive.of(activity("book")).state, (), T0)
    assert status["revision"] == content.reference().stored()
    assert "definition" not in status
    composer.define(RunDecider(decider=None, definition=None))
    assert (
        composer.compose(run_with(status), Drive.of(activity("book")).state, (), T0)["revision"] == status["revision"]
    )


@pytest.mark.parametrize("run", ["a" * 253, "with.dots", "order-1"], ids=["a long name", "a name with dots", "a name"])
def test_pod_names_in_the_status_are_valid(run: str) -> None:
    (entry,) = composed(Drive.of(activity("book")), name=run)["pendingActivities"]
    assert len(entry["pod"]) <= 63
    assert "." not in entry["pod"]


# Not started yet


def test_a_run_that_cannot_start_shows_the_reason_and_its_time() -> None:
    status = COMPOSER.waiting(run_with(), ConditionReason.WORKFLOW_NOT_FOUND, "there is none", T0)
    known(status)
    assert status["phase"] == "Pending"
    assert succeeded(status) == {
        "type": "Succeeded",
        "status": "Unknown",
        "reason": "WorkflowNotFound",
        "message": "there is none",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    later = T0 + seconds(60)
    assert COMPOSER.waiting(run_with(status), ConditionReason.WORKFLOW_NOT_FOUND, "there is none", later) == status
    other = COMPOSER.waiting(run_with(status), ConditionReason.INVALID_WORKFLOW, "it is wrong", later)
    assert succeeded(other)["reason"] == "InvalidWorkflow"
    assert succeeded(other)["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_the_reason_disappears_when_the_run_starts() -> None:
    waited = COMPOSER.waiting(run_with(), ConditionReason.WORKFLOW_NOT_FOUND, "there is none", T0)
    condition = succeeded(composed(Drive.of(activity("book")), waited))
    assert (condition["reason"], condition["message"]) == ("Running", "")


def test_other_conditions_are_kept() -> None:
    other = {"type": "Paused", "status": "False", "reason": "NotPaused", "lastTransitionTime": "2025-01-01T00:00:00Z"}
    status = composed(Drive.of(activity("book")), {"conditions": [other]})
    assert [condition["type"] for condition in status["conditions"]] == ["Paused", "Succeeded"]


# Failures


def test_every_node_of_a_failure_has_a_type() -> None:
    tree = Failure(kind=FailureKind.SERVER, message="gone")
    for kind in FailureKind:
        tree = Failure(kind=kind, timeout_type=TimeoutType.HEARTBEAT, message=f"{kind} above", cause=tree)
    tree = Failure(kind=FailureKind.APPLICATION, type="Declined", cause=tree, next_retry_delay=seconds(5))
    reported: dict[str, Any] | None = json.loads(json.dumps(as_json(tree)))
    types = []
    for node in tree.chain():
        assert reported is not None
        types.append(reported["type"])
        assert reported["kind"] == node.kind
        assert reported["type"] in node.type_names()
        reported = reported.get("cause")
    assert reported is None
    assert types == [
        *("Declined", "NexusHandler", "NexusOperation"),
        *("Server", "Terminated", "Cancelled", "TemporalTimeout:Heartbeat", "ChildWorkflow", "Activity"),
        "Application",
        "Server",
    ]


# Runs that workers decide


def of_code(*, unserved: str = "", failed: bool = False) -> dict[str, Any]:
    run = Coded.begin()
    if failed:
        run.take()
        wrong = Failure(kind=FailureKind.APPLICATION, message="no class Order")
        run.ask(TaskFailed, token=run.token, cause="WorkflowWorkerUnhandledFailure", failure=wrong)
    composer = StatusComposer("uid-1", lambda *_: Hindrances(unserved))
    status = composer.compose(run_with(), run.state, run.events, run.now)
    known(status)
    return succeeded(status)


def test_a_run_without_a_worker_shows_it() -> None:
    assert of_code()["message"] == ""
    reported = of_code(unserved="no worker polls the task queue `orders`")
    assert (reported["reason"], reported["message"]) == ("NoWorker", "no worker polls the task queue `orders`")


def test_a_run_with_a_failing_workflow_task_shows_the_failure() -> None:
    reported = of_code(failed=True)
    assert reported["reason"] == "WorkflowTaskFailed"
    assert reported["message"] == "the workflow task is retried: WorkflowWorkerUnhandledFailure: no class Order"


def test_a_run_with_a_failed_task_and_no_worker_shows_both() -> None:
    lacking = "no worker polls the task queue `orders`"
    reported = of_code(failed=True, unserved=lacking)
    assert (reported["reason"], reported["message"]) == (
        "NoWorker",
        f"{lacking}; the last attempt of the workflow task failed: WorkflowWorkerUnhandledFailure: no class Order",
    )


# Runs of steps that fail


def test_a_run_that_exceeded_its_deadline_has_a_reason_of_its_own() -> None:
    run = Run(f"[{do('a')}]", stepsTimeout="10s").at(after=20).done(":finally/note")
    condition = succeeded(composed(run.drive))
    assert (condition["status"], condition["reason"]) == ("False", ConditionReason.DEADLINE_EXCEEDED)
    assert condition["message"] == "the steps have taken longer than their `stepsTimeout` of 10s"
    assert composed(run.drive)["phase"] == "Failed"


def test_the_deadline_of_a_block_is_an_ordinary_failure() -> None:
    blocks = [
        {"name": "two", "stepsTimeout": "10s", "steps": [{"name": "x", "activity": {"name": "work"}}]},
        {"name": "tidy", "steps": [{"name": "note", "activity": {"name": "work"}}]},
    ]
    run = Run("[{name: t, call: {block: two}}]", blocks=blocks).at(after=20).done(":finally/note")
    assert succeeded(composed(run.drive))["reason"] == ConditionReason.FAILED


def test_an_open_run_says_what_has_failed() -> None:
    run = Run(f"[{do('a')}, {do('b', ', needs: []')}]", failurePolicy="FinishRunning").failed("a")
    condition = succeeded(composed(run.drive))
    assert (condition["status"], condition["reason"]) == ("Unknown", "Running")
    assert condition["message"].startswith(
        "1 step failed, and the run will fail when the others have ended: step `a`: "
    )
    run.failed("b")
    assert "message" not in condition or "`b`" not in condition["message"]
    run.done(":finally/note")
    message = succeeded(composed(run.drive))["message"]
    assert "step `a`" in message
    assert "then failed as well: step `b`" in message


@pytest.mark.parametrize(
    ("events", "history", "status", "want"),
    [
        (MAX_EVENTS // 2 - 1, 0, 0, False),
        (MAX_EVENTS // 2, 0, 0, True),
        (1, MAX_BYTES // 2, 0, True),
        (1, 0, MAX_STATUS // 2, True),
        (1, MAX_BYTES // 2 - 1, MAX_STATUS // 2 - 1, False),
    ],
)
def test_a_run_is_near_its_limit_from_half_of_its_events_or_bytes(
    events: int, history: int, status: int, *, want: bool
) -> None:
    state = msgspec.structs.replace(Coded.begin().state, next_event_id=events + 1, history_size=history)
    assert is_near_limit(state, status) is want
