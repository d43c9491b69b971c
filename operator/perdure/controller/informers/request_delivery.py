"""Send, withdraw, and acknowledge the requests of other runs, Schedules, Operations, and clients to runs."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry
from perdure.controller.informers.fleet_runs import FleetRuns, key_of
from perdure.controller.informers.index import Index
from perdure.controller.queue.keyed_queue import KeyedQueue
from perdure.controller.queue.keys import Key
from perdure.controller.runs.run import Run
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.kube import client as kube

_RETRY_SECONDS = 1.0


class RequestDelivery:
    """Delivers requests to runs, whether or not this process already works on them."""

    def __init__(
        self,
        index: Index,
        fleet: FleetRuns,
        queue: KeyedQueue[Key],
        find: Callable[[Entry], Awaitable[Run | None]],
    ) -> None:
        """Create a sender without requests.

        Args:
            index: The runs that this process works on.
            fleet: The runs of other members of a fleet.
            queue: The queue of their keys.
            find: Finds a run, and reads it first if this process does not work on it; None if it was deleted.
        """
        self._index = index
        self._fleet = fleet
        self._queue = queue
        self._find = find
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("perdure.runs")

    def send(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Send a request to a run; `then` is called with its answer once the answer is recorded."""
        self._start(self._send(entry, request, then))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        try:
            await self.deliver(entry, request, then)
        except kube.RequestError as error:
            self._log.warning("Could not send a request to a run, retrying", run=entry.name, error=repr(error))
            await asyncio.sleep(_RETRY_SECONDS)
            self.send(entry, request, then)

    async def deliver(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Send a request to a run, and return when the run has it. So requests that are delivered in sequence stay in order.

        Raises:
            RequestError: The API server did not respond.
        """
        run = await self._find(entry)
        if run is None:
            message = f"WorkflowRun `{entry.name}` was deleted"
            then(Answer(ok=False, reason=ConditionReason.TARGET_NOT_FOUND, message=message))
            return
        run.ask(request, then)
        self._fleet.requested(run)
        self._wake(run)

    def withdraw(self, run_id: str, request_id: str) -> None:
        """Withdraw a request, unless the run has already recorded it."""
        run = self._index.runs.get(run_id)
        if run is not None:
            run.withdraw(request_id)

    def acknowledge(self, entry: Entry, request_id: str) -> None:
        """Report to a run that the sender has recorded its answer to a request, so that the run can drop the request."""
        run = self._index.runs.get(entry.uid)
        if run is not None:
            run.forget(request_id)
            self._fleet.requested(run)
            if self._fleet.is_guest(entry.uid):
                self._wake(run)
        elif entry.uid in self._fleet.others:
            self._start(self._forget_as_guest(entry, request_id))

    async def _forget_as_guest(self, entry: Entry, request_id: str) -> None:
        try:
            run = await self._find(entry)
        except kube.RequestError:
            await asyncio.sleep(_RETRY_SECONDS)
            self.acknowledge(entry, request_id)
            return
        if run is not None:
            run.forget(request_id)
            self._wake(run)

    def _wake(self, run: Run) -> None:
        self._queue.wake(key_of(run))
