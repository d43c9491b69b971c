"""Requests to the API server; whatever goes wrong becomes one sentence that says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.cli.cluster.errors import ExistsError, ForbiddenError, GoneError, NoNamespaceError, UnreachableError
from perdure.cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import ModuleType

    from perdure.kube.client import Client

Object = dict[str, Any]

_LIST_VERBS = {
    "WorkflowRun": "list",
    "Schedule": "schedule list",
    "DeadLetter": "deadletters list",
    "Operation": "operations",
}
"""The verbs that list objects of a kind."""

GET_ONE = "set KUBECONFIG or --context, or create a cluster with `make cluster`"
"""How to get a cluster."""


class Requests:
    """Sends requests, and explains those that fail."""

    def __init__(self, client: Client, namespace: str, program: str, api: ModuleType) -> None:
        """`program`: how the command was called. `api`: the module `perdure.kube.client`, which is slow to import."""
        self.client = client
        self.namespace = namespace
        self.program = program
        self.api = api

    async def ask(self, answer: Awaitable[Any], name: str | None = None, kind: str = "WorkflowRun") -> Any:
        """Wait for the answer to a request.

        Args:
            answer: What the client is to return.
            name: The object that the request is about; None if it is about none in particular.
            kind: Kind of that object.

        Raises:
            CliError: the request failed.
        """
        try:
            return await answer
        except self.api.NotFoundError as error:
            if error.message.startswith("namespaces "):
                raise CliError(self.no_namespace()) from None
            if name is None or name not in error.message:
                raise CliError(
                    "the cluster has no WorkflowRuns: Perdure is not installed in it; run `make install`, or "
                    "choose another cluster with --context"
                ) from None
            raise self.gone(kind, name) from None
        except self.api.AlreadyExistsError as error:
            raise ExistsError(f"the API server refused the request: {error.message}") from error
        except self.api.ApiError as error:
            raise self.refused(error.status, error.message) from error
        except self.api.TRANSIENT as error:
            raise self.unreachable(error) from error

    def path(self, kind: str, plural: str, name: str) -> str:
        """Return the path of an object of ours.

        Raises:
            GoneError: no object can have that name.
        """
        try:
            return str(self.api.path(self.api.PERDURE, self.namespace, plural, name))
        except ValueError:
            raise self.gone(kind, name) from None

    async def read(self, kind: str, plural: str, name: str) -> Object:
        """Read an object of ours.

        Raises:
            CliError: it does not exist, or cannot be read.
        """
        found: Object = await self.ask(self.client.get(self.path(kind, plural, name)), name, kind)
        return found

    async def list_ours(self, plural: str, namespace: str | None, **selectors: str) -> list[Object]:
        """List objects of ours, of one namespace or of all.

        Raises:
            CliError: they cannot be read.
        """
        url = self.api.path(self.api.PERDURE, namespace, plural)
        found: list[Object] = await self.ask(self.client.list_all(url, **selectors))
        return found

    async def check_namespace(self) -> None:
        """Check that the namespace exists, where the user may look and the API server answers.

        Raises:
            NoNamespaceError: it does not exist.
        """
        try:
            await self.client.get(self.api.path(self.api.CORE, None, "namespaces", self.namespace))
        except self.api.NotFoundError:
            raise NoNamespaceError(self.no_namespace()) from None
        except (self.api.ApiError, *self.api.TRANSIENT):
            return

    def no_namespace(self) -> str:
        """Say that the namespace does not exist."""
        return f"there is no namespace `{self.namespace}`; choose another one with -n"

    def gone(self, kind: str, name: str) -> GoneError:
        """Say that an object does not exist, and how to find those that do."""
        verb = _LIST_VERBS.get(kind, "")
        command = f"{self.program} {verb}" if verb else f"kubectl get {kind.lower()}"
        return GoneError(
            f"there is no {kind} `{name}` in namespace `{self.namespace}`; list those that exist with "
            f"`{command} -A`, and choose the namespace with -n"
        )

    def refused(self, status: int, message: str) -> CliError:
        """Say that the API server refused a request.

        Args:
            status: The HTTP status.
            message: What the API server said.
        """
        if status == 401:  # noqa: PLR2004
            return CliError(
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
        return CliError(f"the API server refused the request: {message}")

    def unreachable(self, error: Exception) -> UnreachableError:
        """Say that the API server does not respond, and why."""
        cause = str(error) or type(error).__name__
        server = self.client.access.server
        return UnreachableError(
            f"the API server at {server} does not respond ({cause}); start that cluster, or {GET_ONE}"
        )
