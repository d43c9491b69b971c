"""Objects that expire: finished runs and answered Operations, the pods of succeeded attempts, and cached results.

A closed run with pending work stays. Only runs that expire soon have a timer (`RunExpiries`); the others take 16 bytes each.

The pods of succeeded attempts are kept for a while because of their logs. This needs no state, and the same holds for cached
results: the time is a label of the object, on pods set by the write that releases them. So a restart changes nothing, and a kept
object costs no memory. Owner references delete the pods of a deleted run.
"""

from array import array
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from perdure.api import labels
from perdure.api.phases import Phase
from perdure.api.times import read_kubernetes_time
from perdure.controller.directory import Directory
from perdure.controller.fleet.shards import Shards
from perdure.controller.namespaces import ServedNamespaces, check_forever
from perdure.controller.queue import ExpiryKey, Key, KeyedQueue
from perdure.controller.recorded_state import distrust
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.chains import is_open

_LATER: Final = timedelta(seconds=30)
"""Delay before an expired object that is still needed is checked again; it may be needed for a long time."""
_DEFAULT_TTL: Final = 86_400
"""In seconds. The API server sets the default in the spec, so only objects older than the field lack it."""
_SUCCEEDED: Final = {Phase.COMPLETED, Phase.CONTINUED_AS_NEW}


def expiry(obj: kube.Object, default: int) -> datetime | None:
    """When the time to live of an object ends; None without a valid `completionTime` in its status.

    Args:
        obj: A WorkflowRun or an Operation.
        default: The time to live in seconds if its spec does not set one.
    """
    status, spec = obj.get("status") or {}, obj["spec"]
    completed = read_kubernetes_time(status.get("completionTime"))
    if completed is None:
        return None
    seconds = spec.get("ttlSecondsAfterFinished", default)
    if status.get("phase") not in _SUCCEEDED:
        seconds = spec.get("ttlSecondsAfterFailure", seconds)
    try:
        return completed + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def expiry_of(run: kube.Object) -> datetime | None:
    """When a run expires; None while it is open."""
    return None if is_open(run.get("status") or {}) else expiry(run, _DEFAULT_TTL)


async def needed_by_none(_: kube.Object) -> bool:
    """Allow the removal of an object that nothing else depends on."""
    return True


async def remove_expired(
    client: kube.Client,
    url: str,
    uid: str,
    over: Callable[[kube.Object], datetime | None],
    may_go: Callable[[kube.Object], Awaitable[bool]] = needed_by_none,
) -> datetime | None:
    """Remove an expired object, unless its spec was changed to keep it longer.

    The removal is conditional on the version that was read: if a client extends the time at the last moment, the object stays.

    Args:
        client: Reads and deletes.
        url: URL of the object.
        uid: UID of the object. Another object with the same name stays.
        over: Returns when the object expires; None if that is not known yet.
        may_go: Returns whether the object, as it was read, may be removed.

    Returns:
        When to check again; None if never.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    while True:
        try:
            obj = await client.get(url)
        except kube.NotFoundError:
            return None
        time = over(obj) if obj["metadata"]["uid"] == uid else None
        if time is None or time > now():
            return time
        if not await may_go(obj):
            return now() + _LATER
        if await client.delete(url, uid=uid, version=obj["metadata"]["resourceVersion"]):
            return None


async def remove_finished(
    client: kube.Client, url: str, uid: str, may_go: Callable[[kube.Object], Awaitable[bool]] = needed_by_none
) -> None:
    """Remove a closed run. A run with pending work, such as children to close, stays for now.

    Args:
        client: Reads and deletes.
        url: URL of the run.
        uid: UID of the run. Another run with the same name stays.
        may_go: Returns whether the run, as it was read, may be removed.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    try:
        run = await client.get(url)
    except kube.NotFoundError:
        return
    status = run.get("status") or {}
    closed = status.get("completionTime") and not distrust(run)  # an edited status may be wrong about the end
    if run["metadata"]["uid"] == uid and closed and not has_pending_work(run) and await may_go(run):
        await client.delete(url, uid=uid, version=run["metadata"]["resourceVersion"])


def has_pending_work(run: kube.Object) -> bool:
    """Whether a closed run has pending work: children to close, a successor, a signal, or an operation to complete."""
    state = (run.get("status") or {}).get("state") or {}
    callbacks = state.get("callbacks") or {}
    return any(state.get(key) for key in ("children", "externals", "markers", "startSuccessor", "reports")) or any(
        not callback.get("state") for callback in callbacks.values()
    )


