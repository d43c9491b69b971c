"""WorkflowLimits that activities take, one feature at a time. The scenario `activity_limits` adds faults: see test_seeds.py."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Write
from simulated.scenarios.limits import (
    ActivityWatch,
    PodRates,
    check_free,
    limited,
    phases,
    restart,
    root_failure,
    succeeded,
)
from simulated.world import Setting, World, simulate

_CALM = Setting(seed=1, faults=0, kills=0)


def _run(*activities: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A run with one step for each activity, which has the same name, all at the same time."""
    steps = [{"name": each["name"], "needs": [], "activity": {"name": each["name"]}} for each in activities]
    return {"inline": {"activities": list(activities), "steps": steps}, **more}


def _entries(world: World, field: str) -> list[tuple[str, str]]:
    (limit,) = world.server.of("workflowlimits")
    return [(each["run"], each["step"]) for each in limit["status"][field]]


def _simulate(scenario: Callable[[World], Awaitable[None]], setting: Setting = _CALM) -> None:
    assert simulate(scenario, setting).violations == []


def test_activities_wait_in_order_of_priority_and_age_and_their_runs_show_it() -> None:
    async def scenario(world: World) -> None:
        world.script = lambda _pod: ContainerExit(after=10)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        began: list[str] = []
        world.server.observers.append(
            lambda write: (
                began.append(write.after["metadata"]["annotations"]["perdure.dev/run"])
                if write.key.plural == "pods" and write.type == "ADDED"
                else None
            )
        )
        for name, priority in (("first", 0), ("second", 0), ("third", 0), ("urgent", 10), ("last", -10)):
            world.create("WorkflowRun", name, _run(limited("work", {"name": "mutex"}), priority=priority))
            await asyncio.sleep(1.5)
        assert set(phases(world).values()) == {"Running"}
        assert _entries(world, "holders") == [("first", "work")]
        assert _entries(world, "waiters") == [(name, "work") for name in ("urgent", "second", "third", "last")]
        waits = "WorkflowLimit `mutex` is full: it allows 1 holder"
        condition = succeeded(world, "second")
        assert (condition["status"], condition["reason"]) == ("Unknown", "LimitReached")
        assert condition["message"] == f"step `work` waits: {waits}"
        (pending,) = world.run("second")["status"]["pendingActivities"]
        assert (pending["state"], pending["waitingReason"]) == ("Scheduled", waits)
        await asyncio.sleep(12)
        assert succeeded(world, "urgent")["reason"] == "Running"
        await world.rest()
        assert began == ["first", "urgent", "second", "third", "last"]
        assert set(phases(world).values()) == {"Completed"}
        check_free(world)

    _simulate(scenario)


def test_retries_wait_for_a_rate_that_counts_attempts_and_their_runs_show_it() -> None:
    async def scenario(world: World) -> None:
        rate = {"count": 2, "period": "30s"}
        watch = PodRates(world, {"call": rate})
        world.script = lambda pod: ContainerExit(
            after=1, code=int(pod["metadata"]["annotations"]["perdure.dev/attempt"] == "1")
        )
        world.begin()
        world.create("WorkflowLimit", "calls", {"capacity": 500, "rate": {**rate, "counts": "Attempts"}})
        for name in ("first", "second"):
            world.create("WorkflowRun", name, _run(limited("call", {"name": "calls", "waitTimeout": "10s"})))
        await asyncio.sleep(15)
        assert len(watch.created["call"]) == 2
        assert _entries(world, "holders") == [("first", "call"), ("second", "call")]
        waits = "WorkflowLimit `calls` is full: it allows 500 holders and 2 attempts per 30s"
        condition = succeeded(world, "first")
        assert (condition["reason"], condition["message"]) == ("LimitReached", f"step `call` waits: {waits}")
        await world.rest()
        assert set(phases(world).values()) == {"Completed"}
        first, _, third, last = watch.created["call"]
        assert third - first >= 32
        assert last - first < 35
        check_free(world)

    _simulate(scenario)


def test_attempts_whose_operator_was_suspended_wait_for_their_rate_again() -> None:
    """Their permissions have expired when it resumes, while the activities of the next period start."""

    async def scenario(world: World) -> None:
        rate = {"count": 2, "period": "10s"}
        watch = PodRates(world, {"call": rate})
        world.begin()
        world.create("WorkflowLimit", "calls", {"capacity": 500, "rate": {**rate, "counts": "Attempts"}})

        def suspend(write: Write) -> None:
            if write.key.plural == "workflowlimits" and write.after.get("status", {}).get("recent") and not suspended:
                suspended.append(write.time)
                world.operators[0].freeze(9)

        suspended: list[float] = []
        world.server.observers.append(suspend)
        for i in range(6):
            world.create("WorkflowRun", f"run{i}", _run(limited("call", {"name": "calls"})))
        await world.rest()
        assert suspended
        assert set(phases(world).values()) == {"Completed"}
        assert watch.created["call"][1] > suspended[0] + 9
        check_free(world)

    _simulate(scenario)


