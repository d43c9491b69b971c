"""Standalone Nexus operations."""

from collections.abc import Callable
from typing import Any

from temporalio.api.enums.v1 import (
    NexusOperationCancellationState,
    NexusOperationExecutionStatus,
    PendingNexusOperationState,
)

from fidelity.driver import Session, encoded, payload, scenario, token
from fidelity.scenarios.starting import NO_RUN

ALL = {"include_input": True, "include_outcome": True}
WRONG = {"message": "wrong", "application_failure_info": {"type": "Wrong", "details": {"payloads": [payload("why")]}}}
BUSY = {"message": "busy", "nexus_handler_failure_info": {"type": "UNAVAILABLE"}}
LIST = "ListNexusOperationExecutions"
ENDED_AND_OPEN = {
    NexusOperationExecutionStatus.NEXUS_OPERATION_EXECUTION_STATUS_COMPLETED,
    NexusOperationExecutionStatus.NEXUS_OPERATION_EXECUTION_STATUS_RUNNING,
}
REFUSED = {"message": "no", "nexus_handler_failure_info": {"type": "BAD_REQUEST"}}


def endpoint(s: Session, base: str = "billing", queue: str = "handlers") -> None:
    """Create an endpoint, without recording that."""
    worker = {"namespace": s.server.namespace, "task_queue": s.named(queue)}
    spec = {"name": s.named(base), "target": {"worker": worker}}
    s.poll(lambda response: response.endpoint.id, "CreateNexusEndpoint", spec=spec)


def begin(s: Session, base: str = "o", note: str = "", **options: Any) -> Any:
    """Start a standalone operation of the endpoint ``billing``."""
    request = {
        "operation_id": s.named(base),
        "endpoint": s.named("billing"),
        "service": "payments",
        "operation": "charge",
        "request_id": s.named(f"request {base} {note}"),
        **options,
    }
    return s.call("StartNexusOperationExecution", note, **request)


def describe(s: Session, base: str = "o", note: str = "", **options: Any) -> Any:
    return s.call("DescribeNexusOperationExecution", note, **{"operation_id": s.named(base), **ALL, **options})


def described_once(s: Session, so: Callable[[Any], bool], base: str = "o", note: str = "") -> Any:
    """Describe an operation once a condition holds for it."""
    return s.until(
        lambda response: so(response.info),
        "DescribeNexusOperationExecution",
        note,
        operation_id=s.named(base),
        **ALL,
    )


def backing_off(info: Any) -> bool:
    return bool(info.state == PendingNexusOperationState.PENDING_NEXUS_OPERATION_STATE_BACKING_OFF)


def canceled(info: Any) -> bool:
    state = info.cancellation_info.state
    return bool(state == NexusOperationCancellationState.NEXUS_OPERATION_CANCELLATION_STATE_SUCCEEDED)


def cancellation_refused(info: Any) -> bool:
    state = info.cancellation_info.state
    return bool(state == NexusOperationCancellationState.NEXUS_OPERATION_CANCELLATION_STATE_FAILED)


def poll(s: Session, base: str = "o", note: str = "", **options: Any) -> Any:
    return s.call("PollNexusOperationExecution", note, **{"operation_id": s.named(base), **options})


def nexus_task(s: Session, note: str = "") -> Any:
    """Poll for the call of a handler, without recording that: Temporal's server adds headers of HTTP, and a token of its own."""
    polled = {"task_queue": {"name": s.named("handlers"), "kind": "TASK_QUEUE_KIND_NORMAL"}}
    task = s.until(lambda response: response.task_token, "PollNexusTaskQueue", note, **polled)
    s.steps.pop()
    return task


def answer(s: Session, task: Any, note: str = "", **answered: Any) -> None:
    """Answer a call that starts an operation."""
    s.call("RespondNexusTaskCompleted", note, task_token=token(task), response={"start_operation": answered})


def started(s: Session, note: str = "") -> None:
    """Have a handler start the operation, and complete it later."""
    answer(s, nexus_task(s, note), note, async_success={"operation_token": "token"})


