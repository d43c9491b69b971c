"""How this process learns which objects exist: the first lists, the watch on each kind, and the resync.

Before the first decision, `FirstLists` lists all WorkflowDefaults, runs, RetryPolicies, WorkflowLimits, and Schedules, in this
order: how long the namespace keeps its finished runs is known before the runs are. An `Informer` decides where the events of a
watch go, and whether it still shows all changes. Objects that cannot be decoded are skipped and reported.

The resync compares lists from the API server with the objects from the watches. A watch may miss changes: kopf does not report
deletions during a gap, and a connection can hang. So once a minute, and sooner after a failure, runs, pods, and Schedules are
listed by name and version, the kinds with few objects are read whole, and missed changes are processed. Workflows and
WorkflowDefaults are not in it: their watches list them again every few minutes, and until then a run only waits. Operations are
listed where they are processed. The liveness probe also depends on the resync. At the same time, jumps of the wall clock are
detected: someone has set it, or the machine was suspended.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from perdure.api import labels
from perdure.api.labels import GROUP, VERSION
from perdure.api.reasons import EventReason
from perdure.controller.dispatch.index import Index
from perdure.controller.dispatch.pods import RunPods
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.dispatch.schedules import Schedules
from perdure.controller.errors import isolate
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.queue import DeadLetterKey, Key, KeyedQueue
from perdure.kube import client as kube
from perdure.kube.clock import now, until_next_poll
from perdure.kube.events import Recorder
from perdure.kube.responses import Stored, Undecodable
from perdure.observe import metrics
from perdure.runtime.deadletters import is_being_redriven

_STALE_AFTER: Final = 3
"""The number of consecutive resyncs with missed changes after which a watch counts as stale."""


class Informer:
    """Passes the events of one watch on, and counts the resyncs that have found changes which it has missed."""

    def __init__(
        self,
        plural: str,
        update: Callable[[kube.Object], None],
        delete: Callable[[kube.Object], None],
        *,
        group: str = GROUP,
        version: str = VERSION,
        label: str | None = None,
    ) -> None:
        """Create an informer whose watch has missed nothing.

        Args:
            plural: The plural of the kind.
            update: Called with each object that was listed, created, or changed; it only records this for later processing.
            delete: Called with each object that was deleted.
            group: The API group of the kind.
            version: The version of the API group.
            label: A label that objects must have; None: all objects.
        """
        self.group = group
        self.version = version
        self.plural = plural
        self.label = label
        self.update = update
        """Processes an object that the watch, a list, or the resync has found."""
        self._delete = delete
        self.repaired = 0
        """The number of changes that resyncs have found, and that the watch has not shown."""
        self._missed = 0
        """The number of resyncs with missed changes since the last event."""

    def on_event(self, obj: kube.Object, *, deleted: bool) -> None:
        """Process an event of the watch."""
        self._missed = 0
        (self._delete if deleted else self.update)(obj)

    def note_missed(self, changes: int, *, judges: bool = True) -> None:
        """Record that a resync has found changes that the watch has not shown.

        Args:
            changes: How many.
            judges: Whether the resync counts for `trouble`.
        """
        self.repaired += changes
        self._missed += judges

    def trouble(self) -> str | None:
        """Why the watch counts as stale; None if it works."""
        if self._missed < _STALE_AFTER:
            return None
        return f"the watch on {self.plural} is stale: {self._missed} resyncs found changes but no events arrived"


_RETRY_SECONDS: Final = 1.0


class FirstLists:
    """Lists each kind once, page by page; watches continue where the lists end."""

    def __init__(
        self, client: kube.Client, served: ServedNamespaces, updates: Mapping[str, Callable[[kube.Object], None]]
    ) -> None:
        """Create the lists without reading them.

        Args:
            client: Lists the objects.
            served: The served namespaces.
            updates: The function that processes the objects of each kind, by plural, in the order of reading.
        """
        self._client = client
        self._served = served
        self._updates = updates
        self._learned = asyncio.Event()
        self._versions: dict[tuple[str, str | None], str] = {}
        """The version of the list, by kind and namespace."""
        self._log = structlog.get_logger("perdure.informers")

    @property
    def complete(self) -> bool:
        """Whether all objects that existed at the start are known."""
        return self._learned.is_set()

    async def wait(self) -> None:
        """Wait until all objects that existed at the start are known."""
        await self._learned.wait()

    async def version(self, plural: str, namespace: str | None) -> str:
        """Return the version of the list of a kind once; afterwards, and for other kinds, return an empty string."""
        if plural in self._updates:
            await self.wait()
        return self._versions.pop((plural, namespace), "")

    async def read(self) -> None:
        """List all kinds, and retry failed requests."""
        while not self.complete:
            try:
                await self._read()
            except kube.RequestError as error:
                self._log.warning("Could not list what exists, retrying", error=repr(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._learned.set()

    async def _read(self) -> None:
        for namespace in self._served:
            for plural, update in self._updates.items():
                async for page in self._client.lists.pages(kube.path(kube.PERDURE, namespace, plural)):
                    self._versions[plural, namespace] = page.version
                    for _, obj in self._client.lists.objects(page):
                        isolate(obj, update)
                    await asyncio.sleep(0)


_REMEMBERED = 1_000


class Undecoded:
    """Reports each version of an object once."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._reported: dict[tuple[str, str], None] = {}
        self._log = structlog.get_logger("perdure.decoding")

    def report(self, found: Undecodable) -> None:
        """Log and count an object, and record an Event if its metadata is readable."""
        stored = found.stored
        if stored is not None:
            if (stored.uid, stored.version) in self._reported:
                return
            self._reported[stored.uid, stored.version] = None
            if len(self._reported) > _REMEMBERED:
                del self._reported[next(iter(self._reported))]
        metrics.UNDECODABLE.labels(kind=found.kind).inc()
        self._log.warning(
            "Skipped an object that cannot be decoded",
            kind=found.kind,
            namespace=stored.namespace if stored else None,
            name=stored.name if stored else None,
            problem=found.problem,
        )
        if stored is None:
            return
        self._recorder.record(
            {
                "apiVersion": found.api_version,
                "kind": found.kind,
                "metadata": {"namespace": stored.namespace, "name": stored.name, "uid": stored.uid},
            },
            kind="Warning",
            reason=EventReason.UNREADABLE,
            note=f"The operator cannot decode this {found.kind} and skips it: {found.problem}. Delete it, or shorten its values.",
            action="Decode",
        )


