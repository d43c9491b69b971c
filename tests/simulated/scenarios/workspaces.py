"""Runs that share files in workspaces, and a check at every write that their claims exist as long as they are needed."""

import asyncio
from random import Random
from typing import Any

from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import ObjectKey, Write
from simulated.world import World

TEMPLATE = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
_ONCE = {"exponential": {"initialInterval": "1s", "maximumAttempts": 1}}


def flow(*steps: str, retention: dict[str, str] | None = None, **workspace: Any) -> dict[str, Any]:
    """A run whose steps have activities of the same name, which mount the workspace."""
    definition = {"name": "files", **(workspace or {"volumeClaimTemplate": TEMPLATE})}
    if retention is not None:
        definition["retention"] = retention
    activities = [
        {
            "name": step,
            "container": {"image": "i"},
            "startToCloseTimeout": "5m",
            "retryPolicy": _ONCE,
            "workspaces": [{"name": "files"}],
        }
        for step in steps
    ]
    called = [{"name": step, "activity": {"name": step}} for step in steps]
    return {"inline": {"workspaces": [definition], "activities": activities, "steps": called}}


class Claims:
    """Which claims were created, and which pods used them; checks that claims are deleted only if no run needs them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.created: list[str] = []
        self.used: dict[str, set[str]] = {}
        """By run, the claims that its pods mount."""
        self.files: dict[str, set[str]] = {}
        """By claim, the steps that have written to it."""
        self.needs: dict[str, set[str]] = {}
        """By step, those whose files it reads."""
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        if write.key.plural == "persistentvolumeclaims" and write.type == "ADDED":
            # A retry from a step that nothing precedes begins on an empty volume.
            needed = [name for name in self._needed_by(write) if "-retry-" not in name]
            if write.key.name in self.created and needed:
                self.world.checker.fail(f"{write.actor} creates {write.key.name} again, which {needed} needs")
            self.created.append(write.key.name)
        if (
            write.key.plural == "persistentvolumeclaims"
            and write.type == "DELETED"
            and (needed := self._needed_by(write))
        ):
            self.world.checker.fail(f"{write.actor} deletes {write.key.name}, which {needed} needs")
        if write.key.plural == "persistentvolumeclaims" and write.type == "DELETED":
            self.files.pop(write.key.name, None)
        if write.key.plural == "pods" and write.type == "ADDED":
            self._check_pod(write)
        before = (write.before or {}).get("status") or {}
        ends = write.key.plural == "pods" and write.after["status"].get("phase") == "Succeeded" != before.get("phase")
        if ends:
            for claim in _claims_of(write):
                self.files.setdefault(claim, set()).add(_step_of(write))

    def _needed_by(self, write: Write) -> list[str]:
        """The open runs that own a claim. A request that was delayed may create it again for a run that has closed."""
        owners = {owner["uid"] for owner in write.after["metadata"].get("ownerReferences") or ()}
        return [
            run["metadata"]["name"]
            for run in self.world.server.of("workflowruns")
            if run["metadata"]["uid"] in owners and not (run.get("status") or {}).get("completionTime")
        ]

    def _check_pod(self, write: Write) -> None:
        run = write.after["metadata"]["annotations"]["perdure.dev/run"]
        for claim in _claims_of(write):
            missing = self.needs.get(_step_of(write), set()) - self.files.get(claim, set())
            if missing:
                self.world.checker.fail(f"pod {write.key.name} runs without the files of {sorted(missing)} in {claim}")
            self.used.setdefault(run, set()).add(claim)
            if ObjectKey("persistentvolumeclaims", "default", claim) not in self.world.server.objects:
                self.world.checker.fail(f"pod {write.key.name} mounts {claim}, which does not exist")

    def expect(self, *steps: str) -> None:
        """Check that each of these steps finds the files of those before it."""
        self.needs |= {step: set(steps[:i]) for i, step in enumerate(steps)}

    @property
    def left(self) -> dict[str, dict[str, Any]]:
        """Those that exist, by name."""
        return {each["metadata"]["name"]: each for each in self.world.server.of("persistentvolumeclaims")}


def _claims_of(write: Write) -> list[str]:
    """The claims that a pod mounts."""
    volumes = write.after["spec"]["volumes"]
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def _step_of(write: Write) -> str:
    return str(write.after["metadata"]["labels"]["perdure.dev/activity"])


async def workspaces(world: World) -> None:
    """Runs that share files; some fail, some are retried, also without their claims, and some are deleted in the end."""
    claims, random = Claims(world), world.random("workspaces")
    claims.expect("one", "two", "broken")
    claims.expect("one", "two", "three")
    repaired = False

    def script(pod: dict[str, Any]) -> ContainerExit:
        fails = pod["metadata"]["labels"]["perdure.dev/activity"] == "broken" and not repaired
        return ContainerExit(after=random.uniform(0.5, 6), code=int(fails))

    world.script = script
    world.begin()
    good, bad = [f"good{i}" for i in range(6)], [f"bad{i}" for i in range(9)]
    for name in random.sample([*good, *bad], 15):
        await asyncio.sleep(random.uniform(0, 2))
        world.create("WorkflowRun", name, flow("one", "two", "broken" if name in bad else "three"))
    await world.trouble(60)
    await world.calm(200)
    await world.rest()
    repaired = True
    for name in bad[:6]:
        world.operate(f"retry-{name}", name, retry={})
    for name, step in zip(good[:4], ("one", "two", "three", "three"), strict=True):
        world.operate(f"retry-{name}", name, retry={"from": [step]})
    for name in (*bad[:2], bad[6]):  # also runs whose retries use the same claim
        world.checker.named_again.add(name)
        _delete_later(world, random, name)
    await world.trouble(40)
    await world.calm(world.loop.time() + 100)
    await world.rest()
    _check(world, claims, kept=bad[7:])


def _delete_later(world: World, random: Random, name: str) -> None:
    world.loop.call_at(world.loop.time() + random.uniform(5, 60), world.delete, "workflowruns", name)


def _check(world: World, claims: Claims, kept: list[str]) -> None:
    for name, used in claims.used.items():
        original = name.partition("-retry-")[0]
        if used != claims.used[original] or len(used) != 1:
            world.checker.fail(f"{name} used {sorted(used)}, and {original} {sorted(claims.used[original])}")
    left = {claim for name in kept for claim in claims.used[name]}
    refused = {
        run["metadata"]["uid"]
        for name, run in world.runs().items()
        if "-retry-" in name and run["status"]["phase"] == "Failed"  # its run was deleted before it started
    }
    left |= {name for name, each in claims.left.items() if each["metadata"]["labels"]["perdure.dev/run-id"] in refused}
    if set(claims.left) != left:
        world.checker.fail(f"{sorted(claims.left)} are left, and should be {sorted(left)}")
