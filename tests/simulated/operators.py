"""The operator as a process of the simulation: its own parts, put together as `perdure-operator` does, which can be killed."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

import kopf

from perdure.controller.workers import NoWorkers
from perdure.frontend.server import Frontend
from perdure.handlers import watch
from perdure.handlers.main import Options, assemble
from perdure.kube import clock
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.runtime.retention import Limits
from simulated.apiserver import ApiServer
from simulated.faults import Faults
from simulated.loop import Loop
from simulated.session import Session, Trace
from simulated.watches import Watch

_Result = TypeVar("_Result")
_process: ContextVar["Operator | None"] = ContextVar("process", default=None)


def task_factory(loop: asyncio.AbstractEventLoop, coro: Any, context: Context | None = None) -> asyncio.Task[Any]:
    """Makes tasks that the process they belong to knows of, so that they end with it."""
    context = context or copy_context()
    task = asyncio.Task(coro, loop=loop, context=context)
    process = context.get(_process)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
    return task


class Operator:
    """One process of the operator, from its start until it is killed."""

    def __init__(
        self,
        name: str,
        loop: Loop,
        random: Random,
        server: ApiServer,
        faults: Faults,
        *,
        lag: float,
        skew: float,
        limits: Limits,
        trace: Trace,
        crashed: Callable[[str], None],
        frontend: Frontend | None = None,
        namespaces: tuple[str, ...] = (),
    ) -> None:
        """Start it.

        Args:
            name: Who writes, in traces.
            loop: Runs it.
            random: Decides what its watches do.
            server: The API server.
            faults: What goes wrong with its requests.
            lag: Mean delay of its watches, seconds.
            skew: Seconds that its clock is ahead.
            limits: What each namespace may keep of its finished runs.
            trace: Takes the timeline.
            crashed: Called if its work ends by itself.
            frontend: Serves Temporal SDKs; None: they are not served.
            namespaces: What it watches; none: the whole cluster.
        """
        self.name = name
        self.tasks: set[asyncio.Task[Any]] = set()
        self._loop = loop
        self._random = random
        self._trace = lambda line, about: trace(f"{name:4} {line}", about)
        self._crashed = crashed
        self._session = Session(loop, server, faults, name, self._trace)
        self._context = copy_context()
        self._watches: list[Watch] = []
        options = Options(namespaces=namespaces, instance=name, finished=limits)
        self._context.run(self._begin, server, options, lag, lambda: loop.now() + timedelta(seconds=skew), frontend)

    def _begin(
        self, server: ApiServer, options: Options, lag: float, now: Callable[[], datetime], frontend: Frontend | None
    ) -> None:
        _process.set(self)
        clock.source.set(now)
        client = Client(Access(server=""), self._session)  # type: ignore[arg-type] # stands in for aiohttp's
        self.manager, self.operations = assemble(client, options, frontend or NoWorkers())
        if frontend is not None:
            frontend.attach(self.manager)
        registry = kopf.OperatorRegistry()
        watch.register(registry, self.manager, self.operations)
        self._work = [self._loop.create_task(each.run()) for each in (self.manager, self.operations)]
        for task in self._work:
            task.add_done_callback(self._ended)
        for handler in registry._watching.get_all_handlers():
            plural = str(handler.selector.any_name)
            label = next(iter(handler.labels or ()), None)
            deliver = self._deliver(handler.fn, plural)
            seen = Watch(self._loop, self._random, server, plural, label=label, lag=lag, deliver=deliver)
            self._watches.append(seen)
            seen.start()

    def _deliver(self, handle: Callable[..., Any], plural: str) -> Callable[[str | None, dict[str, Any]], None]:
        def deliver(type_: str | None, obj: dict[str, Any]) -> None:
            meta = obj["metadata"]
            told = "terminating, " if "deletionTimestamp" in meta else ""
            phase = (obj.get("status") or {}).get("phase", "")
            line = f"hears {type_ or 'LISTED'} {plural} {meta['name']} {told}{phase} v{meta['resourceVersion']}"
            self._trace(line, str(meta))
            coroutine = handle(event={"type": type_, "object": obj})
            try:
                self._context.run(coroutine.send, None)
            except StopIteration:
                return
            raise AssertionError("a handler waits: it may only pass on what it sees")

        return deliver

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not self._session.dead:
            error = "it was cancelled" if task.cancelled() else repr(task.exception())
            self._crashed(f"operator {self.name} has ended by itself: {error}")

    def do(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Do something in this process, as its frontend does."""
        return self._loop.create_task(work, context=self._context.copy())

    def interrupt(self, seconds: float, plural: str = "") -> None:
        """Break the connections of its watches: those of a kind; else of all, or of one that the seed chooses."""
        if plural:
            chosen = [each for each in self._watches if each.plural == plural]
        else:
            chosen = self._watches if self._random.random() < 0.5 else [self._random.choice(self._watches)]
        for each in chosen:
            each.interrupt(seconds)

    def freeze(self, seconds: float) -> None:
        """Have it stand still as seen from outside: it takes no answers, and hears nothing for a while."""
        self._session.freeze(seconds)
        for each in self._watches:
            each.interrupt(seconds)

    async def kill(self) -> None:
        """End the process: everything in its memory is gone. What it has sent may still arrive."""
        self._trace("KILLED", "")
        self._session.dead = True
        for each in self._watches:
            each.stop()
        while self.tasks:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
