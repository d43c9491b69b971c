"""Runs that refer to WorkflowRevisions, which people delete, forge, and roll back to."""

import asyncio
from datetime import timedelta
from typing import Any

from perdure.api.labels import REVISIONS_ANNOTATION, WORKER_DEPLOYMENT_LABEL, WORKER_VERSION_LABEL
from perdure.controller.workflows.revisions import LOOK_SECONDS, RevisionRetention
from perdure.runtime.revisions import Content
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.world import Setting, World, simulate

SOON = 20
"""Seconds within which operators react; watches lag by up to three of them."""
LOOK = 2 * LOOK_SECONDS + SOON


def waits(version: int) -> Object:
    """A definition with its version, which waits for a signal. It has the fields that the API server fills in."""
    return {
        "steps": [
            {"name": "begin", "set": {"begun": version}, "deadLetter": False},
            {"name": "approval", "waitForSignal": {"name": "go"}, "deadLetter": False},
        ],
        "output": {"begun": "${vars.begun}", "ended": version},
    }


def passes(scenario: Any) -> None:
    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def revisions(world: World) -> list[Object]:
    """The revisions, the oldest first."""
    return sorted(world.server.of("workflowrevisions"), key=lambda each: int(each["spec"]["number"]))


def reference(world: World, run: str) -> str:
    return str(world.server.get(ObjectKey("workflowruns", "default", run))["status"]["revision"]["name"])


def reason(world: World, run: str) -> str:
    return str(world.run_as_stored(run)["status"]["conditions"][0]["reason"])


async def start(world: World, name: str, **workflow: str) -> None:
    world.create("WorkflowRun", name, {"workflow": {"name": "order", **workflow}})
    await asyncio.sleep(SOON)


async def finish(world: World, *names: str) -> list[Any]:
    for name in names:
        world.operate(f"go-{name}", name, signal={"name": "go"})
    await asyncio.sleep(SOON)
    return [world.run_as_stored(name)["status"].get("output") for name in names]


async def restart(world: World) -> None:
    await world.operators.pop().kill()
    world.start()
    await asyncio.sleep(SOON)


def edit(world: World, version: int) -> None:
    world.edit("workflows", "order", lambda obj: obj.update(spec=waits(version)))


def test_a_workflow_stores_a_revision_when_it_is_accepted_and_runs_refer_to_it() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "order", waits(1))
        await asyncio.sleep(SOON)
        (first,) = revisions(world)
        assert (first["spec"]["number"], first["spec"]["definition"]) == (1, waits(1))
        assert (
            world.server.get(ObjectKey("workflows", "default", "order"))["status"]["revision"]
            == first["metadata"]["name"]
        )
        await start(world, "a")
        await start(world, "b")
        edit(world, 2)
        await asyncio.sleep(SOON)
        await start(world, "c")
        assert reference(world, "a") == reference(world, "b") == first["metadata"]["name"]
        first, second = revisions(world)
        assert reference(world, "c") == second["metadata"]["name"]
        assert "definition" not in world.server.get(ObjectKey("workflowruns", "default", "a"))["status"]
        await restart(world)
        world.delete("workflows", "order")
        outputs = await finish(world, "a", "b", "c")
        assert outputs == [{"begun": each, "ended": each} for each in (1, 1, 2)]

    passes(scenario)


def test_a_definition_that_comes_back_has_its_earlier_number() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "order", waits(1))
        for version in (2, 1):
            await asyncio.sleep(SOON)
            edit(world, version)
        await asyncio.sleep(SOON)
        first, second = revisions(world)
        assert (first["spec"]["number"], second["spec"]["number"]) == (1, 2)
        assert (
            world.server.get(ObjectKey("workflows", "default", "order"))["status"]["revision"]
            == first["metadata"]["name"]
        )

    passes(scenario)


def test_a_run_starts_with_the_revision_that_it_names() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "order", waits(1))
        await asyncio.sleep(SOON)
        edit(world, 2)
        await asyncio.sleep(SOON)
        first, _ = revisions(world)
        await start(world, "old", revision=first["metadata"]["name"])
        assert await finish(world, "old") == [{"begun": 1, "ended": 1}]
        await start(world, "none", revision="order-0")
        assert reason(world, "none") == "RevisionNotFound"
        world.create("Workflow", "other", waits(1))
        await asyncio.sleep(SOON)
        (other,) = (each for each in revisions(world) if each["spec"]["workflow"] == "other")
        await start(world, "wrong", revision=other["metadata"]["name"])
        assert reason(world, "wrong") == "RevisionNotFound"

    passes(scenario)


def test_a_revision_is_deleted_when_nothing_needs_it() -> None:
    async def scenario(world: World) -> None:
        world.revisions = RevisionRetention(history=1, unused_for=timedelta(0))
        world.begin()
        world.create("Workflow", "order", waits(1))
        await asyncio.sleep(SOON)
        await start(world, "a")
        for version in (2, 3):
            edit(world, version)
            await asyncio.sleep(SOON)
        await asyncio.sleep(LOOK)
        assert [each["spec"]["number"] for each in revisions(world)] == [1, 3], "one is needed, and one is the newest"
        await finish(world, "a")
        await asyncio.sleep(LOOK)
        assert [each["spec"]["number"] for each in revisions(world)] == [1, 3], "a closed run needs it, too"
        world.delete("workflowruns", "a")
        await asyncio.sleep(LOOK)
        assert [each["spec"]["number"] for each in revisions(world)] == [3]
        world.delete("workflows", "order")
        await asyncio.sleep(LOOK)
        assert revisions(world) == []

    passes(scenario)


