"""The expiry of finished runs."""

from datetime import datetime
from typing import Final

from perdure.controller.directory import Directory
from perdure.controller.expiry import Expiries, expiry
from perdure.controller.queue.keyed_queue import KeyedQueue
from perdure.controller.queue.keys import ExpiryKey, Key
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.chains import is_open

_DEFAULT_TTL: Final = 86_400
"""In seconds. The API server sets the default in the spec, so only objects older than the field lack it."""


class RunExpiries:
    """Triggers the removal of finished runs when they expire. Only runs that expire soon have a timer."""

    def __init__(self, directory: Directory, queue: KeyedQueue[Key], span: float) -> None:
        """Create it without runs.

        Args:
            directory: The directory of all runs.
            queue: The queue that removes runs.
            span: Seconds between two calls of `arm`.
        """
        self._directory = directory
        self._queue = queue
        self._later = Expiries(span)

    def add(self, uid: str, when: datetime) -> None:
        """Schedule the removal of a finished run."""
        entry = self._directory.get(uid)
        if entry is not None and not self._later.add(uid, when, now()):
            self._queue.wake_at(ExpiryKey(entry.namespace, entry.name, uid, entry.workflow_id), when)

    def arm(self, time: datetime) -> None:
        """Set the timers of the runs that expire before the next call."""
        for uid, when in self._later.due(time):
            self.add(uid, when)


def expiry_of(run: kube.Object) -> datetime | None:
    """When a run expires; None while it is open."""
    return None if is_open(run.get("status") or {}) else expiry(run, _DEFAULT_TTL)
