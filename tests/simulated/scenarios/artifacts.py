"""Runs that pass artifacts to each other, with a check at every upload, start and deletion that none is lost or leaked."""

import asyncio
import json
from random import Random
from typing import Any

from perdure.api import labels
from perdure.api.pods import ARTIFACTS, OUTPUTS
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object, Write
from simulated.world import World

_ONCE = {"exponential": {"initialInterval": "1s", "maximumAttempts": 1}}
_COLLECTED_SECONDS = 1_500
"""After this time without trouble, everything that nothing needs is deleted, also if the store was down before."""


def _activity(name: str, **artifacts: Any) -> Object:
    return {
        "name": name,
        "container": {"image": "i"},
        "startToCloseTimeout": "5m",
        "retryPolicy": _ONCE,
        "artifacts": artifacts,
    }


def maker(**artifacts: Any) -> Object:
    """An activity that uploads `report`."""
    return _activity("make", outputs=[{"name": "report", "path": "/out/report"}], **artifacts)


USER = _activity("use", inputs=[{"name": "report", "path": "/in/report", "from": "${input.report}"}])
"""An activity that needs the artifact in its input."""
_MAKE = {"name": "make", "activity": {"name": "make"}}
MAKES = {"activities": [maker()], "steps": [_MAKE], "output": "${steps.make.artifacts}"}
USES = {"activities": [USER], "steps": [{"name": "use", "activity": {"name": "use", "input": "${input}"}}]}
_NAP = {"name": "nap", "needs": ["make"], "sleep": {"duration": "400s"}}
_USE_LATER = {"name": "use", "needs": ["nap"], "activity": {"name": "use", "input": "${steps.make.artifacts}"}}
WAITS = {"activities": [maker(), USER], "steps": [_MAKE, _NAP, _USE_LATER], "output": "${steps.make.artifacts}"}
"""Needs its own artifact much later."""
PARENT = {
    "steps": [
        {"name": "make", "childWorkflow": {"workflow": {"name": "makes"}}},
        _NAP,
        {
            "name": "use",
            "needs": ["nap"],
            "childWorkflow": {"workflow": {"name": "uses"}, "input": "${steps.make.output}"},
        },
    ],
}
CHAIN = {
    "activities": [maker(), USER],
    "steps": [
        {"name": "make", "when": "${input == null}", "activity": {"name": "make"}},
        {"name": "again", "when": "${input == null}", "continueAsNew": {"input": "${steps.make.artifacts}"}},
        {"name": "nap", "sleep": {"duration": "400s"}},
        {"name": "use", "activity": {"name": "use", "input": "${input}"}},
    ],
}


