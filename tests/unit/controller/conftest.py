"""Fixtures of controller tests."""

from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from unit.controller.shop import Store, shop


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Silence logs: work often fails on purpose."""
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """An API server with the namespace `shop`."""
    async with shop() as found:
        yield found
