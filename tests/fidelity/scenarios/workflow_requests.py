"""Requests of clients to workflows: signals, cancellation, termination, queries, and updates."""

from typing import Any

from fidelity.driver import Session, command, encoded, payload, payloads, scenario, token
from fidelity.scenarios.starting import COMPLETE

NOBODY = {"workflow_id": "nobody"}
NO_RUN = "00000000-0000-4000-8000-000000000000"


@scenario
def signals(s: Session) -> None:
    s.start()
    s.decide()
    signal = {"workflow_execution": s.execution(), "signal_name": "signal", "request_id": "one"}
    content = {"input": payloads("told"), "header": {"fields": {"trace": payload("id")}}}
    s.call("SignalWorkflowExecution", **signal, **content)
    s.call("SignalWorkflowExecution", "sent again", **signal, **content)
    s.call("SignalWorkflowExecution", "no name", workflow_execution=s.execution())
    s.call("SignalWorkflowExecution", "no workflow", workflow_execution=NOBODY, signal_name="signal")
    s.call("SignalWorkflowExecution", "no ID", workflow_execution={}, signal_name="signal")
    s.call("SignalWorkflowExecution", "long name", workflow_execution=s.execution(), signal_name="x" * 1001)
    s.call(
        "SignalWorkflowExecution",
        "no such run",
        workflow_execution=s.execution(run_id=NO_RUN),
        signal_name="signal",
    )
    s.call("SignalWorkflowExecution", "no run ID", workflow_execution=s.execution(run_id="first"), signal_name="signal")
    s.decide(COMPLETE)
    s.call("SignalWorkflowExecution", "closed", workflow_execution=s.execution(), signal_name="signal")
    s.history()


@scenario
def cancellation(s: Session) -> None:
    s.start()
    s.decide()
    cancel = {"workflow_execution": s.execution(), "reason": "enough", "request_id": "one"}
    s.call("RequestCancelWorkflowExecution", **cancel)
    s.describe(note="requested")
    s.call("RequestCancelWorkflowExecution", "sent again", **cancel)
    s.call("RequestCancelWorkflowExecution", "another", **cancel | {"request_id": "two"})
    s.decide(command("CANCEL_WORKFLOW_EXECUTION", details=payloads("cleaned up")))
    s.describe(note="canceled")
    s.history()
    s.call("RequestCancelWorkflowExecution", "closed", workflow_execution=s.execution())
    s.call("RequestCancelWorkflowExecution", "no workflow", workflow_execution=NOBODY)
    s.call("RequestCancelWorkflowExecution", "no run ID", workflow_execution=s.execution(run_id="first"))


@scenario
def termination(s: Session) -> None:
    s.start()
    s.call("TerminateWorkflowExecution", workflow_execution=s.execution())
    s.describe()
    s.history(note="without a reason")
    s.call("TerminateWorkflowExecution", "closed", workflow_execution=s.execution())
    s.call("TerminateWorkflowExecution", "no workflow", workflow_execution=NOBODY)
    s.start("d")
    s.call(
        "TerminateWorkflowExecution",
        "wrong first run",
        workflow_execution=s.execution("d"),
        first_execution_run_id=NO_RUN,
    )
    s.task()
    s.call(
        "TerminateWorkflowExecution",
        workflow_execution=s.execution("d"),
        reason="enough",
        details=payloads("details"),
    )
    s.history("d", note="while a worker decided")


@scenario
def deletion(s: Session) -> None:
    s.call("DeleteWorkflowExecution", "no workflow", workflow_execution=NOBODY)
    s.start()
    s.call("DeleteWorkflowExecution", workflow_execution=s.execution())


def ask(s: Session, kind: str = "look", **options: Any) -> Any:
    return s.begin("QueryWorkflow", execution=s.execution(), query={"query_type": kind}, **options)


def answered(task: Any, **result: Any) -> dict[str, Any]:
    """Answers to the queries of a task."""
    return dict.fromkeys(task.queries, result)