class Store:
    """The objects of an artifact store, and how pods use it."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.objects: set[str] = set()
        self.uploaded: set[str] = set()
        """All objects that ever existed."""
        self.down = False
        self.broken: set[str] = set()
        """Names of activities that fail."""
        world.server.observers.append(self._observe)

    def script(self, pod: Object) -> ContainerExit:
        """The behavior of a pod: one that deletes artifacts does so when it starts."""
        after = self.random.uniform(0.5, 6)
        names = pod["metadata"]["labels"]
        if labels.ARTIFACT_STORE_LABEL in names:
            variables = {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}
            folders = json.loads(variables["PERDURE_FOLDERS"])
            if self.down:
                failed = {"failed": [*range(len(folders))], "error": "the store is down"}
                return ContainerExit(after=after, code=1, message=json.dumps(failed))
            for folder in folders:
                self._delete(folder)
            return ContainerExit(after=after, message="{}")
        return ContainerExit(after=after, code=int(names[labels.ACTIVITY_LABEL] in self.broken))

    def _delete(self, folder: str) -> None:
        gone = {key for key in self.objects if key.startswith(f"{folder}/")}
        self.objects -= gone
        for run in self.world.server.of("workflowruns"):
            text = json.dumps(run)
            for key in gone:
                if key in text or run["metadata"]["uid"] in key:
                    self.world.checker.fail(f"{key} is deleted, which {run['metadata']['name']} needs")

    def _observe(self, write: Write) -> None:
        pod = write.after
        if write.key.plural != "pods" or labels.RUN_ID_LABEL not in pod["metadata"]["labels"]:
            return
        for container in pod["spec"].get("initContainers") or ():
            if write.type == "ADDED" and container["name"] == ARTIFACTS:
                self._check_inputs(pod, container)
            if write.type == "MODIFIED" and container["name"] == OUTPUTS:
                self._upload(pod)

    def _check_inputs(self, pod: Object, container: Object) -> None:
        variables = {each["name"]: each.get("value", "") for each in container["env"]}
        for wanted in json.loads(variables["PERDURE_ARTIFACTS"]):
            if wanted["key"] not in self.objects:
                self.world.checker.fail(f"pod {pod['metadata']['name']} needs {wanted['key']}, which does not exist")

    def _upload(self, pod: Object) -> None:
        for status in pod["status"].get("initContainerStatuses") or ():
            report = json.loads(status["state"]["terminated"]["message"])
            keys = {f"{report['at']}/{name}" for name in report["files"]} | set(report.get("log", ())[:1])
            keys -= self.uploaded
            self.objects |= keys
            self.uploaded |= keys


async def artifacts(world: World) -> None:
    """Runs that need artifacts of others, which are deleted early; at the end, all runs are deleted, and then all artifacts."""
    random = world.random("artifacts")
    store = Store(world, random)
    world.script = store.script
    world.begin()
    for name, spec in (("makes", MAKES), ("uses", USES)):
        world.create("Workflow", name, spec)
    first = [f"make{i}" for i in range(6)]
    for name in first:
        world.create("WorkflowRun", name, {"workflow": {"name": "makes"}})
    store.broken.add("use")
    for i in range(3):
        await asyncio.sleep(random.uniform(0, 3))
        world.create("WorkflowRun", f"waits{i}", {"inline": WAITS})
        world.create("WorkflowRun", f"parent{i}", {"inline": PARENT})
        world.create("WorkflowRun", f"chain{i}", {"inline": CHAIN})
    await world.trouble(60)
    await world.calm(150)
    for i, name in enumerate(first):
        output = world.run(name)["status"]["output"]
        world.create("WorkflowRun", f"used{i}", {"inline": WAITS if i % 2 else USES, "input": output})
        _delete(world, name, random)
    for name in [name for name in world.runs() if "-make-" in name]:  # children whose parents wait
        _delete(world, name, random)
    await world.trouble(60)
    store.broken.clear()
    await world.rest()
    retried = [name for name, run in world.runs().items() if run["status"]["phase"] == "Failed"]
    for name in retried:
        world.operate(f"retry-{name}"[:60], name, retry={})
        _delete(world, name, random, earliest=20)
    await world.trouble(40)
    await world.rest()
    await _clear(world, store)


def _delete(world: World, name: str, random: Random, earliest: float = 1) -> None:
    world.checker.named_again.add(name)
    world.loop.call_at(world.loop.time() + random.uniform(earliest, 60), world.delete, "workflowruns", name)


async def _clear(world: World, store: Store) -> None:
    """Delete all runs while the store is down, and check that all artifacts are deleted when it is not."""
    store.down = True
    for name, run in world.runs().items():
        if run["status"]["phase"] not in {"Completed", "ContinuedAsNew", "Failed"}:
            world.checker.fail(f"{name} is {run['status']['phase']}")
        world.delete("workflowruns", name)
        world.checker.named_again.add(name)
    await world.trouble(400)
    await asyncio.sleep(200)
    store.down = False
    await world.calm(world.loop.time() + _COLLECTED_SECONDS)
    if store.objects:
        world.checker.fail(f"artifacts are left: {sorted(store.objects)[:5]}")
    sets = [each["metadata"]["name"] for each in world.server.of("artifactsets")]
    if sets or len(store.uploaded) < 12:
        world.checker.fail(f"ArtifactSets are left: {sets[:5]}; {len(store.uploaded)} artifacts were uploaded")
    await world.rest()
