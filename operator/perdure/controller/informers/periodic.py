"""Resync once a minute, and sooner after a failure."""

from collections.abc import Awaitable, Callable
from typing import Final

from perdure.kube.clock import until_next_poll

RESYNC_SECONDS: Final = 60.0
_FIRST_RETRY_SECONDS: Final = 5.0


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
