"""The metrics about a run that closes."""

from engine.coded import COMPLETE, Coded, timer
from perdure.controller.runs.kubernetes_events import RunEventRecorder
from perdure.engine.step import RunTransition
from perdure.observe import metrics
from perdure.runtime.attempts import RunRef
from unit.kube.test_events import recording


def observed(suffix: str) -> float:
    value = metrics.REGISTRY.get_sample_value(
        f"perdure_workflow_run_duration_seconds_{suffix}", {"outcome": "Completed"}
    )
    return value or 0.0


def last(run: Coded) -> RunTransition:
    assert run.last is not None
    return run.last


async def test_the_duration_of_a_closed_run_is_observed_once() -> None:
    run = Coded.begin()
    before = (observed("count"), observed("sum"))
    async with recording() as (recorder, _):
        events = RunEventRecorder(recorder, RunRef(namespace="shop", name="order", uid="uid", workflow_id="order"))
        run.decide(timer("t", 100), seconds=5)
        events.committed(run.state, last(run), "0/1")
        run.signal(seconds=60)
        state = run.state
        run.decide(COMPLETE, seconds=60)
        events.committed(state, last(run), "1/1")
    assert (observed("count") - before[0], observed("sum") - before[1]) == (1, 60)
