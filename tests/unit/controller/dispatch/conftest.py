"""Fixtures of tests about what a manager keeps in memory."""

import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pytest

from perdure.controller.manager import Manager
from support.managers import client_without_server, manager_over


@pytest.fixture
async def manager() -> AsyncIterator[Manager]:
    """A manager that knows no objects."""
    async with client_without_server() as client:
        yield manager_over(client)


@pytest.fixture
def memory() -> Iterator[None]:
    """Trace what is allocated."""
    tracemalloc.start()
    yield
    tracemalloc.stop()