def test_revisions_are_kept_for_a_while_and_for_those_who_name_them() -> None:
    async def scenario(world: World) -> None:
        world.revisions = RevisionRetention(history=0, unused_for=timedelta(seconds=600))
        world.begin()
        world.create("Workflow", "order", waits(1))
        await asyncio.sleep(SOON)
        edit(world, 2)
        await asyncio.sleep(SOON)
        first, _ = revisions(world)
        chosen = {"workflow": {"name": "order", "revision": first["metadata"]["name"]}}
        world.create("Schedule", "old", {"paused": True, "workflowRunTemplate": {"spec": chosen}})
        edit(world, 3)
        await asyncio.sleep(LOOK)
        assert [each["spec"]["number"] for each in revisions(world)] == [1, 2, 3]
        await asyncio.sleep(600 + LOOK)
        assert [each["spec"]["number"] for each in revisions(world)] == [1, 3]

    passes(scenario)


def test_a_revision_with_the_activities_of_a_version_of_workers_is_kept_while_that_has_a_deployment() -> None:
    async def scenario(world: World) -> None:
        world.revisions = RevisionRetention(history=0, unused_for=timedelta(0))
        world.begin()
        world.create("Workflow", "order", waits(1))
        await asyncio.sleep(SOON)
        (first,) = revisions(world)
        labels = {WORKER_DEPLOYMENT_LABEL: "order", WORKER_VERSION_LABEL: "1"}
        annotations = {REVISIONS_ANNOTATION: f"order={first['metadata']['name']}"}
        metadata = {"name": "order-1", "labels": labels, "annotations": annotations}
        world.server.create("deployments", {"metadata": metadata, "spec": {}}, namespace="default")
        edit(world, 2)
        await asyncio.sleep(LOOK)
        assert [each["spec"]["number"] for each in revisions(world)] == [1, 2]
        world.delete("deployments", "order-1")
        await asyncio.sleep(LOOK)
        assert [each["spec"]["number"] for each in revisions(world)] == [2]

    passes(scenario)


def test_an_operator_restores_a_revision_that_somebody_has_deleted() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "order", waits(1))
        await start(world, "a")
        edit(world, 2)
        await asyncio.sleep(SOON)
        world.delete("workflowrevisions", reference(world, "a"))
        await asyncio.sleep(LOOK)
        assert world.server.get(ObjectKey("workflowrevisions", "default", reference(world, "a")))
        await restart(world)
        assert await finish(world, "a") == [{"begun": 1, "ended": 1}]

    passes(scenario)


def test_a_lost_revision_is_restored_from_its_workflow() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "order", waits(1))
        await start(world, "a")
        await world.operators.pop().kill()
        world.delete("workflowrevisions", reference(world, "a"))
        world.start()
        await asyncio.sleep(SOON)
        assert await finish(world, "a") == [{"begun": 1, "ended": 1}]

    passes(scenario)


def test_a_run_whose_revision_is_lost_says_so_and_continues_once_its_workflow_has_the_definition_again() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "order", waits(1))
        for name in ("a", "b"):
            await start(world, name)
        edit(world, 2)
        await asyncio.sleep(SOON)
        await world.operators.pop().kill()
        world.delete("workflowrevisions", reference(world, "a"))
        world.start()
        for name in ("a", "b"):  # otherwise they hibernate, and need no definition
            world.operate(f"wake-{name}", name, signal={"name": "other", "input": {}})
        await asyncio.sleep(SOON)
        assert reason(world, "a") == reason(world, "b") == "RevisionNotFound"
        world.operate("end", "b", terminate={})
        await asyncio.sleep(SOON)
        assert world.run_as_stored("b")["status"]["phase"] == "Terminated", "that needs no definition"
        edit(world, 1)
        await asyncio.sleep(SOON)
        assert reason(world, "a") == "Running"
        assert await finish(world, "a") == [{"begun": 1, "ended": 1}]

    passes(scenario)


def test_a_forged_revision_is_not_executed() -> None:
    async def scenario(world: World) -> None:
        content = Content(workflow="order", definition=waits(1))
        forged = content.build("default", 1)
        forged["spec"]["definition"] = waits(666)
        world.server.create("workflowrevisions", forged)
        world.begin()
        world.create("Workflow", "order", waits(1))
        await start(world, "a")
        status = world.run_as_stored("a")["status"]
        assert "revision" not in status, "the run contains its definition instead"
        assert status["definition"] == waits(1)
        await start(world, "chosen", revision=content.reference().name)
        assert reason(world, "chosen") == "RevisionNotFound"
        await restart(world)
        assert await finish(world, "a") == [{"begun": 1, "ended": 1}]

    passes(scenario)


def test_an_edited_reference_is_found_out() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "order", waits(1))
        await start(world, "a")
        edit(world, 2)
        await asyncio.sleep(SOON)
        _, second = revisions(world)
        other = Content.of(second).reference().stored()
        await world.operators.pop().kill()
        world.edit("workflowruns", "a", lambda obj: obj["status"].update(revision=other))
        world.start()
        await asyncio.sleep(SOON)
        assert reason(world, "a") == "StateDamaged"

    passes(scenario)


def test_operators_of_an_earlier_version_get_the_definition_in_the_run() -> None:
    async def scenario(world: World) -> None:
        world.begin(reads=2)
        world.create("Workflow", "order", waits(1))
        await start(world, "a")
        assert revisions(world) == []
        assert world.run_as_stored("a")["status"]["definition"] == waits(1)
        await restart(world)
        assert await finish(world, "a") == [{"begun": 1, "ended": 1}]
        assert "revision" not in world.run_as_stored("a")["status"], "a run never gets another form"

    passes(scenario)
