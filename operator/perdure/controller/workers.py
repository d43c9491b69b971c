"""The seam to whoever serves workers that poll task queues: the frontend for Temporal SDKs, or nobody."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from perdure.engine import inputs
from perdure.engine.state import PendingActivity, State
from perdure.engine.tasks.model import Task
from perdure.kube import client as api

if TYPE_CHECKING:
    from perdure.controller.run import Run

PATIENCE = timedelta(seconds=10)
"""What waits for so long, and nobody asks for, is told of."""
_LEAST_OFTEN = timedelta(minutes=1)
"""Where workers are busy, what waits is looked at ever more seldom, up to this."""


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

    def polled(self, namespace: str, task_queue: str, *, activities: bool = False) -> bool:
        """Whether somebody has asked for workflow tasks, or for activities, of a task queue lately."""
        ...


class NoWorkers:
    """Nobody serves workers: what they would do waits."""

    epoch = ""

    def follow(self, run: "Run") -> None:
        """Nothing to be done."""

    def seen(self, obj: api.Object, *, deleted: bool) -> None:
        """Nothing to be done."""

    def polled(self, namespace: str, task_queue: str, *, activities: bool = False) -> bool:
        """Nobody does."""
        del namespace, task_queue, activities
        return False


def unserved(state: State, now: datetime, polled: Callable[[PendingActivity], bool]) -> Iterator[inputs.AttemptWaiting]:
    """What is to be said of attempts that wait for a worker, and that nobody asks for.

    Args:
        state: where the run stands.
        now: the time.
        polled: whether somebody asks for what is in the task queue of an activity.
    """
    for activity in _untaken(state, now):
        if not activity.stuck and activity.scheduled_time + PATIENCE <= now and not polled(activity):
            yield inputs.AttemptWaiting(
                scheduled_event_id=activity.scheduled_event_id,
                attempt=activity.attempt,
                reason=f"no worker polls the task queue `{activity.task_queue}` for activities",
                stuck=True,
            )


def look_again_at(state: State, now: datetime, *, told: str) -> datetime | None:
    """When it is to be looked whether anybody asks for what waits for a worker; None: nothing does, or all of it was told.

    Args:
        state: where the run stands.
        now: the time.
        told: what was told of work that nobody asks for, if it was.
    """
    since = [activity.scheduled_time for activity in _untaken(state, now) if not activity.stuck]
    if not told:
        since += [task.scheduled_time for task in waiting_tasks(state)]
    if not since:
        return None
    return now + min(max(now - min(since), PATIENCE), _LEAST_OFTEN)


def waiting_tasks(state: State) -> list[Task]:
    """The workflow task that waits for a worker, if one does. One that may leave no trace is not told of either."""
    task = state.code.task if state.code is not None and not state.closed and not state.paused else None
    return [task] if task is not None and task.started_time is None and not task.speculative else []


def _untaken(state: State, now: datetime) -> Iterator[PendingActivity]:
    for activity in state.activities.values():
        if activity.by_worker and activity.started_time is None and state.may_start(activity, now):
            yield activity
