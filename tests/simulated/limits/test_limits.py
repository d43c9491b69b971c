"""WorkflowLimits, one feature at a time. The scenario `limits` adds faults: see test_seeds.py."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from perdure.simulation.cluster.kubelet import ContainerExit
from simulated.scenarios.limits import (
    LimitWatch,
    NewestWatch,
    PodWatch,
    TogetherWatch,
    check_free,
    deployment,
    phases,
    restart,
    succeeded,
    user,
    work,
)
from simulated.world import Setting, World, simulate

_CALM = Setting(seed=1, faults=0, kills=0)


def _nap(seconds: int, *limits: dict[str, Any], **more: Any) -> dict[str, Any]:
    steps = [{"name": "nap", "sleep": {"duration": f"{seconds}s"}}]
    return {"inline": {"limits": list(limits), "steps": steps}, **more}


def _waits(world: World, name: str) -> tuple[str, str]:
    condition = succeeded(world, name)
    return condition["reason"], condition["message"]


def _calm(scenario: Callable[[World], Awaitable[None]]) -> None:
    assert simulate(scenario, _CALM).violations == []


def test_runs_wait_in_order_of_priority_and_age() -> None:
    async def scenario(world: World) -> None:
        watch = LimitWatch(world)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        for name, priority in (("first", 0), ("second", 0), ("third", 0), ("urgent", 10), ("last", -10), ("fourth", 0)):
            world.create("WorkflowRun", name, _nap(10, {"name": "mutex"}, priority=priority))
            await asyncio.sleep(1.5)
        assert _waits(world, "second") == (
            "LimitReached",
            "WorkflowLimit `mutex` is full: it allows 1 run; the run starts when its turn comes",
        )
        assert world.run("second")["status"]["phase"] == "Pending"
        await world.rest()
        assert watch.began == ["first", "urgent", "second", "third", "fourth", "last"]

    _calm(scenario)


def test_a_run_fails_when_it_must_not_wait_or_has_waited_too_long() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        world.create("WorkflowRun", "holder", _nap(100, {"name": "mutex"}))
        await asyncio.sleep(5)
        world.create("WorkflowRun", "refused", _nap(1, {"name": "mutex", "overflowPolicy": "Fail"}))
        world.create("WorkflowRun", "patient", _nap(1, {"name": "mutex", "waitTimeout": "30s"}))
        await asyncio.sleep(10)
        assert phases(world) == {"holder": "Running", "refused": "Failed", "patient": "Pending"}
        await asyncio.sleep(25)
        assert phases(world)["patient"] == "Failed"
        for name in ("refused", "patient"):
            assert world.run(name)["status"]["failure"]["type"] == "LimitReached"
            assert _waits(world, name)[0] == "LimitReached"
        await world.rest()

    _calm(scenario)


def test_the_newest_run_cancels_the_older_one() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowLimit", "group", {})
        for i in range(4):
            spec = _nap(1000, {"name": "group", "key": "${input}", "overflowPolicy": "CancelRunning"}, input="main")
            world.create("WorkflowRun", f"build{i}", spec)
            await asyncio.sleep(2)
        world.create("WorkflowRun", "other", {**spec, "input": "feature"})
        await world.rest(3_000)
        assert phases(world) == {
            **dict.fromkeys(["build0", "build1", "build2"], "Cancelled"),
            "build3": "Completed",
            "other": "Completed",
        }
        events = world.checker.history(world.run("build2"))
        (asked,) = [each for each in events if each["eventType"] == "WorkflowExecutionCancelRequested"]
        assert "`build3` replaces it in WorkflowLimit `group`" in str(asked)

    _calm(scenario)


def test_a_run_that_a_newer_one_replaces_while_it_waits_never_starts() -> None:
    """B08: actions/runner#2227. The newest run starts as soon as the older one has ended."""

    async def scenario(world: World) -> None:
        watch = NewestWatch(world)
        world.script = lambda _pod: ContainerExit(after=20)
        world.begin()
        world.create("WorkflowLimit", "deploy", {})
        for i in range(5):
            world.create("WorkflowRun", f"deploy{i}", {"inline": deployment("deploy"), "input": "main"})
            await asyncio.sleep(2)
        assert phases(world) == {
            "deploy0": "Running",
            "deploy4": "Pending",
            **dict.fromkeys(["deploy1", "deploy2", "deploy3"], "Cancelled"),
        }
        (limit,) = world.server.of("workflowlimits")
        assert [each["run"] for each in limit["status"]["waiters"]] == ["deploy4"]
        await world.rest()
        assert watch.replaced == {"deploy1", "deploy2", "deploy3"}
        watch.check_replaced()
        ended, began = (world.run(name)["status"] for name in ("deploy0", "deploy4"))
        assert (ended["phase"], began["phase"]) == ("Cancelled", "Completed")
        waited = datetime.fromisoformat(began["startTime"]) - datetime.fromisoformat(ended["completionTime"])
        assert waited < timedelta(seconds=2)
        (_, requested, _) = world.checker.history(world.run("deploy1"))
        assert "`deploy2` replaces it in WorkflowLimit `deploy`" in str(requested)

    _calm(scenario)


