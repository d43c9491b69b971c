"""Hibernation: an open run that only waits takes little more memory than a finished one.

A run that has nothing ahead but timers, timeouts, and messages is dropped from memory, because the API server has all of it. What
remains is its packed entry in the directory, its packed record for lists, and the time of its next timer.

    listed ──────────────────────────────────┐ only waits
                                             ▼
    only waits ─▶ unchanged for a while ─▶ hibernated ─▶ its timer is due, a request, a change by others ─▶ read again

While many runs that only wait are in memory, others hibernate immediately, unless they are due within seconds: so memory is
bounded however many timers are due in the same minutes.

A run that wakes is read from the API server, as one that this process has just gained from another member of a fleet. Nothing is
written when a run goes to sleep, so every operator decides for itself, and a killed one loses nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perdure.api.phases import workflow_of
from perdure.controller.dispatch.index import Index
from perdure.controller.queue import Key, KeyedQueue, RunKey, sharding_name
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.recorded_state import DamagedStateError, stored_state
from perdure.controller.runs.run import Run
from perdure.controller.runs.status import is_near_limit, is_stuck
from perdure.controller.services import Services
from perdure.engine.state import RunState
from perdure.engine.step import next_wake, only_waits
from perdure.engine.versioning import DeploymentVersion
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.observe import metrics
from perdure.runtime.commits import OF_RUNS, Commit, edited

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_SECONDS = timedelta(seconds=10)
"""A run whose next timer is due sooner never hibernates: it would be read again immediately."""


@dataclass(frozen=True, slots=True)
class HibernationSettings:
    """When runs hibernate."""

    after: timedelta = timedelta(minutes=1)
    """How long a run stays in memory without a change, once it only waits."""
    shortest: timedelta = timedelta(minutes=5)
    """A run whose next timer is due sooner stays in memory."""
    most: int = 1_000
    """The most runs that stay in memory for these reasons."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A run in memory that only waits."""

    version: str
    """Its resourceVersion."""
    until: datetime
    """When it hibernates, unless it changes before."""


