"""Release WorkflowLimits from the runs, activities, and steps that have ended.

A release removes runs, activities, and steps that have ended from the status of the limits. One that has ended keeps its place
until none of its pods runs: a terminated run closes immediately, but its pods have their grace period. This needs no memory: the
next reconciliation of the limit finds anything that was missed.

The directory knows which runs are open, but not which activities. So an activity that a run no longer shows as open is only a
suspect: the run is read before the activity loses its place. Its claim followed the commit that scheduled it, so a run that is
read after the claim and does not have the activity has recorded its end.

A step counts as an activity: first the activity that takes its limits is open, and then the step holds them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api import labels
from perdure.api.kinds.workflowlimit import LimitEntry, WorkflowLimitSpec
from perdure.controller.directory import Directory, Standing
from perdure.controller.fleet.shards import Shards
from perdure.controller.limits import WorkflowLimits
from perdure.controller.pods.attempt_pods import has_ended, key_of
from perdure.controller.queue import LimitKey
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.runtime.chains import is_open
from perdure.runtime.limits import LimitQueue

_LOOK_AGAIN: Final = timedelta(seconds=10)
"""Delay before the pods of an ended holder are read again, unless a watch shows earlier that they have ended."""
_TRUST: Final = timedelta(minutes=1)
"""How long an activity that holds a limit counts as open before its run is read, in case a watch has missed its end."""


@dataclass(slots=True)
class _Activities:
    """The knowledge about the activities that a limit lists."""

    suspects: set[str] = field(default_factory=set)
    """IDs of activities that may have ended."""
    deadlines: dict[str, datetime] = field(default_factory=dict)
    """When to read the run of each holder at the latest, by ID."""

    def deadline(self, holder: LimitEntry) -> datetime:
        """When to read the run of a holder at the latest."""
        return self.deadlines.get(holder.id, holder.since + _TRUST)

    def update(
        self, holders: list[LimitEntry], checked: frozenset[str], ending: set[str], now: datetime
    ) -> datetime | None:
        """Record the result of a reconciliation, and return when to read a run again.

        Args:
            holders: The activities that hold the limit now.
            checked: The suspects that were checked.
            ending: Those of them that have ended, but still have pods.
            now: The time of the reconciliation.
        """
        self.suspects -= checked - ending
        due = {each.id: self.deadline(each) for each in holders if each.id not in ending}
        self.deadlines = {key: deadline if deadline > now else now + _TRUST for key, deadline in due.items()}
        return min(self.deadlines.values(), default=None)


class LimitReleases:
    """Reconciles the status of WorkflowLimits with the runs and activities that exist."""

    def __init__(
        self,
        client: kube.Client,
        limits: WorkflowLimits,
        shards: Shards,
        directory: Directory,
        wake: Callable[[LimitKey], None],
    ) -> None:
        """Create it without runs.

        Args:
            client: Reads runs and pods.
            limits: The known limits.
            shards: The shards of this process.
            directory: The directory of all runs.
            wake: Requests the reconciliation of a limit.
        """
        self._client = client
        self._limits = limits
        self._shards = shards
        self._directory = directory
        self._wake = wake
        self._ending: set[str] = set()
        """IDs of ended holders whose pods have not ended."""
        self._activities: dict[tuple[str, str], _Activities] = {}
        """By namespace and name of the limit."""

    def end_run(self, namespace: str, uid: str) -> None:
        """Wake the limits of a run that has closed or was deleted."""
        self._limits.forget_run(namespace, uid)
        self._wake_limits(namespace, uid)

    def update_run(self, run: kube.Object) -> None:
        """Wake the limits of activities that a version of an open run does not have any more."""
        namespace = run["metadata"]["namespace"]
        for name, entries in self._limits.listing(namespace, run["metadata"]["uid"]):
            ended = {each.id for each in entries if each.event_id is not None and not _has_activity(run, each)}
            if ended and self._shards.holds(namespace, name):
                self._activities.setdefault((namespace, name), _Activities()).suspects |= ended
                self._wake(LimitKey(namespace, name))

    def update_pod(self, pod: kube.Object) -> None:
        """Process the creation, change, or deletion of a pod of a run."""
        if not self._ending:
            return
        meta = pod["metadata"]
        run_id = (meta.get("labels") or {}).get(labels.RUN_ID_LABEL, "")
        if any(each.partition("/")[0] == run_id for each in self._ending):
            self._wake_limits(meta["namespace"], run_id)

    def _wake_limits(self, namespace: str, uid: str) -> None:
        for name, _ in self._limits.listing(namespace, uid):
            self._wake(LimitKey(namespace, name))

    async def reconcile(self, namespace: str, name: str, now: datetime) -> datetime | None:
        """Remove those that have ended from a limit; return when to check again, or None to wait for an event.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        activities = self._activities.setdefault((namespace, name), _Activities())
        suspects, ending = frozenset(activities.suspects), set[str]()
        holders: list[LimitEntry] = []
        starts: datetime | None = None

        async def change(queue: LimitQueue, spec: WorkflowLimitSpec) -> LimitQueue:
            nonlocal starts
            runs = _ReadRuns(self._client, self._directory, namespace)  # after the claims of the queue
            waiters = {each.id for each in queue.waiters if await runs.is_over(each, doubted=each.id in suspects)}
            ended = [
                each
                for each in queue.holders
                if await runs.is_over(each, doubted=each.id in suspects or activities.deadline(each) <= now)
            ]
            self._ending |= {each.id for each in ended}  # before their pods are read, so that no watch event is missed
            ending.clear()
            ending.update(await self._with_pods(namespace, ended, runs))
            released = {each.id for each in ended} - ending
            self._ending -= released
            time = wall_clock()
            changed = queue.release(waiters | released).admit(spec.capacity, time, spec.rate)
            starts = changed.next_start(spec.capacity, time, spec.rate)
            holders[:] = [each for each in changed.holders if each.event_id is not None]
            return changed

        await self._limits.change(namespace, name, change)
        due = activities.update(holders, suspects, ending, now)
        if not (holders or activities.suspects):
            self._activities.pop((namespace, name), None)
        return min(filter(None, (due, starts, now + _LOOK_AGAIN if ending else None)), default=None)

    async def _with_pods(self, namespace: str, ended: list[LimitEntry], runs: "_ReadRuns") -> set[str]:
        """The IDs of the runs, activities, and steps with a pod that has not ended."""
        found: set[str] = set()
        url = kube.path(kube.CORE, namespace, "pods")
        for run_id in sorted({each.run_id for each in ended}):
            entries = [(each, runs.read(each)) for each in ended if each.run_id == run_id]
            async for pod in self._client.lists.each(url, labelSelector=f"{labels.RUN_ID_LABEL}={run_id}"):
                if not has_ended(pod):
                    found |= {each.id for each, run in entries if _is_of(pod, each, run)}
        return found


