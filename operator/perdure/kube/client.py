"""A thin client based on aiohttp and orjson. It needs a quarter of the CPU time of a generated one.

If a request fails, the client raises a `RequestError`: an `ApiError` if the API server rejected it, or a `NoResponseError`.
`perdure.kube.errors` lists all.
"""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import aiohttp

from perdure.kube.access import Access
from perdure.kube.connection import Connection, Object
from perdure.kube.decoding import Stored, UndecodableError, metadata_of
from perdure.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    InvalidError,
    NoResponseError,
    NotFoundError,
    RequestError,
    TooLargeError,
    UnreadableError,
)
from perdure.kube.object_lists import ObjectLists, namespace_of
from perdure.kube.paths import (
    COORDINATION,
    CORE,
    EVENTS,
    ONLY_METADATA,
    PERDURE,
    RBAC,
    path,
)

__all__ = [
    "COORDINATION",
    "CORE",
    "EVENTS",
    "PERDURE",
    "RBAC",
    "AlreadyExistsError",
    "ApiError",
    "Client",
    "ConflictError",
    "InvalidError",
    "NoResponseError",
    "NotFoundError",
    "Object",
    "Operation",
    "RequestError",
    "TooLargeError",
    "UnreadableError",
    "namespace_of",
    "older",
    "path",
]

Operation = dict[str, Any]
"""An operation of a JSON patch (RFC 6902)."""

_LONGEST_LINE: Final = 1 << 20
"""The most bytes of a line that are held in memory."""