def cancel(s: Session, base: str, note: str = "", **options: Any) -> None:
    s.call("RequestCancelNexusOperationExecution", note, operation_id=s.named(base), **options)


def terminate(s: Session, base: str, note: str = "", **options: Any) -> None:
    s.call("TerminateNexusOperationExecution", note, operation_id=s.named(base), **options)


@scenario
def standalone_operation_completed(s: Session) -> None:
    endpoint(s)
    begin(
        s,
        schedule_to_close_timeout="1000s",
        schedule_to_start_timeout="200s",
        start_to_close_timeout="2000s",
        input=payload("input"),
        nexus_header={"Trace": "id"},
        user_metadata={"summary": payload("in short"), "details": payload("at length")},
        search_attributes={"indexed_fields": {"CustomKeywordField": payload("red")}},
    )
    describe(s, note="scheduled")
    describe(s, note="the little", include_input=False, include_outcome=False)
    task = nexus_task(s)
    answer(s, task, sync_success={"payload": payload("done")})
    answer(s, task, "again", sync_success={"payload": payload("done")})
    poll(s)
    poll(s, note="started", wait_stage="NEXUS_OPERATION_WAIT_STAGE_STARTED")
    describe(s, note="completed")
    describe(s, note="without the outcome", include_outcome=False, include_input=False)


@scenario
def standalone_operation_with_defaults(s: Session) -> None:
    endpoint(s)
    run_id = begin(s).run_id
    describe(s)
    started(s)
    poll(s, note="started", wait_stage="NEXUS_OPERATION_WAIT_STAGE_STARTED", run_id=run_id)
    describe(s, note="started")
    terminate(s, "o")
    begin(s, "empty")
    answer(s, nexus_task(s), sync_success={})
    poll(s, "empty")
    describe(s, "empty")


@scenario
def standalone_operation_failed(s: Session) -> None:
    endpoint(s)
    begin(s, "failed")
    answer(s, nexus_task(s), failure=WRONG)
    poll(s, "failed")
    describe(s, "failed")
    begin(s, "canceled")
    answer(s, nexus_task(s), failure={"message": "stopped", "canceled_failure_info": {}})
    poll(s, "canceled")
    describe(s, "canceled")
    begin(s, "refused")
    s.call("RespondNexusTaskFailed", task_token=token(nexus_task(s)), failure=REFUSED)
    poll(s, "refused")
    describe(s, "refused")
    begin(s, "busy")
    s.call("RespondNexusTaskFailed", task_token=token(nexus_task(s)), failure=BUSY)
    described_once(
        s,
        backing_off,
        "busy",
        "waiting for the second attempt",
    )
    answer(s, nexus_task(s, "the second attempt"), sync_success={"payload": payload("done")})
    poll(s, "busy")
    describe(s, "busy", "completed")


@scenario
def standalone_operation_timeouts(s: Session) -> None:
    endpoint(s)
    endpoint(s, "silent", "nobody")
    begin(s, "never closed", schedule_to_close_timeout="1s", endpoint=s.named("silent"))
    poll(s, "never closed")
    describe(s, "never closed")
    begin(s, "never started", schedule_to_start_timeout="1s", endpoint=s.named("silent"))
    poll(s, "never started")
    describe(s, "never started")
    begin(s, "too long", start_to_close_timeout="1s")
    started(s)
    poll(s, "too long")
    describe(s, "too long")


@scenario
def standalone_operation_canceled(s: Session) -> None:
    endpoint(s)
    begin(s, "unstarted")
    cancel(s, "unstarted", request_id="first", reason="enough")
    cancel(s, "unstarted", "again", request_id="first")
    cancel(s, "unstarted", "once more", request_id="second")
    describe(s, "unstarted", "requested")
    started(s)
    task = nexus_task(s, "the cancellation")
    s.call("RespondNexusTaskCompleted", task_token=token(task), response={"cancel_operation": {}})
    described_once(
        s,
        canceled,
        "unstarted",
        "canceled",
    )
    terminate(s, "unstarted")
    begin(s, "started")
    started(s)
    cancel(s, "started", request_id="first", reason="enough")
    task = nexus_task(s, "the cancellation")
    s.call("RespondNexusTaskFailed", task_token=token(task), failure=REFUSED)
    described_once(
        s,
        cancellation_refused,
        "started",
        "refused",
    )
    terminate(s, "started")


