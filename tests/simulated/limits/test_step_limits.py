"""WorkflowLimits that steps take, one feature at a time. The scenario `step_limits` adds faults: see test_seeds.py."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.simulation.cluster.kubelet import ContainerExit
from simulated.scenarios.limits import (
    StepWatch,
    check_free,
    limited_step,
    phases,
    restart,
    root_failure,
    succeeded,
    with_blocks,
)
from simulated.world import Setting, World, simulate

_CALM = Setting(seed=1, faults=0, kills=0)


def _simulate(scenario: Callable[[World], Awaitable[None]], setting: Setting = _CALM) -> None:
    assert simulate(scenario, setting).violations == []


def _entries(world: World, field: str) -> list[tuple[str, str, bool]]:
    (limit,) = world.server.of("workflowlimits")
    return [(each["run"], each["step"], each["wholeStep"]) for each in limit["status"][field]]


async def _holds(world: World, name: str) -> None:
    """Wait until a run holds the limit."""
    for _ in range(600):
        if (name, "pay", True) in _entries(world, "holders"):
            return
        await asyncio.sleep(1)
    raise AssertionError(f"{name} never holds the limit")


def _pay(**more: Any) -> dict[str, Any]:
    return {"inline": with_blocks(limited_step("pay", "mutex", **more))}


def test_blocks_run_one_after_the_other_in_order_of_priority_and_age() -> None:
    async def scenario(world: World) -> None:
        watch = StepWatch(world)
        world.script = lambda _pod: ContainerExit(after=10)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        for name, priority in (("first", 0), ("second", 0), ("urgent", 10)):
            world.create("WorkflowRun", name, {**_pay(), "priority": priority})
            await asyncio.sleep(1.5)
        await asyncio.sleep(10)  # `first` is between its two activities, or in the second
        assert _entries(world, "holders") == [("first", "pay", True)]
        assert _entries(world, "waiters") == [("urgent", "pay", True), ("second", "pay", True)]
        condition = succeeded(world, "second")
        assert (condition["status"], condition["reason"]) == ("Unknown", "LimitReached")
        assert condition["message"] == "step `pay` waits: WorkflowLimit `mutex` is full: it allows 1 holder"
        (pending,) = world.run("second")["status"]["pendingActivities"]
        assert "pod" not in pending
        await world.rest()
        assert watch.began == ["first", "urgent", "second"]
        assert set(phases(world).values()) == {"Completed"}
        check_free(world)

    _simulate(scenario)


def test_a_block_keeps_its_limit_when_the_operator_is_killed() -> None:
    async def scenario(world: World) -> None:
        StepWatch(world)
        world.script = lambda _pod: ContainerExit(after=100)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        world.create("WorkflowRun", "holder", _pay())
        await asyncio.sleep(3)
        world.create("WorkflowRun", "waiter", _pay())
        await asyncio.sleep(5)
        await restart(world)
        await asyncio.sleep(80)
        assert _entries(world, "holders") == [("holder", "pay", True)]
        assert _entries(world, "waiters") == [("waiter", "pay", True)]
        await world.rest()
        assert set(phases(world).values()) == {"Completed"}
        check_free(world)

    _simulate(scenario)


def test_a_block_that_fails_times_out_or_is_ended_releases_its_limit() -> None:
    async def scenario(world: World) -> None:
        StepWatch(world)
        fails = {"fails"}
        world.script = lambda pod: ContainerExit(
            after=10, code=int(pod["metadata"]["annotations"]["perdure.dev/run"] in fails)
        )
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        caught = {"catch": [{"call": {"block": "rest"}}]}
        world.create("WorkflowRun", "fails", _pay(**caught))
        await asyncio.sleep(5)
        world.create("WorkflowRun", "times-out", _pay(timeout="35s", **caught))
        for name in ("cancelled", "terminated", "deleted", "last"):
            await asyncio.sleep(1.5)
            world.create("WorkflowRun", name, _pay())
        for name, what in (("cancelled", {"cancel": {}}), ("terminated", {"terminate": {}})):
            await _holds(world, name)
            world.operate(f"end-{name}", name, **what)
        await _holds(world, "deleted")
        world.checker.named_again.add("deleted")
        world.delete("workflowruns", "deleted")
        await world.rest()
        assert phases(world) == {
            "fails": "Completed",
            "times-out": "Completed",
            "cancelled": "Cancelled",
            "terminated": "Terminated",
            "last": "Completed",
        }
        check_free(world)

    _simulate(scenario)


def test_a_step_fails_when_it_must_not_wait_or_has_waited_too_long() -> None:
    async def scenario(world: World) -> None:
        world.script = lambda _pod: ContainerExit(after=50)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        world.create("WorkflowRun", "holder", _pay())
        await asyncio.sleep(5)
        for name, use in (("refused", {"overflowPolicy": "Fail"}), ("patient", {"waitTimeout": "30s"})):
            world.create("WorkflowRun", name, _pay(limits=[{"name": "mutex", **use}]))
        await asyncio.sleep(10)
        assert phases(world) == {"holder": "Running", "refused": "Failed", "patient": "Running"}
        await asyncio.sleep(25)
        messages = []
        for name in ("refused", "patient"):
            failure = root_failure(world, name)
            assert failure["type"] == "LimitReached"
            messages.append(failure["message"])
        reported = "WorkflowLimit `mutex` has room for 1 holder"
        assert messages == [f"{reported}, and it is full", f"{reported}; the `waitTimeout` of the step has expired"]
        await world.rest()
        check_free(world)

    _simulate(scenario)


def test_a_reset_inside_a_block_takes_the_limit_again_before_it_continues() -> None:
    async def scenario(world: World) -> None:
        watch = StepWatch(world)
        world.script = lambda _pod: ContainerExit(after=30)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        world.create("WorkflowRun", "again", _pay())
        await asyncio.sleep(40)  # in the second activity of its block
        world.create("WorkflowRun", "other", _pay())
        await asyncio.sleep(5)
        world.operate("reset-it", "again", reset={"to": "LastWorkflowTask"})
        await asyncio.sleep(20)
        (new,) = [name for name in world.runs() if name.startswith("again-reset-")]
        assert _entries(world, "holders") == [("other", "pay", True)]
        assert _entries(world, "waiters") == [(new, "pay", True)]
        assert succeeded(world, new)["reason"] == "LimitReached"
        await world.rest()
        assert phases(world) == {"again": "Terminated", "other": "Completed", new: "Completed"}
        assert watch.began == ["again", "other", new]
        check_free(world)

    _simulate(scenario)


def test_a_limit_waits_for_the_pods_of_a_block_that_was_cancelled() -> None:
    async def scenario(world: World) -> None:
        StepWatch(world)
        world.script = lambda _pod: ContainerExit(after=100)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        rest = [{"name": "rest", "needs": ["pay"], "sleep": {"duration": "5m"}}]
        caught = {"timeout": "20s", "catch": [{"call": {"block": "rest"}}]}
        steps = [limited_step("pay", "mutex", **caught), *rest]
        world.create("WorkflowRun", "slow", {"inline": with_blocks(*steps)})
        await asyncio.sleep(5)
        world.create("WorkflowRun", "next", _pay())
        await world.rest()
        assert set(phases(world).values()) == {"Completed"}
        check_free(world)

    _simulate(scenario)


def test_a_run_that_continues_as_new_inside_a_block_takes_the_limit_again() -> None:
    async def scenario(world: World) -> None:
        watch = StepWatch(world)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        block = {
            "name": "turn",
            "steps": [
                {"name": "nap", "sleep": {"duration": "10s"}},
                {"name": "more", "when": "${input < 2}", "continueAsNew": {"input": "${input + 1}"}},
            ],
        }
        spec = {"blocks": [block], "steps": [{"name": "pay", "limits": [{"name": "mutex"}], "call": {"block": "turn"}}]}
        world.create("WorkflowRun", "turns", {"inline": spec, "input": 1})
        await world.rest()
        assert len(watch.began) == 2
        assert set(phases(world).values()) == {"ContinuedAsNew", "Completed"}
        check_free(world)

    _simulate(scenario)
