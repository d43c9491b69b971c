"""A thin client based on aiohttp and orjson. It needs a quarter of the CPU time of a generated one.

If a request fails, the client raises a `RequestError`: an `ApiError` if the API server rejected it, or a `NoResponseError`.
`perdure.kube.errors` lists all.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, Self

import aiohttp
import msgspec
import orjson

from perdure.kube.access import Access
from perdure.kube.clock import read_http_time
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
    error_of,
    no_response,
)
from perdure.kube.paths import (
    APPS,
    COORDINATION,
    CORE,
    EVENTS,
    ONLY_METADATA,
    ONLY_METADATA_LIST,
    PERDURE,
    RBAC,
    path,
)
from perdure.kube.responses import (
    ListPage,
    Stored,
    Undecodable,
    UndecodableError,
    decode_answer,
    decode_object,
    decode_page,
    metadata_of,
    undecodable,
)

__all__ = [
    "APPS",
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

Object = dict[str, Any]
"""A Kubernetes object, as JSON."""

_SILENT_SECONDS: Final = 70
"""Seconds of silence after which a watch is stale: bookmarks arrive every minute."""


class Connection:
    """Sends requests to one API server."""

    def __init__(self, access: Access, session: aiohttp.ClientSession) -> None:
        self.access = access
        self.session = session
        self.date = ""
        """The `Date` header of the last response."""
        self._server = access.server.rstrip("/")  # it may contain a path, because some clusters share an address

    def authorization(self) -> dict[str, str]:
        """The header that authenticates a request. The token is read for each request, because the kubelet renews it."""
        bearer = self.access.bearer()
        return {"Authorization": f"Bearer {bearer}"} if bearer else {}

    async def request(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Object:
        """Send a request, and return the decoded response."""
        raw = await self.read(method, url, query=query, body=body, headers=headers)
        answer: Object = decode_answer(raw or b"", f"{method} {url}")
        return answer

    async def read(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        limit_bytes: int = 0,
    ) -> bytes | None:
        """Send a request, and return the response, or None if it is longer than `limit_bytes`; 0: no limit."""
        data = None if body is None else orjson.dumps(body)
        with no_response(OSError, aiohttp.ClientError):
            sent = {
                "Content-Type": "application/json",
                "Accept": "application/json",
                **self.authorization(),
                **(headers or {}),
            }
            async with self.session.request(
                method, f"{self._server}{url}", params=query, data=data, headers=sent, allow_redirects=False
            ) as response:
                self.date = response.headers.get("Date", "")
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:  # an API server redirects nothing
                    raise error_of(response.status, await response.read())
                if not limit_bytes:
                    return await response.read()
                body = bytearray()
                async for part in response.content.iter_any():
                    body += part
                    if len(body) > limit_bytes:
                        response.close()
                        return None
                return bytes(body)

    @asynccontextmanager
    async def streamed(self, url: str, query: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Stream a response that may take any time, but is never silent for long."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_SILENT_SECONDS)
        with no_response(OSError, aiohttp.ClientError):
            async with self.session.get(
                f"{self._server}{url}",
                params=query,
                headers=self.authorization(),
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                self.date = response.headers.get("Date", "")
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:  # an API server redirects nothing
                    raise error_of(response.status, await response.read())
                yield response


_FIRST_PAGE: Final = 100
_LARGEST_PAGE: Final = 500
"""The most objects of a page."""


def namespace_of(obj: Object) -> str:
    """The namespace of an object; empty if it has none."""
    return str((obj.get("metadata") or {}).get("namespace") or "")


class ObjectLists:
    """Reads the collections of one API server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.skipped: Callable[[Undecodable], None] = lambda _: None
        """Called with each object of a list that is left out because it cannot be decoded."""
        self.serves: Callable[[str], bool] = lambda _: True
        """Whether this client serves a namespace; lists leave out objects of other namespaces."""
        self.page_bytes = 16 * 1024 * 1024
        """A larger page is requested again with fewer objects, so that memory does not depend on the size of objects."""

    async def all(self, url: str, **selectors: str) -> list[Object]:
        """Read all objects of a collection. Selectors: ``labelSelector="a=b"``, ``fieldSelector=…``.

        Use this only for few and small objects that are needed together; `each` holds one object at a time.
        """
        return [obj async for obj in self.each(url, **selectors)]

    async def each(self, url: str, **selectors: str) -> AsyncIterator[Object]:
        """Read the objects of a collection one by one, decoded as in `objects`."""
        async for page in self.pages(url, **selectors):
            for _, obj in self.objects(page):
                yield obj

    def objects(self, page: ListPage) -> Iterator[tuple[msgspec.Raw, Object]]:
        """The objects of a page in the namespaces that this client serves, encoded and decoded.

        Undecodable objects are reported to `skipped`.
        """
        for raw in page.items:
            try:
                obj: Object = decode_object(memoryview(raw))
            except UndecodableError as error:
                self.skip(undecodable(raw, str(error), kind=page.kind, api_version=page.api_version))
            else:
                if self.concerns(namespace_of(obj)):
                    yield raw, obj

    def concerns(self, namespace: str) -> bool:
        """Whether this client serves a namespace, or the object has none."""
        return not namespace or self.serves(namespace)

    def skip(self, found: Undecodable) -> None:
        """Report an undecodable object, if this client serves its namespace."""
        if found.stored is None or self.concerns(found.stored.namespace):
            self.skipped(found)

    async def versions(self, url: str, **selectors: str) -> AsyncIterator[list[Stored]]:
        """Read only the identities and versions of the objects in a collection, page by page."""
        async for page in self.pages(url, accept=ONLY_METADATA_LIST, **selectors):
            found = []
            for raw in page.items:
                try:
                    stored = metadata_of(memoryview(raw))
                except UndecodableError as error:
                    self.skip(undecodable(raw, str(error), kind=page.kind, api_version=page.api_version))
                else:
                    if self.concerns(stored.namespace):
                        found.append(stored)
            yield found

    async def each_metadata(self, url: str, **selectors: str) -> AsyncIterator[Object]:
        """Read the metadata of the objects in a collection one by one."""
        async for page in self.pages(url, accept=ONLY_METADATA_LIST, **selectors):
            for _, obj in self.objects(page):
                yield obj

    async def pages(self, url: str, *, accept: str = "application/json", **selectors: str) -> AsyncIterator[ListPage]:
        """Read a collection page by page, without decoding the objects.

        A page has at most `page_bytes`, or one object. The pages come from one consistent snapshot of the collection.
        """
        limit, following = _FIRST_PAGE, ""
        while True:
            query = {"limit": str(limit), **selectors, **({"continue": following} if following else {})}
            raw = await self._connection.read(
                "GET", url, query=query, headers={"Accept": accept}, limit_bytes=self.page_bytes * (limit > 1)
            )
            if raw is None:
                limit = max(limit // 4, 1)
                continue
            page = decode_page(raw, f"GET {url}")
            if len(raw) < self.page_bytes // 2:
                limit = min(limit * 2, _LARGEST_PAGE)
            del raw
            yield page
            following = page.following
            if not following:
                return


Operation = dict[str, Any]
"""An operation of a JSON patch (RFC 6902)."""

_LONGEST_LINE: Final = 1 << 20
"""The most bytes of a line that are held in memory."""


def older(version: str, than: str) -> bool:
    """Whether a resourceVersion is older than another; they are increasing numbers (KEP-5504)."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def not_newer(version: str, latest: str) -> bool:
    """Whether a version of an object is the latest known version or an older one."""
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

    def server_time(self) -> datetime | None:
        """The time of the API server's last response, to the second; None if it did not send it."""
        return read_http_time(self.connection.date)

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
