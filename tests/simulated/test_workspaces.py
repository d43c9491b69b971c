"""Claims of workspaces: created once, shared by the pods of a run, taken over by a retry, released when the run closes."""

import asyncio
from typing import Any

import pytest

from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.registry import Write
from perdure.simulation.cluster.storage import ObjectKey
from simulated.world import Setting, World, simulate

_CALM = Setting(seed=1, faults=0, kills=0)
_TEMPLATE = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
_ONCE = {"exponential": {"initialInterval": "1s", "maximumAttempts": 1}}


def _flow(*steps: str, retention: dict[str, str] | None = None, **workspace: Any) -> dict[str, Any]:
    given = {"name": "files", **(workspace or {"volumeClaimTemplate": _TEMPLATE})}
    if retention is not None:
        given["retention"] = retention
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
    return {"inline": {"workspaces": [given], "activities": activities, "steps": called}}


class Claims:
    """Which claims were created and deleted, and which pods used them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.created: list[str] = []
        self.used: dict[str, set[str]] = {}
        """By run, the claims that its pods mount."""
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        if write.key.plural == "persistentvolumeclaims" and write.type == "ADDED":
            self.created.append(write.key.name)
        if write.key.plural == "pods" and write.type == "ADDED":
            meta = write.after["metadata"]
            for volume in write.after["spec"]["volumes"]:
                if "persistentVolumeClaim" in volume:
                    claim = volume["persistentVolumeClaim"]["claimName"]
                    self.used.setdefault(meta["annotations"]["perdure.dev/run"], set()).add(claim)
                    if ObjectKey("persistentvolumeclaims", "default", claim) not in self.world.server.objects:
                        self.world.checker.fail(f"pod {write.key.name} mounts {claim}, which does not exist")

    @property
    def left(self) -> dict[str, dict[str, Any]]:
        """Those that exist, by name."""
        return {each["metadata"]["name"]: each for each in self.world.server.of("persistentvolumeclaims")}


def _fails(name: str) -> Any:
    def script(pod: dict[str, Any]) -> ContainerExit:
        failing = pod["metadata"]["labels"]["perdure.dev/activity"] == name
        return ContainerExit(after=2, code=1 if failing else 0)

    return script


def test_a_claim_is_deleted_after_success_and_kept_after_failure() -> None:
    async def scenario(world: World) -> None:
        claims = Claims(world)
        world.script = _fails("broken")
        world.begin()
        world.create("WorkflowRun", "good", _flow("one", "two"))
        world.create("WorkflowRun", "bad", _flow("one", "broken"))
        world.create("WorkflowRun", "kept", _flow("one", retention={"onSuccess": "Keep"}))
        world.create("WorkflowRun", "gone", _flow("broken", retention={"onFailure": "Delete"}))
        await world.rest()
        assert len(claims.created) == 4
        assert {name: len(used) for name, used in claims.used.items()} == {"good": 1, "bad": 1, "kept": 1, "gone": 1}
        assert set(claims.left) == claims.used["bad"] | claims.used["kept"]
        untils = {each["metadata"]["labels"]["perdure.dev/stays-until"] for each in claims.left.values()}
        assert untils == {"run-deleted"}
        for name in ("bad", "kept"):
            world.delete("workflowruns", name)
            world.checker.named_again.add(name)
        await asyncio.sleep(10)
        assert claims.left == {}

    assert simulate(scenario, _CALM).violations == []


def test_pods_that_have_mounted_a_deleted_claim_are_deleted_soon() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        failed = False

        def script(_pod: dict[str, Any]) -> ContainerExit:
            nonlocal failed
            failed, before = True, failed
            return ContainerExit(after=2, code=0 if before else 1)

        world.script = script
        flow = _flow("one")
        flow["inline"]["activities"][0]["retryPolicy"] = {"exponential": {"initialInterval": "1s"}}
        world.create("WorkflowRun", "good", flow)
        await asyncio.sleep(60)
        kept = [*world.server.of("pods")]
        assert len(kept) == 2, "the failed attempt and the one that succeeded"
        assert all("perdure.dev/expires" in pod["metadata"]["labels"] for pod in kept)
        await asyncio.sleep(400)
        assert [*world.server.of("pods")] == []
        await world.rest()

    assert simulate(scenario, _CALM).violations == []


def test_a_retry_continues_with_the_files() -> None:
    async def scenario(world: World) -> None:
        claims = Claims(world)
        world.script = _fails("second")
        world.begin()
        world.create("WorkflowRun", "build", _flow("first", "second"))
        await world.rest()
        (claim,) = claims.created
        world.script = lambda _: ContainerExit(after=2)
        world.operate("again", "build", retry={})
        await asyncio.sleep(8)
        (retry,) = [name for name in world.runs() if name != "build"]
        meta = claims.left[claim]["metadata"]
        assert [owner["name"] for owner in meta["ownerReferences"]] == ["build", retry]
        assert meta["labels"]["perdure.dev/run-id"] == world.run(retry)["metadata"]["uid"]
        world.delete("workflowruns", "build")
        world.checker.named_again.add("build")
        await asyncio.sleep(1)
        assert claim in claims.left, "the retry owns it too"
        await world.rest()
        assert claims.used == {"build": {claim}, retry: {claim}}
        assert world.run(retry)["status"]["phase"] == "Completed"
        assert claims.left == {}
        assert claims.created == [claim]

    assert simulate(scenario, _CALM).violations == []


def test_a_claim_of_another_client_is_left_alone() -> None:
    async def scenario(world: World) -> None:
        claims = Claims(world)
        world.begin()
        world.create("WorkflowRun", "first", _flow("one"))
        await world.rest()
        (name,) = claims.created
        run = world.run("first")["metadata"]["uid"]
        foreign = {
            "metadata": {
                "name": name,
                "labels": {
                    "perdure.dev/run-id": run,
                    "perdure.dev/workspace": "files",
                    "perdure.dev/stays-until": "run-closed",
                },
            }
        }
        world.server.create("persistentvolumeclaims", foreign)
        await asyncio.sleep(100)
        assert name in claims.left, "it names no run as its owner"

    assert simulate(scenario, _CALM).violations == []


def test_an_attempt_waits_for_a_claim_that_does_not_exist_yet() -> None:
    async def scenario(world: World) -> None:
        claims = Claims(world)
        world.begin()
        world.create("WorkflowRun", "run", _flow("one", persistentVolumeClaim={"claimName": "shared"}))
        await asyncio.sleep(10)
        (activity,) = world.run("run")["status"]["state"]["activities"].values()
        wanted = "workspace `files`: there is no PersistentVolumeClaim `shared` in namespace `default`"
        assert activity["waitingReason"] == wanted
        world.server.create("persistentvolumeclaims", {"metadata": {"name": "shared"}, "spec": _TEMPLATE["spec"]})
        await world.rest()
        assert claims.used == {"run": {"shared"}}
        assert list(claims.left) == ["shared"]
        assert world.run("run")["status"]["phase"] == "Completed"

    assert simulate(scenario, _CALM).violations == []


@pytest.mark.parametrize("operators", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_each_run_has_one_claim_whoever_is_killed(seed: int, operators: int) -> None:
    async def scenario(world: World) -> None:
        claims = Claims(world)
        random = world.random("workspaces")
        world.script = lambda pod: ContainerExit(
            after=random.uniform(0.5, 6),
            code=int(pod["metadata"]["labels"]["perdure.dev/activity"] == "broken"),
        )
        world.begin()
        good, bad = [f"good{i}" for i in range(4)], [f"bad{i}" for i in range(4)]
        for name in (*good, *bad):
            await asyncio.sleep(random.uniform(0, 3))
            world.create("WorkflowRun", name, _flow("one", "two", "broken" if name in bad else "three"))
        await world.trouble(60)
        await world.calm(200)
        await world.rest()
        if any(len(claims.used[name]) != 1 for name in (*good, *bad)):
            world.checker.fail(f"runs used several claims: {claims.used}")
        left = {claim for name in bad for claim in claims.used[name]}
        if set(claims.left) != left:
            world.checker.fail(f"{sorted(claims.left)} are left, and should be {sorted(left)}")

    setting = Setting(seed=seed, operators=operators, kills=3)
    assert simulate(scenario, setting).violations == []
