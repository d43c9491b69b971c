"""Child workflows, and requests to other workflows."""

from functools import partial
from typing import Any

from temporalio.api.enums.v1 import EventType, WorkflowExecutionStatus

from fidelity.driver import Session, command, payload, payloads, scenario
from fidelity.scenarios.starting import COMPLETE, EVERY_OPTION, FAIL


def child(s: Session, base: str = "child", **options: Any) -> dict[str, Any]:
    """A command that starts a child on the task queue ``c``."""
    return command(
        "START_CHILD_WORKFLOW_EXECUTION",
        workflow_id=s.named(base),
        workflow_type={"name": "Child"},
        **{"task_queue": {"name": s.named("c")}, **options},
    )


@scenario
def child_completed(s: Session) -> None:
    s.start()
    options = {name: value for name, value in EVERY_OPTION.items() if name != "user_metadata"}
    s.decide(
        child(s, parent_close_policy="PARENT_CLOSE_POLICY_ABANDON", **options)
        | {"user_metadata": {"summary": payload("in short")}}
    )
    s.task(note="the child has started")
    s.describe()
    s.describe("child", note="the child")
    task = s.task("c", note="of the child")
    s.history("child")
    s.complete(task, command("COMPLETE_WORKFLOW_EXECUTION", result=payloads("done")))
    s.describe("child", note="the closed child")
    s.close()


@scenario
def child_with_defaults(s: Session) -> None:
    s.start(workflow_run_timeout="1000s", workflow_task_timeout="7s")
    s.decide(child(s, task_queue={}))
    for base, events in (("w", 7), ("child", 2)):
        execution = s.execution(base)
        s.until(partial(_has, events), "GetWorkflowExecutionHistory", base, execution=execution)
    s.describe()
    s.close()
    s.until(
        lambda response: (
            response.workflow_execution_info.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED
        ),
        "DescribeWorkflowExecution",
        "terminated with its parent",
        execution=s.execution("child"),
    )
    s.history("child", note="terminated with its parent")


def _has(events: int, response: Any) -> bool:
    return len(response.history.events) >= events


@scenario
def child_ends(s: Session) -> None:
    s.start()
    s.decide(child(s, "failing"))
    s.decide(note="the child has started")
    s.complete(s.task("c"), FAIL)
    s.decide(child(s, "terminated"), note="a child has failed")
    s.decide(note="the next has started")
    s.call("TerminateWorkflowExecution", workflow_execution=s.execution("terminated"), reason="enough")
    s.decide(child(s, "timed out", workflow_run_timeout="1s"), note="a child was terminated")
    s.decide(note="the last has started")
    s.decide(COMPLETE, note="a child has timed out")
    s.history()
    s.history("timed out")


@scenario
def child_refused(s: Session) -> None:
    s.start("taken", task_queue={"name": s.named("elsewhere")})
    s.start()
    s.decide(child(s, "taken"))
    s.decide(COMPLETE)
    s.history()
    s.close("taken")


@scenario
def child_canceled(s: Session) -> None:
    s.start()
    s.decide(child(s))
    s.decide(
        command("REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION", workflow_id=s.named("child"), child_workflow_only=True),
        note="the child has started",
    )
    s.decide(note="it was asked")
    s.complete(s.task("c", note="of the child"), command("CANCEL_WORKFLOW_EXECUTION", details=payloads("cleaned up")))
    s.decide(COMPLETE, note="it was canceled")
    s.history()


@scenario
def external_workflows_signaled_and_canceled(s: Session) -> None:
    s.start("other", task_queue={"name": s.named("elsewhere")})
    s.start()
    s.decide(
        command(
            "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION",
            execution=s.execution("other"),
            signal_name="signal",
            input=payloads("told"),
            header={"fields": {"trace": payload("id")}},
        ),
    )
    s.decide(command("REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION", workflow_id=s.named("other"), reason="enough"))
    s.decide(
        command("SIGNAL_EXTERNAL_WORKFLOW_EXECUTION", execution={"workflow_id": "nobody"}, signal_name="signal"),
    )
    s.decide(command("REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION", workflow_id="nobody"))
    s.decide(COMPLETE)
    s.history()
    s.history("other")
    s.close("other")


@scenario
def child_with_cron(s: Session) -> None:
    s.start()
    s.decide(child(s, cron_schedule="@every 1s"))
    s.complete(s.task(note="the child has started"))
    first = s.decide(COMPLETE, queue="c", note="the first run of the child")
    s.history("child", "the first run of the child", first.workflow_execution.run_id)
    second = s.decide(FAIL, queue="c", note="the second run of the child")
    s.history("child", "the second run of the child", second.workflow_execution.run_id)
    s.decide(command("CANCEL_WORKFLOW_EXECUTION"), queue="c", note="the third run of the child")
    s.task(note="the child was canceled")
    s.history()
    s.close()


@scenario
def child_with_bad_cron(s: Session) -> None:
    s.start()
    s.decide(child(s, cron_schedule="never"))
    s.history()
    s.close()


@scenario
def child_options(s: Session) -> None:
    s.start("taken", task_queue={"name": s.named("c")})
    s.complete(s.task("c"), COMPLETE)
    s.start()
    reuse = "WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE"
    s.decide(child(s, "taken", workflow_id_reuse_policy=f"{reuse}_FAILED_ONLY"))
    s.decide(child(s, "taken", workflow_id_reuse_policy=reuse, control="control"), note="refused")
    upgraded = {"versioning_override": {"auto_upgrade": True}}
    s.decide(child(s, "upgraded", **upgraded, parent_close_policy="PARENT_CLOSE_POLICY_TERMINATE"), note="started")
    s.decide(child(s, "canceled", parent_close_policy="PARENT_CLOSE_POLICY_REQUEST_CANCEL"), note="with an override")
    s.decide(COMPLETE, note="three run")
    s.history()
    for base, event in (("upgraded", TERMINATED), ("canceled", CANCEL_REQUESTED)):
        s.until(partial(_ends_with, event), "GetWorkflowExecutionHistory", base, execution=s.execution(base))
    s.close("canceled")


TERMINATED, CANCEL_REQUESTED = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
)


def _ends_with(event: EventType.ValueType, response: Any) -> bool:
    return any(each.event_type == event for each in response.history.events)


@scenario
def external_workflows_by_run(s: Session) -> None:
    run_id = s.start("other", task_queue={"name": s.named("elsewhere")}).run_id
    s.start()
    named = {"workflow_id": s.named("other"), "run_id": run_id}
    s.decide(command("REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION", **named))
    only = {"execution": s.execution("other"), "signal_name": "signal", "child_workflow_only": True}
    s.decide(command("SIGNAL_EXTERNAL_WORKFLOW_EXECUTION", **only), note="it was asked")
    s.decide(COMPLETE, note="it is no child")
    s.history()
    s.close("other")
