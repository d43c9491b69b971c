"""The objects of a cluster, as the verbs and the console read and change them.

Besides those of Perdure, these are ConfigMaps, what `doctor` reads, and pods that a verb creates and deletes again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from perdure.api.labels import FLEET_LABEL
from perdure.client.errors import ClientError, NotFoundError
from perdure.client.requests import Object, Requests
from perdure.client.revisions import ClusterRevisions
from perdure.client.runs import ClusterRuns
from perdure.kube import clock, errors, paths

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

    from perdure.kube.responses import TableRow


_MAX_DURATION: Final = timedelta(minutes=3)
"""Maximum time until a pod has ended."""
_PAUSE: Final = 0.5
"""Seconds between two reads of a pod."""
_FINAL: Final = frozenset({"CreateContainerConfigError", "InvalidImageName"})
"""Reasons why a container waits until someone changes something."""
_REVIEWS = "/apis/authorization.k8s.io/v1"
_RESOLUTION = timedelta(seconds=1)
"""The resolution of the time in an HTTP header."""


class Cluster:
    """The objects of Perdure in the selected namespace, or in all namespaces."""

    def __init__(self, requests: Requests) -> None:
        self.namespace = requests.namespace
        self.runs = ClusterRuns(requests)
        self.revisions = ClusterRevisions(requests)
        self.config_maps = ConfigMaps(requests)
        self.diagnosis = Diagnosis(requests)
        self.one_time_pods = OneTimePods(requests)
        self.read = requests.read
        """Read an object, by its kind, plural, and name; see there."""
        self._requests = requests

    async def leases(self) -> list[Object]:
        """Read the Leases of the operators in the namespace.

        Raises:
            NoNamespaceError: There are no objects, and the namespace does not exist.
            ClientError: The objects cannot be read.
        """
        requests = self._requests
        url = paths.path(paths.COORDINATION, self.namespace, "leases")
        found: list[Object] = await requests.perform(requests.client.list_all(url, labelSelector=FLEET_LABEL))
        if not found:
            await requests.check_namespace()
        return found

    async def list(self, plural: str, *, everywhere: bool = False, **selectors: str) -> list[Object]:
        """Read all objects of a kind that match the selectors, in the namespace or in all namespaces.

        Raises:
            NoNamespaceError: There are no objects, and the namespace does not exist.
            ClientError: The objects cannot be read.
        """
        items = await self._requests.list_objects(plural, None if everywhere else self.namespace, **selectors)
        if not items and not everywhere:
            await self._requests.check_namespace()
        return items

    async def rows(
        self, plural: str, *, everywhere: bool = False, metadata: bool, **selectors: str
    ) -> builtins.list[TableRow]:
        """Read the printed columns of all objects that `list` would read, and their metadata if `metadata` is true.

        Raises:
            NoNamespaceError: There are no objects, and the namespace does not exist.
            ClientError: The objects cannot be read.
        """
        namespace = None if everywhere else self.namespace
        found = await self._requests.list_rows(plural, namespace, metadata=metadata, **selectors)
        if not found and not everywhere:
            await self._requests.check_namespace()
        return found

    async def page(self, plural: str, size: int, following: str, **selectors: str) -> tuple[builtins.list[Object], str]:
        """Read one page of the objects of a kind in the namespace.

        Args:
            plural: The resource of the objects.
            size: Maximum number of objects.
            following: The token from the previous page; empty for the first page.
            selectors: The selectors of the objects.

        Returns:
            The objects, and the token of the next page; empty if there is none.

        Raises:
            NoNamespaceError: There are no objects, and the namespace does not exist.
            ClientError: The objects cannot be read.
        """
        requests = self._requests
        query = {"limit": str(size), **selectors, **({"continue": following} if following else {})}
        answer = await requests.perform(requests.client.get(paths.path(paths.PERDURE, self.namespace, plural), **query))
        items = answer.get("items") or []
        if not items:
            await requests.check_namespace()
        return items, str((answer.get("metadata") or {}).get("continue") or "")

    def within(self, namespace: str) -> Cluster:
        """Return the same cluster in another namespace."""
        return Cluster(Requests(self._requests.client, namespace, self._requests.program))

    def watch(self, plural: str, *, everywhere: bool = False, **selectors: str) -> AsyncIterator[tuple[str, Object]]:
        """Watch objects of a kind, as `Requests.watch` does."""
        return self._requests.watch(plural, None if everywhere else self.namespace, **selectors)

    async def names(self, plural: str) -> builtins.list[str]:
        """List the names of the objects of a kind in the namespace, or of all namespaces of the cluster.

        Raises:
            ClientError: The objects cannot be read.
        """
        url = (
            paths.path(paths.CORE, None, plural)
            if plural == "namespaces"
            else paths.path(paths.PERDURE, self.namespace, plural)
        )
        found: builtins.list[str] = await self._requests.perform(self._requests.client.names(url))
        return found

    async def create(self, plural: str, body: Object, *, dry_run: bool = False) -> Object:
        """Create an object in the namespace, or only validate it; returns the object from the API server.

        Raises:
            ClientError: The API server rejected the object.
        """
        requests = self._requests
        url = paths.path(paths.PERDURE, self.namespace, plural)
        query = {"dryRun": "All"} if dry_run else {}
        made: Object = await requests.perform(requests.client.create(url, body, **query))
        return made

    async def change(
        self, kind: str, plural: str, name: str, changed: Callable[[Object], Object | None], *, subresource: str = ""
    ) -> Object:
        """Change an object; if another client writes in the meantime, read it again.

        Args:
            kind: The kind of the object.
            plural: The resource of the object.
            name: The name of the object.
            changed: Returns the object to write; None to leave it as it is.
            subresource: What is changed instead of the object itself, such as its status.

        Returns:
            The object, as it is then.

        Raises:
            ClientError: The object does not exist, or must not be changed.
        """
        requests = self._requests
        path = "/".join(filter(None, (requests.path(kind, plural, name), subresource)))
        while True:
            found = await self.read(kind, plural, name)
            wanted = changed(found)
            if wanted is None:
                return found
            answer = _or_conflict(requests.client.replace(path, wanted))
            written: Object | None = await requests.perform(answer, name, kind)
            if written is not None:
                return written

    async def delete(self, kind: str, plural: str, name: str, *, orphan: bool = False, uid: str | None = None) -> None:
        """Delete an object, and its dependents unless they must stay.

        Args:
            kind: The kind of the object.
            plural: The resource of the object.
            name: The name of the object.
            orphan: Whether the dependents are kept.
            uid: The required UID of the object; None for any.

        Raises:
            ClientError: The object does not exist, or must not be deleted.
        """
        if uid is None:
            uid = (await self.read(kind, plural, name))["metadata"]["uid"]
        how = "Orphan" if orphan else "Background"
        path = self._requests.path(kind, plural, name)
        await self._requests.perform(self._requests.client.delete(path, uid=uid, propagation=how), name, kind)

    def bearer(self) -> str | None:
        """Return the token of the kubeconfig, or of the pod in which this runs; None if there is no token."""
        return self._requests.client.access.bearer()

    async def issue_token(self, account: str, audience: str) -> tuple[str, datetime]:
        """Request a token of a ServiceAccount in the namespace from the API server.

        Returns:
            The token, and when it expires.

        Raises:
            ClientError: The ServiceAccount does not exist, or the user may not create tokens for it.
        """
        requests = self._requests
        try:
            path = paths.path(paths.CORE, self.namespace, "serviceaccounts", account, "token")
        except ValueError as error:
            raise ClientError(f"there is no ServiceAccount `{account}`: {error}") from error
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [audience]}}
        status = (await requests.perform(requests.client.create(path, body), account, "ServiceAccount"))["status"]
        return status["token"], datetime.fromisoformat(status["expirationTimestamp"])


class ConfigMaps:
    """The ConfigMaps of the namespace."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def read(self, name: str) -> Object | None:
        """Read a ConfigMap; None if it does not exist.

        Raises:
            NoNamespaceError: The namespace does not exist.
            ClientError: The ConfigMap cannot be read.
        """
        try:
            found: Object = await self._requests.perform(self._requests.client.get(self._path(name)), name, "ConfigMap")
        except NotFoundError:
            await self._requests.check_namespace()
            return None
        return found

    async def labeled(self, label: str) -> list[Object]:
        """Read the ConfigMaps with a label.

        Raises:
            ClientError: The ConfigMaps cannot be read.
        """
        found: list[Object] = await self._requests.perform(
            self._requests.client.list_all(self._path(), labelSelector=label)
        )
        return found

    async def store(self, body: Object) -> None:
        """Replace a ConfigMap that has not changed since it was read, or create one.

        Raises:
            ClientError: The API server rejected it, or another client has changed or created it.
        """
        name = body["metadata"]["name"]
        if "resourceVersion" in body["metadata"]:
            await self._requests.perform(self._requests.client.replace(self._path(name), body), name, "ConfigMap")
        else:
            await self._requests.perform(self._requests.client.create(self._path(), body))

    def _path(self, name: str | None = None) -> str:
        return str(paths.path(paths.CORE, self._requests.namespace, "configmaps", name))


