"""Activities of workflows."""

from typing import Any

from fidelity.driver import Session, command, encoded, payload, payloads, scenario, token
from fidelity.scenarios.starting import COMPLETE
from fidelity.scenarios.tasks import BAD_TOKEN

WRONG = {
    "message": "wrong",
    "source": "PythonSDK",
    "stack_trace": "line 1",
    "application_failure_info": {"type": "Wrong"},
}
FINAL = {"message": "final", "application_failure_info": {"type": "Final", "non_retryable": True}}
ONCE = {"retry_policy": {"maximum_attempts": 1}}


def schedule(s: Session, name: str = "a", **options: Any) -> dict[str, Any]:
    """A command that schedules an activity on the task queue ``q``."""
    return command(
        "SCHEDULE_ACTIVITY_TASK",
        activity_id=name,
        activity_type={"name": "Do"},
        **{"task_queue": {"name": s.named("q")}, "start_to_close_timeout": "100s", **options},
    )


@scenario
def activity_completed(s: Session) -> None:
    s.start()
    s.decide(
        schedule(
            s,
            schedule_to_close_timeout="1000s",
            schedule_to_start_timeout="200s",
            heartbeat_timeout="50s",
            input=payloads("input"),
            header={"fields": {"trace": payload("id")}},
            retry_policy={"maximum_attempts": 2, "non_retryable_error_types": ["Final"]},
            priority={"priority_key": 1},
        )
        | {"user_metadata": {"summary": payload("in short")}}
    )
    s.describe(note="scheduled")
    task = s.activity_task()
    s.until(
        lambda response: response.pending_activities and response.pending_activities[0].state == 2,
        "DescribeWorkflowExecution",
        "started",
        execution=s.execution(),
    )
    s.call("RecordActivityTaskHeartbeat", task_token=token(task), details=payloads("half"))
    s.until(
        lambda response: response.pending_activities and response.pending_activities[0].HasField("heartbeat_details"),
        "DescribeWorkflowExecution",
        "with a heartbeat",
        execution=s.execution(),
    )
    s.call("RespondActivityTaskCompleted", task_token=token(task), result=payloads("done"))
    s.call("RespondActivityTaskCompleted", "again", task_token=token(task), result=payloads("done"))
    s.decide(COMPLETE)
    s.history()


@scenario
def activity_with_defaults(s: Session) -> None:
    s.start(workflow_run_timeout="1000s")
    s.decide(
        schedule(s, "default"),
        schedule(s, "no queue", task_queue={}),
        schedule(s, "to close", start_to_close_timeout="0s", schedule_to_close_timeout="20s"),
    )
    s.describe()
    s.history()
    s.close()


@scenario
def activity_failed(s: Session) -> None:
    s.start()
    s.decide(schedule(s, retry_policy={"initial_interval": "1s", "maximum_attempts": 2}))
    task = s.activity_task()
    s.call("RespondActivityTaskFailed", task_token=token(task), failure=WRONG, last_heartbeat_details=payloads("half"))
    s.describe(note="waiting for the second attempt")
    task = s.activity_task(note="the second attempt")
    s.describe(note="the second attempt")
    s.call("RespondActivityTaskFailed", task_token=token(task), failure=WRONG)
    s.decide(schedule(s, "b"))
    s.call("RespondActivityTaskFailed", "final", task_token=token(s.activity_task()), failure=FINAL)
    s.decide(COMPLETE)
    s.history()


@scenario
def activity_with_next_retry_delay(s: Session) -> None:
    s.start()
    s.decide(schedule(s))
    failure = {"message": "later", "application_failure_info": {"next_retry_delay": "3600s", "category": 1}}
    s.call("RespondActivityTaskFailed", task_token=token(s.activity_task()), failure=failure)
    s.describe()
    s.close()
    s.describe(note="closed")


@scenario
def activity_timeouts(s: Session) -> None:
    s.start()
    s.decide(
        schedule(s, "never started", schedule_to_start_timeout="1s", task_queue={"name": s.named("nobody")}, **ONCE),
    )
    s.decide(schedule(s, "too long", start_to_close_timeout="1s", **ONCE))
    s.activity_task()
    s.decide(schedule(s, "silent", heartbeat_timeout="1s", **ONCE))
    s.activity_task()
    s.decide(schedule(s, "never closed", schedule_to_close_timeout="1s", task_queue={"name": s.named("nobody")}))
    s.decide(COMPLETE)
    s.history()


@scenario
def activity_timeouts_within_that_of_the_run(s: Session) -> None:
    s.start(workflow_run_timeout="60s")
    s.decide(
        schedule(s, "longer"),
        schedule(s, "shorter", start_to_close_timeout="5s", heartbeat_timeout="10s"),
        schedule(s, "to close", schedule_to_close_timeout="20s", schedule_to_start_timeout="30s"),
    )
    s.history()
    s.close()


