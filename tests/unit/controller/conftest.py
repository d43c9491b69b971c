"""Fixtures of controller tests."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Silence logs: work often fails on purpose."""
    with structlog.testing.capture_logs():
        yield
