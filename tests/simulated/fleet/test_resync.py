"""Resyncs find changes that no watch shows, even while requests fail, and in shards that change owners."""

import asyncio
from functools import partial
from typing import Any

import pytest

from perdure.api.labels import POD_FINALIZER
from perdure.controller.fleet.shards import SHARDS, shard_of
from perdure.kube import client as kube
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.patches import copy
from perdure.simulation.cluster.store import ObjectKey, Write
from simulated.world import Setting, World, simulate

_RUNS = "/apis/perdure.dev/v1alpha1/namespaces/default/workflowruns"
_NAP: dict[str, Any] = {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}
_POD: dict[str, Any] = {
    "activities": [{"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "5m"}],
    "steps": [{"name": "work", "activity": {"name": "work"}}],
}


def _calm(seed: int = 1, operators: int = 1) -> Setting:
    return Setting(seed=seed, operators=operators, fleet=operators > 1, faults=0, kills=0)


async def _without_events(world: World) -> None:
    """Start with an operator that receives no events of runs."""
    world.begin()
    await asyncio.sleep(5)
    world.operators[0].interrupt(600, "workflowruns")


def test_a_failed_resync_is_retried_soon() -> None:
    async def scenario(world: World) -> None:
        await _without_events(world)
        world.create("WorkflowRun", "unseen", {"inline": _NAP})
        world.faults.outages.append((110, 126))  # the resync after two minutes would find it
        await asyncio.sleep(145 - world.loop.time())
        assert world.run("unseen")["status"]["phase"] == "Completed"
        await world.rest()

    assert simulate(scenario, _calm()).violations == []


@pytest.mark.parametrize("seed", range(6))
def test_a_resync_that_is_repeated_after_an_outage_leaves_changes_to_the_watch(seed: int) -> None:
    """It is repeated after five seconds, while the watch may wait ten until it connects again."""

    async def scenario(world: World) -> None:
        world.begin()
        world.faults.outages.append((115, 119))
        await asyncio.sleep(118)
        world.faults.broken.add(kube.path(kube.PERDURE, None, "workflowlimits"))  # so that no resync is complete
        world.create("WorkflowRun", "brief", {"inline": _NAP})
        await asyncio.sleep(20)
        world.faults.broken.clear()
        assert world.run("brief")["status"]["phase"] == "Completed"
        assert [each.repaired for each in world.operators[0].manager.informers.values() if each.repaired] == []
        await world.rest()

    assert simulate(scenario, _calm(seed)).violations == []


def test_an_unreadable_object_does_not_hide_the_others() -> None:
    async def scenario(world: World) -> None:
        await _without_events(world)
        world.faults.broken.add(f"{_RUNS}/broken")
        world.create("WorkflowRun", "broken", {"inline": _NAP})
        world.create("WorkflowRun", "fine", {"inline": _NAP})
        await asyncio.sleep(145 - world.loop.time())
        assert world.run("fine")["status"]["phase"] == "Completed"
        assert world.run("broken")["status"] == {"phase": "Pending"}
        world.faults.broken.clear()
        await asyncio.sleep(65)
        assert world.run("broken")["status"]["phase"] == "Completed"
        await world.rest()

    assert simulate(scenario, _calm()).violations == []


@pytest.mark.parametrize("state", ["open", "waiting"])
def test_a_run_deleted_unseen_releases_its_limits_and_workflow_id(state: str) -> None:
    limits = [{"name": "mutex"}]

    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowLimit", "mutex", {"capacity": int(state == "open")})
        nap = {"steps": [{"name": "nap", "sleep": {"duration": "1h"}}], "limits": limits}
        world.create("WorkflowRun", "deleted", {"workflowId": "order", "inline": nap})
        await asyncio.sleep(5)
        world.operators[0].interrupt(600, "workflowruns")
        world.delete("workflowruns", "deleted")
        world.checker.named_again.add("deleted")
        world.edit("workflowlimits", "mutex", lambda obj: obj["spec"].update(capacity=1))
        await asyncio.sleep(200)
        assert world.operators[0].manager.directory.named("default", "deleted") is None
        (mutex,) = world.server.of("workflowlimits")
        assert not mutex["status"].get("holders")
        assert not mutex["status"].get("waiters")
        world.create("WorkflowRun", "next", {"workflowId": "order", "inline": {**_NAP, "limits": limits}})
        await world.rest()
        assert world.run("next")["status"]["phase"] == "Completed"

    assert simulate(scenario, _calm()).violations == []


def test_a_lagging_watch_does_not_bring_back_a_run_closed_by_another_operator() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        await asyncio.sleep(5)
        lagging, _ = world.operators
        nap = {"steps": [{"name": "nap", "sleep": {"duration": "20s"}}]}
        uid = world.create("WorkflowRun", "brief", {"inline": nap})["metadata"]["uid"]
        await asyncio.sleep(10)
        lagging.interrupt(600, "workflowruns")
        earlier = world.server.get(ObjectKey("workflowruns", "default", "brief"))
        lagging.freeze(20)
        await asyncio.sleep(25)
        assert world.run("brief")["status"]["phase"] == "Completed"
        manager = lagging.manager
        assert manager.runs.get(uid) is None, "it has read that the run has closed"
        lagging.within(partial(manager.informers["workflowruns"].on_event, copy(earlier), deleted=False))
        assert manager.runs.get(uid) is None
        await world.rest()

    assert simulate(scenario, Setting(seed=1, operators=2, faults=0, kills=0)).violations == []


@pytest.mark.parametrize("seed", range(4))
def test_pods_of_closed_runs_are_released_by_the_new_owners_of_their_shards(seed: int) -> None:
    """The owner dies just after it has recorded the end of a run, and before it has released its pod."""
    names = [f"run-{number}" for number in range(12)]

    async def scenario(world: World) -> None:
        world.script = lambda _: ContainerExit(after=3)
        world.begin()
        await asyncio.sleep(30)
        assert {shard for each in world.operators for shard in each.shards} == set(range(SHARDS))
        victim = world.operators[0]
        closed = asyncio.Event()

        def watch(write: Write) -> None:
            ended = write.key.plural == "workflowruns" and (write.after.get("status") or {}).get("completionTime")
            if ended and shard_of("default", write.key.name) in victim.shards:
                closed.set()

        world.server.observers.append(watch)
        for name in names:
            world.create("WorkflowRun", name, {"inline": _POD})
        await closed.wait()
        world.operators.remove(victim)
        await victim.kill()
        done = {name for name in names if (world.run(name).get("status") or {}).get("completionTime")}
        assert done & _holding(world), "a pod of a closed run is still held"
        await asyncio.sleep(20)  # half of it until the shards have new owners
        assert not done & _holding(world)
        await world.rest()

    assert simulate(scenario, _calm(seed, 2)).violations == []


def _holding(world: World) -> set[str]:
    """The runs whose pods are held."""
    pods = [each["metadata"] for each in world.server.of("pods")]
    return {each["annotations"]["perdure.dev/run"] for each in pods if POD_FINALIZER in each.get("finalizers", ())}
