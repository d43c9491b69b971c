"""Nexus: endpoints, operations of workflows, and the tasks of their handlers."""

from typing import Any

from fidelity.driver import Session, command, encoded, payload, payloads, scenario, token
from fidelity.scenarios.standalone_nexus import REFUSED, answer, endpoint, nexus_task, started
from fidelity.scenarios.starting import COMPLETE

NO_ID = "00000000-0000-4000-8000-000000000000"


def _spec(s: Session, base: str = "billing", **fields: Any) -> Any:
    worker = {"namespace": s.server.namespace, "task_queue": s.named("handlers")}
    return {"name": s.named(base), "target": {"worker": worker}, **fields}


@scenario
def nexus_endpoints(s: Session) -> None:
    made = s.call("CreateNexusEndpoint", spec=_spec(s, description=payload("charges customers"))).endpoint
    s.call("CreateNexusEndpoint", "taken", spec=_spec(s))
    s.call("CreateNexusEndpoint", "no spec")
    s.call("CreateNexusEndpoint", "no target", spec={"name": s.named("other")})
    s.call("CreateNexusEndpoint", "odd name", spec=_spec(s) | {"name": "1st"})
    s.call("CreateNexusEndpoint", "long name", spec=_spec(s) | {"name": "x" * 201})
    nowhere = {"target": {"worker": {"namespace": "nowhere-" + s.suffix, "task_queue": "q"}}}
    s.call("CreateNexusEndpoint", "no such namespace", spec=_spec(s, "other") | nowhere)
    s.call(
        "CreateNexusEndpoint",
        "no task queue",
        spec=_spec(s, "other", target={"worker": {"namespace": s.server.namespace}}),
    )
    s.call("GetNexusEndpoint", id=made.id)
    s.call("GetNexusEndpoint", "no ID")
    s.call("GetNexusEndpoint", "odd ID", id="first")
    s.call("GetNexusEndpoint", "unknown", id=NO_ID)
    s.call("ListNexusEndpoints", name=s.named("billing"))
    s.call("ListNexusEndpoints", "unknown", name=s.named("other"))
    s.call("ListNexusEndpoints", "large pages", page_size=1_001)
    s.call("UpdateNexusEndpoint", id=made.id, version=made.version, spec=_spec(s, "invoicing"))
    s.call("UpdateNexusEndpoint", "old version", id=made.id, version=made.version, spec=_spec(s))
    s.call("UpdateNexusEndpoint", "unknown", id=NO_ID, version=1, spec=_spec(s, "other"))
    s.call("GetNexusEndpoint", "updated", id=made.id)
    s.call("DeleteNexusEndpoint", "no version", id=made.id)
    s.call("DeleteNexusEndpoint", id=made.id, version=made.version + 1)
    s.call("DeleteNexusEndpoint", "deleted", id=made.id, version=made.version + 1)
    s.call("GetNexusEndpoint", "deleted", id=made.id)


@scenario
def nexus_commands_refused(s: Session) -> None:
    for base, refused in (
        ("no endpoint", command("SCHEDULE_NEXUS_OPERATION", endpoint=s.named("nowhere"), service="s", operation="o")),
        ("no operation", command("REQUEST_CANCEL_NEXUS_OPERATION", scheduled_event_id="5")),
    ):
        s.start(base)
        s.decide(refused, note=base)
        s.history(base)
        s.close(base)


def operation(s: Session, **options: Any) -> dict[str, Any]:
    """A command that schedules an operation of the endpoint ``billing``."""
    named = {"endpoint": s.named("billing"), "service": "payments", "operation": "charge"}
    return command("SCHEDULE_NEXUS_OPERATION", **named, **options)


def link(s: Session) -> dict[str, str]:
    """A link to a workflow, as handlers return it."""
    path = f"namespaces/{s.server.namespace}/workflows/{s.named('charge')}/{NO_ID}/history"
    query = "eventID=1&eventType=WorkflowExecutionStarted&referenceType=EventReference"
    return {"type": "temporal.api.common.v1.Link.WorkflowEvent", "url": f"temporal:///{path}?{query}"}


def failure(message: str = "wrong", **more: Any) -> dict[str, Any]:
    """A failure as handlers of other SDKs report it."""
    return {"message": message, "metadata": {"kind": "odd"}, "details": encoded(b'{"why": "none left"}'), **more}


@scenario
def nexus_operation_completed(s: Session) -> None:
    endpoint(s)
    s.start()
    timeouts = {"schedule_to_close_timeout": "1000s", "schedule_to_start_timeout": "200s"}
    options = {"input": payload("input"), "nexus_header": {"Trace": "id"}, **timeouts}
    s.decide(operation(s, **options, start_to_close_timeout="2000s"))
    s.describe(note="scheduled")
    answer(s, nexus_task(s), sync_success={"payload": payload("done"), "links": [link(s)]})
    s.decide(operation(s), note="completed")
    s.describe(note="without options")
    answer(s, nexus_task(s), sync_success={})
    s.decide(COMPLETE, note="completed without a result")
    s.history()


@scenario
def nexus_operation_started(s: Session) -> None:
    endpoint(s)
    s.start()
    s.decide(operation(s))
    answer(s, nexus_task(s), async_success={"operation_token": "token", "links": [link(s)]})
    s.decide(command("REQUEST_CANCEL_NEXUS_OPERATION", scheduled_event_id=5), note="started")
    s.call(
        "RespondNexusTaskCompleted",
        "of a cancellation",
        task_token=token(nexus_task(s)),
        response={"cancel_operation": {}},
    )
    s.decide(note="the handler was asked to cancel")
    s.describe()
    s.history()
    s.close()