@pytest.mark.parametrize("taker", ["run", "step", "activity"])
@pytest.mark.parametrize("order", [["left", "right"], ["right", "left"]])
def test_what_takes_two_limits_holds_none_while_it_waits(taker: str, order: list[str]) -> None:
    """B09: argo-workflows#13630."""

    async def scenario(world: World) -> None:
        TogetherWatch(world)
        PodWatch(world)
        world.script = lambda pod: ContainerExit(after=55 if "long" in pod["metadata"]["name"] else 5)
        world.begin()
        for name in ("left", "right"):
            world.create("WorkflowLimit", name, {})
        world.create("WorkflowRun", "long", {"inline": user(["right"], taker)})
        await asyncio.sleep(2)
        world.create("WorkflowRun", "both", {"inline": user(order, taker)})
        await asyncio.sleep(5)
        world.create("WorkflowRun", "short", {"inline": user(["left"], taker)})
        await asyncio.sleep(10)
        assert phases(world)["short"] == "Completed"
        limits = {each["metadata"]["name"]: each["status"] for each in world.server.of("workflowlimits")}
        assert (limits["left"]["holders"], limits["left"]["waiters"]) == ([], [])
        assert [each["run"] for each in limits["right"]["waiters"]] == ["both"]
        reason, message = _waits(world, "both")
        assert reason == "LimitReached"
        assert "WorkflowLimit `right` is full: it allows 1 " in message
        assert "`left` and `right` together" in message
        await world.rest()
        assert set(phases(world).values()) == {"Completed"}
        check_free(world)

    _calm(scenario)


def test_others_overtake_what_takes_two_limits_for_a_minute() -> None:
    """No place of one limit is kept while the other one is full, and then it gets its turn (argo-workflows#13630)."""

    async def scenario(world: World) -> None:
        PodWatch(world)
        world.script = lambda _pod: ContainerExit(after=19)
        world.begin()
        for name in ("left", "right"):
            world.create("WorkflowLimit", name, {})
        for i in range(12):
            world.create("WorkflowRun", f"left{i:02}", {"inline": user(["left"])})
            if i == 1:
                world.create("WorkflowRun", "both", {"inline": user(["left", "right"])})
            await asyncio.sleep(10)
            world.create("WorkflowRun", f"right{i:02}", {"inline": user(["right"])})
            await asyncio.sleep(10)
        await world.rest()
        began = {name: datetime.fromisoformat(run["status"]["startTime"]) for name, run in world.runs().items()}
        overtook = [name for name, time in began.items() if time < began["both"] and name > "right00"]
        assert began["both"] - began["left01"] > timedelta(seconds=60)
        assert began["both"] - began["left01"] < timedelta(seconds=130), overtook
        assert overtook

    _calm(scenario)


