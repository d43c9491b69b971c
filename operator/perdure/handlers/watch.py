"""Watch through kopf: its login, its settings, one handler for each kind, and the feed that lists and watches in its place.

kopf only watches: the handlers pass watch events on and write nothing, so kopf patches nothing. It reaches the API server through
our feed and client.

By itself, kopf would list and watch whole objects, decode them with the standard library, and end the process if one cannot be
decoded. The feed takes the place of the HTTP session that kopf would use: it sits between the API server and kopf's handlers,
which remain the entry points. It receives kopf's request to watch a kind (`settings.watching.initial_streaming`) and responds
with a stream of watch events:

- A kind is listed page by page. Objects that kopf does not need, such as finished runs, are left out (see `ObjectFilter`).
- The kind is watched from the version of that list. Each event is decoded separately; undecodable objects are reported and
  left out. An event that only repeats a write of this process, or shows a run of another member of the fleet, is left out
  too, because there is nothing to handle.
- Failed requests are retried here. A process that cannot reach the API server stays alive, and its probes report it.

All other requests of kopf pass through unchanged.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast
from urllib.parse import parse_qsl, urlsplit

import kopf
import orjson
import structlog

# kopf accepts such an object, but does not export its class.
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from perdure.api.labels import RUN_ID_LABEL
from perdure.controller.informers import Informer
from perdure.kube import client as kube
from perdure.kube.responses import UndecodableError, decode, undecodable

_BACKOFF: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between retries; the last value repeats."""
_BREATH: Final = 50
"""The number of listed objects that are passed to kopf before its handlers run."""
_GONE: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n'
"""The event that makes kopf list the kind again."""
_HTTP_GONE: Final = 410
WRITTEN: Final = frozenset({"ADDED", "MODIFIED"})
"""Types of the events that a write causes."""


class ObjectFilter(Protocol):
    """Keeps objects that kopf does not need from its handlers."""

    async def list_version(self, plural: str, namespace: str | None) -> str:
        """The version of a list of this kind that was already read, to continue from; empty if there is none."""
        ...

    def process_listed(self, plural: str, obj: kube.Object) -> bool:
        """Process an object of a list if kopf does not need it; return whether it was processed."""
        ...

    def process_change(self, plural: str, obj: kube.Object) -> bool:
        """Process a change that no handler needs; return whether it was processed, so that kopf does not get the event."""
        ...


