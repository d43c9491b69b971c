"""The watch on one kind of objects: where its events go, and whether it still shows all changes."""

from collections.abc import Callable
from typing import Final

from perdure.api.labels import GROUP, VERSION
from perdure.kube import client as kube

_STALE_AFTER: Final = 3
"""The number of consecutive resyncs with missed changes after which a watch counts as stale."""


class Informer:
    """Passes the events of one watch on, and counts the resyncs that have found changes which it has missed."""

    def __init__(
        self,
        plural: str,
        update: Callable[[kube.Object], None],
        delete: Callable[[kube.Object], None],
        *,
        group: str = GROUP,
        version: str = VERSION,
        label: str | None = None,
    ) -> None:
        """Create an informer whose watch has missed nothing.

        Args:
            plural: The plural of the kind.
            update: Called with each object that was listed, created, or changed; it only records this for later processing.
            delete: Called with each object that was deleted.
            group: The API group of the kind.
            version: The version of the API group.
            label: A label that objects must have; None: all objects.
        """
        self.group = group
        self.version = version
        self.plural = plural
        self.label = label
        self._update = update
        self._delete = delete
        self._missed = 0
        """The number of resyncs with missed changes since the last event."""

    def on_event(self, obj: kube.Object, *, deleted: bool) -> None:
        """Process an event of the watch."""
        self._missed = 0
        (self._delete if deleted else self._update)(obj)

    def update(self, obj: kube.Object) -> None:
        """Process an object that the watch has not shown."""
        self._update(obj)

    def note_missed(self) -> None:
        """Record that a resync has found changes that the watch has not shown."""
        self._missed += 1

    def trouble(self) -> str | None:
        """Why the watch counts as stale; None if it works."""
        if self._missed < _STALE_AFTER:
            return None
        return f"the watch on {self.plural} is stale: {self._missed} resyncs found changes but no events arrived"
