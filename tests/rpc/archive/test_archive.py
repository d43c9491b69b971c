"""Finished runs move to the archive, and are read from it like those in the cluster. The database is a real one."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType

from perdure.api.labels import API_VERSION
from perdure.archive.rows import ArchiveSettings, archived
from perdure.postgres.archive import Connection, PostgresArchive
from perdure.runtime.retention import Limits
from rpc.archive.archiving import in_cluster, run, until
from support.archived_runs import finished
from support.operator import NAMESPACE, in_memory
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


def standalone(name: str, *, ttl: int, **spec: Any) -> dict[str, Any]:
    body = {**spec, "ttlSecondsAfterFinished": ttl}
    return {"apiVersion": API_VERSION, "kind": "WorkflowRun", "metadata": {"name": name}, "spec": body}


def test_standalone_runs_are_deleted_from_the_cluster_and_from_the_archive(
    archive: Any, database: PostgresServer
) -> None:
    ended = {"scheduleToCloseTimeout": "1s"}
    activity = {"type": "Do", "taskQueue": "none", **ended}
    operation = {"endpoint": "none", "service": "invoices", "operation": "charge", **ended}
    objects = [
        standalone(f"{name}-{field}", ttl=ttl, **{field: spec})
        for name, ttl in (("gone", 1), ("kept", 3_600))
        for field, spec in (("activity", activity), ("nexusOperation", operation))
    ]
    with in_memory(objects=objects, archive=archive) as server:
        until(lambda: in_cluster(server) == {"kept-activity", "kept-nexusOperation"} and stored(database) == 4)
        for noun, named, field in (
            ("ActivityExecution", "activity_id", "activity"),
            ("NexusOperationExecution", "operation_id", "nexusOperation"),
        ):
            assert call(server, f"Count{noun}s").count == 2
            for name in ("gone", "kept"):
                call(server, f"Delete{noun}", **{named: f"{name}-{field}"})
            until(lambda noun=noun: call(server, f"Count{noun}s").count == 0)  # type: ignore[misc]
            with pytest.raises(grpc.RpcError) as refused:
                call(server, f"Delete{noun}", **{named: f"gone-{field}"})
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert stored(database) == 0


def test_a_run_whose_history_is_not_archived_is_deleted(archive: Any, database: PostgresServer) -> None:
    large = finished("large", namespace=NAMESPACE)

    async def store() -> None:
        async with archive() as opened:
            await opened.store(
                [archived(large, large["status"]["history"]["events"], ArchiveSettings(history_bytes=1))]
            )

    asyncio.run(store())
    with in_memory(archive=archive) as server:
        execution = WorkflowExecution(workflow_id="large")
        with pytest.raises(grpc.RpcError) as refused:
            call(server, "DescribeWorkflowExecution", execution=execution)
        assert refused.value.code() is grpc.StatusCode.DATA_LOSS
        call(server, "DeleteWorkflowExecution", workflow_execution=execution)
        assert stored(database) == 0


def test_runs_stay_until_they_are_archived_and_are_found_after_a_restart(
    archive: Any, database: PostgresServer
) -> None:
    objects = [run(f"r{n}", ttl=1) for n in range(5)]
    database.stop()
    with in_memory(objects=objects, archive=archive) as server:
        until(
            lambda: all((each.get("status") or {}).get("completionTime") for each in server.cluster.of("workflowruns"))
        )
        closed = {
            each["metadata"]["uid"]: datetime.fromisoformat(each["status"]["completionTime"])
            for each in server.cluster.of("workflowruns")
        }
        assert len(closed) == 5
        with pytest.raises(grpc.RpcError) as refused:
            listed(server)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert listed(server, "ExecutionStatus = 'Running'") == []
        assert in_cluster(server) == {f"r{n}" for n in range(5)}
    database.start()
    with in_memory(restored=server.cluster, archive=archive) as server:
        until(lambda: not in_cluster(server))
        assert stored(database) == 5
        assert sorted(listed(server)) == [f"r{n}" for n in range(5)]
        found = call(server, "ListWorkflowExecutions").executions
        ended = {each.execution.run_id: each.close_time.ToDatetime(UTC) for each in found}
        assert ended == closed, "they have not run again"


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
