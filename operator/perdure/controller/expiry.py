"""What has had its time is removed."""

from collections.abc import Callable
from datetime import datetime

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
