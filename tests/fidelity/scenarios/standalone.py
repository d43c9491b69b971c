"""Standalone activities."""

from typing import Any

from fidelity.driver import Session, encoded, payload, payloads, scenario, token
from fidelity.scenarios.activities import FINAL, LATER, ONCE, WRONG, schedule
from fidelity.scenarios.starting import NO_RUN

ALL = {"include_input": True, "include_outcome": True, "include_heartbeat_details": True, "include_last_failure": True}


def begin(s: Session, base: str = "a", note: str = "", **options: Any) -> Any:
    """Start a standalone activity on the task queue ``q``."""
    request = {
        "activity_id": s.named(base),
        "activity_type": {"name": "Do"},
        "task_queue": {"name": s.named("q")},
        "start_to_close_timeout": "100s",
        "request_id": s.named(f"request {base} {note}"),
        **options,
    }
    return s.call("StartActivityExecution", note, **request)


def describe(s: Session, base: str = "a", note: str = "", **options: Any) -> Any:
    return s.call("DescribeActivityExecution", note, **{"activity_id": s.named(base), **ALL, **options})


def poll(s: Session, base: str = "a", note: str = "", **options: Any) -> Any:
    return s.call("PollActivityExecution", note, **{"activity_id": s.named(base), **options})


@scenario
def standalone_completed(s: Session) -> None:
    begin(
        s,
        schedule_to_close_timeout="1000s",
        schedule_to_start_timeout="200s",
        heartbeat_timeout="50s",
        input=payloads("input"),
        header={"fields": {"trace": payload("id")}},
        retry_policy={"maximum_attempts": 2, "non_retryable_error_types": ["Final"]},
        priority={"priority_key": 1},
        user_metadata={"summary": payload("in short"), "details": payload("at length")},
        search_attributes={"indexed_fields": {"CustomKeywordField": payload("red")}},
    )
    describe(s, note="scheduled")
    describe(s, note="the little", include_input=False, include_outcome=False)
    task = s.activity_task()
    describe(s, note="started")
    s.call("RecordActivityTaskHeartbeat", task_token=token(task), details=payloads("half"))
    describe(s, note="with a heartbeat")
    s.call("RespondActivityTaskCompleted", task_token=token(task), result=payloads("done"))
    s.call("RespondActivityTaskCompleted", "again", task_token=token(task), result=payloads("done"))
    s.call("RecordActivityTaskHeartbeat", "too late", task_token=token(task))
    poll(s)
    describe(s, note="completed")


@scenario
def standalone_with_defaults(s: Session) -> None:
    begin(s, "a")
    describe(s)
    s.call("RespondActivityTaskCompleted", task_token=token(s.activity_task()))
    poll(s)
    describe(s, note="completed without a result")
    begin(s, "to close", start_to_close_timeout="0s", schedule_to_close_timeout="20s", heartbeat_timeout="50s")
    describe(s, "to close")
    begin(s, "delayed", start_delay="1000s", schedule_to_close_timeout="20s")
    describe(s, "delayed")


@scenario
def standalone_failed(s: Session) -> None:
    begin(s, retry_policy={"initial_interval": "1s", "maximum_attempts": 2})
    task = s.activity_task()
    s.call("RespondActivityTaskFailed", task_token=token(task), failure=WRONG, last_heartbeat_details=payloads("half"))
    describe(s, note="waiting for the second attempt")
    task = s.activity_task(note="the second attempt")
    describe(s, note="the second attempt")
    s.call("RespondActivityTaskFailed", task_token=token(task), failure=WRONG)
    poll(s)
    describe(s, note="failed")
    begin(s, "b")
    s.call("RespondActivityTaskFailed", "final", task_token=token(s.activity_task()), failure=FINAL)
    poll(s, "b")


@scenario
def standalone_timeouts(s: Session) -> None:
    begin(s, "never started", schedule_to_start_timeout="1s", task_queue={"name": s.named("nobody")})
    poll(s, "never started")
    describe(s, "never started")
    begin(s, "too long", start_to_close_timeout="1s", **ONCE)
    s.activity_task()
    poll(s, "too long")
    describe(s, "too long")
    begin(s, "silent", heartbeat_timeout="1s", **ONCE)
    s.activity_task()
    poll(s, "silent")
    begin(s, "never closed", schedule_to_close_timeout="1s", task_queue={"name": s.named("nobody")})
    poll(s, "never closed")
    begin(
        s,
        "no time left",
        schedule_to_close_timeout="3s",
        start_to_close_timeout="1s",
        retry_policy={"initial_interval": "10s"},
    )
    s.activity_task()
    poll(s, "no time left")
    describe(s, "no time left")


