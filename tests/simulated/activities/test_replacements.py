"""When the next attempt of an activity gets its pod, if the container of the previous one runs on.

The first test is what kubernetes/kubernetes#115844 reports of Jobs, which is why they have `podReplacementPolicy`. The scenario
`replacements` adds faults: see test_seeds.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.simulation.cluster.kubelet import ContainerExit, grace_seconds
from perdure.simulation.cluster.store import Object, Write
from simulated.scenarios.definitions import step
from simulated.scenarios.limits import phases, restart, succeeded
from simulated.scenarios.replacements import LOST_SECONDS, stubborn
from simulated.world import Setting, World, simulate

_CALM = Setting(seed=1, faults=0, kills=0)
_TIMEOUT, _GRACE, _BACKOFF, _SILENCE = 8, 20, 1, 30
"""Seconds: of the activities, of their pods, of the first retry, and of a node that does not report."""


class Pods:
    """When the pods of attempts are created, and when they have ended, in seconds."""

    def __init__(self, world: World, *, lost: bool = False) -> None:
        """The first attempt of each activity hangs, and ignores SIGTERM; `lost`: its node is lost as well."""
        self.created: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        world.script = lambda pod: ContainerExit(after=None if _is_first(pod) else 2)
        world.stops = lambda pod: grace_seconds(pod) + LOST_SECONDS * lost if _is_first(pod) else None
        world.server.observers.append(self._observe, "pods")

    def _observe(self, write: Write) -> None:
        name = write.key.name
        if write.type == "ADDED":
            self.created[name] = write.time
        elif write.after["status"]["phase"] in {"Succeeded", "Failed"}:
            self.ended.setdefault(name, write.time)

    def overlap(self, run: str = "run") -> float:
        """How long the containers of the first two attempts of a run's only activity ran at the same time, in seconds."""
        return self.ended[f"{run}-2-1"] - self.created[f"{run}-2-2"]


def _is_first(pod: Object) -> bool:
    return bool(pod["metadata"]["annotations"]["perdure.dev/attempt"] == "1")


def _run(**more: Any) -> Object:
    return {"inline": {"activities": [stubborn("hang", **more)], "steps": [step("hang", "hang")]}}


def _simulate(scenario: Callable[[World], Awaitable[None]], setting: Setting = _CALM) -> list[str]:
    return simulate(scenario, setting).violations


def test_the_next_attempt_waits_for_the_end_of_a_container_that_ignores_sigterm_and_the_run_says_so() -> None:
    async def scenario(world: World) -> None:
        pods = Pods(world)
        world.begin()
        world.create("WorkflowRun", "run", _run())
        await asyncio.sleep(_TIMEOUT + 12)
        condition = succeeded(world, "run")
        assert (condition["status"], condition["reason"]) == ("Unknown", "AttemptNotStarting")
        waits = "pod run-2-1 of an earlier attempt is still being stopped on node node, until "
        assert condition["message"].startswith(f"step `hang`: attempt 2 does not start: {waits}")
        (pending,) = world.run("run")["status"]["pendingActivities"]
        assert (pending["attempt"], pending["state"]) == (2, "Scheduled")
        assert pending["waitingReason"].startswith(waits)
        await world.rest()
        assert -2 < pods.overlap() < 0
        assert phases(world) == {"run": "Completed"}

    assert _simulate(scenario) == []


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({}, ["run-2-1"]),
        ({"podRetention": {"onFailure": "Delete"}}, []),
        ({"podReplacementPolicy": "TerminatingOrFailed"}, ["run-2-1"]),
    ],
    ids=["kept by default", "deleted", "replaced without waiting"],
)
def test_the_pod_of_an_attempt_that_has_timed_out_is_kept_with_its_log(spec: Object, kept: list[str]) -> None:
    async def scenario(world: World) -> None:
        Pods(world)
        world.checker.attempts.may_overlap = {"hang"}
        world.begin()
        world.create("WorkflowRun", "run", _run(**spec))
        await world.rest()
        assert _kept(world) == kept
        if "run-2-1" in kept:
            assert _pod(world, "run-2-1")["status"]["reason"] == "DeadlineExceeded"

    assert _simulate(scenario) == []