RESYNC_SECONDS: Final = 60.0
_KINDS: Final = (
    "workflowruns",
    "pods",
    "retrypolicies",
    "workflowlimits",
    "webhooks",
    "workerdeployments",
    "schedules",
)
"""The plurals of the kinds, in order."""
_ALWAYS_READ: Final = frozenset({"retrypolicies", "workflowlimits", "webhooks", "workerdeployments"})
"""The kinds with few objects: each resync processes all of them. The objects of the other kinds are compared by version."""
_FIRST_RETRY_SECONDS: Final = 5.0
_LATE_SECONDS: Final = 50.0
"""How long before a resync an earlier one has found a change that counts as missed: a little less than the time between two. A
resync that is repeated sooner, after an outage of the API server, finds changes that a watch shows once it is connected again."""
_JUMP_SECONDS: Final = 1.0


class Resync:
    """Finds changes of the objects of `_KINDS` that the watches have missed."""

    def __init__(
        self,
        client: kube.Client,
        served: ServedNamespaces,
        index: Index,
        queue: KeyedQueue[Key],
        informers: Mapping[str, Informer],
        *,
        runs: WorkflowRuns,
        schedules: Schedules,
        pods: RunPods,
    ) -> None:
        """Create a resync.

        Args:
            client: Lists the objects.
            served: The served namespaces.
            index: The known objects.
            queue: Gets the keys of DeadLetters that wait for a run that may be deleted.
            informers: The informers by plural.
            runs: The runs, whose deletion may have been missed.
            schedules: The Schedules, whose deletion may have been missed.
            pods: The pods that must be released although no run knows them.
        """
        self._client = client
        self._served = served
        self._index = index
        self._queue = queue
        self._informers = informers
        self._runs = runs
        self._schedules = schedules
        self._pods = pods
        self._unseen: dict[tuple[str, str], float] = {}
        """UIDs and versions of objects that no watch had shown at the last resync, and when a list showed them first."""
        self._dead_letters_due = True
        self._complete = True
        self._log = structlog.get_logger("perdure.resync")

    async def resync(self) -> bool:
        """Compare existing objects with the objects from the watches, and process the changes that were missed.

        A change was missed if no watch has shown it, and a resync has found it at least `_LATE_SECONDS` before. A failed request
        does not prevent the other comparisons.

        Returns:
            Whether everything was compared; otherwise the resync must be repeated soon.
        """
        before, self._unseen = self._unseen, {}
        absent = self._index.uids()
        complete = True
        for namespace in self._served:
            for plural in _KINDS:
                part = (
                    self._read(namespace, plural)
                    if plural in _ALWAYS_READ
                    else self._compare(plural, namespace, before, absent)
                )
                complete &= await self._attempt(part)
        if complete:
            complete = await self._drop_deleted(absent)
        else:
            self._unseen = {**self._unseen, **before}  # objects that could not be read are still due
        if self._dead_letters_due and await self._attempt(self._wake_dead_letters()):
            self._dead_letters_due = False
        self._complete = complete and not self._dead_letters_due
        return self._complete

    async def _attempt(self, part: Awaitable[bool]) -> bool:
        """Execute a part of a resync, and return whether it is complete."""
        try:
            return await part
        except kube.RequestError as error:
            self._log.warning("Could not resync", error=repr(error))
        except Exception:  # noqa: BLE001 - one object's trouble must not end the operator
            self._log.exception("Could not resync")
        return False

    async def _compare(
        self, kind: str, namespace: str | None, before: Mapping[tuple[str, str], float], absent: set[str]
    ) -> bool:
        """Read and process objects that no watch has shown for long.

        Args:
            kind: Plural of the kind.
            namespace: The namespace; None for all of them.
            before: The findings of the previous resync.
            absent: UIDs that have not been found yet. The UIDs of existing objects are removed from it.

        Returns:
            Whether all objects could be read.
        """
        url = kube.path(_group(kind), namespace, kind)
        selectors = {"labelSelector": labels.RUN_ID_LABEL} if kind == "pods" else {}
        missed, complete, time = 0, True, asyncio.get_running_loop().time()
        try:
            async for page in self._client.lists.versions(url, **selectors):
                absent.difference_update(stored.uid for stored in page)
                for each in page:
                    late = self._index.version(each.uid) != each.version
                    if late:
                        since = before.get((each.uid, each.version), math.inf)
                        self._unseen[each.uid, each.version] = min(since, time)
                        late = time - since >= _LATE_SECONDS
                    if late or (kind == "pods" and self._pods.is_orphan(each)):
                        complete &= await self._attempt(self._update(kind, each))
                        missed += late
        finally:
            if missed:
                # a repeated resync is too early to judge the watch
                self._informers[kind].note_missed(missed, judges=self._complete)
                metrics.WATCH_LAG.inc(missed)
                self._log.warning("The watch missed changes", kind=kind, objects=missed)
        return complete

    async def _update(self, kind: str, stored: Stored) -> bool:
        try:
            obj = await self._client.get(kube.path(_group(kind), stored.namespace, kind, stored.name))
        except (kube.NotFoundError, kube.UnreadableError):
            return True
        if obj["metadata"]["uid"] == stored.uid:
            isolate(obj, self._informers[kind].update)
        return True

    async def _read(self, namespace: str | None, plural: str) -> bool:
        async for obj in self._client.lists.each(kube.path(kube.PERDURE, namespace, plural)):
            isolate(obj, self._informers[plural].update)
        return True

    async def _drop_deleted(self, absent: set[str]) -> bool:
        """Drop objects whose deletion was missed, and return whether all could be checked."""
        complete = True
        for uid in absent:
            if (uid in self._index.runs or uid in self._index.schedules) and not self._index.is_reported(uid):
                continue  # created here a moment ago; the list may be older
            complete &= await self._attempt(self._drop_if_deleted(uid))
        return complete

    async def _drop_if_deleted(self, uid: str) -> bool:
        schedule, entry = self._index.schedules.get(uid), self._index.directory.get(uid)
        worked_on = uid in self._index.runs
        if schedule is not None:
            if await self._is_deleted(schedule.namespace, "schedules", schedule.name, uid):
                self._schedules.delete_missed(schedule)
        elif entry is not None and await self._is_deleted(entry.namespace, "workflowruns", entry.name, uid):
            self._runs.delete_missed(entry)
            self._dead_letters_due |= worked_on
        elif self._index.directory.is_leaving(uid):
            self._index.delete(uid)
            self._index.directory.drop(uid)
        return True

    async def _is_deleted(self, namespace: str, plural: str, name: str, uid: str) -> bool:
        try:
            return (await self._client.stored(kube.path(kube.PERDURE, namespace, plural, name))).uid != uid
        except kube.NotFoundError:
            return True

    async def _wake_dead_letters(self) -> bool:
        """Reconcile the DeadLetters that wait for a run whose deletion may have been missed."""
        for namespace in self._served:
            async for obj in self._client.lists.each(kube.path(kube.PERDURE, namespace, "deadletters")):
                if is_being_redriven(obj):
                    self._queue.wake(DeadLetterKey(obj["metadata"]["namespace"], obj["metadata"]["name"]))
        return True


