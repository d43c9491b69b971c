from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from perdure.postgres.archive import Connection, PostgresArchive
from support.postgres import PostgresServer, postgres


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


@pytest.fixture
async def archive(server: PostgresServer) -> AsyncIterator[PostgresArchive]:
    """An empty archive."""
    server.statement("DROP SCHEMA IF EXISTS perdure CASCADE")
    async with PostgresArchive(Connection(conninfo=server.conninfo), timedelta(0)).run() as opened:
        yield opened
