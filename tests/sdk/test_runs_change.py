"""Requests to workflows whose runs close, are succeeded by others, are damaged, or are deleted meanwhile."""

import asyncio
import itertools
import json
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from temporalio.api.command.v1 import Command
from temporalio.api.enums.v1 import CommandType, UpdateWorkflowExecutionLifecycleStage
from temporalio.api.protocol.v1 import Message
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.update.v1 import Acceptance
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    DescribeWorkflowExecutionRequest,
    ListNamespacesRequest,
    QueryWorkflowRequest,
    RequestCancelWorkflowExecutionRequest,
    RespondWorkflowTaskCompletedRequest,
    SignalWorkflowExecutionRequest,
    TerminateWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import WithStartWorkflowOperation, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from sdk.manual_worker import ManualWorker
from support.sdk import child_flows, flows, registry
from support.sdk.client import Temporal, until

SIGNALS, EACH, UPDATES, STORM = 200, 20, 40, 40
COMPLETED = UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED


async def refused(asked: Any) -> RPCError:
    with pytest.raises(RPCError) as caught:
        await asked
    return caught.value


async def accepted(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Retry while the run is closing: the SDK gives up after ten seconds, which can be too soon on a busy machine."""
    while True:
        try:
            return await ask()
        except RPCError as error:
            if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
                raise


def of(temporal: Temporal, kind: Any, handle: WorkflowHandle[Any, Any], field: str = "workflow_execution") -> Any:
    """A request about the workflow, whichever of its runs is open."""
    request = kind(namespace=temporal.operator.namespace)
    getattr(request, field).workflow_id = handle.id
    return request


def update(temporal: Temporal, handle: WorkflowHandle[Any, Any]) -> Any:
    request = of(temporal, UpdateWorkflowExecutionRequest, handle)
    request.request.input.name = "add"
    request.wait_policy.lifecycle_stage = COMPLETED
    return temporal.client.workflow_service.update_workflow_execution(request)


async def results(temporal: Temporal, workflow_id: str) -> list[str]:
    """The results of all runs of a workflow ID."""
    query = f"WorkflowId = '{workflow_id}'"
    runs = [run async for run in temporal.client.list_workflows(query)]
    handles = [temporal.client.get_workflow_handle(run.id, run_id=run.run_id) for run in runs]
    return [item for handle in handles for item in await handle.result()]


async def test_signals_and_updates_survive_continue_as_new(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Rounds.run, EACH, [])

        async def signal(number: int) -> None:
            await asyncio.sleep(number / 30)
            await accepted(lambda: handle.signal(flows.Rounds.put, f"signal-{number}"))

        async def updates() -> None:
            for item in (f"update-{number}" for number in range(UPDATES)):
                assert await accepted(partial(handle.execute_update, flows.Rounds.add, item)) == item

        await asyncio.gather(updates(), *map(signal, range(SIGNALS)))
        await handle.query(flows.Rounds.look)
        await handle.signal(flows.Rounds.close)
        sent = [*(f"signal-{n}" for n in range(SIGNALS)), *(f"update-{n}" for n in range(UPDATES))]
        assert Counter(await handle.result()) == Counter(sent)


async def test_requests_between_workflows_survive_continue_as_new_unless_they_name_a_run(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Rounds.run, EACH, [])
        things = [[f"{teller}-{number}" for number in range(SIGNALS // 4)] for teller in range(4)]
        senders = [temporal.run(flows.SendsSignals.run, handle.id, None, each) for each in things]
        assert await asyncio.gather(*senders) == [[]] * 4
        wrong = await temporal.run(flows.SendsSignals.run, handle.id, handle.result_run_id, ["too late"])
        assert ["not found" in message.lower() for message in wrong] == [True]
        await handle.signal(flows.Rounds.close)
        assert Counter(await handle.result()) == Counter(itertools.chain(*things))


async def test_a_parent_cancels_a_child_that_has_continued_as_new(temporal: Temporal) -> None:
    """Cancelled earlier, it may continue as new in the same task, which loses the request: on Temporal's server as well."""
    async with temporal.worker():
        child = temporal.client.get_workflow_handle(f"child-{uuid.uuid4().hex[:6]}")
        parent = await temporal.start(child_flows.CancelsChild.run, child.id)

        async def continued() -> bool:
            try:
                described = (await child.describe()).raw_description.workflow_execution_info
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return False
            return described.first_run_id != described.execution.run_id

        await until("the child's second run", continued)
        await parent.signal(child_flows.CancelsChild.cancel_child)
        assert await parent.result() == "CancelledError"
        assert (await child.describe()).status is WorkflowExecutionStatus.CANCELED


async def test_a_workflow_is_terminated_while_it_continues_as_new(temporal: Temporal) -> None:
    async with temporal.worker():
        for _ in range(5):
            handle = await temporal.start(flows.Counter.run, 1_000)
            newest = temporal.client.get_workflow_handle(handle.id)
            first = handle.result_run_id

            async def goes_on(newest: Any = newest, first: Any = first) -> bool:
                return (await newest.describe()).run_id != first

            await until("the next run", goes_on)
            await handle.terminate()
            assert (await newest.describe()).status is WorkflowExecutionStatus.TERMINATED


@pytest.mark.cluster
async def test_a_paused_workflow_continues_on_the_same_and_on_another_worker(temporal: Temporal) -> None:
    cluster = temporal.cluster

    async def operate(verb: str) -> None:
        name = f"{verb}-{uuid.uuid4().hex[:6]}"
        spec = {"target": {"kind": "WorkflowRun", "workflowId": box.id}, verb: {"reason": "maintenance"}}
        body = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Operation", "metadata": {"name": name}, "spec": spec}
        await asyncio.to_thread(cluster.apply, body)
        await asyncio.to_thread(cluster.condition, "operation", name, "Done")

    async with temporal.worker():
        box = await temporal.start(flows.Box.run)
        assert await box.query(flows.Box.look) == []
        await operate("pause")
        await box.signal(flows.Box.put, "while paused")
        await operate("unpause")
        await box.signal(flows.Box.put, "afterwards")
        assert await box.query(flows.Box.look) == ["while paused", "afterwards"]
    async with temporal.worker():
        await box.signal(flows.Box.close)
        assert await box.result() == ["while paused", "afterwards"]
    names = await temporal.names(box)
    assert {"WorkflowExecutionPaused", "WorkflowExecutionUnpaused"} <= set(names)
    await Replayer(workflows=registry.WORKFLOWS).replay_workflow(await box.fetch_history())


async def test_every_signal_with_start_reaches_a_short_workflow(temporal: Temporal) -> None:
    name = f"storm-{uuid.uuid4().hex[:6]}"
    async with temporal.worker():
        starts = (
            temporal.start(flows.Brief.run, id=name, start_signal="put", start_signal_args=[str(number)])
            for number in range(STORM)
        )
        await asyncio.gather(*starts)
        assert Counter(await results(temporal, name)) == Counter(map(str, range(STORM)))


async def test_every_update_with_start_reaches_a_short_workflow(temporal: Temporal) -> None:
    name = f"storm-{uuid.uuid4().hex[:6]}"

    async def ask(number: int) -> Any:
        start = WithStartWorkflowOperation(
            flows.Brief.run,
            id=name,
            task_queue=temporal.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        return await temporal.client.execute_update_with_start_workflow(
            flows.Brief.add, str(number), start_workflow_operation=start
        )

    async with temporal.worker():
        for first in range(0, STORM, 8):  # ten can be in flight
            asked = range(first, first + 8)
            assert await asyncio.gather(*map(ask, asked)) == list(map(str, asked))
        assert Counter(await results(temporal, name)) == Counter(map(str, range(STORM)))


async def test_accepting_an_unknown_update_fails_the_task(temporal: Temporal) -> None:
    hand, handle = ManualWorker(temporal), await temporal.start(flows.Box.run)
    body = AnyMessage()
    body.Pack(Acceptance(accepted_request_message_id="nope/request", accepted_request_sequencing_event_id=2))
    command = Command(command_type=CommandType.COMMAND_TYPE_PROTOCOL_MESSAGE)
    command.protocol_message_command_attributes.message_id = "m"
    answer = RespondWorkflowTaskCompletedRequest(
        namespace=temporal.operator.namespace,
        task_token=(await hand.task()).task_token,
        commands=[command],
        messages=[Message(id="m", protocol_instance_id="nope", body=body)],
    )
    error = await refused(temporal.client.workflow_service.respond_workflow_task_completed(answer))
    assert "BadUpdateWorkflowExecutionMessage" in error.message
    names = await temporal.names(handle)
    assert "WorkflowTaskFailed" in names
    assert "WorkflowExecutionUpdateAccepted" not in names
    await handle.terminate()


async def test_callers_that_wait_for_a_deleted_run_get_an_error(temporal: Temporal) -> None:
    hand, handle = ManualWorker(temporal), await temporal.start(flows.Box.run)
    await hand.decide()
    waiting = asyncio.create_task(update(temporal, handle))
    assert (await hand.task()).messages
    delete = of(temporal, DeleteWorkflowExecutionRequest, handle)
    await temporal.client.workflow_service.delete_workflow_execution(delete)
    async with asyncio.timeout(10):
        assert (await refused(waiting)).status is RPCStatusCode.NOT_FOUND


@pytest.mark.cluster
async def test_requests_to_a_damaged_run_fail_with_data_loss(temporal: Temporal) -> None:
    handle, service = await temporal.start(flows.Box.run), temporal.client.workflow_service

    def recorded() -> Any:
        runs = temporal.cluster.list("workflowruns")
        [run] = [each for each in runs if each["metadata"]["uid"] == handle.result_run_id]
        return run if "state" in run["status"] else None

    run = await asyncio.to_thread(temporal.cluster.wait, "the start to be recorded", recorded)
    name, good = run["metadata"]["name"], run["status"]["state"]

    def edit(state: Any) -> None:
        patch = json.dumps({"status": {"state": state}})
        temporal.cluster("patch", "workflowrun", name, "--subresource=status", "--type=merge", f"--patch={patch}")

    signal = of(temporal, SignalWorkflowExecutionRequest, handle)
    signal.signal_name = "put"
    edit({"startTime": "yesterday"})
    async with asyncio.timeout(30):
        for asked in (
            service.signal_workflow_execution(signal),
            service.request_cancel_workflow_execution(of(temporal, RequestCancelWorkflowExecutionRequest, handle)),
            service.terminate_workflow_execution(of(temporal, TerminateWorkflowExecutionRequest, handle)),
            service.describe_workflow_execution(of(temporal, DescribeWorkflowExecutionRequest, handle, "execution")),
            update(temporal, handle),
        ):
            assert (await refused(asked)).status is RPCStatusCode.DATA_LOSS
    edit({"startTime": good["startTime"]})

    async def restored() -> bool:
        try:
            await service.terminate_workflow_execution(of(temporal, TerminateWorkflowExecutionRequest, handle))
        except RPCError as error:
            if error.status is RPCStatusCode.DATA_LOSS:
                return False
            raise
        return True

    await until("the run to continue", restored)


async def test_a_namespace_that_is_not_watched_is_not_found(temporal: Temporal) -> None:
    other = await temporal.operator.connect(namespace="kube-public")
    with pytest.raises(RPCError, match="Namespace kube-public is not found") as caught:
        await other.start_workflow(flows.Greet.run, "x", id="nowhere", task_queue=temporal.task_queue)
    assert caught.value.status is RPCStatusCode.NOT_FOUND
    listed = await temporal.client.workflow_service.list_namespaces(ListNamespacesRequest())
    assert [each.namespace_info.name for each in listed.namespaces] == [temporal.operator.namespace]


async def test_a_query_without_a_worker_names_the_task_queue(temporal: Temporal) -> None:
    handle = await temporal.start(flows.Box.run)
    request = of(temporal, QueryWorkflowRequest, handle, "execution")
    request.query.CopyFrom(WorkflowQuery(query_type="look"))
    error = await refused(temporal.client.workflow_service.query_workflow(request, timeout=timedelta(seconds=4)))
    assert temporal.task_queue in error.message
    await handle.terminate()
