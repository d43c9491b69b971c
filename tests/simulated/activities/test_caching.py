"""Results of activities are reused while they are valid, and no longer.

The scenario `caching` injects all faults: see test_seeds.py.
"""

import asyncio
import json
from typing import Any

import pytest

from perdure.api import labels
from perdure.simulation.cluster.apiserver import Request, Response, refused
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Refusal, Write
from simulated.scenarios.artifacts import Store, maker
from simulated.scenarios.caching import answer
from simulated.scenarios.definitions import activity, step
from simulated.world import Setting, World, simulate

_CALM = Setting(seed=1, faults=0, kills=0)
_OPTIONAL = "${input.?version.orValue(null)}"
_COLLECTED = 600
"""Seconds after which artifacts without a holder are deleted."""


def cached(**cache: Any) -> dict[str, Any]:
    return {"activities": [activity("ask", cache=cache)], "steps": [step("ask", "ask", input="${input}")]}


async def run(world: World, name: str, spec: dict[str, Any], input_: Any = None) -> dict[str, Any]:
    """Run a workflow to its end, and return its status."""
    world.create("WorkflowRun", name, {"inline": spec, "input": input_})
    await world.rest()
    status: dict[str, Any] = world.run(name)["status"]
    return status


def cached_in(world: World, name: str) -> list[bool]:
    """Whether each activity of a run has used an earlier result."""
    history = world.checker.history(world.run(name))
    return ["cached" in event for event in history if event["eventType"] == "ActivityTaskCompleted"]


def pods(world: World) -> list[str]:
    return [each["metadata"]["name"] for each in world.server.of("pods")]


def notes(world: World) -> list[str]:
    return [each["note"] for each in world.server.posted if each["reason"] == "ResultNotCached"]


def begin(world: World) -> None:
    world.script = answer(world.random("pods"))
    world.begin()


def test_a_later_run_uses_the_result_and_makes_no_pod() -> None:
    async def scenario(world: World) -> None:
        begin(world)
        first = await run(world, "first", cached(key="${input}", maxAge="1h"), "a")
        (stored,) = world.server.of("cachedresults")
        assert stored["spec"]["key"] == "a"
        assert stored["spec"]["result"] == first["output"]
        assert stored["spec"]["workflowRun"]["name"] == "first"
        second = await run(world, "second", cached(key="${input}", maxAge="1h"), "a")
        assert second["output"] == first["output"] == {"key": "a", "pod": "first-2-1"}
        assert cached_in(world, "second") == [True]
        assert not [name for name in pods(world) if name.startswith("second")]
        assert [*world.server.of("cachedresults")] == [stored]

    assert simulate(scenario, _CALM).violations == []


@pytest.mark.parametrize(
    ("first", "second", "inputs"),
    [
        ({"key": "${input}", "maxAge": "1h"}, {"key": "${input}", "maxAge": "1h"}, ("a", "b")),
        ({"key": "${input}", "maxAge": "1h"}, {"key": "${input}", "maxAge": "10s"}, ("a", "a")),
        ({"key": "${input}", "maxAge": "10s"}, {"key": "${input}", "maxAge": "1h"}, ("a", "a")),
        ({"key": _OPTIONAL, "maxAge": "1h"}, {"key": _OPTIONAL, "maxAge": "1h"}, ({}, {})),
    ],
    ids=["another key", "too old for the second run", "expired", "no key"],
)
def test_an_activity_runs_again(first: Any, second: Any, inputs: Any) -> None:
    async def scenario(world: World) -> None:
        begin(world)
        await run(world, "first", cached(**first), inputs[0])
        await run(world, "second", cached(**second), inputs[1])
        assert cached_in(world, "second") == [False]
        assert world.run("second")["status"]["output"]["pod"] == "second-2-1"

    assert simulate(scenario, _CALM).violations == []


def test_an_activity_with_another_container_does_not_use_the_result() -> None:
    async def scenario(world: World) -> None:
        begin(world)
        spec = cached(key="x", maxAge="1h")
        (ask,) = spec["activities"]
        await run(world, "first", spec)
        await run(world, "second", {**spec, "activities": [{**ask, "container": {"image": "newer"}}]})
        await run(world, "third", {**spec, "activities": [{**ask, "startToCloseTimeout": "10m"}]})
        assert [cached_in(world, name) for name in ("first", "second", "third")] == [[False], [False], [True]]

    assert simulate(scenario, _CALM).violations == []


