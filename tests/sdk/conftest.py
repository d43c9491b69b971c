"""Fixtures of tests with Temporal's SDK: an operator, a client of it, and a worker."""

import uuid
from collections.abc import Iterator

import pytest

from support.cluster.namespace import Cluster
from support.sdk.client import Temporal
from support.sdk.memory import InMemory, serving_in_memory
from support.sdk.server import Operator, serving


@pytest.fixture(scope="module")
def in_memory() -> Iterator[InMemory]:
    """The operator over an API server in memory, serving the Temporal API on a loopback port."""
    with serving_in_memory() as running:
        yield running


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The operator as a process, on a real cluster, serving the Temporal API on a loopback port."""
    with serving(cluster, tmp_path_factory.mktemp("operator") / "log") as running:
        yield running


@pytest.fixture
async def temporal(request: pytest.FixtureRequest) -> Temporal:
    """Use the operator with an API server in memory, or that of a real cluster if the test is marked ``cluster``."""
    on_cluster = request.node.get_closest_marker("cluster") is not None
    operator = request.getfixturevalue("operator" if on_cluster else "in_memory")
    return Temporal(await operator.connect(), operator, f"queue-{uuid.uuid4().hex[:8]}")
