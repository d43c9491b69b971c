"""Runs, ids, children, lists, as the SDK sees them."""

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import ContinueAsNewInitiator, IndexedValueType, WorkflowTaskFailedCause
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.workflowservice.v1 import StartWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.common import (
    RetryPolicy,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import CancelledError, TerminatedError, WorkflowAlreadyStartedError
from temporalio.exceptions import TimeoutError as TemporalTimeoutError
from temporalio.service import RPCError, RPCStatusCode

from perdure.engine.starts import MAX_CHILD_DEPTH
from support.cluster.namespace import one_step, python
from support.sdk import child_flows, flows
from support.sdk.client import Temporal, until


async def test_a_cancelled_workflow_cleans_up(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.CleansUp.run)
        await handle.query("__stack_trace")
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        assert "ActivityTaskCompleted" in await temporal.names(handle)
        assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED


async def test_45_a_closed_workflow_accepts_only_a_cancellation(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Greet.run, "x")
        await handle.result()
    await handle.cancel()
    for asked in (handle.terminate(), handle.signal("anything")):
        with pytest.raises(RPCError, match="workflow execution already completed") as caught:
            await asked
        assert caught.value.status is RPCStatusCode.NOT_FOUND


async def test_a_termination_has_its_reason(temporal: Temporal) -> None:
    handle = await temporal.start(flows.Sleeper.run, 600)
    await handle.terminate("enough", reason="because")
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    assert isinstance(caught.value.cause, TerminatedError)
    assert (await temporal.history(handle))[-1][1].reason == "because"


async def test_46_conflict_and_reuse_policies(temporal: Temporal) -> None:
    name = f"taken-{uuid.uuid4().hex[:6]}"
    first = await temporal.start(flows.Sleeper.run, 600, id=name)
    with pytest.raises(WorkflowAlreadyStartedError):
        await temporal.start(flows.Sleeper.run, 600, id=name)
    same = await temporal.start(
        flows.Sleeper.run, 600, id=name, id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
    )
    assert same.result_run_id == first.result_run_id
    second = await temporal.start(
        flows.Sleeper.run, 600, id=name, id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING
    )
    assert second.result_run_id != first.result_run_id
    assert (await temporal.client.get_workflow_handle(name, run_id=first.result_run_id).describe()).status is (
        WorkflowExecutionStatus.TERMINATED
    )
    await second.terminate()
    again = await temporal.start(
        flows.Sleeper.run, 600, id=name, id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
    )
    await again.terminate()
    with pytest.raises(WorkflowAlreadyStartedError):
        await temporal.start(flows.Sleeper.run, 600, id=name, id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE)


async def test_46_a_repeated_start_request_finds_its_own_run(temporal: Temporal) -> None:
    request = StartWorkflowExecutionRequest(
        namespace=temporal.operator.namespace,
        workflow_id=f"again-{uuid.uuid4().hex[:6]}",
        request_id="the same",
    )
    request.workflow_type.name = "Sleeper"
    request.task_queue.name = temporal.task_queue
    one, two = await asyncio.gather(
        temporal.client.workflow_service.start_workflow_execution(request),
        temporal.client.workflow_service.start_workflow_execution(request),
    )
    assert one.run_id == two.run_id


async def test_47_continuing_as_new_keeps_the_chain(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Counter.run, 2)
        assert await handle.result()
        last = await temporal.client.get_workflow_handle(handle.id).describe()
        assert last.raw_description.workflow_execution_info.first_run_id == handle.first_execution_run_id
        first = temporal.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        assert (await first.describe()).status is WorkflowExecutionStatus.CONTINUED_AS_NEW


async def test_48_a_failed_workflow_is_retried_in_a_new_run(temporal: Temporal) -> None:
    async with temporal.worker():
        retry = RetryPolicy(initial_interval=timedelta(milliseconds=100))
        handle = await temporal.start(flows.Fails.run, 3, retry_policy=retry)
        assert await handle.result() == 3
        first = temporal.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        name, failed = (await temporal.history(first))[-1]
    assert name == "WorkflowExecutionFailed"
    assert failed.new_execution_run_id


async def test_48_a_run_timeout_ends_the_workflow(temporal: Temporal) -> None:
    async with temporal.worker():
        with pytest.raises(WorkflowFailureError) as caught:
            await temporal.run(flows.Sleeper.run, 60, run_timeout=timedelta(seconds=2))
    assert isinstance(caught.value.cause, TemporalTimeoutError)


async def test_49_a_cron_schedule_starts_consecutive_runs_and_passes_results_on(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.CountsRuns.run, cron_schedule="@every 2s")
        described = await handle.describe()
        assert described.execution_time is not None
        assert timedelta(0) < described.execution_time - described.start_time <= timedelta(seconds=2)
        results, run_id = [], handle.first_execution_run_id
        for _ in range(3):
            run = temporal.client.get_workflow_handle(handle.id, run_id=run_id)
            first, last = await closed(temporal, run)
            assert (first.cron_schedule, first.first_execution_run_id) == ("@every 2s", handle.first_execution_run_id)
            assert first.initiator == ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_CRON_SCHEDULE
            results.append([payload.data for payload in last.result.payloads])
            run_id = last.new_execution_run_id
        assert results == [[b"1"], [b"2"], [b"3"]]
        newest = temporal.client.get_workflow_handle(handle.id)
        await newest.terminate()
        assert (await newest.describe()).status is WorkflowExecutionStatus.TERMINATED


async def test_49_a_cron_schedule_continues_after_a_failure(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Fails.run, 2, cron_schedule="@every 1s")
        run = temporal.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        _, failed = await closed(temporal, run)
        following = temporal.client.get_workflow_handle(handle.id, run_id=failed.new_execution_run_id)
        _, started = (await temporal.history(following))[0]
        assert started.continued_failure == failed.failure
        assert started.attempt == 1
        await temporal.client.get_workflow_handle(handle.id).terminate()


async def closed(temporal: Temporal, run: WorkflowHandle[Any, Any]) -> tuple[Any, Any]:
    """The first and the last event of a run with a successor, once it has closed."""

    async def following() -> tuple[Any, Any] | None:
        events = await temporal.history(run)
        last = events[-1][1]
        return (events[0][1], last) if getattr(last, "new_execution_run_id", "") else None

    found: tuple[Any, Any] = await until("the end of a run", following)
    return found


async def test_49_an_invalid_cron_schedule_is_rejected(temporal: Temporal) -> None:
    with pytest.raises(RPCError, match="invalid CronSchedule") as caught:
        await temporal.start(flows.Sleeper.run, 600, cron_schedule="often")
    assert caught.value.status is RPCStatusCode.INVALID_ARGUMENT


async def test_52_ids_have_at_most_a_thousand_characters(temporal: Temporal) -> None:
    handle = await temporal.start(flows.Sleeper.run, 600, id="i" * 1_000)
    await handle.terminate()
    with pytest.raises(RPCError, match="length exceeds limit") as caught:
        await temporal.start(flows.Sleeper.run, 600, id="i" * 1_001)
    assert caught.value.status is RPCStatusCode.INVALID_ARGUMENT


async def test_52_a_result_that_does_not_fit_into_the_status_terminates_the_workflow(temporal: Temporal) -> None:
    """A worker that knows the limit fails its task until the code is fixed; one that does not ends the workflow."""
    async with temporal.worker(disable_payload_error_limit=True):
        handle = await temporal.start(flows.Returns.run, 2 * 1024 * 1024)
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
    assert isinstance(caught.value.cause, TerminatedError)
    assert "Blob data size exceeds limit" in str(caught.value.cause)
    [failure] = [said for name, said in await temporal.history(handle) if name == "WorkflowTaskFailed"]
    assert (
        failure.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_BAD_COMPLETE_WORKFLOW_EXECUTION_ATTRIBUTES
    )


async def test_52_a_request_that_makes_a_run_too_large_is_answered(temporal: Temporal) -> None:
    handle = await temporal.start(flows.Sleeper.run, 600)
    await handle.terminate(reason="r" * 900_000)
    assert (await handle.describe()).status is WorkflowExecutionStatus.TERMINATED


async def test_52_a_worker_that_checks_the_limits_fails_its_task_and_the_workflow_stays_open(
    temporal: Temporal,
) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Returns.run, 2 * 1024 * 1024)

        async def failed() -> list[Any]:
            return [said for name, said in await temporal.history(handle) if name == "WorkflowTaskFailed"]

        [failure] = await until("the task to fail", failed)
        assert failure.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_PAYLOADS_TOO_LARGE
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        await handle.terminate()


