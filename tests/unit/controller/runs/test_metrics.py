"""The metrics about a run that closes, and about its attempts."""

import os
import platform
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from perdure import __version__
from perdure.controller.runs.conditions import RunEventRecorder
from perdure.engine.ledger import AttemptOutcome, Retired
from perdure.engine.state import TAKE_LIMITS, RunState
from perdure.engine.step import RunTransition
from perdure.observe import metrics
from perdure.runtime.attempts import RunRef
from support.engine.coded import COMPLETE, Coded, timer
from support.engine.script import Drive, activity, application
from support.http_server import recording


def observed(suffix: str) -> float:
    value = metrics.REGISTRY.get_sample_value(
        f"perdure_workflow_run_duration_seconds_{suffix}",
        {"namespace": "shop", "workflow": "Order", "outcome": "Completed"},
    )
    return value or 0.0


def last(run: Coded) -> RunTransition:
    assert run.last is not None
    return run.last


async def test_the_duration_of_a_closed_run_is_observed_once() -> None:
    run = Coded.begin()
    before = (observed("count"), observed("sum"))
    async with recording() as (recorder, _):
        ref = RunRef(namespace="shop", name="order", uid="uid", workflow_id="order")
        events = RunEventRecorder(recorder, ref, "Order")
        run.decide(timer("t", 100), seconds=5)
        events.committed(run.state, last(run), "0/1")
        run.signal(seconds=60)
        state = run.state
        run.decide(COMPLETE, seconds=60)
        events.committed(state, last(run), "1/1")
    assert (observed("count") - before[0], observed("sum") - before[1]) == (1, pytest.approx(60))


def attempts(executor: str, outcome: str) -> tuple[float, float, float, float]:
    """The number of measured waits, their sum, and the same of the durations."""
    wait, ran = "perdure_activity_schedule_to_start_seconds", "perdure_activity_start_to_close_seconds"
    found = [
        metrics.REGISTRY.get_sample_value(f"{name}_{suffix}", labels) or 0.0
        for name, labels in ((wait, {"executor": executor}), (ran, {"executor": executor, "outcome": outcome}))
        for suffix in ("count", "sum")
    ]
    return found[0], found[1], found[2], found[3]


async def measured(transition: RunTransition, executor: str, outcome: str) -> tuple[float, ...]:
    """How a commit changes the metrics."""
    before = attempts(executor, outcome)
    async with recording() as (recorder, _):
        ref = RunRef(namespace="shop", name="order", uid="uid", workflow_id="order")
        RunEventRecorder(recorder, ref, "Order").committed(transition.state, transition, "0/1")
    return tuple(after - earlier for after, earlier in zip(attempts(executor, outcome), before, strict=True))


async def test_the_wait_and_the_duration_of_each_attempt_are_measured_when_it_ends() -> None:
    drive = Drive.of(activity())
    drive.started(3)
    assert await measured(drive.failed(10, application()), "Pod", "Failed") == pytest.approx((1, 3, 1, 7))
    drive.started(15)  # the second attempt could start at 11
    assert await measured(drive.completed(75), "Pod", "Completed") == pytest.approx((1, 4, 1, 60))


async def test_an_attempt_that_never_started_is_counted_but_not_measured() -> None:
    drive = Drive.of(activity(schedule_to_start_timeout=timedelta(seconds=5)))
    assert await measured(drive.at(6), "Pod", "TimedOut") == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("ended", "executor", "want"),
    [
        (Retired(2, 1, AttemptOutcome.COMPLETED, by_worker=True, waited=timedelta(), ran=timedelta(1)), "Worker", 1),
        (Retired(2, 1, AttemptOutcome.CACHED, waited=timedelta(), ran=timedelta()), "Pod", 0),
    ],
    ids=["of a worker", "cached"],
)
async def test_activities_of_workers_have_their_own_label_and_cached_results_are_not_measured(
    ended: Retired, executor: str, want: int
) -> None:
    state = Coded.begin().state
    transition = RunTransition(state, events=(), retired=(ended,), durable=True, more=False)
    assert (await measured(transition, executor, ended.outcome.value))[2] == want


async def test_an_activity_counts_once_when_it_has_closed() -> None:
    def count(outcome: str) -> float:
        return metrics.REGISTRY.get_sample_value("perdure_activities_total", {"outcome": outcome}) or 0.0

    drive = Drive.of(activity())
    before = (count("Failed"), count("Completed"))
    await measured(drive.failed(1, application()), "Pod", "Failed")
    await measured(drive.completed(3), "Pod", "Completed")
    assert (count("Failed"), count("Completed")) == (before[0], before[1] + 1)


@pytest.mark.parametrize("earlier", [True, False], ids=["scheduled earlier", "scheduled by the same commit"])
@pytest.mark.parametrize(("type_", "queue", "want"), [(TAKE_LIMITS, "", 0), ("work", "", 1), (TAKE_LIMITS, "q", 1)])
async def test_a_wait_for_the_limits_of_a_step_is_not_counted_as_an_activity(
    type_: str, queue: str, want: int, *, earlier: bool
) -> None:
    def count() -> float:
        return metrics.REGISTRY.get_sample_value("perdure_activities_total", {"outcome": "Completed"}) or 0.0

    drive = Drive.of(activity(type_, task_queue=queue))
    before: RunState | None
    before, scheduled = drive.state, drive.history[-1]
    done = drive.completed(1)
    if not earlier:
        before, done = None, replace(done, events=(scheduled, *done.events))
    counted = count()
    async with recording() as (recorder, _):
        ref = RunRef(namespace="shop", name="order", uid="uid", workflow_id="order")
        RunEventRecorder(recorder, ref, "Order").committed(before, done, "0/1")
    assert count() - counted == want


def test_the_build_is_exposed_as_a_metric() -> None:
    labels = {"version": __version__, "revision": "", "python_version": platform.python_version()}
    assert metrics.REGISTRY.get_sample_value("perdure_build_info", labels) == 1


def test_the_image_states_its_revision() -> None:
    shown = "from perdure.observe import metrics; print(metrics.render().decode())"
    environment = {**os.environ, "PERDURE_REVISION": "c0ffee", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", shown], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("perdure_build_info")]
    assert 'revision="c0ffee"' in line