def test_the_next_step_uses_the_result() -> None:
    async def scenario(world: World) -> None:
        begin(world)
        spec = cached(key="x", maxAge="1h")
        spec["steps"].append(step("again", "ask"))
        await run(world, "first", spec)
        assert cached_in(world, "first") == [False, True]

    assert simulate(scenario, _CALM).violations == []


def test_failures_are_not_cached() -> None:
    async def scenario(world: World) -> None:
        begin(world)
        world.script = lambda _: ContainerExit(after=1, code=1)
        once = {"exponential": {"maximumAttempts": 1}}
        failing = {**cached(key="x", maxAge="1h")}
        failing["activities"][0]["retryPolicy"] = once
        assert (await run(world, "first", failing))["phase"] == "Failed"
        assert [*world.server.of("cachedresults")] == []

    assert simulate(scenario, _CALM).violations == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("${input.version}", "activity `ask`: cache.key: "),
        ("${input.long + input.long}", "activity `ask`: cache.key: has 1200 characters, but must have at most 1024"),
    ],
)
def test_a_key_without_a_valid_value_fails_the_activity(key: str, message: str) -> None:
    async def scenario(world: World) -> None:
        begin(world)
        status = await run(world, "first", cached(key=key, maxAge="1h"), {"long": "x" * 600})
        assert status["phase"] == "Failed"
        cause = status["failure"]["cause"]
        assert cause["type"] == "ExpressionError"
        assert message in cause["message"]

    assert simulate(scenario, _CALM).violations == []


def test_a_result_that_is_too_large_is_reported_and_not_cached() -> None:
    async def scenario(world: World) -> None:
        begin(world)
        world.script = lambda _: ContainerExit(after=5, message="")
        result = {labels.RESULT_ANNOTATION: json.dumps("x" * 70_000)}

        def returns(write: Write) -> None:
            if write.key.plural == "leases" and write.type == "ADDED":
                world.loop.call_soon(
                    world.edit, "leases", write.key.name, lambda each: each["metadata"]["annotations"].update(result)
                )

        world.server.observers.append(returns)
        spec = cached(key="x", maxAge="1h")
        spec["activities"][0]["resultSize"] = "Large"
        status = await run(world, "first", spec)
        assert status["phase"] == "Completed"
        assert [*world.server.of("cachedresults")] == []
        (note,) = notes(world)
        assert "the result is not cached: the result has 70009 bytes, but at most 65536 can be cached" in note

    assert simulate(scenario, _CALM).violations == []


def test_a_quota_prevents_caching_but_not_the_run() -> None:
    async def scenario(world: World) -> None:
        begin(world)
        handle = world.server.handle

        def refuse(request: Request) -> Response:
            if request.method == "POST" and request.url.partition("?")[0].endswith("/cachedresults"):
                return refused(Refusal(403, "Forbidden", "exceeded quota: results"))
            return handle(request)

        world.server.handle = refuse  # type: ignore[method-assign]
        status = await run(world, "first", cached(key="x", maxAge="1h"))
        assert status["phase"] == "Completed"
        assert notes(world) == ["Step ask: the result is not cached: exceeded quota: results"]

    assert simulate(scenario, _CALM).violations == []


@pytest.mark.parametrize("failures", [2, 100])
def test_failed_requests_to_store_a_result_do_not_delay_the_run(failures: int) -> None:
    async def scenario(world: World) -> None:
        begin(world)
        handle, tries = world.server.handle, 0

        def fail(request: Request) -> Response:
            nonlocal tries
            if request.method == "POST" and request.url.partition("?")[0].endswith("/cachedresults"):
                tries += 1
                if tries <= failures:
                    return refused(Refusal(500, "InternalError", "failed calling webhook"))
            return handle(request)

        world.server.handle = fail  # type: ignore[method-assign]
        spec = cached(key="x", maxAge="1h")
        spec["steps"].append({"name": "child", "childWorkflow": {"workflow": {"name": "inner"}}})
        world.create("Workflow", "inner", {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]})
        world.create("WorkflowRun", "first", {"inline": spec})
        await asyncio.sleep(15)
        assert world.run("first")["status"]["phase"] == "Completed"
        await world.rest()
        stored = [*world.server.of("cachedresults")]
        if failures == 2:
            assert (tries, len(stored), notes(world)) == (3, 1, [])
        else:
            (note,) = notes(world)
            assert (tries, stored) == (5, [])
            assert note.startswith("Step ask: the result is not cached: the Kubernetes API request failed 5 times: ")

    assert simulate(scenario, _CALM).violations == []


