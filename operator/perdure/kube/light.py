"""A client for commands, which must start quickly. It uses `http.client` in threads, which imports in a fifth of aiohttp's time.

It raises the same errors as `perdure.kube.client.Client`, and its `get`, `create`, and `delete` mean the same; commands list in
other ways than the operator does, which `list_all`, `each`, `rows`, and `names` serve.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import threading
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

from perdure.kube.errors import ConflictError, NoResponseError, NotFoundError, error_of, no_response
from perdure.kube.paths import ONLY_METADATA_LIST, TABLE
from perdure.lazy import lazily

with lazily():
    from urllib import request

    from perdure.kube import responses

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping

    from perdure.kube.access import Access
    from perdure.kube.responses import TableRow

Object = dict[str, Any]
"""A Kubernetes object, as JSON."""

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Host names of this machine."""

_CONNECT_SECONDS: Final = 5
_REQUEST_SECONDS: Final = 30
_SILENT_SECONDS: Final = 70
"""How long a stream may be silent, in seconds; bookmarks of watches arrive every minute."""
_LONGEST_LINE: Final = 1 << 20
"""The most bytes of a line that are held in memory."""
_FIRST_PAGE: Final = 100
_LARGEST_PAGE: Final = 500
_PAGE_BYTES: Final = 16 * 1024 * 1024
"""The target size of a page of a list."""

_Answer = TypeVar("_Answer")


class LightClient:
    """A connection pool with the requests that commands need."""

    def __init__(self, access: Access, *, user_agent: str, connections: int) -> None:
        self.access = access
        self._server = urlsplit(access.server.rstrip("/"))
        self._tls = access.ssl_context()
        self._user_agent = user_agent
        self._free = asyncio.Semaphore(connections)
        self._idle: list[http.client.HTTPConnection] = []
        self.date = ""
        """The `Date` header of the last response."""

    @classmethod
    @asynccontextmanager
    async def open(cls, access: Access, *, user_agent: str, connections: int = 4) -> AsyncIterator[LightClient]:
        """Create a client, and close its connections at the end of the block."""
        client = cls(access, user_agent=user_agent, connections=connections)
        try:
            yield client
        finally:
            client.close()

    def close(self) -> None:
        """Close the connections that no request uses."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    # Requests

    async def get(self, url: str, **query: str) -> Object:
        """Read one object, or another JSON response."""
        return await self._request("GET", url, query=query)

    async def list_all(self, url: str, **selectors: str) -> list[Object]:
        """Read all objects of a collection. Selectors: ``labelSelector="a=b"``, ``fieldSelector=…``."""
        return [obj async for obj in self.each(url, **selectors)]

    async def each(self, url: str, **selectors: str) -> AsyncIterator[Object]:
        """Read the objects of a collection one by one, in pages from one consistent snapshot."""
        limit, following = _FIRST_PAGE, ""
        while True:
            query = {"limit": str(limit), **selectors, **({"continue": following} if following else {})}
            raw = await self._read("GET", url, query=query)

            page = responses.decode_page(raw, f"GET {url}")
            limit = min(_LARGEST_PAGE, max(1, limit * _PAGE_BYTES // max(len(raw), 1)))
            for item in page.items:
                try:
                    obj: Object = responses.decode_object(memoryview(item))
                except responses.UndecodableError:
                    continue
                yield obj
            following = page.following
            if not following:
                return

    async def rows(self, url: str, *, metadata: bool, **selectors: str) -> AsyncIterator[TableRow]:
        """Read the printed columns of the objects in a collection, and their metadata if `metadata` is true.

        This is a fraction of the data of the objects.
        """
        query = {"limit": str(_LARGEST_PAGE), "includeObject": "Metadata" if metadata else "None", **selectors}
        while True:
            raw = await self._read("GET", url, query=query, accept=TABLE)

            try:
                page = responses.table_page(raw)
            except ValueError as error:
                raise NoResponseError(f"GET {url}: the response is not a table: {error}") from error
            for row in page.rows:
                yield row
            if not page.following:
                return
            query["continue"] = page.following

    async def names(self, url: str) -> list[str]:
        """Read the names of the first 500 objects of a collection."""
        raw = await self._read("GET", url, query={"limit": str(_LARGEST_PAGE)}, accept=ONLY_METADATA_LIST)
        return [item["metadata"]["name"] for item in json.loads(raw).get("items") or ()]

    async def create(self, url: str, body: Object, **query: str) -> Object:
        """Create an object, and return it as stored."""
        return await self._request("POST", url, body=body, query=query)

    async def replace(self, url: str, body: Object) -> Object:
        """Replace an object. If `body` has a resourceVersion, replace only that version."""
        return await self._request("PUT", url, body=body)

    async def remove(self, url: str, **query: str) -> Object:
        """Delete something of another API than that of Kubernetes, and return the response."""
        return await self._request("DELETE", url, query=query)

    async def delete(
        self, url: str, *, uid: str | None = None, propagation: str = "Background", dry_run: bool = False
    ) -> bool:
        """Delete an object. It is not an error if the object does not exist.

        Args:
            url: URL of the object.
            uid: Delete the object only if it has this UID.
            propagation: How the garbage collector handles its dependents.
            dry_run: Only check whether it may be deleted.

        Returns:
            False if the object has another UID. Then nothing is deleted.
        """
        options: Object = {"propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if dry_run:
            options["dryRun"] = ["All"]
        try:
            await self._request("DELETE", url, body=options)
        except NotFoundError:
            return True
        except ConflictError:
            return False
        return True

    async def lines(self, url: str, **query: str) -> AsyncIterator[bytes]:
        """Read lines of text as they arrive, such as a log or a watch. A very long line arrives in parts.

        Raises:
            ApiError: The API server rejected the request.
            NoResponseError: The connection failed, or no data arrived for 70 seconds.
        """
        rest = bytearray()
        async for part in self._stream(url, query):
            rest += part
            *lines, last = rest.split(b"\n") if b"\n" in part else (rest,)
            for line in lines:
                yield bytes(line)
            rest = last
            if len(rest) > _LONGEST_LINE and query.get("watch") != "true":
                yield bytes(rest)
                rest = bytearray()
        if rest:
            yield bytes(rest)

    def authorization(self) -> list[tuple[str, str]]:
        """Return the headers that authenticate a request. They are read for each request, because tokens in files are renewed."""
        bearer = self.access.bearer()
        return [*self.access.headers, *([("Authorization", f"Bearer {bearer}")] if bearer else [])]

    # The wire

    async def _request(
        self, method: str, url: str, *, query: Mapping[str, str] | None = None, body: Any = None
    ) -> Object:
        raw = await self._read(method, url, query=query, body=body)

        answer: Object = responses.decode_answer(raw, f"{method} {url}")
        return answer

    async def _read(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        accept: str = "application/json",
    ) -> bytes:
        async with self._free:
            with no_response(OSError, http.client.HTTPException):
                reused = bool(self._idle)
                connection = self._idle.pop() if reused else self._connect(self.access.timeout)
                try:
                    response = await self._send(connection, method, url, query, body, accept=accept)
                except (http.client.RemoteDisconnected, ConnectionError):
                    if not reused or method != "GET":
                        raise
                    # The server closed the idle connection.
                    connection = self._connect(self.access.timeout)
                    response = await self._send(connection, method, url, query, body, accept=accept)
                raw: bytes = await _in_thread(connection, response.read)
                self.date = response.getheader("Date", "")
                if response.will_close:
                    connection.close()
                else:
                    self._idle.append(connection)
                if response.status >= http.client.MULTIPLE_CHOICES:  # an API server redirects nothing
                    raise error_of(response.status, raw)
                return raw

    async def _stream(self, url: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Stream a response that may take any time, but is never silent for long."""
        async with self._free:
            with no_response(OSError, http.client.HTTPException):
                connection = self._connect(_SILENT_SECONDS)
                try:
                    response = await self._send(connection, "GET", url, query, None)
                    if response.status >= http.client.MULTIPLE_CHOICES:  # an API server redirects nothing
                        raise error_of(response.status, await _in_thread(connection, response.read))
                    while part := await _in_thread(connection, response.read1):
                        yield part
                    if response.length:
                        raise http.client.IncompleteRead(b"", response.length)
                finally:
                    connection.close()

    async def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        url: str,
        query: Mapping[str, str] | None,
        body: Any,
        *,
        accept: str = "application/json",
    ) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        target = f"{self._server.path}{url}" + (f"?{urlencode(query)}" if query else "")
        headers = [("Accept", accept), ("User-Agent", self._user_agent), *self.authorization()]
        if data is not None:
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]

        def send() -> http.client.HTTPResponse:
            connection.putrequest(method, target)
            for name, value in headers:
                connection.putheader(name, value.encode())  # names of users are UTF-8
            connection.endheaders(data)
            return connection.getresponse()

        return await _in_thread(connection, send)

    def _connect(self, timeout: float | None) -> http.client.HTTPConnection:
        """Create a connection, which connects on its first request."""
        host = self._server.hostname or ""
        port = self._server.port or (443 if self._tls else 80)
        proxy = urlsplit(self.access.proxy or _proxy_of(self._server.scheme, host))
        connection = _Connection(
            proxy.hostname or host,
            (proxy.port or 80) if proxy.hostname else port,
            tls=self._tls,
            name=self.access.server_name or host,
            timeout=_REQUEST_SECONDS if timeout is None else timeout or None,
        )
        if proxy.hostname:
            connection.set_tunnel(host, port)
        return connection


