"""Shared objects that a newer operator has written: today's operator leaves them as they are, and what needs them waits."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.api.state_versions import NEWEST
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.scenarios.artifacts import MAKES, USES, Store
from simulated.scenarios.caching import answer
from simulated.scenarios.definitions import activity, step
from simulated.world import Setting, World, simulate
from support.faulty.newer import NEWER
from support.managers import gateway_of

NAP: Object = {"name": "nap", "sleep": {"duration": "1s"}}
ASK: Object = {
    "activities": [activity("ask", cache={"key": "a", "maxAge": "1h"})],
    "steps": [step("ask", "ask", input="${input}")],
}
CALM = Setting(seed=1, faults=0, kills=0)


def calm(scenario: Callable[[World], Awaitable[None]]) -> None:
    assert simulate(scenario, CALM).violations == []


def stored(world: World, plural: str, name: str) -> Object:
    return world.server.get(ObjectKey(plural, "default", name))


def reason(world: World, name: str) -> str:
    condition: Object = world.run(name)["status"]["conditions"][0]
    return str(condition["reason"])


def test_runs_steps_and_activities_wait_for_a_limit_of_a_newer_version_without_a_time_limit() -> None:
    async def scenario(world: World) -> None:
        world.script = lambda _: ContainerExit(after=1)
        world.begin()
        use = {"name": "mutex", "waitTimeout": "5s"}
        world.create("WorkflowLimit", "mutex", {"capacity": 3})
        await asyncio.sleep(1)
        world.edit("workflowlimits", "mutex", lambda obj: obj["status"].update(reserved={"run": "other"}))
        before = stored(world, "workflowlimits", "mutex")["status"]
        world.create("WorkflowRun", "whole", {"inline": {"limits": [use], "steps": [NAP]}})
        call = {"name": "call", "call": {"block": "one"}, "limits": [use]}
        world.create("WorkflowRun", "step", {"inline": {"blocks": [{"name": "one", "steps": [NAP]}], "steps": [call]}})
        one = {"activities": [activity("work", limits=[use])], "steps": [step("work", "work")]}
        world.create("WorkflowRun", "activity", {"inline": one})
        await asyncio.sleep(60)
        assert {name: run["status"]["phase"] for name, run in world.runs().items()} == {
            "whole": "Pending",
            "step": "Running",
            "activity": "Running",
        }
        assert reason(world, "whole") == "NewerState"
        uid = world.run("whole")["metadata"]["uid"]
        assert gateway_of(world.operators[0].manager).unreadable(uid) is None, "the run itself takes requests"
        after = stored(world, "workflowlimits", "mutex")["status"]
        assert {**after, "conditions": None} == {**before, "conditions": None}
        world.edit("workflowlimits", "mutex", lambda obj: obj["status"].pop("reserved"))
        await world.rest()
        assert {run["status"]["phase"] for run in world.runs().values()} == {"Completed"}

    calm(scenario)


def test_a_circuit_breaker_of_a_newer_version_holds_attempts_and_their_reports() -> None:
    async def scenario(world: World) -> None:
        failing = [True]
        world.script = lambda _: ContainerExit(after=30 if failing else 1, code=int(bool(failing)))
        world.begin()
        breaker = {"failureThreshold": 5, "openDuration": "10s"}
        retries = {"initialInterval": "1s", "maximumInterval": "1s", "maximumAttempts": 3}
        world.create("RetryPolicy", "calm", {"exponential": retries, "circuitBreaker": breaker})
        one = {"activities": [activity("work", retryPolicy={"name": "calm"})], "steps": [step("work", "work")]}
        world.create("WorkflowRun", "run", {"inline": one})
        await asyncio.sleep(10)
        world.edit("retrypolicies", "calm", lambda obj: obj["status"].update(circuit={"state": "ForcedOpen"}))
        await asyncio.sleep(60)  # the first attempt has failed
        state = world.run("run")["status"]["state"]
        assert list(state["reports"]) == ["2/1"], "the report of the attempt waits in the run"
        assert [each["metadata"]["name"] for each in world.server.of("pods")] == ["run-2-1"], "and so does the next one"
        assert stored(world, "retrypolicies", "calm")["status"]["circuit"]["state"] == "ForcedOpen"
        failing.clear()
        world.edit("retrypolicies", "calm", lambda obj: obj["status"].update(circuit={"state": "Closed"}))
        await world.rest()
        assert world.run("run")["status"]["phase"] == "Completed"
        assert stored(world, "retrypolicies", "calm")["status"]["circuit"]["counted"], "the report has arrived"

    calm(scenario)


def test_a_circuit_breaker_keeps_its_state_while_the_spec_is_invalid() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        breaker = {"exponential": {}, "circuitBreaker": {"failureThreshold": 5, "openDuration": "10s"}}
        world.create("RetryPolicy", "calm", breaker)
        await asyncio.sleep(5)
        opened = {"state": "Open", "openUntil": "2100-01-01T00:00:00Z", "consecutiveFailures": 5}
        world.edit("retrypolicies", "calm", lambda obj: obj["status"].update(circuit=dict(opened)))
        world.edit("retrypolicies", "calm", lambda obj: obj["spec"].update(jitter="full"))
        await asyncio.sleep(5)
        status = stored(world, "retrypolicies", "calm")["status"]
        assert status["conditions"][0]["reason"] == "InvalidSpec"
        assert status["circuit"] | opened == status["circuit"]

    calm(scenario)


def test_a_cached_result_of_a_newer_version_is_neither_used_nor_replaced() -> None:
    async def scenario(world: World) -> None:
        world.script = answer(world.random("pods"))
        world.begin()
        world.create("WorkflowRun", "first", {"inline": ASK, "input": "a"})
        await asyncio.sleep(60)
        (found,) = world.server.of("cachedresults")
        name = found["metadata"]["name"]
        world.edit("cachedresults", name, lambda obj: obj["spec"].update(encoding="zstd"))
        newer = stored(world, "cachedresults", name)
        world.create("WorkflowRun", "second", {"inline": ASK, "input": "a"})
        await asyncio.sleep(60)
        assert world.run("second")["status"]["output"]["pod"] == "second-2-1"
        assert [*world.server.of("cachedresults")] == [newer]
        notes = [each["note"] for each in world.server.posted if each["reason"] == "ResultNotCached"]
        assert len(notes) == 1
        assert f"a newer version of Perdure has stored CachedResult `{name}`" in notes[0]
        await world.rest()

    calm(scenario)


async def artifacts_of_a_run(world: World) -> tuple[Store, Object]:
    """Let a run upload artifacts; return the store that has them, and their ArtifactSet."""
    store = Store(world, world.random("store"))
    world.script = store.script
    world.begin()
    world.create("WorkflowRun", "first", {"inline": MAKES})
    await world.rest()
    (found,) = world.server.of("artifactsets")
    return store, found


def test_artifacts_with_a_holder_of_a_newer_version_are_kept() -> None:
    async def scenario(world: World) -> None:
        store, found = await artifacts_of_a_run(world)
        holder: dict[str, Any] = {"kind": "Archive", "name": "2026", "uid": "archive-1"}
        name = found["metadata"]["name"]
        world.edit("artifactsets", name, lambda obj: obj["spec"]["holders"].append(holder))
        world.delete("workflowruns", "first")
        world.checker.named_again.add("first")
        await asyncio.sleep(1_200)
        assert len(store.objects) == 1
        assert stored(world, "artifactsets", name)["spec"]["holders"] == [holder]

    calm(scenario)


def test_an_operation_with_a_field_of_a_newer_version_and_later_ones_for_its_target_wait() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        wait = {"name": "wait", "waitForSignal": {"name": "go"}}
        world.create("WorkflowRun", "run", {"inline": {"steps": [wait], "output": "${steps.wait.output}"}})
        await asyncio.sleep(1)
        await world.operators[0].kill()
        world.operate("first", "run", signal={"name": "go", "input": 1})
        world.edit("operations", "first", lambda obj: obj["spec"]["signal"].update(atMostOnce=True))
        world.operate("second", "run", signal={"name": "go", "input": 2})
        world.begin()
        await asyncio.sleep(120)
        first, second = (stored(world, "operations", name) for name in ("first", "second"))
        (condition,) = first["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("NewerState", "True", "NewerState")
        assert "unknown field `spec.signal.atMostOnce`" in condition["message"]
        assert set(first["status"]) == {"conditions", "arrival", "stateVersion"}
        assert not second.get("status")
        world.edit("operations", "first", lambda obj: obj["spec"]["signal"].pop("atMostOnce"))
        await world.rest()
        assert world.run("run")["status"]["output"] == 1, "in order"
        status = stored(world, "operations", "first")["status"]
        assert [each["type"] for each in status["conditions"]] == ["Complete"]
        assert status["stateVersion"] == NEWEST

    calm(scenario)


def test_an_operation_whose_status_is_of_a_newer_version_is_neither_processed_nor_removed() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        wait = {"name": "wait", "waitForSignal": {"name": "go"}}
        world.create("WorkflowRun", "run", {"inline": {"steps": [wait]}})
        await asyncio.sleep(1)
        await world.operators[0].kill()
        for name in ("pending", "answered"):
            world.operate(name, "run", signal={"name": "go"}, ttlSecondsAfterFinished=1)
        newer = {"phase": "Running", "stateVersion": NEWEST + 1, "lane": "fast"}
        world.edit("operations", "pending", lambda obj: obj.update(status=dict(newer)))
        done = {**newer, "phase": "Complete", "completionTime": "2026-01-01T00:00:00Z"}
        world.edit("operations", "answered", lambda obj: obj.update(status=dict(done)))
        world.begin()
        await asyncio.sleep(120)
        assert stored(world, "operations", "answered")["status"] == done
        status = stored(world, "operations", "pending")["status"]
        (condition,) = status.pop("conditions")
        assert (status, condition["type"]) == (newer, "NewerState")
        assert f"state version {NEWEST + 1}" in condition["message"]
        assert world.run("run")["status"]["phase"] == "Running"
        for name in ("pending", "answered"):  # the newer version has processed them, in the form that both know
            known = {**done, "stateVersion": NEWEST}
            del known["lane"]
            world.edit("operations", name, lambda obj, known=known: obj.update(status=known))
        await asyncio.sleep(30)
        assert not world.server.of("operations")
        world.operate("go", "run", signal={"name": "go"})
        await world.rest()

    calm(scenario)


def test_runs_that_need_artifacts_of_a_newer_version_report_it_and_continue_after_the_upgrade() -> None:
    """One starts with the artifacts of another run, and one gets them with a signal."""

    async def scenario(world: World) -> None:
        _, found = await artifacts_of_a_run(world)
        name, holders = found["metadata"]["name"], found["spec"]["holders"]
        world.edit("artifactsets", name, lambda obj: obj["spec"].update(stateVersion=NEWEST + 1))
        newer = stored(world, "artifactsets", name)
        output = world.run("first")["status"]["output"]
        world.create("WorkflowRun", "starts", {"inline": USES, "input": output})
        gets = {"inline": {"steps": [{"name": "go", "waitForSignal": {"name": "go", "timeout": "1h"}}]}}
        world.create("WorkflowRun", "gets", gets)
        await asyncio.sleep(30)
        world.operate("go", "gets", signal={"name": "go", "input": output})
        await asyncio.sleep(120)
        assert {each: world.run(each)["status"]["phase"] for each in ("starts", "gets")} == {
            "starts": "Pending",
            "gets": "Running",
        }
        for each in ("starts", "gets"):
            assert reason(world, each) == "NewerState"
            message = world.run(each)["status"]["conditions"][0]["message"]
            assert f"(ArtifactSet `{name}`: state version {NEWEST + 1}, and this operator reads versions" in message
            uid = world.run(each)["metadata"]["uid"]
            assert gateway_of(world.operators[0].manager).unreadable(uid) is None, "the run itself takes requests"
        reported = [each["regarding"]["name"] for each in world.server.posted if each["reason"] == "NewerState"]
        assert sorted(each for each in reported if each != name) == ["gets", "starts"]
        assert stored(world, "artifactsets", name) == newer
        await world.replace(world.operators[0], 1, reads=NEWER)
        await world.rest()
        for each in ("starts", "gets"):
            assert (world.run(each)["status"]["phase"], reason(world, each)) == ("Completed", "Completed")
        assert len(stored(world, "artifactsets", name)["spec"]["holders"]) == len(holders) + 2

    calm(scenario)


def test_a_dead_letter_waits_for_artifacts_of_a_newer_version_and_does_not_delay_its_run() -> None:
    async def scenario(world: World) -> None:
        store = Store(world, world.random("store"))
        world.script, store.broken = store.script, {"use"}
        world.begin()
        world.create("WorkflowRun", "first", {"inline": MAKES})
        await world.rest()
        use = {**USES, "steps": [{**each, "deadLetter": True} for each in USES["steps"]]}
        world.create("WorkflowRun", "second", {"inline": use, "input": world.run("first")["status"]["output"]})
        await asyncio.sleep(0.5)
        (found,) = world.server.of("artifactsets")
        name = found["metadata"]["name"]
        world.edit("artifactsets", name, lambda obj: obj["spec"].update(stateVersion=NEWEST + 1))
        await asyncio.sleep(120)
        assert (world.run("second")["status"]["phase"], reason(world, "second")) == ("Failed", "Failed")
        (note,) = [each["note"] for each in world.server.posted if each["reason"] == "CreateRefused"]
        assert "a DeadLetter waits for its artifacts: A newer version of Perdure has written the object" in note
        await world.replace(world.operators[0], 1, reads=NEWER)
        await world.rest()
        holders = [each["kind"] for each in stored(world, "artifactsets", name)["spec"]["holders"]]
        assert holders == ["WorkflowRun", "WorkflowRun", "DeadLetter"]

    calm(scenario)
