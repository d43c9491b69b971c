from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from perdure.client.cluster import Cluster
from perdure.client.requests import Requests
from perdure.kube.access import Overrides, load_kubeconfig
from perdure.kube.light import LightClient
from support.apiserver import ApiServer, serving


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with serving(tmp_path, monkeypatch) as api:
        yield api


@pytest.fixture
async def cluster(server: ApiServer) -> AsyncIterator[Cluster]:
    """The cluster as a user with the kubeconfig of the server reaches it."""
    del server
    access = load_kubeconfig(Overrides())
    async with LightClient.open(access, user_agent="test", connections=4) as client:
        yield Cluster(Requests(client, access.namespace, "perdure"))
