"""Whose requests the API server sees: always those of the user, with the user's own permissions."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request

    from perdure.cli.cluster.cluster import Cluster


class ApiServerDoor(Protocol):
    """Leads to the API server."""

    def open(self, request: Request, namespace: str) -> AbstractAsyncContextManager[Cluster]:
        """Reach a namespace as the user who sends the request."""


class OwnDoor:
    """The one user of a laptop: the kubeconfig says who that is."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @asynccontextmanager
    async def open(self, _: Request, namespace: str) -> AsyncIterator[Cluster]:
        """Reach a namespace with the kubeconfig."""
        yield self._cluster.within(namespace)
