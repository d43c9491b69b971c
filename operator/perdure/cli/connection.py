"""The connection of a verb to the cluster: the kubeconfig, or the pod in which it runs, with the options of kubectl."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from perdure import __version__
from perdure.cli.flags import overrides
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError
from perdure.client.requests import GET_ONE, Object, Requests
from perdure.kube.access import NoAccessError, Overrides, load_kubeconfig, service_account, with_overrides
from perdure.kube.light import LightClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.kube.access import Access

LOG_STREAMS = 100
"""Maximum number of logs that are read at the same time, each over a connection of its own."""


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
        CliError: No cluster is configured.
    """
    access = _access(overrides(context, namespace))
    try:
        opened = LightClient.open(access, user_agent=f"perdure-cli/{__version__}", connections=connections)
        client = await opened.__aenter__()
    except OSError as error:
        raise CliError(f"the certificates of the kubeconfig cannot be read: {error}; {GET_ONE}") from error
    try:
        yield Cluster(Requests(client, access.namespace, program))
    finally:
        await opened.__aexit__(None, None, None)


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


def _access(options: Overrides) -> Access:
    inside = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    # A named cluster refers to the kubeconfig, even inside a pod.
    named = options.context or options.kubeconfig or options.cluster or options.user or options.server
    try:
        if inside and not named:
            port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
            found = service_account(inside, port)
            if found is not None:
                return with_overrides(found, options)
        return load_kubeconfig(options)
    except NoAccessError as error:
        raise CliError(str(error)) from error
    except (OSError, ValueError) as error:
        raise CliError(f"the kubeconfig cannot be read: {' '.join(str(error).split())}; {GET_ONE}") from error