class Hibernation:
    """The runs that this process owns, but has not in memory because they only wait."""

    def __init__(
        self, services: Services, index: Index, queue: KeyedQueue[Key], settings: HibernationSettings | None = None
    ) -> None:
        """Create it without runs.

        Args:
            services: The server for workers, which may need a run in memory.
            index: The runs in memory.
            queue: The queue with the timers of runs.
            settings: When runs hibernate; None for the defaults.
        """
        self._services = services
        self._index = index
        self._queue = queue
        self._settings = settings or HibernationSettings()
        self._asleep: dict[str, tuple[str, str]] = {}
        """The namespace of each hibernated run, and its Workflow or workflow type, by UID."""
        self._names: dict[tuple[str, str], tuple[str, str]] = {}
        """Each of these pairs once, to save memory."""
        self.open_runs: Counter[tuple[str, str]] = Counter()
        """The number of hibernated runs, by namespace and Workflow."""
        self._pins: dict[str, DeploymentVersion] = {}
        """The versions to which hibernated workflows of code are pinned, by UID."""
        self._pinned: defaultdict[str, Counter[DeploymentVersion]] = defaultdict(Counter)
        """How many are pinned to each version, by namespace."""
        self._waiting: dict[str, _Waiting] = {}
        """The runs in memory that only wait, by UID."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._asleep

    def __len__(self) -> int:
        return len(self._asleep)

    def pinned(self, namespace: str) -> Collection[DeploymentVersion]:
        """The versions to which hibernated workflows of a namespace are pinned."""
        return self._pinned[namespace].keys() if namespace in self._pinned else ()

    def uids(self) -> list[str]:
        """The UIDs of the hibernated runs."""
        return list(self._asleep)

    def reconciled(self, run: Run, wake: datetime | None) -> datetime | None:
        """Let a run hibernate that only waits and has not changed for a while.

        Args:
            run: A run that was just reconciled, and that this process owns.
            wake: When it must be reconciled again; None: not before an event.

        Returns:
            When to reconcile it, so that it can hibernate; `wake` if it does not, or has begun to.
        """
        uid, now = run.ref.uid, wall_clock()
        if run.waits_for_room and not run.inbox:
            self._drop(run)
            return wake
        if not self._only_waits(run, wake, now):
            self._waiting.pop(uid, None)
            return wake
        known = self._waiting.get(uid)
        if known is None or known.version != run.record.version:
            known = self._waiting[uid] = _Waiting(run.record.version, now + self._settings.after)
        if len(self._waiting) <= self._settings.most:
            if wake is not None and wake < now + self._settings.shortest:
                return wake
            if known.until > now:
                return known.until
        self._drop(run)
        return wake

    def _drop(self, run: Run) -> None:
        self._services.workers.release(run)
        self._index.runs.pop(run.ref.uid, None)
        self._hibernate(run.ref.uid, run.ref.namespace, run.workflow, run.state)

    def _only_waits(self, run: Run, wake: datetime | None, now: datetime) -> bool:
        """Whether a run could hibernate now."""
        soon = wake is not None and wake < now + _SECONDS
        return not soon and run.is_idle(now) and not run.near_limit and not self._services.workers.awaits(run.ref.uid)

    def state_of(self, obj: kube.Object) -> RunState | None:
        """The state of a listed run whose intact status says that it only waits; None for one that must be reconciled first."""
        status, now = obj.get("status") or {}, wall_clock()
        commit = Commit.of(status)
        if not status.get("state") or is_stuck(status):
            return None
        if commit is None or commit.uid != obj["metadata"]["uid"]:
            return None  # it was created again from a backup, which must be reported
        try:
            state = stored_state(obj)
        except (DamagedStateError, NewerStateError):
            return None
        if state is None or not only_waits(state, now) or is_near_limit(state, 0) or edited(status, OF_RUNS):
            return None
        wake = next_wake(state, _LONG_AGO)
        shortest = self._settings.shortest if len(self._index.runs) < self._settings.most else _SECONDS
        return None if wake is not None and wake < now + shortest else state

    def add(self, obj: kube.Object, state: RunState) -> None:
        """Let a listed run hibernate that the directory has, with the state that `state_of` has returned."""
        meta = obj["metadata"]
        self._hibernate(meta["uid"], meta["namespace"], workflow_of(obj["spec"]), state)
        key = RunKey(meta["namespace"], meta["uid"], sharding_name(obj))
        self._queue.wake_at(key, next_wake(state, _LONG_AGO))

    def _hibernate(self, uid: str, namespace: str, workflow: str, state: RunState | None) -> None:
        self._waiting.pop(uid, None)
        kind = self._names.setdefault((namespace, workflow), (namespace, workflow))
        self._asleep[uid] = kind
        self.open_runs[kind] += 1
        version = state.code.versioning.pinned_to if state is not None and state.code is not None else None
        if version is not None:
            self._pins[uid] = version
            self._pinned[namespace][version] += 1
        self._index.directory.pack(uid)
        self._index.leave_to_directory(uid)
        self._services.workers.hibernate(namespace, uid)
        metrics.RUNS_HIBERNATED.set(len(self._asleep))

    def discard(self, uid: str) -> bool:
        """Record that a run hibernates here no longer; return whether it did."""
        self._waiting.pop(uid, None)
        kind = self._asleep.pop(uid, None)
        if kind is None:
            return False
        version = self._pins.pop(uid, None)
        if version is not None:
            self._pinned[kind[0]] -= Counter((version,))
            if not self._pinned[kind[0]]:
                del self._pinned[kind[0]]
        self.open_runs[kind] -= 1
        if not self.open_runs[kind]:
            del self.open_runs[kind], self._names[kind]
        metrics.RUNS_HIBERNATED.set(len(self._asleep))
        return True
