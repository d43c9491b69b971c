"""Retries and stops while operators are killed and requests are lost: what succeeded has no second pod."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure.simulation.cluster.kubelet import ContainerExit
from simulated.world import Setting, World, simulate

_RETRY: dict[str, Any] = {"exponential": {"initialInterval": "1s", "maximumAttempts": 1}}


def _activity(name: str) -> dict[str, Any]:
    container = {"image": "i"}
    return {"name": name, "container": container, "startToCloseTimeout": "5m", "retryPolicy": _RETRY}


_SHOP = {
    "activities": [_activity(name) for name in ("reserve", "charge", "mail", "tidy")],
    "blocks": [{"name": "tidy", "steps": [{"name": "note", "activity": {"name": "tidy"}}]}],
    "steps": [
        {"name": "reserve", "activity": {"name": "reserve"}},
        {"name": "charge", "activity": {"name": "charge"}},
        {"name": "mail", "needs": ["reserve"], "activity": {"name": "mail"}},
        {"name": "done", "needs": ["charge", "mail"], "return": {"output": "sold"}},
    ],
    "finally": {"block": "tidy"},
}


@pytest.mark.parametrize("operators", [1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_a_retry_repeats_only_failed_steps_when_operators_are_killed(seed: int, operators: int) -> None:
    async def scenario(world: World) -> None:
        world.begin()
        repaired = False
        had = defaultdict[str, set[str]](set)

        def script(pod: dict[str, Any]) -> ContainerExit:
            activity = pod["metadata"]["labels"]["perdure.dev/activity"]
            had[pod["metadata"]["annotations"]["perdure.dev/run"]].add(activity)
            if activity == "charge" and not repaired:
                return ContainerExit(after=20, code=1, message='{"type": "Declined", "message": "no"}')
            return ContainerExit(after=2)

        world.script = script
        for name in ("sold", "again"):
            world.create("WorkflowRun", name, {"inline": _SHOP})
        world.create("WorkflowRun", "stopped", {"inline": _SHOP})
        await asyncio.sleep(6)
        world.operate("stop-it", "stopped", stop={"reason": "enough"})
        world.operate("too-early", "sold", retry={})
        await world.rest()
        repaired = True
        world.operate("retry-it", "sold", retry={"reason": "fixed"})
        world.operate("from-it", "again", retry={"from": ["charge"]})
        await world.trouble(60)
        await world.calm(200)
        await world.rest()
        _check(world, had)

    setting = Setting(seed=seed, operators=operators, kills=3)
    assert simulate(scenario, setting).violations == []


def _check(world: World, had: dict[str, set[str]]) -> None:
    """The activities of `had` are those that had pods, by run; `mail` had completed after `charge` began."""
    retries = {name: run["status"] for name, run in world.runs().items() if "-retry-" in name}
    if [name.partition("-retry-")[0] for name in sorted(retries)] != ["again", "sold"]:
        world.checker.fail(f"the retries are {sorted(retries)}")
    for name, status in retries.items():
        if (status["phase"], status.get("output")) != ("Completed", "sold"):
            world.checker.fail(f"{name} is {status['phase']} with {status.get('output')}")
        if had[name] != {"charge", "tidy"}:
            world.checker.fail(f"{name} did {sorted(had[name])} again")
    if world.run("stopped")["status"]["phase"] != "Cancelled" or "tidy" not in had["stopped"]:
        world.checker.fail(
            f"what was stopped is {world.run('stopped')['status']['phase']}, and did {sorted(had['stopped'])}"
        )


def test_a_second_retry_says_that_an_earlier_one_has_completed() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        repaired = False

        def script(pod: dict[str, Any]) -> ContainerExit:
            fails = pod["metadata"]["labels"]["perdure.dev/activity"] == "charge" and not repaired
            return ContainerExit(after=2, code=int(fails))

        world.script = script
        world.create("WorkflowRun", "sale", {"inline": _SHOP})
        await world.rest()
        repaired = True
        answers = []
        for number, how in enumerate(({}, {}, {"from": ["charge"]})):
            world.operate(f"retry-{number}", "sale", retry=how)
            await world.rest()
            (asked,) = [each for each in world.server.of("operations") if each["metadata"]["name"] == f"retry-{number}"]
            answers.append(asked["status"]["conditions"][-1]["message"])
        first = next(name for name in world.runs() if name != "sale")
        assert "earlier retry" not in answers[0] + answers[2]
        assert answers[1].endswith(f"; `{first}`, an earlier retry of it, has completed, so its steps run once more")

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []


def test_a_run_that_ended_before_its_first_step_has_nothing_to_keep() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        schema = {"schema": {"type": "object", "required": ["id"]}}
        world.create("WorkflowRun", "refused", {"inline": {**_SHOP, "input": schema}})
        await world.rest()
        world.operate("again", "refused", retry={})
        await world.rest()
        (asked,) = world.server.of("operations")
        text = "`refused` ended before its first step, so there is nothing to keep; start a new run"
        assert asked["status"]["conditions"][-1]["message"] == text

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []
