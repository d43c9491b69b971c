"""Flows on the operator: a worker with the sandbox of the SDK decides, and activities are pods."""

import asyncio
import json
import uuid
from datetime import date

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

import perdure.flow as pf
from perdure.api.labels import ATTEMPT_ANNOTATION, INPUT_ANNOTATION
from perdure.flow.manifests import Placement, workflow_of
from perdure.flow.serve import serve
from perdure.simulation.cluster.apiserver import Request
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from support.example_flows import asking, build, checks, jobs, nightly
from support.operator import in_memory


def run_pod(pod: Object) -> ContainerExit:
    """What `perdure.flow.pod` does in a pod: call the function with the input, and write its result."""
    meta = pod["metadata"]
    activity = jobs.activities[meta["labels"]["perdure.dev/activity"]]
    result = activity.run(json.loads(meta["annotations"][INPUT_ANNOTATION]))
    return ContainerExit(after=0.05, message=json.dumps(result))


async def test_a_flow_runs_in_the_sandbox_and_its_activities_in_pods() -> None:
    with in_memory(objects=[workflow_of(jobs, Placement(image="x", module="flows.py"))], pods=run_pod) as server:
        client = await Client.connect(server.address, namespace=server.namespace)
        stop = asyncio.Event()
        worker = asyncio.create_task(serve(client, [nightly], stop))
        arguments = {"day": "2026-11-03", "sources": ["eu", "usa"]}
        handle = await client.start_workflow("nightly", arguments, id="n", task_queue="jobs")
        await handle.signal("bonus", 100)
        assert await handle.result() == 2 * 3 + 3 * 3 + 100 + 3
        history = await handle.fetch_history()
        stop.set()
        await worker
    scheduled = [
        each.activity_task_scheduled_event_attributes
        for each in history.events
        if each.HasField("activity_task_scheduled_event_attributes")
    ]
    ids = [each.activity_id for each in scheduled]
    assert ids == ["extract[source=eu]", "extract[source=usa]", "extract[source=x,day=2026-11-03]"]
    assert scheduled[0].task_queue.name == "pods/jobs"
    assert_only_the_same_decisions_replay(history.to_json())


QUICK = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "RetryPolicy",
    "metadata": {"name": "quick"},
    "spec": {
        "cloudScheduler": {"retryCount": 2, "minBackoffDuration": "0.1s"},
        "circuitBreaker": {"failureThreshold": 100},
    },
}


def run_third(pod: Object) -> ContainerExit:
    """Fail twice, and then do what a pod does."""
    if pod["metadata"]["annotations"][ATTEMPT_ANNOTATION] in {"1", "2"}:
        return ContainerExit(after=0.05, code=1, message=json.dumps({"error": {"type": "Busy", "message": "busy"}}))
    return run_pod(pod)


async def test_an_activity_has_the_retry_policy_that_it_names() -> None:
    objects = [workflow_of(jobs, Placement(image="x", module="flows.py")), QUICK]
    with in_memory(objects=objects, pods=run_third) as server:
        client = await Client.connect(server.address, namespace=server.namespace)
        stop = asyncio.Event()
        worker = asyncio.create_task(serve(client, [asking], stop))
        handle = await client.start_workflow("asking", {"number": 3}, id="a", task_queue="jobs")
        assert await handle.result() == 3
        stop.set()
        await worker
        [run] = server.cluster.of("workflowruns")
    events = str(run["status"]["history"]["events"])
    assert all(each in events for each in ('"name":"quick"', '"circuitBreaker":true', '"retryCount":2'))


async def test_a_run_waits_for_a_retry_policy_that_does_not_exist() -> None:
    with in_memory(objects=[workflow_of(jobs, Placement(image="x", module="flows.py"))], pods=run_third) as server:
        client = await Client.connect(server.address, namespace=server.namespace)
        stop = asyncio.Event()
        worker = asyncio.create_task(serve(client, [asking], stop))
        handle = await client.start_workflow("asking", {"number": 3}, id="a", task_queue="jobs")
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_task_failed_event_attributes"):
                failed = event.workflow_task_failed_event_attributes
                break
        stop.set()
        await worker
    assert failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_BAD_SCHEDULE_ACTIVITY_ATTRIBUTES
    assert failed.failure.message == "there is no valid RetryPolicy `quick`; the run continues once there is one"


