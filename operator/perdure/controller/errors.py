"""Errors that the controller raises for its callers, and the isolation of errors of one object from the others."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import structlog

from perdure.api.reasons import ConditionReason
from perdure.kube import client as kube

_Result = TypeVar("_Result")


class RefusedError(Exception):
    """A request cannot be fulfilled, now or later; the message says why and what to do instead."""

    def __init__(self, reason: ConditionReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class NotReadyError(Exception):
    """A run cannot start until someone fixes something; it is retried when the Workflow changes."""

    def __init__(
        self,
        reason: ConditionReason,
        message: str,
        until: datetime | None = None,
        libraries: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.until = until
        """When to retry the run, regardless of events."""
        self.libraries = libraries
        """The Workflows from which the definition copies parts: a change of one of them can fix it."""


class NotYetError(Exception):
    """Work on a key needs a result that is not available yet. Meanwhile, a queue gives its worker to other keys.

    The queue keeps the result until the key was processed again.
    """

    def __init__(self, awaited: asyncio.Future[Any], *, until: datetime | None = None) -> None:
        """Wait for a future.

        Args:
            awaited: The future. The key is processed again when it is done, regardless of its outcome.
            until: When to process the key again in any case; None: only when the future is done.
        """
        super().__init__("it is being created")
        self.awaited = awaited
        self.until = until


async def when_ready(work: Callable[[], Awaitable[_Result]], *, seconds: float) -> _Result:
    """Do work outside of a queue. If it raises NotYetError, repeat it when the awaited result is available.

    Args:
        work: The work, which may be called several times.
        seconds: The longest wait.

    Raises:
        NotYetError: The result was not available in time.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    while True:
        try:
            return await work()
        except NotYetError as error:
            awaited = error.awaited  # keep a reference until the next try has found the result
            await asyncio.wait({awaited}, timeout=max(0.0, until - clock()))
            if not awaited.done():
                raise
            if not awaited.cancelled():
                awaited.exception()  # the next try raises its own exception


def is_transient(error: Exception) -> bool:
    """Whether an error is transient: from the API server, the connection to it, or a timeout."""
    return isinstance(error, (NotYetError, kube.RequestError, TimeoutError)) and not isinstance(
        error, kube.InvalidError
    )


def isolate(obj: kube.Object, update: Callable[[kube.Object], None]) -> None:
    """Call `update` with an object, and log an exception with the object's name instead of raising it."""
    try:
        update(obj)
    except Exception:  # noqa: BLE001 - one object's trouble must not end the operator
        meta = obj["metadata"]
        structlog.get_logger("perdure.controller").exception(
            "Could not process an object", kind=obj.get("kind"), namespace=meta.get("namespace"), name=meta.get("name")
        )
