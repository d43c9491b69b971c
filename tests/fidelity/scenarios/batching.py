"""Batch operations: one request to many workflows."""

from typing import Any

from temporalio.api.enums.v1 import BatchOperationState

from fidelity.driver import Session, payload, payloads, scenario, token
from fidelity.scenarios import activities, standalone, versioning
from fidelity.scenarios.starting import COMPLETE, FAIL


def run(s: Session, job: str, *bases: str, **options: Any) -> None:
    """Have a batch operation on workflows, and wait for its end."""
    request = {"executions": [s.execution(base) for base in bases]} if bases else {}
    s.call("StartBatchOperation", job, **{"job_id": s.named(job), "reason": "enough", **request, **options})
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


def with_activities(s: Session, *bases: str) -> None:
    """Start workflows, each with an activity that has failed once, and one of another type that has not started."""
    nobody = {"task_queue": {"name": s.named("nobody")}}
    for base in bases:
        s.start(base)
        s.decide(
            activities.schedule(s, **activities.LATER),
            activities.schedule(s, "b", activity_type={"name": "Other"}, **nobody),
        )
        failed = {"failure": activities.WRONG, "last_heartbeat_details": payloads("half")}
        s.call("RespondActivityTaskFailed", task_token=token(s.activity_task()), **failed)


@scenario
def batch_activities(s: Session) -> None:
    with_activities(s, "v", "w")
    for base in ("v", "w"):
        s.call("PauseActivity", execution=s.execution(base), type="Do", reason="broken")
    identity = {"identity": "a client"}
    run(s, "reset", "v", "w", reset_activities_operation={**identity, "type": "Do", "keep_paused": True})
    s.describe(note="one is reset, and still paused")
    run(s, "unpause", "w", unpause_activities_operation={**identity, "type": "Do"})
    s.describe(note="it is unpaused")
    run(s, "reset all", "w", reset_activities_operation={**identity, "match_all": True})
    s.describe(note="both are reset")
    options = {"activity_options": {"start_to_close_timeout": "77s"}, "update_mask": "startToCloseTimeout"}
    run(s, "update", "v", "w", update_activity_options_operation={**identity, "match_all": True, **options})
    s.describe(note="both are changed")
    restored = {"restore_original": True, "update_mask": ""}
    run(s, "restore", "w", update_activity_options_operation={**identity, "type": "Do", **restored})
    s.describe(note="one is restored")
    run(s, "none", "w", reset_activities_operation={"type": "None"})
    run(s, "reset options", "w", reset_activities_operation={"type": "Other", "restore_original_options": True})
    s.describe(note="the other one is restored")
    both = {"reset_attempts": True, "reset_heartbeat": True}
    run(s, "unpause all", "v", unpause_activities_operation={**identity, "match_all": True, **both})
    s.describe("v", note="it is unpaused")
    run(s, "later", "v", reset_activities_operation={"match_all": True, "jitter": "0.1s"})
    run(s, "unpause later", "v", unpause_activities_operation={"match_all": True, "jitter": "0.1s"})
    s.close("v")
    s.close()


@scenario
def batch_activities_by_their_attempts(s: Session) -> None:
    with_activities(s, "w")
    both = {"reset_attempts": True, "reset_heartbeat": True}
    run(s, "reset", "w", reset_activities_operation={"type": "Do", "identity": "a client", **both})
    s.describe()
    s.close()


@scenario
def batch_activities_refused(s: Session) -> None:
    begun = {"job_id": s.named("job"), "reason": "enough", "executions": [s.execution()]}
    for operation in ("reset_activities", "unpause_activities", "update_activity_options"):
        options = {"restore_original": True, "update_mask": ""} if operation.startswith("update") else {}
        s.call(
            "StartBatchOperation",
            f"{operation}: no type",
            **begun,
            **{f"{operation}_operation": {**options, "type": ""}},
        )
        none = {f"{operation}_operation": {**options, "match_all": False}}
        s.call("StartBatchOperation", f"{operation}: not all", **begun, **none)
    options = {"activity_options": {"start_to_close_timeout": "77s"}, "update_mask": "startToCloseTimeout"}
    both = {"update_activity_options_operation": {"match_all": True, "restore_original": True, **options}}
    s.call("StartBatchOperation", "change and restore", **begun, **both)
    neither = {"update_activity_options_operation": {"match_all": True, "update_mask": ""}}
    s.call("StartBatchOperation", "neither change nor restore", **begun, **neither)


