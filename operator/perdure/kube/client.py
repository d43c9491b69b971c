"""A thin client: aiohttp and orjson, a quarter of the CPU of a generated one.

A refusal of the API server is an `ApiError`, from `perdure.kube.errors`.
Whatever else goes wrong on the way is an ``OSError``, ``aiohttp.ClientError`` or ``TimeoutError``.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import aiohttp
import msgspec
import orjson

from perdure.kube.access import Access
from perdure.kube.decoding import (
    ListPage,
    Stored,
    Undecodable,
    UndecodableError,
    decode,
    decode_answer,
    decode_page,
    metadata_of,
    undecodable,
)
from perdure.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    InvalidError,
    NotFoundError,
    TooLargeError,
    UnreadableError,
    error_of,
)
from perdure.kube.patch import Operation
from perdure.kube.paths import (
    COORDINATION,
    CORE,
    EVENTS,
    ONLY_METADATA,
    ONLY_METADATA_LIST,
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
    "TRANSIENT",
    "AlreadyExistsError",
    "ApiError",
    "Client",
    "ConflictError",
    "InvalidError",
    "NotFoundError",
    "Object",
    "TooLargeError",
    "UnreadableError",
    "namespace_of",
    "older",
    "path",
]

Object = dict[str, Any]
"""A Kubernetes object, as JSON."""

TRANSIENT: Final = (OSError, aiohttp.ClientError, TimeoutError)
"""What a request raises when the API server could not be asked."""

_PAGE_BYTES: Final = 16 * 1024 * 1024
"""A page that is larger is requested again with fewer objects: memory must not depend on how large objects are."""
_SILENT_SECONDS: Final = 70
"""Bookmarks come every minute; a watch that is silent for longer is dead."""
_LONGEST_LINE: Final = 1 << 20
"""Bytes of a line of text that are held at a time."""
_FIRST_PAGE: Final = 100
_LARGEST_PAGE: Final = 500
"""Objects of a page."""


def namespace_of(obj: Object) -> str:
    """The namespace of an object; empty where it has none."""
    return str((obj.get("metadata") or {}).get("namespace") or "")


def older(version: str, than: str) -> bool:
    """Whether a resourceVersion comes before another; they are numbers that grow (KEP-5504)."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def not_newer(version: str, latest: str) -> bool:
    """Whether an object with a resourceVersion has nothing new, because the latest one that was seen is as new or newer."""
    return (version != "" and version == latest) or older(version, latest)


