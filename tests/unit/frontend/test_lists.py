"""Lists of finished runs whose search attributes and memo are too large to be kept in memory."""

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from aiohttp import web
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.filter.v1 import StartTimeFilter
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    CountWorkflowExecutionsResponse,
    ListClosedWorkflowExecutionsRequest,
    ListOpenWorkflowExecutionsRequest,
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
)

from perdure.controller.manager import Manager
from perdure.frontend.core import Frontend
from perdure.frontend.errors import RpcError
from perdure.frontend.settings import Settings
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.lists import Listing
from support.http_server import api_server
from support.managers import manager_over
from support.recorded_runs import recorded

Json = dict[str, Any]
RUN: Json = recorded("whole")
NAMESPACE = RUN["metadata"]["namespace"]
MEMO = {"note": {"payloads": [{"metadata": {"encoding": "json/plain"}, "data": "Imh1aCI="}]}}


def finished(name: str, second: int, **code: Json) -> Json:
    run = deepcopy(RUN)
    run["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    run["status"]["state"] |= {"startTime": f"2026-01-01T00:00:{second:02}Z", "code": {"workflowType": "Order", **code}}
    return run


@dataclass
class Stage:
    manager: Manager
    listing: Listing
    runs: dict[str, Json]
    read: list[str]

    def add(self, run: Json) -> None:
        self.runs[run["metadata"]["name"]] = run
        self.manager.informers["workflowruns"].on_event(run, deleted=False)

    async def list(self, query: str, **page: Any) -> ListWorkflowExecutionsResponse:
        request = ListWorkflowExecutionsRequest(namespace=NAMESPACE, query=query, **page)
        return await self.listing.list_workflow_executions(request, CallContext(None))

    async def count(self, query: str) -> CountWorkflowExecutionsResponse:
        request = CountWorkflowExecutionsRequest(namespace=NAMESPACE, query=query)
        return await self.listing.count_workflow_executions(request, CallContext(None))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    runs: dict[str, Json] = {}
    read: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        if "/configmaps/" not in request.path:
            read.append(name)
        await asyncio.sleep(0)
        if name not in runs:
            return web.json_response({"reason": "NotFound", "message": "not found"}, status=404)
        return web.json_response(runs[name])

    async with api_server(answer) as client:
        manager = manager_over(client)
        frontend = Frontend(manager, Settings(authentication=False))
        manager.attach(frontend)
        listing = Listing(client, manager.directory, frontend.runs, frontend.visibility, frontend.search_attributes)
        yield Stage(manager, listing, runs, read)


def names(response: ListWorkflowExecutionsResponse) -> list[str]:
    return [each.execution.run_id.removeprefix("uid-") for each in response.executions]


async def test_small_runs_are_listed_without_a_read(stage: Stage) -> None:
    stage.add(finished("a", 1, searchAttributes={"City": "Oslo"}, memo=MEMO))
    stage.add(finished("b", 2, searchAttributes={"City": "Rome"}))
    found = await stage.list("City = 'Oslo'")
    assert names(found) == ["a"]
    assert found.executions[0].memo.fields["note"].data == b'"huh"'
    assert names(await stage.list("")) == ["b", "a"]
    assert stage.read == []


async def test_large_values_are_read_when_a_filter_or_list_needs_them(stage: Stage) -> None:
    large = "x" * 1_000
    stage.add(finished("small", 1, searchAttributes={"City": "Oslo"}))
    stage.add(finished("large", 3, searchAttributes={"City": "Oslo", "Notes": large}))
    stage.add(finished("other", 2, searchAttributes={"City": "Rome", "Notes": large}, memo={"note": large}))
    found = await stage.list("City = 'Oslo'")
    assert names(found) == ["large", "small"]
    assert large.encode() in found.executions[0].search_attributes.indexed_fields["Notes"].data
    assert set(stage.read) == {"large", "other"}
    assert (await stage.count("City = 'Oslo' AND ExecutionStatus = 'Completed'")).count == 2


async def test_a_filter_without_large_values_reads_only_runs_of_the_page(stage: Stage) -> None:
    for number in range(5):
        stage.add(finished(f"run-{number}", number, searchAttributes={"Notes": "x" * 1_000}))
    found = await stage.list("WorkflowType = 'Order'", page_size=2)
    assert names(found) == ["run-4", "run-3"]
    assert set(stage.read) == {"run-4", "run-3"}
    assert (await stage.count("WorkflowType = 'Order'")).count == 5
    following = await stage.list("WorkflowType = 'Order'", page_size=3, next_page_token=found.next_page_token)
    assert names(following) == ["run-2", "run-1", "run-0"]


async def test_a_run_deleted_during_the_list_is_omitted(stage: Stage) -> None:
    stage.add(finished("a", 1, searchAttributes={"Notes": "x" * 1_000}))
    stage.add(finished("b", 2))
    del stage.runs["a"]
    assert names(await stage.list("")) == ["b"]
    assert names(await stage.list(f"Notes = '{'x' * 1_000}'")) == []


@pytest.mark.parametrize("time", [Timestamp(seconds=2**60), Timestamp(seconds=-(2**60)), Timestamp(nanos=-1)])
@pytest.mark.parametrize("field", ["earliest_time", "latest_time"])
async def test_times_of_older_filters_are_validated(stage: Stage, time: Timestamp, field: str) -> None:
    asked = StartTimeFilter(**{field: time})
    with pytest.raises(RpcError, match=f"invalid {field}: must be a time between") as refused:
        await stage.listing.list_open_workflow_executions(
            ListOpenWorkflowExecutionsRequest(namespace=NAMESPACE, start_time_filter=asked), CallContext(None)
        )
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(RpcError):
        await stage.listing.list_closed_workflow_executions(
            ListClosedWorkflowExecutionsRequest(namespace=NAMESPACE, start_time_filter=asked), CallContext(None)
        )


async def test_older_filters_match_the_start_time(stage: Stage) -> None:
    stage.add(finished("a", 1))
    stage.add(finished("b", 2))
    asked = StartTimeFilter(earliest_time=Timestamp(seconds=1_767_225_602))
    found = await stage.listing.list_closed_workflow_executions(
        ListClosedWorkflowExecutionsRequest(namespace=NAMESPACE, start_time_filter=asked), CallContext(None)
    )
    assert [each.execution.run_id for each in found.executions] == ["uid-b"]
