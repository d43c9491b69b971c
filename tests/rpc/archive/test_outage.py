"""PostgreSQL is killed at random and stopped for a while, while runs start and end: none is lost, stored twice, or waits.

PERDURE_ARCHIVE_OUTAGE is how many seconds it is stopped (2 by default), PERDURE_ARCHIVE_LOAD how many runs start in a second (20
by default), and PERDURE_SEED decides when it is killed.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from itertools import count
from random import Random
from time import monotonic
from typing import Any, TypeVar

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType

from perdure.postgres.archive import Connection, PostgresArchive
from perdure.simulation.cluster.store import ObjectKey
from rpc.archive.archiving import run
from support.operator import in_memory
from support.postgres import PostgresServer, postgres
from support.temporal import Server

OUTAGE = float(os.environ.get("PERDURE_ARCHIVE_OUTAGE") or 2)
RATE = float(os.environ.get("PERDURE_ARCHIVE_LOAD") or 20)
SEED = int(os.environ.get("PERDURE_SEED") or 1)
KILLS = 2
"""How often it is killed before it is stopped, and after that."""
KEPT = 3
"""Seconds after its end for which a run stays in the cluster, if it is archived."""
PATIENCE = 300
_Result = TypeVar("_Result")

pytestmark = pytest.mark.timeout(OUTAGE + 3 * PATIENCE)


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


class Load:
    """Runs that start at a steady rate, and how long each took from its creation to its end."""

    def __init__(self, server: Server) -> None:
        self.taken: dict[str, float] = {}
        """Seconds by the name of the run that was created; -1 until it has ended."""
        self._server = server
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def ask(self, work: Callable[[Any], _Result]) -> _Result:
        """What the API server says, which belongs to another thread."""
        cluster, answer = self._server.cluster, Future[_Result]()

        def answered() -> None:
            try:
                answer.set_result(work(cluster))
            except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
                answer.set_exception(error)

        cluster.loop.call_soon_threadsafe(answered)
        return await asyncio.wrap_future(answer)

    async def names(self) -> set[str]:
        """The runs in the cluster."""
        return await self.ask(lambda cluster: {each["metadata"]["name"] for each in cluster.of("workflowruns")})

    async def run(self) -> None:
        """Start runs until `stop`, and wait until all have ended."""
        async with asyncio.TaskGroup() as tasks:
            for number in count():
                tasks.create_task(self._one(f"run-{number:05}"))
                await asyncio.sleep(1 / RATE)
                if self._stopped.is_set():
                    break

    async def _one(self, name: str) -> None:
        body, namespace = run(name, ttl=KEPT), self._server.namespace
        began = monotonic()
        await self.ask(lambda cluster: cluster.create("workflowruns", body, namespace=namespace))
        self.taken[name] = -1
        key = ObjectKey("workflowruns", namespace, name)
        while not (await self.ask(lambda cluster: cluster.get(key).get("status") or {})).get("completionTime"):
            assert monotonic() - began < PATIENCE, f"{name} has not ended"
            await asyncio.sleep(0.02)
        self.taken[name] = monotonic() - began


async def killed(database: PostgresServer, random: Random) -> None:
    """Kill the server some times."""
    for _ in range(KILLS):
        await asyncio.sleep(random.uniform(0.2, 1.5))
        await asyncio.to_thread(database.kill)
        await asyncio.sleep(random.uniform(0, 0.5))
        await asyncio.to_thread(database.start)


async def test_an_outage_under_load_loses_no_run_stores_none_twice_and_delays_none(database: PostgresServer) -> None:
    random = Random(SEED)
    with in_memory(
        archive=lambda: PostgresArchive(Connection(conninfo=database.conninfo), timedelta(0)).run()
    ) as server:
        load = Load(server)
        starting = asyncio.create_task(load.run())
        await killed(database, random)
        await asyncio.to_thread(database.stop)
        before = set(load.taken)
        await asyncio.sleep(OUTAGE)
        during = load.taken.keys() - before
        began = monotonic()
        while any(load.taken[name] < 0 for name in during):
            assert monotonic() - began < PATIENCE, "runs wait for the archive"
            await asyncio.sleep(0.1)
        assert during <= await load.names(), "a run that is not archived was deleted"
        await asyncio.to_thread(database.start)
        began = monotonic()
        await killed(database, random)
        load.stop()
        await starting
        while await load.names():
            assert monotonic() - began < PATIENCE, "runs are not archived"
            await asyncio.sleep(0.1)
        took = monotonic() - began

        number = len(load.taken)
        counted = "SELECT count(*), count(DISTINCT name), count(DISTINCT run_id) FROM perdure.runs"
        assert database.statement(counted) == f"{number}|{number}|{number}"
        assert set(database.statement("SELECT name FROM perdure.runs").split()) == load.taken.keys()
        history, request, _ = server.rpc("GetWorkflowExecutionHistory")
        for name in random.sample(sorted(load.taken), 5):
            execution = WorkflowExecution(workflow_id=name)
            events = history(request(namespace=server.namespace, execution=execution), timeout=30).history.events
            assert events[-1].event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED

    print(
        f"{number} runs at {RATE:g}/s; stopped for {OUTAGE:g} s, killed {2 * KILLS} times: all archived once, {took:.1f} s later"
    )
    for what, names in (("of the outage", during), ("others", load.taken.keys() - during)):
        figures = sorted(load.taken[name] for name in names)
        p50, p99 = (figures[int(len(figures) * share)] * 1_000 for share in (0.5, 0.99))
        print(f"{len(figures)} runs {what}: p50 {p50:.0f} ms, p99 {p99:.0f} ms, most {figures[-1] * 1_000:.0f} ms")
