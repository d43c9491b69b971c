"""The operator as a process in virtual time that can be killed, built from the same parts as `perdure-operator`.

It reaches the in-memory API server by a `Session`, which replaces `aiohttp.ClientSession` in the operator's own client, and by
one `Watch` for each kind.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from datetime import datetime, timedelta
from email.utils import format_datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from perdure.archive.rows import Archive
from perdure.controller.informers import Informer
from perdure.controller.manager import Manager
from perdure.controller.workers import Workers
from perdure.handlers.assembly import OperatorOptions, assemble
from perdure.kube import clock
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.simulation.cluster.apiserver import ApiServer, Request, Response
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.patches import copy
from perdure.simulation.cluster.store import Write


class Session:
    """The connections of one process. Requests take no time. Once the process is dead, no request or response arrives."""

    def __init__(self, server: ApiServer, actor: str) -> None:
        """Open the connections of a client named `actor`."""
        self.server = server
        self._actor = actor
        self.dead = False
        self.headers: dict[str, str] = {}

    def request(
        self,
        method: str,
        url: str,
        *,
        params: dict[str, str] | None = None,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
        **_: Any,
    ) -> "_Exchange":
        """Send a request, like `aiohttp.ClientSession.request`."""
        request = Request(
            method=method, url=url, query=params or {}, headers=headers or {}, body=data or b"", actor=self._actor
        )
        return _Exchange(self, request)

    def get(self, url: str, **options: Any) -> "_Exchange":
        """Send a GET request, like `aiohttp.ClientSession.get`."""
        return self.request("GET", url, **options)

    async def exchange(self, request: Request) -> Response:
        """Send a request, and wait for its response."""
        if self.dead:
            raise asyncio.CancelledError
        return self.arrive(request)

    def arrive(self, request: Request) -> Response:
        """Pass a request that has arrived to the API server."""
        return self.server.handle(request)


class _Exchange:
    """The context manager and response of a request, like those of aiohttp."""

    def __init__(self, session: Session, request: Request) -> None:
        self._session = session
        self._request = request
        self._answer = Response(0, b"")

    async def __aenter__(self) -> Self:
        self._answer = await self._session.exchange(self._request)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> dict[str, str]:
        """What the operator reads of them: the time of the API server."""
        return {"Date": format_datetime(self._session.server.loop.now(), usegmt=True)}

    @property
    def content(self) -> Self:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._answer.body

    def close(self) -> None:
        """Discard the rest of the response."""

    async def read(self) -> bytes:
        return self._answer.body


Deliver = Callable[[str | None, dict[str, Any]], None]
"""Receives the type of an event (None for an object of the first list) and the object."""


class Watch:
    """The watch of a process on a kind: it delivers all events immediately and in order."""

    def __init__(
        self, loop: ClusterLoop, server: ApiServer, plural: str, *, label: str | None, deliver: Deliver
    ) -> None:
        """Deliver only objects that have the label `label`; None: all objects."""
        self.loop = loop
        self.plural = plural
        self._server = server
        self._label = label
        self._deliver = deliver
        self.open = True

    def start(self) -> None:
        """List the objects, and receive the events that follow."""
        self._server.observers.append(self._observe, self.plural)
        self.list()

    def stop(self) -> None:
        """Receive no more events, and drop the events that are not delivered yet."""
        self.open = False
        self._server.observers.remove(self._observe)

    def list(self) -> None:
        """Deliver all existing objects."""
        for obj in self._server.of(self.plural):
            self._queue(None, obj)

    def _observe(self, write: Write) -> None:
        if self.is_connected():
            self._queue(write.type, write.after)

    def _queue(self, type_: str | None, obj: dict[str, Any]) -> None:
        if self._label is None or self._label in (obj["metadata"].get("labels") or {}):
            self.schedule(type_, obj)

    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return True

    def schedule(self, type_: str | None, obj: dict[str, Any]) -> None:
        """Schedule the delivery of an event."""
        self.loop.call_soon(self.deliver, type_, obj)

    def deliver(self, type_: str | None, obj: dict[str, Any]) -> None:
        """Deliver an event, unless the watch has been stopped."""
        if self.open:
            self._deliver(type_, copy(obj))


Trace = Callable[[str, str], None]
"""Receives a line of the timeline, and the text to find the line by."""

_Result = TypeVar("_Result")
_process: ContextVar["Operator | None"] = ContextVar("process", default=None)


def task_factory(loop: asyncio.AbstractEventLoop, coro: Any, context: Context | None = None) -> asyncio.Task[Any]:
    """Create a task and register it with its process, so that the task ends with the process."""
    context = context or copy_context()
    task = asyncio.Task(coro, loop=loop, context=context)
    process = context.get(_process)
    if process is not None:
        process.add(task)
    return task


class Operator:
    """One process of the operator, from its start until it is killed."""

    def __init__(
        self,
        options: OperatorOptions,
        loop: ClusterLoop,
        server: ApiServer,
        session: Session,
        *,
        crashed: Callable[[str], None],
        frontend: Callable[[Manager], Workers] | None = None,
        skew: float = 0.0,
        trace: Trace | None = None,
        archive: Archive | None = None,
    ) -> None:
        """Start the process.

        Args:
            options: The options from its environment.
            loop: The event loop.
            server: The API server to watch.
            session: Its connections to the API server.
            crashed: Called if its work ends by itself.
            frontend: Creates the server for workers that poll task queues; None: there is none.
            skew: How far its clock is ahead, in seconds.
            trace: Receives the timeline.
            archive: Archives finished runs; None without an archive.
        """
        self._archive = archive
        self.name = options.instance
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In order, so that a simulation ends them in the same order each time."""
        self.watches: list[Watch] = []
        self._loop = loop
        self._server = server
        self._session = session
        self._trace = trace
        self._crashed = crashed
        self._context = copy_context()
        self._context.run(self._begin, options, lambda: loop.now() + timedelta(seconds=skew), frontend)

    def _begin(
        self, options: OperatorOptions, now: Callable[[], datetime], frontend: Callable[[Manager], Workers] | None
    ) -> None:
        _process.set(self)
        clock.source.set(now)
        client = Client(Access(server=""), self._session)  # type: ignore[arg-type] # stands in for aiohttp's
        self.manager, self.operations = assemble(client, options, self._archive)
        if frontend is not None:
            self.manager.attach(frontend(self.manager))
        for each in (self.manager, self.operations):
            self._loop.create_task(each.run()).add_done_callback(self._ended)
        for informer in (*self.manager.informers.values(), self.operations.informer):
            watch = self.watch(informer.plural, informer.label, self._deliver(informer))
            self.watches.append(watch)
            watch.start()

    def watch(self, plural: str, label: str | None, deliver: Deliver) -> Watch:
        """Create a watch on one kind."""
        return Watch(self._loop, self._server, plural, label=label, deliver=deliver)

    def _deliver(self, informer: Informer) -> Deliver:
        def deliver(type_: str | None, obj: dict[str, Any]) -> None:
            meta = obj["metadata"]
            if self._trace is not None:
                deleting = "terminating, " if "deletionTimestamp" in meta else ""
                phase = (obj.get("status") or {}).get("phase", "")
                line = f"watch {type_ or 'LISTED'} {informer.plural} {meta['name']} {deleting}{phase} v{meta['resourceVersion']}"
                self._trace(line, str(meta))
            self._context.run(self.process, informer, type_, obj)

        return deliver

    def process(self, informer: Informer, type_: str | None, obj: dict[str, Any]) -> None:
        """Pass an event to its informer."""
        informer.on_event(obj, deleted=type_ == "DELETED")

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not self._session.dead:
            error = "it was cancelled" if task.cancelled() else repr(task.exception())
            self._crashed(f"operator {self.name} has ended by itself: {error}")

    def do(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Run a coroutine in this process, as its frontend does."""
        return self._loop.create_task(work, context=self._context.copy())

    def add(self, task: asyncio.Task[Any]) -> None:
        """Add a task, which ends with this process."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def kill(self) -> None:
        """Kill the process. Its memory is lost, but requests that it sent may still arrive."""
        if self._trace is not None:
            self._trace("KILLED", "")
        self._session.dead = True
        for each in self.watches:
            each.stop()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
