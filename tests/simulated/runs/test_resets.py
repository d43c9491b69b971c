"""A reset or a retry is complete when its run has begun, so that the run gets all later requests."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from perdure.kube import client as kube
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.fleet.members import until
from simulated.world import Setting, World, simulate

WAIT: Any = {"inline": {"steps": [{"name": "wait", "waitForSignal": {"name": "go"}}]}}
FAIL: Any = {"inline": {"steps": [{"name": "fail", "fail": {"message": "no"}}]}}
AGAIN: Any = {"to": "FirstWorkflowTask"}


def play(scenario: Callable[[World], Coroutine[Any, Any, None]], run: Any = WAIT, *, seed: int = 0) -> None:
    """Play a scenario with one operator and the run `order`, which has settled."""

    async def opened(world: World) -> None:
        world.begin()
        world.create("WorkflowRun", "order", run)
        await world.calm(5)
        await scenario(world)

    assert simulate(opened, Setting(seed=seed, faults=0, kills=0)).violations == []


def operate(world: World, name: str, **what: Any) -> None:
    world.create("Operation", name, {"target": {"kind": "WorkflowRun", "workflowId": "order"}, **what})


def status(world: World, name: str) -> Object:
    return world.server.get(ObjectKey("operations", "default", name)).get("status") or {}


async def answered(world: World, name: str) -> Object:
    await until(lambda: "completionTime" in status(world, name))
    return status(world, name)


async def begun(world: World) -> str:
    """The name of the new run, once it has begun."""

    def found() -> list[str]:
        return [name for name, run in world.runs().items() if name != "order" and "state" in run.get("status", {})]

    await until(lambda: bool(found()))
    (new,) = found()
    return new


async def restart(world: World) -> None:
    """Kill the operator before it can record the end of an Operation, and start another one."""
    await world.operators.pop().kill()
    world.start()


def test_a_signal_after_a_reset_is_sent_to_the_new_run() -> None:
    async def scenario(world: World) -> None:
        operate(world, "reset", reset={**AGAIN, "reapplySignals": False})
        operate(world, "signal", signal={"name": "go"})
        await world.rest()
        ends = {name: run["status"]["phase"] for name, run in world.runs().items()}
        assert ends == {"order": "Terminated", status(world, "reset")["result"]["workflowRun"]: "Completed"}

    play(scenario)


@pytest.mark.parametrize("signaled", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("seed", range(5))
def test_a_reset_is_complete_when_its_run_has_begun(signaled: bool, seed: int) -> None:
    async def scenario(world: World) -> None:
        if signaled:
            operate(world, "go", signal={"name": "go"})
            await world.calm(world.loop.time() + 5)
        operate(world, "reset", reset={**AGAIN, "reapplySignals": False})
        result = (await answered(world, "reset"))["result"]
        assert "state" in world.run(result["workflowRun"])["status"]
        operate(world, "signal", signal={"name": "go"})
        await world.rest()

    play(scenario, seed=seed)


def test_a_reset_is_complete_if_its_run_waits_for_a_limit() -> None:
    async def scenario(world: World) -> None:
        world.create("WorkflowLimit", "slot", {"capacity": 1})
        await world.calm(world.loop.time() + 5)
        operate(world, "signal", signal={"name": "go"})
        await world.calm(world.loop.time() + 5)
        world.delete("workflowlimits", "slot")
        operate(world, "reset", reset=AGAIN)
        new = world.run((await answered(world, "reset"))["result"]["workflowRun"])["status"]
        assert [each["reason"] for each in new["conditions"]] == ["LimitNotFound"]
        operate(world, "end", terminate={"reason": "enough"})
        await world.rest()

    play(scenario, {"inline": {**WAIT["inline"], "limits": [{"name": "slot"}]}})


def test_a_reset_whose_run_cannot_begin_blocks_later_requests_only_for_a_while() -> None:
    async def scenario(world: World) -> None:
        operate(world, "reset", reset=AGAIN)
        operate(world, "end", terminate={"reason": "enough"})
        await until(lambda: len(world.runs()) == 2)
        (new,) = set(world.runs()) - {"order"}
        world.faults.broken.add(f"{kube.path(kube.PERDURE, 'default', 'workflowruns', new)}/status")
        assert (await answered(world, "reset"))["phase"] == "Complete"
        await until(lambda: status(world, "end").get("workflowRun") == new)
        assert status(world, "end")["workflowRun"] == new
        world.faults.broken.clear()
        await world.rest()

    play(scenario)


def test_a_reset_whose_run_is_deleted_before_it_begins_is_complete() -> None:
    async def scenario(world: World) -> None:
        operate(world, "reset", reset=AGAIN)
        await until(lambda: len(world.runs()) == 2)
        (new,) = set(world.runs()) - {"order"}
        world.delete("workflowruns", new)
        operate(world, "end", terminate={"reason": "enough"})
        await world.rest()
        assert status(world, "reset")["phase"] == "Complete"
        assert set(world.runs()) == {"order"}, "it is not created again"

    play(scenario)


@pytest.mark.parametrize("deleted", ["the old run", "the new run"])
def test_a_reset_is_not_repeated_after_a_restart(deleted: str) -> None:
    async def scenario(world: World) -> None:
        operate(world, "reset", reset=AGAIN)
        new = await begun(world)
        assert "completionTime" not in status(world, "reset")
        world.delete("workflowruns", "order" if deleted == "the old run" else new)
        await restart(world)
        assert (await answered(world, "reset"))["phase"] == "Complete"
        operate(world, "end", terminate={"reason": "enough"})
        await world.rest()
        assert set(world.runs()) == ({new} if deleted == "the old run" else {"order"})

    play(scenario)


def test_a_retry_is_not_refused_after_a_restart_because_its_workflow_id_is_in_use_again() -> None:
    async def scenario(world: World) -> None:
        world.operate("retry", "order", retry={})
        await begun(world)
        assert "completionTime" not in status(world, "retry")
        world.create("WorkflowRun", "next", {**WAIT, "workflowId": "order"})
        await restart(world)
        assert (await answered(world, "retry"))["phase"] == "Complete"
        operate(world, "end", terminate={"reason": "enough"})
        await world.rest()

    play(scenario, FAIL)


def test_a_later_request_is_not_held_back_if_the_reset_completes_while_its_target_is_read() -> None:
    waits = []

    async def scenario(world: World) -> None:
        world.operate("reset", "order", reset=AGAIN)
        await begun(world)
        world.faults.slow["GET", kube.path(kube.PERDURE, "default", "workflowruns", "order")] = 2.0
        world.operate("signal", "order", signal={"name": "other"})
        waits.append(await until(lambda: "completionTime" in status(world, "signal")))
        world.faults.slow.clear()
        operate(world, "end", terminate={"reason": "enough"})
        await world.rest()

    for seed in range(20):
        play(scenario, seed=seed)
    assert max(waits) < 30, "the next resync comes after a minute"
