"""What all pages of the console share: access to the API server, templates, and explanations of errors.

Access is always that of the user: with the kubeconfig on a laptop, and with the token of each request in the cluster.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from perdure import __version__
from perdure.client.cluster import Cluster
from perdure.client.errors import ForbiddenError, NoNamespaceError, NotFoundError, UnreachableError
from perdure.client.requests import Requests
from perdure.kube import clock
from perdure.kube.errors import ApiError
from perdure.kube.light import LightClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from jinja2 import Environment
    from starlette.requests import Request
    from starlette.responses import Response

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


NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""The names of objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of the console."""

    namespace: str
    """The default namespace."""
    system_namespace: str
    """The namespace of the operators."""
    web_ui: str
    """Address of Temporal's Web UI; empty for no links to it."""
    read_only: bool = False
    """Whether users can only look."""
    answer_seconds: float = 10.0
    """Maximum time to wait for the result of a request."""


class Site:
    """Connects to the cluster, and fills in templates."""

    def __init__(self, access: ClusterAccess, settings: ConsoleSettings, templates: Environment) -> None:
        self.settings = settings
        self._access = access
        self._templates = templates

    def open(self, request: Request) -> AbstractAsyncContextManager[Cluster]:
        """Connect to the namespace in the path as the user who sends the request.

        Raises:
            HTTPException: The path contains an invalid name.
        """
        for part in ("namespace", "name"):
            if not NAME.fullmatch(request.path_params.get(part, "a")):
                raise HTTPException(404, "No object can have this name.")
        return self._access.open(request, request.path_params["namespace"])

    def open_system(self, request: Request) -> AbstractAsyncContextManager[Cluster]:
        """Connect to the namespace of the operators as the user who sends the request."""
        return self._access.open(request, self.settings.system_namespace)

    def show(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        """Fill in a template.

        Args:
            request: The request.
            template: Name of the template.
            status: The HTTP status of the response.
            values: The values for the template.
        """
        namespace = request.path_params.get("namespace", self.settings.namespace)
        known = {"namespace": namespace, "root": request.scope.get("root_path", ""), "settings": self.settings}
        now = {"now": clock.now(), "path": request.url.path}
        page = self._templates.get_template(template).render(**{**known, **now, **values})
        return HTMLResponse(page, status_code=status)


_TITLES = {401: "Not logged in", 403: "No permission", 404: "Not found"}


def explain(error: Exception, role: str = "view") -> tuple[int, str, str]:
    """Return the HTTP status of an error, a title, and a message for the user.

    Args:
        error: The error.
        role: The ClusterRole that permits the request.
    """
    if isinstance(error, HTTPException):
        return error.status_code, _TITLES.get(error.status_code, "Invalid request"), error.detail
    cause = error.__cause__
    message = cause.message if isinstance(cause, ApiError) else str(error)
    match error:
        case ForbiddenError():
            return 403, "No permission", f"{message}. Ask your administrator for the role `{role}` in this namespace."
        case NotFoundError() | NoNamespaceError():
            return 404, "Not found", str(error)
        case UnreachableError():
            return 503, "The API server does not respond", str(error)
    if isinstance(cause, ApiError) and cause.status == 401:  # noqa: PLR2004
        return 401, "Not logged in", str(error)
    return 502, "The request failed", str(error)
