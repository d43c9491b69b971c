"""The schema of the archive: its migrations, and the partitions of its table, one for each month."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

SCHEMA: Final = "perdure"
_LOCK: Final = 0x70657264
"""Key of the advisory lock under which one operator at a time changes the schema."""
_NAME: Final = "runs_"
_MONTHS: Final = 12

Month = tuple[int, int]
"""A year and a month."""


def migrate(conninfo: str, options: dict[str, Any]) -> None:
    """Bring the schema up to date. A schema of a newer version stays as it is. Blocks: call it in a thread.

    Raises:
        psycopg.Error, sqlalchemy.exc.SQLAlchemyError: The server cannot be reached, or refuses a statement.
    """
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(conninfo, **options), poolclass=NullPool
    )
    config = Config()
    config.set_main_option("script_location", "perdure.postgres:migrations")
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
        current = MigrationContext.configure(connection, opts={"version_table_schema": SCHEMA}).get_current_revision()
        known = {each.revision for each in ScriptDirectory.from_config(config).walk_revisions()}
        if current is not None and current not in known:
            structlog.get_logger("perdure.archive").warning(
                "A newer version of Perdure has changed the schema of the archive", revision=current
            )
            return
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def months(times: Iterable[datetime]) -> set[Month]:
    """The months of times, in UTC."""
    return {(each.year, each.month) for each in (time.astimezone(UTC) for time in times)}


def following(month: Month) -> Month:
    """The month after another one."""
    year, number = month
    return (year + 1, 1) if number == _MONTHS else (year, number + 1)


def begin_of(month: Month) -> datetime:
    """When a month begins."""
    return datetime(*month, 1, tzinfo=UTC)


def partition_of(month: Month) -> str:
    """The name of the partition of a month."""
    year, number = month
    return f"{_NAME}{year:04}_{number:02}"


def month_of(partition: str) -> Month | None:
    """The month of a partition; None for a table with another name."""
    year, _, number = partition.removeprefix(_NAME).partition("_")
    if not partition.startswith(_NAME) or not (year.isdecimal() and number.isdecimal()):
        return None
    return int(year), int(number)


async def partitions(connection: psycopg.AsyncConnection[Any]) -> set[Month]:
    """The months that have a partition."""
    found = await connection.execute(
        "SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid"
        " WHERE inhparent = 'perdure.runs'::regclass"
    )
    return {month for (name,) in await found.fetchall() if (month := month_of(name)) is not None}


async def create_partitions(connection: psycopg.AsyncConnection[Any], wanted: Iterable[Month]) -> None:
    """Create the partitions of months, unless they exist. Only one operator at a time does it."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        for month in sorted(set(wanted) - await partitions(connection)):
            statement = sql.SQL("CREATE TABLE {} PARTITION OF perdure.runs FOR VALUES FROM ({}) TO ({})").format(
                sql.Identifier(SCHEMA, partition_of(month)),
                sql.Literal(begin_of(month)),
                sql.Literal(begin_of(following(month))),
            )
            await connection.execute(statement)


async def drop_partitions(connection: psycopg.AsyncConnection[Any], before: datetime) -> list[Month]:
    """Drop the partitions of months that had ended before a time, and return them."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        over = sorted(month for month in await partitions(connection) if begin_of(following(month)) <= before)
        for month in over:
            await connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(SCHEMA, partition_of(month))))
    return over
