"""The operator as a process in virtual time that can be killed, built from the same parts as `perdure-operator`."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from datetime import datetime, timedelta
from typing import Any, TypeVar

from perdure.controller.informers.informer import Informer
from perdure.controller.workers import NoWorkers, Workers
from perdure.handlers.assembly import OperatorOptions, assemble
from perdure.kube import clock
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.session import Session
from perdure.simulation.cluster.watches import Deliver, Watch

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
        workers: Workers | None = None,
        skew: float = 0.0,
        trace: Trace | None = None,
    ) -> None:
        """Start the process.

        Args:
            options: The options from its environment.
            loop: The event loop.
            server: The API server to watch.
            session: Its connections to the API server.
            crashed: Called if its work ends by itself.
            workers: The server for workers that poll task queues; None: there is none.
            skew: How far its clock is ahead, in seconds.
            trace: Receives the timeline.
        """
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
        self._context.run(self._begin, options, lambda: loop.now() + timedelta(seconds=skew), workers or NoWorkers())

    def _begin(self, options: OperatorOptions, now: Callable[[], datetime], workers: Workers) -> None:
        _process.set(self)
        clock.source.set(now)
        client = Client(Access(server=""), self._session)  # type: ignore[arg-type] # stands in for aiohttp's
        self.manager, self.operations = assemble(client, options, workers)
        for each in (self.manager, self.operations):
            self._loop.create_task(each.run()).add_done_callback(self._ended)
        for informer in (*self.manager.informers.values(), self.operations.informer):
            seen = self.watch(informer.plural, informer.label, self._deliver(informer))
            self.watches.append(seen)
            seen.start()

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
            self._context.run(informer.on_event, obj, deleted=type_ == "DELETED")

        return deliver

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
