"""Additions of Perdure's HTTP API to Temporal's: results by one request, and an OpenAPI document."""

import asyncio
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from rpc.http.calls import Http

WORKFLOWS = "/api/v1/namespaces/default/workflows"
RESULTS = "/perdure/v1/namespaces/default/workflows"
RUNNING = {"status": "WORKFLOW_EXECUTION_STATUS_RUNNING"}


@workflow.defn(name="Countdown", sandboxed=False)
class Countdown:
    """Continues as new until it is at 0; then it waits to be released."""

    def __init__(self) -> None:
        self.released = False

    @workflow.run
    async def run(self, left: int, released: bool = False) -> dict[str, int]:
        self.released = self.released or released
        if left:
            workflow.continue_as_new(args=[left - 1, self.released])
        await workflow.wait_condition(lambda: self.released)
        return {"left": left}

    @workflow.signal
    def release(self) -> None:
        self.released = True


@workflow.defn(name="Refusal", sandboxed=False)
class Refusal:
    """Fails."""

    @workflow.run
    async def run(self) -> None:
        raise ApplicationError("no funds", type="CardDeclined", non_retryable=True)


def start(kind: str, *arguments: Any) -> dict[str, Any]:
    return {"workflowType": {"name": kind}, "taskQueue": {"name": "results"}, "input": list(arguments)}


async def test_one_request_waits_for_the_result_of_the_last_run(http: Http, address: tuple[str, str]) -> None:
    client = await Client.connect(address[0])
    async with Worker(client, task_queue="results", workflows=[Countdown, Refusal]):
        _, started = await http.call("POST", f"{WORKFLOWS}/a%2Fb", start("Countdown", 2))
        # Starting again with the same request ID returns the same run.
        again = {**start("Countdown", 2), "requestId": "r-1"}
        _, first = await http.call("POST", f"{WORKFLOWS}/once", again)
        _, second = await http.call("POST", f"{WORKFLOWS}/once", again)
        assert first["runId"] == second["runId"]
        awaited = asyncio.create_task(http.call("GET", f"{RESULTS}/a%2Fb/result?runId={started['runId']}"))
        await http.call("POST", f"{WORKFLOWS}/a%2Fb/signal/release", {})
        assert await awaited == (200, {"status": "WORKFLOW_EXECUTION_STATUS_COMPLETED", "result": {"left": 0}})
        await http.call("POST", f"{WORKFLOWS}/refused", start("Refusal"))
        status, refused = await http.call("GET", f"{RESULTS}/refused/result")
        assert (status, refused["status"]) == (200, "WORKFLOW_EXECUTION_STATUS_FAILED")
        assert refused["failure"]["message"] == "no funds"
        assert refused["failure"]["applicationFailureInfo"]["type"] == "CardDeclined"


async def test_an_open_run_is_202_and_its_outcome_is_reported(http: Http) -> None:
    await http.call("POST", f"{WORKFLOWS}/open", start("Unserved"))
    assert await http.call("GET", f"{RESULTS}/open/result?wait=0s") == (202, RUNNING)
    assert await http.call("GET", f"{RESULTS}/open/result?wait=1s") == (202, RUNNING)
    await http.call("POST", f"{WORKFLOWS}/open/terminate", {"reason": "not needed"})
    ended = {"status": "WORKFLOW_EXECUTION_STATUS_TERMINATED", "reason": "not needed"}
    assert await http.call("GET", f"{RESULTS}/open/result") == (200, ended)


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("none/result", 404, "workflow not found"),
        ("none/result?wait=11m", 400, "wait: 11m is not between 0s and 600s"),
        ("none/result?wait=soon", 400, "wait: "),
    ],
)
async def test_an_unavailable_result_is_an_error(http: Http, path: str, status: int, message: str) -> None:
    found, error = await http.call("GET", f"{RESULTS}/{path}")
    assert found == status
    assert message in error["message"]


async def test_a_web_page_cannot_read_results(http: Http) -> None:
    found, _ = await http.call("GET", f"{RESULTS}/open/result", headers={"Origin": "https://evil.example"})
    assert found == 403


async def test_responses_match_the_openapi_document(http: Http) -> None:
    _, document = await http.call("GET", "/api/v1/openapi.json")

    def check(path: str, method: str, body: Any) -> None:
        """Check a response; a field that the schema does not know is an error, too."""
        schema = document["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema_rs.validate({**strict, **schema}, body)

    strict = {
        "components": {"schemas": {name: _closed(each) for name, each in document["components"]["schemas"].items()}}
    }
    body = {**start("Unserved", {"deep": [1, None]}), "memo": {"fields": {"note": "urgent"}}}
    known = document["paths"]["/api/v1/namespaces/{namespace}/workflows/{workflow_id}"]["post"]["requestBody"]
    jsonschema_rs.validate({**strict, **known["content"]["application/json"]["schema"]}, body)
    one = "/api/v1/namespaces/{namespace}/workflows/{workflow_id}"
    check(one, "post", (await http.call("POST", f"{WORKFLOWS}/checked", body))[1])
    history = "/api/v1/namespaces/{namespace}/workflows/{execution.workflow_id}"
    check(history, "get", (await http.call("GET", f"{WORKFLOWS}/checked"))[1])
    check(f"{history}/history", "get", (await http.call("GET", f"{WORKFLOWS}/checked/history"))[1])
    check("/api/v1/namespaces/{namespace}/workflows", "get", (await http.call("GET", WORKFLOWS))[1])
    check("/api/v1/namespaces", "get", (await http.call("GET", "/api/v1/namespaces"))[1])


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "additionalProperties": False} if "properties" in schema and "$ref" not in schema else schema


async def test_the_openapi_document_is_consistent(http: Http) -> None:
    _, document = await http.call("GET", "/api/v1/openapi.json")
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert {"StartWorkflowExecution", "SignalWorkflowExecution", "QueryWorkflow", "GetWorkflowResult"} <= set(names)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            parameters = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert parameters == {part.strip("{}") for part in path.split("/") if part.startswith("{")}
    schemas = document["components"]["schemas"]
    assert {ref.removeprefix("#/components/schemas/") for ref in _references(document)} <= schemas.keys()


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)
