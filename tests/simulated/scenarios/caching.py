"""Runs that use each other's results, and a check that each result is one that an attempt has returned, and not too old."""

import asyncio
import json
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from perdure.api import labels
from perdure.controller.expiry import CACHED_RESULTS
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from simulated.scenarios.definitions import activity, step
from simulated.world import World

MAX_AGE: Final = timedelta(seconds=150)
_SLACK: Final = timedelta(seconds=2)
"""The clocks of operators differ by at most one second."""
_KEYS: Final = ("a", "b", "c", "d")
CACHED: Final = {
    "activities": [activity("ask", cache={"key": "${input}", "maxAge": "150s"})],
    "steps": [step("one", "ask", input="${input.one}"), step("two", "ask", input="${input.two}")],
    "output": "${steps.two.output}",
}
"""Asks twice; each answer names the key and the pod."""


def answer(random: Random) -> Any:
    """A script of pods that return their key and their own name."""

    def script(pod: Object) -> ContainerExit:
        meta = pod["metadata"]
        result = {"key": json.loads(meta["annotations"][labels.INPUT_ANNOTATION]), "pod": meta["name"]}
        return ContainerExit(after=random.uniform(0.1, 8), message=json.dumps(result))

    return script


class Answers:
    """The answers in the histories of all runs."""

    def __init__(self, world: World) -> None:
        """Read the histories of the closed runs of a world."""
        self.computed: dict[str, datetime] = {}
        """When the result of each pod was recorded."""
        self.used: list[tuple[datetime, Object]] = []
        """The cached results that were used, and when."""
        self._world = world
        for run in world.runs().values():
            events = world.checker.history(run)
            asked = {each["eventId"]: each["input"] for each in events if each["eventType"] == "ActivityTaskScheduled"}
            for event in events:
                if event["eventType"] == "ActivityTaskCompleted":
                    self._add(event, asked[event["scheduledEventId"]])

    def _add(self, event: Object, key: str) -> None:
        result, time = event["result"], datetime.fromisoformat(event["eventTime"])
        if result["key"] != key:
            self._world.checker.fail(f"the answer to {key} is that to {result['key']}")
        if event.get("cached"):
            self.used.append((time, result))
        else:
            self.computed[result["pod"]] = time

    def check(self) -> None:
        """Check that each cached result was recorded before it was used, and was not too old."""
        for time, result in self.used:
            recorded = self.computed.get(result["pod"])
            if recorded is None:
                self._world.checker.fail(f"the result of {result['pod']} was used, but never recorded")
            elif not -_SLACK <= time - recorded <= MAX_AGE + _SLACK:
                self._world.checker.fail(f"a result of {recorded} was used at {time}")


async def caching(world: World) -> None:
    """Runs with few keys, over several times the maximum age, while operators die; at the end, all results expire."""
    random = world.random("caching")
    world.script = answer(random)
    world.begin()
    for i in range(24):
        keys = {"one": random.choice(_KEYS), "two": random.choice(_KEYS)}
        delay = random.uniform(0, 400)
        world.loop.call_at(delay, world.create, "WorkflowRun", f"run{i}", {"inline": CACHED, "input": keys})
    await world.trouble(200)
    await world.calm(400)
    await world.rest()
    for i in range(2):  # without faults, the second run uses the results of the first
        world.create("WorkflowRun", f"late{i}", {"inline": CACHED, "input": {"one": "e", "two": "e"}})
        await asyncio.sleep(60)
    await world.rest()
    answers = Answers(world)
    answers.check()
    if [result["key"] for _, result in answers.used].count("e") < 2:
        world.checker.fail("a result was not used")
    await asyncio.sleep(MAX_AGE.total_seconds() + CACHED_RESULTS.seconds + 60)
    if left := [each["metadata"]["name"] for each in world.server.of("cachedresults")]:
        world.checker.fail(f"expired results are left: {left[:5]}")
    await world.rest()