@scenario
def standalone_canceled(s: Session) -> None:
    begin(s, "unstarted")
    cancel(s, "unstarted", request_id="first", reason="enough")
    cancel(s, "unstarted", "again", request_id="first")
    cancel(s, "unstarted", "once more", request_id="second")
    poll(s, "unstarted")
    describe(s, "unstarted")
    begin(s, "started")
    task = s.activity_task()
    s.call("RespondActivityTaskCanceled", "not requested", task_token=token(task))
    cancel(s, "started", request_id="first", reason="enough")
    cancel(s, "started", "again", request_id="first")
    cancel(s, "started", "once more", request_id="second")
    describe(s, "started", "requested")
    s.call("RecordActivityTaskHeartbeat", task_token=token(task), details=payloads("half"))
    s.call("RespondActivityTaskCanceled", task_token=token(task), details=payloads("details"))
    poll(s, "started")
    describe(s, "started")


def cancel(s: Session, base: str, note: str = "", **options: Any) -> None:
    s.call("RequestCancelActivityExecution", note, activity_id=s.named(base), **options)


@scenario
def standalone_terminated(s: Session) -> None:
    begin(s)
    task = s.activity_task()
    terminate(s, request_id="first", reason="no more")
    terminate(s, "again", request_id="first")
    terminate(s, "once more", request_id="second")
    cancel(s, "a")
    s.call("RecordActivityTaskHeartbeat", "too late", task_token=token(task))
    poll(s)
    describe(s)
    begin(s, "b")
    s.call("RespondActivityTaskCompleted", task_token=token(s.activity_task()), result=payloads("done"))
    terminate(s, "completed", base="b", request_id="first")
    cancel(s, "b", "completed", request_id="first")


def terminate(s: Session, note: str = "", base: str = "a", **options: Any) -> None:
    s.call("TerminateActivityExecution", note, activity_id=s.named(base), **options)


@scenario
def standalone_by_id(s: Session) -> None:
    begin(s, "a")
    by_id(s, "RecordActivityTaskHeartbeat", "a", "unstarted", details=payloads("half"))
    by_id(s, "RespondActivityTaskFailed", "a", "unstarted", failure=WRONG)
    by_id(s, "RespondActivityTaskCanceled", "a", "unstarted")
    by_id(s, "RespondActivityTaskCompleted", "a", "unstarted", result=payloads("done"))
    by_id(s, "RespondActivityTaskCompleted", "a", "again", result=payloads("done"))
    by_id(s, "RespondActivityTaskCompleted", "nothing", result=payloads("done"))
    poll(s)
    describe(s)
    run_id = begin(s, "b").run_id
    s.activity_task()
    by_id(s, "RecordActivityTaskHeartbeat", "b", details=payloads("half"), run_id=run_id)
    by_id(s, "RespondActivityTaskFailed", "b", failure=FINAL)
    poll(s, "b", run_id=run_id)


def by_id(s: Session, rpc: str, base: str, note: str = "", **options: Any) -> None:
    s.call(f"{rpc}ById", note, activity_id=s.named(base), **options)


@scenario
def standalone_ids(s: Session) -> None:
    first = begin(s, note="first")
    begin(s, note="first")
    begin(s, note="in use")
    begin(s, note="in use, use it", id_conflict_policy="ACTIVITY_ID_CONFLICT_POLICY_USE_EXISTING")
    s.call("RespondActivityTaskFailed", task_token=token(s.activity_task()), failure=FINAL)
    begin(s, note="failed, rejected", id_reuse_policy="ACTIVITY_ID_REUSE_POLICY_REJECT_DUPLICATE")
    begin(s, note="failed", id_reuse_policy="ACTIVITY_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY")
    s.call("RespondActivityTaskCompleted", task_token=token(s.activity_task()))
    begin(s, note="completed", id_reuse_policy="ACTIVITY_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY")
    begin(s, note="completed, allowed")
    poll(s, note="the first", run_id=first.run_id)
    describe(s, note="the newest")
    begin(
        s,
        note="same request, but another conflict policy",
        id_conflict_policy="ACTIVITY_ID_CONFLICT_POLICY_USE_EXISTING",
    )


