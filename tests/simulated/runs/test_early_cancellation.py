"""A cancellation that comes before the first decision: the handlers run, however long the definition takes to compile."""

from typing import Any

import pytest

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
