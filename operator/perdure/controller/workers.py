"""The interface to the part that serves polling workers: the frontend for Temporal SDKs, or none."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from perdure.controller.reconcile.record import Record
from perdure.engine.events import AnyEvent
from perdure.engine.nexus import operations_buffered
from perdure.engine.state import PendingActivity, PendingOperation, RunState, WorkflowTask
from perdure.engine.versioning import DeploymentVersion
from perdure.kube import client as kube
from perdure.runtime.attempts import RunRef

PATIENCE = timedelta(seconds=10)
"""Work that has waited this long without a polling worker is reported."""
_LEAST_OFTEN = timedelta(minutes=1)
"""Maximum interval between checks of work that waits for busy workers; the interval grows up to this."""


class FollowedRun(Protocol):
    """A run from the perspective of workers."""

    ref: RunRef
    record: Record
    """The last version of the run that was written or read."""

    @property
    def state(self) -> RunState | None:
        """The state of the run, with everything recorded that must be; None before it has started."""
        ...

    @property
    def unrecorded(self) -> Sequence[AnyEvent]:
        """The history of a run whose start is not recorded yet; empty for any other."""
        ...

    @property
    def admitted(self) -> Collection[int]:
        """What may be offered to workers, by the ID of the event that scheduled it."""
        ...

    @property
    def deleted(self) -> bool:
        """Whether the run was deleted."""
        ...


class Workers(Protocol):
    """Follows the runs that have work for workers. Its knowledge can be rebuilt from open runs."""

    epoch: str
    """Identifies this process: tasks dispatched by another one are no longer valid."""

    def follow(self, run: FollowedRun) -> None:
        """Process the new state of a run, with everything recorded that must be."""
        ...

    def release(self, run: FollowedRun) -> None:
        """Release a run that this process has no longer in memory."""
        ...

    def awaits(self, run_id: str) -> bool:
        """Whether a client waits for a response of a run."""
        ...

    def hibernate(self, namespace: str, run_id: str) -> None:
        """Keep as little as possible about an open run, because it does not change for a while."""
        ...

    def update(self, obj: kube.Object) -> None:
        """Process the creation or change of a WorkflowRun."""
        ...

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a WorkflowRun."""
        ...

    def version_of(self, namespace: str, state: RunState, activity: PendingActivity | None = None) -> str:
        """The version whose workers get a run's workflow task, or an activity of it; empty: unversioned ones."""
        ...

    async def has_task_queue(self, namespace: str, task_queue: str, version: DeploymentVersion) -> bool:
        """Whether workers of a version decide workflows of a task queue.

        Raises:
            RequestError: The API server did not respond.
        """
        ...

    def polled(
        self, namespace: str, task_queue: str, *, activities: bool = False, version: str = "", reported: bool = False
    ) -> bool:
        """Whether a worker has recently polled a task queue for workflow tasks or for activities.

        A process that has just started assumes so, unless the run already reports that no worker does (`reported`).
        """
        ...

    def handled(self, namespace: str, operation: PendingOperation, *, reported: bool = False) -> bool:
        """Whether a worker has recently polled for calls of the endpoint of an operation, or the endpoint is unknown.

        A process that has just started assumes so, unless the run already reports that no worker does (`reported`).
        """
        ...

    def explain(self, namespace: str, task_queue: str) -> str:
        """Say what the WorkerDeployment that runs the workers of a task queue reports; empty if there is none."""
        ...

    def inlined(self, content: bytes) -> Any:
        """Convert a large payload to an inline value, for readers of JSON.

        Raises:
            ValueError: The payload is too large.
        """
        ...