@scenario
def standalone_refusals(s: Session) -> None:
    begin(s, note="no ID", activity_id="")
    begin(s, note="no type", activity_type={})
    begin(s, note="no task queue", task_queue={})
    begin(s, note="no timeout", start_to_close_timeout="0s")
    begin(s, note="long ID", activity_id="a" * 1001)
    begin(s, note="long type", activity_type={"name": "a" * 1001})
    begin(s, note="long queue", task_queue={"name": "a" * 1001})
    begin(s, note="negative timeout", heartbeat_timeout="-1s")
    begin(s, note="negative delay", start_delay="-1s")
    begin(s, note="retry policy", retry_policy={"backoff_coefficient": 0.5})
    begin(s, note="priority", priority={"priority_key": -1})
    begin(s, note="long summary", user_metadata={"summary": payload("a" * 500)})
    begin(s, note="unknown search attribute", search_attributes={"indexed_fields": {"Unknown": payload(1)}})
    begin(s, note="callback", completion_callbacks=[{"nexus": {"url": "temporal://system"}}])
    begin(s, note="large input", input=payloads("a" * 3_000_000))
    describe(s, "nothing")
    describe(s, note="no ID", activity_id="")
    describe(s, note="bad run ID", run_id="x")
    describe(s, note="token without a run ID", long_poll_token=encoded(b"x"))
    poll(s, "nothing")
    poll(s, note="no ID", activity_id="")
    cancel(s, "nothing")
    terminate(s, base="nothing")
    s.call("DeleteActivityExecution", activity_id=s.named("nothing"))
    begin(s)
    describe(s, note="another run", run_id="10000000-0000-4000-8000-000000000000")
    run_id = describe(s).run_id
    describe(s, note="bad token", run_id=run_id, long_poll_token=encoded(b"x"))
    s.call("DescribeWorkflowExecution", "as a workflow", execution=s.execution("a"))
    s.call("DescribeWorkflowExecution", "as a run of a workflow", execution=s.execution("a", run_id))
    s.call("SignalWorkflowExecution", workflow_execution=s.execution("a", run_id), signal_name="s")


@scenario
def standalone_long_polls(s: Session) -> None:
    begin(s)
    before = describe(s)
    waiting = s.begin(
        "DescribeActivityExecution",
        activity_id=s.named("a"),
        run_id=before.run_id,
        long_poll_token=encoded(before.long_poll_token),
    )
    outcome = s.begin("PollActivityExecution", activity_id=s.named("a"))
    task = s.activity_task()
    s.end("DescribeActivityExecution", waiting, "started")
    s.call("RespondActivityTaskCompleted", task_token=token(task), result=payloads("done"))
    s.end("PollActivityExecution", outcome)


@scenario
def standalone_listed(s: Session) -> None:
    for base in ("a", "b", "c"):
        begin(s, base, search_attributes={"indexed_fields": {"CustomKeywordField": payload(s.named(base))}})
        if base == "a":
            s.call("RespondActivityTaskCompleted", task_token=token(s.activity_task()))
    query = f"TaskQueue = '{s.named('q')}'"
    s.until(
        lambda r: len(r.executions) == 2,
        "ListActivityExecutions",
        "open",
        query=f"{query} AND ExecutionStatus = 'Running'",
    )
    s.until(lambda r: r.count == 3, "CountActivityExecutions", query=query)
    s.until(lambda r: len(r.groups) == 2, "CountActivityExecutions", query=f"{query} GROUP BY ExecutionStatus")
    s.until(
        lambda r: r.executions, "ListActivityExecutions", query=f"ActivityId = '{s.named('b')}' AND ActivityType = 'Do'"
    )
    s.until(
        lambda r: r.executions, "ListActivityExecutions", "by attribute", query=f"CustomKeywordField = '{s.named('b')}'"
    )
    s.call("ListActivityExecutions", "a page", query=query, page_size=1)
    s.call("ListActivityExecutions", "unknown name", query="Unknown = 1")
    s.call("ListActivityExecutions", "unknown status", query="ExecutionStatus = 'Unknown'")
    s.call("CountWorkflowExecutions", query=query)
    s.call("ListWorkflowExecutions", "a name of activities", query="ActivityId = 'a'")


@scenario
def standalone_rpcs_change_activities_of_workflows(s: Session) -> None:
    s.start()
    s.decide(schedule(s, schedule_to_close_timeout="1000s"))
    change(s, "Pause", reason="maintenance")
    s.describe(note="paused")
    change(s, "UpdateOptions", note="nothing")
    change(s, "UpdateOptions", note="both", restore_original=True, update_mask="heartbeatTimeout")
    options = {"start_to_close_timeout": "50s", "task_queue": {"name": s.named("other")}}
    change(s, "UpdateOptions", activity_options=options, update_mask="startToCloseTimeout,taskQueue.name")
    change(s, "UpdateOptions", note="unknown", activity_options=options, update_mask="nothing")
    change(s, "UpdateOptions", note="restored", restore_original=True)
    change(s, "Unpause")
    task = s.activity_task()
    change(s, "Reset", reset_heartbeat=True)
    s.call("RecordActivityTaskHeartbeat", task_token=token(task))
    change(s, "Pause", note="no such activity", activity_id="nothing")
    change(s, "Pause", note="no such workflow", workflow_id="nothing")
    s.close()


