"""Removal of finished runs: when they expire, and when their namespace has too many.

A namespace says in its WorkflowDefaults how long, and how many of, its finished runs are kept. The space of finished runs in etcd
is limited: if a namespace exceeds it, its oldest runs are removed before they expire, and if all namespaces together exceed it,
the oldest ones of those with the most. Either way, a run is removed only once all objects that wait for its end have recorded it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from perdure.api import labels
from perdure.api.labels import API_VERSION
from perdure.api.reasons import EventReason
from perdure.controller.archiver import Archiver
from perdure.controller.directory import Entry, Standing
from perdure.controller.dispatch.index import Index
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.dispatch.schedules import Schedules
from perdure.controller.expiry import RetentionPolicies, RunExpiries, expiry_of, has_pending_work, remove_expired
from perdure.controller.queue import ExpiryKey
from perdure.controller.recorded_state import distrust
from perdure.controller.state_versions import state_versions
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.runtime.chains import continuation_of, first_run_id, is_open, parent_of
from perdure.runtime.commits import OF_SCHEDULES, edited
from perdure.runtime.deadletters import dead_letter_of, waits_for
from perdure.runtime.retention import Limits, Policy, Share, surplus
from perdure.schedule.run_manifests import owner_of, scheduled_by
from perdure.schedule.state import newer_state

_PENDING_WORK_PAUSE: Final = timedelta(seconds=1)
"""Delay before a finished run with pending work is checked again."""
_WAIT: Final = timedelta(seconds=10)
"""Minimum interval between two checks of a namespace, whose cost grows with the number of finished runs."""
_GRACE: Final = timedelta(minutes=1)
"""How long a finished run is kept at least, so that clients that wait for its result can read it."""
_REPORT_AGAIN: Final = timedelta(minutes=10)
_BATCH: Final = 20
"""Number of runs that are removed before the history limits of their namespace are read again."""
_MAX_REMOVED: Final = 500
"""Maximum number of runs to remove in one call, so that other work of the namespace gets its turn."""


class EndRecorded:
    """Reads the objects that wait for the end of runs from the API server, each once. So use an instance only briefly."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._read: dict[tuple[str, str, str], kube.Object | None] = {}

    async def everywhere(self, run: kube.Object) -> bool:
        """Whether a run's parent, Schedule, and re-driven DeadLetter have recorded its end, and the run before it its start.

        A parent or Schedule whose status was edited, or written by a newer version, may not have.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        for plural, name, uid in _waiters(run):
            found = await self._get(plural, run["metadata"]["namespace"], name)
            if found is not None and found["metadata"]["uid"] == uid and _waits(plural, found, run):
                return False
        return True

    async def _get(self, plural: str, namespace: str, name: str) -> kube.Object | None:
        key = plural, namespace, name
        if key not in self._read:
            try:
                self._read[key] = await self._client.get(kube.path(kube.PERDURE, namespace, plural, name))
            except kube.NotFoundError:
                self._read[key] = None
        return self._read[key]


def _waiters(run: kube.Object) -> Iterator[tuple[str, str, str]]:
    """The objects that may wait for the end of a run: plural, name, and UID."""
    if (parent := parent_of(run)) is not None:
        yield "workflowruns", parent.name, parent.run_id
    if (schedule := owner_of(run)) and (tie := scheduled_by(run)) is not None:
        yield "schedules", tie.name, schedule
    if (before := continuation_of(run)) is not None:
        yield "workflowruns", before.name, before.run_id
    if (letter := dead_letter_of(run)) is not None:
        yield "deadletters", letter, run["metadata"]["labels"][labels.DEAD_LETTER_LABEL]


def _waits(plural: str, owner: kube.Object, run: kube.Object) -> bool:
    """Whether an owner of a run has not recorded its end yet."""
    match plural:
        case "workflowruns":
            return _waits_for_child(owner, run) or _starts(owner, run)
        case "schedules":
            return _follows(owner, run)
        case _:
            return waits_for(owner, run)


def _waits_for_child(parent: kube.Object, run: kube.Object) -> bool:
    status = parent.get("status") or {}
    if distrust(parent):
        return True
    tie = parent_of(run)
    children = (status.get("state") or {}).get("children") or {}
    return is_open(status) and tie is not None and str(tie.initiated_event_id) in children


def _starts(before: kube.Object, run: kube.Object) -> bool:
    """Whether a run would create its successor again, because it has not recorded that it has."""
    state = (before.get("status") or {}).get("state") or {}
    return bool(state.get("startSuccessor")) and state.get("successor") == run["metadata"]["name"]


def _follows(schedule: kube.Object, run: kube.Object) -> bool:
    status = schedule.get("status") or {}
    if state_versions().unreadable(status) or edited(status, OF_SCHEDULES) or newer_state(status):
        return True
    running = (status.get("state") or {}).get("running") or ()
    return any(each["name"] == run["metadata"]["name"] or each.get("runId") == first_run_id(run) for each in running)


class FinishedRuns:
    """Removes expired runs."""

    def __init__(
        self,
        client: kube.Client,
        index: Index,
        runs: WorkflowRuns,
        schedules: Schedules,
        expiries: RunExpiries,
        policies: RetentionPolicies,
    ) -> None:
        """Create it without runs.

        Args:
            client: Reads and deletes runs.
            index: The known objects.
            runs: The runs that this process works on.
            schedules: The Schedules, which remove their runs themselves.
            expiries: The expiries of runs.
            policies: How long namespaces keep their runs.
        """
        self._client = client
        self._index = index
        self._runs = runs
        self._schedules = schedules
        self._expiries = expiries
        self._policies = policies

    async def remove(self, key: ExpiryKey) -> None:
        """Remove an expired closed run, unless its spec or its namespace was changed to keep it longer.

        The runs of a Schedule are kept according to its history limits. A run whose end others have not recorded yet stays.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        entry = self._index.directory.get(key.uid)
        if entry is not None and entry.schedule_uid and await self._has_schedule(entry):
            return
        url = kube.path(kube.PERDURE, key.namespace, "workflowruns", key.name)
        policy = await self._policies.read(key.namespace)
        expiry = partial(self._expiry, policy=policy)
        again = await remove_expired(self._client, url, key.uid, expiry, self._may_go)
        if again is not None:
            self._expiries.add(key.uid, again)
            if policy != self._policies.known(key.namespace):  # one of them is outdated
                self._expiries.outdate(key.namespace)

    async def _may_go(self, run: kube.Object) -> bool:
        return await EndRecorded(self._client).everywhere(run) and await self._runs.is_archived(run)

    def is_over(self, run: kube.Object) -> bool:
        """Whether a run has closed and has no pending work."""
        return self._expiry(run, Policy()) is not None and not has_pending_work(run)

    def _expiry(self, run: kube.Object, policy: Policy) -> datetime | None:
        """When a run may be removed; None if it is open or must not be relied on. Such a run is reported and stays."""
        if distrust(run):
            self._runs.suspect(run)
            return None
        over = expiry_of(run, policy)
        return max(over, now() + _PENDING_WORK_PAUSE) if over and has_pending_work(run) else over

    async def _has_schedule(self, entry: Entry) -> bool:
        """Whether the Schedule of a run exists. A Schedule that no watch has shown yet is read."""
        if entry.schedule_uid not in self._index.schedules:
            url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
            try:
                owners = (await self._client.get(url))["metadata"].get("ownerReferences") or ()
            except kube.NotFoundError:
                return False
            for name in [owner["name"] for owner in owners if owner["uid"] == entry.schedule_uid]:
                await self._schedules.find(entry.namespace, name)
        return entry.schedule_uid in self._index.schedules


