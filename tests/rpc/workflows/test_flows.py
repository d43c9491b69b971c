"""Flows on the operator: a worker with the sandbox of the SDK decides, and activities are pods."""

import asyncio
import json
from datetime import date

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client

import perdure.flow as pf
from perdure.api.labels import ATTEMPT_ANNOTATION, INPUT_ANNOTATION
from perdure.flow.manifests import Placement, workflow_of
from perdure.flow.serve import serve
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from support.example_flows import asking, jobs, nightly
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
    "spec": {"cloudScheduler": {"retryCount": 2, "minBackoffDuration": "0.1s"}, "circuitBreaker": {}},
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