class Expiries:
    """When to remove finished runs, in 16 bytes per run. A timer would take hundreds of bytes."""

    def __init__(self, span: float) -> None:
        """`span`: seconds between two calls of `due`."""
        self._span = span
        self._buckets: dict[int, tuple[list[str], array[float]]] = {}

    def add(self, uid: str, when: datetime, now: datetime) -> bool:
        """Record an expiry; return False if it is too soon to wait for `due`. Repeated additions count separately."""
        if when.timestamp() < now.timestamp() + 2 * self._span:
            return False
        uids, times = self._buckets.setdefault(int(when.timestamp() // self._span), ([], array("d")))
        uids.append(uid)
        times.append(when.timestamp())
        return True

    def due(self, now: datetime) -> list[tuple[str, datetime]]:
        """Remove and return the expiries that are due before the next call."""
        last = int((now.timestamp() + 2 * self._span) // self._span)
        expired = [self._buckets.pop(each) for each in sorted(self._buckets) if each <= last]
        return [
            (uid, datetime.fromtimestamp(time, UTC))
            for uids, times in expired
            for uid, time in zip(uids, times, strict=True)
        ]


class RunExpiries:
    """Triggers the removal of finished runs when they expire. Only runs that expire soon have a timer."""

    def __init__(self, directory: Directory, queue: KeyedQueue[Key], span: float) -> None:
        """Create it without runs.

        Args:
            directory: The directory of all runs.
            queue: The queue that removes runs.
            span: Seconds between two calls of `arm`.
        """
        self._directory = directory
        self._queue = queue
        self._later = Expiries(span)

    def add(self, uid: str, when: datetime) -> None:
        """Schedule the removal of a finished run."""
        entry = self._directory.get(uid)
        if entry is not None and not self._later.add(uid, when, now()):
            self._queue.wake_at(ExpiryKey(entry.namespace, entry.name, uid, entry.workflow_id), when)

    def arm(self, time: datetime) -> None:
        """Set the timers of the runs that expire before the next call."""
        for uid, when in self._later.due(time):
            self.add(uid, when)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringKind:
    """A kind of objects that expire."""

    group: str
    plural: str
    limit: int
    """Maximum number of kept objects in a namespace; at the next check, those beyond it that expire first are deleted."""
    seconds: float
    """Seconds between two checks, and so the most that an object stays too long."""
    query: dict[str, str]
    """The selectors of a list of them."""


KEPT_PODS: Final = ExpiringKind(
    group=kube.CORE,
    plural="pods",
    limit=100,
    seconds=30,
    query={
        "labelSelector": f"{labels.RUN_ID_LABEL},{labels.EXPIRES_LABEL}",
        "fieldSelector": "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown",
    },
)
CACHED_RESULTS: Final = ExpiringKind(
    group=kube.PERDURE, plural="cachedresults", limit=5_000, seconds=300, query={"labelSelector": labels.EXPIRES_LABEL}
)
"""They are checked rarely, because there can be many, and none is used after it has expired."""


async def delete_forever(client: kube.Client, kind: ExpiringKind, served: ServedNamespaces, shards: Shards) -> None:
    """Delete objects of a kind when they expire, until cancelled.

    Args:
        client: The client of the API server.
        kind: The kind.
        served: The served namespaces.
        shards: The shards, so that only one member of a fleet does it.
    """

    async def check(namespace: str | None) -> None:
        await delete_expired(client, kind, namespace, now())

    await check_forever(check, served, shards, f"expired-{kind.plural}", seconds=kind.seconds)


async def delete_expired(
    client: kube.Client, kind: ExpiringKind, namespace: str | None, time: datetime, *, limit: int | None = None
) -> int:
    """Delete expired objects of a kind, and those beyond its maximum number in a namespace.

    Args:
        client: The client of the API server.
        kind: The kind.
        namespace: The namespace; None for all namespaces.
        time: The current time.
        limit: The maximum number of objects to keep in a namespace; None for that of the kind.

    Returns:
        The number of deleted objects.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    kept: dict[str, list[tuple[int, str, str, str]]] = defaultdict(list)
    async for each in client.lists.each_metadata(kube.path(kind.group, namespace, kind.plural), **kind.query):
        meta = each["metadata"]
        text = (meta.get("labels") or {}).get(labels.EXPIRES_LABEL, "")
        if labels.POD_FINALIZER in meta.get("finalizers", ()) or meta.get("deletionTimestamp") or not text.isdecimal():
            continue
        kept[meta["namespace"]].append((int(text), meta["name"], meta["uid"], meta["resourceVersion"]))
    limit = kind.limit if limit is None else limit
    deleted = 0
    for where, objects in kept.items():
        objects.sort(reverse=True)
        over = [each for number, each in enumerate(objects) if number >= limit or each[0] <= time.timestamp()]
        for _, name, uid, version in over:  # by version, so that a pod whose time was just extended stays
            url = kube.path(kind.group, where, kind.plural, name)
            deleted += await client.delete(url, uid=uid, version=version)
    return deleted
