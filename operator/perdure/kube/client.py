"""A thin client: aiohttp and orjson, a quarter of the CPU of a generated one.

Errors of this module::

    ApiError              the API server refused; `status` is the HTTP code, `reason` Kubernetes' word, `message` its sentence
    ├── NotFoundError     404
    ├── AlreadyExistsError  409 AlreadyExists
    ├── ConflictError     409 Conflict: someone else wrote first
    ├── InvalidError      400, 422: it will never be accepted as it is
    └── TooLargeError     413, and what etcd says instead: it will never fit

Whatever else goes wrong on the way is an ``OSError``, ``aiohttp.ClientError`` or ``TimeoutError``.
"""

import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import aiohttp
import orjson

from perdure.kube.access import Access
from perdure.kube.patch import Operation

Object = dict[str, Any]
"""A Kubernetes object, as JSON."""

CORE: Final = "/api/v1"
PERDURE: Final = "/apis/perdure.dev/v1alpha1"
COORDINATION: Final = "/apis/coordination.k8s.io/v1"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
EVENTS: Final = "/apis/events.k8s.io/v1"

TRANSIENT: Final = (OSError, aiohttp.ClientError, TimeoutError)
"""What a request raises when the API server could not be asked."""

_TOO_LARGE_FOR_ETCD: Final = ("etcdserver: request is too large", "trying to send message larger than max")
"""etcd's refusals have no code of their own: the API server passes them on as its own failure, with 500."""

_ONLY_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class NotFoundError(ApiError):
    """There is no such object."""


class AlreadyExistsError(ApiError):
    """There is such an object already."""


class ConflictError(ApiError):
    """The object has changed since it was read."""


class InvalidError(ApiError):
    """The object will never be accepted as it is."""


class TooLargeError(ApiError):
    """The object, or the request, is larger than the API server or etcd takes."""


_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:]*")


def path(
    group: str, namespace: str | None, plural: str, name: str | None = None, subresource: str | None = None
) -> str:
    """The path of a resource, e.g. ``path(CORE, "default", "pods", "web-0")``.

    Raises:
        ValueError: a namespace or name that no object can have: put into a path, it would lead somewhere else.
    """
    for part in (namespace, name):
        if part is not None and not _NAME.fullmatch(part):
            raise ValueError(f"{part!r} is not the name of an object")
    scope = f"/namespaces/{namespace}" if namespace else ""
    return "/".join(filter(None, (f"{group}{scope}", plural, name, subresource)))


def older(version: str, than: str) -> bool:
    """Whether a resourceVersion comes before another; they are numbers that grow (KEP-5504)."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


class Client:
    """Speaks to one API server."""

    def __init__(self, access: Access, session: aiohttp.ClientSession) -> None:
        self.access = access
        self._session = session
        self._server = access.server.rstrip("/")  # it may have a path: some clusters share an address

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

    async def list_all(self, url: str, **selectors: str) -> list[Object]:
        """Read all objects of a collection, page by page. Selectors: ``labelSelector="a=b"``, ``fieldSelector=…``."""
        items: list[Object] = []
        query = {"limit": "500", **selectors}
        while True:
            page = await self._request("GET", url, query=query)
            items += page["items"]
            following = page["metadata"].get("continue")
            if not following:
                return items
            query["continue"] = following

    async def create(self, url: str, body: Object) -> Object:
        """Create an object; the answer is the object as stored."""
        return await self._request("POST", url, body=body)

    async def replace(self, url: str, body: Object) -> Object:
        """Replace an object; with a resourceVersion in it, only if it has not changed."""
        return await self._request("PUT", url, body=body)

    async def delete(
        self, url: str, *, uid: str | None = None, grace_seconds: int | None = None, propagation: str = "Background"
    ) -> None:
        """Delete an object; with `uid`, only if it is still that one. One that is gone already is fine."""
        options: Object = {"propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._request("DELETE", url, body=options)
        except (NotFoundError, ConflictError):
            return

    async def patch(self, url: str, operations: list[Operation]) -> Object:
        """Apply a JSON patch; the answer is the object's metadata only."""
        return await self._request(
            "PATCH",
            url,
            body=operations,
            headers={"Content-Type": "application/json-patch+json", "Accept": _ONLY_METADATA},
        )

    async def merge(self, url: str, body: Object) -> Object:
        """Apply a JSON merge patch; the answer is the object's metadata only."""
        return await self._request(
            "PATCH",
            url,
            body=body,
            headers={"Content-Type": "application/merge-patch+json", "Accept": _ONLY_METADATA},
        )

    async def set_status(self, url: str, obj: Object, status: Object) -> Object:
        """Replace the whole status of an object, if nobody has written since it was read; the answer is its metadata only.

        Args:
            url: Of the object.
            obj: The object as it was read.
            status: Its new status.

        Raises:
            ConflictError: somebody has.
            NotFoundError: it was deleted.
        """
        operations = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": obj["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        return await self.patch(f"{url}/status", operations)

    async def text(self, url: str, **query: str) -> str:
        """Read plain text, such as a pod's log."""
        async with self._session.get(f"{self._server}{url}", params=query, headers=self._authorization()) as response:
            raw = await response.read()
            if response.status >= 400:  # noqa: PLR2004
                raise _error(response.status, raw)
            return raw.decode(errors="replace")

    def _authorization(self) -> dict[str, str]:
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
        data = None if body is None else orjson.dumps(body)
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            **self._authorization(),
            **(headers or {}),
        }
        async with self._session.request(
            method, f"{self._server}{url}", params=query, data=data, headers=sent
        ) as response:
            raw = await response.read()
            if response.status >= 400:  # noqa: PLR2004
                raise _error(response.status, raw)
            try:
                answer: Object = _decode(raw)
            except json.JSONDecodeError as error:
                # A proxy in between, or half an answer: the API server was not reached.
                raise aiohttp.ClientPayloadError(f"{method} {url}: the answer is not JSON: {error}") from error
            return answer


def _decode(raw: bytes) -> Any:
    """JSON from the API server; orjson gives up at a depth of 1,024, which one user's value must not make others' trouble."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return json.loads(raw)


def _error(status: int, raw: bytes) -> ApiError:
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError:
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
    reason = str(answer.get("reason") or status)
    message = str(answer.get("message") or raw[:500].decode(errors="replace"))
    kind: type[ApiError] = {
        400: InvalidError,
        404: NotFoundError,
        409: AlreadyExistsError if reason == "AlreadyExists" else ConflictError,
        413: TooLargeError,
        422: InvalidError,
        500: TooLargeError if any(words in message for words in _TOO_LARGE_FOR_ETCD) else ApiError,
    }.get(status, ApiError)
    return kind(status, reason, message)