def claims_of(pod: Object) -> list[tuple[str, bool]]:
    """The claims that the container of a pod mounts, and whether it can only read."""
    mounts = {each["name"]: each for each in pod["spec"]["containers"][0]["volumeMounts"]}
    return [
        (each["persistentVolumeClaim"]["claimName"], bool(mounts[each["name"]].get("readOnly")))
        for each in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in each
    ]


async def test_activities_of_a_run_share_its_workspaces_also_after_a_reset() -> None:
    mounted: list[tuple[str, bool]] = []

    def run(pod: Object) -> ContainerExit:
        mounted.extend(claims_of(pod))
        name = pod["metadata"]["labels"]["perdure.dev/activity"]
        if name == "check" and mounted.count(mounted[-1]) == 1:
            return ContainerExit(after=0.05, code=1, message=json.dumps({"error": {"type": "Untidy"}}))
        return ContainerExit(after=0.05, message="3")

    placement = Placement(image="x", module="flows.py")
    with in_memory(objects=[workflow_of(each, placement) for each in (jobs, checks)], pods=run) as server:
        client = await Client.connect(server.address, namespace=server.namespace)
        stop = asyncio.Event()
        worker = asyncio.create_task(serve(client, [build], stop))
        handle = await client.start_workflow("build", {"number": 3}, id="b", task_queue="jobs")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        decisions = [
            each.event_id
            async for each in handle.fetch_history_events()
            if each.HasField("workflow_task_completed_event_attributes")
        ]
        again = await reset(client, handle.result_run_id or "", decisions[1])
        assert await client.get_workflow_handle("b", run_id=again).result() == 3
        [claim] = [dict(each) for each in server.cluster.of("persistentvolumeclaims")]
        url = f"/api/v1/namespaces/{server.namespace}/persistentvolumeclaims/{claim['metadata']['name']}"
        gone = Request(method="DELETE", url=url, query={}, headers={}, body=b"", actor="user")
        server.cluster.loop.call_soon_threadsafe(server.cluster.handle, gone)
        with pytest.raises(RPCError, match="is gone, and with it the files of step `write`, which would not run again"):
            await reset(client, handle.result_run_id or "", decisions[1])
        stop.set()
        await worker
    name = claim["metadata"]["name"]
    assert mounted == [(name, False), (name, True), (name, True)]
    assert {each["uid"] for each in claim["metadata"]["ownerReferences"]} == {handle.result_run_id, again}


async def reset(client: Client, run_id: str, event_id: int) -> str:
    answer = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id="b", run_id=run_id),
            workflow_task_finish_event_id=event_id,
            request_id=uuid.uuid4().hex,
        )
    )
    return str(answer.run_id)


def assert_only_the_same_decisions_replay(recorded: str) -> None:
    from support.example_flows import jobs, nightly  # noqa: PLC0415 - after the listener

    pf.replay(nightly, recorded)
    for text, problem in (
        ("{", "this is not a history"),
        ('{"events": []}', "without its start, not of the flow `nightly`"),
    ):
        with pytest.raises(ValueError, match=problem):
            pf.replay(nightly, text)
    with pytest.raises(ValueError, match="a history of a run of `nightly`, not of the flow `weekly`"):
        pf.replay(pf.Flow(jobs, "weekly", nightly.function), recorded)

    async def changed(day: date, sources: list[str]) -> int:
        await pf.sleep("1s")
        return await nightly.function(day=day, sources=sources)

    other: pf.Flow[..., int] = pf.Flow(jobs, "nightly", changed)
    with pytest.raises(workflow.NondeterminismError):
        pf.replay(other, recorded)
