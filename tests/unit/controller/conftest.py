"""Fixtures of controller tests."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Work fails on purpose, often."""
    with structlog.testing.capture_logs():
        yield
