"""Artifacts are deleted when nothing needs them anymore, and not before.

The scenario `artifacts` injects all faults: see test_seeds.py.
"""

import asyncio
from typing import Any

import pytest

from perdure.simulation.cluster.apiserver import Request, Response, refused
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Refusal, Write
from simulated.scenarios.artifacts import MAKES, USES, Store, maker
from simulated.world import Setting, World, simulate

_CALM = Setting(seed=1, faults=0, kills=0)
_COLLECTED = 600
"""Seconds after which artifacts without a holder are deleted."""


def begin(world: World) -> Store:
    store = Store(world, world.random("store"))
    world.script = store.script
    world.begin()
    return store


def delete(world: World, plural: str, name: str) -> None:
    world.delete(plural, name)
    world.checker.named_again.add(name)


def holders(world: World) -> list[list[str]]:
    return [[each["name"] for each in found["spec"]["holders"]] for found in world.server.of("artifactsets")]


def events(world: World) -> list[str]:
    return [each["note"] for each in world.server.posted if each["reason"] == "ArtifactsNotDeleted"]


def test_artifacts_are_deleted_after_the_last_run_that_needs_them() -> None:
    async def scenario(world: World) -> None:
        store = begin(world)
        world.create("WorkflowRun", "first", {"inline": MAKES})
        await world.rest()
        assert len(store.objects) == 1
        world.create("WorkflowRun", "second", {"inline": USES, "input": world.run("first")["status"]["output"]})
        await world.rest()
        assert holders(world) == [["first", "second"]]
        delete(world, "workflowruns", "first")
        await asyncio.sleep(2 * _COLLECTED)
        assert (len(store.objects), holders(world)) == (1, [["second"]])
        delete(world, "workflowruns", "second")
        await asyncio.sleep(_COLLECTED)
        assert (store.objects, holders(world)) == (set(), [])
        assert [*world.server.of("pods")] == []
        await world.rest()

    assert simulate(scenario, _CALM).violations == []


def test_the_name_of_a_pod_that_deletes_artifacts_cannot_be_taken() -> None:
    """A name that follows from the store could be taken by another pod, and then nothing would be deleted."""

    async def scenario(world: World) -> None:
        store, names = begin(world), set[str]()

        def observe(write: Write) -> None:
            if "perdure.dev/artifact-store" in write.after["metadata"].get("labels", {}):
                names.add(write.key.name)

        world.server.observers.append(observe)
        for name in ("first", "second"):
            world.create("WorkflowRun", name, {"inline": MAKES})
            await world.rest()
            delete(world, "workflowruns", name)
            await asyncio.sleep(_COLLECTED)
            assert store.objects == set()
        assert len(names) == 2
        await world.rest()

    assert simulate(scenario, _CALM).violations == []


def test_a_run_that_waits_to_start_needs_the_artifacts_in_its_input() -> None:
    async def scenario(world: World) -> None:
        store = begin(world)
        world.create("WorkflowRun", "first", {"inline": MAKES})
        await world.rest()
        output = world.run("first")["status"]["output"]
        world.create("WorkflowRun", "second", {"workflow": {"name": "uses"}, "input": output})
        delete(world, "workflowruns", "first")
        await asyncio.sleep(2 * _COLLECTED)
        assert len(store.objects) == 1
        world.create("Workflow", "uses", USES)
        await world.rest()
        assert world.run("second")["status"]["phase"] == "Completed"

    assert simulate(scenario, _CALM).violations == []


def test_a_dead_letter_needs_the_artifacts_in_its_input() -> None:
    async def scenario(world: World) -> None:
        store = begin(world)
        store.broken.add("use")
        flow = {
            "activities": [*MAKES["activities"], *USES["activities"]],
            "steps": [
                *MAKES["steps"],
                {"name": "use", "activity": {"name": "use", "input": "${steps.make.artifacts}"}, "deadLetter": True},
            ],
        }
        world.create("WorkflowRun", "run", {"inline": flow})
        await world.rest()
        (letter,) = [each["metadata"]["name"] for each in world.server.of("deadletters")]
        delete(world, "workflowruns", "run")
        await asyncio.sleep(2 * _COLLECTED)
        assert (len(store.objects), holders(world)) == (1, [[letter]])
        delete(world, "deadletters", letter)
        await asyncio.sleep(_COLLECTED)
        assert store.objects == set()

    assert simulate(scenario, _CALM).violations == []


def test_kept_artifacts_are_never_deleted() -> None:
    async def scenario(world: World) -> None:
        store = begin(world)
        world.create("WorkflowRun", "run", {"inline": {**MAKES, "activities": [maker(retention="Keep")]}})
        await world.rest()
        (key,) = store.objects
        assert key.startswith("default/kept/")
        assert holders(world) == []
        delete(world, "workflowruns", "run")
        await asyncio.sleep(2 * _COLLECTED)
        assert store.objects == {key}

    assert simulate(scenario, _CALM).violations == []


@pytest.mark.parametrize("starts", [True, False])
def test_a_broken_store_is_reported_and_given_up_after_a_day(*, starts: bool) -> None:
    async def scenario(world: World) -> None:
        store = begin(world)
        world.create("WorkflowRun", "run", {"inline": MAKES})
        await world.rest()
        store.down = True
        if not starts:  # the Secret was deleted, too

            def script(pod: dict[str, Any]) -> ContainerExit:
                return (
                    ContainerExit(after=None)
                    if "perdure.dev/artifact-store" in pod["metadata"]["labels"]
                    else ContainerExit(after=1)
                )

            world.script = script
        delete(world, "workflowruns", "run")
        await asyncio.sleep(3_000)
        tried = events(world)
        assert 2 <= len(tried) <= 6, "the pauses grow"
        assert all("the operator will retry" in each for each in tried)
        assert ("the store is down" in tried[0]) is starts
        await asyncio.sleep(86_400)
        assert "they stay there" in events(world)[-1]
        assert holders(world) == []
        assert len(store.objects) == 1
        assert len(events(world)) < 60
        await asyncio.sleep(3_600)
        assert [*world.server.of("pods")] == []

    assert simulate(scenario, _CALM).violations == []


def test_artifacts_stay_if_their_set_is_deleted() -> None:
    async def scenario(world: World) -> None:
        store = begin(world)
        world.create("WorkflowRun", "run", {"inline": MAKES})
        await world.rest()
        (found,) = world.server.of("artifactsets")
        world.delete("artifactsets", found["metadata"]["name"])
        delete(world, "workflowruns", "run")
        await asyncio.sleep(_COLLECTED)
        assert len(store.objects) == 1

    assert simulate(scenario, _CALM).violations == []


def test_an_attempt_waits_while_the_artifact_set_cannot_be_created() -> None:
    async def scenario(world: World) -> None:
        begin(world)
        handle = world.server.handle

        def refuse(request: Request) -> Response:
            if request.method == "POST" and request.url.partition("?")[0].endswith("/artifactsets"):
                return refused(Refusal(403, "Forbidden", "exceeded quota: sets"))
            return handle(request)

        world.server.handle = refuse  # type: ignore[method-assign]
        world.create("WorkflowRun", "run", {"inline": MAKES})
        await asyncio.sleep(10)
        (activity,) = world.run("run")["status"]["state"]["activities"].values()
        assert activity["waitingReason"] == "the ArtifactSet of the run cannot be created: exceeded quota: sets"
        world.server.handle = handle  # type: ignore[method-assign]
        await world.rest()
        assert world.run("run")["status"]["phase"] == "Completed"
        assert holders(world) == [["run"]]

    assert simulate(scenario, _CALM).violations == []
