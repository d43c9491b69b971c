"""What is told of work that no worker asks for, and when it is looked at again. Pure; time is an argument."""

from datetime import timedelta
from typing import Any

import pytest

from engine.coded import T0, Coded, activity
from engine.test_tasks import taken
from perdure.controller.workers import PATIENCE, look_again_at, unserved
from perdure.engine import inputs as inp
from perdure.engine.state import PendingActivity

SECOND = timedelta(seconds=1)
NOBODY = "no worker polls the task queue `orders` for activities"


def nobody(_: PendingActivity) -> bool:
    return False


def told(run: Coded, after: timedelta, asks: Any = nobody) -> list[str]:
    return [each.reason for each in unserved(run.state, T0 + after, asks)]


def look(run: Coded, after: timedelta, said: str = "") -> timedelta | None:
    found = look_again_at(run.state, T0 + after, told=said)
    return None if found is None else found - (T0 + after)


def test_an_attempt_that_nobody_asks_for_is_told_of_after_a_while_and_once() -> None:
    run = Coded.begin()
    run.decide(activity())
    assert told(run, PATIENCE - SECOND) == []
    assert told(run, PATIENCE, lambda _: True) == []
    assert told(run, PATIENCE) == [NOBODY]
    recorded = run.at(10, *unserved(run.state, T0 + PATIENCE, nobody))
    assert recorded.durable, "the run's condition says so"
    assert told(run, 2 * PATIENCE) == []
    assert look(run, 2 * PATIENCE) is None


def test_that_a_worker_has_come_is_recorded() -> None:
    run = Coded.begin()
    run.decide(activity(), activity("b"))
    run.at(10, *unserved(run.state, T0 + PATIENCE, nobody))
    writes = run.writes
    taken(run)
    assert run.writes == writes, "another still waits"
    taken(run, "b")
    assert run.writes == writes + 1
    assert not any(run.state.stuck())
    assert all(each.waiting_reason is None for each in run.state.activities.values())


def test_an_attempt_that_may_not_start_is_not_told_of() -> None:
    run = Coded.begin()
    run.decide(activity())
    run.ask(inp.PauseRequested)
    assert told(run, PATIENCE) == []
    assert look(run, PATIENCE) is None


def test_an_attempt_that_a_worker_has_is_not_told_of() -> None:
    run = Coded.begin()
    run.decide(activity())
    taken(run)
    assert told(run, PATIENCE) == []
    assert look(run, PATIENCE) is None


@pytest.mark.parametrize(("age", "pause"), [(0, 10), (5, 10), (30, 30), (3600, 60)])
def test_what_waits_is_looked_at_ever_more_seldom(age: int, pause: int) -> None:
    run = Coded.begin()
    assert look(run, age * SECOND) == pause * SECOND
    run.decide(activity())
    assert look(run, age * SECOND) == pause * SECOND


def test_a_workflow_task_is_looked_at_until_it_is_told_of_or_taken() -> None:
    run = Coded.begin()
    assert look(run, PATIENCE) is not None
    assert look(run, PATIENCE, NOBODY) is None
    run.take()
    assert look(run, PATIENCE) is None
