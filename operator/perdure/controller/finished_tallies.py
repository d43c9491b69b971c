"""How many finished runs each namespace has, and how large they are: what decides whether some have to be removed."""

from perdure.controller.run_entries import Entry, Standing
from perdure.runtime.retention import Tally


class FinishedTallies:
    """Counts the finished runs of all namespaces."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}

    def of(self, namespace: str) -> Tally:
        """The number and the total size of the finished runs of a namespace."""
        return self._tallies.get(namespace) or Tally()

    def count(self, before: Entry | None, after: Entry | None) -> None:
        """Update the counts for a run whose entry was `before` and is `after`; None: there is no such run."""
        if before is not None and before.standing is Standing.CLOSED:
            tally = self._tallies[before.namespace]
            tally.remove(before.size)
            if not tally.runs:
                del self._tallies[before.namespace]
        if after is not None and after.standing is Standing.CLOSED:
            self._tallies.setdefault(after.namespace, Tally()).add(after.size)
