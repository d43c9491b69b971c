"""Temporal's HTTP API: by curl's means, against the operator on an API server in memory."""

import asyncio
import json
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from rpc.http.calls import Http


@workflow.defn(name="Greeting", sandboxed=False)
class Greeting:
    """Greets the given name."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.done = False

    @workflow.run
    async def run(self, greeting: str) -> dict[str, Any]:
        await workflow.wait_condition(lambda: self.done)
        return {"greeting": greeting, "names": self.names}

    @workflow.signal
    def add(self, name: str) -> None:
        self.names.append(name)

    @workflow.signal
    def finish(self) -> None:
        self.done = True

    @workflow.query
    def names_so_far(self) -> list[str]:
        return self.names

    @workflow.update
    def rename(self, names: list[str]) -> int:
        self.names = names
        return len(names)


WORKFLOWS = "/api/v1/namespaces/default/workflows"
START = {"workflowType": {"name": "Greeting"}, "taskQueue": {"name": "http"}, "input": ["hello"]}


async def test_a_workflow_can_be_started_signaled_queried_and_updated(http: Http, address: tuple[str, str]) -> None:
    client = await Client.connect(address[0])
    async with Worker(client, task_queue="http", workflows=[Greeting]):
        status, started = await http.call("POST", f"{WORKFLOWS}/hello%2Fworld", START)
        assert status == 200
        assert started["runId"]
        one = f"{WORKFLOWS}/hello%2Fworld"
        status, signaled = await http.call("POST", f"{one}/signal/add", {"input": ["Ada"]})
        assert (status, signaled["link"]["workflowEvent"]["workflowId"]) == (200, "hello/world")
        query = await http.call("POST", f"{one}/query/names_so_far", {})
        assert query == (200, {"queryResult": [["Ada"]]})
        status, updated = await http.call(
            "POST",
            f"{one}/update/rename",
            {
                "waitPolicy": {"lifecycleStage": "UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED"},
                "request": {"input": {"args": [["Ada", "Grace"]]}},
            },
        )
        assert (status, updated["outcome"]) == (200, {"success": [2]})

        async def result() -> Any:
            path = f"{one}/history?waitNewEvent=true&historyEventFilterType=HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT"
            _, page = await http.call("GET", path)
            return page["history"]["events"][0]["workflowExecutionCompletedEventAttributes"]["result"]

        awaited = asyncio.create_task(result())
        assert (await http.call("POST", f"{one}/signal/finish"))[0] == 200
        assert await awaited == [{"greeting": "hello", "names": ["Ada", "Grace"]}]


async def test_workflows_can_be_listed_counted_described_and_terminated(http: Http) -> None:
    body = {**START, "workflowType": {"name": "Unserved"}, "memo": {"fields": {"note": "urgent"}}}
    body["workflowIdReusePolicy"] = "RejectDuplicate"
    assert (await http.call("POST", f"{WORKFLOWS}/listed", body))[0] == 200
    _, described = await http.call("GET", f"{WORKFLOWS}/listed")
    info = described["workflowExecutionInfo"]
    assert (info["status"], info["memo"]) == ("WORKFLOW_EXECUTION_STATUS_RUNNING", {"fields": {"note": "urgent"}})
    _, counted = await http.call("GET", "/api/v1/namespaces/default/workflow-count?query=WorkflowType%3D'Unserved'")
    assert counted == {"count": "1"}
    _, found = await http.call("GET", f"{WORKFLOWS}?query=WorkflowType='Unserved'&pageSize=10")
    assert [each["execution"]["workflowId"] for each in found["executions"]] == ["listed"]
    assert await http.call("POST", f"{WORKFLOWS}/listed/terminate", {"reason": "tested"}) == (200, {})


async def test_payloads_are_complete_and_json_is_indented_on_request(http: Http) -> None:
    kind = "application/json+no-payload-shorthand"
    payloads = {"payloads": [{"metadata": {"encoding": "anNvbi9wbGFpbg=="}, "data": "ImhlbGxvIg=="}]}
    body = {**START, "workflowType": {"name": "Unserved"}, "input": payloads}
    status, _ = await http.call("POST", f"{WORKFLOWS}/whole", body, headers={"Content-Type": kind})
    assert status == 200
    path = f"{WORKFLOWS}/whole/history?maximumPageSize=1"
    _, short = await http.call("GET", path)
    assert short["history"]["events"][0]["workflowExecutionStartedEventAttributes"]["input"] == ["hello"]
    async with http.session.get(f"{http.base}{path}&pretty&noPayloadShorthand") as response:
        assert response.headers["Content-Type"] == "application/json+pretty+no-payload-shorthand"
        text = await response.text()
    assert json.loads(text)["history"]["events"][0]["workflowExecutionStartedEventAttributes"]["input"] == payloads
    assert text.startswith('{\n  "history": {\n')


@pytest.mark.parametrize(
    ("asked", "body", "status", "message"),
    [
        ("GET /api/v1/nowhere", None, (404, 5), "Not Found"),
        (f"DELETE {WORKFLOWS}", None, (501, 12), "Method Not Allowed: this path accepts GET"),
        (f"GET {WORKFLOWS}/missing", None, (404, 5), "workflow"),
        ("GET /api/v1/namespaces/nowhere/workflows", None, (404, 5), "Namespace nowhere is not found."),
        (f"GET {WORKFLOWS}?quer=x", None, (400, 3), 'has no field "quer". Did you mean "query"?'),
        (f"GET {WORKFLOWS}?pageSize=many", None, (400, 3), "page_size"),
        (f"POST {WORKFLOWS}/x", b"[]", (400, 3), "not a JSON object"),
        (f"POST {WORKFLOWS}/x", b"{", (400, 3), "the request is not a StartWorkflowExecutionRequest"),
        (f"POST {WORKFLOWS}/x", b"[" * 100_000, (400, 3), "nested too deeply"),
        (f"POST {WORKFLOWS}/x", b'{"input": [NaN]}', (400, 3), "NaN is not JSON"),
        (f"POST {WORKFLOWS}/x", {"unknown": 1}, (400, 3), 'no field named "unknown"'),
        (f"POST {WORKFLOWS}/x", b" " * (4 * 1024 * 1024 + 1), (400, 3), "http: request body too large"),
        ("POST /api/v1/namespaces/default/workflow-rules", {}, (501, 12), "CreateWorkflowRule is not supported"),
    ],
)
async def test_a_failed_request_gets_a_status_as_json(
    http: Http, asked: str, body: Any, status: tuple[int, int], message: str
) -> None:
    found, answer = await http.call(*asked.split(), body)
    assert (found, answer["code"]) == status
    assert message in answer["message"]


async def test_error_details_are_messages_of_temporals_api(http: Http) -> None:
    _, answer = await http.call("GET", f"{WORKFLOWS}/missing")
    assert answer["details"] == [{"@type": "type.googleapis.com/temporal.api.errordetails.v1.NotFoundFailure"}]


async def test_requests_of_web_pages_are_rejected(http: Http) -> None:
    status, answer = await http.call("GET", WORKFLOWS, headers={"Origin": "https://example.com"})
    assert (status, answer["code"]) == (403, 7)
    assert "web pages cannot call" in answer["message"]