@scenario
def standalone_operation_terminated(s: Session) -> None:
    endpoint(s)
    endpoint(s, "silent", "nobody")
    begin(s, endpoint=s.named("silent"))
    terminate(s, "o", request_id="first", reason="no more")
    terminate(s, "o", "again", request_id="first")
    terminate(s, "o", "once more", request_id="second")
    cancel(s, "o", "terminated")
    poll(s)
    describe(s)
    begin(s, "b")
    cancel(s, "b", request_id="first")
    answer(s, nexus_task(s), sync_success={"payload": payload("done")})
    poll(s, "b")
    terminate(s, "b", "completed", request_id="first")
    cancel(s, "b", "completed", request_id="first")
    cancel(s, "b", "completed, another request", request_id="second")


@scenario
def standalone_operation_ids(s: Session) -> None:
    endpoint(s)
    first = begin(s, note="first")
    begin(s, note="first")
    begin(s, note="in use")
    begin(s, note="in use, use it", id_conflict_policy="NEXUS_OPERATION_ID_CONFLICT_POLICY_USE_EXISTING")
    answer(s, nexus_task(s), failure=WRONG)
    poll(s)
    begin(s, note="failed, rejected", id_reuse_policy="NEXUS_OPERATION_ID_REUSE_POLICY_REJECT_DUPLICATE")
    begin(s, note="failed", id_reuse_policy="NEXUS_OPERATION_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY")
    answer(s, nexus_task(s), sync_success={"payload": payload("done")})
    poll(s)
    begin(s, note="completed", id_reuse_policy="NEXUS_OPERATION_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY")
    begin(s, note="completed, allowed")
    poll(s, note="the first", run_id=first.run_id)
    describe(s, note="the newest")


@scenario
def standalone_operation_refusals(s: Session) -> None:
    endpoint(s)
    begin(s)
    cancel(s, "o", "long reason", reason="a" * 1_001)
    terminate(s, "o", "long reason", reason="a" * 1_001)
    terminate(s, "o")
    begin(s, note="no ID", operation_id="")
    begin(s, note="no endpoint", endpoint="")
    begin(s, note="unknown endpoint", endpoint=s.named("nowhere"))
    begin(s, note="no service", service="")
    begin(s, note="no operation", operation="")
    begin(s, note="long ID", operation_id="a" * 1001)
    begin(s, note="long service", service="a" * 1001)
    begin(s, note="long operation", operation="a" * 1001)
    begin(s, note="negative timeout", start_to_close_timeout="-1s")
    begin(s, note="long summary", user_metadata={"summary": payload("a" * 500)})
    begin(s, note="server's header", nexus_header={"Request-Timeout": "1s"})
    begin(s, note="large header", nexus_header={"name": "a" * 8_200})
    begin(s, note="unknown search attribute", search_attributes={"indexed_fields": {"Unknown": payload(1)}})
    begin(s, note="large input", input=payload("a" * 3_000_000))
    describe(s, "nothing")
    describe(s, "nothing", "odd run ID", run_id="first")
    describe(s, "nothing", "no ID", operation_id="")
    describe(s, "nothing", "a token without a run ID", long_poll_token=encoded(b"token"))
    poll(s, "nothing")
    poll(s, "nothing", "odd stage", wait_stage=7)
    cancel(s, "nothing")
    terminate(s, "nothing")
    s.call("DeleteNexusOperationExecution", operation_id=s.named("nothing"))