class NoWorkers:
    """Used if workers are not served, so that their work waits."""

    epoch = ""

    def follow(self, run: FollowedRun) -> None:
        """Do nothing."""

    def release(self, run: FollowedRun) -> None:
        """Do nothing."""

    def awaits(self, run_id: str) -> bool:
        """Return False: there are no clients."""
        del run_id
        return False

    def hibernate(self, namespace: str, run_id: str) -> None:
        """Do nothing."""

    def update(self, obj: kube.Object) -> None:
        """Do nothing."""

    def delete(self, obj: kube.Object) -> None:
        """Do nothing."""

    def version_of(self, namespace: str, state: RunState, activity: PendingActivity | None = None) -> str:
        """Return the empty version: workers are not served."""
        del namespace, state, activity
        return ""

    async def has_task_queue(self, namespace: str, task_queue: str, version: DeploymentVersion) -> bool:
        """Return False: workers are not served."""
        del namespace, task_queue, version
        return False

    def polled(
        self, namespace: str, task_queue: str, *, activities: bool = False, version: str = "", reported: bool = False
    ) -> bool:
        """Return False: workers are not served."""
        del namespace, task_queue, activities, version, reported
        return False

    def handled(self, namespace: str, operation: PendingOperation, *, reported: bool = False) -> bool:
        """Return False: workers are not served."""
        del namespace, operation, reported
        return False

    def explain(self, namespace: str, task_queue: str) -> str:
        """Return an empty text: workers are not served."""
        del namespace, task_queue
        return ""

    def inlined(self, content: bytes) -> Any:
        """Fail, because this process has not created the payload."""
        raise ValueError(f"a payload of {len(content):,} bytes, which needs the Temporal frontend to be read")


def unserved(state: RunState, now: datetime, workers: Workers, namespace: str, *, reported: bool) -> str:
    """Describe work that has waited for a while in a task queue without pollers; empty if there is none.

    Args:
        state: The state of the run.
        now: The time.
        workers: The server for workers, to see which task queues are polled.
        namespace: The namespace of the run.
        reported: Whether such work is already reported, so that no further waiting is needed.
    """
    task, code = _waiting_task(state), state.code
    if task is not None and code is not None:
        # A worker that has as many tasks as it may asks for no more, for as long as one may take.
        patience = timedelta(0) if reported else max(PATIENCE, task.start_to_close_timeout)
        version = workers.version_of(namespace, state)
        if task.scheduled_time + patience <= now and not workers.polled(
            namespace, code.task_queue, version=version, reported=reported
        ):
            what = f"no worker{_of(version)} polls the task queue `{code.task_queue}`"
            return what + _explained(workers, namespace, code.task_queue)
    patience = timedelta(0) if reported else PATIENCE
    looked_at = set()
    for activity in state.offered_activities(now):
        queue = activity.task_queue
        if activity.queued or queue in looked_at or activity.scheduled_time + patience > now:
            continue
        looked_at.add(queue)
        version = workers.version_of(namespace, state, activity)
        if not workers.polled(namespace, queue, activities=True, version=version, reported=reported):
            what = f"activity `{activity.activity_type}`" if state.for_clients else f"step `{activity.activity_id}`"
            found = f"{what}: no worker{_of(version)} polls the task queue `{queue}` for activities"
            return found + _explained(workers, namespace, queue)
    for operation, since in _uncalled(state):
        if since + patience <= now and not workers.handled(namespace, operation, reported=reported):
            what = f"operation `{operation.service}.{operation.operation}`"
            # The namespace of the caller must not learn which task queue that is.
            return f"{what}: no worker polls the task queue of the Nexus endpoint `{operation.endpoint}`"
    return ""


def _of(version: str) -> str:
    return f" of version `{version}`" if version else ""


def _explained(workers: Workers, namespace: str, task_queue: str) -> str:
    why = workers.explain(namespace, task_queue)
    return f". {why}" if why else ""


def next_poll_check(state: RunState, now: datetime) -> datetime | None:
    """When to check whether a worker polls for waiting work; None if nothing waits."""
    since = [activity.scheduled_time for activity in state.offered_activities(now) if not activity.queued]
    task = _waiting_task(state)
    if task is not None:
        since.append(task.scheduled_time)
    since.extend(time for _, time in _uncalled(state))
    if not since:
        return None
    return now + min(max(now - max(since), PATIENCE), _LEAST_OFTEN)


def _uncalled(state: RunState) -> Iterator[tuple[PendingOperation, datetime]]:
    """The Nexus operations whose handlers have not responded, and since when; including those whose next call is due later."""
    buffered = operations_buffered(state)
    for operation in () if state.closed else state.operations.values():
        if operation.open_call is None or operation.scheduled_event_id in buffered:
            continue
        requested = operation.cancellation.requested_time if operation.started_time and operation.cancellation else None
        yield operation, requested or operation.scheduled_time


def _waiting_task(state: RunState) -> WorkflowTask | None:
    """The workflow task, if it waits for a worker. Speculative tasks are not reported."""
    task = state.offered_task()
    return None if task is None or task.speculative else task
