"""Batch operations: one request to many workflows."""

from typing import Any

from temporalio.api.enums.v1 import BatchOperationState

from fidelity.driver import Session, payload, payloads, scenario
from fidelity.scenarios.starting import COMPLETE


def run(s: Session, job: str, *bases: str, **operation: Any) -> None:
    """Have a batch operation on workflows, and wait for its end."""
    s.call(
        "StartBatchOperation",
        job,
        job_id=s.named(job),
        reason="enough",
        executions=[s.execution(base) for base in bases],
        **operation,
    )
    s.until(
        lambda response: response.state == BatchOperationState.BATCH_OPERATION_STATE_COMPLETED,
        "DescribeBatchOperation",
        job,
        job_id=s.named(job),
    )


@scenario
def batch_by_execution(s: Session) -> None:
    s.start("a")
    s.start("b", task_queue={"name": s.named("other")})
    signal = {"signal": "signal", "input": payloads("told"), "identity": "a client"}
    run(s, "signal", "a", "b", signal_operation=signal)
    s.history("a", note="signaled")
    run(s, "cancel", "a", cancellation_operation={"identity": "a client"})
    s.history("a", note="asked to cancel")
    run(s, "terminate", "a", termination_operation={"details": payloads("details"), "identity": "a client"})
    s.history("a", note="terminated")
    s.call("ListBatchOperations", "one", page_size=1)
    s.call("StopBatchOperation", "completed", job_id=s.named("terminate"), reason="enough", identity="a client")
    s.close("b")


@scenario
def batch_by_query(s: Session) -> None:
    s.start()
    query = f"WorkflowId = '{s.named('w')}'"
    s.until(lambda response: response.count == 1, "CountWorkflowExecutions", query=query)
    job = s.named("job")
    s.call(
        "StartBatchOperation",
        job_id=job,
        reason="enough",
        visibility_query=query,
        max_operations_per_second=5,
        termination_operation={},
    )
    s.until(lambda response: response.complete_operation_count == 1, "DescribeBatchOperation", job_id=job)
    s.until(
        lambda response: response.workflow_execution_info.close_time.seconds,
        "DescribeWorkflowExecution",
        execution=s.execution(),
    )


@scenario
def batch_resets(s: Session) -> None:
    s.start()
    s.decide()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    s.decide(COMPLETE)
    first = {"first_workflow_task": {}, "reset_reapply_exclude_types": ["RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL"]}
    run(s, "first", "w", reset_operation={"options": first, "identity": "a client"})
    s.history(note="reset to the first task")
    s.decide(COMPLETE)
    run(s, "last", "w", reset_operation={"options": {"last_workflow_task": {}}})
    s.history(note="reset to the last task")
    s.close()


@scenario
def batch_refused(s: Session) -> None:
    target = {"executions": [s.execution()]}
    begun = {"job_id": s.named("job"), "reason": "enough"}
    s.call("StartBatchOperation", "no reason", **target, job_id=s.named("job"), termination_operation={})
    s.call("StartBatchOperation", "no operation", **target, **begun)
    s.call("StartBatchOperation", "no target", **begun, termination_operation={})
    query = {"visibility_query": "WorkflowId = 'none'"}
    s.call("StartBatchOperation", "both", **begun, **target, **query, termination_operation={})
    s.call("StartBatchOperation", "no signal name", **begun, **target, signal_operation={"input": payloads("x")})
    s.call("StartBatchOperation", "no reset point", **begun, **target, reset_operation={})
    s.call(
        "StartBatchOperation",
        "bad query",
        **begun,
        visibility_query="WorkflowId =",
        termination_operation={"details": {"payloads": [payload("x")]}},
    )
    s.call("ListBatchOperations", "bad token", next_page_token="AAAA")
