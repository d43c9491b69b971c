"""The requests of other runs, of Schedules, of Operations, and of clients to runs: sent, withdrawn, acknowledged."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from perdure.api.reasons import ConditionReason
from perdure.controller.informers.fleet_runs import FleetRuns, key_of
from perdure.controller.informers.index import Index
from perdure.controller.queue.keyed_queue import KeyedQueue
from perdure.controller.queue.keys import Key
from perdure.controller.run_entries import Entry
from perdure.controller.runs.run import Run
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.kube import client as kube

_RETRY_SECONDS = 1.0


class RequestDelivery:
    """Brings requests to runs, whether this process already works on them or not."""

    def __init__(
        self,
        index: Index,
        fleet: FleetRuns,
        queue: KeyedQueue[Key],
        find: Callable[[Entry], Awaitable[Run | None]],
    ) -> None:
        """Create a sender that has sent nothing yet.

        Args:
            index: The runs that this process works on.
            fleet: Which runs other members of a fleet work on.
            queue: The queue of their keys.
            find: Returns a run of this process, which reads it first if it does not work on it; None if it was deleted.
        """
        self._index = index
        self._fleet = fleet
        self._queue = queue
        self._find = find
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("perdure.runs")

    def send(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Send a run a request; `then` is called with its answer, once that is recorded."""
        self._start(self._send(entry, request, then))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        try:
            await self.deliver(entry, request, then)
        except (kube.ApiError, *kube.TRANSIENT) as error:
            self._log.warning("Could not send a request to a run, retrying", run=entry.name, error=repr(error))
            await asyncio.sleep(_RETRY_SECONDS)
            self.send(entry, request, then)

    async def deliver(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Send a run a request, and return when it has it: requests that are delivered one after the other stay in order.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: The API server did not respond.
        """
        run = await self._find(entry)
        if run is None:
            message = f"WorkflowRun `{entry.name}` was deleted"
            then(Answer(ok=False, reason=ConditionReason.TARGET_NOT_FOUND, message=message))
            return
        run.ask(request, then)
        self._fleet.asked(run)
        self._wake(run)

    def withdraw(self, run_id: str, request_id: str) -> None:
        """Withdraw a request; what the run has recorded stays done."""
        run = self._index.runs.get(run_id)
        if run is not None:
            run.withdraw(request_id)

    def acknowledge(self, entry: Entry, request_id: str) -> None:
        """Report to a run that the sender has recorded its answer to a request, so the run can forget the request."""
        run = self._index.runs.get(entry.uid)
        if run is not None:
            run.forget(request_id)
            self._fleet.asked(run)
            if self._fleet.is_guest(entry.uid):
                self._wake(run)
        elif entry.uid in self._fleet.others:
            self._start(self._forget_as_guest(entry, request_id))

    async def _forget_as_guest(self, entry: Entry, request_id: str) -> None:
        try:
            run = await self._find(entry)
        except (kube.ApiError, *kube.TRANSIENT):
            await asyncio.sleep(_RETRY_SECONDS)
            self.acknowledge(entry, request_id)
            return
        if run is not None:
            run.forget(request_id)
            self._wake(run)

    def _wake(self, run: Run) -> None:
        self._queue.wake(key_of(run))