@pytest.mark.parametrize("kill", [False, True])
def test_the_pod_of_a_run_that_has_timed_out_is_kept_though_the_operator_restarts_while_it_stops(kill: bool) -> None:
    async def scenario(world: World) -> None:
        Pods(world)
        world.begin()
        world.create("WorkflowRun", "run", {**_run(startToCloseTimeout="5m"), "runTimeout": "10s"})
        await asyncio.sleep(15)
        assert phases(world) == {"run": "TimedOut"}
        assert _pod(world, "run-2-1")["status"]["phase"] == "Running"
        if kill:
            await restart(world)
        await world.rest()
        assert _kept(world) == ["run-2-1"]

    assert _simulate(scenario) == []


def test_the_pod_of_a_run_that_has_timed_out_is_deleted_if_its_node_is_lost() -> None:
    async def scenario(world: World) -> None:
        Pods(world, lost=True)
        world.begin()
        world.create("WorkflowRun", "run", {**_run(startToCloseTimeout="5m"), "runTimeout": "10s"})
        await asyncio.sleep(15 + _GRACE + _SILENCE)
        assert "deletionTimestamp" in _pod(world, "run-2-1")["metadata"]
        await world.rest()
        assert _kept(world) == []

    assert _simulate(scenario) == []


def _kept(world: World) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in world.server.of("pods"))


def _pod(world: World, name: str) -> Object:
    (found,) = [pod for pod in world.server.of("pods") if pod["metadata"]["name"] == name]
    return found


@pytest.mark.parametrize("policy", ["TerminatingOrFailed", "Failed"])
def test_a_policy_as_in_a_job_chooses_whether_the_next_attempt_waits(policy: str) -> None:
    async def scenario(world: World) -> None:
        pods = Pods(world)
        world.checker.attempts.may_overlap = {"hang"} if policy == "TerminatingOrFailed" else set()
        world.begin()
        world.create("WorkflowRun", "run", _run(podReplacementPolicy=policy))
        await world.rest()
        waited = pods.created["run-2-2"] - pods.created["run-2-1"] - _TIMEOUT
        assert waited == pytest.approx(_BACKOFF if policy == "TerminatingOrFailed" else _GRACE, abs=3)
        assert phases(world) == {"run": "Completed"}

    assert _simulate(scenario) == []


def test_an_attempt_that_a_client_fails_while_it_waits_does_not_let_the_next_one_overlap() -> None:
    async def scenario(world: World) -> None:
        pods = Pods(world)
        world.begin()
        world.create("WorkflowRun", "run", _run())
        await asyncio.sleep(_TIMEOUT + 6)
        world.operate("fail", "run", completeActivity={"step": "hang", "failure": {"type": "Asked", "message": "no"}})
        await world.rest()
        assert "run-2-2" not in pods.created
        assert pods.created["run-2-3"] > pods.ended["run-2-1"]

    assert _simulate(scenario) == []


@pytest.mark.parametrize("moment", [5, _TIMEOUT + 6], ids=["while it runs", "while the next one waits"])
def test_an_attempt_after_a_reset_of_the_activity_does_not_overlap(moment: int) -> None:
    """kubernetes#115844 for attempts that `reset-activity` starts from 1 again."""

    async def scenario(world: World) -> None:
        pods, later = Pods(world), list[float]()

        def observe(write: Write) -> None:
            if write.type == "ADDED" and write.key.name != "run-2-1":
                later.append(write.time)

        world.server.observers.append(observe, "pods")
        world.begin()
        world.create("WorkflowRun", "run", _run())
        await asyncio.sleep(moment)
        world.operate("reset", "run", resetActivity={"step": "hang"})
        await world.rest()
        assert phases(world) == {"run": "Completed"}
        assert later
        assert min(later) > pods.ended["run-2-1"]

    assert _simulate(scenario) == []


def test_an_attempt_waits_also_after_a_restart_of_the_operator() -> None:
    async def scenario(world: World) -> None:
        pods = Pods(world)
        world.begin()
        world.create("WorkflowRun", "run", _run())
        await asyncio.sleep(_TIMEOUT + 6)
        await restart(world)
        await world.rest()
        assert -2 < pods.overlap() < 0

    assert _simulate(scenario) == []


def test_a_pod_that_a_person_deletes_is_followed_by_the_next_one_when_its_container_has_ended() -> None:
    async def scenario(world: World) -> None:
        pods = Pods(world)
        world.begin()
        world.create("WorkflowRun", "run", _run(startToCloseTimeout="5m"))
        await asyncio.sleep(5)
        world.delete("pods", "run-2-1")
        await world.rest()
        assert -3 < pods.overlap() < 0

    assert _simulate(scenario) == []


