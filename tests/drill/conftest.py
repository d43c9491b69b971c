"""Fixtures of drills."""

from collections.abc import Iterator

import pytest

from drill.stand import Drill, stand
from support.cluster.namespace import Cluster, temporary_namespace


@pytest.fixture(scope="session")
def drill() -> Iterator[Drill]:
    with stand("perdure-drill") as found:
        yield found


@pytest.fixture
def namespace(drill: Drill) -> Iterator[Cluster]:
    with temporary_namespace(drill.system) as made:
        yield made