def older(version: str, than: str) -> bool:
    """Whether a resourceVersion is older than another; they are increasing numbers (KEP-5504)."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def not_newer(version: str, latest: str) -> bool:
    """Whether an object is not newer than the latest version that was seen."""
    return (version != "" and version == latest) or older(version, latest)


class Client:
    """A client of one API server."""

    def __init__(self, access: Access, session: aiohttp.ClientSession) -> None:
        self.access = access
        self.connection = Connection(access, session)
        self.lists = ObjectLists(self.connection)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, access: Access, *, user_agent: str, connections: int = 64, traces: Sequence[aiohttp.TraceConfig] = ()
    ) -> AsyncIterator[Self]:
        """Open a client with its own connection pool, and close it at the end of the block. `traces` observe its requests."""
        # A connection that is closed during a request waits for the server's TLS shutdown, even after the pool is closed.
        # This option aborts it; aiohttp supports it only on these versions of Python.
        ends = sys.version_info < (3, 12, 8)
        connector = aiohttp.TCPConnector(
            limit=connections, ssl=access.ssl_context() or False, enable_cleanup_closed=ends
        )
        async with aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": user_agent},
            timeout=aiohttp.ClientTimeout(total=30, sock_connect=5),
            trace_configs=list(traces),
        ) as session:
            yield cls(access, session)

    async def get(self, url: str) -> Object:
        """Read one object."""
        return await self.connection.request("GET", url)

    async def stored(self, url: str) -> Stored:
        """Read the identity and the version of one object."""
        raw = await self.connection.read("GET", url, headers={"Accept": ONLY_METADATA})
        try:
            return metadata_of(raw or b"")
        except UndecodableError as error:
            raise NoResponseError(f"GET {url}: the response is not a JSON object: {error}") from error

    async def metadata(self, url: str) -> Object:
        """Read one object without its spec and status."""
        return await self.connection.request("GET", url, headers={"Accept": ONLY_METADATA})

    async def watch(self, url: str, **query: str) -> AsyncIterator[bytes]:
        """Read the events of a watch, each one JSON object, until the API server ends it.

        Raises:
            ApiError: The API server rejected the watch.
            NoResponseError: The connection failed, or was silent for longer than the interval of bookmarks.
        """
        async with self.connection.streamed(url, {**query, "watch": "true"}) as response:
            rest = bytearray()
            async for part in response.content.iter_any():
                rest += part
                *lines, last = rest.split(b"\n") if b"\n" in part else (rest,)
                for line in lines:
                    if line:
                        yield bytes(line)
                rest = last

    async def lines(self, url: str, **query: str) -> AsyncIterator[bytes]:
        """Read lines of text as they arrive, such as lines of a log. A line over 1 MiB arrives in parts.

        Raises:
            ApiError: The API server rejected the request.
            NoResponseError: The connection failed, or no data arrived for 70 seconds.
        """
        async with self.connection.streamed(url, query) as response:
            rest = bytearray()
            async for part in response.content.iter_any():
                rest += part
                *lines, last = rest.split(b"\n") if b"\n" in part else (rest,)
                for line in lines:
                    yield bytes(line)
                rest = last
                if len(rest) > _LONGEST_LINE:
                    yield bytes(rest)
                    rest = bytearray()
            if rest:
                yield bytes(rest)

    async def text(self, url: str, **query: str) -> str:
        """Read plain text, such as a pod's log."""
        raw = await self.connection.read("GET", url, query=query, headers={"Accept": "*/*"})
        return (raw or b"").decode(errors="replace")

    async def create(self, url: str, body: Object) -> Object:
        """Create an object, and return it as stored."""
        return await self.connection.request("POST", url, body=body)

    async def replace(self, url: str, body: Object) -> Object:
        """Replace an object. If `body` has a resourceVersion, replace only that version."""
        return await self.connection.request("PUT", url, body=body)

    async def delete(
        self,
        url: str,
        *,
        uid: str | None = None,
        version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> bool:
        """Delete an object. It is not an error if the object does not exist.

        Args:
            url: URL of the object.
            uid: Delete the object only if it has this UID.
            version: Delete the object only if it has this resourceVersion.
            grace_seconds: How long its containers may take to stop; None: the object's own grace period.
            propagation: How the garbage collector handles its dependents.

        Returns:
            False if the object exists with another version or UID. Then nothing is deleted.
        """
        options: Object = {"propagationPolicy": propagation}
        conditions = {"uid": uid, "resourceVersion": version}
        if any(conditions.values()):
            options["preconditions"] = {key: value for key, value in conditions.items() if value}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self.connection.request("DELETE", url, body=options)
        except NotFoundError:
            return True
        except ConflictError:
            return False
        return True

    async def patch(self, url: str, operations: list[Operation]) -> Object:
        """Apply a JSON patch, and return only the object's metadata."""
        return await self.connection.request(
            "PATCH",
            url,
            body=operations,
            headers={"Content-Type": "application/json-patch+json", "Accept": ONLY_METADATA},
        )

    async def merge(self, url: str, body: Object) -> Object:
        """Apply a JSON merge patch, and return only the object's metadata."""
        return await self.connection.request(
            "PATCH",
            url,
            body=body,
            headers={"Content-Type": "application/merge-patch+json", "Accept": ONLY_METADATA},
        )

    async def change(self, url: str, body: Any, content_type: str, **query: str) -> Object:
        """Patch an object in any format, and return it as stored.

        Args:
            url: URL of the object.
            body: The patch.
            content_type: The format of the patch.
            query: Options, such as `fieldManager`.
        """
        return await self.connection.request(
            "PATCH", url, query=query, body=body, headers={"Content-Type": content_type}
        )

    async def set_status(self, url: str, obj: Object, status: Object) -> Object:
        """Replace the whole status of an object if it has not changed since it was read, and return only its metadata.

        The request has no spec, and of the metadata only what identifies the version: a PUT of `/status` keeps all other
        fields as they are stored, and their managers.

        Args:
            url: URL of the object.
            obj: The object as it was read.
            status: The new status.

        Raises:
            ConflictError: Another client has changed the object.
            NotFoundError: The object was deleted.
        """
        meta = {key: obj["metadata"][key] for key in ("namespace", "name", "resourceVersion")}
        body = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": meta, "status": status}
        return await self.connection.request("PUT", f"{url}/status", body=body, headers={"Accept": ONLY_METADATA})
