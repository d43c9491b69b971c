"""How fast the archive stores and finds runs, and how large they are: 100,000 runs in a real PostgreSQL on this machine."""

import asyncio
import os
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from time import perf_counter
from typing import Any, TypeVar

import pytest
from temporalio.api.common.v1 import WorkflowExecution

from perdure.api.phases import RunKind
from perdure.archive.filters import Among, And, Condition
from perdure.archive.rows import ArchivedRun
from perdure.postgres.archive import Connection, PostgresArchive
from support.archived_runs import BEGIN, NAMESPACE, finished, row
from support.operator import in_memory
from support.postgres import PostgresServer, postgres

pytestmark = [pytest.mark.bench, pytest.mark.alone]

RUNS = int(os.environ.get("PERDURE_ARCHIVED_RUNS") or 100_000)
BATCH = 200
KIND = RunKind.WORKFLOW
ALL: Condition = And(())
_Result = TypeVar("_Result")


def batch_of(first: int) -> list[ArchivedRun]:
    """Runs over half a year: 97% complete, each customer has 20, and one in a thousand is a refund."""
    made = []
    for number in range(first, min(first + BATCH, RUNS)):
        run = finished(
            f"run-{number:06}",
            begin=BEGIN + timedelta(seconds=number * 155),
            status="Failed" if number % 33 == 0 else "Completed",
            attributes={"Customer": {"type": "Keyword", "value": f"customer-{number // 20}"}},
            workflowType="Refund" if number % 1_000 == 0 else "Order",
        )
        made.append(row(run))
    return made


def equal(name: str, value: str) -> Condition:
    return Among(name, [value], optional=False, negated=False)


@pytest.mark.timeout(1_800)
async def test_archive() -> None:
    with postgres() as server:
        async with PostgresArchive(Connection(conninfo=server.conninfo), timedelta(0)).run() as archive:
            building = storing = 0.0
            for first in range(0, RUNS, BATCH):
                began = perf_counter()
                batch = batch_of(first)
                building += perf_counter() - began
                began = perf_counter()
                await archive.store(batch)
                storing += perf_counter() - began
            server.statement("ANALYZE perdure.runs")
            size = int(
                server.statement("SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('perdure.runs')")
            )
            print(f"{RUNS:,} runs: stored at {RUNS / storing:,.0f}/s, rows built at {RUNS / building:,.0f}/s")
            print(f"bytes per run: {size / RUNS:,.0f}, of which its object {len(batch_of(0)[0].content):,}")

            async def timed(what: str, work: Awaitable[_Result]) -> _Result:
                began = perf_counter()
                result = await work
                print(f"{what}: {(perf_counter() - began) * 1_000:.1f} ms")
                return result

            async def page(condition: Condition, after: int | None = None, limit: int = 100) -> int:
                start = None if after is None else (BEGIN + timedelta(seconds=after * 155), "")
                return len(await archive.page(NAMESPACE, KIND, condition, after=start, limit=limit))

            await page(ALL)  # opens the connection
            assert await timed("first page of 100", page(ALL)) == 100
            assert await timed("page of 100 in the middle", page(ALL, after=RUNS // 2)) == 100
            assert await timed("page of 1,000", page(ALL, limit=1_000)) == 1_000
            assert await timed("20 runs by search attribute", page(equal("Customer", "customer-17"))) == 20
            assert await timed("one run by workflow ID", page(equal("WorkflowId", "run-000042"))) == 1
            refunds = await timed("runs of a rare type, newest 100", page(equal("WorkflowType", "Refund")))
            assert refunds == min(100, RUNS // 1_000)
            failed = And((equal("ExecutionStatus", "Failed"), equal("WorkflowType", "Order")))
            counted = await timed("count by a condition", archive.count(NAMESPACE, KIND, failed, without=()))
            assert sum(counted.values()) > 0
            counted = await timed("count of all", archive.count(NAMESPACE, KIND, ALL, without=()))
            print(f"counted {sum(counted.values()):,} of {RUNS:,}")
            found = await timed("one run with its history", archive.find(NAMESPACE, KIND, "", "uid-run-000042"))
            assert found is not None
        await asyncio.to_thread(through_the_frontend, server)


def through_the_frontend(database: PostgresServer) -> None:
    """What clients of Temporal notice: the same by RPC, with an operator that has no run in its cluster."""

    def opened() -> AbstractAsyncContextManager[PostgresArchive]:
        return PostgresArchive(Connection(conninfo=database.conninfo), timedelta(0)).run()

    with in_memory(namespace=NAMESPACE, archive=opened) as server:

        def timed(what: str, rpc: str, **fields: Any) -> Any:
            method, request, _ = server.rpc(rpc)
            began = perf_counter()
            answer = method(request(namespace=NAMESPACE, **fields), timeout=60)
            print(f"by RPC, {what}: {(perf_counter() - began) * 1_000:.1f} ms")
            return answer

        listing, one = "ListWorkflowExecutions", WorkflowExecution(workflow_id="run-000042")
        timed("first list, which connects", listing, page_size=1)
        first = timed("first page of 100", listing, page_size=100)
        assert len(first.executions) == 100
        second = timed("second page of 100", listing, page_size=100, next_page_token=first.next_page_token)
        assert len(second.executions) == 100
        assert {each.execution.run_id for each in (*first.executions, *second.executions)} == {
            f"uid-run-{number:06}" for number in range(RUNS - 200, RUNS)
        }
        assert len(timed("page of 1,000", listing, page_size=1_000).executions) == 1_000
        found = timed("20 runs by search attribute", listing, query="Customer = 'customer-17'")
        assert len(found.executions) == 20
        timed("count of all", "CountWorkflowExecutions")
        timed("count by status", "CountWorkflowExecutions", query="GROUP BY ExecutionStatus")
        timed("description of one run", "DescribeWorkflowExecution", execution=one)
        history = timed("history of one run", "GetWorkflowExecutionHistory", execution=one).history
        assert history.events
