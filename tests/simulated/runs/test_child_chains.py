"""Children that continue as new: runs of their chains that were deleted, or that a reset has missed."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from perdure.api import labels
from perdure.simulation.cluster.store import Object, ObjectKey, Write
from simulated.scenarios.definitions import parent_of
from simulated.world import Setting, World, simulate

LINKS: Final = {
    "steps": [
        {"name": "nap", "sleep": {"duration": "20s"}},
        {"name": "again", "when": "${input.n > 0}", "continueAsNew": {"input": {"n": "${input.n - 1}"}}},
    ],
    "output": "${'the end'}",
}
PARENT: Final = {"inline": {**parent_of({"name": "links"}, {"n": 3}, "Terminate"), "output": "${steps.child.output}"}}


def chain(world: World) -> list[Object]:
    """The runs of the child, in the order of their creation."""
    found = [run for run in world.runs().values() if (run["spec"].get("workflow") or {}).get("name") == "links"]
    return sorted(found, key=lambda run: int(run["spec"]["input"]["n"]), reverse=True)


def give_to(world: World, child: Object, parent: Object) -> None:
    """Store a child as a child of another run, as if it had been created before a reset."""
    name, uid = parent["metadata"]["name"], parent["metadata"]["uid"]

    def change(obj: Object) -> None:
        meta = obj["metadata"]
        tie = {**json.loads(meta["annotations"][labels.PARENT_ANNOTATION]), "name": name, "runId": uid}
        meta["annotations"][labels.PARENT_ANNOTATION] = json.dumps(tie)
        meta["labels"] |= {labels.PARENT_RUN_LABEL: name, labels.PARENT_RUN_ID_LABEL: uid}
        meta["ownerReferences"][0] |= {"name": name, "uid": uid}

    world.edit("workflowruns", child["metadata"]["name"], change)


async def reset(world: World, operation: str, target: str) -> str:
    """Reset a run; return the name of the new one once it has started."""
    world.operate(operation, target, reset={"to": "LastWorkflowTask"})
    for _ in range(50):
        await asyncio.sleep(0.2)
        result = (world.server.get(ObjectKey("operations", "default", operation)).get("status") or {}).get("result")
        if result and is_running(world.run(result["workflowRun"])):
            return str(result["workflowRun"])
    raise AssertionError(f"the reset of {target} has not started")


async def restart(world: World, meanwhile: Callable[[], Any]) -> None:
    """Do something while no operator runs."""
    for operator in list(world.operators):
        await operator.kill()
        world.operators.remove(operator)
    meanwhile()
    world.start()


def played(play: Callable[[World], Awaitable[None]], operators: int = 1) -> dict[str, Object]:
    """Run the parent, and `play` once the second run of its child has begun; return all runs in the end."""
    ends: dict[str, Object] = {}

    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "links", LINKS)
        world.create("WorkflowRun", "order", PARENT)
        await asyncio.sleep(30)
        assert [run["status"]["phase"] for run in chain(world)] == ["ContinuedAsNew", "Running"]
        await play(world)
        await world.rest(300)
        ends.update(world.runs())

    result = simulate(scenario, Setting(seed=1, operators=operators, faults=0, kills=0))
    assert result.violations == []
    return ends


@pytest.mark.parametrize("running", [True, False])
def test_a_child_whose_last_run_is_deleted_counts_as_terminated(running: bool) -> None:
    async def play(world: World) -> None:
        def delete() -> None:
            world.delete("workflowruns", chain(world)[-1]["metadata"]["name"])

        delete() if running else await restart(world, delete)

    status = played(play)["order"]["status"]
    assert status["phase"] == "Failed"
    assert "its WorkflowRun was deleted" in json.dumps(status["failure"])


@pytest.mark.parametrize("running", [True, False])
def test_a_child_whose_earlier_run_is_deleted_continues(running: bool) -> None:
    async def play(world: World) -> None:
        await asyncio.sleep(20)

        def delete() -> None:
            world.delete("workflowruns", chain(world)[1]["metadata"]["name"])

        delete() if running else await restart(world, delete)

    status = played(play)["order"]["status"]
    assert (status["phase"], status["output"]) == ("Completed", "the end")


@pytest.mark.parametrize("resets", [1, 2])
@pytest.mark.parametrize("links", [1, 2])
def test_a_reset_run_gets_the_end_of_a_child_whose_next_run_has_the_parent_before(resets: int, links: int) -> None:
    async def play(world: World) -> None:
        before = world.run("order")
        target = "order"
        for number in range(resets):
            target = await reset(world, f"reset{number}", target)
        await asyncio.sleep(20 * (links - 1))

        def give_back() -> None:
            for child in chain(world)[1:]:
                give_to(world, child, before)

        await restart(world, give_back)

    ends = played(play)
    (ended,) = [run for name, run in ends.items() if "-reset" in name and run["status"]["phase"] != "Terminated"]
    assert (ended["status"]["phase"], ended["status"]["output"]) == ("Completed", "the end")
    last = ended["metadata"]["uid"]
    assert {(run["metadata"].get("labels") or {}).get(labels.PARENT_RUN_ID_LABEL) for run in ends.values()} == {
        None,
        last,
    }


def test_a_run_closes_the_next_run_of_a_child_that_has_the_parent_before() -> None:
    async def play(world: World) -> None:
        before = world.run("order")
        name = await reset(world, "reset", "order")

        closed = asyncio.Event()

        def observe(write: Write) -> None:
            if write.key == ObjectKey("workflowruns", "default", name) and not is_running(write.after):
                closed.set()

        world.server.observers.append(observe)
        world.operate("end", name, terminate={})
        await asyncio.wait_for(closed.wait(), 60)
        await restart(world, lambda: give_to(world, chain(world)[-1], before))

    assert [run["status"]["phase"] for run in played(play).values() if run["spec"].get("workflow")] == [
        "ContinuedAsNew",
        "Terminated",
    ]


def is_running(run: Object) -> bool:
    """Whether a run is open."""
    return bool(run["status"].get("phase") == "Running")
