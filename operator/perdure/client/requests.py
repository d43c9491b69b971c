"""Requests to the API server; every error becomes one sentence with the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.api.names import is_name
from perdure.client.errors import (
    AlreadyExistsError,
    ClientError,
    ForbiddenError,
    NoNamespaceError,
    NotFoundError,
    UnreachableError,
)
from perdure.kube import errors, paths
from perdure.lazy import lazily

with lazily():
    from perdure.kube import responses
    from perdure.runtime import status_encoding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from perdure.kube.light import LightClient
    from perdure.kube.responses import TableRow

Object = dict[str, Any]

_LIST_VERBS = {
    "WorkflowRun": "list",
    "Schedule": "schedule list",
    "DeadLetter": "deadletters list",
    "Operation": "operations",
}
"""The verbs that list objects of a kind."""

GET_ONE = "set KUBECONFIG or --context, or create a cluster with `make cluster`"
"""Advice for users without a cluster."""


class Requests:
    """Sends requests, and explains those that fail."""

    def __init__(self, client: LightClient, namespace: str, program: str) -> None:
        """`program`: the name of the command, for messages.

        Raises:
            ClientError: No namespace can have this name.
        """
        if not is_name(namespace):
            raise ClientError(f"`{namespace}` is not the name of a namespace")
        self.client = client
        self.namespace = namespace
        self.program = program

    async def perform(self, request: Awaitable[Any], name: str | None = None, kind: str = "WorkflowRun") -> Any:
        """Perform a request to the API server.

        Args:
            request: The request of the client, to await.
            name: The name of the requested object; None if the request is not for a particular object.
            kind: The kind of that object.

        Raises:
            ClientError: The request failed.
        """
        try:
            return await request
        except errors.NotFoundError as error:
            if error.message.startswith("namespaces "):
                raise ClientError(self.no_namespace()) from None
            if name is None or name not in error.message:
                raise ClientError(
                    "the cluster has no WorkflowRuns: Perdure is not installed in it; run `make install`, or "
                    "choose another cluster with --context"
                ) from None
            raise self.not_found(kind, name) from None
        except errors.AlreadyExistsError as error:
            raise AlreadyExistsError(f"the API server refused the request: {error.message}") from error
        except errors.ApiError as error:
            raise self.refused(error.status, error.message) from error
        except errors.NoResponseError as error:
            raise self.unreachable(error) from error

    def path(self, kind: str, plural: str, name: str) -> str:
        """Return the path of an object.

        Raises:
            NotFoundError: No object can have this name.
        """
        try:
            return str(paths.path(paths.PERDURE, self.namespace, plural, name))
        except ValueError:
            raise self.not_found(kind, name) from None

    async def read(self, kind: str, plural: str, name: str) -> Object:
        """Read an object.

        Raises:
            ClientError: The object does not exist, or cannot be read.
        """
        found: Object = await self.perform(self.client.get(self.path(kind, plural, name)), name, kind)
        return found

    async def list_objects(self, plural: str, namespace: str | None, **selectors: str) -> list[Object]:
        """List objects of a kind, of one namespace or of all.

        Raises:
            ClientError: The objects cannot be read.
        """
        url = paths.path(paths.PERDURE, namespace, plural)
        found: list[Object] = await self.perform(self.client.list_all(url, **selectors))
        return found

    async def list_rows(
        self, plural: str, namespace: str | None, *, metadata: bool, **selectors: str
    ) -> list[TableRow]:
        """Read the printed columns and the metadata of the objects of a kind, of one namespace or of all.

        Raises:
            ClientError: The objects cannot be read.
        """
        url = paths.path(paths.PERDURE, namespace, plural)

        async def read() -> list[TableRow]:
            return [row async for row in self.client.rows(url, metadata=metadata, **selectors)]

        found: list[TableRow] = await self.perform(read())
        return found

    async def watch(self, plural: str, namespace: str | None, **selectors: str) -> AsyncIterator[tuple[str, Object]]:
        """Watch objects of a kind, first those that exist, until the API server ends the watch.

        Yields:
            `ADDED`, `MODIFIED`, or `DELETED`, and the object.

        Raises:
            UnreachableError: The connection broke.
            ClientError: The user may not watch them.
        """
        url = paths.path(paths.PERDURE, namespace, plural)
        query = {"watch": "true", "allowWatchBookmarks": "true", **selectors}
        try:
            async for line in self.client.lines(url, **query):
                try:
                    event = responses.decode(line)
                except responses.UndecodableError:
                    continue
                if event["type"] == "ERROR":
                    return
                if event["type"] != "BOOKMARK":
                    yield event["type"], status_encoding.decode(event["object"])
        except errors.ApiError as error:
            raise self.refused(error.status, error.message) from error
        except errors.NoResponseError as error:
            raise self.unreachable(error) from error

    async def check_namespace(self) -> None:
        """Check that the namespace exists, if the user has the permission and the API server responds.

        Raises:
            NoNamespaceError: The namespace does not exist.
        """
        try:
            await self.client.get(paths.path(paths.CORE, None, "namespaces", self.namespace))
        except errors.NotFoundError:
            raise NoNamespaceError(self.no_namespace()) from None
        except errors.RequestError:
            return

    def no_namespace(self) -> str:
        """Build the error for a namespace that does not exist."""
        return f"there is no namespace `{self.namespace}`; choose another one with -n"

    def not_found(self, kind: str, name: str) -> NotFoundError:
        """Build the error for an object that does not exist, with the command that lists existing ones."""
        verb = _LIST_VERBS.get(kind, "")
        command = f"{self.program} {verb}" if verb else f"kubectl get {kind.lower()}"
        return NotFoundError(
            f"there is no {kind} `{name}` in namespace `{self.namespace}`; list those that exist with "
            f"`{command} -A`, and choose the namespace with -n"
        )

    def refused(self, status: int, message: str) -> ClientError:
        """Build the error for a request that the API server rejected.

        Args:
            status: The HTTP status.
            message: The message of the API server.
        """
        if status == 401:  # noqa: PLR2004
            return ClientError(
                f"the API server does not accept your credentials ({message}); log in again, or use --context"
            )
        if status == 403:  # noqa: PLR2004
            return ForbiddenError(
                f"{message}; ask your administrator for the role `view` (to read), `perdure-on-call` (to create Operations) "
                f"or `edit` in namespace `{self.namespace}`, or choose "
                "another namespace with -n"
            )
        if status == 429 or status >= 500:  # noqa: PLR2004
            return UnreachableError(f"the API server is not available ({status}: {message}); try again later")
        return ClientError(f"the API server refused the request: {message}")

    def unreachable(self, error: Exception) -> UnreachableError:
        """Build the error for an API server that does not respond, with the reason."""
        server = self.client.access.server
        return UnreachableError(
            f"the API server at {server} does not respond ({error}); start that cluster, or {GET_ONE}"
        )
