"""Access to the API server: always as the user, with the user's own permissions."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from starlette.exceptions import HTTPException

from perdure import __version__
from perdure.client.cluster import Cluster
from perdure.client.requests import Requests
from perdure.kube.light import LightClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request

    from perdure.kube.access import Access


class ClusterAccess(Protocol):
    """Gives access to the API server."""

    def open(self, request: Request, namespace: str) -> AbstractAsyncContextManager[Cluster]:
        """Connect to a namespace as the user who sends the request."""


class KubeconfigAccess:
    """Access for the single user of a laptop, with the kubeconfig."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @asynccontextmanager
    async def open(self, _: Request, namespace: str) -> AsyncIterator[Cluster]:
        """Connect to a namespace with the kubeconfig."""
        yield self._cluster.within(namespace)


class TokenAccess:
    """Access for the users of a server in the cluster: the token of each request is passed to the API server."""

    def __init__(self, access: Access) -> None:
        """`access` has the address of the API server, without credentials."""
        self._access = access

    @asynccontextmanager
    async def open(self, request: Request, namespace: str) -> AsyncIterator[Cluster]:
        """Connect to a namespace with the token of the request.

        Raises:
            HTTPException: The request has no token.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise HTTPException(
                401, "Each request needs a token. Log in through the proxy of this page, or use `perdure console`."
            )
        access = replace(self._access, token=token.strip())
        async with LightClient.open(access, user_agent=f"perdure-console/{__version__}") as client:
            yield Cluster(Requests(client, namespace, "perdure"))