@scenario
def batch_deletes(s: Session) -> None:
    s.start("open")
    s.start("closed", task_queue={"name": s.named("c")})
    s.complete(s.task("c"), COMPLETE)
    run(s, "delete", "closed", "open", deletion_operation={"identity": "a client"})
    for base in ("open", "closed"):
        s.gone("DescribeWorkflowExecution", base, execution=s.execution(base))


@scenario
def batch_options(s: Session) -> None:
    versioning.register(s, "1")
    s.start()
    s.decide()
    options = {"versioning_override": versioning.override(s, "1")}
    change = {"identity": "a client", "update_mask": "versioningOverride"}
    pinned = {"update_workflow_options_operation": {**change, "workflow_execution_options": options}}
    run(s, "pin", "w", **pinned)
    s.describe(note="pinned")
    run(s, "unpin", "w", update_workflow_options_operation={**change, "workflow_execution_options": {}})
    s.describe(note="unpinned")
    begun = {"job_id": s.named("job"), "reason": "enough", "executions": [s.execution()]}
    s.call("StartBatchOperation", "no options", **begun, update_workflow_options_operation=change)
    none = {"update_workflow_options_operation": {"workflow_execution_options": options}}
    s.call("StartBatchOperation", "no mask", **begun, **none)
    s.close()


@scenario
def batch_reset_points(s: Session) -> None:
    s.start()
    s.decide()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    s.decide()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="last")
    s.decide(FAIL)
    excluded = {"reset_reapply_exclude_types": [f"RESET_REAPPLY_EXCLUDE_TYPE_{kind}" for kind in ("UPDATE", "NEXUS")]}
    run(s, "task", "w", reset_operation={"options": {"workflow_task_id": 8, **excluded}})
    s.history(note="reset to a task")
    s.decide(COMPLETE)
    upgrade = {"workflow_execution_options": {"versioning_override": {"auto_upgrade": True}}}
    after = {"post_reset_operations": [{"update_workflow_options": {**upgrade, "update_mask": "versioningOverride"}}]}
    run(s, "options", "w", reset_operation={"options": {"first_workflow_task": {}}, "identity": "a client", **after})
    s.history(note="with other options afterwards")
    begun = {"job_id": s.named("job"), "reason": "enough", "executions": [s.execution()]}
    s.call("StartBatchOperation", "no target", **begun, reset_operation={"options": {"current_run_only": True}})
    s.close()


@scenario
def batch_targets(s: Session) -> None:
    """Of workflows, by their executions in the newer form."""
    s.start()
    workflow = {"type": "EXECUTION_TYPE_WORKFLOW", "business_id": s.named("w")}
    run(s, "signal", target_executions=[workflow], signal_operation={"signal": "signal"})
    s.history()
    begun = {"job_id": s.named("job"), "reason": "enough", "termination_operation": {}}
    for kind in ("ACTIVITY", "NEXUS_OPERATION", "UNSPECIFIED"):
        other = {**workflow, "type": f"EXECUTION_TYPE_{kind}"}
        s.call("StartBatchOperation", f"{kind}, not a workflow", **begun, target_executions=[other])
    both = {"target_executions": [workflow], "executions": [s.execution()]}
    s.call("StartBatchOperation", "both forms", **begun, **both)
    s.close()


@scenario
def batch_standalone(s: Session) -> None:
    targets = {}
    for base in ("cancelled", "terminated", "deleted"):
        started = standalone.begin(s, base)
        targets[base] = {"type": "EXECUTION_TYPE_ACTIVITY", "business_id": s.named(base), "run_id": started.run_id}
    why = {"identity": "a client", "reason": "no more"}
    run(s, "cancel", target_executions=[targets["cancelled"]], cancel_activities_operation=why)
    standalone.describe(s, "cancelled")
    run(s, "terminate", target_executions=[targets["terminated"]], terminate_activities_operation=why)
    standalone.describe(s, "terminated")
    run(s, "delete", target_executions=[targets["deleted"]], delete_activities_operation={})
    s.gone("DescribeActivityExecution", activity_id=s.named("deleted"))
    begun = {"job_id": s.named("job"), "reason": "enough", "cancel_activities_operation": {}}
    for kind in ("WORKFLOW", "NEXUS_OPERATION"):
        other = {**targets["cancelled"], "type": f"EXECUTION_TYPE_{kind}"}
        s.call("StartBatchOperation", f"{kind}, not an activity", **begun, target_executions=[other])
