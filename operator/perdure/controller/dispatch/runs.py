"""The runs that this process works on: their watch events, the requests to them, and their reconciliation.

A change of a run wakes the run and the objects that wait for it: its parent, its Schedule, its children, the runs of its workflow
ID, and WorkflowLimits. Requests of other runs, Schedules, Operations, and clients reach a run whether or not this process already
works on it. Runs access each other through `Peers`. A closed run without pending work is only in the directory. In a fleet,
`FleetRuns` determines which runs this process works on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from perdure.api.policies import ParentClosePolicy
from perdure.api.reasons import ConditionReason
from perdure.controller.archiver import Archiver
from perdure.controller.capacity import Capacity, CapacitySettings
from perdure.controller.directory import Entry, Standing
from perdure.controller.dispatch.fleet import CatchUp, FleetRuns
from perdure.controller.dispatch.hibernation import Hibernation, HibernationSettings
from perdure.controller.dispatch.index import Index
from perdure.controller.errors import isolate
from perdure.controller.expiry import RunExpiries, has_pending_work, is_closed
from perdure.controller.limit_releases import LimitReleases
from perdure.controller.queue import DeadLetterKey, ExpiryKey, Key, KeyedQueue, RunKey, ScheduleKey, sharding_name
from perdure.controller.reconcile.newer_states import is_reported
from perdure.controller.runs.run import Run
from perdure.controller.services import Services
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.kube import client as kube
from perdure.language.reuse import reference_from
from perdure.observe import metrics
from perdure.runtime.commits import OF_RUNS, edited
from perdure.runtime.deadletters import dead_letter_of


class RunNeighbors:
    """Wakes the objects that wait for a run when the run changes."""

    def __init__(
        self,
        services: Services,
        index: Index,
        queue: KeyedQueue[Key],
        *,
        capacity: Capacity,
        releases: LimitReleases,
        changed: Callable[[str], None],
        archiver: Archiver | None,
        send: Callable[[Entry, inputs.Request, Callable[[Any], None]], None],
    ) -> None:
        """Create it without runs.

        Args:
            services: The server for workers, which gets every run.
            index: The runs and Schedules; runs are added to its directory here.
            queue: The queue of their keys.
            capacity: Has the runs that wait until another one closes.
            releases: Releases the WorkflowLimits of runs and activities that have ended.
            changed: Called with the namespace of each finished run.
            archiver: Archives finished runs; None without an archive.
            send: Delivers a request to a run.
        """
        self._index = index
        self._queue = queue
        self._services = services
        self._capacity = capacity
        self._releases = releases
        self._changed = changed
        self._archiver = archiver
        self._send = send

    def update(self, obj: kube.Object) -> None:
        """Update the directory, and wake the objects that wait for a change of a run. One in deletion has ended for them."""
        before, after = self._index.directory.put(obj)
        if after is None:
            self._services.workers.delete(obj)
        else:
            self._services.workers.update(obj)
        self._propagate(obj, before, after)
        if after is None and before is not None:
            self._end_children(before)

    def delete(self, obj: kube.Object) -> None:
        """Remove a deleted run from the directory, and wake the objects that wait for its end."""
        self._services.workers.delete(obj)
        before = self._index.directory.drop(obj["metadata"]["uid"])
        self._propagate(obj, before, None)
        if before is not None:
            self._end_children(before)

    def _propagate(self, obj: kube.Object, before: Entry | None, after: Entry | None) -> None:
        """Wake the parent, the Schedule, the runs that wait for the workflow ID, and the limits of a run that has changed."""
        namespace = obj["metadata"]["namespace"]
        if any(each is not None and each.standing is Standing.CLOSED for each in (before, after)):
            self._changed(namespace)
            if self._archiver is not None:
                self._archiver.update(obj["metadata"]["uid"])
        if after is not None and after.standing is Standing.OPEN:
            self._releases.update_run(obj)
        letter = dead_letter_of(obj)
        if letter is not None and (before is None or before.standing is not getattr(after, "standing", None)):
            self._queue.wake(DeadLetterKey(namespace, letter))
        known = after or before
        if known is None or (before and after and _public_facts(before) == _public_facts(after)):
            return
        self.wake(known)
        if after is None or after.standing is Standing.CLOSED:
            self._capacity.release(namespace)
            self._releases.end_run(namespace, known.uid)
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
            parent.outcomes.update(run.uid)
            self._queue.wake(parent.key)

    def _end_children(self, parent: Entry) -> None:
        """Apply the parent close policy to the open children of a deleted run, because it does not do that itself.

        The garbage collector deletes those to terminate, but only once the object of their parent is gone.
        """
        for child in self._index.directory.children_of(parent.namespace, parent.uid):
            if child.standing is Standing.CLOSED or child.parent_close_policy is ParentClosePolicy.ABANDON:
                continue
            cancels = child.parent_close_policy is ParentClosePolicy.REQUEST_CANCEL
            kind = inputs.CancelRequested if cancels else inputs.TerminateRequested
            reason = f"its parent `{parent.name}` was deleted"
            self._send(child, kind(request_id=f"{parent.uid}/deleted", reason=reason), lambda _: None)


def _public_facts(run: Entry) -> tuple[Standing, str, str]:
    """The facts about a run for which its parent and other runs wait."""
    return run.standing, run.successor, run.parent_uid


_RETRY_SECONDS = 1.0


class WorkflowRuns:
    """The runs with pending work."""

    def __init__(
        self,
        services: Services,
        index: Index,
        queue: KeyedQueue[Key],
        expiries: RunExpiries,
        *,
        releases: LimitReleases,
        changed: Callable[[str], None],
        archiver: Archiver | None = None,
        hibernation: HibernationSettings | None = None,
        capacity: CapacitySettings | None = None,
    ) -> None:
        """Create it without runs.

        Args:
            services: The shared services.
            index: The index to which runs are added.
            queue: The queue that calls `advance`.
            expiries: The expiries of finished runs.
            releases: Releases the WorkflowLimits of runs and activities that have ended.
            changed: Called with a namespace when one of its runs has changed.
            archiver: Archives finished runs; None without an archive.
            hibernation: When runs that only wait are dropped from memory; None for the defaults.
            capacity: The limits of open runs and of memory; None for the defaults.
        """
        self._services = services
        self._index = index
        self._queue = queue
        self._expiries = expiries
        self._archiver = archiver
        self.capacity = Capacity(index.directory, queue, capacity)
        """Decides whether new runs start now."""
        self._neighbors = RunNeighbors(
            services,
            index,
            queue,
            capacity=self.capacity,
            releases=releases,
            changed=changed,
            archiver=archiver,
            send=self.send,
        )
        self._suspects: set[str] = set()
        """UIDs of closed runs whose status was edited."""
        self._shards = services.shards
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("perdure.runs")
        self.directory = index.directory
        """The directory of all runs."""
        self.get = index.runs.get
        """Return the run with a UID, if this process works on it."""
        self.hibernation = Hibernation(services, index, queue, hibernation)
        """The runs that this process owns, but has not in memory because they only wait."""
        self.fleet = FleetRuns(services, index, queue, self.hibernation, self._fetch, self._gain)
        """The runs of other members of a fleet."""
        self.catch_up = CatchUp(services.client, index.directory, services.shards, self.update).read
        """Ensure that all runs of a namespace are known that existed when this process last gained shards; see there."""

    async def is_archived(self, obj: kube.Object) -> bool:
        """Whether a finished run is archived as it was read; always true without an archive."""
        return self._archiver is None or await self._archiver.has(obj)

    def all(self) -> list[Run]:
        """The runs that this process works on."""
        return list(self._index.runs.values())

    # Watch events

    def update(self, obj: kube.Object) -> None:
        """Process the creation or change of a run."""
        uid = obj["metadata"]["uid"]
        before = self.directory.get(uid)
        self._index.update(obj)
        self._neighbors.update(obj)
        if obj["metadata"].get("deletionTimestamp"):
            self._end(obj)
            return
        self._expiries.update(uid)
        run = self.get(uid)
        if run is None and uid in self.hibernation and before is not None and _is_version(obj, before):
            self._index.leave_to_directory(uid)  # the watch shows what was written or read before
        elif run is None:
            self._admit(obj, before, closed=is_closed(obj))
        elif run.record.update(obj):
            self._wake(run)

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a run."""
        self._index.delete(obj["metadata"]["uid"])
        self._neighbors.delete(obj)
        self._end(obj)

    def _end(self, obj: kube.Object) -> None:
        """Let a run that is deleted, or about to be, release what it holds."""
        self._queue.forget(ExpiryKey.of(obj))
        self.capacity.leave(_key_of(obj))
        self.fleet.others.discard(obj["metadata"]["uid"])
        if self.hibernation.discard(obj["metadata"]["uid"]):
            self._queue.forget(_key_of(obj))
        run = self.get(obj["metadata"]["uid"])
        if run is not None:
            run.mark_deleted()
            self._wake(run)

    def _admit(self, obj: kube.Object, before: Entry | None, *, closed: bool) -> None:
        """Work on a run with pending work, unless another member of the fleet does; `before` is its earlier entry."""
        uid = obj["metadata"]["uid"]
        if self.directory.is_newer(obj):
            return  # the watch lags behind our own writes: the run has closed since then
        holds = self._shards.holds(obj["metadata"]["namespace"], sharding_name(obj))
        if closed and not _has_work(obj):
            self._index.leave_to_directory(uid)
            self.fleet.others.discard(uid)
            if self.hibernation.discard(uid):
                self._queue.forget(_key_of(obj))
            if before is not None and holds and _was_edited(before, obj):
                self.suspect(obj)
            # Otherwise only pods are left to release, and they have their own events.
        elif holds:
            self._add(obj)
        else:
            self.fleet.others.add(uid)

    def update_listed(self, obj: kube.Object) -> None:
        """Process a run of the first list."""
        meta = obj["metadata"]
        holds = self._shards.holds(meta["namespace"], sharding_name(obj))
        if not (holds and self.get(meta["uid"]) is None and self._let_hibernate(obj)):
            self.update(obj)

    def _let_hibernate(self, obj: kube.Object) -> bool:
        """Let a listed run hibernate that only waits, without reconciling it; return whether it does."""
        state = None if obj["metadata"].get("deletionTimestamp") else self.hibernation.state_of(obj)
        if state is None or self.directory.is_newer(obj):
            return False
        self._neighbors.update(obj)
        self.hibernation.add(obj, state)
        return True

    def update_finished(self, obj: kube.Object) -> bool:
        """Process a run of a list if it is finished and has no pending work; return whether it was processed."""
        if self.get(obj["metadata"]["uid"]) is not None or not is_closed(obj) or _has_work(obj):
            return False
        isolate(obj, self.update)
        return True

    def add_created(self, obj: kube.Object) -> None:
        """Process a run that this process has created, to reconcile it before a watch reports it."""
        if self.get(obj["metadata"]["uid"]) is None:
            self.update(obj)

    def publish(self, obj: kube.Object) -> None:
        """Process a run that this process has just written or read."""
        self._neighbors.update(obj)

    def delete_missed(self, entry: Entry) -> None:
        """Process a deletion that no watch has reported."""
        run = self.get(entry.uid)
        if run is not None:
            run.mark_deleted()
            self._wake(run)
        else:
            meta = {"namespace": entry.namespace, "name": entry.name, "uid": entry.uid}
            self.delete({"metadata": meta, "spec": {}})

    def update_workflow(self, namespace: str, name: str) -> None:
        """Wake the runs that wait for a Workflow that was created, changed, or deleted."""
        for run in self._index.runs.values():
            if run.waits_for_workflow(reference_from(run.ref.namespace, namespace, name)):
                self._wake(run)

    def update_defaults(self, namespace: str) -> None:
        """Wake the runs of a namespace that have not started: its WorkflowDefaults have changed."""
        for run in self._index.runs.values():
            if run.ref.namespace == namespace and run.state is None:
                self._wake(run)

    def update_policies(self, namespace: str) -> None:
        """Wake the runs of a namespace whose RetryPolicies have changed, or whose circuit breaker admits more."""
        for run in self._index.runs.values():
            if run.ref.namespace == namespace and run.update_policies():
                self._wake(run)

    def suspect(self, obj: kube.Object) -> None:
        """Report that the status of a closed run was edited. Objects that wait for its result are woken when it is restored."""
        uid = obj["metadata"]["uid"]
        self._suspects.add(uid)
        if self.get(uid) is None:
            self._add(obj)

    # The runs that this process works on

    async def find(self, entry: Entry) -> Run | None:
        """Find a run, and read it first if this process does not work on it; None if it was deleted.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        return self.get(entry.uid) or await self._fetch(entry)

    async def _fetch(self, entry: Entry) -> Run | None:
        """Read a run that this process does not work on because it has closed or no watch has shown it yet."""
        url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
        try:
            obj = await self._services.client.get(url)
        except kube.NotFoundError:
            return None
        if obj["metadata"]["uid"] != entry.uid:
            return None
        if obj["metadata"].get("deletionTimestamp"):
            self.update(obj)
            return None
        return self.get(entry.uid) or self._work_on(obj)

    def resume(self, obj: kube.Object) -> None:
        """Work on an open run that was just read, even if it hibernates."""
        self.update(obj)
        if obj["metadata"]["uid"] in self.hibernation:
            self._add(obj)

    def _gain(self, obj: kube.Object) -> None:
        """Work on a run of a shard that this member has gained, or let it hibernate."""
        if not self._let_hibernate(obj):
            self._work_on(obj)

    async def _awaken(self, key: RunKey) -> Run | None:
        """Read a hibernated run whose timer is due; None for other runs.

        Raises:
            RequestError: The API server did not respond.
        """
        entry = self.directory.get(key.uid) if key.uid in self.hibernation else None
        if entry is None:
            return None
        run = await self._fetch(entry)
        if run is None and self.hibernation.discard(key.uid):
            self._queue.forget(key)
        return run

    def _work_on(self, obj: kube.Object) -> Run:
        self._neighbors.update(obj)  # other runs of its workflow ID must know about it before it begins
        return self._add(obj)

    def _add(self, obj: kube.Object) -> Run:
        key = _key_of(obj)
        run = self._index.runs[key.uid] = Run(self._services, self, obj, lambda: self._queue.wake(key))
        self.hibernation.discard(key.uid)
        self.fleet.add(run)
        self._queue.wake(key)
        return run

    def _wake(self, run: Run) -> None:
        self._queue.wake(run.key)

    # Requests

    def send(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Send a request to a run; `then` is called with its answer once the answer is recorded."""
        self._start(self._deliver_until_done(entry, request, then))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver_until_done(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        try:
            await self.deliver(entry, request, then)
        except kube.RequestError as error:
            self._log.warning("Could not send a request to a run, retrying", run=entry.name, error=repr(error))
            await asyncio.sleep(_RETRY_SECONDS)
            self.send(entry, request, then)

    async def deliver(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Send a request to a run, and return when the run has it. So requests that are delivered in sequence stay in order.

        Raises:
            RequestError: The API server did not respond.
        """
        run = await self.find(entry)
        if run is None:
            message = f"WorkflowRun `{entry.name}` was deleted"
            then(Answer(ok=False, reason=ConditionReason.TARGET_NOT_FOUND, message=message))
            return
        run.inbox.put(request, then)
        self.fleet.record_request(run)
        self._wake(run)

    def withdraw(self, run_id: str, request_id: str) -> None:
        """Withdraw a request, unless the run has already recorded it."""
        run = self.get(run_id)
        if run is not None:
            run.inbox.withdraw(request_id)

    def acknowledge(self, entry: Entry, request_id: str) -> None:
        """Report to a run that the sender has recorded its answer to a request, so that the run can drop the request."""
        run = self.get(entry.uid)
        if run is not None:
            run.forget(request_id)
            self.fleet.record_request(run)
            if self.fleet.is_guest(entry.uid):
                self._wake(run)
        elif entry.uid in self.fleet.others or entry.uid in self.hibernation:
            self._start(self._forget_as_guest(entry, request_id))

    async def _forget_as_guest(self, entry: Entry, request_id: str) -> None:
        try:
            run = await self.find(entry)
        except kube.RequestError:
            await asyncio.sleep(_RETRY_SECONDS)
            self.acknowledge(entry, request_id)
            return
        if run is not None:
            run.forget(request_id)
            self._wake(run)

    def record_start(self, entry: Entry) -> bool:
        """Record the start of a run without waiting for its first decision; return whether it was unrecorded."""
        run = self.get(entry.uid)
        if run is None or run.deleted or not run.record_start():
            return False
        self._wake(run)
        return True

    # Work

    async def advance(self, key: RunKey) -> None:
        """Reconcile a run, and drop it when it has no pending work.

        Raises:
            NotYetError: The definition of the run is being compiled.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        run = self.get(key.uid) or await self._awaken(key) or await self.fleet.read_gained(key)
        if run is None:
            return
        with metrics.RECONCILIATIONS.time():
            wake = await run.advance()
        if self.get(key.uid) is not run:
            return  # another member owns it now
        if run.done:
            if not run.deleted and self.directory.closed_version(key.uid) is None:
                self.publish(run.record.latest())  # another client has recorded its end, and the watch may lag
            self._index.runs.pop(key.uid, None)
            if self.directory.closed_version(key.uid) is not None:
                self._index.leave_to_directory(key.uid)
            self.fleet.remove(key.uid)
            self.hibernation.discard(key.uid)
            self._queue.forget(key)
            self._restore(run)
        elif self.fleet.is_guest(key.uid):
            self.fleet.host(run, wake, keep=key.uid in self._suspects)
        else:
            self._queue.wake_at(key, self.hibernation.reconciled(run, wake))
        metrics.TIMERS.set(self._queue.armed)
        metrics.RUNS_KNOWN.set(len(self._index.runs))

    def count_open(self) -> tuple[Counter[tuple[str, str]], Counter[str]]:
        """The open runs that this process owns, by namespace and Workflow; those near a limit, by namespace."""
        runs = [run for uid, run in self._index.runs.items() if not (run.done or self.fleet.is_guest(uid))]
        near = Counter(run.ref.namespace for run in runs if run.near_limit)
        in_memory = Counter((run.ref.namespace, run.workflow) for run in runs)
        return in_memory + self.hibernation.open_runs, near

    def _restore(self, run: Run) -> None:
        """Wake the objects that wait for the result of a run whose edited status was restored."""
        uid = run.ref.uid
        entry = self.directory.get(uid)
        if uid not in self._suspects or entry is None:
            return
        self._suspects.discard(uid)
        letter = dead_letter_of(run.record.latest())
        if letter is not None:
            self._queue.wake(DeadLetterKey(run.ref.namespace, letter))
        self._neighbors.wake(entry)


def _key_of(run: kube.Object) -> RunKey:
    return RunKey(run["metadata"]["namespace"], run["metadata"]["uid"], sharding_name(run))


def _is_version(run: kube.Object, known: Entry) -> bool:
    return bool(run["metadata"].get("resourceVersion") == known.version)


def _has_work(run: kube.Object) -> bool:
    """Whether a closed run has pending work, or an older operator has reported that it cannot read it."""
    return has_pending_work(run) or is_reported(run.get("status") or {})


def _was_edited(before: Entry, run: kube.Object) -> bool:
    """Whether someone edited the status of a run that is known as closed. Checked only if the run was written since."""
    written = before.standing is Standing.CLOSED and before.version != run["metadata"]["resourceVersion"]
    return written and bool(edited(run.get("status") or {}, OF_RUNS))
