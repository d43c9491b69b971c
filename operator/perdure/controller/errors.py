"""What the controller tells its callers that cannot be done."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

from perdure.api.reasons import ConditionReason
from perdure.kube import client as kube

_Result = TypeVar("_Result")


class RefusedError(Exception):
    """What is asked cannot be done, now or later; the message says why and what can be done instead."""

    def __init__(self, reason: ConditionReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class NotYetError(Exception):
    """Work on a key needs something that is being made elsewhere: a queue gives its worker to other keys until it is there.

    The queue keeps what was made until the key was worked on again.
    """

    def __init__(self, awaited: asyncio.Future[Any], *, until: datetime | None = None) -> None:
        """Wait for a future.

        Args:
            awaited: When it is done, whatever comes of it, the key is worked on again.
            until: When the key is worked on again even if it is not; None: not before.
        """
        super().__init__("it is being made")
        self.awaited = awaited
        self.until = until


async def when_ready(work: Callable[[], Awaitable[_Result]], *, seconds: float) -> _Result:
    """Do something outside of a queue; where it needs what is being made elsewhere, again when that is there.

    Args:
        work: What to do. It may be done several times.
        seconds: How long to wait at most.

    Raises:
        NotYetError: what it needs was not made in time.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    while True:
        try:
            return await work()
        except NotYetError as error:
            awaited = error.awaited  # keeps what was made until the next try has found it
            await asyncio.wait({awaited}, timeout=max(0.0, until - clock()))
            if not awaited.done():
                raise
            if not awaited.cancelled():
                awaited.exception()  # the next try raises its own


def may_pass(error: Exception) -> bool:
    """Whether an error comes from the API server, or the way to it, or a wait, and may be gone at the next try."""
    return isinstance(error, (NotYetError, kube.ApiError, *kube.TRANSIENT)) and not isinstance(error, kube.InvalidError)