@pytest.mark.parametrize(("policy", "status"), [(1, "TERMINATED"), (2, "RUNNING"), (3, "CANCELED")])
@pytest.mark.parametrize("ending", ["return", "continue"])
async def test_50_parent_close_policies_apply_when_the_parent_continues_as_new(
    temporal: Temporal, policy: int, status: str, ending: str
) -> None:
    child_id = f"child-{uuid.uuid4().hex[:6]}"
    async with temporal.worker():
        await temporal.run(child_flows.Parent.run, policy, child_id, ending)
        child = temporal.client.get_workflow_handle(child_id)

        async def as_wanted() -> bool:
            return (await child.describe()).status is WorkflowExecutionStatus[status]

        await until(f"the child to be {status}", as_wanted)


async def test_51_a_child_returns_its_result_and_its_id_must_be_unique(temporal: Temporal) -> None:
    async with temporal.worker():
        child_id = f"child-{uuid.uuid4().hex[:6]}"
        assert await temporal.run(child_flows.Parent.run, 1, child_id, "result") == "from parent"
        box = await temporal.start(flows.Box.run)
        assert await temporal.run(child_flows.StartsTwice.run, box.id) == "WorkflowAlreadyStartedError"
        await box.terminate()


async def test_a_too_deeply_nested_child_is_a_failure_that_code_can_catch(temporal: Temporal) -> None:
    async with temporal.worker():
        assert await temporal.run(child_flows.Nests.run, 0) == [MAX_CHILD_DEPTH, "ChildDepthExceeded"]