class Client:
    """Speaks to one API server."""

    def __init__(self, access: Access, session: aiohttp.ClientSession) -> None:
        self.access = access
        self.session = session
        self._server = access.server.rstrip("/")  # it may have a path: some clusters share an address
        self.skipped: Callable[[Undecodable], None] = lambda _: None
        """Called with each object of a list that cannot be decoded, and is left out."""
        self.serves: Callable[[str], bool] = lambda _: True
        """Whether objects of a namespace concern this client; lists leave out all others."""

    @classmethod
    @asynccontextmanager
    async def open(cls, access: Access, *, user_agent: str, connections: int = 64) -> AsyncIterator[Self]:
        """A client with a connection pool of its own, closed at the end of the block."""
        # A connection that is closed in the middle of a request waits for the server's farewell, after the pool's end too.
        # This ends it then; aiohttp offers it for these versions of Python only.
        ends = sys.version_info < (3, 12, 8)
        connector = aiohttp.TCPConnector(
            limit=connections, ssl=access.ssl_context() or False, enable_cleanup_closed=ends
        )
        async with aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": user_agent},
            timeout=aiohttp.ClientTimeout(total=30, sock_connect=5),
        ) as session:
            yield cls(access, session)

    async def get(self, url: str) -> Object:
        """Read one object."""
        return await self._request("GET", url)

    async def stored(self, url: str) -> Stored:
        """Read the identity and the version of one object."""
        raw = await self._read("GET", url, headers={"Accept": ONLY_METADATA})
        try:
            return metadata_of(raw or b"")
        except UndecodableError as error:
            raise aiohttp.ClientPayloadError(f"GET {url}: the answer is not JSON of an object: {error}") from error

    async def metadata(self, url: str) -> Object:
        """Read one object without its spec and status."""
        return await self._request("GET", url, headers={"Accept": ONLY_METADATA})

    async def list_all(self, url: str, **selectors: str) -> list[Object]:
        """Read all objects of a collection. Selectors: ``labelSelector="a=b"``, ``fieldSelector=…``.

        Only for what is few and small, and needed at the same time; `each` holds one object at a time.
        """
        return [obj async for obj in self.each(url, **selectors)]

    async def each(self, url: str, **selectors: str) -> AsyncIterator[Object]:
        """Read the objects of a collection one after the other, as `objects` gives them."""
        async for page in self.pages(url, **selectors):
            for _, obj in self.objects(page):
                yield obj

    def objects(self, page: ListPage) -> Iterator[tuple[msgspec.Raw, Object]]:
        """The objects of a page that concern this client, encoded and decoded.

        What cannot be decoded is reported to `skipped`.
        """
        for raw in page.items:
            try:
                obj: Object = decode(memoryview(raw))
            except UndecodableError as error:
                self.skip(undecodable(raw, str(error), kind=page.kind, api_version=page.api_version))
            else:
                if self.concerns(namespace_of(obj)):
                    yield raw, obj

    def concerns(self, namespace: str) -> bool:
        """Whether an object of a namespace concerns this client; one without a namespace does."""
        return not namespace or self.serves(namespace)

    def skip(self, found: Undecodable) -> None:
        """Report an object that cannot be decoded, if it concerns this client."""
        if found.stored is None or self.concerns(found.stored.namespace):
            self.skipped(found)

    async def versions(self, url: str, **selectors: str) -> AsyncIterator[list[Stored]]:
        """Read which objects a collection has, and their versions, page by page; nothing else crosses the wire."""
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
        """Read the objects of a collection one after the other, only their metadata."""
        async for page in self.pages(url, accept=ONLY_METADATA_LIST, **selectors):
            for _, obj in self.objects(page):
                yield obj

    async def pages(self, url: str, *, accept: str = "application/json", **selectors: str) -> AsyncIterator[ListPage]:
        """Read a collection page by page, the objects still encoded.

        A page has at most 16 MiB, or one object. The pages belong to one state of the collection.
        """
        limit, following = _FIRST_PAGE, ""
        while True:
            query = {"limit": str(limit), **selectors, **({"continue": following} if following else {})}
            raw = await self._read("GET", url, query=query, headers={"Accept": accept}, most=_PAGE_BYTES * (limit > 1))
            if raw is None:
                limit = max(limit // 4, 1)
                continue
            page = decode_page(raw, f"GET {url}", aiohttp.ClientPayloadError)
            if len(raw) < _PAGE_BYTES // 2:
                limit = min(limit * 2, _LARGEST_PAGE)
            del raw
            yield page
            following = page.following
            if not following:
                return

    async def watch(self, url: str, **query: str) -> AsyncIterator[bytes]:
        """Read the events of a watch, each one JSON object, until the API server ends it.

        Raises:
            ApiError: it was refused.
            OSError, aiohttp.ClientError, TimeoutError: the connection broke, or was silent for longer than bookmarks come.
        """
        async with self._streamed(url, {**query, "watch": "true"}) as response:
            rest = bytearray()
            async for part in response.content.iter_any():
                rest += part
                *lines, last = rest.split(b"\n") if b"\n" in part else (rest,)
                for line in lines:
                    if line:
                        yield bytes(line)
                rest = last

    async def lines(self, url: str, **query: str) -> AsyncIterator[bytes]:
        """Read lines of text as they come, such as those of a log; one longer than 1 MiB comes in parts.

        Raises:
            ApiError: it was refused.
            OSError, aiohttp.ClientError, TimeoutError: the connection broke, or nothing came for 70 seconds.
        """
        async with self._streamed(url, query) as response:
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

    @asynccontextmanager
    async def _streamed(self, url: str, query: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that takes any time, but is never silent for long."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_SILENT_SECONDS)
        async with self.session.get(
            f"{self._server}{url}", params=query, headers=self.authorization(), timeout=timeout
        ) as response:
            if response.status >= 400:  # noqa: PLR2004
                raise error_of(response.status, await response.read())
            yield response

    async def create(self, url: str, body: Object) -> Object:
        """Create an object; the answer is the object as stored."""
        return await self._request("POST", url, body=body)

    async def replace(self, url: str, body: Object) -> Object:
        """Replace an object; with a resourceVersion in it, only if it has not changed."""
        return await self._request("PUT", url, body=body)

    async def delete(
        self,
        url: str,
        *,
        uid: str | None = None,
        version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> bool:
        """Delete an object; one that does not exist any more is fine.

        Args:
            url: Of the object.
            uid: Delete it only if it is still that one.
            version: Delete it only if it still has this resourceVersion.
            grace_seconds: How long its containers may take to stop; None: as the object says.
            propagation: What the garbage collector does with its dependents.

        Returns:
            False if it exists and has another version than `version`, or is another one than `uid`: nothing is deleted.
        """
        options: Object = {"propagationPolicy": propagation}
        conditions = {"uid": uid, "resourceVersion": version}
        if any(conditions.values()):
            options["preconditions"] = {key: value for key, value in conditions.items() if value}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._request("DELETE", url, body=options)
        except NotFoundError:
            return True
        except ConflictError:
            return False
        return True

    async def patch(self, url: str, operations: list[Operation]) -> Object:
        """Apply a JSON patch; the answer is the object's metadata only."""
        return await self._request(
            "PATCH",
            url,
            body=operations,
            headers={"Content-Type": "application/json-patch+json", "Accept": ONLY_METADATA},
        )

    async def merge(self, url: str, body: Object) -> Object:
        """Apply a JSON merge patch; the answer is the object's metadata only."""
        return await self._request(
            "PATCH",
            url,
            body=body,
            headers={"Content-Type": "application/merge-patch+json", "Accept": ONLY_METADATA},
        )

    async def change(self, url: str, body: Any, content_type: str, **query: str) -> Object:
        """Patch an object in any format; the answer is the object as stored.

        Args:
            url: Of the object.
            body: The patch.
            content_type: Its format.
            query: Options, such as `fieldManager`.
        """
        return await self._request("PATCH", url, query=query, body=body, headers={"Content-Type": content_type})

    async def set_status(self, url: str, obj: Object, status: Object) -> Object:
        """Replace the whole status of an object, if nobody has written since it was read; the answer is its metadata only.

        Args:
            url: Of the object.
            obj: The object as it was read.
            status: Its new status.

        Raises:
            ConflictError: Another client has.
            NotFoundError: it was deleted.
        """
        operations = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": obj["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        return await self.patch(f"{url}/status", operations)

    async def text(self, url: str, **query: str) -> str:
        """Read plain text, such as a pod's log."""
        async with self.session.get(f"{self._server}{url}", params=query, headers=self.authorization()) as response:
            raw = await response.read()
            if response.status >= 400:  # noqa: PLR2004
                raise error_of(response.status, raw)
            return raw.decode(errors="replace")

    def authorization(self) -> dict[str, str]:
        """The header that lets a request in; read for each request, as the kubelet renews tokens."""
        bearer = self.access.bearer()
        return {"Authorization": f"Bearer {bearer}"} if bearer else {}

    async def _request(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Object:
        raw = await self._read(method, url, query=query, body=body, headers=headers)
        answer: Object = decode_answer(raw or b"", f"{method} {url}", aiohttp.ClientPayloadError)
        return answer

    async def _read(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        most: int = 0,
    ) -> bytes | None:
        """The answer to a request, or None if it has more than `most` bytes; 0: it may have any number."""
        data = None if body is None else orjson.dumps(body)
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            **self.authorization(),
            **(headers or {}),
        }
        async with self.session.request(
            method, f"{self._server}{url}", params=query, data=data, headers=sent
        ) as response:
            if response.status >= 400:  # noqa: PLR2004
                raise error_of(response.status, await response.read())
            if not most:
                return await response.read()
            found = bytearray()
            async for part in response.content.iter_any():
                found += part
                if len(found) > most:
                    response.close()
                    return None
            return bytes(found)
