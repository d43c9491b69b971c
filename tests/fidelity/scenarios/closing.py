"""How workflows end and continue."""

from fidelity.driver import Session, command, payload, payloads, scenario
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
def retried_but_not_this_failure(s: Session) -> None:
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
    s.describe(note="the second run")
    second = s.decide(command("CONTINUE_AS_NEW_WORKFLOW_EXECUTION"), note="the second run")
    s.history(note="the second run", run_id=second.workflow_execution.run_id)
    s.decide(COMPLETE, note="the third run")
    s.history(note="the third run")
