"""Objects that expire: finished runs and answered Operations, the pods of succeeded attempts, and cached results.

A closed run with pending work stays. Only runs that expire soon have a timer (`RunExpiries`); the others take 16 bytes each.
How long a run is kept that does not say so itself is up to its namespace (`RetentionPolicies`): a change there applies to the
runs that exist, none of which is written.

The pods of succeeded attempts are kept for a while because of their logs. This needs no state, and the same holds for cached
results: the time is a label of the object, on pods set by the write that releases them. So a restart changes nothing, and a kept
object costs no memory. Owner references delete the pods of a deleted run.
"""

from array import array
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from perdure.api import labels
from perdure.api.json_values import mapping
from perdure.api.names import DEFAULTS_NAME
from perdure.api.phases import workflow_of
from perdure.api.times import read_kubernetes_time
from perdure.controller.directory import Directory, Entry, Standing
from perdure.controller.fleet.shards import Shards
from perdure.controller.namespaces import ServedNamespaces, check_forever
from perdure.controller.queue import ExpiryKey, Key, KeyedQueue
from perdure.controller.recorded_state import distrust
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.chains import is_open
from perdure.runtime.retention import Policy, ttl_of

_LATER: Final = timedelta(seconds=30)
"""Delay before an expired object that is still needed is checked again; it may be needed for a long time."""
_READ_AGAIN: Final = timedelta(seconds=5)
"""How long a policy is used that was read from the API server."""


def expiry(obj: kube.Object, default: int) -> datetime | None:
    """When the time to live of an object ends; None without a valid `completionTime` in its status.

    Args:
        obj: A WorkflowRun or an Operation.
        default: The time to live in seconds if its spec does not set one.
    """
    status = obj.get("status") or {}
    seconds = ttl_of(obj["spec"], status.get("phase", ""))
    return _later(status.get("completionTime"), default if seconds is None else seconds)


def _later(completed: str | None, seconds: int) -> datetime | None:
    """The time some seconds after another one; None if that is not valid."""
    time = read_kubernetes_time(completed)
    try:
        return time and time + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def is_closed(run: kube.Object) -> bool:
    """Whether a run has closed, and has a valid `completionTime`."""
    status = run.get("status") or {}
    return not is_open(status) and read_kubernetes_time(status.get("completionTime")) is not None


def expiry_of(run: kube.Object, policy: Policy) -> datetime | None:
    """When a run expires; None while it is open.

    Args:
        run: The WorkflowRun.
        policy: How long its namespace keeps runs.
    """
    status = run.get("status") or {}
    return None if is_open(status) else expiry(run, policy.ttl(workflow_of(run["spec"]), status.get("phase", "")))


class RetentionPolicies:
    """How long namespaces keep their finished runs, as their WorkflowDefaults say."""

    def __init__(self, client: kube.Client) -> None:
        """Create it without policies. `client` reads them again before runs are removed."""
        self._client = client
        self._known: dict[str, Policy] = {}
        self._read: dict[str, tuple[datetime, Policy]] = {}

    def known(self, namespace: str) -> Policy:
        """The policy of a namespace, as a list or a watch has shown it."""
        return self._known.get(namespace, Policy())

    def put(self, namespace: str, defaults: kube.Object) -> bool:
        """Record the spec of the WorkflowDefaults of a namespace, empty for none; return whether its policy has changed."""
        before, after = self.known(namespace), Policy.of(defaults)
        self._known.pop(namespace, None)
        if after.rules:
            self._known[namespace] = after
        if before != after:
            self._read.pop(namespace, None)
        return before != after

    async def read(self, namespace: str) -> Policy:
        """Read the policy of a namespace: the watch may not have shown that it keeps its runs for longer now.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        time = now()
        self._read = {name: each for name, each in self._read.items() if each[0] > time - _READ_AGAIN}
        if namespace not in self._read:
            try:
                found = await self._client.get(kube.path(kube.PERDURE, namespace, "workflowdefaults", DEFAULTS_NAME))
            except kube.NotFoundError:
                found = {}
            self._read[namespace] = time, Policy.of(mapping(found.get("spec")))
        return self._read[namespace][1]


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

    def drop(self, uids: Collection[str]) -> None:
        """Forget runs, whose expiries have changed."""
        for number, (known, times) in list(self._buckets.items()):
            kept = [(uid, time) for uid, time in zip(known, times, strict=True) if uid not in uids]
            if not kept:
                del self._buckets[number]
            elif len(kept) < len(known):
                self._buckets[number] = [uid for uid, _ in kept], array("d", [time for _, time in kept])

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

    def __init__(self, directory: Directory, queue: KeyedQueue[Key], span: float, policies: RetentionPolicies) -> None:
        """Create it without runs.

        Args:
            directory: The directory of all runs.
            queue: The queue that removes runs.
            span: Seconds between two calls of `arm`.
            policies: How long namespaces keep their runs.
        """
        self._directory = directory
        self._queue = queue
        self._later = Expiries(span)
        self._policies = policies
        self._outdated: set[str] = set()
        """The namespaces whose policy has changed."""

    def update(self, uid: str) -> None:
        """Schedule the removal of a run that has finished, according to the directory."""
        entry = self._directory.get(uid)
        if entry is not None:
            self._schedule(entry)

    def _schedule(self, entry: Entry) -> None:
        if entry.standing is not Standing.CLOSED:
            return
        policy = self._policies.known(entry.namespace)
        seconds = policy.ttl(entry.workflow, entry.phase) if entry.ttl is None else entry.ttl
        when = _later(entry.closed, seconds)
        if when is not None:
            self._add(entry, when)

    def add(self, uid: str, when: datetime) -> None:
        """Schedule the removal of a finished run at a time."""
        entry = self._directory.get(uid)
        if entry is not None:
            self._add(entry, when)

    def _add(self, entry: Entry, when: datetime) -> None:
        if not self._later.add(entry.uid, when, now()):
            self._queue.wake_at(ExpiryKey(entry.namespace, entry.name, entry.uid, entry.workflow_id), when)

    def outdate(self, namespace: str) -> None:
        """Schedule the removal of all finished runs of a namespace again at the next `arm`: its policy has changed."""
        self._outdated.add(namespace)

    def arm(self, time: datetime) -> None:
        """Set the timers of the runs that expire before the next call."""
        if self._outdated:
            changed = [run for namespace in self._outdated for run in self._directory.finished_runs(namespace)]
            self._outdated.clear()
            self._later.drop({run.uid for run in changed})
            for run in changed:
                self._schedule(run)
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
