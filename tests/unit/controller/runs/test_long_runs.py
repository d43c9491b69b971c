"""The status of a long run: only open work takes space. The engine and the sealing are the real ones."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.controller.recorded_state import stored_state
from perdure.controller.runs.status import StatusComposer, without_sealed
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.inputs import AttemptCompleted
from perdure.engine.step import start, step
from perdure.language.compiler import compile_program
from perdure.language.interpreter import Interpreter, RunScope
from perdure.runtime import segments, status_encoding
from perdure.runtime.attempts import RunRef
from support.engine.script import T0

if TYPE_CHECKING:
    from perdure.controller.reconcile.record import Status

LIMIT = 256 * 1024
"""Bytes."""
RUN = RunRef(namespace="shop", name="r", uid="u", workflow_id="r")
COMPOSER = StatusComposer("u")
WORK = {"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "60s"}


class Long:
    """A run of a loop over a number of items, processed as by the controller: seal, compose, commit."""

    def __init__(self, loop: dict[str, Any], items: int) -> None:
        spec = {
            "activities": [WORK],
            "steps": [
                {"name": "all", "forEach": loop, "activity": {"name": "work", "input": {"n": "${item}"}}},
                {"name": "done", "return": {"output": "done"}},  # else the outputs of the loop are those of the run
            ],
        }
        scope = RunScope(name="r", namespace="shop", workflow_id="r", run_id="u", attempt=1)
        self.decider = Interpreter(compile_program(WorkflowSpec.parse(spec)), scope, input=items, start_time=T0)
        self.status: Status = {}
        self.sealed: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.now = T0
        first = ev.WorkflowExecutionStarted(
            event_id=1,
            event_time=T0,
            workflow_type="t",
            workflow_id="r",
            input=items,
            original_execution_run_id="u",
            first_execution_run_id="u",
        )
        transition = start(first, self.decider)
        self.state = transition.state
        self.commit(transition.events)

    def commit(self, events: tuple[ev.AnyEvent, ...]) -> None:
        before = self.status
        past = before.get("history") or {}
        tail = past.get("events") or []
        if segments.is_due(tail):
            segment = segments.build(RUN, past["segments"], tail, past.get("lastSegmentHash"))
            self.sealed.append(segment)
            before = without_sealed(before, segment)
        run = {"metadata": {"name": "r", "uid": "u"}, "status": before}
        after = orjson.loads(orjson.dumps(COMPOSER.compose(run, self.state, events, self.now)))
        self.sizes.append(status_encoding.Texts().size_of(after))
        self.status = after

    def play(self, at_once: int, output: Any) -> None:
        """Complete activities, some in each reconciliation, until the run closes."""
        while not self.state.closed:
            self.now += timedelta(seconds=1)
            done = [
                AttemptCompleted(
                    scheduled_event_id=activity.scheduled_event_id, attempt=1, result=output, started_time=self.now
                )
                for activity in list(self.state.activities.values())[:at_once]
            ]
            transition = step(self.state, done, self.now, self.decider)
            self.state = transition.state
            self.commit(transition.events)

    def past(self) -> segments.AssembledHistory:
        run = {"metadata": {"name": RUN.name, "uid": RUN.uid}, "status": self.status}
        return segments.gather(run, self.sealed)


@pytest.mark.parametrize(
    ("loop", "items", "at_once", "output"),
    [
        ({"items": "${lists.range(input)}"}, 10_000, 25, {"ok": True}),
        ({"items": "${lists.range(input)}", "maxConcurrency": 20}, 3_000, 10, "x" * 1024),
    ],
    ids=["as wide as it gets", "with outputs that no expression reads"],
)
def test_a_loop_over_thousands_of_items_keeps_only_open_ones(
    loop: dict[str, Any], items: int, at_once: int, output: Any
) -> None:
    long = Long(loop, items)
    long.play(at_once, output)
    assert long.status["phase"] == "Completed"
    assert max(long.sizes) < LIMIT
    assert max(len(orjson.dumps(segment)) for segment in long.sealed) < LIMIT
    # The cost of a commit does not depend on the length of the history.
    tenth = len(long.sizes) // 10
    first, last = sum(long.sizes[tenth : 2 * tenth]) / tenth, sum(long.sizes[-tenth - 1 : -1]) / tenth
    assert last < 1.25 * first
    past = long.past()
    assert past.damage == ()
    assert [event["eventId"] for event in past.events] == list(range(1, 3 * items + 3))
    folded = history.replay(history.decode_events(past.events), long.decider)
    assert history.encode(folded.memory) == history.encode(long.state.memory)
    assert stored_state({"metadata": {}, "status": long.status}) is not None
    print(
        f"\nlargest status {max(long.sizes) / 1024:.0f} KiB, {len(long.sealed)} segments, statuses of "
        f"{first / 1024:.1f} KiB in the second decile and {last / 1024:.1f} KiB in the last"
    )
