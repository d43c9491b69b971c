"""Claims of workspaces: created once, shared by the pods of a run, taken over by a retry, released when the run closes.

The scenario `workspaces` injects all faults: see test_seeds.py.
"""

import asyncio
from typing import Any

import pytest

from perdure.simulation.cluster.apiserver import Request
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import ObjectKey
from simulated.scenarios.limits import root_failure
from simulated.scenarios.workspaces import TEMPLATE, Claims, flow
from simulated.world import Setting, World, simulate

_CALM = Setting(seed=1, faults=0, kills=0)


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
        world.create("WorkflowRun", "good", flow("one", "two"))
        world.create("WorkflowRun", "bad", flow("one", "broken"))
        world.create("WorkflowRun", "kept", flow("one", retention={"onSuccess": "Keep"}))
        world.create("WorkflowRun", "gone", flow("broken", retention={"onFailure": "Delete"}))
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
        run = flow("one")
        run["inline"]["activities"][0]["retryPolicy"] = {"exponential": {"initialInterval": "1s"}}
        world.create("WorkflowRun", "good", run)
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
        world.create("WorkflowRun", "build", flow("first", "second"))
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


def test_a_retry_owns_the_claim_before_it_needs_it() -> None:
    async def scenario(world: World) -> None:
        claims = Claims(world)
        world.script = _fails("second")
        world.begin()
        run = flow("first", "second")
        run["inline"]["steps"].insert(1, {"name": "pause", "needs": [], "sleep": {"duration": "60s"}})
        run["inline"]["steps"][2]["needs"] = ["first", "pause"]
        world.create("WorkflowRun", "build", run)
        await world.rest()
        world.script = lambda _: ContainerExit(after=2)
        world.operate("again", "build", retry={"from": ["pause"]})
        await asyncio.sleep(10)
        world.delete("workflowruns", "build")
        world.checker.named_again.add("build")
        await world.rest()
        (retry,) = world.runs()
        assert claims.used[retry] == claims.used["build"]
        assert len(claims.created) == 1

    assert simulate(scenario, _CALM).violations == []


def test_a_retry_is_refused_when_the_files_of_kept_steps_are_gone_and_repeats_the_named_writers() -> None:
    """argo-workflows#4275: a retry used the volume of the completed workflow, which had been deleted."""

    async def scenario(world: World) -> None:
        claims = Claims(world)
        claims.expect("write", "read", "last")
        world.begin()
        world.create("WorkflowRun", "files", flow("write", "read", "last"))
        await world.rest()
        assert claims.left == {}
        world.operate("from-read", "files", retry={"from": ["read"]})
        world.operate("reset-it", "files", reset={"eventId": 4})  # after `write`
        await asyncio.sleep(5)
        lost = "the PersistentVolumeClaim of workspace `files` is gone, and with it the files of step `write`, which"
        for name in ("from-read", "reset-it"):
            operation = world.server.get(ObjectKey("operations", "default", name))
            (condition,) = [each for each in operation["status"]["conditions"] if each["status"] == "True"]
            assert condition["reason"] == "WorkspaceLost"
            assert condition["message"].startswith(f"{lost} would not run again; retry the run")
        assert list(world.runs()) == ["files"]
        world.operate("from-write", "files", retry={"from": ["write"]})
        await world.rest()
        (retry,) = [name for name in world.runs() if name != "files"]
        assert world.run(retry)["status"]["phase"] == "Completed"

    assert simulate(scenario, _CALM).violations == []


def test_a_retry_needs_no_files_if_no_repeated_step_mounts_the_workspace() -> None:
    async def scenario(world: World) -> None:
        Claims(world)
        world.begin()
        run = flow("write", "notify")
        del run["inline"]["activities"][1]["workspaces"]
        world.create("WorkflowRun", "files", run)
        await world.rest()
        world.operate("again", "files", retry={"from": ["notify"]})
        await world.rest()
        assert [each["status"]["phase"] for each in world.runs().values()] == ["Completed", "Completed"]

    assert simulate(scenario, _CALM).violations == []


