"""Lists and counts."""

from typing import Any

from fidelity.driver import Session, command, payload, scenario
from fidelity.scenarios.starting import COMPLETE, EVERY_OPTION, FAIL


def listed(s: Session, query: str, count: int, note: str = "") -> Any:
    return s.until(
        lambda response: len(response.executions) == count, "ListWorkflowExecutions", note or query, query=query
    )


@scenario
def lists(s: Session) -> None:
    s.start(**EVERY_OPTION)
    mine = f"WorkflowId = '{s.named('w')}'"
    listed(s, mine, 1, "running")
    s.decide(COMPLETE)
    listed(s, f"{mine} AND ExecutionStatus = 'Completed'", 1, "completed")
    kind = s.named("Kind")
    s.start("f", workflow_type={"name": kind})
    s.decide(FAIL)
    s.start("r", workflow_type={"name": kind})
    listed(s, f"WorkflowType = '{kind}' AND ExecutionStatus = 'Failed'", 1)
    listed(s, f"WorkflowType = '{kind}' AND CloseTime IS NULL", 1)
    listed(s, f"WorkflowType = '{kind}' AND CustomIntField > 4", 0)
    counted = {"query": f"WorkflowType = '{kind}'"}
    s.until(lambda response: response.count == 2, "CountWorkflowExecutions", **counted)
    s.call("CountWorkflowExecutions", "by status", query=f"WorkflowId = '{s.named('f')}' GROUP BY ExecutionStatus")
    s.call("CountWorkflowExecutions", "two statuses", query=f"WorkflowType = '{kind}' GROUP BY ExecutionStatus")
    s.call("CountWorkflowExecutions", "by type", query="GROUP BY WorkflowType")
    s.call("CountWorkflowExecutions", "nothing found", query="WorkflowType = 'nothing'")
    s.close("r")


@scenario
def list_filters_refused(s: Session) -> None:
    for query in (
        "Unheard = 'x'",
        "CustomIntField = 'x'",
        "ExecutionStatus = 'Nothing'",
        "StartTime > 'yesterday'",
        "WorkflowId LIKE 'x'",
        "WorkflowId = 'a' OR",
        "WorkflowType STARTS_WITH 5",
    ):
        s.call("ListWorkflowExecutions", query, query=f"WorkflowType = 'nothing' AND {query}")
    s.call("ListWorkflowExecutions", "nothing found", query="WorkflowType = 'nothing'")
    s.call("ListWorkflowExecutions", "durations", query="WorkflowType = 'nothing' AND ExecutionDuration > '1h'")
    s.call("ScanWorkflowExecutions", query="WorkflowType = 'nothing'")


@scenario
def patches_are_indexed(s: Session) -> None:
    s.start()
    value = {"metadata": payload("")["metadata"] | {"type": "S2V5d29yZExpc3Q="}, "data": payload(["p-1"])["data"]}
    s.decide(
        command(
            "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES", search_attributes={"indexed_fields": {"TemporalChangeVersion": value}}
        )
    )
    s.describe()
    s.close()
