"""Activities of several containers: an attempt ends with the last of its containers, or with the first failure."""

from collections import Counter
from random import Random
from typing import Any, Final

import orjson

from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object, Write
from simulated.scenarios.definitions import step
from simulated.world import World

_RUNS: Final = 8
_RETRY: Final = {"exponential": {"initialInterval": "1s", "maximumInterval": "5s"}}
GROUPED: Final = {
    "activities": [
        {
            "name": "join",
            "startToCloseTimeout": "5m",
            "retryPolicy": _RETRY,
            "podTemplate": {
                "spec": {
                    "containers": [
                        {"name": "main", "image": "i", "command": ["join"], "needs": ["left", "right"]},
                        {"name": "left", "image": "i", "command": ["left"], "needs": ["fetch"]},
                        {"name": "right", "image": "i", "command": ["right"], "needs": ["fetch"]},
                        {"name": "fetch", "image": "i", "command": ["fetch"]},
                        {"name": "notify", "image": "i", "command": ["notify"], "needs": ["main"]},
                    ]
                }
            },
        }
    ],
    "steps": [step("one", "join"), step("two", "join")],
    "output": "${steps.two.output}",
}


class _Ends:
    """Checks at every write that an attempt is recorded as successful only after all containers of its pod have succeeded."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._codes: dict[tuple[str, str], list[int | None]] = {}
        """The exit codes of the containers, by run ID and name of the pod."""
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        meta = write.after["metadata"]
        if write.key.plural == "pods" and write.type != "DELETED":
            states = [each["state"] for each in write.after["status"].get("containerStatuses", ())]
            codes = [each.get("terminated", {}).get("exitCode") for each in states]
            self._codes[meta["labels"]["perdure.dev/run-id"], meta["name"]] = codes
        elif write.key.plural == "workflowruns":
            for event in _events(write.after):
                if event["eventType"] == "ActivityTaskCompleted":
                    self._check(write, f"{meta['name']}-{event['scheduledEventId']}-{event['attempt']}")

    def _check(self, write: Write, pod: str) -> None:
        codes = self._codes[write.after["metadata"]["uid"], pod]
        if codes != [0] * 5:
            self._world.checker.fail(f"{write.time:.3f} {write.actor}: {pod} is recorded as successful with {codes}")


def _events(run: Object) -> list[Any]:
    stored = ((run.get("status") or {}).get("history") or {}).get("events") or []
    return [orjson.loads(each) if isinstance(each, str) else each for each in stored]


def _script(random: Random) -> Any:
    """A script of pods of which some fail."""

    def script(_pod: Object) -> ContainerExit:
        fails = random.random() < 0.25
        return ContainerExit(after=random.uniform(0.1, 8), code=3 * fails)

    return script


async def container_groups(world: World) -> None:
    """Runs with activities of several containers, some of which fail and are retried, while operators die."""
    _Ends(world)
    world.script = _script(world.random("script"))
    world.begin()
    plan = world.random("plan")
    for i in range(_RUNS):
        world.loop.call_at(plan.uniform(0, 20), world.create, "WorkflowRun", f"run{i}", {"inline": GROUPED})
    await world.trouble(60)
    await world.rest()
    for i in range(_RUNS):
        run = world.run(f"run{i}")
        ends = Counter(event["eventType"] for event in world.checker.history(run))
        if run["status"]["phase"] != "Completed" or ends["ActivityTaskCompleted"] != len(GROUPED["steps"]):
            world.checker.fail(f"run{i} is {run['status']['phase']} with {ends}")
