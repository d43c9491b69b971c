"""Reserved first workflow tasks: for the client that starts the run, or until an update is admitted."""

from collections.abc import Callable

from perdure.controller.workers import Followed
from perdure.frontend.runs.gateway import RunGateway


class FirstTasks:
    """The runs whose first task is not dispatched yet."""

    def __init__(self, runs: RunGateway, follow: Callable[[Followed], None]) -> None:
        """Create it without reservations.

        Args:
            runs: The runs of the operator.
            follow: Offers the task of a run to workers.
        """
        self._runs = runs
        self._follow = follow
        self._reserved: set[tuple[str, str]] = set()

    def reserve(self, namespace: str, name: str) -> None:
        """Reserve the first task of a run, by the name of the WorkflowRun, until it is released."""
        self._reserved.add((namespace, name))

    def is_reserved(self, namespace: str, name: str) -> bool:
        """Whether the first task of a run is still reserved."""
        return (namespace, name) in self._reserved

    def release(self, namespace: str, name: str) -> None:
        """Let any worker have the first task of a run, if it was reserved."""
        if (namespace, name) not in self._reserved:
            return
        self._reserved.discard((namespace, name))
        entry = self._runs.named(namespace, name)
        run = self._runs.get(entry.uid) if entry is not None else None
        if run is not None:
            self._follow(run)
