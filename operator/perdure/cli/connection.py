"""The connection of a verb to the cluster: the kubeconfig, or the pod in which it runs, with the options of kubectl."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from perdure import __version__
from perdure.cli.flags import overrides
from perdure.client.cluster import Cluster
from perdure.client.connection import open_client
from perdure.client.requests import Object, Requests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def connect(
    *, context: str | None, namespace: str | None, program: str, connections: int = 4
) -> AsyncIterator[Cluster]:
    """Connect to the cluster of the kubeconfig, or of the pod in which this runs.

    Args:
        context: A context of the kubeconfig; None for its current one.
        namespace: The requested namespace; None for the namespace of the kubeconfig.
        program: The name of the command, for messages.
        connections: Maximum number of concurrent requests.

    Yields:
        The cluster; no request was sent yet.

    Raises:
        CliError: No cluster is configured, or what is configured is not valid.
    """
    client = open_client(
        overrides(context, namespace), user_agent=f"perdure-cli/{__version__}", connections=connections
    )
    try:
        yield Cluster(Requests(client, client.access.namespace, program))
    finally:
        client.close()


async def list_kind(
    plural: str, *, context: str | None, namespace: str | None, program: str, everywhere: bool
) -> tuple[list[Object], str]:
    """List the objects of one kind over a connection of their own.

    Args:
        plural: The resource name of the kind.
        context: A context of the kubeconfig; None for its current one.
        namespace: The requested namespace; None for the namespace of the kubeconfig.
        program: The name of the command, for messages.
        everywhere: Whether to list the objects of all namespaces.

    Returns:
        The objects, and the namespace of the connection.

    Raises:
        CliError: No cluster is configured, or the objects cannot be listed.
    """
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        return await cluster.list(plural, everywhere=everywhere), cluster.namespace
