"""Fixtures of tests of single parts in virtual time."""

from collections.abc import Iterator

import pytest

from simulated.place import Place


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place()
    yield found
    found.loop.close()