def test_the_attempts_overlap_on_a_lost_node_when_it_has_not_reported_for_30_seconds() -> None:
    async def scenario(world: World) -> None:
        pods = Pods(world, lost=True)
        world.begin()
        world.create("WorkflowRun", "run", _run())
        await world.rest()
        waited = pods.created["run-2-2"] - pods.created["run-2-1"] - _TIMEOUT
        assert waited == pytest.approx(_GRACE + _SILENCE, abs=3)
        assert pods.overlap() == pytest.approx(LOST_SECONDS - _SILENCE, abs=3)

    assert _simulate(scenario) == []


@pytest.mark.parametrize("how", ["start", "reset"])
@pytest.mark.parametrize("policy", ["TerminatingOrFailed", "Failed"])
def test_a_run_that_replaces_another_waits_for_its_containers_unless_they_may_overlap(how: str, policy: str) -> None:
    async def scenario(world: World) -> None:
        pods, spec = Pods(world), {"workflowId": "id", **_run(startToCloseTimeout="5m", podReplacementPolicy=policy)}
        world.begin()
        world.create("WorkflowRun", "run", spec)
        await asyncio.sleep(5)
        if how == "reset":
            world.operate("again", "run", reset={"to": "FirstWorkflowTask"})
        else:
            world.create("WorkflowRun", "new", {**spec, "workflowIdConflictPolicy": "TerminateExisting"})
        await asyncio.sleep(10)
        assert phases(world)["run"] == "Terminated"
        (new,) = phases(world).keys() - {"run"}
        if policy == "Failed":
            waits = (
                "pod run-2-1 of `run`, the previous run of the workflow ID, is still being stopped on node node, until "
            )
            condition = succeeded(world, new)
            assert (condition["reason"], phases(world)[new]) == ("WorkflowIdInUse", "Pending")
            assert condition["message"].startswith(waits)
        world.operate("end", new, cancel={})  # its own first attempt hangs as well
        await world.rest()
        (first,) = [name for name in pods.created if name.startswith(f"{new}-")] or [""]
        assert bool(first) == (policy == "TerminatingOrFailed")

    assert _simulate(scenario) == []


def test_a_run_starts_when_the_container_of_the_run_that_it_replaces_has_ended() -> None:
    async def scenario(world: World) -> None:
        pods, spec = Pods(world), {"workflowId": "id", **_run(startToCloseTimeout="5m")}
        world.script = lambda pod: ContainerExit(after=None if pod["metadata"]["name"] == "run-2-1" else 2)
        world.begin()
        world.create("WorkflowRun", "run", spec)
        await asyncio.sleep(5)
        world.create("WorkflowRun", "new", {**spec, "workflowIdConflictPolicy": "TerminateExisting"})
        await world.rest()
        assert 0 < pods.created["new-2-1"] - pods.ended["run-2-1"] < 3
        assert phases(world) == {"run": "Terminated", "new": "Completed"}

    assert _simulate(scenario) == []


_MUTEX = [{"name": "mutex"}]


@pytest.mark.parametrize("holder", ["activity", "step", "run"])
def test_two_containers_never_run_under_a_limit_of_one_even_if_a_node_is_lost(holder: str) -> None:
    spec = _run(limits=_MUTEX) if holder == "activity" else _run()
    if holder == "step":
        spec["inline"]["steps"][0]["limits"] = _MUTEX
    elif holder == "run":
        spec["inline"]["limits"] = _MUTEX
    names = ("run-5-1", "run-5-2") if holder == "step" else ("run-2-1", "run-2-2")

    async def scenario(world: World) -> None:
        pods = Pods(world, lost=True)
        world.checker.attempts.exclusive = {"hang"}
        world.begin()
        world.create("WorkflowLimit", "mutex", {"capacity": 1})
        world.create("WorkflowRun", "run", spec)
        await asyncio.sleep(_TIMEOUT + _GRACE + _SILENCE + 15)
        message = succeeded(world, "run")["message"]
        assert f"node node does not report that pod {names[0]} of an earlier attempt has ended" in message
        assert "taint it with node.kubernetes.io/out-of-service" in message
        await world.rest()
        assert 0 < pods.created[names[1]] - pods.ended[names[0]] < 3
        assert phases(world) == {"run": "Completed"}

    assert _simulate(scenario) == []


def test_the_checker_sees_two_containers_of_one_step() -> None:
    async def scenario(world: World) -> None:
        Pods(world)
        world.begin()
        world.create("WorkflowRun", "run", _run(podReplacementPolicy="TerminatingOrFailed"))
        await world.rest()

    (violation,) = _simulate(scenario)
    assert "pods run-2-2: is created while the container of attempt 1 runs" in violation
