"""How workflows end and continue."""

from fidelity.driver import Session, command, payload, payloads, scenario
from fidelity.scenarios import activities
from fidelity.scenarios.starting import COMPLETE, EVERY_OPTION, FAIL


@scenario
def completed(s: Session) -> None:
    s.start()
    s.decide(command("COMPLETE_WORKFLOW_EXECUTION", result=payloads("done")))
    s.describe()
    s.history()


@scenario
def failed(s: Session) -> None:
    s.start()
    s.decide(FAIL)
    s.describe()
    s.history()


@scenario
def retried(s: Session) -> None:
    first = s.start(retry_policy={"initial_interval": "1s", "maximum_attempts": 2})
    s.decide(FAIL)
    s.history(note="the first run", run_id=first.run_id)
    s.history(
        note="the first run's end",
        run_id=first.run_id,
        history_event_filter_type="HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT",
    )
    s.describe(note="the first run", run_id=first.run_id)
    s.decide(FAIL, note="the second run")
    s.history(note="the second run")
    s.describe(note="the second run")


@scenario
def retry_policy_with_non_retryable_type(s: Session) -> None:
    s.start(retry_policy={"non_retryable_error_types": ["Wrong"]})
    s.decide(FAIL)
    s.history()


@scenario
def timed_out(s: Session) -> None:
    s.start(workflow_run_timeout="1s")
    s.until(
        lambda response: response.workflow_execution_info.status == 7,
        "DescribeWorkflowExecution",
        execution=s.execution(),
    )
    s.history()


@scenario
def continued_as_new(s: Session) -> None:
    first = s.start(**EVERY_OPTION | {"retry_policy": {"maximum_attempts": 3}})
    s.decide(
        command(
            "CONTINUE_AS_NEW_WORKFLOW_EXECUTION",
            input=payloads("next"),
            workflow_run_timeout="900s",
            memo={"fields": {"note": payload("next")}},
            header={"fields": {"trace": payload("next")}},
        )
    )
    s.history(note="the first run", run_id=first.run_id)
    s.describe(note="the first run", run_id=first.run_id)
    second = s.task(note="the second run")
    s.describe(note="the second run")
    s.complete(second, command("CONTINUE_AS_NEW_WORKFLOW_EXECUTION"), note="the second run")
    s.history(note="the second run", run_id=second.workflow_execution.run_id)
    s.decide(COMPLETE, note="the third run")
    s.history(note="the third run")


@scenario
def cron(s: Session) -> None:
    first = s.start(cron_schedule="@every 1s", input=payloads("input"), memo={"fields": {"note": payload("first")}})
    s.decide(command("COMPLETE_WORKFLOW_EXECUTION", result=payloads("done")), note="the first run")
    s.history(note="the first run", run_id=first.run_id)
    s.describe(note="the first run", run_id=first.run_id)
    second = s.decide(FAIL, note="the second run")
    s.history(note="the second run", run_id=second.workflow_execution.run_id)
    third = s.decide(command("CANCEL_WORKFLOW_EXECUTION"), note="the third run")
    s.history(note="the third run", run_id=third.workflow_execution.run_id)
    s.describe(note="the third run")


@scenario
def cron_before_it_is_due(s: Session) -> None:
    s.start(cron_schedule="@every 1000h")
    s.describe()
    s.history()
    s.close()


@scenario
def cron_with_retries(s: Session) -> None:
    s.start(cron_schedule="@every 1s", retry_policy={"initial_interval": "1s", "maximum_attempts": 2})
    s.decide(command("COMPLETE_WORKFLOW_EXECUTION", result=payloads("done")), note="the first run")
    for which in ("second", "third", "fourth"):
        run = s.decide(FAIL, note=f"the {which} run")
        s.history(note=f"the {which} run", run_id=run.workflow_execution.run_id)
    s.call("TerminateWorkflowExecution", workflow_execution=s.execution())
    s.history(note="the fifth run")


@scenario
def cron_continued_as_new(s: Session) -> None:
    s.start(cron_schedule="@every 1s", workflow_run_timeout="100s")
    first = s.decide(
        command("CONTINUE_AS_NEW_WORKFLOW_EXECUTION", cron_schedule="@every 1s", input=payloads("next")),
        note="the first run",
    )
    s.history(note="the first run", run_id=first.workflow_execution.run_id)
    second = s.decide(COMPLETE, note="the second run")
    s.history(note="the second run", run_id=second.workflow_execution.run_id)
    s.decide(command("CONTINUE_AS_NEW_WORKFLOW_EXECUTION"), note="the third run")
    s.decide(COMPLETE, note="the fourth run, without a cron schedule")
    s.history(note="the fourth run")


@scenario
def cron_timed_out(s: Session) -> None:
    first = s.start(cron_schedule="@every 1s", workflow_run_timeout="2s")
    s.decide(note="the first run")
    s.until(
        lambda response: response.workflow_execution_info.status == 7,
        "DescribeWorkflowExecution",
        execution=s.execution(run_id=first.run_id),
    )
    s.history(run_id=first.run_id)
    second = s.decide(COMPLETE, note="the second run")
    s.history(note="the second run", run_id=second.workflow_execution.run_id)
    s.call("TerminateWorkflowExecution", workflow_execution=s.execution())


@scenario
def cron_refused(s: Session) -> None:
    for schedule in (
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "@sometimes",
        "@every",
        "CRON_TZ=Nowhere * * * * *",
        "0 0 30 2 *",
    ):
        s.start(note=schedule, cron_schedule=schedule)
    s.start(note="on a Sunday in Berlin", cron_schedule="CRON_TZ=Europe/Berlin 30 2 ? jan-mar/2 SUN")
    s.call("TerminateWorkflowExecution", workflow_execution=s.execution())


@scenario
def empty_headers(s: Session) -> None:
    first = s.start(header={})
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal", header={})
    s.decide(
        activities.schedule(s, header={}),
        command("RECORD_MARKER", marker_name="marker", header={}),
        command("CONTINUE_AS_NEW_WORKFLOW_EXECUTION", header={}),
    )
    s.history(run_id=first.run_id)
    s.decide(COMPLETE, note="the second run")
    s.history(note="the second run")


@scenario
def continue_as_new_options(s: Session) -> None:
    first = s.start()
    attributes = {"indexed_fields": {"CustomKeywordField": payload("next")}}
    s.decide(
        command(
            "CONTINUE_AS_NEW_WORKFLOW_EXECUTION",
            workflow_type={"name": "Other"},
            task_queue={"name": s.named("other")},
            workflow_task_timeout="7s",
            backoff_start_interval="0.1s",
            retry_policy={"maximum_attempts": 3, "initial_interval": "1s"},
            search_attributes=attributes,
            initiator="CONTINUE_AS_NEW_INITIATOR_WORKFLOW",
            last_completion_result=payloads("done"),
            failure={"message": "wrong", "application_failure_info": {"type": "Wrong"}},
        )
    )
    s.history(note="the first run", run_id=first.run_id)
    s.task("other", note="the second run")
    s.history(note="the second run")
    s.describe(note="the second run")
    s.close()
