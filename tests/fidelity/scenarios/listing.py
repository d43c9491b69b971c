"""Lists and counts."""

from typing import Any

from fidelity.driver import Session, command, encoded, payload, scenario
from fidelity.scenarios.starting import COMPLETE, EVERY_OPTION, FAIL

WITH_ATTRIBUTES = {"search_attributes": EVERY_OPTION["search_attributes"]}


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


@scenario
def lists_by_status(s: Session) -> None:
    earlier = Session(
        s.server
    )  # not recorded: another completed workflow, so that the page by status is not the last one
    earlier.start()
    earlier.decide(COMPLETE)
    for base in ("a", "b"):
        s.start(base, task_queue={"name": s.named(base)})
    kind = s.named("Kind")
    s.start("c", workflow_type={"name": kind})
    s.decide(COMPLETE)
    times = {"start_time_filter": {"earliest_time": "2020-01-01T00:00:00Z", "latest_time": "2100-01-01T00:00:00Z"}}
    mine = {**times, "execution_filter": {"workflow_id": s.named("a")}}
    s.until(lambda response: response.executions, "ListOpenWorkflowExecutions", **mine, maximum_page_size=10)
    mine = {**times, "execution_filter": {"workflow_id": s.named("c")}}
    s.until(lambda response: response.executions, "ListClosedWorkflowExecutions", "by ID", **mine)
    mine = {**times, "type_filter": {"name": kind}}
    s.until(lambda response: response.executions, "ListClosedWorkflowExecutions", "by type", **mine)
    s.call("ListOpenWorkflowExecutions", "by type", **mine)
    status = {"status_filter": {"status": "WORKFLOW_EXECUTION_STATUS_COMPLETED"}}
    s.until(
        lambda response: any(each.type.name == kind for each in response.executions),
        "ListClosedWorkflowExecutions",
        "by status",
        start_time_filter={"earliest_time": "2020-01-01T00:00:00Z", "latest_time": "2100-01-01T00:00:00Z"},
        **status,
        maximum_page_size=1,
    )
    for rpc in ("ListOpenWorkflowExecutions", "ListClosedWorkflowExecutions"):
        one = {"execution_filter": {"workflow_id": s.named("a")}}
        s.call(rpc, "no times", **one)
        s.call(rpc, "no later time", **one, start_time_filter={"earliest_time": "2020-01-01T00:00:00Z"})
        backwards = {"earliest_time": "2021-01-01T00:00:00Z", "latest_time": "2020-01-01T00:00:00Z"}
        s.call(rpc, "backwards", **one, start_time_filter=backwards)
        s.call(rpc, "bad token", **one, **times, next_page_token="AAAA")
        s.call(rpc, "negative page", **one, **times, maximum_page_size=-1)
    s.close("a")
    s.close("b")


@scenario
def pages_of_lists(s: Session) -> None:
    kind = s.named("Kind")
    for base in ("a", "b", "c"):
        s.start(base, workflow_type={"name": kind}, task_queue={"name": s.named("nobody")})
    query = f"WorkflowType = '{kind}'"
    s.until(lambda response: response.count == 3, "CountWorkflowExecutions", query=query)
    for rpc in ("ListWorkflowExecutions", "ScanWorkflowExecutions"):
        page = s.call(rpc, "a page", query=query, page_size=2)
        s.call(rpc, "the next page", query=query, page_size=2, next_page_token=encoded(page.next_page_token))
        s.call(rpc, "bad token", query=query, next_page_token=encoded(b"page"))
        s.call(rpc, "bad query", query="WorkflowType =")
    for base in ("a", "b", "c"):
        s.close(base)