class _ReadRuns:
    """The runs of a namespace, each of which is read at most once."""

    def __init__(self, client: kube.Client, directory: Directory, namespace: str) -> None:
        self._client = client
        self._directory = directory
        self._namespace = namespace
        self._open: dict[tuple[str, str], kube.Object | None] = {}
        """The runs that were read, by name and UID; None for a run that is closed, in deletion, or does not exist."""

    async def is_over(self, entry: LimitEntry, *, doubted: bool) -> bool:
        """Whether a run, or an activity of it, has ended or does not exist.

        A run is read if no watch has shown it yet, or if its activity is doubted.
        """
        known = self._directory.get(entry.run_id)
        if known is not None and known.standing is Standing.CLOSED:
            return True
        if known is not None and (entry.event_id is None or not doubted):
            return False
        key = entry.run, entry.run_id
        if key not in self._open:
            self._open[key] = await self._read(*key)
        run = self._open[key]
        return run is None or (entry.event_id is not None and not _has_activity(run, entry))

    def read(self, entry: LimitEntry) -> kube.Object | None:
        """The run of an entry, if it was read and is open."""
        return self._open.get((entry.run, entry.run_id))

    async def _read(self, name: str, uid: str) -> kube.Object | None:
        try:
            run = await self._client.get(kube.path(kube.PERDURE, self._namespace, "workflowruns", name))
        except kube.NotFoundError:
            return None
        meta = run["metadata"]
        is_same = meta["uid"] == uid and not meta.get("deletionTimestamp")
        return run if is_same and is_open(run.get("status") or {}) else None


def _is_of(pod: kube.Object, entry: LimitEntry, run: kube.Object | None) -> bool:
    """Whether a pod belongs to the run or the activity of an entry.

    For a step, it belongs to any activity that began later and has ended or must stop. The pods of its block are among these.

    Args:
        pod: A pod of the run.
        entry: The entry, whose run, activity, or step has ended.
        run: The run, if it is open.
    """
    if entry.event_id is None:
        return True
    key = key_of(pod)
    if key is None or not entry.whole_step:
        return key is not None and key.scheduled_event_id == entry.event_id
    if key.scheduled_event_id < entry.event_id:
        return False
    activity = _entries(run or {}, "activities").get(str(key.scheduled_event_id))
    return activity is None or bool(activity.get("cancelRequested"))


def _has_activity(run: kube.Object, entry: LimitEntry) -> bool:
    """Whether a version of a run has the activity or the step of an entry as an open one, or will begin with it after a reset."""
    begun = bool((run.get("status") or {}).get("state"))
    return not begun or any(str(entry.event_id) in _entries(run, kind) for kind in ("activities", "holds"))


def _entries(run: kube.Object, kind: str) -> dict[str, Any]:
    """The open entries of a kind in the state of a run, by the ID of their first event."""
    state = (run.get("status") or {}).get("state") or {}
    return state.get(kind) or {}
