"""Large results of activities are stored with the artifacts of their run, counted, and deleted with it."""

import asyncio
from typing import Any

from perdure.observe import metrics
from perdure.simulation.cluster.kubelet import ContainerExit
from simulated.scenarios.artifacts import USER, Store
from simulated.world import Setting, World, simulate

_COLLECTED = 600
"""Seconds after which artifacts without a holder are deleted."""
_MAKER: dict[str, Any] = {
    "name": "make",
    "container": {"image": "i"},
    "startToCloseTimeout": "5m",
    "artifacts": {"largeResults": True},
}
_FLOW = {
    "activities": [_MAKER, USER],
    "steps": [
        {"name": "make", "activity": {"name": "make"}},
        {"name": "use", "activity": {"name": "use", "input": {"report": "${steps.make.output}"}}},
    ],
    "output": "${steps.make.output}",
}


def counted() -> float:
    return metrics.REGISTRY.get_sample_value("perdure_stored_results_total", {"namespace": "default"}) or 0.0


def test_a_large_result_is_kept_as_long_as_its_run() -> None:
    async def scenario(world: World) -> None:
        store, before = Store(world, world.random("store")), counted()

        def script(pod: Any) -> ContainerExit:
            ending = store.script(pod)
            large = pod["metadata"]["labels"].get("perdure.dev/activity") == "make"
            return ContainerExit(after=ending.after, message=f'"{"x" * 9_998}"') if large else ending

        world.script = script
        world.begin()
        world.create("WorkflowRun", "first", {"inline": _FLOW})
        await world.rest()
        run = world.run("first")
        reference = run["status"]["output"]
        assert reference["key"] == f"default/{run['metadata']['uid']}/2-1/result.json"
        assert (reference["size"], counted() - before) == (10_000, 1)
        assert store.objects == {reference["key"]}
        world.delete("workflowruns", "first")
        await asyncio.sleep(2 * _COLLECTED)
        assert store.objects == set()
        await world.rest()

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []
