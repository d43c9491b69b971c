"""Cron schedules of workflows: which are valid, when the next run is due, and what the events of a chain say.

The waits were computed by Temporal's server (common/backoff/cron.go of 1.32, GetBackoffForNextSchedule).
"""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from perdure.api import labels
from perdure.api.kinds.workflowrun import WorkflowRunSpec
from perdure.controller.runs.start import first_event
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.cron import cron_mistake, next_due
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.ledger import MAX_CARRIED
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import StartExtras
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import Continuation, continuation_of, extras_of, successor_run
from support.engine.coded import T0, Coded

TIMES = (
    ("2026-03-28T10:00:00.250Z", "2026-03-28T10:00:00.250Z"),
    ("2026-03-29T00:30:00Z", "2026-03-29T00:31:10.500Z"),
    ("2026-10-24T23:00:00Z", "2026-10-25T00:45:00Z"),
    ("2026-11-01T04:00:00.900Z", "2026-11-01T05:30:00.100Z"),
    ("2018-11-03T12:00:00Z", "2018-11-03T12:00:01Z"),
    ("2026-12-31T23:59:59Z", "2026-12-31T23:58:00Z"),
)
"""When the last run was due, and when it has closed."""
WAITS = {
    "* * * * *": (60, 50, 0, 60, 59, 119),
    "*/7 3-5 * * *": (61200, 8930, 8100, 300, 53999, 119),
    "0 12 * * MON": (180000, 127730, 126900, 109800, 172799, 119),
    "0 0 13 * FRI": (482400, 430130, 429300, 412200, 475199, 119),
    "0 0 */10 * FRI": (223200, 170930, 429300, 412200, 475199, 119),
    "0 0 29 2 *": (60703200, 60650930, 42506100, 41884200, 41687999, 119),
    "30 2 * * *": (59400, 7130, 6300, 75600, 52199, 119),
    "CRON_TZ=Europe/Berlin 30 2 * * *": (138600, 86330, 2700, 72000, 48599, 119),
    "TZ=America/Sao_Paulo 0 0 * * *": (61200, 8930, 8100, 77400, 136799, 119),
    "CRON_TZ=America/New_York 30 1 * * *": (70200, 17930, 17100, 3600, 62999, 119),
    "CRON_TZ=Asia/Kolkata 15 */6 * * ?": (9900, 830, 0, 4500, 2699, 119),
    "@hourly": (3600, 1730, 900, 1800, 3599, 119),
    "@daily": (50400, 84530, 83700, 66600, 43199, 119),
    "@midnight": (50400, 84530, 83700, 66600, 43199, 119),
    "@weekly": (50400, 602930, 602100, 585000, 43199, 119),
    "@monthly": (309600, 257330, 602100, 2572200, 2375999, 119),
    "@yearly": (24069600, 24017330, 5872500, 5250600, 5054399, 119),
    "@annually": (24069600, 24017330, 5872500, 5250600, 5054399, 119),
    "CRON_TZ=Asia/Tokyo @daily": (18000, 52130, 51300, 34200, 10799, 119),
    "@every 90s": (90, 20, 0, 90, 89, 119),
    "@every 1h30m": (5400, 5330, 4500, 5400, 5399, 119),
    "@every 1.5h": (5400, 5330, 4500, 5400, 5399, 119),
    "@every 300ms": (1, 1, 0, 1, 0, 119),
    "@every -5s": (1, 1, 0, 1, 0, 119),
    "@every 2.9s": (2, 2, 0, 2, 1, 119),
    "5/20 * * * *": (300, 830, 0, 900, 299, 119),
    "0 0 1 jan-mar/2 ?": (24069600, 24017330, 5872500, 5250600, 5054399, 119),
    "1,2,, * * * *": (60, 1790, 960, 1860, 59, 119),
    "+5 * * * *": (300, 2030, 1200, 2100, 299, 119),
    " 0 0 * * * ": (50400, 84530, 83700, 66600, 43199, 119),
}
"""Seconds from each close to the next run."""
NEVER = ("0 0 31 4 *", "0 0 30 2 *", ", * * * *")
INVALID = (
    "never",
    "* * * *",
    "* * * * * *",
    "60 * * * *",
    "* * 0 * *",
    "* * * * 7",
    "@every",
    "@every x",
    "@sometimes",
    "CRON_TZ=Nowhere * * * * *",
    "1-5-7 * * * *",
    "*/0 * * * *",
    "5-1 * * * *",
    "*/2/3 * * * *",
    " @daily",
    "0 0 L * *",
    "CRON_TZ=Europe/Berlin",
)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("schedule", WAITS)
def test_the_next_run_is_due_when_temporals_server_starts_it(schedule: str) -> None:
    found = []
    for last, now in (map(datetime.fromisoformat, times) for times in TIMES):
        due = next_due(schedule, last, now)
        assert due is not None
        found.append(-((now - due) // timedelta(seconds=1)))
    assert tuple(found) == WAITS[schedule]
    assert cron_mistake(schedule, T0) == ""


@pytest.mark.parametrize("schedule", INVALID)
def test_an_invalid_schedule_is_rejected_and_never_due(schedule: str) -> None:
    assert cron_mistake(schedule, T0) == "invalid CronSchedule."
    assert next_due(schedule, T0, T0) is None


@pytest.mark.parametrize("schedule", NEVER)
def test_a_schedule_without_any_time_is_rejected_and_never_due(schedule: str) -> None:
    assert cron_mistake(schedule, T0) == "invalid CronSchedule, no time can be found to satisfy the schedule"
    assert next_due(schedule, T0, T0) is None


def test_no_schedule_is_valid_and_never_due() -> None:
    assert cron_mistake("", T0) == ""
    assert next_due("", T0, T0) is None


def test_the_next_time_of_a_schedule_of_seconds_is_found_fast_after_a_long_run() -> None:
    last = datetime(1971, 1, 1, tzinfo=UTC)
    assert next_due("@every 1s", last, T0) == T0
    assert next_due("* * * * *", last, T0) == T0


CRON = {"cron_schedule": "* * * * *", "first_workflow_task_backoff": MINUTE}
BROKEN = Failure(kind=FailureKind.APPLICATION, type="Broken")


def ended(run: Coded) -> tuple[str, str, timedelta | None]:
    """How a run has ended, which one follows it, and after how long."""
    last = run.events[-1]
    following = getattr(last, "new_workflow_run", ""), getattr(last, "new_run_backoff", None)
    return type(last).__name__, *following


def test_the_end_of_a_run_names_the_next_run_of_its_cron_schedule() -> None:
    run = Coded.begin(**CRON)
    assert run.names == ["WorkflowExecutionStarted"], "no task before the run is due"
    run.at(60)
    run.take()
    run.complete(cmd.CompleteWorkflowExecution(result=[1]), seconds=150)
    assert ended(run) == ("WorkflowExecutionCompleted", "next", timedelta(seconds=30))
    assert run.state.start_successor


def test_a_run_that_fails_is_followed_by_its_retries_first() -> None:
    once, twice = (
        Coded.begin(**CRON, retry_policy=RetryPolicy(maximum_attempts=2), attempt=attempt) for attempt in (1, 2)
    )
    for run in (once, twice):
        run.decide(cmd.FailWorkflowExecution(failure=BROKEN), seconds=60)
    assert ended(once) == ("WorkflowExecutionFailed", "next", timedelta(seconds=1))
    assert ended(twice) == ("WorkflowExecutionFailed", "next", MINUTE)
    assert [run.events[-1].retry_state for run in (once, twice)] == [  # type: ignore[attr-defined]
        RetryState.IN_PROGRESS,
        RetryState.MAXIMUM_ATTEMPTS_REACHED,
    ]


def test_a_run_timeout_is_followed_by_the_next_run_and_the_execution_timeout_by_none() -> None:
    run = Coded.begin(**CRON, workflow_run_timeout=timedelta(seconds=20))
    run.at(80)
    assert ended(run) == ("WorkflowExecutionTimedOut", "next", timedelta(seconds=40))
    run = Coded.begin(**CRON, workflow_execution_expiration_time=T0 + timedelta(seconds=80))
    run.at(80)
    assert ended(run) == ("WorkflowExecutionTimedOut", "", None)


def test_no_run_follows_one_that_was_cancelled_or_terminated() -> None:
    run = Coded.begin(**CRON)
    run.decide(cmd.CancelWorkflowExecution(), seconds=60)
    assert ended(run) == ("WorkflowExecutionCanceled", "", None)
    run = Coded.begin(**CRON)
    assert run.ask(inp.TerminateRequested, reason="enough").ok
    assert ended(run) == ("WorkflowExecutionTerminated", "", None)
    assert not run.state.start_successor


def test_two_runs_of_a_cron_schedule_begin_at_least_a_second_apart() -> None:
    run = Coded.begin(cron_schedule="@every 1s", first_workflow_task_backoff=timedelta(seconds=1.75))
    run.decide(cmd.CompleteWorkflowExecution(), seconds=1.875)
    assert ended(run)[2] == timedelta(seconds=0.875)


def test_a_result_too_large_for_the_next_run_fails_the_run_and_the_chain_continues() -> None:
    run = Coded.begin(**CRON)
    run.decide(cmd.CompleteWorkflowExecution(result="x" * MAX_CARRIED), seconds=60)
    assert ended(run) == ("WorkflowExecutionFailed", "next", MINUTE)
    failed = run.events[-1]
    assert isinstance(failed, ev.WorkflowExecutionFailed)
    assert failed.failure.type == "PayloadTooLarge"
    run = Coded.begin()
    run.decide(cmd.CompleteWorkflowExecution(result="x" * MAX_CARRIED))
    assert ended(run) == ("WorkflowExecutionCompleted", "", None)


def next_of(run: Coded, extras: StartExtras) -> tuple[Continuation, StartExtras]:
    """The data that the next run of a chain gets."""
    annotations = {labels.START_ANNOTATION: msgspec.json.encode(extras).decode()}
    spec = {"workflow": {"type": "Order", "taskQueue": "orders"}, "input": {"n": 1}}
    meta = {"name": "order", "namespace": "orders", "uid": "run-1", "annotations": annotations}
    made = successor_run({"metadata": meta, "spec": spec}, run.state, run.events[-1])
    assert made["spec"] == {**spec, "workflowId": "order"}
    tie = continuation_of(made)
    assert tie is not None
    return tie, extras_of(made)


def test_the_next_run_gets_the_last_result_and_the_latest_failure() -> None:
    extras = StartExtras(cron_schedule="* * * * *", request_id="r", last_completion_result=["before"], memo={"a": 1})
    run = Coded.begin(**CRON)
    run.decide(cmd.CompleteWorkflowExecution(result=["now"]), seconds=60)
    tie, kept = next_of(run, extras)
    assert (tie.due, tie.attempt, tie.failure, tie.first_run_id) == (T0 + 2 * MINUTE, 1, None, "run-1")
    expected = StartExtras(
        cron_schedule="* * * * *", initiator="CronSchedule", last_completion_result=["now"], memo={"a": 1}
    )
    assert kept == expected
    run = Coded.begin(**CRON)
    run.decide(cmd.FailWorkflowExecution(failure=BROKEN), seconds=60)
    tie, kept = next_of(run, extras)
    assert (tie.due, tie.attempt, tie.failure) == (T0 + 2 * MINUTE, 1, BROKEN)
    assert kept == msgspec.structs.replace(expected, last_completion_result=["before"])


def test_a_run_that_is_created_late_keeps_its_due_time() -> None:
    reference = RunRef(namespace="orders", name="order", uid="run-2", workflow_id="order")
    spec = WorkflowRunSpec.model_validate({"workflow": {"type": "Order", "taskQueue": "orders"}})
    tie = Continuation(name="order", run_id="run-1", first_run_id="run-1", due=T0 + MINUTE)
    extras = StartExtras(cron_schedule="* * * * *", initiator="CronSchedule")

    def waits(now: datetime, before: Continuation | None) -> timedelta | None:
        event = first_event(
            reference, spec, "Order", None, now, policy=None, parent=None, continues=before, extras=extras
        )
        assert (event.cron_schedule, event.initiator) == ("* * * * *", "CronSchedule")
        return event.first_workflow_task_backoff

    assert waits(T0 + timedelta(seconds=0.5), tie) == MINUTE
    assert waits(T0 + timedelta(seconds=40), tie) == timedelta(seconds=20)
    assert waits(T0 + timedelta(seconds=70), tie) is None
    assert waits(T0 + timedelta(seconds=70.5), None) == timedelta(seconds=50)