def test_a_reset_takes_the_limits_of_its_run_and_its_steps_together() -> None:
    async def scenario(world: World) -> None:
        TogetherWatch(world)
        world.script = lambda _pod: ContainerExit(after=15)
        world.begin()
        for name in ("left", "right"):
            world.create("WorkflowLimit", name, {})
        nap = {
            "name": "nap",
            "steps": [{"name": "one", "sleep": {"duration": "5s"}}, {"name": "two", "sleep": {"duration": "60s"}}],
        }
        steps = [{"name": "nap", "limits": [{"name": "right"}], "call": {"block": "nap"}}]
        world.create(
            "WorkflowRun", "first", {"inline": {"limits": [{"name": "left"}], "steps": steps, "blocks": [nap]}}
        )
        await asyncio.sleep(10)
        world.create("WorkflowRun", "next", {"inline": user(["right"])})
        await asyncio.sleep(2)
        world.operate("again", "first", reset={"to": "LastWorkflowTask"})
        await world.rest()
        assert set(phases(world).values()) == {"Completed", "Terminated"}
        check_free(world)

    _calm(scenario)


def _working(seconds: int = 30) -> dict[str, Any]:
    return {"steps": [{"name": "nap", "sleep": {"duration": f"{seconds}s"}}]}


def test_a_limit_selects_the_open_runs_of_a_namespace_without_children() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowLimit", "open-runs", {"capacity": 2, "appliesTo": {}})
        world.create("Workflow", "child", _working())
        parent = {"steps": [{"name": "child", "childWorkflow": {"workflow": {"name": "child"}}}]}
        world.create("WorkflowRun", "parent", {"inline": parent})
        for name in ("second", "third"):
            world.create("WorkflowRun", name, {"inline": _working()})
            await asyncio.sleep(2)
        assert phases(world)["third"] == "Pending"
        assert _waits(world, "third")[0] == "LimitReached"
        assert list(phases(world).values()).count("Running") == 3  # with the child
        await world.rest()
        assert set(phases(world).values()) == {"Completed"}
        check_free(world)

    _calm(scenario)


def test_a_limit_selects_runs_of_each_workflow_separately_until_it_is_deleted() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        selector = {"workflows": ["a", "b"], "perWorkflow": True}
        world.create("WorkflowLimit", "one-each", {"appliesTo": selector})
        for name in "abc":
            world.create("Workflow", name, _working(300))
            for i in range(2):
                world.create("WorkflowRun", f"{name}{i}", {"workflow": {"name": name}})
                await asyncio.sleep(5)
        running = {name for name, phase in phases(world).items() if phase == "Running"}
        assert running == {"a0", "b0", "c0", "c1"}
        world.delete("workflowlimits", "one-each")
        await asyncio.sleep(5)
        assert set(phases(world).values()) == {"Running"}
        await world.rest()

    _calm(scenario)


def test_a_limit_that_selects_other_runs_lets_those_that_wait_start_and_not_delay_them() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        for name in "ab":
            world.create("Workflow", name, _working(60))
        world.create("WorkflowRun", "before", {"workflow": {"name": "a"}})
        await asyncio.sleep(5)
        world.create("WorkflowLimit", "one", {"appliesTo": {"workflows": ["a"]}})
        await asyncio.sleep(2)
        for i in range(3):
            world.create("WorkflowRun", f"a{i}", {"workflow": {"name": "a"}})
            await asyncio.sleep(1.5)
        assert phases(world) == {"before": "Running", "a0": "Running", "a1": "Pending", "a2": "Pending"}

        def select_b(limit: Any) -> None:
            limit["spec"]["appliesTo"]["workflows"] = ["b"]

        await asyncio.sleep(20)
        world.edit("workflowlimits", "one", select_b)
        await asyncio.sleep(5)
        assert set(phases(world).values()) == {"Running"}
        world.create("WorkflowRun", "b0", {"workflow": {"name": "b"}})
        await asyncio.sleep(5)
        assert phases(world)["b0"] == "Pending"  # `a0` holds its place
        await asyncio.sleep(37)
        assert [phases(world)[name] for name in ("a0", "a1", "a2", "b0")] == [
            "Completed",
            "Running",
            "Running",
            "Running",
        ]
        await world.rest()
        check_free(world)

    _calm(scenario)