def _group(plural: str) -> str:
    return kube.CORE if plural == "pods" else kube.PERDURE


async def repeat(resync: Callable[[], Awaitable[bool]]) -> None:
    """Resync until cancelled.

    Args:
        resync: The resync, which returns whether it is complete. If not, it is repeated after 5 seconds, with a delay that
            doubles each time up to a minute.
    """
    retry = _FIRST_RETRY_SECONDS
    pause = RESYNC_SECONDS
    while True:
        await until_next_poll(pause)
        if await resync():
            pause, retry = RESYNC_SECONDS, _FIRST_RETRY_SECONDS
        else:
            pause, retry = retry, min(2 * retry, RESYNC_SECONDS)


class ClockJumps:
    """Compares the wall clock with the clock of the event loop, which is never set."""

    def __init__(self) -> None:
        self._ahead = 0.0
        """How far the wall clock was ahead at the last comparison, in seconds."""
        self._log = structlog.get_logger("perdure.informers")

    def begin(self) -> None:
        """Compare the clocks for the first time."""
        self._ahead = _ahead()

    def jumped(self) -> bool:
        """Whether the wall clock has jumped since the clocks were last compared."""
        ahead, before = _ahead(), self._ahead
        self._ahead = ahead
        jumped = abs(ahead - before) > _JUMP_SECONDS
        if jumped:
            self._log.warning("The clock has jumped", seconds=round(ahead - before, 3))
        return jumped


def _ahead() -> float:
    """How far the wall clock is ahead of the clock of the event loop, in seconds."""
    return now().timestamp() - asyncio.get_running_loop().time()
