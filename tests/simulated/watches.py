"""Watches: one per kind and process, each with its own lag; in order within a kind, and not across kinds."""

from collections.abc import Callable
from random import Random
from typing import Any

from simulated.apiserver import ApiServer, Write
from simulated.loop import Loop
from simulated.patching import copy

Deliver = Callable[[str | None, dict[str, Any]], None]
"""Takes the type of an event, None for what a first list shows, and the object."""


class Watch:
    """What one process hears of one kind. After a gap it lists what there is; deletions within the gap are never told."""

    def __init__(
        self,
        loop: Loop,
        random: Random,
        server: ApiServer,
        plural: str,
        *,
        label: str | None,
        lag: float,
        deliver: Deliver,
    ) -> None:
        """`label` is one that objects must have to be told of; `lag` is the mean of its delays, in seconds."""
        self._loop = loop
        self._random = random
        self._server = server
        self.plural = plural
        self._label = label
        self._lag = lag
        self._deliver = deliver
        self._last = 0.0
        self._deaf = False
        self._open = True

    def start(self) -> None:
        """List what there is, and hear what follows."""
        self._server.observers.append(self._observe)
        self._list()

    def stop(self) -> None:
        """Hear no more, and tell no more of what was heard."""
        self._open = False
        self._server.observers.remove(self._observe)

    def interrupt(self, seconds: float) -> None:
        """Hear nothing for a while, and list what there is then, as a client does whose connection has broken."""
        if not self._deaf:
            self._deaf = True
            self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._deaf = False
        if self._open:
            self._list()

    def _list(self) -> None:
        for obj in self._server.of(self.plural):
            self._queue(None, obj)

    def _observe(self, write: Write) -> None:
        if write.key.plural == self.plural and not self._deaf:
            self._queue(write.type, write.after)

    def _queue(self, type_: str | None, obj: dict[str, Any]) -> None:
        if self._label is not None and self._label not in (obj["metadata"].get("labels") or {}):
            return
        self._last = max(self._last, self._loop.time() + self._random.expovariate(1 / self._lag)) + 2e-6
        self._loop.call_at(self._last, self._tell, type_, obj)

    def _tell(self, type_: str | None, obj: dict[str, Any]) -> None:
        if self._open:
            self._deliver(type_, copy(obj))
