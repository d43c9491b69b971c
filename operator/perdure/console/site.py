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
from perdure.api.json_values import Json, mapping, text
from perdure.client.cluster import Cluster
from perdure.client.errors import ClientError, ForbiddenError, NoNamespaceError, NotFoundError, UnreachableError
from perdure.client.frontend import FrontendApi, NoArchiveError
from perdure.client.requests import Requests
from perdure.kube import clock
from perdure.kube.access import Access
from perdure.kube.errors import ApiError
from perdure.kube.light import LightClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from jinja2 import Environment
    from starlette.requests import Request
    from starlette.responses import Response


class ClusterAccess(Protocol):
    """Gives access to the API server."""

    def open(self, request: Request, namespace: str) -> AbstractAsyncContextManager[Cluster]:
        """Connect to a namespace as the user who sends the request."""

    def archive(self, request: Request, cluster: Cluster) -> AbstractAsyncContextManager[FrontendApi]:
        """Connect to the frontend, which reads archived runs, as the user who sends the request.

        Raises:
            NoArchiveError: The installation has no archive, or the console does not know where it is.
        """


NO_ARCHIVE: Final = "The console knows no archive."


class KubeconfigAccess:
    """Access for the single user of a laptop, with the kubeconfig."""

    def __init__(
        self, cluster: Cluster, frontend: Callable[[Cluster], AbstractAsyncContextManager[FrontendApi]] | None = None
    ) -> None:
        """`frontend` connects to the frontend, for archived runs; None: there are none."""
        self._cluster = cluster
        self._frontend = frontend

    @asynccontextmanager
    async def open(self, _: Request, namespace: str) -> AsyncIterator[Cluster]:
        """Connect to a namespace with the kubeconfig."""
        yield self._cluster.within(namespace)

    @asynccontextmanager
    async def archive(self, _: Request, cluster: Cluster) -> AsyncIterator[FrontendApi]:
        """Connect to the frontend.

        Raises:
            NoArchiveError: The console has no way to the frontend.
        """
        if self._frontend is None:
            raise NoArchiveError(NO_ARCHIVE)
        async with self._frontend(cluster) as api:
            yield api


class TokenAccess:
    """Access for the users of a server in the cluster: the token of each request is passed to the API server."""

    def __init__(self, access: Access, frontend: str = "") -> None:
        """Create it.

        Args:
            access: Has the address of the API server, without credentials.
            frontend: The URL of the HTTP API of the frontend, for archived runs; empty: there are none.
        """
        self._access = access
        self._frontend = frontend

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

    @asynccontextmanager
    async def archive(self, request: Request, cluster: Cluster) -> AsyncIterator[FrontendApi]:
        """Connect to the frontend with the token of the request.

        Raises:
            NoArchiveError: The console does not know the address of the frontend.
        """
        if not self._frontend:
            raise NoArchiveError(NO_ARCHIVE)
        found = await cluster.config_maps.read(_AUTHORITY) if self._frontend.startswith("https:") else None
        authority = None if found is None else text(mapping(found.get("data")).get("ca.crt")) or None
        token = request.headers.get("Authorization", "").partition(" ")[2].strip()
        access = Access(server=self._frontend, token=token, ca_data=authority, timeout=_ARCHIVE_SECONDS)
        async with LightClient.open(access, user_agent=f"perdure-console/{__version__}", connections=1) as client:
            yield FrontendApi(client, cluster.namespace, _ARCHIVE_SECONDS)


_AUTHORITY: Final = "perdure-temporal-ca"
"""The ConfigMap in which the operator publishes the certificate of the frontend's authority, in each namespace."""
_ARCHIVE_SECONDS: Final = 30.0
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
        self.open_archive = access.archive
        """Connect to the frontend, which reads archived runs, as the user who sends the request; see there."""
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

    async def read_run(self, request: Request, cluster: Cluster) -> tuple[Json, bool]:
        """Read the run in the path, from the cluster, otherwise from the archive.

        Returns:
            The run, and whether it is from the archive.

        Raises:
            ClientError: The run is in neither of them, or cannot be read.
        """
        name = request.path_params["name"]
        try:
            return await cluster.runs.get(name), False
        except NotFoundError as error:
            missing = error
        try:
            async with self.open_archive(request, cluster) as api:
                return await api.archived_run(name, None), True
        except (NotFoundError, NoArchiveError):
            raise missing from None
        except ClientError as error:
            raise NotFoundError(f"{missing}; it may be archived, but the archive cannot be read: {error}") from error

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
        case NoArchiveError():
            return 404, "No archive", str(error)
        case ForbiddenError():
            return 403, "No permission", f"{message}. Ask your administrator for the role `{role}` in this namespace."
        case NotFoundError() | NoNamespaceError():
            return 404, "Not found", str(error)
        case UnreachableError():
            return 503, "The API server does not respond", str(error)
    if isinstance(cause, ApiError) and cause.status == 401:  # noqa: PLR2004
        return 401, "Not logged in", str(error)
    return 502, "The request failed", str(error)
