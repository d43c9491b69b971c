"""A run that a finalizer of another controller keeps in deletion is gone for everyone else (kestra#8459)."""

import asyncio

from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.world import Setting, World, simulate

SECONDS = 20
"""Within which others notice; watches lag by up to three of them."""
LONG: Object = {"steps": [{"name": "nap", "sleep": {"duration": "10h"}}]}


def keep_in_deletion(world: World, name: str) -> None:
    world.edit("workflowruns", name, lambda obj: obj["metadata"].update(finalizers=["example.com/audit"]))
    world.delete("workflowruns", name)
    assert world.runs()[name]["metadata"]["deletionTimestamp"]


def release(world: World, name: str) -> None:
    world.edit("workflowruns", name, lambda obj: obj["metadata"].update(finalizers=[]))


def test_a_schedule_starts_its_next_run() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        template = {"inline": LONG}
        world.create(
            "Schedule",
            "s",
            {"intervals": [{"every": "60s"}], "overlapPolicy": "Skip", "workflowRunTemplate": {"spec": template}},
        )
        await asyncio.sleep(60 + SECONDS)
        (first,) = world.runs()
        keep_in_deletion(world, first)
        await asyncio.sleep(60 + SECONDS)
        assert len(world.runs()) == 2
        assert world.server.get(ObjectKey("schedules", "default", "s"))["status"]["active"] == 1
        world.delete("schedules", "s")
        release(world, first)
        for name in list(world.runs()):
            world.delete("workflowruns", name)

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def test_its_workflow_id_and_its_limit_are_free() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowLimit", "one", {"capacity": 1})
        limited = {"workflowId": "shared", "inline": {**LONG, "limits": [{"name": "one"}]}}
        world.create("WorkflowRun", "first", limited)
        await asyncio.sleep(SECONDS)
        world.create("WorkflowRun", "second", {**limited, "workflowIdConflictPolicy": "Fail"})
        await asyncio.sleep(SECONDS)
        assert world.runs()["second"]["status"]["phase"] == "Failed"
        keep_in_deletion(world, "first")
        await asyncio.sleep(SECONDS)
        world.create("WorkflowRun", "third", limited)
        await asyncio.sleep(2 * SECONDS)
        assert world.runs()["third"]["status"]["phase"] == "Running"
        world.operate("late", "first", signal={"name": "go"})
        await asyncio.sleep(SECONDS)
        operation = world.server.get(ObjectKey("operations", "default", "late"))["status"]
        assert operation["conditions"][-1]["reason"] == "TargetNotFound"
        release(world, "first")
        world.delete("workflowruns", "third")

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def test_its_parent_continues_and_its_children_end() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "leaf", LONG)
        child = {"workflow": {"name": "leaf"}, "workflowId": "leaf"}
        world.create("Workflow", "middle", {"steps": [{"name": "leaf", "childWorkflow": child}]})
        middle = {"workflow": {"name": "middle"}, "workflowId": "middle"}
        world.create("WorkflowRun", "top", {"inline": {"steps": [{"name": "middle", "childWorkflow": middle}]}})
        await asyncio.sleep(2 * SECONDS)
        kept, leaf = (
            next(name for name, run in world.runs().items() if run["spec"].get("workflowId") == each)
            for each in ("middle", "leaf")
        )
        keep_in_deletion(world, kept)
        await asyncio.sleep(2 * SECONDS)
        assert world.runs()["top"]["status"]["phase"] == "Failed"
        assert "was deleted" in world.runs()["top"]["status"]["failure"]["message"]
        assert world.runs()[leaf]["status"]["phase"] == "Terminated"
        release(world, kept)

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []
