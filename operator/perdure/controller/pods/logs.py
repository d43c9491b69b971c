"""Read the logs of failed attempts in the background, so that an unresponsive node delays nothing else.

A failure is recorded with the end of its container's log. If the log cannot be read soon, the failure is recorded without it.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from perdure.controller.queue.fairness import FairPool
from perdure.kube import client as kube
from perdure.observe import metrics
from perdure.runtime.outcomes import tail

_SLOTS, _EACH = 16, 8
"""Maximum number of logs that are read concurrently, in total and per namespace."""
_READ_SECONDS = 3.0
"""Timeout for reading the end of a log from a node."""
PATIENCE = timedelta(seconds=10)
"""How long the outcome of an attempt waits for its log, including the time in the queue."""


class Logs:
    """Reads the ends of logs, for all runs."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._pool = FairPool(slots=_SLOTS, each=_EACH)

    def read(self, pod: kube.Object, container: str) -> asyncio.Future[str | None]:
        """Read the end of a container's log; the future's result is None if the node does not provide it in time."""
        future = self._pool.submit(pod["metadata"]["namespace"], lambda: self._read(pod, container))
        metrics.LOGS_WAITING.set(len(self._pool))
        return future

    async def _read(self, pod: kube.Object, container: str) -> str | None:
        metrics.LOGS_WAITING.set(len(self._pool))
        meta = pod["metadata"]
        url = kube.path(kube.CORE, meta["namespace"], "pods", meta["name"], "log")
        try:
            async with asyncio.timeout(_READ_SECONDS):
                text = await self._client.text(url, container=container, tailLines="200", limitBytes=str(1 << 20))
        except (kube.RequestError, TimeoutError):
            return None
        return tail(text) or None


class LogsOfRun:
    """The logs of one run."""

    def __init__(self, logs: Logs, wake: Callable[[], None]) -> None:
        """Create it without logs; `wake` requests another reconciliation of the run."""
        self._logs = logs
        self._wake = wake
        self._readings: dict[str, tuple[datetime, asyncio.Future[str | None]]] = {}

    def tail(self, pod: kube.Object, container: str, now: datetime) -> tuple[bool, str | None]:
        """Return whether the log is final, and its end. If it is not final, the run is woken once the log is read."""
        uid = pod["metadata"]["uid"]
        if uid not in self._readings:
            future = self._logs.read(pod, container)
            future.add_done_callback(lambda _: self._wake())
            self._readings[uid] = now, future
        since, future = self._readings[uid]
        if future.done():
            return True, None if future.cancelled() or future.exception() else future.result()
        return now - since >= PATIENCE, None

    def waits_until(self, pod: kube.Object | None) -> datetime | None:
        """When the outcome of a pod stops waiting for its log; None if it does not wait."""
        reading = self._readings.get(pod["metadata"]["uid"]) if pod is not None else None
        return None if reading is None or reading[1].done() else reading[0] + PATIENCE

    def forget(self, pod: kube.Object | None) -> None:
        """Drop the log of a pod whose outcome is recorded or no longer needed."""
        reading = self._readings.pop(pod["metadata"]["uid"], None) if pod is not None else None
        if reading is not None:
            reading[1].cancel()