class _Connection(http.client.HTTPConnection):
    """A connection with or without TLS, and with a separate timeout for connecting."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None, name: str, timeout: float | None) -> None:
        super().__init__(host, port, timeout=_CONNECT_SECONDS)
        self._tls, self._name, self._limit = tls, name, timeout

    def connect(self) -> None:
        """Connect, through the proxy if there is one."""
        self.timeout = _CONNECT_SECONDS
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)
        self.sock.settimeout(self._limit)


def _proxy_of(scheme: str, host: str) -> str:
    """Return the proxy for a host from the environment; empty if there is none, or for this machine."""
    if host in LOOPBACK or not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""

    return "" if request.proxy_bypass(host) else request.getproxies().get(scheme, "")


async def _in_thread(connection: http.client.HTTPConnection, work: Callable[[], _Answer]) -> _Answer:
    """Use a connection in a thread. If that fails or is cancelled, close the connection.

    The thread does not prevent the process from ending, because resolving a host name may take long.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Answer] = loop.create_future()
    abandoned = threading.Event()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 - it is raised where it is awaited
            error = raised
        if abandoned.is_set():  # it may have connected or started to read by now
            if isinstance(result, http.client.HTTPResponse):
                result.close()
            connection.close()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return await done
    except BaseException:
        abandoned.set()
        if connection.sock is not None:
            _shut(connection.sock)
        connection.close()
        raise


def _shut(sock: socket.socket) -> None:
    """Wake the thread that reads from a socket."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is already closed
