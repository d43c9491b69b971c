"""Resets of workflows and activities, changed options, and batches, as clients ask for them."""

import uuid

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from temporal import flows
from temporal.conftest import Temporal

pytestmark = [pytest.mark.cluster, pytest.mark.alone]


async def reset(temporal: Temporal, handle: WorkflowHandle, event_id: int, **said: object) -> WorkflowHandle:
    """Reset a workflow; asked twice, as after a lost answer."""
    request = ResetWorkflowExecutionRequest(
        namespace=temporal.operator.namespace,
        workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.result_run_id or ""),
        workflow_task_finish_event_id=event_id,
        request_id=uuid.uuid4().hex,
        reason="mended",
        **said,  # type: ignore[arg-type]
    )
    service = temporal.client.workflow_service
    first, second = await service.reset_workflow_execution(request), await service.reset_workflow_execution(request)
    assert first.run_id == second.run_id
    return temporal.client.get_workflow_handle(handle.id, run_id=first.run_id)


async def test_54_a_reset_goes_on_from_the_point_with_the_signals_that_came_later(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Box.run)
        await handle.signal(flows.Box.put, "one")
        await handle.query(flows.Box.look)
        again = await reset(temporal, handle, 4)
        assert await again.query(flows.Box.look) == ["one"]
        old = temporal.client.get_workflow_handle(handle.id, run_id=handle.result_run_id)
        assert (await old.describe()).status is WorkflowExecutionStatus.TERMINATED
        newest = temporal.client.get_workflow_handle(handle.id)
        assert (await newest.describe()).run_id == again.run_id
        await newest.signal(flows.Box.close)
        assert await again.result() == ["one"]
        events = await temporal.history(again)
        [(_, told)] = [(name, said) for name, said in events if name == "WorkflowTaskFailed"]
        assert (told.base_run_id, told.new_run_id) == (handle.result_run_id, again.run_id)
        await Replayer(workflows=flows.WORKFLOWS).replay_workflow(await again.fetch_history())


async def test_a_closed_workflow_can_be_reset_without_its_signals(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Box.run)
        await handle.signal(flows.Box.put, "one")
        await handle.signal(flows.Box.close)
        assert await handle.result() == ["one"]
        again = await reset(temporal, handle, 4, reset_reapply_type=ResetReapplyType.RESET_REAPPLY_TYPE_NONE)
        assert await again.query(flows.Box.look) == []
        await again.signal(flows.Box.close)
        assert await again.result() == []


async def test_an_activity_after_the_point_is_done_anew(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Greet.run, "you")
        assert await handle.result() == "Hello, you"
        again = await reset(temporal, handle, 4)
        assert await again.result() == "Hello, you"
        assert (await temporal.names(again)).count("ActivityTaskCompleted") == 1


async def test_a_point_where_nothing_was_decided_is_refused(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Greet.run, "you")
        await handle.result()
    for event_id, message in ((6, "choose event"), (1, "must be > 1")):
        with pytest.raises(RPCError, match=message) as caught:
            await reset(temporal, handle, event_id)
        assert caught.value.status is RPCStatusCode.INVALID_ARGUMENT
