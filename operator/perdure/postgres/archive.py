"""The archive of finished runs in a PostgreSQL database.

Each run is a row of the table `perdure.runs`, which has a partition for each month of closing. Its key is the run ID, and a row
is replaced only by a later commit of the same run. Lists continue from the position of the last run of the page before, and never
skip rows by number.

Runs are written and read through different connections, and one namespace can use at most half of those that read: a slow query
delays neither the writes nor the queries of others.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import psycopg
import structlog
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from sqlalchemy.exc import SQLAlchemyError

from perdure.api.phases import RunKind
from perdure.api.search_attributes import attribute_type
from perdure.archive.filters import Among, And, Condition
from perdure.archive.records import RunRecord
from perdure.archive.rows import (
    ArchivedRun,
    ArchiveRejectedError,
    ArchiveUnavailableError,
    ListedRun,
    Position,
    RunRef,
    filterable,
    restored,
)
from perdure.observe import metrics
from perdure.postgres import schema
from perdure.postgres.filters import sql_of, storable
from perdure.runtime.attempts import KubeObject

_WRITERS: Final = 2
_CONNECT_SECONDS: Final = 5
_STATEMENT_SECONDS: Final = 10
"""How long a statement may take; then the server ends it."""
_SECONDS: Final = 20.0
"""How long an operation may take, if the server does not answer at all."""
_MIGRATION_SECONDS: Final = 600
_EXACT: Final = 100_000
"""Up to this number, counts are exact. Beyond it, PostgreSQL's estimate is enough: an exact count of millions takes minutes."""
_REMEMBERED: Final = timedelta(days=1)
"""For how long a deleted run is not stored again. An operator stores a run within minutes of reading it."""
_MAX_NAMES: Final = 1_000
"""Maximum number of names of search attributes that are remembered per namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach the database."""

    conninfo: str
    """A URL such as `postgresql://user:password@host/database`, or another connection string of libpq."""
    size: int = 8
    """Maximum number of connections of this process."""


# Rows