def test_a_step_that_the_old_run_never_started_fails_without_the_files_of_kept_steps() -> None:
    """The retry does not know yet that `last` will mount the workspace."""

    async def scenario(world: World) -> None:
        claims = Claims(world)
        claims.expect("write", "last")
        world.script = _fails("check")
        world.begin()
        run = flow("write", "check", "last", retention={"onFailure": "Delete"})
        del run["inline"]["activities"][1]["workspaces"]
        world.create("WorkflowRun", "files", run)
        await world.rest()
        world.script = lambda _: ContainerExit(after=2)
        world.operate("again", "files", retry={})
        await world.rest()
        (retry,) = [name for name in world.runs() if name != "files"]
        failure = root_failure(world, retry)
        assert failure["type"] == "WorkspaceLost"
        assert "the files of step `write`" in failure["message"]
        assert len(claims.created) == 1
        world.operate("once-more", retry, retry={"from": ["write"]})
        await world.rest()
        assert sorted(each["status"]["phase"] for each in world.runs().values()) == ["Completed", "Failed", "Failed"]

    assert simulate(scenario, _CALM).violations == []


def test_an_open_run_whose_claim_is_deleted_fails_after_a_step_has_written_to_it() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        run = flow("write", "read")
        run["inline"]["steps"].insert(1, {"name": "pause", "sleep": {"duration": "60s"}})
        world.create("WorkflowRun", "files", run)
        await asyncio.sleep(30)
        (claim,) = world.server.of("persistentvolumeclaims")
        world.delete("persistentvolumeclaims", claim["metadata"]["name"])
        await world.rest()
        assert root_failure(world, "files")["type"] == "WorkspaceLost"

    assert simulate(scenario, _CALM).violations == []


@pytest.mark.parametrize("collected", [False, True], ids=["owned", "deleted"])
def test_a_retry_whose_run_is_deleted_meanwhile_does_not_start_without_the_files(*, collected: bool) -> None:
    """The retry has read the history already. Whether it becomes an owner of the claim before the claim is deleted varies."""

    async def scenario(world: World) -> None:
        claims = Claims(world)
        world.script = _fails("second")
        world.begin()
        world.create("WorkflowRun", "build", flow("first", "second"))
        await world.rest()
        (claim,) = claims.created

        def overtake(request: Request) -> None:
            if request.method == "GET" and request.url.endswith(f"/{claim}") and len(world.runs()) > 1:
                world.delete("workflowruns", "build")
                if collected:
                    world.delete("persistentvolumeclaims", claim)

        world.server.interceptors.append(overtake)
        world.checker.named_again.add("build")
        world.operate("again", "build", retry={})
        await world.rest()
        (retry,) = world.runs()
        status = world.run(retry)["status"]
        assert status["phase"] == "Failed"
        assert status["failure"]["message"] == "WorkflowRun `build` was deleted before it could be reset"
        assert claims.created == [claim]
        assert list(claims.left) == ([] if collected else [claim])

    assert simulate(scenario, _CALM).violations == []


def test_a_claim_of_another_client_is_not_changed() -> None:
    async def scenario(world: World) -> None:
        claims = Claims(world)
        world.begin()
        world.create("WorkflowRun", "first", flow("one"))
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
        world.create("WorkflowRun", "run", flow("one", persistentVolumeClaim={"claimName": "shared"}))
        await asyncio.sleep(10)
        (activity,) = world.run("run")["status"]["state"]["activities"].values()
        wanted = "workspace `files`: there is no PersistentVolumeClaim `shared` in namespace `default`"
        assert activity["waitingReason"] == wanted
        world.server.create("persistentvolumeclaims", {"metadata": {"name": "shared"}, "spec": TEMPLATE["spec"]})
        await world.rest()
        assert claims.used == {"run": {"shared"}}
        assert list(claims.left) == ["shared"]
        assert world.run("run")["status"]["phase"] == "Completed"

    assert simulate(scenario, _CALM).violations == []
