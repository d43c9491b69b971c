"""Workflow tasks: polls, commands that are done or refused, failures, stickiness."""

from fidelity.driver import Session, command, encoded, payload, payloads, scenario, token
from fidelity.scenarios.starting import COMPLETE

BAD_TOKEN = encoded(b"token")


@scenario
def timers_and_markers(s: Session) -> None:
    s.start()
    s.decide(
        command("START_TIMER", timer_id="long", start_to_fire_timeout="3600s"),
        command("START_TIMER", timer_id="short", start_to_fire_timeout="1s"),
        command(
            "RECORD_MARKER",
            marker_name="marker",
            details={"data": payloads("detail")},
            header={"fields": {"trace": payload("id")}},
            failure={"message": "wrong"},
        ),
    )
    s.decide(
        command("CANCEL_TIMER", timer_id="long"),
        command(
            "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
            search_attributes={"indexed_fields": {"CustomKeywordField": payload("new"), "CustomIntField": payload(7)}},
        ),
        command("MODIFY_WORKFLOW_PROPERTIES", upserted_memo={"fields": {"note": payload("new")}}),
        note="the timer has fired",
    )
    s.describe()
    s.history()
    s.close()


@scenario
def timer_with_user_metadata(s: Session) -> None:
    s.start()
    timer = command("START_TIMER", timer_id="t", start_to_fire_timeout="3600s")
    s.decide(timer | {"user_metadata": {"summary": payload("in short")}}, sdk_metadata={"lang_used_flags": [1, 3]})
    s.history()
    s.close()


@scenario
def timer_without_a_duration(s: Session) -> None:
    s.start()
    s.decide(command("START_TIMER", timer_id="t"))
    s.task(note="the timer has fired")
    s.close()


@scenario
def refused_commands(s: Session) -> None:
    """Each fails the task; the workflow stays as it was."""
    timer = command("START_TIMER", timer_id="t", start_to_fire_timeout="3600s")
    activity = {"activity_id": "a", "activity_type": {"name": "Do"}, "start_to_close_timeout": "10s"}
    refused = {
        "a timer without an ID": [command("START_TIMER", start_to_fire_timeout="1s")],
        "a timer twice": [timer, timer],
        "no such timer": [command("CANCEL_TIMER", timer_id="none")],
        "a marker without a name": [command("RECORD_MARKER")],
        "an activity without an ID": [command("SCHEDULE_ACTIVITY_TASK", **activity | {"activity_id": ""})],
        "an activity without a type": [command("SCHEDULE_ACTIVITY_TASK", **activity | {"activity_type": {}})],
        "an activity without a timeout": [
            command("SCHEDULE_ACTIVITY_TASK", **activity | {"start_to_close_timeout": "0s"})
        ],
        "an activity twice": [command("SCHEDULE_ACTIVITY_TASK", **activity)] * 2,
        "no such activity": [command("REQUEST_CANCEL_ACTIVITY_TASK", scheduled_event_id=99)],
        "a child without an ID": [command("START_CHILD_WORKFLOW_EXECUTION", workflow_type={"name": "Child"})],
        "a child without a type": [command("START_CHILD_WORKFLOW_EXECUTION", workflow_id=s.named("child"))],
        "a signal without a name": [command("SIGNAL_EXTERNAL_WORKFLOW_EXECUTION", execution={"workflow_id": "other"})],
        "a signal to nobody": [command("SIGNAL_EXTERNAL_WORKFLOW_EXECUTION", signal_name="signal")],
        "a cancellation of nobody": [command("REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION")],
        "a cancellation without a request": [command("CANCEL_WORKFLOW_EXECUTION"), timer],
        "something after the end": [COMPLETE, timer],
        "an unknown search attribute": [
            command(
                "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
                search_attributes={"indexed_fields": {"Unheard": payload("x")}},
            )
        ],
        "no search attributes": [command("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES")],
        "no memo": [command("MODIFY_WORKFLOW_PROPERTIES")],
        "no message": [command("PROTOCOL_MESSAGE", message_id="none")],
        "no command": [{}],
    }
    for number, (note, commands) in enumerate(refused.items()):
        base = f"w{number}"
        s.start(base, task_queue={"name": s.named(f"q{number}")})
        s.complete(s.task(f"q{number}"), *commands, note=note)
        s.history(base, note=note)
        s.close(base)


@scenario
def failed_workflow_tasks(s: Session) -> None:
    s.start()
    task = s.task()
    failed = {
        "cause": "WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE",
        "failure": {"message": "wrong", "application_failure_info": {"type": "Wrong"}},
    }
    s.call("RespondWorkflowTaskFailed", task_token=token(task), **failed)
    s.call("RespondWorkflowTaskFailed", "again", task_token=token(task), **failed)
    s.describe()
    task = s.task(note="the second attempt")
    s.call("RespondWorkflowTaskFailed", "the second attempt", task_token=token(task), **failed)
    s.history()
    s.decide(COMPLETE, note="the third attempt")
    s.history(note="completed")
    s.complete(task, note="too late")
    for rpc in ("RespondWorkflowTaskCompleted", "RespondWorkflowTaskFailed", "RespondQueryTaskCompleted"):
        s.call(rpc, "bad token", task_token=BAD_TOKEN)
        s.call(rpc, "no token")