def change(s: Session, what: str, note: str = "", **options: Any) -> None:
    rpc = "UpdateActivityExecutionOptions" if what == "UpdateOptions" else f"{what}ActivityExecution"
    s.call(rpc, note, **{"workflow_id": s.named("w"), "activity_id": "a", **options})


@scenario
def standalone_changed(s: Session) -> None:
    """The same requests as for activities of workflows, by run ID."""
    run_id = begin(s, heartbeat_timeout="50s", **LATER).run_id
    of = {"workflow_id": "", "activity_id": s.named("a"), "run_id": run_id}
    task = s.activity_task()
    s.call("RespondActivityTaskFailed", task_token=token(task), failure=WRONG, last_heartbeat_details=payloads("half"))
    change(s, "Pause", **of, request_id="one", reason="broken")
    change(s, "Pause", "sent again", **of, request_id="one", reason="broken")
    change(s, "Pause", "another request", **of, request_id="two")
    describe(s, note="paused")
    change(s, "Reset", **of, request_id="one", keep_paused=True)
    describe(s, note="reset, and still paused")
    options = {"activity_options": {"start_to_close_timeout": "77s"}, "update_mask": "startToCloseTimeout"}
    change(s, "UpdateOptions", **of, request_id="one", **options)
    describe(s, note="with other options")
    change(s, "Unpause", **of, request_id="one", reason="repaired")
    change(s, "Unpause", "not paused", **of, request_id="two")
    describe(s, note="unpaused")
    change(s, "Reset", "with its options", **of, request_id="two", restore_original_options=True)
    describe(s, note="reset with its options")
    change(s, "Pause", "once more", **of, request_id="three")
    change(s, "Unpause", "a moment later", **of, request_id="three", jitter="0.1s")
    change(s, "Reset", "a moment later", **of, request_id="three", jitter="0.1s")
    cancel(s, "a", run_id=run_id, request_id="one")
    terminate(s, run_id=run_id, request_id="one")
    for what in ("Pause", "Unpause", "Reset"):
        change(s, what, "closed", **of, request_id="four")
    change(s, "UpdateOptions", "closed", **of, **options, request_id="four")
    s.call("DeleteActivityExecution", activity_id=s.named("a"), run_id=run_id)
    s.gone("DescribeActivityExecution", activity_id=s.named("a"))


@scenario
def standalone_changes_refused(s: Session) -> None:
    nothing = {"workflow_id": "", "activity_id": s.named("nothing")}
    options = {"activity_options": {"start_to_close_timeout": "77s"}, "update_mask": "startToCloseTimeout"}
    for what in ("Pause", "Unpause", "Reset", "UpdateOptions"):
        more = options if what == "UpdateOptions" else {}
        change(s, what, "no such activity", **nothing, **more)
        change(s, what, "no ID", workflow_id="", activity_id="", **more)
    s.call("CountActivityExecutions", "bad query", query="ActivityId =")
    s.call("CountActivityExecutions", "unknown field", query="Unheard = 'x'")


@scenario
def standalone_attached_starts(s: Session) -> None:
    link = {"workflow_event": {"namespace": s.server.namespace, "workflow_id": "other", "run_id": NO_RUN}}
    link["workflow_event"] |= {"event_ref": {"event_id": 5, "event_type": "EVENT_TYPE_WORKFLOW_TASK_COMPLETED"}}
    begin(s, links=[link], id_conflict_policy="ACTIVITY_ID_CONFLICT_POLICY_FAIL")
    existing = {"id_conflict_policy": "ACTIVITY_ID_CONFLICT_POLICY_USE_EXISTING"}
    both = {"on_conflict_options": {"attach_request_id": True, "attach_links": True}}
    begin(s, note="attached", **existing, **both, links=[link])
    begin(s, note="attached", **existing, **both, links=[link])
    describe(s)
    terminate(s)
    allowed = {"id_reuse_policy": "ACTIVITY_ID_REUSE_POLICY_ALLOW_DUPLICATE"}
    begin(s, note="again", **allowed, request_eager_execution=True)
    terminate(s, request_id="again")


@scenario
def standalone_pages(s: Session) -> None:
    for base in ("a", "b", "c"):
        begin(s, base)
    query = f"TaskQueue = '{s.named('q')}'"
    s.until(lambda response: response.count == 3, "CountActivityExecutions", query=query)
    page = s.call("ListActivityExecutions", "a page", query=query, page_size=2)
    s.call(
        "ListActivityExecutions", "the next", query=query, page_size=2, next_page_token=encoded(page.next_page_token)
    )
    s.call("ListActivityExecutions", "bad token", query=query, next_page_token=encoded(b"page"))
    for base in ("a", "b", "c"):
        terminate(s, base=base)
