"""Finished runs move to the archive, and are read from it like those in the cluster. The database is a real one."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import grpc
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType

from perdure.postgres.archive import Connection, PostgresArchive
from perdure.runtime.retention import Limits
from rpc.archive.archiving import in_cluster, run, until
from support.operator import in_memory
from support.postgres import PostgresServer, postgres
from support.temporal import Server


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


@pytest.fixture
def archive(database: PostgresServer) -> Callable[[], AbstractAsyncContextManager[PostgresArchive]]:
    database.statement("DROP SCHEMA IF EXISTS perdure CASCADE")
    return lambda: PostgresArchive(Connection(conninfo=database.conninfo), timedelta(0)).run()


def call(server: Server, rpc: str, **fields: Any) -> Any:
    method, request, _ = server.rpc(rpc)
    return method(request(**{"namespace": server.namespace, **fields}), timeout=30)


def stored(database: PostgresServer) -> int:
    exists = database.statement("SELECT to_regclass('perdure.runs') IS NOT NULL") == "t"
    return int(database.statement("SELECT count(*) FROM perdure.runs")) if exists else 0


def listed(server: Server, query: str = "", size: int = 0) -> list[str]:
    found: list[str] = []
    token = b""
    while True:
        page = call(server, "ListWorkflowExecutions", query=query, page_size=size, next_page_token=token)
        found += [each.execution.workflow_id for each in page.executions]
        token = page.next_page_token
        if not token:
            return found


def test_archived_runs_are_read_like_those_in_the_cluster(archive: Any, database: PostgresServer) -> None:
    objects = [
        *(run(f"gone-{n}", ttl=4, attributes={"City": "Oslo" if n % 2 else "Rome"}) for n in range(6)),
        run("kept", ttl=3_600, attributes={"City": "Oslo"}),
        run("open", ttl=1, sleep="1h", attributes={"City": "Oslo"}),
    ]
    with in_memory("other", objects=objects, archive=archive) as server:
        until(lambda: in_cluster(server) == {"kept", "open"})
        assert stored(database) == 7
        everything = listed(server)
        assert sorted(everything) == sorted(each["metadata"]["name"] for each in objects)
        assert listed(server, size=2) == everything
        assert sorted(listed(server, "City = 'Oslo'")) == ["gone-1", "gone-3", "gone-5", "kept", "open"]
        assert listed(server, "City = 'Oslo' AND ExecutionStatus = 'Running'") == ["open"]
        assert call(server, "CountWorkflowExecutions").count == 8
        grouped = call(server, "CountWorkflowExecutions", query="GROUP BY ExecutionStatus")
        assert [each.count for each in grouped.groups] == [1, 7]

        execution = WorkflowExecution(workflow_id="gone-1")
        described = call(server, "DescribeWorkflowExecution", execution=execution).workflow_execution_info
        assert described.close_time.seconds
        history = call(server, "GetWorkflowExecutionHistory", execution=execution, maximum_page_size=1)
        assert history.next_page_token
        assert history.history.events[0].event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
        last = call(server, "GetWorkflowExecutionHistoryReverse", execution=described.execution).history.events[0]
        assert last.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED

        with pytest.raises(grpc.RpcError) as refused:
            call(server, "DescribeWorkflowExecution", namespace="other", execution=execution)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert call(server, "CountWorkflowExecutions", namespace="other").count == 0

        call(server, "DeleteWorkflowExecution", workflow_execution=execution)
        with pytest.raises(grpc.RpcError) as refused:
            call(server, "DescribeWorkflowExecution", execution=execution)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_runs_stay_until_they_are_archived_and_are_found_after_a_restart(
    archive: Any, database: PostgresServer
) -> None:
    objects = [run(f"r{n}", ttl=1) for n in range(5)]
    database.stop()
    with in_memory(objects=objects, archive=archive) as server:
        until(
            lambda: all((each.get("status") or {}).get("completionTime") for each in server.cluster.of("workflowruns"))
        )
        finished = [dict(each) for each in server.cluster.of("workflowruns")]
        assert len(finished) == 5
        with pytest.raises(grpc.RpcError) as refused:
            listed(server)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert listed(server, "ExecutionStatus = 'Running'") == []
        assert in_cluster(server) == {f"r{n}" for n in range(5)}
    database.start()
    with in_memory(objects=finished, archive=archive) as server:
        until(lambda: not in_cluster(server))
        assert stored(database) == 5
        assert sorted(listed(server)) == [f"r{n}" for n in range(5)]


def test_a_namespace_with_too_many_runs_keeps_those_that_are_not_archived(
    archive: Any, database: PostgresServer
) -> None:
    objects = [run(f"r{n}", ttl=1) for n in range(4)]
    database.stop()
    with in_memory(objects=objects, archive=archive, limits=Limits(runs=1, size=0)) as server:
        until(
            lambda: all((each.get("status") or {}).get("completionTime") for each in server.cluster.of("workflowruns"))
        )
        time.sleep(3)  # longer than their time to live
        assert len(in_cluster(server)) == 4
        database.start()
        until(lambda: stored(database) == 4)
