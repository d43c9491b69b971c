"""The seam to whoever serves workers that poll task queues: the frontend for Temporal SDKs, or nobody."""

from typing import TYPE_CHECKING, Protocol

from perdure.kube import client as api

if TYPE_CHECKING:
    from perdure.controller.run import Run


class Workers(Protocol):
    """Hears of runs that workers have something to do for. What it knows can be rebuilt from open runs."""

    epoch: str
    """Names this process: tasks that another one has handed out count no more."""

    def follow(self, run: "Run") -> None:
        """A run has come to a new state, recorded as far as it must be."""
        ...

    def seen(self, obj: api.Object, *, deleted: bool) -> None:
        """A WorkflowRun is there, has changed, or is gone."""
        ...

    def polled(self, namespace: str, task_queue: str) -> bool:
        """Whether somebody has asked for workflow tasks of a task queue lately."""
        ...


class NoWorkers:
    """Nobody serves workers: what they would do waits."""

    epoch = ""

    def follow(self, run: "Run") -> None:
        """Nothing to be done."""

    def seen(self, obj: api.Object, *, deleted: bool) -> None:
        """Nothing to be done."""

    def polled(self, namespace: str, task_queue: str) -> bool:
        """Nobody does."""
        del namespace, task_queue
        return False
