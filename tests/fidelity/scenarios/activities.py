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
LATER = {"retry_policy": {"initial_interval": "3000s", "maximum_interval": "3000s"}}
"""Once it has failed, an activity waits until something is changed."""


def schedule(s: Session, name: str = "a", **options: Any) -> dict[str, Any]:
    """A command that schedules an activity on the task queue ``q``."""
    return command(
        "SCHEDULE_ACTIVITY_TASK",
        activity_id=name,
        **{
            "activity_type": {"name": "Do"},
            "task_queue": {"name": s.named("q")},
            "start_to_close_timeout": "100s",
            **options,
        },
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


OPTIONS = {
    "schedule_to_close_timeout": "2000s",
    "schedule_to_start_timeout": "300s",
    "start_to_close_timeout": "77s",
    "heartbeat_timeout": "7s",
    "retry_policy": {
        "initial_interval": "2s",
        "backoff_coefficient": 3,
        "maximum_interval": "60s",
        "maximum_attempts": 9,
    },
    "priority": {"priority_key": 2, "fairness_key": "fair", "fairness_weight": 1.5},
}
"""Each option that a client can change, except the task queue."""


@scenario
def activity_options(s: Session) -> None:
    s.start()
    s.decide(schedule(s, heartbeat_timeout="50s", priority={"priority_key": 1}))
    activity = {"execution": s.execution(), "id": "a"}
    options = {**OPTIONS, "task_queue": {"name": s.named("other")}}
    for mask in (
        "scheduleToCloseTimeout",
        "scheduleToStartTimeout",
        "startToCloseTimeout",
        "heartbeatTimeout",
        "taskQueue.name",
        "retryPolicy.initialInterval,retryPolicy.backoffCoefficient",
        "retryPolicy.maximumInterval,retryPolicy.maximumAttempts",
        "priority.priorityKey",
        "priority.fairnessKey,priority.fairnessWeight",
    ):
        s.call("UpdateActivityOptions", mask, **activity, activity_options=options, update_mask=mask)
    s.describe(note="changed part by part")
    s.call("UpdateActivityOptions", "restored", **activity, restore_original=True)
    s.describe(note="restored")
    mask = "retryPolicy,priority,startDelay"
    s.call(
        "UpdateActivityOptions", mask, **activity, activity_options={**options, "start_delay": "5s"}, update_mask=mask
    )
    s.describe(note="changed as a whole")
    emptied = {"retry_policy": {"maximum_attempts": 2}, "priority": {}, "schedule_to_close_timeout": "500s"}
    mask = "retryPolicy.maximumInterval,priority,heartbeatTimeout,startToCloseTimeout,scheduleToCloseTimeout"
    s.call("UpdateActivityOptions", "emptied", **activity, activity_options=emptied, update_mask=mask)
    s.describe(note="emptied")
    s.close()


@scenario
def activity_options_refused(s: Session) -> None:
    s.start()
    s.decide(schedule(s))
    activity = {"execution": s.execution(), "id": "a"}
    refused: dict[str, Any] = {
        "no options": {"update_mask": "heartbeatTimeout"},
        "no mask": {"activity_options": OPTIONS},
        "neither": {},
        "both": {"restore_original": True, "update_mask": "heartbeatTimeout", "activity_options": OPTIONS},
        "no timeout": {"activity_options": {"priority": {}}, "update_mask": "startToCloseTimeout"},
        "no task queue": {"activity_options": {"priority": {}}, "update_mask": "taskQueue.name"},
        "no retry policy": {"activity_options": {"priority": {}}, "update_mask": "retryPolicy"},
        "no interval": {"activity_options": {"priority": {}}, "update_mask": "retryPolicy.initialInterval"},
        "no priority": {"activity_options": {"heartbeat_timeout": "1s"}, "update_mask": "priority.priorityKey"},
        "negative timeout": {"activity_options": {"heartbeat_timeout": "-1s"}, "update_mask": "heartbeatTimeout"},
        "negative attempts": {
            "activity_options": {"retry_policy": {"maximum_attempts": -1}},
            "update_mask": "retryPolicy.maximumAttempts",
        },
        "negative priority": {"activity_options": {"priority": {"priority_key": -1}}, "update_mask": "priority"},
        "long task queue": {"activity_options": {"task_queue": {"name": "x" * 1001}}, "update_mask": "taskQueue.name"},
    }
    for note, request in refused.items():
        s.call("UpdateActivityOptions", note, **activity, **request)
    s.describe()
    for rpc, request in {
        "PauseActivity": {},
        "UnpauseActivity": {},
        "ResetActivity": {},
        "UpdateActivityOptions": {"restore_original": True},
    }.items():
        s.call(rpc, "no such activity", execution=s.execution(), id="none", **request)
        s.call(rpc, "no such type", execution=s.execution(), type="None", **request)
        s.call(rpc, "no activity", execution=s.execution(), **request)
        s.call(rpc, "no such workflow", execution={"workflow_id": "nobody"}, id="a", **request)
        s.call(rpc, "no workflow ID", id="a", **request)
    s.call("TerminateWorkflowExecution", workflow_execution=s.execution())
    s.call("PauseActivity", "closed", **activity)


@scenario
def activity_changes(s: Session) -> None:
    """Of all activities of a type, and of all."""
    s.start()
    s.decide(schedule(s, "a", **LATER))
    task = s.activity_task()
    s.call("RespondActivityTaskFailed", task_token=token(task), failure=WRONG, last_heartbeat_details=payloads("half"))
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    s.decide(schedule(s, "b", **LATER), schedule(s, "other", activity_type={"name": "Other"}, **LATER))
    of = {"execution": s.execution()}
    s.call("PauseActivity", **of, type="Do", reason="broken", request_id="one")
    s.call("PauseActivity", "sent again", **of, type="Do", reason="broken", request_id="one")
    s.call("PauseActivity", "already paused", **of, id="b", request_id="two")
    s.describe(note="those of a type are paused")
    s.call("ResetActivity", "paused", **of, type="Do", keep_paused=True)
    s.describe(note="reset, and still paused")
    s.call("UnpauseActivity", "not paused", **of, type="Other")
    s.call("UnpauseActivity", **of, type="Do")
    s.describe(note="those of a type are unpaused")
    options = {"activity_options": {"start_to_close_timeout": "77s"}, "update_mask": "startToCloseTimeout"}
    s.call("UpdateActivityOptions", "of a type", **of, type="Do", **options)
    s.describe(note="those of a type are changed")
    s.call("UpdateActivityOptions", "all", **of, match_all=True, **options)
    s.describe(note="all are changed")
    s.call("ResetActivity", "of a type", **of, type="Other", restore_original_options=True)
    s.describe(note="the other one is reset with its options")
    s.call("UpdateActivityOptions", "all restored", **of, match_all=True, restore_original=True)
    for name in ("a", "b", "other"):
        s.call("PauseActivity", name, **of, id=name)
    s.call("ResetActivity", "all", **of, match_all=True)
    s.describe(note="all are reset, which unpauses them")
    s.call("PauseActivity", "once more", **of, type="Do")
    s.call("UnpauseActivity", "all", **of, unpause_all=True, jitter="0.1s")
    s.call("ResetActivity", "a moment later", **of, type="Do", jitter="0.1s")
    s.close()


@scenario
def activity_reset_with_its_heartbeat(s: Session) -> None:
    s.start()
    s.decide(schedule(s, **LATER))
    of = {"execution": s.execution(), "id": "a"}
    for rpc, request in (
        ("UnpauseActivity", {"reset_attempts": True, "reset_heartbeat": True}),
        ("ResetActivity", {"reset_heartbeat": True}),
    ):
        task = s.activity_task(note=f"before {rpc}")
        failed = {"task_token": token(task), "failure": WRONG, "last_heartbeat_details": payloads("half")}
        s.call("RespondActivityTaskFailed", **failed)
        s.describe(note=f"failed, before {rpc}")
        s.call("PauseActivity", **of)
        s.call(rpc, **of, **request)
        s.describe(note=f"after {rpc}")
    s.close()


@scenario
def cancelled_by_id(s: Session) -> None:
    started = s.start()
    s.decide(schedule(s))
    s.activity_task()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    s.decide(command("REQUEST_CANCEL_ACTIVITY_TASK", scheduled_event_id=5))
    named = {"workflow_id": s.named("w"), "run_id": started.run_id, "activity_id": "a"}
    s.call("RecordActivityTaskHeartbeatById", **named)
    worker = {"deployment_options": {"worker_versioning_mode": "WORKER_VERSIONING_MODE_UNVERSIONED"}}
    s.call("RespondActivityTaskCanceledById", **named, **worker, details=payloads("cleaned up"))
    s.decide(schedule(s, "b"), schedule(s, "c", task_queue={"name": s.named("c")}))
    s.activity_task()
    s.activity_task("c")
    s.call("RespondActivityTaskCompletedById", **named | {"activity_id": "b"}, result=payloads("done"))
    failed = {"failure": FINAL, "last_heartbeat_details": payloads("half")}
    s.call("RespondActivityTaskFailedById", **named | {"activity_id": "c"}, **failed)
    s.decide(COMPLETE)
    s.history()


@scenario
def limited_by_workers(s: Session) -> None:
    s.start()
    s.decide(schedule(s))
    s.activity_task(task_queue_metadata={"max_tasks_per_second": 5}, worker_instance_key=s.named("worker"))
    s.call(
        "DescribeTaskQueue",
        task_queue={"name": s.named("q")},
        task_queue_type="TASK_QUEUE_TYPE_ACTIVITY",
    )
    s.close()