def test_attempts_whose_pods_took_long_to_prepare_wait_for_their_rate_again() -> None:
    """The first pod with a Lease needs a ServiceAccount. Its creation takes longer than a permission is valid."""

    async def scenario(world: World) -> None:
        rate = {"count": 2, "period": "10s"}
        PodRates(world, {"call": rate})
        world.begin()
        world.create("WorkflowLimit", "calls", {"capacity": 500, "rate": {**rate, "counts": "Attempts"}})

        def suspend(write: Write) -> None:
            if write.key.plural == "serviceaccounts" and not suspended:
                suspended.append(write.time)
                world.operators[0].freeze(9)

        suspended: list[float] = []
        world.server.observers.append(suspend)
        for i in range(4):
            world.create("WorkflowRun", f"run{i}", _run(limited("call", {"name": "calls"}, heartbeatTimeout="1m")))
        await world.rest()
        assert suspended
        assert set(phases(world).values()) == {"Completed"}
        check_free(world)

    _simulate(scenario)


def test_an_activity_holds_its_limit_across_retries_and_restarts_of_the_operator() -> None:
    async def scenario(world: World) -> None:
        watch = ActivityWatch(world)
        watch.takes = {"fails": [("mutex", "")], "waits": [("mutex", "")]}
        world.script = lambda pod: ContainerExit(
            after=5,
            code=int(
                pod["metadata"]["labels"]["perdure.dev/activity"] == "fails"
                and pod["metadata"]["annotations"]["perdure.dev/attempt"] != "3"
            ),
        )
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        retry = {"exponential": {"initialInterval": "30s", "backoffCoefficient": "1"}}
        world.create("WorkflowRun", "holder", _run(limited("fails", {"name": "mutex"}, retryPolicy=retry)))
        await asyncio.sleep(3)
        world.create("WorkflowRun", "waiter", _run(limited("waits", {"name": "mutex"})))
        await asyncio.sleep(15)
        await restart(world)
        await asyncio.sleep(45)
        assert _entries(world, "holders") == [("holder", "fails")]
        assert _entries(world, "waiters") == [("waiter", "waits")]
        await world.rest()
        assert set(phases(world).values()) == {"Completed"}
        check_free(world)

    _simulate(scenario)


def test_an_activity_fails_when_it_must_not_wait_or_has_waited_too_long() -> None:
    async def scenario(world: World) -> None:
        world.script = lambda _pod: ContainerExit(after=100)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        world.create("WorkflowRun", "holder", _run(limited("work", {"name": "mutex"})))
        await asyncio.sleep(5)
        refused = limited("work", {"name": "mutex", "overflowPolicy": "Fail"})
        patient = limited("work", {"name": "mutex", "waitTimeout": "30s"})
        world.create("WorkflowRun", "refused", _run(refused))
        world.create("WorkflowRun", "patient", _run(patient))
        await asyncio.sleep(10)
        assert phases(world) == {"holder": "Running", "refused": "Failed", "patient": "Running"}
        await asyncio.sleep(25)
        assert phases(world)["patient"] == "Failed"
        messages = []
        for name in ("refused", "patient"):
            failure = root_failure(world, name)
            assert failure["type"] == "LimitReached"
            messages.append(failure["message"])
        reported = "WorkflowLimit `mutex` has room for 1 holder"
        assert messages == [f"{reported}, and it is full", f"{reported}; the `waitTimeout` of the activity has expired"]
        assert _entries(world, "waiters") == []
        await world.rest()
        check_free(world)

    _simulate(scenario)


def test_a_waiting_activity_that_times_out_leaves_the_queue_while_its_run_continues() -> None:
    async def scenario(world: World) -> None:
        world.script = lambda _pod: ContainerExit(after=60)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        world.create("WorkflowRun", "holder", _run(limited("work", {"name": "mutex"})))
        await asyncio.sleep(5)
        work = limited("work", {"name": "mutex"}, scheduleToStartTimeout="10s")
        steps = [
            {"name": "work", "activity": {"name": "work"}, "catch": [{"call": {"block": "ignore"}}]},
            {"name": "nap", "sleep": {"duration": "300s"}},
        ]
        blocks = [{"name": "ignore", "steps": [{"name": "breathe", "sleep": {"duration": "1s"}}]}]
        spec = {"activities": [work], "blocks": blocks, "steps": steps}
        world.create("WorkflowRun", "impatient", {"inline": spec})
        await asyncio.sleep(5)
        assert _entries(world, "waiters") == [("impatient", "work")]
        await asyncio.sleep(10)
        assert _entries(world, "waiters") == []
        assert phases(world)["impatient"] == "Running"
        await world.rest()
        check_free(world)

    _simulate(scenario)