@scenario
def activity_retries_beyond_schedule_to_close(s: Session) -> None:
    s.start()
    s.decide(schedule(s, schedule_to_close_timeout="3s", retry_policy={"initial_interval": "10s"}))
    s.call("RespondActivityTaskFailed", task_token=token(s.activity_task()), failure=WRONG)
    s.decide(
        schedule(
            s,
            "timed out",
            start_to_close_timeout="1s",
            retry_policy={"initial_interval": "0.1s", "maximum_attempts": 2},
        )
    )
    s.call("RespondActivityTaskFailed", task_token=token(s.activity_task()), failure=WRONG)
    s.activity_task()
    s.decide(COMPLETE)
    s.history()


@scenario
def activity_canceled(s: Session) -> None:
    s.start()
    s.decide(schedule(s, "waiting", task_queue={"name": s.named("nobody")}), schedule(s, "running"))
    task = s.activity_task()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    s.decide(
        command("REQUEST_CANCEL_ACTIVITY_TASK", scheduled_event_id=5),
        command("REQUEST_CANCEL_ACTIVITY_TASK", scheduled_event_id=6),
    )
    s.describe()
    s.call("RecordActivityTaskHeartbeat", "cancel requested", task_token=token(task))
    s.call("RespondActivityTaskCanceled", task_token=token(task), details=payloads("cleaned up"))
    s.decide(COMPLETE)
    s.history()


@scenario
def activity_by_id(s: Session) -> None:
    s.start()
    s.decide(*[schedule(s, name, task_queue={"name": s.named(name)}) for name in ("a", "b", "c")])
    for name in ("a", "b", "c"):
        s.activity_task(name)
    named = {"workflow_id": s.named("w")}
    s.call("RecordActivityTaskHeartbeatById", **named, activity_id="a", details=payloads("half"))
    s.call("RespondActivityTaskCompletedById", **named, activity_id="a", result=payloads("done"))
    s.call("RespondActivityTaskFailedById", **named, activity_id="b", failure=FINAL)
    s.call("RespondActivityTaskCanceledById", "not requested", **named, activity_id="c")
    s.call("RespondActivityTaskCompletedById", "no such activity", **named, activity_id="none")
    s.call("RespondActivityTaskCompletedById", "no workflow", workflow_id="nobody", activity_id="a")
    s.call("RespondActivityTaskCompletedById", "no ID", **named)
    s.close()
    s.call("RespondActivityTaskCompletedById", "closed", **named, activity_id="c")


def token_for_an_unknown_run(s: Session) -> str:
    """A token in the form of Temporal's server, for the first attempt of an activity of a run that does not exist."""
    describe, request, _ = s.server.rpc("DescribeNamespace")
    namespace = describe(request(namespace=s.server.namespace)).namespace_info
    names = (namespace.id, "nobody", "33fe12c8-be49-41a2-8abd-17654965de9e")
    strings = b"".join(bytes([number << 3 | 2, len(name)]) + name.encode() for number, name in enumerate(names, 1))
    return encoded(strings + bytes([4 << 3, 5, 5 << 3, 1]))  # the scheduled event and the attempt


@scenario
def activity_tokens(s: Session) -> None:
    unknown = token_for_an_unknown_run(s)
    for rpc in (
        "RespondActivityTaskCompleted",
        "RespondActivityTaskFailed",
        "RespondActivityTaskCanceled",
        "RecordActivityTaskHeartbeat",
    ):
        s.call(rpc, "bad token", task_token=BAD_TOKEN)
        s.call(rpc, "no token")
        s.call(rpc, "unknown run", task_token=unknown)


@scenario
def activity_changed_by_a_client(s: Session) -> None:
    s.start()
    s.decide(schedule(s, heartbeat_timeout="50s"))
    activity = {"execution": s.execution(), "id": "a"}
    s.call("PauseActivity", **activity, reason="broken")
    s.describe(note="paused")
    s.call("UnpauseActivity", **activity)
    s.call(
        "UpdateActivityOptions",
        **activity,
        activity_options={"start_to_close_timeout": "77s", "retry_policy": {"maximum_attempts": 9}},
        update_mask="startToCloseTimeout,retryPolicy.maximumAttempts",
    )
    s.describe(note="with new options")
    task = s.activity_task()
    s.call("PauseActivity", "while it runs", **activity)
    s.describe(note="paused while it runs")
    s.call("RecordActivityTaskHeartbeat", "paused", task_token=token(task), details=payloads("half"))
    s.call("ResetActivity", **activity)
    s.describe(note="reset")
    s.call("RecordActivityTaskHeartbeat", "reset", task_token=token(task))
    s.call("RespondActivityTaskFailed", task_token=token(task), failure=WRONG)
    s.describe(note="failed after the reset")
    s.call("PauseActivity", "no such activity", execution=s.execution(), id="none")
    s.call("PauseActivity", "no ID", execution=s.execution())
    s.close()