class NamespaceRetention:
    """Limits the finished runs of all namespaces, and removes those beyond the history limits of their namespace."""

    def __init__(
        self,
        client: kube.Client,
        recorder: Recorder,
        index: Index,
        limits: Limits,
        *,
        policies: RetentionPolicies,
        is_over: Callable[[kube.Object], bool],
        holds: Callable[[str, str], bool],
        archiver: Archiver | None = None,
    ) -> None:
        """Create it without runs.

        Args:
            client: Reads and deletes runs.
            recorder: Records Events.
            index: The finished runs, and the objects that wait for them.
            limits: The limits of each namespace.
            policies: How many runs namespaces keep.
            is_over: Returns whether a run has no pending work.
            holds: Returns whether this process knows the dependencies of an object, by the namespace and the name that select
                its shard. The dependencies of other objects are read before a run is removed.
            archiver: Archives finished runs; None without an archive.
        """
        self._client = client
        self._recorder = recorder
        self._index = index
        self._limits = limits
        self._policies = policies
        self._is_over = is_over
        self._holds = holds
        self._archiver = archiver
        self._scheduled: set[str] = set()
        self._share = Share()
        self._shared: datetime | None = None
        """When the share of each namespace was computed last."""
        self._reported: dict[str, datetime] = {}
        """When each namespace was reported last because the archive is unavailable."""
        self._log = structlog.get_logger("perdure.retention")

    def update(self, namespace: str) -> Mapping[str, datetime]:
        """Record that a run of a namespace has finished or was deleted; return when to call `enforce` for which namespaces."""
        directory = self._index.directory
        tally = directory.tally(namespace)
        metrics.show_finished(namespace, tally.runs, tally.size)
        metrics.FINISHED_USED.set(self._limits.used(directory.finished))
        due = [namespace] if tally.runs and self._policies.known(namespace).has_limits else []
        if self._update_share():
            due += [each for each, its in directory.tallies().items() if self._limits.exceeded_by(its, self._share)]
        elif self._limits.exceeded_by(tally, self._share):
            due.append(namespace)
        added = set(due) - self._scheduled
        self._scheduled |= added
        return dict.fromkeys(sorted(added), now() + _WAIT)

    def _update_share(self) -> bool:
        """Compute what each namespace may keep of what all may have, unless it is new; return whether it was computed."""
        directory = self._index.directory
        if self._limits.used(directory.finished) <= 1:
            self._share = Share()
            return False
        if self._shared is not None and now() < self._shared + _WAIT:
            return False
        self._shared = now()
        self._share = self._limits.share(directory.tallies().values())
        return True

    async def enforce(self, namespace: str) -> datetime | None:
        """Remove the oldest finished runs of a namespace with too many; return when to call again, or None for never.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        has_extra = await self._enforce_policy(namespace)
        self._update_share()
        why = self._limits.exceeded_by(self._index.directory.tally(namespace), self._share)
        if not why and not has_extra:
            self._scheduled.discard(namespace)
            return None
        if why:
            await self._enforce_limits(namespace, why)
        return now() + _WAIT

    async def _enforce_policy(self, namespace: str) -> bool:
        """Remove the runs beyond the history limits of a namespace; return whether there may be more.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if not self._policies.known(namespace).has_limits:
            return False
        policy = await self._policies.read(namespace)
        extra = policy.beyond_limits(
            run for run in self._index.directory.finished_runs(namespace) if not run.refused and not run.schedule_uid
        )
        latest = (now() - _GRACE).isoformat()
        chosen = [run for run in extra if run.closed < latest and not self._is_waited_for(run)][:_MAX_REMOVED]
        if self._archiver is not None:
            await self._archiver.learn(chosen)
        for begin in range(0, len(chosen), _BATCH):
            if await self._policies.read(namespace) != policy:
                return True
            removed, failed = await self._remove_all(chosen[begin : begin + _BATCH], gives_up=False)
            metrics.FINISHED_EXTRA.labels(namespace).inc(len(removed))
            if failed is not None and not removed:
                raise failed
        return bool(extra) or policy != self._policies.known(namespace)

    async def _enforce_limits(self, namespace: str, why: str) -> None:
        """Remove the oldest finished runs of a namespace that exceeds the limits of the installation.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        latest = (now() - _GRACE).isoformat()
        found = surplus(
            self._index.directory.finished_runs(namespace),
            self._limits,
            lambda run: run.closed < latest and not self._is_waited_for(run),
            self._share,
        )
        chosen = found[:_MAX_REMOVED]
        if self._archiver is not None:
            await self._archiver.learn(chosen)
        removed, failed = await self._remove_all(chosen)
        if removed:
            self._report(removed, why)
        elif failed is not None:
            raise failed
        if len(removed) < len(chosen) and self._archiver is not None and self._archiver.is_unavailable:
            self._report_archive(chosen[0], why)

    def _is_waited_for(self, run: Entry) -> bool:
        """Whether, according to this process, a finished run has pending work or another object needs its result."""
        if run.uid in self._index.runs or run.successor:
            return True
        if any(other.standing is Standing.WAITING for other in self._index.directory.sharing(run)):
            return True  # that run may begin with the history of this one
        schedule, parent = self._index.schedules.get(run.schedule_uid), self._index.runs.get(run.parent_uid)
        if schedule is not None and self._holds(run.namespace, schedule.name) and schedule.waits_for(run.first_uid):
            return True
        if parent is None:
            known = self._index.directory.get(run.parent_uid)
            if known is None or known.standing is Standing.CLOSED:
                return False
            return self._holds(run.namespace, known.workflow_id)
        children = parent.state.children.values() if parent.state is not None else None
        return children is None or any(child.initiated_event_id == run.initiated_event_id for child in children)

    async def _remove_all(
        self, runs: Sequence[Entry], *, gives_up: bool = True
    ) -> tuple[list[Entry], Exception | None]:
        """Remove runs; return the removed ones and the last error. A run that cannot be removed does not block the others.

        Args:
            runs: The runs.
            gives_up: Whether to remove also those that cannot be archived.
        """
        recorded, removed, failed = EndRecorded(self._client), list[Entry](), None
        for run in runs:
            try:
                if await self._remove(run, recorded, gives_up=gives_up):
                    removed.append(run)
            except kube.RequestError as error:
                failed = error
        return removed, failed

    async def _remove(self, run: Entry, recorded: EndRecorded, *, gives_up: bool) -> bool:
        """Remove a run if it is still finished and its end is recorded everywhere; return whether it was removed."""
        url = kube.path(kube.PERDURE, run.namespace, "workflowruns", run.name)
        try:
            obj = await self._client.get(url)
        except (kube.NotFoundError, kube.UnreadableError):
            return False
        meta = obj["metadata"]
        if meta["uid"] != run.uid or not self._is_over(obj) or not await recorded.everywhere(obj):
            return False
        is_archived = self._archiver is None or await self._archiver.has(obj)
        if not is_archived and self._archiver is not None and not (gives_up and self._archiver.gives_up(obj)):
            return False
        deleted = await self._client.delete(url, uid=meta["uid"], version=meta["resourceVersion"])
        if deleted and not is_archived:
            metrics.ARCHIVE_DELETED.labels(run.namespace).inc()
        return deleted

    def _report_archive(self, oldest: Entry, why: str) -> None:
        """Report that runs stay because the archive is unavailable, at most once in a while for each namespace."""
        before = self._reported.get(oldest.namespace)
        if before is not None and now() < before + _REPORT_AGAIN:
            return
        self._reported[oldest.namespace] = now()
        note = f"The archive is unavailable, so finished runs that it does not have stay: {why}"
        self._log.warning(note, namespace=oldest.namespace)
        self._recorder.record(
            _about(oldest), kind="Warning", reason=EventReason.ARCHIVE_UNAVAILABLE, note=note, action="Keep"
        )

    def _report(self, removed: list[Entry], why: str) -> None:
        namespace, oldest = removed[0].namespace, removed[0]
        metrics.FINISHED_REMOVED.labels(namespace).inc(len(removed))
        self._log.warning("Removed the oldest finished runs", namespace=namespace, runs=len(removed), reason=why)
        note = f"Removed {len(removed)} finished runs before their TTL, the oldest `{oldest.name}`: {why}"
        self._recorder.record(
            _about(oldest), kind="Warning", reason=EventReason.FINISHED_RUNS_REMOVED, note=note, action="Remove"
        )


def _about(run: Entry) -> kube.Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {"namespace": run.namespace, "name": run.name, "uid": run.uid},
    }