@scenario
def queries(s: Session) -> None:
    s.start()
    s.decide()
    asked = ask(s)
    task = s.task()
    s.call("RespondQueryTaskCompleted", task_token=token(task), completed_type=1, query_result=payloads("seen"))
    s.end("QueryWorkflow", asked, "answered")
    asked = ask(s, "broken")
    task = s.task()
    s.call(
        "RespondQueryTaskCompleted",
        task_token=token(task),
        completed_type=2,
        error_message="no such query",
        failure={"message": "no such query", "application_failure_info": {"type": "NoSuchQuery"}},
    )
    s.end("QueryWorkflow", asked, "failed")
    s.call("RespondQueryTaskCompleted", "nobody waits", task_token=token(task), completed_type=1)
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    asked = ask(s)
    task = s.task(note="with a query")
    s.complete(
        task,
        query_results=answered(task, result_type="QUERY_RESULT_TYPE_ANSWERED", answer=payloads("with the task")),
    )
    s.end("QueryWorkflow", asked, "answered with a task")
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    asked = ask(s)
    task = s.task(note="with a query that fails")
    s.complete(
        task,
        COMPLETE,
        query_results=answered(task, result_type="QUERY_RESULT_TYPE_FAILED", error_message="cannot"),
    )
    s.end("QueryWorkflow", asked, "failed with a task")
    s.end("QueryWorkflow", ask(s, query_reject_condition="QUERY_REJECT_CONDITION_NOT_OPEN"), "closed: rejected")
    s.call("QueryWorkflow", "no workflow", execution=NOBODY, query={"query_type": "look"})
    s.call("QueryWorkflow", "no query", execution=s.execution())
    asked = ask(s)
    task = s.task(note="of a closed workflow")
    s.call("RespondQueryTaskCompleted", task_token=token(task), completed_type=1, query_result=payloads("seen"))
    s.end("QueryWorkflow", asked, "closed")


@scenario
def query_before_the_first_task(s: Session) -> None:
    s.start()
    s.close()
    s.call("QueryWorkflow", execution=s.execution(), query={"query_type": "look"})


def _update(s: Session, update_id: str, stage: str, **options: Any) -> dict[str, Any]:
    return {
        "workflow_execution": s.execution(),
        "wait_policy": {"lifecycle_stage": f"UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_{stage}"},
        "request": {
            "meta": {"update_id": update_id, "identity": "the scenario"},
            "input": {"name": "change", "args": payloads("new"), "header": {"fields": {"trace": payload("id")}}},
        },
        **options,
    }