class Diagnosis:
    """Reads objects of any kind, permissions, and the clock of the API server, for the checks of `doctor`.

    All methods raise ForbiddenError if the user has no permission, and UnreachableError if the API server does not respond.
    """

    def __init__(self, requests: Requests) -> None:
        self.namespace = requests.namespace
        self._requests = requests

    async def read(self, url: str) -> Object | None:
        """Read an object, or anything else that is JSON; None if it does not exist."""
        found: Object | None = await self._requests.perform(_or_none(self._requests.client.get(url)))
        return found

    async def list(self, url: str, **selectors: str) -> Sequence[Object]:
        """Read all objects of a collection; empty if the API server does not serve the kind."""
        answer = _or_none(self._requests.client.list_all(url, **selectors))
        found: Sequence[Object] | None = await self._requests.perform(answer)
        return found or ()

    async def text(self, url: str) -> str | None:
        """Read text; None if it does not exist."""

        async def read() -> str:
            lines = [line async for line in self._requests.client.lines(url)]
            return b"\n".join(lines).decode(errors="replace")

        found: str | None = await self._requests.perform(_or_none(read()))
        return found

    async def allows(self, attributes: Object, *, user: str | None = None, groups: Sequence[str] = ()) -> bool:
        """Ask the API server whether a request would be permitted.

        Args:
            attributes: The `resourceAttributes` of the review.
            user: The user of the request; None for the caller.
            groups: The groups of the user.
        """
        kind, plural, whom = "SelfSubjectAccessReview", "selfsubjectaccessreviews", {}
        if user is not None:
            kind, plural, whom = "SubjectAccessReview", "subjectaccessreviews", {"user": user, "groups": list(groups)}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {"resourceAttributes": attributes, **whom},
        }
        requests = self._requests
        answer = await requests.perform(requests.client.create(paths.path(_REVIEWS, None, plural), body))
        return bool(answer["status"]["allowed"])

    async def skew(self) -> timedelta | None:
        """Measure how far the local clock is ahead of the clock of the API server; None if the API server does not send its time.

        Returns:
            The smallest difference that is consistent with the times of one request.
        """
        before = clock.now()
        await self.read("/version")
        after, theirs = clock.now(), self.server_time()
        if theirs is None:
            return None
        return max(before - theirs - _RESOLUTION, timedelta(0)) + min(after - theirs, timedelta(0))

    def server_time(self) -> datetime | None:
        """Return the time of the API server's last answer, to the second."""
        return clock.read_http_time(self._requests.client.date)


