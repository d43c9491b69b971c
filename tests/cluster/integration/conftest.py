"""Fixtures of integration tests."""

import pytest

from support.cluster.namespace import Cluster


@pytest.fixture(scope="session")
def kubectl(cluster: Cluster) -> Cluster:
    """The cluster of the tests, for those that bring namespaces of their own."""
    return cluster