def _packed(kind: str, **fields: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/temporal.api.update.v1.{kind}", **fields}


def _message(task: Any, kind: str, name: str = "", **fields: Any) -> dict[str, Any]:
    """An answer to the first message of a task."""
    reported = task.messages[0] if task.messages else None
    instance = reported.protocol_instance_id if reported is not None else ""
    return {"id": f"{instance}/{name or kind}", "protocol_instance_id": instance, "body": _packed(kind, **fields)}


@scenario
def updates(s: Session) -> None:
    s.start()
    s.decide()
    asked = s.begin("UpdateWorkflowExecution", **_update(s, "u1", "COMPLETED"))
    task = s.task(note="with an update")
    request = {"accepted_request_message_id": task.messages[0].id if task.messages else ""}
    request["accepted_request_sequencing_event_id"] = task.messages[0].event_id if task.messages else 0
    accept = _message(task, "Acceptance", **request)
    finish = _message(task, "Response", meta={"update_id": "u1"}, outcome={"success": payloads("changed")})
    s.complete(
        task,
        command("PROTOCOL_MESSAGE", message_id=accept["id"]),
        command("PROTOCOL_MESSAGE", message_id=finish["id"]),
        messages=[accept, finish],
    )
    s.end("UpdateWorkflowExecution", asked, "completed")
    s.call("UpdateWorkflowExecution", "sent again", **_update(s, "u1", "COMPLETED"))
    s.history()
    reference = {"workflow_execution": s.execution(), "update_id": "u1"}
    waited = {"lifecycle_stage": "UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED"}
    s.call("PollWorkflowExecutionUpdate", update_ref=reference, wait_policy=waited)
    s.call("PollWorkflowExecutionUpdate", "no such update", update_ref=reference | {"update_id": "none"})
    asked = s.begin("UpdateWorkflowExecution", **_update(s, "u2", "COMPLETED"))
    task = s.task(note="with an update that is rejected")
    s.complete(task, messages=[_rejection(task)])
    s.end("UpdateWorkflowExecution", asked, "rejected")
    s.call("UpdateWorkflowExecution", "no workflow", **_update(s, "u3", "ACCEPTED") | {"workflow_execution": NOBODY})
    s.call("UpdateWorkflowExecution", "no stage", **_update(s, "u3", "UNSPECIFIED") | {"wait_policy": {}})
    s.call("UpdateWorkflowExecution", "no request", workflow_execution=s.execution())
    s.close()
    s.call("UpdateWorkflowExecution", "closed", **_update(s, "u4", "ACCEPTED"))
    s.describe()


@scenario
def resets(s: Session) -> None:
    started = s.start()
    s.decide()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal", input=payloads("told"))
    s.decide(command("RECORD_MARKER", marker_name="marker"))
    reset = {"workflow_execution": s.execution(run_id=started.run_id), "reason": "again", "request_id": "one"}
    s.call("ResetWorkflowExecution", "no such event", **reset, workflow_task_finish_event_id=99)
    s.call("ResetWorkflowExecution", "no event", **reset)
    again = s.call("ResetWorkflowExecution", **reset, workflow_task_finish_event_id=4)
    s.history(note="the new run", run_id=again.run_id)
    s.history(note="the old run", run_id=started.run_id)
    s.describe(note="the new run", run_id=again.run_id)
    s.describe(note="the old run", run_id=started.run_id)
    s.call("ResetWorkflowExecution", "no workflow", **reset | {"workflow_execution": NOBODY})
    s.close()


@scenario
def histories(s: Session) -> None:
    s.start()
    s.decide()
    s.call("GetWorkflowExecutionHistory", "no workflow", execution=NOBODY)
    s.call("GetWorkflowExecutionHistory", "no ID", execution={})
    s.call("GetWorkflowExecutionHistory", "bad token", execution=s.execution(), next_page_token=encoded(b"page"))
    s.call("GetWorkflowExecutionHistoryReverse", execution=s.execution())
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    s.decide(COMPLETE)
    s.history(note="the closing event", history_event_filter_type="HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT")
    s.history(
        note="waited for",
        history_event_filter_type="HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT",
        wait_new_event=True,
    )
    s.call("DescribeWorkflowExecution", "no workflow", execution=NOBODY)
    s.call("DescribeWorkflowExecution", "no ID", execution={})
    s.call("DescribeWorkflowExecution", "no run ID", execution=s.execution(run_id="first"))
    s.call("DescribeWorkflowExecution", "no such run", execution=s.execution(run_id=NO_RUN))


@scenario
def update_with_start(s: Session) -> None:
    start = {"start_workflow": {"namespace": s.server.namespace, **s.started()}}
    chosen = {"workflow_id_conflict_policy": "WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING"}
    start["start_workflow"] |= chosen
    update = {"update_workflow": {"namespace": s.server.namespace, **_update(s, "u1", "COMPLETED")}}
    asked = s.begin("ExecuteMultiOperation", operations=[start, update])
    task = s.task(note="with an update")
    reported = task.messages[0] if task.messages else None
    accept = _message(
        task,
        "Acceptance",
        accepted_request_message_id=reported.id if reported else "",
        accepted_request_sequencing_event_id=reported.event_id if reported else 0,
    )
    finish = _message(task, "Response", meta={"update_id": "u1"}, outcome={"success": payloads("changed")})
    s.complete(
        task,
        command("PROTOCOL_MESSAGE", message_id=accept["id"]),
        command("PROTOCOL_MESSAGE", message_id=finish["id"]),
        messages=[accept, finish],
    )
    s.end("ExecuteMultiOperation", asked, "completed")
    s.call("ExecuteMultiOperation", "sent again", operations=[start, update])
    s.history()
    refused = {
        "nothing": [],
        "only a start": [start],
        "only an update": [update],
        "twice a start": [start, start],
        "the other way round": [update, start],
        "no operation": [start, {}],
        "no policy": [{"start_workflow": start["start_workflow"] | {"workflow_id_conflict_policy": 0}}, update],
        "another workflow": [{"start_workflow": start["start_workflow"] | {"workflow_id": "other"}}, update],
        "a cron": [{"start_workflow": start["start_workflow"] | {"cron_schedule": "@daily"}}, update],
        "eagerly": [{"start_workflow": start["start_workflow"] | {"request_eager_execution": True}}, update],
        "after a delay": [{"start_workflow": start["start_workflow"] | {"workflow_start_delay": "1s"}}, update],
        "no update ID": [start, {"update_workflow": update["update_workflow"] | {"request": {}}}],
    }
    for note, operations in refused.items():
        s.call("ExecuteMultiOperation", note, operations=operations)
    fail = {"start_workflow": start["start_workflow"] | {"workflow_id_conflict_policy": 1, "request_id": "another"}}
    s.call("ExecuteMultiOperation", "it runs", operations=[fail, update])
    s.close()


@scenario
def update_options(s: Session) -> None:
    started = s.start()
    s.decide()
    s.call("UpdateWorkflowExecution", "admitted", **_update(s, "u1", "ADMITTED"))
    s.call("UpdateWorkflowExecution", "another chain", **_update(s, "u1", "ACCEPTED", first_execution_run_id=NO_RUN))
    asked = s.begin("UpdateWorkflowExecution", **_update(s, "u1", "ACCEPTED", first_execution_run_id=started.run_id))
    task = s.task(note="with an update")
    reported = task.messages[0] if task.messages else None
    accept = _message(
        task,
        "Acceptance",
        accepted_request_message_id=reported.id if reported else "",
        accepted_request_sequencing_event_id=reported.event_id if reported else 0,
    )
    s.complete(task, command("PROTOCOL_MESSAGE", message_id=accept["id"]), messages=[accept])
    s.end("UpdateWorkflowExecution", asked, "accepted")
    reference = {"workflow_execution": s.execution(), "update_id": "u1"}
    for stage in ("ACCEPTED", "UNSPECIFIED"):
        policy = {"lifecycle_stage": f"UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_{stage}"}
        s.call("PollWorkflowExecutionUpdate", stage, update_ref=reference, wait_policy=policy)
    s.call("PollWorkflowExecutionUpdate", "no update", wait_policy={})
    failed = _message(
        task,
        "Response",
        meta={"update_id": "u1"},
        outcome={"failure": {"message": "no", "application_failure_info": {"type": "Refused"}}},
    )
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    s.decide(
        command("PROTOCOL_MESSAGE", message_id=failed["id"]),
        COMPLETE,
        messages=[failed],
    )
    policy = {"lifecycle_stage": "UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED"}
    s.call("PollWorkflowExecutionUpdate", "failed", update_ref=reference, wait_policy=policy)
    s.call("UpdateWorkflowExecution", "closed", **_update(s, "u2", "ACCEPTED"))
    s.history()


@scenario
def reset_options(s: Session) -> None:
    started = s.start()
    s.decide()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal", input=payloads("told"))
    s.decide(COMPLETE)
    reset = {"workflow_execution": s.execution(run_id=started.run_id), "reason": "again"}
    reset |= {"workflow_task_finish_event_id": 4}
    kinds = ("SIGNAL", "UPDATE", "NEXUS")
    excluded = {"reset_reapply_exclude_types": [f"RESET_REAPPLY_EXCLUDE_TYPE_{kind}" for kind in kinds]}
    again = s.call("ResetWorkflowExecution", "nothing reapplied", **reset, **excluded, request_id="one")
    s.history(note="nothing reapplied", run_id=again.run_id)
    for kind in ("SIGNAL", "NONE", "ALL_ELIGIBLE"):
        again = s.call(
            "ResetWorkflowExecution",
            kind,
            **reset,
            reset_reapply_type=f"RESET_REAPPLY_TYPE_{kind}",
            request_id=f"request {kind}",
        )
        s.history(note=kind, run_id=again.run_id)
    signal = {"signal_name": "after", "input": payloads("told"), "header": {"fields": {"trace": payload("id")}}}
    again = s.call(
        "ResetWorkflowExecution",
        "a signal afterwards",
        **reset,
        request_id="signal",
        post_reset_operations=[{"signal_workflow": signal}],
    )
    s.history(note="a signal afterwards", run_id=again.run_id)
    override = {"workflow_execution_options": {"versioning_override": {"auto_upgrade": True}}}
    again = s.call(
        "ResetWorkflowExecution",
        "other options afterwards",
        **reset,
        request_id="options",
        post_reset_operations=[{"update_workflow_options": override | {"update_mask": "versioningOverride"}}],
    )
    s.history(note="other options afterwards", run_id=again.run_id)
    s.call("ResetWorkflowExecution", "no operation", **reset, request_id="none", post_reset_operations=[{}])
    s.close()


@scenario
def links_of_requests(s: Session) -> None:
    link = {"workflow_event": {"namespace": s.server.namespace, "workflow_id": "other", "run_id": NO_RUN}}
    link["workflow_event"] |= {"event_ref": {"event_id": 5, "event_type": "EVENT_TYPE_WORKFLOW_TASK_COMPLETED"}}
    links = {"links": [link]}
    s.start(**links)
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal", **links)
    s.call("RequestCancelWorkflowExecution", workflow_execution=s.execution(), **links)
    s.call("TerminateWorkflowExecution", workflow_execution=s.execution(), **links)
    s.history()
    s.call("SignalWithStartWorkflowExecution", **s.started("other", signal_name="signal", **links))
    s.history("other")
    s.close("other")


@scenario
def requests_to_one_chain(s: Session) -> None:
    started = s.start()
    execution = {"workflow_execution": s.execution(), "first_execution_run_id": started.run_id}
    other = execution | {"first_execution_run_id": NO_RUN}
    s.call("RequestCancelWorkflowExecution", "another chain", **other)
    s.call("RequestCancelWorkflowExecution", **execution)
    s.call("TerminateWorkflowExecution", "another chain", **other)
    s.call("TerminateWorkflowExecution", **execution)


@scenario
def pages_of_histories(s: Session) -> None:
    s.start()
    s.decide()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    s.decide(COMPLETE)
    for rpc in ("GetWorkflowExecutionHistory", "GetWorkflowExecutionHistoryReverse"):
        s.call(rpc, "a page", execution=s.execution(), maximum_page_size=100)
        s.call(rpc, "bad token", execution=s.execution(), next_page_token=encoded(b"page"))
        s.call(rpc, "no workflow", execution=NOBODY)
    s.history(note="all events", history_event_filter_type="HISTORY_EVENT_FILTER_TYPE_ALL_EVENT", skip_archival=True)


@scenario
def query_options(s: Session) -> None:
    s.start()
    s.decide()
    content = {"query_args": payloads("which"), "header": {"fields": {"trace": payload("id")}}}
    query = {"query": {"query_type": "look", **content}}
    asked = s.begin("QueryWorkflow", execution=s.execution(), **query, query_reject_condition=1)
    task = s.task(note="with arguments")
    s.call("RespondQueryTaskCompleted", task_token=token(task), completed_type=1, query_result=payloads("seen"))
    s.end("QueryWorkflow", asked, "answered")
    s.call("TerminateWorkflowExecution", workflow_execution=s.execution())
    for condition in ("NOT_OPEN", "NOT_COMPLETED_CLEANLY"):
        chosen = f"QUERY_REJECT_CONDITION_{condition}"
        s.call("QueryWorkflow", condition, execution=s.execution(), **query, query_reject_condition=chosen)


@scenario
def update_with_start_refused(s: Session) -> None:
    """Nothing is started, and each operation has an error."""

    def both(note: str, start: dict[str, Any] | None = None, **options: Any) -> None:
        started = {"namespace": s.server.namespace, **s.started(**start or {})}
        update = {"namespace": s.server.namespace, **_update(s, "u", "ACCEPTED"), **options}
        s.call("ExecuteMultiOperation", note, operations=[{"start_workflow": started}, {"update_workflow": update}])

    both("with a cron schedule", {"cron_schedule": "0 12 * * *"})
    both("with an eager start", {"request_eager_execution": True})
    both("with a delay", {"workflow_start_delay": "1s"})
    both("with the first run of a chain", first_execution_run_id=NO_RUN)
    both("with a run", workflow_execution=s.execution(run_id=NO_RUN))
    both("of another workflow", workflow_execution=s.execution("other"))
    policies = {
        "workflow_id_reuse_policy": "WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING",
        "workflow_id_conflict_policy": "WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING",
    }
    both("with two policies for an open workflow", policies)
    s.describe()


@scenario
def requests_with_a_first_execution_run_id(s: Session) -> None:
    first = s.start()
    s.decide(command("CONTINUE_AS_NEW_WORKFLOW_EXECUTION"))
    s.task(note="of the second run")
    named = {"workflow_execution": s.execution(run_id=first.run_id)}
    s.call("TerminateWorkflowExecution", "the first run", **named)
    s.call("RequestCancelWorkflowExecution", "the first run", **named)
    chain = named | {"first_execution_run_id": first.run_id}
    other = {"first_execution_run_id": NO_RUN}
    s.call("TerminateWorkflowExecution", "another chain", workflow_execution=s.execution(), **other)
    s.call("RequestCancelWorkflowExecution", "another chain", workflow_execution=s.execution(), **other)
    s.call("RequestCancelWorkflowExecution", "the chain", **chain)
    s.call("TerminateWorkflowExecution", "the chain", **chain)
    s.describe()


@scenario
def discarded_speculative_tasks(s: Session) -> None:
    s.start()
    s.decide()
    asked = s.begin("UpdateWorkflowExecution", **_update(s, "u1", "COMPLETED"))
    task = s.task(note="with an update that is rejected")
    s.complete(
        task,
        messages=[_rejection(task)],
        capabilities={"discard_speculative_workflow_task_with_events": True},
    )
    s.end("UpdateWorkflowExecution", asked, "rejected")
    s.history(note="without the discarded task")
    asked = s.begin("UpdateWorkflowExecution", **_update(s, "u2", "COMPLETED"))
    task = s.task(note="with another one")
    s.call(
        "RespondWorkflowTaskFailed",
        task_token=token(task),
        cause="WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE",
        messages=[_rejection(task)],
    )
    task = s.task(note="again")
    s.complete(task, messages=[_rejection(task)])
    s.end("UpdateWorkflowExecution", asked, "rejected")
    s.history()
    s.close()


def _rejection(task: Any) -> dict[str, Any]:
    """Reject the first update of a task."""
    reported = task.messages[0] if task.messages else None
    return _message(
        task,
        "Rejection",
        rejected_request_message_id=reported.id if reported else "",
        rejected_request_sequencing_event_id=reported.event_id if reported else 0,
        failure={"message": "no", "application_failure_info": {"type": "Rejected"}},
    )


@scenario
def failed_query_with_a_task(s: Session) -> None:
    s.start()
    s.decide()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    asked = ask(s)
    task = s.task(note="with a query")
    failure = {"message": "no such query", "application_failure_info": {"type": "NoSuchQuery"}}
    failed = {"result_type": "QUERY_RESULT_TYPE_FAILED", "error_message": "no such query", "failure": failure}
    s.complete(task, query_results=answered(task, **failed))
    s.end("QueryWorkflow", asked, "failed")
    s.close()


@scenario
def linked_requests_after_a_reset(s: Session) -> None:
    started = s.start()
    s.decide()
    link = {"workflow_event": {"namespace": s.server.namespace, "workflow_id": "other", "run_id": NO_RUN}}
    link["workflow_event"] |= {"event_ref": {"event_id": 5, "event_type": "EVENT_TYPE_WORKFLOW_TASK_COMPLETED"}}
    again = s.call(
        "ResetWorkflowExecution",
        workflow_execution=s.execution(run_id=started.run_id),
        reason="again",
        request_id="one",
        workflow_task_finish_event_id=4,
        post_reset_operations=[{"signal_workflow": {"signal_name": "after", "links": [link]}}],
    )
    s.history(run_id=again.run_id)
    s.close()
