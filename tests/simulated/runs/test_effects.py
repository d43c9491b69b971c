"""The effects of the operator's parts while another client writes, or while watches lag."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from perdure.api import labels
from perdure.controller.dispatch.index import Index
from perdure.controller.expiry import KEPT_PODS, RetentionPolicies, delete_expired, remove_expired
from perdure.controller.fleet.shards import AllShards
from perdure.controller.reconcile.record import Record
from perdure.controller.retention import EndRecorded, NamespaceRetention
from perdure.frontend.core import Frontend
from perdure.frontend.settings import Settings
from perdure.frontend.transport.rpc import CallContext
from perdure.kube import client as kube
from perdure.kube.events import Recorder
from perdure.runtime.retention import Limits
from perdure.simulation.cluster.store import ObjectKey, Write
from simulated.loop import START
from simulated.place import KEY, URL, Place
from simulated.world import Result, Setting, World, simulate


def test_a_run_whose_ttl_is_extended_at_the_last_moment_is_kept(place: Place) -> None:
    def over(run: kube.Object) -> datetime:
        if "ttlSecondsAfterFinished" not in run["spec"]:
            place.edit()  # between the reading and the deletion
            return START
        return START + timedelta(hours=1)

    uid = place.server.get(KEY)["metadata"]["uid"]
    assert place.run(remove_expired(place.client, URL, uid, over)) == START + timedelta(hours=1)
    assert KEY in place.server.objects
    assert place.run(remove_expired(place.client, URL, uid, lambda _: START)) is None
    assert KEY not in place.server.objects


def test_a_confirmed_state_is_valid_for_half_a_second(place: Place) -> None:
    place.server.update(KEY, lambda obj: obj["status"].update(phase="Running"))

    async def play() -> None:
        record = Record(place.client, await place.client.get(URL))
        await record.confirm()
        await record.confirm()
        assert place.requests == ["GET", "GET"]
        await record.confirm(afresh=True)
        await asyncio.sleep(0.6)
        await record.confirm()
        assert place.requests == ["GET", "GET", "GET", "GET"]
        place.edit()
        await record.confirm()
        with pytest.raises(kube.ConflictError):
            await record.confirm(afresh=True)

    place.run(play())


def test_a_run_that_was_deleted_is_not_confirmed(place: Place) -> None:
    async def play() -> None:
        record = Record(place.client, await place.client.get(URL))
        place.server.delete(KEY)
        with pytest.raises(kube.ConflictError):
            await record.confirm()

    place.run(play())


# Objects that wait for the outcome of a run


def finished(place: Place, name: str, *, minutes: float = 10, **meta: Any) -> Any:
    """A run that closed a while ago and has expired."""
    place.server.create("workflowruns", {"metadata": {"name": name, **meta}, "spec": {"ttlSecondsAfterFinished": 0}})
    closed = (START - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    status = {"completionTime": closed, "phase": "Completed", "state": {"status": "Completed"}}
    return place.server.update(ObjectKey("workflowruns", "default", name), lambda obj: obj.update(status=status))


def by_parent(place: Place) -> tuple[Any, ObjectKey]:
    """A child whose parent has yet to record its end."""
    parent = place.server.create("workflowruns", {"metadata": {"name": "parent"}, "spec": {}})
    key = ObjectKey("workflowruns", "default", "parent")
    place.server.update(key, lambda obj: obj.update(status={"state": {"status": "Running", "children": {"5": {}}}}))
    tie = {"name": "parent", "workflowId": "parent", "runId": parent["metadata"]["uid"], "initiatedEventId": 5}
    return finished(place, "child", annotations={labels.PARENT_ANNOTATION: orjson.dumps(tie).decode()}), key


def by_schedule(place: Place) -> tuple[Any, ObjectKey]:
    """A run whose Schedule has yet to record its end."""
    schedule = place.server.create("schedules", {"metadata": {"name": "nightly"}, "spec": {}})
    key = ObjectKey("schedules", "default", "nightly")
    owner = {"apiVersion": labels.API_VERSION, "kind": "Schedule", "name": "nightly", "controller": True}
    tie = {"name": "nightly", "scheduledTime": "2026-11-21T00:00:00Z"}
    run = finished(
        place,
        "nightly-1",
        annotations={labels.SCHEDULED_BY_ANNOTATION: orjson.dumps(tie).decode()},
        ownerReferences=[owner | {"uid": schedule["metadata"]["uid"]}],
    )
    running = [{"name": "nightly-1", "runId": run["metadata"]["uid"]}]
    place.server.update(key, lambda obj: obj.update(status={"state": {"running": running}}))
    return run, key


def by_letter(place: Place) -> tuple[Any, ObjectKey]:
    """A run that re-drives a DeadLetter, which has not recorded its outcome yet."""
    letter = place.server.create("deadletters", {"metadata": {"name": "letter"}, "spec": {}})
    key = ObjectKey("deadletters", "default", "letter")
    status = {"redrives": 1, "conditions": [{"type": "Redriven", "status": "Unknown"}]}
    place.server.update(key, lambda obj: obj.update(status=status))
    marks = {"labels": {labels.DEAD_LETTER_LABEL: letter["metadata"]["uid"]}}
    marks |= {"annotations": {labels.DEAD_LETTER_ANNOTATION: "letter"}}
    return finished(place, "letter-redrive-1", **marks), key


def ended(obj: Any) -> None:
    """The end of the run is recorded."""
    state = obj["status"].get("state") or {}
    state.pop("children", None)
    state.pop("running", None)
    obj["status"]["conditions"] = [{"type": "Redriven", "status": "True"}]


WAITING = pytest.mark.parametrize("waiting", [by_parent, by_schedule, by_letter])


@WAITING
def test_an_expired_run_is_kept_until_its_outcome_is_recorded(place: Place, waiting: Any) -> None:
    async def play() -> None:
        run, other = waiting(place)
        key, uid = ObjectKey("workflowruns", "default", run["metadata"]["name"]), run["metadata"]["uid"]
        url = kube.path(kube.PERDURE, "default", "workflowruns", key.name)

        async def removed() -> bool:
            everywhere = EndRecorded(place.client).everywhere
            again = await remove_expired(place.client, url, uid, lambda _: START, everywhere)
            return again is None and key not in place.server.objects

        assert not await removed()
        place.server.update(other, ended)
        assert await removed()

    place.run(play())


@WAITING
def test_a_surplus_run_is_kept_until_its_outcome_is_recorded_with_any_watch_lag(place: Place, waiting: Any) -> None:
    async def play() -> None:
        run, other = waiting(place)
        finished(place, "younger", minutes=5)
        index = Index()
        for each in ("younger", run["metadata"]["name"]):  # no watch has shown the objects that wait
            index.directory.put(place.server.get(ObjectKey("workflowruns", "default", each)))
        recorder = Recorder(place.client, instance="test")
        retention = NamespaceRetention(
            place.client,
            recorder,
            index,
            Limits(runs=1),
            policies=RetentionPolicies(place.client),
            is_over=lambda _: True,
            holds=AllShards().holds,
        )
        await retention.enforce("default")
        assert ObjectKey("workflowruns", "default", run["metadata"]["name"]) in place.server.objects
        place.server.update(other, ended)
        await retention.enforce("default")
        assert ObjectKey("workflowruns", "default", run["metadata"]["name"]) not in place.server.objects
        assert ObjectKey("workflowruns", "default", "younger") in place.server.objects

    place.run(play())


def test_a_pod_whose_retention_is_extended_at_the_last_moment_is_kept(place: Place) -> None:
    key = ObjectKey("pods", "default", "pod")
    marks = {labels.RUN_ID_LABEL: "uid", labels.EXPIRES_LABEL: "1"}
    place.server.create("pods", {"metadata": {"name": "pod", "labels": marks}, "spec": {}})
    place.server.update(key, lambda pod: pod["status"].update(phase="Succeeded"))
    later = {labels.EXPIRES_LABEL: str(int((START + timedelta(hours=1)).timestamp()))}

    def give(line: str, _about: str) -> None:
        if line.startswith("GET"):  # it is listed
            place.server.update(key, lambda pod: pod["metadata"]["labels"].update(later))

    place.noted = give
    assert place.run(delete_expired(place.client, KEPT_PODS, "default", START)) == 0
    assert key in place.server.objects


# Runs that no watch has shown


def with_two_operators(scenario: Any) -> Result:
    return simulate(scenario, Setting(seed=1, operators=2, faults=0, kills=0))


def test_a_scheduled_run_unseen_by_a_lagging_watch_is_followed() -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "nap", {"steps": [{"name": "nap", "sleep": {"duration": "100s"}}]})
        await asyncio.sleep(10)
        world.operators[1].interrupt(1_000, "workflowruns")
        world.operators[1].interrupt(55, "schedules")  # until the other one has created a run and recorded that
        template = {"spec": {"workflow": {"name": "nap"}}}
        spec = {"intervals": [{"every": "30s"}], "overlapPolicy": "Skip", "workflowRunTemplate": template}
        world.create("Schedule", "napping", spec)
        await asyncio.sleep(130)
        world.edit("schedules", "napping", lambda obj: obj["spec"].update(paused=True))
        await asyncio.sleep(120)
        ends = {run["status"]["phase"] for run in world.runs().values()}
        if ends != {"Completed"}:
            world.checker.fail(f"the runs are {ends}")

    assert with_two_operators(scenario).violations == []


@pytest.mark.parametrize("policy", ["Terminate", "RequestCancel"])
def test_a_child_unseen_by_a_lagging_watch_is_closed_with_its_parent(policy: str) -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "nap", {"steps": [{"name": "nap", "sleep": {"duration": "10m"}}]})
        nap = {"name": "nap", "sleep": {"duration": "10s"}}
        child = {"workflow": {"name": "nap"}, "input": {}, "parentClosePolicy": policy}
        steps = [nap, {"name": "child", "childWorkflow": child}]
        world.create("WorkflowRun", "parent", {"inline": {"steps": steps}})
        await asyncio.sleep(10)
        first, second = world.operators
        second.interrupt(60, "workflowruns")  # then it sees the parent first, and the child a while later

        closed = asyncio.Event()

        def observe(write: Write) -> None:
            if write.key.name == "parent" and (write.after.get("status") or {}).get("completionTime"):
                closed.set()

        world.server.observers.append(observe)
        await asyncio.sleep(15)
        world.operate("end", "parent", terminate={})
        await closed.wait()
        world.operators.remove(first)
        await first.kill()
        await asyncio.sleep(300)
        ends = {name: run["status"]["phase"] for name, run in world.runs().items()}
        if ends.pop("parent") != "Terminated" or set(ends.values()) - {"Terminated", "Cancelled"} or not ends:
            world.checker.fail(f"the children are {ends}")

    assert with_two_operators(scenario).violations == []


@pytest.mark.parametrize("seed", [2, 3])
def test_only_one_run_opens_when_operations_reveal_several_runs_of_a_workflow_id(seed: int) -> None:
    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "nap", {"steps": [{"name": "nap", "sleep": {"duration": "100s"}}]})
        await asyncio.sleep(10)
        world.operators[0].interrupt(300, "workflowruns")
        for name in ("first", "second"):
            world.create("WorkflowRun", name, {"workflow": {"name": "nap"}, "workflowId": "nap"})
            world.operate(f"signal-{name}", name, signal={"name": "go", "input": {}})
        await asyncio.sleep(600)
        ends = sorted(run["status"]["phase"] for run in world.runs().values())
        if ends != ["Completed", "Failed"]:
            world.checker.fail(f"the runs are {ends}")

    assert simulate(scenario, Setting(seed=seed, faults=0, kills=0)).violations == []


# The frontend


def test_a_client_that_resets_a_run_waits_until_its_definition_is_compiled() -> None:
    answers: list[Any] = []

    async def scenario(world: World) -> None:
        world.begin()
        world.create("Workflow", "nap", {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]})
        world.create("WorkflowRun", "nap", {"workflow": {"name": "nap"}})
        await asyncio.sleep(30)
        await world.operators.pop().kill()  # the next one has compiled nothing
        operator = world.start()
        await operator.do(operator.manager.first_lists.wait())
        handlers = Frontend(operator.manager, Settings(authentication=False)).handlers()
        request = ResetWorkflowExecutionRequest(namespace="default", workflow_task_finish_event_id=2)
        request.workflow_execution.workflow_id = "nap"
        answers.append(await operator.do(handlers["ResetWorkflowExecution"](request, CallContext(60.0))))
        await asyncio.sleep(30)
        answers.append(sorted(run["status"]["phase"] for run in world.runs().values()))

    assert simulate(scenario, Setting(seed=1, faults=0, kills=0)).violations == []
    assert answers[0].run_id
    assert answers[1] == ["Completed", "Completed"]