def test_activities_wait_for_a_limit_that_does_not_exist_and_for_a_higher_capacity() -> None:
    async def scenario(world: World) -> None:
        world.script = lambda _pod: ContainerExit(after=60)
        world.begin()
        for name in ("one", "two"):
            world.create("WorkflowRun", name, _run(limited("work", {"name": "pool"})))
        await asyncio.sleep(10)
        condition = succeeded(world, "one")
        assert condition["reason"] == "AttemptNotStarting"
        assert "there is no valid WorkflowLimit `pool` in namespace `default`" in condition["message"]
        world.create("WorkflowLimit", "pool", {"capacity": 1})
        await asyncio.sleep(5)
        assert sorted(succeeded(world, name)["reason"] for name in ("one", "two")) == ["LimitReached", "Running"]
        world.edit("workflowlimits", "pool", lambda obj: obj["spec"].update(capacity=2))
        await asyncio.sleep(5)
        assert len(_entries(world, "holders")) == 2
        await world.rest()
        check_free(world)

    _simulate(scenario)


def test_a_key_of_an_activity_reads_its_input_and_fails_it_without_a_value() -> None:
    async def scenario(world: World) -> None:
        watch = ActivityWatch(world)
        watch.takes = {"work": [("mutex", "input")]}
        world.script = lambda _pod: ContainerExit(after=20)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        work = limited("work", {"name": "mutex", "key": "${input}"})
        loop = {"items": "${input}", "maxConcurrency": 10}
        steps = [{"name": "work", "forEach": loop, "activity": {"name": "work", "input": "${item}"}}]
        world.create("WorkflowRun", "loop", {"inline": {"activities": [work], "steps": steps}, "input": list("aabbc")})
        bad = limited("bad", {"name": "mutex", "key": "${input.customer}"})
        world.create("WorkflowRun", "bad", _run(bad))
        await asyncio.sleep(10)
        assert sorted(watch.began) == ["a", "b", "c"]
        await world.rest()
        assert phases(world) == {"loop": "Completed", "bad": "Failed"}
        failure = world.run("bad")["status"]["failure"]
        assert "limits[mutex].key" in str(failure)
        check_free(world)

    _simulate(scenario)


def test_a_run_and_an_activity_share_a_limit() -> None:
    async def scenario(world: World) -> None:
        world.script = lambda _pod: ContainerExit(after=30)
        world.begin()
        world.create("WorkflowLimit", "mutex", {})
        nap = [{"name": "nap", "sleep": {"duration": "30s"}}]
        taken = {"name": "mutex", "overflowPolicy": "CancelRunning"}
        world.create("WorkflowRun", "activity", _run(limited("work", {"name": "mutex"})))
        await asyncio.sleep(5)
        world.create("WorkflowRun", "whole", {"inline": {"limits": [taken], "steps": nap}})
        await asyncio.sleep(5)
        assert phases(world) == {"activity": "Running", "whole": "Pending"}
        await world.rest()
        assert set(phases(world).values()) == {"Completed"}
        check_free(world)

    _simulate(scenario)


def test_a_rate_delays_the_start_of_activities() -> None:
    async def scenario(world: World) -> None:
        begins: list[float] = []
        world.server.observers.append(
            lambda write: begins.append(write.time) if (write.key.plural, write.type) == ("pods", "ADDED") else None
        )
        world.begin()
        world.create("WorkflowLimit", "api", {"capacity": 500, "rate": {"count": 2, "period": "30s"}})
        work = limited("work", {"name": "api"})
        loop = [{"name": "work", "forEach": {"items": "${lists.range(5)}"}, "activity": {"name": "work"}}]
        world.create("WorkflowRun", "calls", {"inline": {"activities": [work], "steps": loop}})
        await asyncio.sleep(10)
        reported = (
            "step `work[2]` (and 2 more) waits: WorkflowLimit `api` is full: it allows 500 holders and 2 starts per 30s"
        )
        assert succeeded(world, "calls")["message"] == reported
        await world.rest()
        assert [round(each - begins[0], -1) for each in begins] == [0, 0, 30, 30, 60]
        check_free(world)

    _simulate(scenario)
