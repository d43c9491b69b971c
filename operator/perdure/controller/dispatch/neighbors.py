"""Propagate a change of a run to others: parent, Schedule, children, runs of its workflow ID, WorkflowLimits."""

from collections.abc import Callable
from typing import Any

from perdure.api.policies import ParentClosePolicy
from perdure.controller.directory import Entry, Standing
from perdure.controller.dispatch.index import Index
from perdure.controller.limits.releases import LimitReleases
from perdure.controller.queue.keyed_queue import KeyedQueue
from perdure.controller.queue.keys import DeadLetterKey, Key, RunKey, ScheduleKey
from perdure.controller.workers import Workers
from perdure.engine import inputs
from perdure.kube import client as kube
from perdure.runtime.deadletters import dead_letter_of


class RunNeighbors:
    """Wakes the objects that wait for a run when the run changes."""

    def __init__(
        self,
        index: Index,
        queue: KeyedQueue[Key],
        workers: Workers,
        *,
        releases: LimitReleases,
        changed: Callable[[str], None],
        send: Callable[[Entry, inputs.Request, Callable[[Any], None]], None],
    ) -> None:
        """Create it without runs.

        Args:
            index: The runs and Schedules; runs are added to its directory here.
            queue: The queue of their keys.
            workers: The server for workers, which gets every run.
            releases: Releases the WorkflowLimits of runs and activities that have ended.
            changed: Called with the namespace of each finished run.
            send: Delivers a request to a run.
        """
        self._index = index
        self._queue = queue
        self._workers = workers
        self._releases = releases
        self._changed = changed
        self._send = send

    def update(self, obj: kube.Object) -> None:
        """Update the directory, and wake the objects that wait for a change of a run."""
        self._workers.observe(obj, deleted=False)
        before, after = self._index.directory.put(obj)
        self._propagate(obj, before, after)

    def delete(self, obj: kube.Object) -> None:
        """Remove a deleted run from the directory, and wake the objects that wait for its end."""
        self._workers.observe(obj, deleted=True)
        before = self._index.directory.drop(obj["metadata"]["uid"])
        self._propagate(obj, before, None)
        if before is not None:
            self._orphan_children(before)

    def _propagate(self, obj: kube.Object, before: Entry | None, after: Entry | None) -> None:
        """Wake the parent, the Schedule, the runs that wait for the workflow ID, and the limits of a run that has changed."""
        namespace = obj["metadata"]["namespace"]
        if any(each is not None and each.standing is Standing.CLOSED for each in (before, after)):
            self._changed(namespace)
        if after is not None and after.standing is Standing.OPEN:
            self._releases.observe_run(obj)
        letter = dead_letter_of(obj)
        if letter is not None and (before is None or before.standing is not getattr(after, "standing", None)):
            self._queue.wake(DeadLetterKey(namespace, letter))
        known = after or before
        if known is None or (before and after and _seen_by_others(before) == _seen_by_others(after)):
            return
        self.wake(known)
        if after is None or after.standing is Standing.CLOSED:
            self._releases.observe_end(namespace, known.uid)
        for other in self._index.directory.sharing(known):
            if other.standing is Standing.WAITING:
                self._queue.wake(RunKey(other.namespace, other.uid, other.workflow_id))

    def wake(self, run: Entry) -> None:
        """Wake the Schedule and the parent of a run that has started or closed, or was deleted."""
        schedule = self._index.schedules.get(run.schedule_uid)
        if schedule is not None:
            self._queue.wake(ScheduleKey(run.namespace, run.schedule_uid, schedule.name))
        parent = self._index.runs.get(run.parent_uid)
        if parent is not None:
            parent.outcomes.observe(run.uid)
            self._queue.wake(RunKey(parent.ref.namespace, run.parent_uid, parent.ref.workflow_id))

    def _orphan_children(self, parent: Entry) -> None:
        """Request the cancellation of a deleted run's children with this policy. The garbage collector removes the others."""
        for child in self._index.directory.children_of(parent.namespace, parent.uid):
            if child.parent_close_policy is ParentClosePolicy.REQUEST_CANCEL and child.standing is not Standing.CLOSED:
                reason = f"its parent `{parent.name}` was deleted"
                self._send(
                    child, inputs.CancelRequested(request_id=f"{parent.uid}/deleted", reason=reason), lambda _: None
                )


def _seen_by_others(run: Entry) -> tuple[Standing, str, str]:
    """The facts about a run for which its parent and other runs wait."""
    return run.standing, run.successor, run.parent_uid
