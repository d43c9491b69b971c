"""Lists and watches for kopf, in the place of the HTTP session that kopf would use.

kopf lists and watches whole objects, decodes them with the standard library, and ends the process if one cannot be decoded. This
adapter stands between the API server and kopf's handlers, which stay the entry points. It takes kopf's request to watch a kind
(`settings.watching.initial_streaming`) and answers with a stream of watch events:

- A kind is listed page by page. Objects that kopf does not need, such as finished runs, are left out (`Taken`).
- The kind is watched from the version of that list on. Each event is decoded by itself; what cannot be decoded is reported and
  left out. An event that only repeats what this process has written is taken out, too: there is nothing to handle.
- Trouble with the API server is retried here. A process that cannot reach it stays alive, and its probes say so.

All other requests of kopf pass through unchanged.
"""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import parse_qsl, urlsplit

import orjson
import structlog

from perdure.kube import client as kube
from perdure.kube.decoding import UndecodableError, decode, undecodable

_BACKOFF: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between tries, the last of them for good."""
_BREATH: Final = 50
"""The number of listed objects that are passed to kopf before its handlers run."""
_GONE: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n'
"""Makes kopf begin again with a list."""
_HTTP_GONE: Final = 410
_WRITTEN: Final = frozenset({"ADDED", "MODIFIED"})
"""Types of the events that a write causes."""


class ObjectTaker(Protocol):
    """Who knows some objects without kopf."""

    async def listed(self, plural: str, namespace: str | None) -> str:
        """The version of a list of that kind that was read, whose objects are known; empty if there is none to continue."""
        ...

    def takes(self, plural: str, obj: kube.Object) -> bool:
        """Take an object of a list if kopf does not need it."""
        ...

    def knows(self, plural: str, obj: kube.Object) -> bool:
        """Take an object of a watch if this process has just written or read this version; kopf does not need it."""
        ...


class Feed:
    """What kopf is given as its HTTP session."""

    def __init__(self, client: kube.Client, taken: ObjectTaker) -> None:
        """`client` has a pool of its own, without a limit: a watch holds its connection."""
        self.headers = client.connection.session.headers
        self.closed = False
        self._client = client
        self._taken = taken
        self._versions: dict[str, str] = {}
        """By path of a kind, the version from which its watch continues; absent while it must be listed."""
        self._failing: dict[str, str] = {}
        """By path of a kind, why it cannot be listed or watched."""

    def trouble(self) -> str | None:
        """Why a kind cannot be listed or watched; None while all can."""
        return next((f"cannot watch {path}: {problem}" for path, problem in self._failing.items()), None)

    async def close(self) -> None:
        """Do nothing: kopf closes its session when it ends, but the connections belong to the client."""
        self.closed = True

    async def request(self, method: str, url: str, **options: Any) -> Any:
        """As `aiohttp.ClientSession.request`; a request to watch is answered with a stream of this adapter."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        if query.get("watch") != "true":
            headers = {**(options.pop("headers", None) or {}), **self._client.connection.authorization()}
            return await self._client.connection.session.request(method, url, headers=headers, **options)
        path = parts.path.removeprefix(urlsplit(self._client.access.server).path.rstrip("/"))
        if "sendInitialEvents" in query:
            self._versions.pop(path, None)
        return _Stream(self._events(path, query))

    async def _events(self, path: str, query: dict[str, str]) -> AsyncIterator[bytes]:
        """The events of a kind, each a line of JSON, until the watch has had its time."""
        log = structlog.get_logger("perdure.feed")
        tries = 0
        while True:
            try:
                if path not in self._versions:
                    async for line in self._list(path, query):
                        yield line
                self._failing.pop(path, None)
                async for line in self._watch(path, query):
                    yield line
                    tries = 0
                    self._failing.pop(path, None)
            except kube.ApiError as error:
                if error.status == _HTTP_GONE:
                    self._versions.pop(path, None)
                    yield _GONE
                    return
                problem = f"{error.status} {error.message}"
            except kube.TRANSIENT as error:
                problem = repr(error)
            else:
                return
            pause = _BACKOFF[min(tries, len(_BACKOFF) - 1)]
            tries += 1
            self._failing[path] = problem
            log.warning("Could not list or watch, trying again", path=path, error=problem, backoff=pause)
            await asyncio.sleep(pause)

    async def _list(self, path: str, query: dict[str, str]) -> AsyncIterator[bytes]:
        """List a kind; afterwards its version is known."""
        namespace, plural = _place(path)
        version = await self._taken.listed(plural, namespace)
        selectors = {key: query[key] for key in ("labelSelector", "fieldSelector") if key in query}
        if not version:
            async for page in self._client.lists.pages(path, **selectors):
                version = page.version
                # The API server leaves these out of the items of its own kinds.
                head = f'{{"type":"ADDED","object":{{"kind":"{page.kind}","apiVersion":"{page.api_version}",'.encode()
                for number, (raw, obj) in enumerate(self._client.lists.objects(page)):
                    if not self._taken.takes(plural, obj):
                        whole = {"kind": page.kind, "apiVersion": page.api_version, **obj}
                        yield _line({"type": "ADDED", "object": whole}, head + bytes(raw).lstrip()[1:] + b"}")
                    if number % _BREATH == 0:
                        await asyncio.sleep(0)
        self._versions[path] = version
        yield b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%s"}}}\n' % version.encode()

    async def _watch(self, path: str, query: dict[str, str]) -> AsyncIterator[bytes]:
        """Watch a kind from the version that is known on."""
        asked = {key: value for key, value in query.items() if key not in {"sendInitialEvents", "resourceVersionMatch"}}
        _, plural = _place(path)
        async for raw in self._client.watch(path, **{**asked, "resourceVersion": self._versions[path]}):
            try:
                event = decode(raw)
            except UndecodableError as error:
                found = undecodable(raw, str(error))
                self._client.lists.skip(found)
                if found.stored is not None:
                    self._versions[path] = found.stored.version
                continue
            obj = event["object"]
            if event["type"] == "ERROR":
                raise kube.ApiError(int(obj.get("code") or 0), str(obj.get("reason")), str(obj.get("message")))
            if self._client.lists.concerns(kube.namespace_of(obj)):
                known = event["type"] in _WRITTEN and self._taken.knows(plural, obj)
                if not known:
                    yield _line(event, raw)
            # Only now: an event that kopf has not taken comes again.
            self._versions[path] = obj["metadata"]["resourceVersion"]


class _Stream:
    """The part of an aiohttp response that kopf reads."""

    status: Final = 200

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self.content = self
        self.closed = False
        self._lines = lines

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the stream."""
        self.closed = True

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """One event after the other."""
        del size
        async for line in self._lines:
            if self.closed:
                return
            yield line


def _line(event: kube.Object, raw: bytes) -> bytes:
    """An event as a line for kopf, written again from what was decoded.

    For the decoder of kopf, numbers beyond 64 bits are integers, which nothing here can write. And what a run sees must not
    depend on how it was read.

    Args:
        event: The event, decoded.
        raw: The same as the API server wrote it, for what nests too deep to be written again.
    """
    try:
        return orjson.dumps(event) + b"\n"
    except orjson.JSONEncodeError:
        return raw.replace(b"\n", b"") + b"\n"


def _place(path: str) -> tuple[str | None, str]:
    """Namespace and plural of the path of a collection."""
    *rest, plural = path.strip("/").split("/")
    return (rest[-1] if len(rest) > 1 and rest[-2] == "namespaces" else None), plural
