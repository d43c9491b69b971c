"""A cancellation that comes before the first decision: the handlers run, however long the definition takes to compile."""

import asyncio
import json
from typing import Any

import pytest

from perdure.simulation.cluster.apiserver import Request
from perdure.simulation.cluster.kubelet import ContainerExit
from simulated.world import Setting, World, simulate

_WORKFLOW: dict[str, Any] = {
    "activities": [{"name": "tidy", "container": {"image": "i"}, "startToCloseTimeout": "1m"}],
    "blocks": [{"name": "tidy", "steps": [{"name": "note", "activity": {"name": "tidy"}}]}],
    "steps": [{"name": "approval", "waitForSignal": {"name": "approved"}}],
    "onCancel": {"block": "tidy"},
}


@pytest.mark.parametrize("seed", range(10))
def test_handlers_run_after_a_cancellation_that_precedes_compilation(seed: int) -> None:
    async def scenario(world: World) -> None:
        world.begin()
        tidied = list[str]()

        def script(pod: dict[str, Any]) -> ContainerExit:
            tidied.append(pod["metadata"]["annotations"]["perdure.dev/run"])
            return ContainerExit(after=1)

        world.script = script
        world.create("WorkflowRun", "order", {"inline": _WORKFLOW})
        world.operate("stop-it", "order", cancel={})
        await world.rest()
        if (phase := world.run("order")["status"]["phase"]) != "Cancelled":
            world.checker.fail(f"the run is {phase}")
        if tidied != ["order"]:
            world.checker.fail(f"the handler has run for {tidied}")

    assert simulate(scenario, Setting(seed=seed)).violations == []


def test_the_event_of_the_end_of_a_run_counts_steps_only_if_it_has_some() -> None:
    """Two days of new users: for code, it was "Cancelled after steps"."""
    notes: dict[str, str] = {}

    async def scenario(world: World) -> None:
        def observe(request: Request) -> None:
            if request.method == "POST" and request.url.endswith("/events"):
                event = json.loads(request.body)
                if event["action"] == "Close":
                    notes[event["regarding"]["name"]] = event["note"]

        world.server.interceptors.append(observe)
        world.begin()
        world.create("WorkflowRun", "steps", {"inline": {"steps": _WORKFLOW["steps"]}})
        world.create("WorkflowRun", "code", {"workflow": {"type": "Order", "taskQueue": "orders"}})
        await asyncio.sleep(20)
        world.operate("stop-steps", "steps", stop={})
        world.operate("end-code", "code", terminate={})
        await world.rest()

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []
    assert notes == {"steps": "Cancelled after 0/1 steps", "code": "Terminated"}
