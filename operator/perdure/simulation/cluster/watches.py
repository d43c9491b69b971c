"""Watches, one per kind and process."""

from collections.abc import Callable
from typing import Any

from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.object_store import Write
from perdure.simulation.cluster.patching import copy

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