@scenario
def standalone_operation_long_polls(s: Session) -> None:
    endpoint(s)
    run_id = begin(s).run_id
    reported = describe(s, note="scheduled")
    following = {"operation_id": s.named("o"), "run_id": run_id}
    waiting = s.begin("DescribeNexusOperationExecution", **following, long_poll_token=encoded(reported.long_poll_token))
    outcome = s.begin("PollNexusOperationExecution", **following)
    answer(s, nexus_task(s), sync_success={"payload": payload("done")})
    s.end("DescribeNexusOperationExecution", waiting, "changed")
    s.end("PollNexusOperationExecution", outcome, "closed")
    s.call("DescribeNexusOperationExecution", "odd token", **following, long_poll_token=encoded(b"token"))


@scenario
def standalone_operations_listed(s: Session) -> None:
    endpoint(s)
    begin(s, "a", search_attributes={"indexed_fields": {"CustomKeywordField": payload(s.named("red"))}})
    answer(s, nexus_task(s), sync_success={"payload": payload("done")})
    poll(s, "a")
    begin(s, "b")
    here = f"Endpoint = '{s.named('billing')}'"
    # A list shows an operation, and its end, some time later.
    s.poll(lambda response: {each.status for each in response.operations} == ENDED_AND_OPEN, LIST, query=here)
    for note, query in (
        ("all", here),
        ("by ID", f"OperationId = '{s.named('a')}'"),
        ("by status", f"{here} AND ExecutionStatus = 'Running'"),
        ("by service and operation", f"{here} AND Service = 'payments' AND Operation = 'charge'"),
        ("by a search attribute", f"CustomKeywordField = '{s.named('red')}'"),
    ):
        s.until(lambda response: response.operations, LIST, note, query=query)
    s.until(lambda response: response.count == 2, "CountNexusOperationExecutions", query=here)
    s.call("CountNexusOperationExecutions", "grouped", query=f"{here} GROUP BY ExecutionStatus")
    s.call(LIST, "unknown field", query="ActivityType = 'x'")
    s.call(LIST, "malformed", query="Endpoint =")
    s.call("CountNexusOperationExecutions", "malformed", query="Endpoint =")
    s.call("DeleteNexusOperationExecution", operation_id=s.named("a"))
    s.until(lambda response: response.count == 1, "CountNexusOperationExecutions", "deleted", query=here)
    terminate(s, "b")


@scenario
def standalone_operation_pages(s: Session) -> None:
    endpoint(s)
    for base in ("a", "b", "c"):
        begin(s, base)
    here = f"Endpoint = '{s.named('billing')}'"
    s.until(lambda response: response.count == 3, "CountNexusOperationExecutions", query=here)
    page = s.call(LIST, "a page", query=here, page_size=2)
    s.call(LIST, "the next page", query=here, page_size=2, next_page_token=encoded(page.next_page_token))
    s.call(LIST, "bad token", query=here, next_page_token=encoded(b"page"))
    for base in ("a", "b", "c"):
        terminate(s, base)


@scenario
def standalone_operation_by_run(s: Session) -> None:
    endpoint(s)
    link = {"workflow_event": {"namespace": s.server.namespace, "workflow_id": "other", "run_id": NO_RUN}}
    link["workflow_event"] |= {"event_ref": {"event_id": 5, "event_type": "EVENT_TYPE_WORKFLOW_TASK_COMPLETED"}}
    run_id = begin(s, links=[link], id_conflict_policy="NEXUS_OPERATION_ID_CONFLICT_POLICY_FAIL").run_id
    describe(s)
    started(s)
    cancel(s, "o", run_id=run_id, request_id="one")
    terminate(s, "o", run_id=run_id, request_id="one")
    poll(s, run_id=run_id, wait_stage="NEXUS_OPERATION_WAIT_STAGE_CLOSED")
    begin(s, note="again", id_reuse_policy="NEXUS_OPERATION_ID_REUSE_POLICY_ALLOW_DUPLICATE")
    s.call("DeleteNexusOperationExecution", operation_id=s.named("o"), run_id=run_id)
    s.gone("DescribeNexusOperationExecution", operation_id=s.named("o"), run_id=run_id)
    describe(s, note="the newest is kept")
    terminate(s, "o", "the newest")