async def test_51_a_signal_to_a_missing_workflow_fails_in_the_workflow_but_not_its_task(temporal: Temporal) -> None:
    async with temporal.worker():
        wrong = await temporal.run(flows.SendsSignals.run, "there-is-none", None, ["hello"])
        assert ["not found" in message.lower() for message in wrong] == [True]


async def test_signal_with_start_starts_once(temporal: Temporal) -> None:
    name = f"sws-{uuid.uuid4().hex[:6]}"
    async with temporal.worker():
        first = await temporal.start(flows.Box.run, id=name, start_signal="put", start_signal_args=["a"])
        second = await temporal.start(flows.Box.run, id=name, start_signal="put", start_signal_args=["b"])
        assert first.id == second.id
        await first.signal(flows.Box.close)
        assert await first.result() == ["a", "b"]


async def test_lists_and_counts_by_search_attributes_and_status(temporal: Temporal) -> None:
    mark, number = SearchAttributeKey.for_keyword("Mark"), SearchAttributeKey.for_int("Number")
    types = {"Mark": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD, "Number": IndexedValueType.INDEXED_VALUE_TYPE_INT}
    asked = AddSearchAttributesRequest(namespace=temporal.operator.namespace, search_attributes=types)
    await temporal.client.operator_service.add_search_attributes(asked)
    tag = uuid.uuid4().hex[:8]
    found_by = [
        TypedSearchAttributes([SearchAttributePair(mark, tag), SearchAttributePair(number, value)]) for value in (1, 2)
    ]
    handles = [await temporal.start(flows.Sleeper.run, 600, search_attributes=each) for each in found_by]
    await handles[0].terminate()

    async def ids(query: str) -> set[str]:
        return {run.id async for run in temporal.client.list_workflows(query)}

    one, two = (handle.id for handle in handles)
    assert await ids(f"Mark = '{tag}'") == {one, two}
    assert await ids(f"Mark = '{tag}' AND Number > 1") == {two}
    assert await ids(f"Mark = '{tag}' AND ExecutionStatus IN ('Terminated', 'Failed')") == {one}
    assert await ids(f"Mark STARTS_WITH '{tag[:4]}' AND WorkflowType = 'Sleeper' AND Number BETWEEN 2 AND 9") == {two}
    counted = await temporal.client.count_workflows(f"Mark = '{tag}' GROUP BY ExecutionStatus")
    assert {group.group_values[0]: group.count for group in counted.groups} == {"Running": 1, "Terminated": 1}
    with pytest.raises(RPCError, match="order by"):
        await ids("ORDER BY StartTime")
    with pytest.raises(RPCError, match="not a valid search attribute"):
        await ids("Nonsense = 1")
    await handles[1].terminate()


@pytest.mark.cluster
async def test_a_run_created_by_kubectl_is_visible_to_clients(temporal: Temporal) -> None:
    reference = {"type": "Greet", "taskQueue": temporal.task_queue}
    temporal.cluster.start("by-kubectl", {"workflow": reference, "input": "kubectl"})
    async with temporal.worker():
        assert await temporal.client.get_workflow_handle("by-kubectl").result() == "Hello, kubectl"
    run = temporal.cluster.get("workflowrun", "by-kubectl")
    assert run is not None
    assert run["status"]["output"] == "Hello, kubectl"


@pytest.mark.cluster
async def test_yaml_runs_an_activity_of_a_worker_and_code_as_a_child(temporal: Temporal) -> None:
    cluster = temporal.cluster
    done_by_worker = {
        "name": "greet",
        "worker": {"taskQueue": temporal.task_queue},
        "startToCloseTimeout": "20s",
    }
    steps = [
        {"name": "ask", "activity": {"name": "greet", "input": "YAML"}},
        {
            "name": "child",
            "childWorkflow": {
                "workflow": {"type": "Greet", "taskQueue": temporal.task_queue},
                "input": "child of YAML",
            },
        },
        {"name": "end", "return": {"output": ["${steps.ask.output}", "${steps.child.output}"]}},
    ]
    cluster.start("yaml", {"inline": {"activities": [done_by_worker], "steps": steps}})
    async with temporal.worker():
        status = await asyncio.to_thread(cluster.closed, "yaml")
    assert status["output"] == ["Hello, YAML", "Hello, child of YAML"]


@pytest.mark.cluster
async def test_code_runs_an_activity_in_a_pod_and_yaml_as_a_child(temporal: Temporal) -> None:
    cluster = temporal.cluster
    spec = one_step(python("import json, os\nactivity.complete({'in': json.loads(os.environ['PERDURE_INPUT'])})"))
    cluster.apply(
        {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": "tool"},
            "spec": spec["inline"],
        }
    )
    async with temporal.worker():
        in_pod, child = await temporal.run(child_flows.Orchestrates.run, "pod")
    assert in_pod == {"in": "pod"}
    assert child is not None