@scenario
def filters(s: Session) -> None:
    kind = s.named("Kind")
    s.start("a", workflow_type={"name": kind}, **WITH_ATTRIBUTES)
    s.start("b", workflow_type={"name": kind}, task_queue={"name": s.named("nobody")})
    base = f"WorkflowType = '{kind}'"
    s.until(lambda response: response.count == 2, "CountWorkflowExecutions", query=base)
    for condition in (
        "CustomIntField BETWEEN 4 AND 6",
        "CustomIntField != 5",
        "CustomIntField IN (4, 5)",
        "CustomIntField NOT IN (4, 6)",
        "CustomIntField IS NOT NULL",
        "CustomKeywordField STARTS_WITH 'k'",
        "CustomKeywordField NOT STARTS_WITH 'k'",
        "NOT CustomIntField = 5",
        "(CustomIntField = 5 OR CustomKeywordField = 'other') AND ExecutionStatus = 'Running'",
        "ExecutionStatus = 1",
        "ExecutionStatus IN ('Running', 'Failed')",
        "StartTime > '2020-01-01T00:00:00Z'",
        "StartTime < 1000",
        "CloseTime IS NULL",
        f"TaskQueue = '{s.named('nobody')}'",
        f"WorkflowId IN ('{s.named('a')}', '{s.named('b')}')",
        "ParentWorkflowId IS NULL",
        "HistoryLength >= 1",
        "ExecutionTime > '2020-01-01T00:00:00Z'",
        "`CustomIntField` = 5",
        'CustomKeywordField = "key"',
    ):
        s.call("CountWorkflowExecutions", condition, query=f"{base} AND {condition}")
    s.call("CountWorkflowExecutions", "by status", query=f"{base} GROUP BY ExecutionStatus")
    s.call("CountWorkflowExecutions", "by another field", query=f"{base} GROUP BY CustomIntField")
    s.call("CountWorkflowExecutions", "by two fields", query=f"{base} GROUP BY ExecutionStatus, WorkflowType")
    s.call("ListWorkflowExecutions", "in order", query=f"{base} ORDER BY StartTime")
    s.close("a")
    s.close("b")


ALL_TIMES = {"start_time_filter": {"earliest_time": "2020-01-01T00:00:00Z", "latest_time": "2100-01-01T00:00:00Z"}}


@scenario
def closed_by_status(s: Session) -> None:
    earlier = Session(s.server)  # not recorded: others of each status, so that no page is the last one
    for session in (earlier, s):
        session.start("FAILED")
        session.decide(FAIL)
        session.start("CANCELED")
        session.decide(command("CANCEL_WORKFLOW_EXECUTION"))
        session.start("CONTINUED_AS_NEW")
        session.decide(command("CONTINUE_AS_NEW_WORKFLOW_EXECUTION"))
        session.start("TERMINATED")
        session.close("TERMINATED")
        session.start("TIMED_OUT", workflow_run_timeout="1s")
    for status in ("FAILED", "CANCELED", "CONTINUED_AS_NEW", "TERMINATED", "TIMED_OUT"):
        s.until(
            lambda response, status=status: any(
                each.execution.workflow_id == s.named(status) for each in response.executions
            ),
            "ListClosedWorkflowExecutions",
            status,
            **ALL_TIMES,
            status_filter={"status": f"WORKFLOW_EXECUTION_STATUS_{status}"},
            maximum_page_size=1,
        )
    for status in ("RUNNING", "PAUSED", "UNSPECIFIED"):
        chosen = {"status_filter": {"status": f"WORKFLOW_EXECUTION_STATUS_{status}"}}
        s.call("ListClosedWorkflowExecutions", f"{status}, not closed", **ALL_TIMES, **chosen)
    s.close("CONTINUED_AS_NEW")


@scenario
def lists_by_run(s: Session) -> None:
    run_id = s.start().run_id
    mine = {"execution_filter": {"workflow_id": s.named("w"), "run_id": run_id}}
    s.until(lambda response: response.executions, "ListOpenWorkflowExecutions", **ALL_TIMES, **mine)
    s.call("ListClosedWorkflowExecutions", "none", **ALL_TIMES, **mine)
    s.close()