class Feed:
    """The HTTP session that kopf gets."""

    def __init__(
        self,
        client: kube.Client,
        objects: ObjectFilter,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create a feed.

        Args:
            client: The client; it has its own unlimited pool, because each watch holds a connection.
            objects: What does not reach kopf.
            sleep: Waits a number of seconds before a kind is listed again.
        """
        self.headers = client.connection.session.headers
        self.closed = False
        self._client = client
        self._filter = objects
        self._sleep = sleep
        self._versions: dict[str, str] = {}
        """The version from which the watch of a kind continues, by path; missing while the kind must be listed."""
        self._failing: dict[str, str] = {}
        """Why a kind cannot be listed or watched, by path."""

    def trouble(self) -> str | None:
        """Why a kind cannot be listed or watched; None if all can."""
        return next((f"cannot watch {path}: {problem}" for path, problem in self._failing.items()), None)

    async def close(self) -> None:
        """Do nothing: kopf closes its session when it ends, but the connections belong to the client."""
        self.closed = True

    async def request(self, method: str, url: str, **options: Any) -> Any:
        """Send a request, like `aiohttp.ClientSession.request`. The response to a watch is a stream of this adapter."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        if query.get("watch") != "true":
            headers = {**(options.pop("headers", None) or {}), **self._client.connection.authorization()}
            session = self._client.connection.session
            return await session.request(method, url, headers=headers, allow_redirects=False, **options)
        path = parts.path.removeprefix(urlsplit(self._client.access.server).path.rstrip("/"))
        if "sendInitialEvents" in query:
            self._versions.pop(path, None)
        return _Stream(self._events(path, query))

    async def _events(self, path: str, query: dict[str, str]) -> AsyncIterator[bytes]:
        """Yield the events of a kind, each as a line of JSON, until the watch reaches its timeout."""
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
            except kube.NoResponseError as error:
                problem = repr(error)
            else:
                return
            pause = _BACKOFF[min(tries, len(_BACKOFF) - 1)]
            tries += 1
            self._failing[path] = problem
            log.warning("Could not list or watch, retrying", path=path, error=problem, backoff=pause)
            await self._sleep(pause)

    async def _list(self, path: str, query: dict[str, str]) -> AsyncIterator[bytes]:
        """List a kind and record its version."""
        namespace, plural = _place(path)
        version = await self._filter.list_version(plural, namespace)
        selectors = {key: query[key] for key in ("labelSelector", "fieldSelector") if key in query}
        if not version:
            async for page in self._client.lists.pages(path, **selectors):
                version = page.version
                # The API server omits these in list items of built-in kinds.
                head = f'{{"type":"ADDED","object":{{"kind":"{page.kind}","apiVersion":"{page.api_version}",'.encode()
                for number, (raw, obj) in enumerate(self._client.lists.objects(page)):
                    if not self._filter.process_listed(plural, obj):
                        listed = {"kind": page.kind, "apiVersion": page.api_version, **obj}
                        yield _line({"type": "ADDED", "object": listed}, head + bytes(raw).lstrip()[1:] + b"}")
                    if number % _BREATH == 0:
                        await asyncio.sleep(0)
        self._versions[path] = version
        yield b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%s"}}}\n' % version.encode()

    async def _watch(self, path: str, query: dict[str, str]) -> AsyncIterator[bytes]:
        """Watch a kind from the recorded version."""
        parameters = {
            key: value for key, value in query.items() if key not in {"sendInitialEvents", "resourceVersionMatch"}
        }
        _, plural = _place(path)
        async for raw in self._client.watch(path, **{**parameters, "resourceVersion": self._versions[path]}):
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
                known = event["type"] in WRITTEN and self._filter.process_change(plural, obj)
                if not known:
                    yield _line(event, raw)
            # Record the version only now, so that an event that kopf has not received is sent again.
            self._versions[path] = obj["metadata"]["resourceVersion"]


class _Stream:
    """A response with the methods of aiohttp's that kopf uses."""

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
        """Yield the events one by one."""
        del size
        async for line in self._lines:
            if self.closed:
                return
            yield line


def _line(event: kube.Object, raw: bytes) -> bytes:
    """Encode an event as a line for kopf.

    kopf decodes numbers beyond 64 bits as integers, which the encoders here do not support. Encoding the decoded event avoids
    this, and makes the values that a run sees independent of how the run was read.

    Args:
        event: The decoded event.
        raw: The original text, for events that nest too deeply to be encoded.
    """
    try:
        return orjson.dumps(event) + b"\n"
    except orjson.JSONEncodeError:
        return raw.replace(b"\n", b"") + b"\n"


def _place(path: str) -> tuple[str | None, str]:
    """Split the path of a collection into namespace and plural."""
    *rest, plural = path.strip("/").split("/")
    return (rest[-1] if len(rest) > 1 and rest[-2] == "namespaces" else None), plural


# kopf accepts such an object, but does not export its class.


class NoMemories(ResourceMemories):
    """Keeps no memory of objects between events, which would take kilobytes for each finished run until it is deleted."""

    async def recall(
        self,
        raw_body: kopf.RawBody,
        *,
        memobase: Any = None,
        noticed_by_listing: bool = False,
        ephemeral: bool = False,  # noqa: ARG002
    ) -> ResourceMemory:
        """Return a memory for this event only."""
        return await super().recall(raw_body, memobase=memobase, noticed_by_listing=noticed_by_listing, ephemeral=True)


class ForeignTasks(frozenset[asyncio.Task[Any]]):
    """The tasks that kopf must not cancel at its end: all tasks that kopf has not named.

    kopf would cancel every task younger than itself. Tasks in which gRPC waits for calls must not be cancelled while its server
    runs: gRPC's core writes into their memory, even after it is freed.
    """

    def __contains__(self, task: object) -> bool:
        return True


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores no last configuration, because no change handlers need one."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:  # noqa: ARG002
        """Return an empty essence."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002
        """Nothing is remembered."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is stored."""


class NoProgress(kopf.ProgressStorage):
    """Stores no progress, because event handlers have none."""

    def fetch(self, *, key: str, body: kopf.Body) -> kopf.ProgressRecord | None:  # noqa: ARG002
        """Nothing is remembered."""
        return None

    def store(self, *, key: str, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing is stored."""

    def purge(self, *, key: str, body: kopf.Body, patch: kopf.Patch) -> None:
        """Do nothing."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Do nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the essence unchanged."""
        return essence


def settings() -> kopf.OperatorSettings:
    """Settings for an operator that watches through kopf and writes with its own client."""
    chosen = kopf.OperatorSettings()
    chosen.persistence.diffbase_storage = NoDiffBase()
    chosen.persistence.progress_storage = NoProgress()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    # End the worker task of an idle object early: kopf's default of 5 s costs memory with thousands of objects.
    chosen.queueing.idle_timeout = 0.2
    chosen.queueing.worker_limit = None
    # Select pods of runs on the server; the handler's own filter would only apply on the client.
    chosen.watching.label_selectors["pods"] = RUN_ID_LABEL
    # The feed lists page by page in place of a list by kopf (perdure.handlers.watch).
    chosen.watching.initial_streaming = True
    # A connection that is silent for longer than the interval of bookmarks is dead.
    chosen.watching.inactivity_timeout = 70.0
    chosen.watching.server_timeout = 240
    chosen.watching.connect_timeout = 5
    chosen.networking.request_timeout = 30
    chosen.networking.connect_timeout = 5
    # For requests that the feed passes through. After these retries, kopf gives up and the kubelet restarts the process.
    chosen.networking.error_backoffs = [0.2, 0.5, 1, 2, 5, 10, 20]
    # The process ends when its work is cancelled, so no timer must kill it later.
    chosen.process.ultimate_exiting_timeout = None
    return chosen


def register_login(registry: kopf.OperatorRegistry, server: str, feed: Feed) -> None:
    """Make kopf send its requests through `feed`, which has its own credentials.

    Args:
        registry: The registry of kopf's handlers.
        server: Address of the API server.
        feed: The replacement for an HTTP session.
    """

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=server, aiohttp_session=cast("Any", feed))


def register(registry: kopf.OperatorRegistry, informers: Iterable[Informer]) -> None:
    """Register a handler for each kind that the operator watches."""
    for informer in informers:
        _register(registry, informer)


def _register(registry: kopf.OperatorRegistry, informer: Informer) -> None:
    labels = {informer.label: kopf.PRESENT} if informer.label else None

    @kopf.on.event(
        informer.group,
        informer.version,
        informer.plural,
        id=f"{informer.plural}_events",
        labels=labels,
        registry=registry,
    )
    async def on_event(event: kopf.RawEvent, **_: Any) -> None:
        informer.on_event(dict(event["object"]), deleted=event["type"] == "DELETED")