def test_a_limit_that_is_not_valid_lets_nothing_start_that_it_selects() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowLimit", "one", {"capacity": -1, "appliesTo": {}})
        await asyncio.sleep(2)
        world.create("WorkflowRun", "waits", {"inline": _working()})
        await asyncio.sleep(5)
        assert _waits(world, "waits")[0] == "LimitNotFound"

        def repair(limit: Any) -> None:
            limit["spec"]["capacity"] = 1

        world.edit("workflowlimits", "one", repair)
        await world.rest()
        assert phases(world) == {"waits": "Completed"}

    _calm(scenario)


def test_an_activity_takes_a_limit_that_comes_later_with_its_next_attempt_and_keeps_its_own() -> None:
    async def scenario(world: World) -> None:
        world.script = lambda pod: ContainerExit(
            after=20, code=int(pod["metadata"]["annotations"]["perdure.dev/attempt"] == "1")
        )
        world.begin()
        world.create("WorkflowLimit", "named", {"capacity": 1})
        activity = {"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "5m"}
        steps = [{"name": "work", "activity": {"name": "work"}}]
        world.create(
            "WorkflowRun",
            "early",
            {"inline": {"activities": [{**activity, "limits": [{"name": "named"}]}], "steps": steps}},
        )
        await asyncio.sleep(10)
        world.create("WorkflowLimit", "late", {"capacity": 1, "appliesTo": {"takers": "Activities"}})
        await asyncio.sleep(2)
        world.create("WorkflowRun", "other", {"inline": {"activities": [activity], "steps": steps}})
        await asyncio.sleep(15)
        held = {
            each["metadata"]["name"]: [entry["run"] for entry in each["status"]["holders"]]
            for each in world.server.of("workflowlimits")
        }
        assert held == {"named": ["early"], "late": ["other"]}
        await world.rest()
        assert phases(world) == {"early": "Completed", "other": "Completed"}
        check_free(world)

    _calm(scenario)


def test_a_limit_selects_the_running_activities_of_a_workflow() -> None:
    async def scenario(world: World) -> None:
        world.script = lambda _pod: ContainerExit(after=20)
        world.begin()
        selector = {"takers": "Activities", "workflows": ["busy"]}
        world.create("WorkflowLimit", "activities", {"capacity": 2, "appliesTo": selector})
        world.create("WorkflowLimit", "named", {"capacity": 1})
        activity = {"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "5m"}
        steps = [{"name": f"s{i}", "needs": [], "activity": {"name": "work"}} for i in range(4)]
        world.create("Workflow", "busy", {"activities": [activity], "steps": steps})
        world.create("Workflow", "free", {"activities": [{**activity, "limits": [{"name": "named"}]}], "steps": steps})
        for name in ("busy", "free"):
            world.create("WorkflowRun", name, {"workflow": {"name": name}})
        await asyncio.sleep(10)
        held = {each["metadata"]["name"]: each["status"]["held"] for each in world.server.of("workflowlimits")}
        assert held == {"activities": 2, "named": 1}
        assert len(world.server.of("pods")) == 3
        await world.rest()
        assert set(phases(world).values()) == {"Completed"}
        check_free(world)

    _calm(scenario)


def test_an_older_run_that_comes_late_does_not_start_after_the_newer_one() -> None:
    async def scenario(world: World) -> None:
        watch = NewestWatch(world)
        world.script = lambda _pod: ContainerExit(after=20)
        world.begin()
        world.create("WorkflowLimit", "deploy", {})
        world.create("WorkflowRun", "older", {"workflow": {"name": "absent"}, "input": "main"})
        await asyncio.sleep(2)
        world.create("WorkflowRun", "newer", {"inline": deployment("deploy"), "input": "main"})
        await asyncio.sleep(2)
        world.create("Workflow", "absent", deployment("deploy"))
        await restart(world)
        await world.rest()
        assert phases(world) == {"older": "Cancelled", "newer": "Completed"}
        watch.check_replaced()

    _calm(scenario)


def test_runs_wait_for_a_limit_that_does_not_exist_and_for_a_higher_capacity() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        for name in ("one", "two"):
            world.create("WorkflowRun", name, _nap(50, {"name": "pool"}))
        await asyncio.sleep(5)
        reason, message = _waits(world, "one")
        assert reason == "LimitNotFound"
        assert message.startswith("there is no valid WorkflowLimit `pool` in namespace `default`")
        world.create("WorkflowLimit", "pool", {"capacity": 0})
        await asyncio.sleep(5)
        assert _waits(world, "one")[0] == "LimitReached"
        world.edit("workflowlimits", "pool", lambda obj: obj["spec"].update(capacity=2))
        await asyncio.sleep(5)
        assert phases(world) == {"one": "Running", "two": "Running"}
        world.edit("workflowlimits", "pool", lambda obj: obj["spec"].update(capacity=1))
        world.create("WorkflowRun", "three", _nap(10, {"name": "pool"}))
        await asyncio.sleep(5)
        assert phases(world) == {"one": "Running", "two": "Running", "three": "Pending"}
        await world.rest()
        assert set(phases(world).values()) == {"Completed"}

    _calm(scenario)


def test_a_waiting_run_can_be_cancelled_and_deleted() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        for name in ("holder", "cancelled", "deleted", "last"):
            world.create("WorkflowRun", name, _nap(60, {"name": "mutex"}))
            await asyncio.sleep(2)
        world.operate("cancel", "cancelled", cancel={})
        world.delete("workflowruns", "deleted")
        await asyncio.sleep(5)
        (limit,) = world.server.of("workflowlimits")
        status = limit["status"]
        assert ([each["run"] for each in status["holders"]], [each["run"] for each in status["waiters"]]) == (
            ["holder"],
            ["last"],
        )
        await world.rest()
        assert phases(world) == {"holder": "Completed", "cancelled": "Cancelled", "last": "Completed"}

    _calm(scenario)


def test_a_terminated_run_holds_its_limit_until_its_pods_have_ended() -> None:
    async def scenario(world: World) -> None:
        watch = LimitWatch(world)
        watch.takes = {name: [("mutex", "")] for name in ("ended", "next")}
        world.script = lambda _pod: ContainerExit(after=600)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        for name in watch.takes:
            world.create("WorkflowRun", name, {"inline": work({"name": "mutex"})})
            await asyncio.sleep(5)
        world.operate("end", "ended", terminate={})
        await asyncio.sleep(30)
        assert phases(world) == {"ended": "Terminated", "next": "Running"}
        world.operate("end-too", "next", terminate={})
        await world.rest()

    _calm(scenario)


def test_a_key_that_cannot_be_evaluated_fails_the_run() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        world.create("WorkflowRun", "bad", _nap(1, {"name": "mutex", "key": "${input.customer}"}, input={}))
        world.create("WorkflowRun", "long", _nap(1, {"name": "mutex", "key": "${input}"}, input="x" * 300))
        await world.rest()
        for name, reported in (("bad", "customer"), ("long", "has 300 characters, but must have at most 253")):
            failure = world.run(name)["status"]["failure"]
            assert failure["type"] == "ExpressionError"
            assert "spec.limits[mutex].key" in failure["message"]
            assert reported in failure["message"]

    _calm(scenario)