class _Listed(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The fields of a list that no column has as they are. Unknown fields were added by a newer version."""

    search_attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    memo: dict[str, Any] = msgspec.field(default_factory=dict)
    texts: dict[str, str] = msgspec.field(default_factory=dict)
    """Fields whose texts the columns cannot store."""


_LISTED: Final = msgspec.json.Decoder(_Listed)
_TEXTS: Final = ("workflow_id", "workflow_type", "task_queue", "request_id")


def _row(run: ArchivedRun) -> dict[str, Any]:
    """The row of a run. Texts are changed only where PostgreSQL cannot store them; `listed` has the originals."""
    record = run.record
    texts = {
        "namespace": record.namespace,
        "run_id": record.run_id,
        "kind": record.kind.value,
        "name": run.name,
        "workflow_id": record.workflow_id,
        "workflow_type": record.workflow_type,
        "status": record.status,
        "failure": run.failure,
        "task_queue": record.task_queue,
        "parent_workflow_id": record.parent[0] or None,
        "parent_run_id": record.parent[1] or None,
        "root_workflow_id": record.root[0],
        "root_run_id": record.root[1],
        "first_run_id": record.first_run_id,
        "endpoint": record.endpoint or None,
        "service": record.service or None,
        "request_id": record.request_id or None,
        "version": record.version,
    }
    odd = {name: text for name in _TEXTS if storable(text := getattr(record, name)) != text}
    return {
        **{name: None if text is None else storable(text) for name, text in texts.items()},
        "closed_at": run.closed,
        "start_time": record.start_time,
        "execution_time": record.execution_time,
        "duration_ns": (run.closed - record.start_time) // timedelta(microseconds=1) * 1_000,
        "history_length": record.history_length,
        "history_size": record.history_size,
        "attributes": Jsonb(_storable_json(filterable(record.search_attributes))),
        "commit_number": run.commit,
        "listed": msgspec.json.encode(_Listed(record.search_attributes, record.memo, odd)),
        "content": run.content,
    }


def _storable_json(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case dict():
            return {storable(key): _storable_json(each) for key, each in value.items()}
        case list():
            return [_storable_json(each) for each in value]
        case _:
            return value


_OF_RECORDS: Final = sql.SQL(
    "namespace, run_id, closed_at, kind, name, failure, workflow_id, workflow_type, status, start_time, execution_time,"
    " task_queue, history_length, history_size, parent_workflow_id, parent_run_id, root_workflow_id, root_run_id, first_run_id,"
    " endpoint, service, request_id, version, listed"
)


def _record(row: dict[str, Any]) -> RunRecord:
    listed = _LISTED.decode(row["listed"])
    texts: dict[str, Any] = {**{name: row[name] or "" for name in _TEXTS}, **listed.texts}
    return RunRecord(
        namespace=row["namespace"],
        run_id=row["run_id"],
        kind=RunKind(row["kind"]),
        status=row["status"],
        start_time=row["start_time"],
        execution_time=row["execution_time"],
        close_time=row["closed_at"],
        history_length=row["history_length"],
        history_size=row["history_size"],
        parent=(row["parent_workflow_id"] or "", row["parent_run_id"] or ""),
        root=(row["root_workflow_id"], row["root_run_id"]),
        first_run_id=row["first_run_id"],
        endpoint=row["endpoint"] or "",
        service=row["service"] or "",
        version=row["version"],
        search_attributes=listed.search_attributes,
        memo=listed.memo,
        **texts,
    )


_NAMES: Final = (
    *("namespace", "run_id", "closed_at", "kind", "name", "workflow_id", "workflow_type", "status", "failure"),
    *("start_time", "execution_time", "duration_ns", "task_queue", "history_length", "history_size"),
    *("parent_workflow_id", "parent_run_id", "root_workflow_id", "root_run_id", "first_run_id"),
    *("endpoint", "service", "request_id", "attributes", "version", "commit_number", "listed", "content"),
)
_TYPES: Final = {
    **dict.fromkeys(("closed_at", "start_time", "execution_time"), "timestamptz"),
    **dict.fromkeys(("history_length", "history_size", "commit_number"), "bigint"),
    **dict.fromkeys(("listed", "content"), "bytea"),
    "duration_ns": "numeric",
    "attributes": "jsonb",
}
"""The types of columns that are not texts."""
LOCK_SHARED: Final = (
    "SELECT pg_advisory_xact_lock_shared(hashtextextended(run_id, 0)) FROM unnest(%s::text[]) AS run_id ORDER BY run_id"
)
_INSERT: Final = sql.SQL(
    "INSERT INTO perdure.runs AS stored ({names}) SELECT {values}"
    " WHERE NOT EXISTS (SELECT FROM perdure.deleted WHERE deleted.run_id = {run_id})"
    " ON CONFLICT (run_id, closed_at) DO UPDATE SET {changes}"
    " WHERE stored.commit_number < excluded.commit_number"
    " OR (stored.commit_number = excluded.commit_number"
    " AND (length(stored.version), stored.version) < (length(excluded.version), excluded.version))"
).format(
    names=sql.SQL(", ").join(map(sql.Identifier, _NAMES)),
    values=sql.SQL(", ").join(
        [sql.SQL("{}::{}").format(sql.Placeholder(name), sql.SQL(_TYPES.get(name, "text"))) for name in _NAMES]
    ),
    run_id=sql.Placeholder("run_id"),
    changes=sql.SQL(", ").join([sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in _NAMES]),
)


class PostgresArchive:
    """Stores finished runs in a database."""

    def __init__(self, connection: Connection, retention: timedelta) -> None:
        """Create it without connections; `run` opens them.

        Args:
            connection: How to reach the database.
            retention: How long runs are kept after their end; zero: for ever.
        """
        self._conninfo = connection.conninfo
        self._retention = retention
        readers = max(connection.size - _WRITERS, 1)
        self._writes = self._pool("writes", _WRITERS)
        self._reads = self._pool("reads", readers)
        self._each = max(readers // 2, 1)
        self._turns: dict[str, asyncio.Semaphore] = {}
        """The turns of the namespaces that read."""
        self._is_ready = False
        self._preparing = asyncio.Lock()
        self._months: set[schema.Month] = set()
        """The months that have a partition."""
        self._names: dict[str, set[str]] = {}
        """The stored names of search attributes, by namespace."""
        self._log = structlog.get_logger("perdure.archive")

    def _pool(self, name: str, size: int) -> AsyncConnectionPool[Any]:
        return AsyncConnectionPool(
            self._conninfo,
            kwargs=_options(_STATEMENT_SECONDS),
            min_size=0,
            max_size=size,
            timeout=_CONNECT_SECONDS,
            max_waiting=1_000,
            max_idle=60,
            reconnect_timeout=1,
            check=AsyncConnectionPool.check_connection,
            name=f"archive-{name}",
            open=False,
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator["PostgresArchive"]:
        """Keep the connections within the block. The database does not have to be reachable."""
        async with self._writes, self._reads:
            yield self

    # Connections

    async def _prepared(self) -> None:
        """Migrate the schema, once.

        Raises:
            ArchiveUnavailableError: The database cannot be reached, or the schema cannot be migrated.
        """
        async with self._preparing:
            if self._is_ready:
                return
            try:
                await asyncio.to_thread(schema.migrate, self._conninfo, _options(_MIGRATION_SECONDS))
            except (psycopg.Error, SQLAlchemyError) as error:
                raise ArchiveUnavailableError(f"the archive cannot be used: {_first_line(error)}") from error
            self._is_ready = True

    @asynccontextmanager
    async def _connected(
        self, pool: AsyncConnectionPool[Any], operation: str
    ) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection, in a transaction.

        Raises:
            ArchiveRejectedError: The database cannot store or compare a value.
            ArchiveUnavailableError: The database cannot be reached, or took too long.
        """
        await self._prepared()
        try:
            with metrics.ARCHIVE_REQUESTS.labels(operation).time():
                async with asyncio.timeout(_SECONDS), pool.connection() as connection:
                    yield connection
        except psycopg.errors.QueryCanceled as error:
            raise ArchiveUnavailableError(
                f"the archive did not answer within {_STATEMENT_SECONDS} seconds; use a condition that selects fewer runs, such "
                "as a range of CloseTime"
            ) from error
        except (psycopg.DataError, psycopg.errors.ProgramLimitExceeded) as error:
            raise ArchiveRejectedError(_first_line(error)) from error
        except (psycopg.errors.UndefinedTable, psycopg.errors.CheckViolation) as error:
            self._is_ready = False  # someone has dropped the schema, or a partition
            self._months.clear()
            raise ArchiveUnavailableError(f"the archive lacks a table: {_first_line(error)}") from error
        except (psycopg.Error, PoolTimeout, TimeoutError) as error:
            raise ArchiveUnavailableError(f"the archive cannot be reached: {_first_line(error)}") from error

    @asynccontextmanager
    async def _reading(self, namespace: str, operation: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection for a query of a namespace."""
        turns = self._turns.setdefault(namespace, asyncio.Semaphore(self._each))
        try:
            async with asyncio.timeout(_SECONDS):
                await turns.acquire()
        except TimeoutError:
            raise ArchiveUnavailableError("the archive is busy with other queries of this namespace") from None
        try:
            async with self._connected(self._reads, operation) as connection:
                yield connection
        finally:
            turns.release()

    # Writes

    async def store(self, runs: Sequence[ArchivedRun]) -> None:
        """Store runs; see `Archive`."""
        rows = [_row(run) for run in runs]
        async with self._connected(self._writes, "store") as connection:
            await self._create_partitions(connection, schema.months(run.closed for run in runs))
            async with connection.transaction(), connection.cursor() as cursor:
                await cursor.execute(LOCK_SHARED, [[row["run_id"] for row in rows]])
                await cursor.executemany(_INSERT, rows)
                await self._store_types(cursor, runs)

    async def _store_types(self, cursor: psycopg.AsyncCursor[Any], runs: Sequence[ArchivedRun]) -> None:
        new: dict[tuple[str, str], str] = {}
        for run in runs:
            known = self._names.setdefault(run.record.namespace, set())
            for name, value in run.record.search_attributes.items():
                if name not in known and len(known) < _MAX_NAMES:
                    new.setdefault((run.record.namespace, storable(name)), attribute_type(value, name))
        rows = [(namespace, name, kind) for (namespace, name), kind in sorted(new.items())]
        if rows:
            await cursor.executemany(
                "INSERT INTO perdure.attribute_types VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", rows
            )
            for namespace, name, _ in rows:
                self._names[namespace].add(name)

    async def _create_partitions(self, connection: psycopg.AsyncConnection[Any], wanted: set[schema.Month]) -> None:
        if wanted - self._months:
            await schema.create_partitions(connection, wanted)
            self._months |= wanted

    async def delete(self, run: RunRef) -> None:
        """Delete a run; see `Archive`."""
        run_id = storable(run.run_id)
        async with self._connected(self._writes, "delete") as connection, connection.transaction():
            # An operator that has read the run before its deletion may be about to store it, or do so later.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [run_id])
            await connection.execute("INSERT INTO perdure.deleted VALUES (%s, now()) ON CONFLICT DO NOTHING", [run_id])
            await connection.execute(
                "DELETE FROM perdure.runs WHERE namespace = %s AND run_id = %s", [storable(run.namespace), run_id]
            )

    async def maintain(self, time: datetime) -> None:
        """Create the partition of the next month, and drop those whose runs have been kept long enough; see `Archive`."""
        async with self._connected(self._writes, "maintain") as connection:
            this = schema.months([time])
            await self._create_partitions(connection, this | set(map(schema.following, this)))
            await connection.execute("DELETE FROM perdure.deleted WHERE deleted_at < %s", [time - _REMEMBERED])
            if self._retention:
                dropped = await schema.drop_partitions(connection, time - self._retention)
                self._months -= set(dropped)
                for month in dropped:
                    self._log.info("Dropped a month of the archive", partition=schema.partition_of(month))

    async def versions(self, runs: Collection[RunRef]) -> dict[str, str]:
        """Return the stored versions of runs; see `Archive`."""
        async with self._connected(self._writes, "versions") as connection:
            found = await connection.execute(
                "SELECT run_id, version FROM perdure.runs WHERE run_id = ANY(%s)",
                [[storable(run.run_id) for run in runs]],
            )
            return dict(await found.fetchall())

    # Queries

    async def page(
        self, namespace: str, kind: RunKind, condition: Condition, *, after: Position | None, limit: int
    ) -> list[ListedRun]:
        """Return a page of a list; see `Archive`."""
        where, values = _where(namespace, kind, condition)
        if after is not None:
            where, values = sql.SQL("{} AND (start_time, run_id) < (%s, %s)").format(where), [*values, *after]
        statement = sql.SQL(
            "SELECT {} FROM perdure.runs WHERE {} ORDER BY start_time DESC, run_id DESC LIMIT %s"
        ).format(_OF_RECORDS, where)
        async with self._reading(namespace, "list") as connection, connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(statement, [*values, limit])
            return [ListedRun(_record(row), row["name"], row["failure"]) for row in await cursor.fetchall()]

    async def count(
        self, namespace: str, kind: RunKind, condition: Condition, *, without: Collection[str]
    ) -> dict[str, int]:
        """Count runs by status; see `Archive`."""
        where, values = _where(namespace, kind, condition)
        if without:
            rest = sql.SQL("{} AND NOT EXISTS (SELECT FROM unnest(%s::text[]) AS other WHERE other = run_id)")
            where, values = rest.format(where), [*values, list(without)]
        statement = sql.SQL(
            "SELECT status, count(*) FROM (SELECT status FROM perdure.runs WHERE {} LIMIT %s) AS found GROUP BY status"
        ).format(where)
        async with self._reading(namespace, "count") as connection:
            found = await connection.execute(statement, [*values, _EXACT])
            counted = dict(await found.fetchall())
            if sum(counted.values()) < _EXACT:
                return counted
            return {
                status: max(number, await _estimate(connection, namespace, kind, condition, status))
                for status, number in counted.items()
            }

    async def find(self, namespace: str, kind: RunKind, workflow_id: str, run_id: str) -> KubeObject | None:
        """Return a run; see `Archive`."""
        wanted = {"WorkflowId": workflow_id, "RunId": run_id}
        named = [Among(name, [value], optional=False, negated=False) for name, value in wanted.items() if value]
        return await self._newest(namespace, *_where(namespace, kind, And(tuple(named))))

    async def named(self, namespace: str, name: str) -> KubeObject | None:
        """Return the newest run of a name; see `Archive`."""
        return await self._newest(
            namespace, sql.SQL("namespace = %s AND name = %s"), [storable(namespace), storable(name)]
        )

    async def _newest(self, namespace: str, where: sql.Composable, values: list[Any]) -> KubeObject | None:
        statement = sql.SQL(
            "SELECT content FROM perdure.runs WHERE {} ORDER BY start_time DESC, run_id DESC LIMIT 1"
        ).format(where)
        async with self._reading(namespace, "get") as connection:
            found = await connection.execute(statement, values)
            row = await found.fetchone()
        return await asyncio.to_thread(restored, row[0]) if row is not None else None

    async def attribute_types(self, namespace: str) -> dict[str, str]:
        """Return the types of search attributes; see `Archive`."""
        async with self._reading(namespace, "types") as connection:
            found = await connection.execute(
                "SELECT name, type FROM perdure.attribute_types WHERE namespace = %s", [storable(namespace)]
            )
            return dict(await found.fetchall())


def _options(statement_seconds: int) -> dict[str, Any]:
    """The options of a connection, which those in the connection string do not override."""
    return {
        "connect_timeout": _CONNECT_SECONDS,
        "keepalives_idle": _CONNECT_SECONDS,
        "tcp_user_timeout": int(_SECONDS) * 1_000,
        "application_name": "perdure-operator",
        "options": f"-c statement_timeout={statement_seconds}s -c lock_timeout=5s -c timezone=UTC",
        "prepare_threshold": None,
    }


def _where(namespace: str, kind: RunKind, condition: Condition) -> tuple[sql.Composable, list[Any]]:
    """The condition of a query: it always selects the namespace."""
    part, values = sql_of(condition, kind)
    return (
        sql.SQL("namespace = %s AND kind = %s AND {}").format(part),
        [storable(namespace), kind.value, *values],
    )


async def _estimate(
    connection: psycopg.AsyncConnection[Any], namespace: str, kind: RunKind, condition: Condition, status: str
) -> int:
    """Estimate how many runs of a status meet a condition, from PostgreSQL's statistics."""
    of_status = Among("ExecutionStatus", [status], optional=False, negated=False)
    where, values = _where(namespace, kind, And((condition, of_status)))
    found = await connection.execute(
        sql.SQL("EXPLAIN (FORMAT JSON) SELECT FROM perdure.runs WHERE {}").format(where), values
    )
    row = await found.fetchone()
    assert row is not None
    return int(row[0][0]["Plan"]["Plan Rows"])


def _first_line(error: BaseException) -> str:
    """The message of an error. PostgreSQL's have further lines with the position in a statement."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