@scenario
def nexus_cancellation_refused(s: Session) -> None:
    endpoint(s)
    s.start()
    s.decide(operation(s))
    started(s)
    s.decide(command("REQUEST_CANCEL_NEXUS_OPERATION", scheduled_event_id=5), note="started")
    s.call("RespondNexusTaskFailed", task_token=token(nexus_task(s)), failure=REFUSED)
    s.decide(note="the handler has refused to cancel")
    s.describe()
    s.history()
    s.close()


@scenario
def nexus_operation_failed(s: Session) -> None:
    endpoint(s)
    s.start()
    s.decide(operation(s))
    wrong = {"message": "wrong", "application_failure_info": {"type": "Wrong", "details": payloads("why")}}
    answer(s, nexus_task(s), failure=wrong)
    s.decide(operation(s), note="failed")
    answer(s, nexus_task(s), failure={"message": "stopped", "canceled_failure_info": {"details": payloads("why")}})
    s.decide(operation(s), note="canceled")
    s.call("RespondNexusTaskFailed", task_token=token(nexus_task(s)), failure=REFUSED)
    s.decide(COMPLETE, note="refused")
    s.history()


@scenario
def nexus_operation_failed_by_other_sdks(s: Session) -> None:
    """In the form of the Nexus protocol."""
    endpoint(s)
    s.start()
    s.decide(operation(s))
    full = failure(stack_trace="line 1", cause=failure("none left"))
    answer(s, nexus_task(s), operation_error={"operation_state": "failed", "failure": full})
    s.decide(operation(s), note="failed")
    answer(s, nexus_task(s), operation_error={"operation_state": "canceled", "failure": failure()})
    s.decide(operation(s), note="canceled")
    final = {"retry_behavior": "NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_NON_RETRYABLE", "failure": full}
    s.call("RespondNexusTaskFailed", task_token=token(nexus_task(s)), error={"error_type": "INTERNAL", **final})
    s.decide(operation(s), note="not retried")
    again = {"retry_behavior": "NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_RETRYABLE", "failure": failure()}
    s.call("RespondNexusTaskFailed", task_token=token(nexus_task(s)), error={"error_type": "BAD_REQUEST", **again})
    s.call("RespondNexusTaskFailed", task_token=token(nexus_task(s, "retried")), error={"error_type": "NOT_FOUND"})
    s.decide(COMPLETE, note="not found")
    s.history()


@scenario
def nexus_tasks(s: Session) -> None:
    """What workers are refused."""
    polled = {"task_queue": {"name": s.named("handlers"), "kind": "TASK_QUEUE_KIND_NORMAL"}}
    for rpc, answered in (
        ("RespondNexusTaskCompleted", {"response": {"start_operation": {"sync_success": {}}}}),
        ("RespondNexusTaskFailed", {"failure": REFUSED}),
    ):
        s.call(rpc, "no token", **answered)
        s.call(rpc, "bad token", task_token=encoded(b"token"), **answered)
    s.call("PollNexusTaskQueue", "no queue", task_queue={})
    s.call("PollNexusTaskQueue", "long name", task_queue={"name": "x" * 1001})
    s.call("PollNexusTaskQueue", "unknown namespace", namespace="nowhere", **polled)
    endpoint(s)
    s.start()
    s.decide(operation(s))
    task = nexus_task(s)
    s.call("RespondNexusTaskFailed", "no failure", task_token=token(task))
    odd = {"message": "odd", "application_failure_info": {"type": "Odd"}}
    s.call("RespondNexusTaskFailed", "not of a handler", task_token=token(task), failure=odd)
    s.call("RespondNexusTaskFailed", task_token=token(task), failure=REFUSED)
    s.call("RespondNexusTaskFailed", "again", task_token=token(task), failure=REFUSED)
    s.decide(COMPLETE, note="refused")
    s.history()


@scenario
def nexus_context(s: Session) -> None:
    """A handler starts a workflow, whose result is that of the operation."""
    endpoint(s)
    run_id = s.start().run_id
    s.decide(operation(s, input=payload("input")))
    task = nexus_task(s)
    call = task.request.start_operation
    back = {"nexus": {"url": call.callback, "header": dict(call.callback_header)}}
    scheduled = {"event_ref": {"event_id": 5, "event_type": "EVENT_TYPE_NEXUS_OPERATION_SCHEDULED"}}
    linked = [{"workflow_event": {"namespace": s.server.namespace, **s.execution(run_id=run_id), **scheduled}}]
    context = {"endpoint": s.named("billing"), "service": "payments", "operation": "charge"}
    s.start(
        "charge",
        task_queue={"name": s.named("c")},
        completion_callbacks=[{**back, "links": linked}],
        links=linked,
        propagated_nexus_serialization_context=context,
    )
    answer(s, task, async_success={"operation_token": "token", "links": [link(s)]})
    s.decide(note="started")
    done = command("COMPLETE_WORKFLOW_EXECUTION", result=payloads("done"))
    s.complete(s.task("c", "of the handler"), done)
    s.decide(COMPLETE, note="completed")
    s.history()
    s.history("charge", note="of the handler")
    s.describe("charge", note="of the handler")


@scenario
def nexus_endpoints_listed(s: Session) -> None:
    endpoint(s)
    endpoint(s, "invoicing")
    s.call("ListNexusEndpoints", name=s.named("billing"), page_size=1)
    s.call("ListNexusEndpoints", "bad token", page_size=1, next_page_token=encoded(b"page"))
