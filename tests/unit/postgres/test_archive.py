"""The archive in a real PostgreSQL server: rows, pages, counts, partitions, and outages."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from perdure.api.phases import RunKind
from perdure.archive.filters import And, Condition
from perdure.archive.records import RunRecord, record_of
from perdure.archive.rows import ArchivedRun, ArchiveUnavailableError
from perdure.kube import clock
from perdure.postgres.archive import LOCK_SHARED, Connection, PostgresArchive
from support.archived_runs import BEGIN, NAMESPACE, finished, ref, row
from support.postgres import PostgresServer

KIND = RunKind.WORKFLOW
ALL: Condition = And(())


async def page(archive: PostgresArchive, **options: Any) -> list[RunRecord]:
    found = await archive.page(NAMESPACE, KIND, ALL, **{"after": None, "limit": 100, **options})
    return [each.record for each in found]


def rows(count: int, **options: Any) -> list[ArchivedRun]:
    return [row(finished(f"r{n:03}", begin=BEGIN + timedelta(seconds=n), **options)) for n in range(count)]


async def test_a_stored_run_is_found_as_it_was(archive: PostgresArchive) -> None:
    attributes = {"Customer": {"type": "Keyword", "value": "ada"}, "Paid": {"type": "Bool", "value": True}}
    memo = {"note": {"payloads": [{"data": "MQ=="}]}}
    run = finished("one", attributes=attributes, memo=memo)
    events = run["status"]["history"]["events"]
    await archive.store([row(run)])
    assert await page(archive) == [record_of(run, RunRecord)]
    found = await archive.find(NAMESPACE, KIND, "", "uid-one")
    assert found is not None
    assert found["status"]["history"]["events"] == events
    assert found["spec"] == run["spec"]
    assert await archive.versions([ref("one"), ref("two")]) == {"uid-one": "10"}
    assert await archive.attribute_types(NAMESPACE) == {"Customer": "Keyword", "Paid": "Bool"}


async def test_storing_a_run_again_changes_nothing(archive: PostgresArchive, server: PostgresServer) -> None:
    await archive.store(rows(3))
    before = server.statement("SELECT run_id, xmin FROM perdure.runs ORDER BY run_id")
    await archive.store([*rows(3), *rows(3)])
    assert server.statement("SELECT run_id, xmin FROM perdure.runs ORDER BY run_id") == before


async def test_only_a_later_commit_replaces_a_run(archive: PostgresArchive) -> None:
    await archive.store([row(finished("one", commit=5, version="10"))])
    await archive.store([row(finished("one", commit=6, version="11", status="Failed"))])
    await archive.store([row(finished("one", commit=5, version="10"))])
    assert [(each.version, each.status) for each in await page(archive)] == [("11", "Failed")]
    # Of the same commit, such as after an edit of the spec, only a later version replaces another one.
    await archive.store([row(finished("one", commit=6, version="100", status="Failed"))])
    await archive.store([row(finished("one", commit=6, version="99", status="Failed"))])
    assert [each.version for each in await page(archive)] == ["100"]


async def test_pages_continue_where_the_last_one_ended(archive: PostgresArchive) -> None:
    stored = rows(25)
    await archive.store(stored)
    found: list[RunRecord] = []
    while True:
        after = (found[-1].start_time, found[-1].run_id) if found else None
        part = await page(archive, after=after, limit=10)
        found += part
        if len(part) < 10:
            break
    assert found == [each.record for each in reversed(stored)]


async def test_runs_are_counted_by_status_without_those_that_are_in_the_cluster(archive: PostgresArchive) -> None:
    await archive.store([*rows(5), row(finished("bad", status="Failed"))])
    assert await archive.count(NAMESPACE, KIND, ALL, without=["uid-r001", "uid-x"]) == {"Completed": 4, "Failed": 1}


async def test_a_namespace_sees_only_its_runs(archive: PostgresArchive) -> None:
    await archive.store([row(finished("mine")), row(finished("theirs", namespace="other"))])
    assert [each.run_id for each in await page(archive)] == ["uid-mine"]
    assert await archive.find(NAMESPACE, KIND, "", "uid-theirs") is None
    assert await archive.count("other", KIND, ALL, without=()) == {"Completed": 1}
    await archive.delete(ref("theirs"))
    assert await archive.find("other", KIND, "", "uid-theirs") is not None


async def test_the_newest_run_of_a_workflow_id_is_found(archive: PostgresArchive) -> None:
    runs = [finished(name, begin=BEGIN + timedelta(days=40 * n)) for n, name in enumerate(("first", "second"))]
    for run in runs:
        run["spec"]["workflowId"] = "same"
    await archive.store(list(map(row, runs)))
    found = await archive.find(NAMESPACE, KIND, "same", "")
    assert found is not None
    assert found["metadata"]["name"] == "second"


async def test_texts_that_postgresql_cannot_store_are_kept(archive: PostgresArchive) -> None:
    odd = "a\0b" + "é" * 3_000
    run = finished("odd", attributes={"Odd": {"type": "Keyword", "value": odd}}, workflowType=odd, memo={"x": "\0"})
    await archive.store([row(run)])
    assert await page(archive) == [record_of(run, RunRecord)]
    found = await archive.find(NAMESPACE, KIND, "", "uid-odd")
    assert found is not None
    assert found["status"]["state"]["code"]["workflowType"] == odd


async def test_months_have_partitions_and_retention_drops_them(server: PostgresServer) -> None:
    server.statement("DROP SCHEMA IF EXISTS perdure CASCADE")
    kept = timedelta(days=60)
    async with PostgresArchive(Connection(conninfo=server.conninfo), kept).run() as archive:
        months = [datetime(2025, month, 28, tzinfo=UTC) for month in (9, 10, 11, 12)]
        await archive.store([row(finished(f"m{time.month}", begin=time)) for time in months])
        await archive.maintain(datetime(2026, 1, 5, tzinfo=UTC))
        names = "SELECT relname FROM pg_class WHERE relname ~ '^runs_[0-9]+_[0-9]+$' ORDER BY 1"
        assert server.statement(names).split() == ["runs_2025_11", "runs_2025_12", "runs_2026_01", "runs_2026_02"]
        assert [each.run_id for each in await page(archive)] == ["uid-m12", "uid-m11"]
        await archive.store([row(finished("late", begin=datetime(2025, 10, 1, tzinfo=UTC)))])
        assert len(await page(archive)) == 3


async def test_operators_that_start_together_migrate_once(server: PostgresServer) -> None:
    server.statement("DROP SCHEMA IF EXISTS perdure CASCADE")
    archives = [PostgresArchive(Connection(conninfo=server.conninfo), timedelta(0)) for _ in range(4)]
    async with archives[0].run(), archives[1].run(), archives[2].run(), archives[3].run():
        await asyncio.gather(*(each.store(rows(3)) for each in archives))
        assert len(await page(archives[0])) == 3
    assert server.statement("SELECT version_num FROM perdure.alembic_version") == "0002"


async def test_the_schema_of_a_newer_version_is_used_as_it_is(archive: PostgresArchive, server: PostgresServer) -> None:
    await archive.store(rows(1))
    server.statement("UPDATE perdure.alembic_version SET version_num = '9999'")
    server.statement("ALTER TABLE perdure.runs ADD COLUMN later text")
    async with PostgresArchive(Connection(conninfo=server.conninfo), timedelta(0)).run() as older:
        await older.store(rows(2))
        assert len(await page(older)) == 2
    assert server.statement("SELECT version_num FROM perdure.alembic_version") == "9999"


async def test_an_outage_is_reported_and_ends(archive: PostgresArchive, server: PostgresServer) -> None:
    await archive.store(rows(2))
    server.kill()
    with pytest.raises(ArchiveUnavailableError, match="cannot be reached"):
        await archive.store(rows(3))
    with pytest.raises(ArchiveUnavailableError, match="cannot be reached"):
        await page(archive)
    server.start()
    await archive.store(rows(3))
    assert len(await page(archive)) == 3


async def test_a_server_that_is_killed_at_random_loses_and_doubles_nothing(
    archive: PostgresArchive, server: PostgresServer
) -> None:
    """Each batch is repeated until it is confirmed, as the operator does; the server is killed in between."""
    batches = [rows(300)[at : at + 20] for at in range(0, 300, 20)]
    stopped = asyncio.Event()

    async def disturb() -> None:
        for pause in (0.03, 0.11, 0.05, 0.2):
            await asyncio.sleep(pause)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        stopped.set()

    async def write() -> int:
        repeated = 0
        while True:
            for batch in batches:
                while True:
                    try:
                        await archive.store(batch)
                    except ArchiveUnavailableError:
                        repeated += 1
                    else:
                        break
            if stopped.is_set():
                return repeated

    repeated, _ = await asyncio.gather(write(), disturb())
    assert repeated
    assert server.statement("SELECT count(*), count(DISTINCT run_id) FROM perdure.runs") == "300|300"
    assert await archive.count(NAMESPACE, KIND, ALL, without=()) == {"Completed": 300}


async def test_the_newest_run_of_a_name_is_found(archive: PostgresArchive) -> None:
    older, newer = finished("one"), finished("one", begin=BEGIN + timedelta(days=1))
    newer["metadata"]["uid"] = "uid-newer"
    await archive.store([row(newer), row(older)])
    found = await archive.named(NAMESPACE, "one")
    assert found is not None
    assert found["metadata"]["uid"] == "uid-newer"
    assert await archive.named("other", "one") is None


async def test_a_deleted_run_is_not_stored_by_an_operator_that_has_read_it_before(archive: PostgresArchive) -> None:
    late = row(finished("one"))
    await archive.delete(ref("one"))  # it was deleted from the cluster, and not stored yet
    await archive.store([late, row(finished("two"))])
    assert [each.run_id for each in await page(archive)] == ["uid-two"]


async def test_a_deletion_waits_for_the_transaction_that_stores_the_run(
    archive: PostgresArchive, server: PostgresServer
) -> None:
    await archive.store([row(finished("two"))])  # the schema exists
    async with await psycopg.AsyncConnection.connect(server.conninfo) as storing:
        await storing.execute(LOCK_SHARED, [["uid-one"]])
        deletion = asyncio.create_task(archive.delete(ref("one")))
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        async with asyncio.timeout(30):
            while server.statement(waiting) == "0":  # noqa: ASYNC110 (the database calls nothing)
                await asyncio.sleep(0.05)
        assert not deletion.done()
        await storing.commit()
    await deletion


async def test_deletions_are_forgotten_after_a_day(archive: PostgresArchive, server: PostgresServer) -> None:
    await archive.delete(ref("one"))
    await archive.maintain(clock.now() + timedelta(hours=1))
    assert server.statement("SELECT count(*) FROM perdure.deleted") == "1"
    await archive.maintain(clock.now() + timedelta(days=2))
    assert server.statement("SELECT count(*) FROM perdure.deleted") == "0"


async def test_connections_are_bounded_and_a_namespace_gets_half_of_those_that_read(server: PostgresServer) -> None:
    size, readers = 6, 4
    server.statement("DROP SCHEMA IF EXISTS perdure CASCADE")
    connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure-operator'"

    async def count(statement: str) -> int:
        return int(await asyncio.to_thread(server.statement, statement))

    async def blocked(number: int) -> None:
        """Wait until so many statements wait for the lock."""
        deadline = clock.now() + timedelta(seconds=30)
        while await count(f"{connections} AND wait_event_type = 'Lock'") < number:
            assert clock.now() < deadline, number
            await asyncio.sleep(0.02)

    async with PostgresArchive(Connection(conninfo=server.conninfo, size=size), timedelta(0)).run() as archive:
        await archive.store(rows(3))
        async with await psycopg.AsyncConnection.connect(server.conninfo) as blocking:
            await blocking.execute("LOCK TABLE perdure.runs")
            reads = [asyncio.create_task(page(archive)) for _ in range(30)]
            await blocked(readers // 2)
            others = [asyncio.create_task(archive.page("other", KIND, ALL, after=None, limit=100)) for _ in range(30)]
            await blocked(readers)
            writes = [asyncio.create_task(archive.store(rows(3))) for _ in range(10)]
            await blocked(size)
            assert await count(connections) == size
            await blocking.rollback()
        assert [len(found) for found in await asyncio.gather(*reads)] == [3] * 30
        assert [len(found) for found in await asyncio.gather(*others)] == [0] * 30
        await asyncio.gather(*writes)
        assert await count(connections) <= size