def test_an_attempt_that_waits_for_a_limit_looks_for_a_result_before_and_after() -> None:
    async def scenario(world: World) -> None:
        begin(world)
        handle, looks = world.server.handle, 0

        def count(request: Request) -> Response:
            nonlocal looks
            looks += request.method == "GET" and "/cachedresults/" in request.url
            return handle(request)

        world.server.handle = count  # type: ignore[method-assign]
        world.create("WorkflowLimit", "mutex", {})
        ask = activity("ask", cache={"key": "x", "maxAge": "1h"}, limits=[{"name": "mutex"}])
        others = [{**step(f"other{i}", "other"), "needs": []} for i in range(5)]
        spec = {"activities": [ask, activity("other")], "steps": [step("ask", "ask"), *others]}
        for name in ("first", "second"):
            world.create("WorkflowRun", name, {"inline": spec})
        await world.rest()
        assert sorted(cached_in(world, "first") + cached_in(world, "second")) == [False] * 11 + [True]
        assert looks == 3

    assert simulate(scenario, _CALM).violations == []


def test_a_result_that_becomes_too_old_between_its_lookup_and_the_commit_is_not_used() -> None:
    """Seed 60006 of `caching` recorded a result three seconds after its maximum age."""

    async def scenario(world: World) -> None:
        begin(world)
        await run(world, "first", cached(key="x", maxAge="20m"))
        (operator,) = world.operators
        handle, frozen = world.server.handle, False

        def freeze(request: Request) -> Response:
            nonlocal frozen
            if request.method == "PUT" and not frozen:  # the start of the second run, right before it looks for results
                frozen = True
                operator.freeze(1_300)
            return handle(request)

        world.server.handle = freeze  # type: ignore[method-assign]
        await run(world, "second", cached(key="x", maxAge="20m"))
        assert cached_in(world, "second") == [False]

    assert simulate(scenario, _CALM).violations == []


def test_a_deleted_result_is_computed_again() -> None:
    async def scenario(world: World) -> None:
        begin(world)
        await run(world, "first", cached(key="x", maxAge="1h"))
        (stored,) = world.server.of("cachedresults")
        world.delete("cachedresults", stored["metadata"]["name"])
        await run(world, "second", cached(key="x", maxAge="1h"))
        assert cached_in(world, "second") == [False]

    assert simulate(scenario, _CALM).violations == []


def test_a_cached_result_keeps_its_artifacts_until_it_expires() -> None:
    async def scenario(world: World) -> None:
        store = Store(world, world.random("store"))
        world.script = store.script
        world.begin()
        make = {**maker(), "cache": {"key": "x", "maxAge": "1h"}}
        spec = {
            "activities": [make],
            "steps": [{"name": "make", "activity": {"name": "make"}}],
            "output": "${steps.make.artifacts}",
        }
        first = await run(world, "first", spec)
        world.delete("workflowruns", "first")
        world.checker.named_again.add("first")
        await asyncio.sleep(2 * _COLLECTED)
        assert len(store.objects) == 1
        second = await run(world, "second", spec)
        assert second["output"] == first["output"]
        await asyncio.sleep(3_600)
        assert [*world.server.of("cachedresults")] == []
        assert len(store.objects) == 1, "the second run needs it"
        world.delete("workflowruns", "second")
        world.checker.named_again.add("second")
        await asyncio.sleep(_COLLECTED)
        assert store.objects == set()

    assert simulate(scenario, _CALM).violations == []


def test_a_cached_result_whose_artifacts_may_be_deleted_is_not_used() -> None:
    async def scenario(world: World) -> None:
        store = Store(world, world.random("store"))
        world.script = store.script
        world.begin()
        make = {**maker(), "cache": {"key": "x", "maxAge": "1h"}}
        spec = {"activities": [make], "steps": [{"name": "make", "activity": {"name": "make"}}]}
        await run(world, "first", spec)
        (kept,) = world.server.of("artifactsets")
        world.delete("artifactsets", kept["metadata"]["name"])
        await run(world, "second", spec)
        await run(world, "third", spec)
        assert (cached_in(world, "second"), cached_in(world, "third")) == ([False], [True])

    assert simulate(scenario, _CALM).violations == []
