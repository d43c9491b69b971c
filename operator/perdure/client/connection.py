"""The connection to the cluster of the kubeconfig, or of the pod in which this runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from perdure.client.errors import ClientError
from perdure.client.requests import GET_ONE
from perdure.kube.access import NoAccessError, Overrides, load_kubeconfig, service_account, with_overrides
from perdure.kube.light import LightClient

if TYPE_CHECKING:
    from perdure.kube.access import Access


LOG_STREAMS: Final = 100
"""Maximum number of logs that are read at the same time, each over a connection of its own."""


def open_client(options: Overrides, *, user_agent: str, connections: int) -> LightClient:
    """Return a client of the API server, which connects at its first request.

    Args:
        options: What overrides the kubeconfig.
        user_agent: The name of the program.
        connections: Maximum number of concurrent requests.

    Raises:
        ClientError: No cluster is configured, its certificates cannot be read, or no request can be made of what is configured.
    """
    access = access_of(options)
    _check(access)
    try:
        return LightClient(access, user_agent=user_agent, connections=connections)
    except OSError as error:
        raise ClientError(f"the certificates of the kubeconfig cannot be read: {error}; {GET_ONE}") from error


def access_of(options: Overrides) -> Access:
    """Find the API server and the credentials: those of the kubeconfig, or of the pod in which this runs.

    Args:
        options: What overrides the kubeconfig. A named context, cluster, or user refers to the kubeconfig, even inside a pod.

    Raises:
        ClientError: No cluster is configured, or the kubeconfig cannot be read.
    """
    inside = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    named = options.context or options.kubeconfig or options.cluster or options.user or options.server
    try:
        if inside and not named:
            port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
            found = service_account(inside, port)
            if found is not None:
                return with_overrides(found, options)
        return load_kubeconfig(options)
    except NoAccessError as error:
        raise ClientError(str(error)) from error
    except (OSError, ValueError) as error:
        raise ClientError(f"the kubeconfig cannot be read: {' '.join(str(error).split())}; {GET_ONE}") from error


def _check(access: Access) -> None:
    """Check what each request contains: the address, the token, and the user to impersonate.

    Raises:
        ClientError: A part is not valid.
    """
    try:
        address = urlsplit(access.server)
        valid = access.server.isascii() and address.scheme in {"", "http", "https"} and address.port != 0
    except ValueError:  # of the port, or of an IPv6 address
        valid = False
    if not valid:
        raise ClientError(
            f"`{access.server}` is not the address of an API server, such as https://10.0.0.1:6443; {GET_ONE}"
        )
    headers = [*access.headers, ("Authorization", access.token or "")]
    if unfit := [name for name, value in headers if not value.isprintable()]:
        raise ClientError(
            f"the header {unfit[0]} of requests cannot contain control characters; check the token and the user"
        )
