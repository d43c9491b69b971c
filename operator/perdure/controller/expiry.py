"""What has had its time is removed."""

from array import array
from collections.abc import Callable
from datetime import UTC, datetime

from perdure.kube import client as api
from perdure.kube.clock import now


async def remove_expired(
    client: api.Client, url: str, uid: str, over: Callable[[api.Object], datetime | None]
) -> datetime | None:
    """Remove an object whose time is over; its spec may have been given more time since.

    Args:
        client: Reads and deletes.
        url: Of the object.
        uid: Its id: another one of that name stays.
        over: When its time is over; None if that is not known yet.

    Returns:
        When to look again; None if never.

    Raises:
        ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
    """
    try:
        obj = await client.get(url)
    except api.NotFoundError:
        return None
    time = over(obj) if obj["metadata"]["uid"] == uid else None
    if time is not None and time <= now():
        await client.delete(url, uid=uid)
        return None
    return time


class Expiries:
    """When finished runs are to be removed: 16 bytes for each, where a timer of its own would take hundreds."""

    def __init__(self, span: float) -> None:
        """`span`: seconds between two calls of `due`."""
        self._span = span
        self._buckets: dict[int, tuple[list[str], array[float]]] = {}

    def add(self, uid: str, when: datetime, now: datetime) -> bool:
        """Remember an expiry; False if it comes too soon to wait for `due`. One that is added again counts as often."""
        if when.timestamp() < now.timestamp() + 2 * self._span:
            return False
        uids, times = self._buckets.setdefault(int(when.timestamp() // self._span), ([], array("d")))
        uids.append(uid)
        times.append(when.timestamp())
        return True

    def due(self, now: datetime) -> list[tuple[str, datetime]]:
        """Take out the expiries that come too soon to wait for the next call."""
        last = int((now.timestamp() + 2 * self._span) // self._span)
        taken = [self._buckets.pop(each) for each in sorted(self._buckets) if each <= last]
        return [
            (uid, datetime.fromtimestamp(time, UTC))
            for uids, times in taken
            for uid, time in zip(uids, times, strict=True)
        ]
