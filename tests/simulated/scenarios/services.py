"""Services of steps: no step starts before its services are ready, and none of them outlives its steps."""

from random import Random
from typing import Any, Final

import orjson

from perdure.api import labels
from perdure.api.state_versions import SERVICES
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object, Write
from simulated.scenarios.definitions import activity, step
from simulated.world import World

_RUNS: Final = 8
SERVED: Final = {
    "activities": [activity("use", retryPolicy={"exponential": {"initialInterval": "1s", "maximumInterval": "5s"}})],
    "services": [{"name": "db", "image": "db"}],
    "steps": [
        step("one", "use", input="${services.db.host}"),
        {"name": "each", "forEach": {"items": [1, 2]}, "call": {"block": "tests", "input": "${item}"}},
    ],
    "blocks": [
        {
            "name": "tests",
            "services": [{"name": "mail", "image": "mail"}, {"name": "web", "image": "web", "readyTimeout": "10m"}],
            "steps": [
                step("check", "use", input="${services.mail.host}"),
                step("look", "use", input="${services.db.host}"),
            ],
        }
    ],
}
_OUTCOMES: Final = ({"Completed"}, {"Completed", "Failed"}, {"Completed", "Cancelled"}, {"Completed", "Terminated"})


class _Services:
    """Checks at every write that the services of a step are ready when its pod is created, and when the services are gone."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ready: dict[str, bool] = {}
        """Whether the pod of a Service has been ready, by the name of the Service."""
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        if write.key.plural != "pods":
            return
        meta = write.after["metadata"]
        service = meta["labels"].get(labels.SERVICE_LABEL)
        if service is not None:
            ready = [each["status"] for each in write.after["status"].get("conditions", ()) if each["type"] == "Ready"]
            self._ready[service] = self._ready.get(service, False) or ready == ["True"]
        elif write.type == "ADDED":
            used = orjson.loads(meta["annotations"][labels.INPUT_ANNOTATION]).partition(".")[0]
            if not self._ready.get(used):
                self._world.checker.fail(
                    f"{write.time:.3f} {write.actor}: {meta['name']} starts before {used} is ready"
                )

    def check_rest(self) -> None:
        """At the end, nothing of a service exists but the pods of those that have failed, which are kept for their logs."""
        for service in self._world.server.of("services"):
            self._world.checker.fail(f"Service {service['metadata']['name']} is left behind")
        for pod in self._world.server.of("pods"):
            if labels.SERVICE_LABEL in pod["metadata"]["labels"] and pod["status"]["phase"] not in {
                "Failed",
                "Succeeded",
            }:
                self._world.checker.fail(f"pod {pod['metadata']['name']} of a service outlives its steps")


def _script(random: Random, failing: set[str]) -> Any:
    """A script of pods: services run until they are stopped, except some of the runs in `failing`; some steps fail."""

    def script(pod: Object) -> ContainerExit:
        if labels.SERVICE_LABEL in pod["metadata"]["labels"]:
            ends = pod["metadata"]["labels"][labels.RUN_LABEL] in failing and random.random() < 0.4
            return ContainerExit(after=random.uniform(1, 20) if ends else None, code=3)
        return ContainerExit(after=random.uniform(0.1, 8), code=random.random() < 0.2)

    return script


def _left_running(history: list[Object]) -> str:
    """A service of a history that was neither stopped nor has ended; empty if there is none."""
    ends = {
        each["scheduledEventId"]
        for each in history
        if each["eventType"] in {"ActivityTaskCancelRequested", "ActivityTaskFailed", "ActivityTaskCompleted"}
    }
    scheduled = [each for each in history if each["eventType"] == "ActivityTaskScheduled"]
    services = [each for each in scheduled if ":service." in each["activityId"]]
    return next((each["activityId"] for each in services if each["eventId"] not in ends), "")


async def services(world: World) -> None:
    """Runs whose steps have services, while operators die: some services end, some runs are cancelled or terminated."""
    world.oldest = SERVICES  # a real older operator does not know services, and would not start these runs
    watched = _Services(world)
    plan = world.random("plan")
    world.script = _script(world.random("script"), {f"run{i}" for i in range(_RUNS) if i % 4 == 1})
    world.begin()
    for i in range(_RUNS):
        world.loop.call_at(plan.uniform(0, 20), world.create, "WorkflowRun", f"run{i}", {"inline": SERVED})
        if i % 4 > 1:
            what = {"cancel": {}} if i % 4 == 2 else {"terminate": {"reason": "enough"}}
            at = plan.uniform(20, 60)
            world.loop.call_at(
                at, lambda name, run, what: world.operate(name, run, **what), f"stop{i}", f"run{i}", what
            )
    await world.trouble(60)
    await world.rest()
    watched.check_rest()
    for i in range(_RUNS):
        run = world.run(f"run{i}")
        if (running := _left_running(world.checker.history(run))) and run["status"]["phase"] == "Completed":
            world.checker.fail(f"run{i} has completed, and {running} outlives its steps")
        if run["status"]["phase"] not in _OUTCOMES[i % 4]:
            world.checker.fail(f"run{i} is {run['status']['phase']}: {run['status']['conditions']}")
