"""Polls of workers and clients: how long one waits, and which workers have polled a task queue recently."""

from collections.abc import Hashable, Mapping
from datetime import datetime, timedelta
from sys import getsizeof
from typing import Final, Generic, TypeVar

from perdure.kube.clock import now

LONGEST_POLL: Final = 60.0
"""Maximum duration of a worker's long poll for a task, in seconds; SDKs give up after 70. Clients that wait for a standalone
activity, a Nexus operation, or a direct Nexus call wait as long."""
LONGEST_CLIENT_POLL: Final = 20.0
"""Maximum duration of any other long poll of a client, in seconds, such as for an update or new events; then it polls again."""
DEAD_AFTER: Final = timedelta(seconds=10)
"""After this time without a poll, a queue counts as having no worker."""
FORGOTTEN_AFTER: Final = timedelta(minutes=5)
"""After this time without a poll, a poller is not listed."""
MAX_POLLERS: Final = 1_000
"""Maximum number of listed pollers per queue; the newest are listed."""
MAX_POLLER_BYTES: Final = 8 * 2**20
"""Memory for the pollers of a namespace that are listed, the newest."""
_ENTRY: Final = 400
"""Memory of a poller besides its identity, in bytes."""
Queue = TypeVar("Queue", bound=Hashable)
"""The name of a task queue."""


class Pollers(Generic[Queue]):
    """The recent pollers of the queues of a namespace.

    Only the newest are kept: clients choose their identities, so their number and size are limited.
    """

    def __init__(self, max_pollers: int = MAX_POLLERS, max_bytes: int = MAX_POLLER_BYTES) -> None:
        """Keep at most `max_pollers` of each queue, and as many as fit into `max_bytes`."""
        self._max_pollers, self._max_bytes = max_pollers, max_bytes
        self._of_queue: dict[Queue, dict[str, datetime]] = {}
        self._oldest_first: dict[tuple[Queue, str], None] = {}
        self._bytes = 0

    def add(self, name: Queue, identity: str, time: datetime) -> None:
        """Record a poll."""
        self._drop(name, identity)
        self._of_queue.setdefault(name, {})[identity] = time
        self._oldest_first[name, identity] = None
        self._bytes += _poller_bytes(identity)
        if len(self._of_queue[name]) > self._max_pollers:
            self._drop(name, next(iter(self._of_queue[name])))
        while self._bytes > self._max_bytes:
            self._drop(*next(iter(self._oldest_first)))
        self._forget(time)

    def of(self, name: Queue) -> Mapping[str, datetime]:
        """Return the pollers of a queue, and when each last polled."""
        self._forget(now())
        return self._of_queue.get(name, {})

    def _forget(self, time: datetime) -> None:
        while self._oldest_first:
            name, identity = next(iter(self._oldest_first))
            if self._of_queue[name][identity] > time - FORGOTTEN_AFTER:
                return
            self._drop(name, identity)

    def _drop(self, name: Queue, identity: str) -> None:
        found = self._of_queue.get(name, {})
        if found.pop(identity, None) is not None:
            del self._oldest_first[name, identity]
            self._bytes -= _poller_bytes(identity)
        if not found:
            self._of_queue.pop(name, None)


def _poller_bytes(identity: str) -> int:
    return _ENTRY + getsizeof(identity)