@scenario
def workflow_task_timeout(s: Session) -> None:
    s.start(workflow_task_timeout="1s")
    s.task()
    s.task(note="the second attempt")
    s.history()
    s.close()


@scenario
def unhandled_command(s: Session) -> None:
    s.start()
    task = s.task()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    s.complete(task, COMPLETE, note="a signal has come")
    s.decide(COMPLETE)
    s.history()


@scenario
def sticky_queues(s: Session) -> None:
    s.start()
    task = s.task()
    sticky = {"name": s.named("sticky"), "kind": "TASK_QUEUE_KIND_STICKY", "normal_name": s.named("q")}
    attributes = {"worker_task_queue": sticky, "schedule_to_start_timeout": "10s"}
    s.complete(task, sticky_attributes=attributes, binary_checksum="build")
    polled = s.begin("PollWorkflowTaskQueue", task_queue=sticky)
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    task = s.end("PollWorkflowTaskQueue", polled, "a task of a sticky queue")
    s.complete(task, sticky_attributes=attributes, return_new_workflow_task=True)
    s.history()
    s.call("ResetStickyTaskQueue", execution=s.execution())
    s.close()


@scenario
def heartbeat_of_a_workflow_task(s: Session) -> None:
    s.start()
    task = s.task()
    answer = s.complete(task, force_create_new_workflow_task=True, return_new_workflow_task=True, note="prolonged")
    s.complete(answer.workflow_task, COMPLETE, note="the task that came with the answer")
    s.history()


@scenario
def worker_stamps(s: Session) -> None:
    s.start()
    s.decide(
        worker_version_stamp={"build_id": "build"},
        sdk_metadata={"core_used_flags": [1], "sdk_name": "temporal-python", "sdk_version": "1.35.0"},
        metering_metadata={"nonfirst_local_activity_execution_attempts": 2},
    )
    s.history()
    s.describe()
    s.close()


@scenario
def polls(s: Session) -> None:
    for rpc in ("PollWorkflowTaskQueue", "PollActivityTaskQueue"):
        s.call(rpc, "no queue", task_queue={})
        s.call(rpc, "long name", task_queue={"name": "x" * 1001})
        s.call(rpc, "unknown namespace", namespace="nowhere", task_queue={"name": "q"})


@scenario
def keyed_workers(s: Session) -> None:
    """Workers that name themselves, and then shut down."""
    worker = {"worker_instance_key": s.named("worker")}
    beat = {**worker, "worker_identity": s.named("identity"), "task_queue": s.named("q")}
    s.start()
    task = s.task(**worker)
    s.complete(task, **worker)
    nexus = {"task_queue": {"name": s.named("q"), "kind": "TASK_QUEUE_KIND_NORMAL"}, "worker_heartbeat": [beat]}
    polled = s.begin("PollNexusTaskQueue", **nexus, **worker)
    s.until(lambda response: response.workers, "ListWorkers", query=f'TaskQueue = "{s.named("q")}"')
    kinds = ["TASK_QUEUE_TYPE_NEXUS"]
    s.call("ShutdownWorker", **worker, task_queue=s.named("q"), task_queue_types=kinds, reason="enough")
    polled.cancel()
    s.call("ShutdownWorker", "no worker")
    s.call("ShutdownWorker", "unknown namespace", namespace="nowhere", **worker)
    s.call("RecordWorkerHeartbeat", "unknown namespace", namespace="nowhere", worker_heartbeat=[beat])
    s.close()


@scenario
def paged_completions(s: Session) -> None:
    s.start()
    task = s.task()
    timers = [command("START_TIMER", timer_id=name, start_to_fire_timeout="3600s") for name in ("a", "b")]
    s.complete(task, timers[0], note="the first page", intermediate_page=True)
    s.complete(task, timers[1], note="the last page", page_number=1)
    s.complete(task, *timers, note="as a whole")
    s.history()
    s.close()


@scenario
def event_groups(s: Session) -> None:
    s.start()
    timer = command("START_TIMER", timer_id="t", start_to_fire_timeout="3600s")
    groups = [
        {"label": {"id": "one", "label": payload("the first")}},
        {"inbound_event": {"inbound_event_id": 1}},
        {"inbound_update": {"inbound_update_id": "u"}},
    ]
    s.decide(timer | {"event_group_markers": groups})
    s.history()
    s.close()


@scenario
def sticky_queue_of_nothing(s: Session) -> None:
    s.call("ResetStickyTaskQueue", "no such workflow", execution={"workflow_id": "nobody"})
    s.call("ResetStickyTaskQueue", "no workflow ID", execution={})
