"""How many events the engine decides in a second on one core, and whether that depends on how long the history is.

Pure: no cluster, no I/O. Between any two steps, the state is converted through JSON, as between two commits.
"""

import time
from datetime import UTC, datetime, timedelta

import pytest

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.inputs import AttemptCompleted
from perdure.engine.step import start, step
from perdure.language.compiler import compile_program
from perdure.language.interpreter import Interpreter, RunScope

pytestmark = pytest.mark.bench

T0 = datetime(2026, 1, 1, tzinfo=UTC)
LENGTHS = (100, 1_000, 10_000, 50_000)
PROGRAM = compile_program(
    WorkflowSpec.parse(
        {
            "activities": [{"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "60s"}],
            "steps": [
                {
                    "name": "all",
                    "forEach": {"items": "${lists.range(input)}", "maxConcurrency": 20},
                    "activity": {"name": "work", "input": {"n": "${item}"}},
                },
                {"name": "done", "return": {"output": "done"}},
            ],
        }
    )
)


def test_events_per_second_do_not_depend_on_the_length_of_the_history() -> None:
    """Three events per activity: compare the last decile of each length with the first of the longest."""
    print("\n    events  events/s in all  first decile  last decile  largest state")
    for length in LENGTHS:
        count = length // 3
        spent, largest = play(count)
        tenth = max(len(spent) // 10, 1)
        first, last = sum(spent[:tenth]) / tenth, sum(spent[-tenth:]) / tenth
        print(
            f"  {length:8,}  {3 * count / sum(spent):15,.0f}  {3 / first:12,.0f}  {3 / last:11,.0f}  {largest / 1024:9.1f} KiB"
        )


def play(count: int) -> tuple[list[float], int]:
    """Seconds of CPU for each of `count` activities, and the bytes of the largest state."""
    scope = RunScope(name="r", namespace="n", workflow_id="w", run_id="u", attempt=1)
    decider = Interpreter(PROGRAM, scope, input=count, start_time=T0)
    first = ev.WorkflowExecutionStarted(
        event_id=1,
        event_time=T0,
        workflow_type="t",
        workflow_id="w",
        input=count,
        original_execution_run_id="u",
        first_execution_run_id="u",
    )
    state = start(first, decider).state
    spent: list[float] = []
    largest, now = 0, T0
    while not state.closed:
        now += timedelta(milliseconds=1)
        begun = time.process_time()
        activity = next(iter(state.activities.values()))
        done = AttemptCompleted(
            scheduled_event_id=activity.scheduled_event_id, attempt=1, result={"ok": True}, started_time=now
        )
        state = step(state, [done], now, decider).state
        stored = history.encode(state)
        spent.append(time.process_time() - begun)
        if len(spent) % 1_000 == 0:
            state = history.decode_state(stored)
        largest = max(largest, len(str(stored)))
    assert len(spent) == count
    return spent, largest
