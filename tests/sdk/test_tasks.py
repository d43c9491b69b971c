"""Workflow tasks, queries and updates, as the SDK sees them. Their rules are tested in tests/unit/engine/test_tasks.py."""

import asyncio
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import DescribeTaskQueueMode, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeWorkerRequest, ListWorkersRequest
from temporalio.client import (
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from support.sdk import flows, registry
from support.sdk.client import Temporal, until


async def test_signals_queries_and_updates_reach_the_workflow_in_order(temporal: Temporal) -> None:
    async with temporal.worker():
        box = await temporal.start(flows.Box.run)
        await box.signal(flows.Box.put, "a")
        assert await box.query(flows.Box.look) == ["a"]
        assert await box.execute_update(flows.Box.add, "b") == 2
        await box.signal(flows.Box.put, "c")
        await box.signal(flows.Box.close)
        assert await box.result() == ["a", "b", "c"]


async def test_39_a_rejected_update_leaves_no_event(temporal: Temporal) -> None:
    async with temporal.worker():
        box = await temporal.start(flows.Box.run)
        assert await box.query(flows.Box.look) == []
        before = await temporal.names(box)
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await box.execute_update(flows.Box.add, "")
        assert isinstance(caught.value.cause, ApplicationError)
        assert await temporal.names(box) == before
        await box.terminate()


async def test_42_closed_workflows_can_be_queried_and_a_failing_query_returns_its_error(temporal: Temporal) -> None:
    async with temporal.worker():
        box = await temporal.start(flows.Box.run)
        await box.signal(flows.Box.put, "a")
        await box.signal(flows.Box.close)
        await box.result()
        assert await box.query(flows.Box.look) == ["a"]
        with pytest.raises(WorkflowQueryFailedError, match="no such thing"):
            await box.query(flows.Box.wrong)


async def test_41_53_a_bug_in_the_code_fails_the_task_but_not_the_workflow(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.FailsTask.run)
        await handle.signal(flows.FailsTask.spoil)

        async def failing() -> bool:
            return (await handle.describe()).raw_description.pending_workflow_task.attempt >= 2

        await until("the task to fail twice", failing)
        names = await temporal.names(handle)
        assert names.count("WorkflowTaskFailed") <= 2, "further attempts leave no events"
        await handle.terminate()


async def test_43_updates_are_deduplicated_by_id_and_open_ones_fail_when_the_workflow_closes(
    temporal: Temporal,
) -> None:
    async with temporal.worker():
        box = await temporal.start(flows.Box.run)
        assert await box.execute_update(flows.Box.add, "x", id="one") == 1
        assert await box.execute_update(flows.Box.add, "y", id="one") == 1
        waiting = await box.start_update(flows.Box.never, wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        with pytest.raises(WorkflowUpdateRPCTimeoutOrCancelledError):
            await waiting.result(rpc_timeout=timedelta(seconds=1))
        await box.signal(flows.Box.close)
        assert await box.result() == ["x"]
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await waiting.result()
        assert isinstance(caught.value.cause, ApplicationError)
        assert caught.value.cause.type == "AcceptedUpdateCompletedWorkflow"
        with pytest.raises(RPCError, match="already completed") as late:
            await box.execute_update(flows.Box.add, "late")
        assert late.value.status is RPCStatusCode.NOT_FOUND


async def test_37_workflows_of_a_stopped_worker_move_to_another(temporal: Temporal) -> None:
    async with temporal.worker():
        box = await temporal.start(flows.Box.run)
        assert await box.query(flows.Box.look) == []
    async with temporal.worker():
        await box.signal(flows.Box.close)
        assert await box.result() == []


async def test_the_history_names_the_build_id_of_the_worker(temporal: Temporal) -> None:
    async with temporal.worker(build_id="1.0"):
        box = await temporal.start(flows.Box.run)
        assert await box.query(flows.Box.look) == []
    async with temporal.worker(build_id="1.1"):
        await box.signal(flows.Box.close)
        assert await box.result() == []
    completed = [said for name, said in await temporal.history(box) if name == "WorkflowTaskCompleted"]
    assert [said.worker_version.build_id for said in completed] == ["1.0", "1.1"]


async def test_38_a_local_activity_can_take_longer_than_a_workflow_task(temporal: Temporal) -> None:
    """The worker prolongs its task; the activity ends once that was seen twice. Half an hour is the end of it."""
    released = asyncio.Event()

    @activity.defn(name="until_released")
    async def until_released() -> str:
        await released.wait()
        return "seen"

    async with temporal.worker(activities=[until_released]):
        handle = await temporal.start(flows.CallsLocally.run, "until_released", task_timeout=timedelta(seconds=2))

        async def prolonged() -> bool:
            return (await temporal.names(handle)).count("WorkflowTaskCompleted") >= 2

        await until("the task to be prolonged twice", prolonged)
        released.set()
        assert await handle.result() == "seen"
        assert (await temporal.names(handle)).count("MarkerRecorded") == 1


async def test_53_an_application_error_fails_the_workflow(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Fails.run, 2)
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, ApplicationError)
        assert "WorkflowTaskFailed" not in await temporal.names(handle)


async def test_histories_replay_with_the_sdks_own_replayer(temporal: Temporal) -> None:
    async with temporal.worker():
        handles = [
            await temporal.start(flows.Greet.run, "x"),
            await temporal.start(flows.Call.run, "fail_until", [2], {"retry": {"initial_interval": 0.1}}),
        ]
        for handle in handles:
            await handle.result()
        box = await temporal.start(flows.Box.run)
        await box.execute_update(flows.Box.add, "a")
        await box.signal(flows.Box.close)
        await box.result()
    replayer = Replayer(workflows=registry.WORKFLOWS)
    for handle in [*handles, box]:
        await replayer.replay_workflow(await handle.fetch_history())


async def test_a_client_of_another_namespace_sees_no_workflows(temporal: Temporal) -> None:
    async with temporal.worker():
        box = await temporal.start(flows.Box.run)
        other = await temporal.operator.connect(namespace="default")
        with pytest.raises(RPCError) as caught:
            await other.get_workflow_handle(box.id).describe()
        assert caught.value.status is RPCStatusCode.NOT_FOUND
        with pytest.raises(RPCError):
            await other.get_workflow_handle(box.id, run_id=box.result_run_id).signal(flows.Box.close)
        await box.terminate()


async def test_concurrent_signals_arrive_once_each(temporal: Temporal) -> None:
    async with temporal.worker():
        box = await temporal.start(flows.Box.run)
        await asyncio.gather(*[box.signal(flows.Box.put, str(number)) for number in range(30)])
        await box.signal(flows.Box.close)
        assert sorted(map(int, await box.result())) == list(range(30))


async def test_task_queues_and_workers_are_described(temporal: Temporal) -> None:
    service, namespace = temporal.client.workflow_service, temporal.client.namespace
    waiting = await temporal.start(flows.Greet.run, "you")
    asked = DescribeTaskQueueRequest(
        namespace=namespace,
        task_queue=TaskQueue(name=temporal.task_queue),
        api_mode=DescribeTaskQueueMode.DESCRIBE_TASK_QUEUE_MODE_ENHANCED,
        report_stats=True,
        report_pollers=True,
    )
    reported = (await service.describe_task_queue(asked)).versions_info[""].types_info
    assert reported[TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW].stats.approximate_backlog_count == 1
    assert not reported[TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY].stats.approximate_backlog_count
    async with temporal.worker(identity="the-worker"):
        assert await waiting.result() == "Hello, you"
        reported = (await service.describe_task_queue(asked)).versions_info[""].types_info
        assert [each.identity for each in reported[TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW].pollers] == ["the-worker"]
        assert reported[TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW].stats.tasks_dispatch_rate > 0
    # A worker reports its shutdown, even within its first minute.
    query = f"TaskQueue = '{temporal.task_queue}' AND Status = 'ShuttingDown'"
    [worker] = (await service.list_workers(ListWorkersRequest(namespace=namespace, query=query))).workers
    assert (worker.worker_identity, worker.sdk_name) == ("the-worker", "temporal-python")
    key = worker.worker_instance_key
    described = await service.describe_worker(DescribeWorkerRequest(namespace=namespace, worker_instance_key=key))
    assert described.worker_info.worker_heartbeat.task_queue == temporal.task_queue
    for wrong in ("Colour = 'red'", "TaskQueue ="):
        with pytest.raises(RPCError) as caught:
            await service.list_workers(ListWorkersRequest(namespace=namespace, query=wrong))
        assert caught.value.status is RPCStatusCode.INVALID_ARGUMENT
