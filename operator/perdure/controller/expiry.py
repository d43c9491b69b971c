"""Removal of objects whose time to live has ended."""

from array import array
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from perdure.api.phases import Phase
from perdure.api.times import read_time
from perdure.controller.recorded_state import distrust
from perdure.kube import client as kube
from perdure.kube.clock import now

_SUCCEEDED: Final = {Phase.COMPLETED, Phase.CONTINUED_AS_NEW}


def expiry(obj: kube.Object, default: int) -> datetime | None:
    """When the time to live of an object ends; None without a valid `completionTime` in its status.

    Args:
        obj: A WorkflowRun or an Operation.
        default: The time to live in seconds if its spec does not set one.
    """
    status, spec = obj.get("status") or {}, obj["spec"]
    completed = read_time(status.get("completionTime"))
    if completed is None:
        return None
    seconds = spec.get("ttlSecondsAfterFinished", default)
    if status.get("phase") not in _SUCCEEDED:
        seconds = spec.get("ttlSecondsAfterFailure", seconds)
    try:
        return completed + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


_LATER = timedelta(seconds=30)
"""Delay before an expired object that is still needed is checked again; it may be needed for a long time."""


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


async def remove_finished(client: kube.Client, url: str, uid: str) -> None:
    """Remove a closed run. A run with pending work, such as children to close, stays for now.

    Args:
        client: Reads and deletes.
        url: URL of the run.
        uid: UID of the run. Another run with the same name stays.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    try:
        run = await client.get(url)
    except kube.NotFoundError:
        return
    status = run.get("status") or {}
    closed = status.get("completionTime") and not distrust(run)  # an edited status may be wrong about the end
    if run["metadata"]["uid"] == uid and closed and not has_chores(run):
        await client.delete(url, uid=uid, version=run["metadata"]["resourceVersion"])


def has_chores(run: kube.Object) -> bool:
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
        taken = [self._buckets.pop(each) for each in sorted(self._buckets) if each <= last]
        return [
            (uid, datetime.fromtimestamp(time, UTC))
            for uids, times in taken
            for uid, time in zip(uids, times, strict=True)
        ]
