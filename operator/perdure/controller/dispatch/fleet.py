"""The runs that this member of a fleet works on: its own, guests, and the runs of shards that it gains.

It works on the runs whose shards it holds, and on guests: runs that another member owns, but for which this one has a request.
The request is recorded here by compare-and-swap, and the owner sees the change through its watch. A guest leaves when it has
been idle here for a while.

Only the owner of a shard admits runs to their workflow IDs. Its watch may lag behind the previous owner, which may have created
or started a run that would keep another run from starting. A list that begins after the gain shows all of that, and is read
before the first run of these shards is admitted (`CatchUp`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from perdure.controller.directory import Directory, Entry, Standing
from perdure.controller.dispatch.hibernation import Hibernation
from perdure.controller.dispatch.index import Index
from perdure.controller.errors import isolate
from perdure.controller.fleet.shards import SHARDS, Shards
from perdure.controller.queue import Key, KeyedQueue, RunKey, sharding_name
from perdure.controller.runs.run import Run
from perdure.controller.services import Services
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.kube.responses import Stored
from perdure.observe import metrics

_MANY: Final = 50
"""Fewer runs of a namespace than this are read one by one, concurrently."""
_FINISHED_EACH: Final = 8
"""The number of finished runs in a page that cost as much as a request for one run."""
_GUEST_STAYS: Final = timedelta(seconds=1)
"""How long a guest stays after its last request, so that the answer is recorded and the run can drop the request."""


class FleetRuns:
    """The runs that this member works on, and the runs that others own."""

    def __init__(
        self,
        services: Services,
        index: Index,
        queue: KeyedQueue[Key],
        hibernation: Hibernation,
        fetch: Callable[[Entry], Awaitable[Run | None]],
        work_on: Callable[[kube.Object], None],
    ) -> None:
        """Create it without runs.

        Args:
            services: The shards of this member, and the server for workers.
            index: The runs that this process works on.
            queue: The queue of their keys.
            hibernation: The runs of this member that are not in memory.
            fetch: Reads a run and starts to work on it.
            work_on: Starts to work on a run that was read, or lets it hibernate.
        """
        self.others: set[str] = set()
        """UIDs of runs with pending work of other members."""
        self._guests: dict[str, datetime] = {}
        """When each guest last got a request, by UID."""
        self._index = index
        self._queue = queue
        self._hibernation = hibernation
        self._shards = services.shards
        self._services = services
        self._fetch = fetch
        self._work_on = work_on
        self._gained = GainedRuns(services.client, index.directory, update=self._update, wake=self._wake)

    def is_guest(self, uid: str) -> bool:
        """Whether a run is a guest."""
        return uid in self._guests

    def add(self, run: Run) -> None:
        """Record that this process works on a run. A run of another member is a guest."""
        if not self._holds(run):
            self._add_guest(run)

    def record_request(self, run: Run) -> None:
        """Record that a run got a request, or can drop one."""
        if self.is_guest(run.ref.uid):
            self._add_guest(run)

    def remove(self, uid: str) -> None:
        """Record that a run has no pending work."""
        self._guests.pop(uid, None)
        self.others.discard(uid)

    def reassign(self) -> None:
        """Apply a change of the shards: drop the runs that others own now, and read the runs that this member owns now."""
        active, runs = self._shards.active, list(self._index.runs.values())
        reassigned = [run for run in runs if not self._holds(run) and not (active and self.is_guest(run.ref.uid))]
        senders = {run.ref.uid for run in reassigned}
        for run in runs:
            run.withdraw_all_of(senders)  # the new owners of these runs repeat their requests
        for run in reassigned:
            self._leave(run)
        for run in [run for run in runs if self.is_guest(run.ref.uid) and self._holds(run)]:
            del self._guests[run.ref.uid]
            run.commits_everything = False
            self._queue.wake(run.key)
        for uid in self._hibernation.uids():
            self._pass_on(uid)
        known = filter(None, map(self._index.directory.get, self.others))
        self._gained.read(each for each in known if self._shards.owns(each.namespace, each.workflow_id))
        metrics.TIMERS.set(self._queue.armed)
        metrics.RUNS_KNOWN.set(len(self._index.runs))

    def _pass_on(self, uid: str) -> None:
        """Leave a hibernated run to another member, if that owns it now."""
        entry = self._index.directory.get(uid)
        if entry is not None and not self._shards.holds(entry.namespace, entry.workflow_id):
            self._hibernation.discard(uid)
            self._queue.forget(RunKey(entry.namespace, entry.uid, entry.workflow_id))
            self.others.add(uid)

    def _wake(self, entry: Entry) -> None:
        if entry.uid not in self._hibernation:
            self._queue.wake(RunKey(entry.namespace, entry.uid, entry.workflow_id))

    def _update(self, obj: kube.Object) -> None:
        """Start to work on a listed run, if this member has gained it from others."""
        meta = obj["metadata"]
        if meta["uid"] not in self.others or self._index.runs.get(meta["uid"]) is not None:
            return
        if self._shards.owns(meta["namespace"], sharding_name(obj)) and not meta.get("deletionTimestamp"):
            self._work_on(obj)
            self.others.discard(meta["uid"])

    async def read_gained(self, key: RunKey) -> Run | None:
        """Read a run that this member owns now but does not have in memory; None for other runs.

        Raises:
            RequestError: The API server did not respond.
        """
        entry = self._index.directory.get(key.uid)
        if entry is None or key.uid not in self.others or not self._shards.owns(key.namespace, key.sharded_by):
            return None
        run = await self._fetch(entry)
        self.others.discard(key.uid)
        return run

    def host(self, run: Run, wake: datetime | None, *, keep: bool) -> None:
        """Drop a guest that has been idle here for a while; otherwise schedule its next reconciliation.

        Args:
            run: The guest.
            wake: When it must be reconciled; None: not before an event.
            keep: Whether something other than a request keeps it here.
        """
        leaves = self._guests[run.ref.uid] + _GUEST_STAYS
        if run.inbox or keep:
            self._queue.wake_at(run.key, wake)
        elif now() >= leaves:
            self._leave(run)
        else:
            self._queue.wake_at(run.key, min(filter(None, (wake, leaves))))
        metrics.FLEET_GUESTS.set(len(self._guests))

    def _leave(self, run: Run) -> None:
        """Drop a run that another member owns. A run with pending requests here stays as a guest."""
        self._services.workers.release(run)
        if run.inbox and self._shards.active:
            self._add_guest(run)
            return
        self._index.runs.pop(run.ref.uid, None)
        self._guests.pop(run.ref.uid, None)
        self._hibernation.discard(run.ref.uid)
        self._queue.forget(run.key)
        if not run.done:
            self.others.add(run.ref.uid)

    def _add_guest(self, run: Run) -> None:
        self._guests[run.ref.uid] = now()
        run.commits_everything = True

    def _holds(self, run: Run) -> bool:
        return self._shards.holds(run.ref.namespace, run.ref.workflow_id)


class GainedRuns:
    """Reads the open runs of gained shards: page by page if there are many, otherwise one by one."""

    def __init__(
        self,
        client: kube.Client,
        directory: Directory,
        *,
        update: Callable[[kube.Object], None],
        wake: Callable[[Entry], None],
    ) -> None:
        """Create a reader without runs.

        Args:
            client: Lists runs.
            directory: The directory, for the number of finished runs.
            update: Processes a run of a page.
            wake: Wakes a run, which is then read individually unless this member works on it already.
        """
        self._client = client
        self._directory = directory
        self._update = update
        self._wake = wake
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("perdure.fleet")

    def read(self, entries: Iterable[Entry]) -> None:
        """Schedule the reading of runs."""
        gained: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            gained[entry.namespace].append(entry)
        for namespace, runs in gained.items():
            if len(runs) < _MANY or self._directory.tally(namespace).runs > _FINISHED_EACH * len(runs):
                for entry in runs:
                    self._wake(entry)
                continue
            task = asyncio.get_running_loop().create_task(self._read_pages(namespace, runs), name="gained runs")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read_pages(self, namespace: str, runs: Sequence[Entry]) -> None:
        try:
            async for page in self._client.lists.pages(kube.path(kube.PERDURE, namespace, "workflowruns")):
                for _, obj in self._client.lists.objects(page):
                    self._update(obj)
                await asyncio.sleep(0)
        except kube.RequestError as error:
            self._log.warning("Could not list the runs of the acquired shards", namespace=namespace, error=repr(error))
        for entry in runs:
            self._wake(entry)


class CatchUp:
    """Lists the runs of a namespace once after each gain of shards, before it admits the first run."""

    def __init__(
        self, client: kube.Client, directory: Directory, shards: Shards, update: Callable[[kube.Object], None]
    ) -> None:
        """Create it without reading.

        Args:
            client: Lists and reads the runs.
            directory: The known runs.
            shards: The shards of this member.
            update: Processes a run that was read.
        """
        self._client = client
        self._directory = directory
        self._shards = shards
        self._update = update
        self._owned: frozenset[int] = frozenset()
        self._gains = 0
        """How often this member has gained shards. A process without a fleet gains none: no one else admits runs."""
        self._read: dict[str, int] = {}
        """The last gain before the runs of each namespace were listed."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        shards.subscribe(self._reassigned)

    def _reassigned(self) -> None:
        before, self._owned = self._owned, frozenset(filter(self._shards.owns_shard, range(SHARDS)))
        self._gains += not self._owned <= before

    async def read(self, namespace: str) -> None:
        """Ensure that all runs of a namespace are known that existed when this member last gained shards.

        Raises:
            RequestError: The API server did not respond.
        """
        while self._read.get(namespace, 0) < self._gains:
            async with self._locks[namespace]:
                gains = self._gains
                if self._read.get(namespace, 0) < gains:
                    await self._list(namespace)
                    self._read[namespace] = gains

    async def _list(self, namespace: str) -> None:
        url = kube.path(kube.PERDURE, namespace, "workflowruns")
        async for page in self._client.lists.versions(url):
            for each in page:
                if self._may_have_started(each):
                    await self._read_run(url, each)
            await asyncio.sleep(0)

    def _may_have_started(self, stored: Stored) -> bool:
        """Whether a run may be open although it is not known, or only known to wait."""
        known = self._directory.get(stored.uid)
        return known is None or (known.standing is Standing.WAITING and known.version != stored.version)

    async def _read_run(self, url: str, stored: Stored) -> None:
        try:
            obj = await self._client.get(f"{url}/{stored.name}")
        except (kube.NotFoundError, kube.UnreadableError):
            return
        isolate(obj, self._update)