async def _or_none(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except errors.NotFoundError:
        return None


async def _or_conflict(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except errors.ConflictError:
        return None


class OneTimePods:
    """Runs pods with the permissions of the user."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def output(self, body: Object) -> list[bytes]:
        """Create a pod, wait until it has ended, and return the lines of its logs. The pod is deleted.

        Raises:
            ClientError: The pod cannot be created, does not start, or fails.
        """
        return [line async for _, line in self.lines(body)]

    async def lines(self, body: Object) -> AsyncGenerator[tuple[int, bytes]]:
        """Create a pod, wait until it has ended, and read its logs. The pod is deleted.

        Args:
            body: The manifest.

        Yields:
            The number of the container, init containers first, and a line of its log.

        Raises:
            ClientError: The pod cannot be created, does not start, or fails.
        """
        requests, spec = self._requests, body["spec"]
        url = paths.path(paths.CORE, requests.namespace, "pods")
        made: Object = await requests.perform(requests.client.create(url, body))
        name = made["metadata"]["name"]
        names = [each["name"] for each in (*spec.get("initContainers", ()), *spec["containers"])]
        try:
            status = await self._end(f"{url}/{name}", name)
            if status["phase"] != "Succeeded":
                raise ClientError(await self._why(f"{url}/{name}", status, names) or f"the pod `{name}` has failed")
            for number, container in enumerate(names):
                async for line in requests.client.lines(f"{url}/{name}/log", container=container):
                    yield number, line
        finally:
            with suppress(ClientError):
                await requests.perform(requests.client.delete(f"{url}/{name}", uid=made["metadata"]["uid"]))

    async def _why(self, url: str, status: Object, names: Sequence[str]) -> str:
        """Return the last lines of the container that has failed."""
        states = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
        failed = (
            each["name"] for each in states if ((each.get("state") or {}).get("terminated") or {}).get("exitCode")
        )
        container = next(failed, names[-1])
        lines = [line async for line in self._requests.client.lines(f"{url}/log", container=container)]
        return b" ".join(lines[-3:]).decode(errors="replace")

    async def _end(self, url: str, name: str) -> Object:
        """Wait until a pod has ended, and return its status."""
        end = clock.now() + _MAX_DURATION
        while True:
            found = await self._requests.perform(self._requests.client.get(url), name, "Pod")
            status: Object = found.get("status") or {}
            if status.get("phase") in {"Succeeded", "Failed"}:
                return status
            statuses = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
            waits: list[Object] = [
                each["state"]["waiting"] for each in statuses if "waiting" in (each.get("state") or {})
            ]
            waiting = next((each for each in waits if each.get("reason") in _FINAL), waits[0] if waits else {})
            if waiting.get("reason") in _FINAL or clock.now() > end:
                why = waiting.get("message") or waiting.get("reason") or "it has not ended after three minutes"
                raise ClientError(f"the pod `{name}` cannot read the artifact: {why}")
            await asyncio.sleep(_PAUSE)
