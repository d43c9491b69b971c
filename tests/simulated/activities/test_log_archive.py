"""The logs of activities are archived with the artifacts of their run, and deleted with it."""

import asyncio
from typing import Any

from perdure.api.pods import OUTPUTS
from perdure.observe import metrics
from perdure.simulation.cluster.store import Object, Write
from simulated.scenarios.artifacts import Store, maker
from simulated.world import Setting, World, simulate

_CALM = Setting(seed=1, faults=0, kills=0)
_COLLECTED = 600
"""Seconds after which artifacts without a holder are deleted."""


def archiving(**artifacts: Any) -> dict[str, Any]:
    activity = maker(archiveLogs=True, **artifacts)
    activity["container"]["command"] = ["run"]
    return {
        "activities": [activity],
        "steps": [{"name": "make", "activity": {"name": "make"}}],
        "output": "${steps.make.artifacts}",
    }


def begin(world: World) -> Store:
    store = Store(world, world.random("store"))
    world.script = store.script
    world.begin()
    return store


def counted(outcome: str) -> float:
    names = {"namespace": "default", "outcome": outcome}
    return metrics.REGISTRY.get_sample_value("perdure_log_archives_total", names) or 0.0


def notes(world: World) -> list[str]:
    return [each["note"] for each in world.server.posted if each["reason"] == "LogNotArchived"]


def test_a_log_is_archived_and_deleted_with_its_run() -> None:
    async def scenario(world: World) -> None:
        store, before = begin(world), counted("Stored")
        world.create("WorkflowRun", "first", {"inline": archiving(retention="Keep")})
        await world.rest()
        run = world.run("first")
        references = run["status"]["output"]
        assert references["log.gz"]["key"] == f"default/{run['metadata']['uid']}/2-1/log.gz"
        assert references["report"]["key"].startswith("default/kept/")
        (artifacts,) = world.server.of("artifactsets")
        assert artifacts["metadata"]["annotations"]["perdure.dev/image"]
        assert (counted("Stored") - before, notes(world)) == (1, [])
        world.delete("workflowruns", "first")
        await asyncio.sleep(2 * _COLLECTED)
        assert store.objects == {references["report"]["key"]}, "the log is deleted, the output is kept"
        await world.rest()

    assert simulate(scenario, _CALM).violations == []


def test_a_log_that_is_not_archived_is_reported_and_does_not_fail_the_run() -> None:
    async def scenario(world: World) -> None:
        begin(world)
        before = counted("NotStored")

        def forget(pod: Object) -> None:
            """Have the sidecar not archive the log, as one does that cannot store it."""
            (sidecar,) = (each for each in pod["spec"]["initContainers"] if each["name"] == OUTPUTS)
            sidecar["env"] = [each for each in sidecar["env"] if each["name"] != "PERDURE_LOG_FOLDER"]

        def observe(write: Write) -> None:
            if write.key.plural == "pods" and write.type == "ADDED":
                world.loop.call_soon(world.edit, "pods", write.key.name, forget)

        world.server.observers.append(observe)
        world.create("WorkflowRun", "first", {"inline": archiving()})
        await world.rest()
        status = world.run("first")["status"]
        assert (status["phase"], [*status["output"]]) == ("Completed", ["report"])
        assert counted("NotStored") - before == 1
        note = "Step make: the log of attempt 1 is not archived; see the log of its container `perdure-outputs`"
        assert notes(world) == [note]

    assert simulate(scenario, _CALM).violations == []
