"""Activities of the tests with Temporal's SDK. Light, because the SDK's sandbox imports it for every workflow."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError


@activity.defn
async def greet(name: str) -> str:
    return f"Hello, {name}"


@activity.defn
async def fail(kind: str, final: bool) -> None:
    raise ApplicationError("it failed", {"code": 7}, type=kind, non_retryable=final)


@activity.defn
async def fail_until(attempt: int) -> int:
    if activity.info().attempt < attempt:
        raise ApplicationError("not yet", type="NotYet")
    return activity.info().attempt


@activity.defn
async def fail_with_delay(delay: float) -> None:
    """Sets the delay of its retry."""
    raise ApplicationError("soon", type="Soon", next_retry_delay=timedelta(seconds=delay))


@activity.defn
async def fail_at_length() -> None:
    raise ApplicationError("x" * 9_000, "y" * 9_000, type="Long")


@activity.defn
async def carry() -> list[Any]:
    """Returns its attempt and the heartbeat details of the previous one; mortal.py has one that does not end."""
    return [activity.info().attempt, *activity.info().heartbeat_details]


@activity.defn
async def beat_then_fail() -> list[Any]:
    """Heartbeats in its first attempt; the third returns the details."""
    info = activity.info()
    if info.attempt == 1:
        activity.heartbeat("p1")
    if info.attempt < 3:
        raise ApplicationError("again", type="Again")
    return [info.attempt, *info.heartbeat_details]


@activity.defn
async def wait_for_cancel() -> str:
    try:
        while True:
            activity.heartbeat("here")
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        activity.heartbeat("stopping")
        raise


@activity.defn
async def silent() -> None:
    await asyncio.sleep(60)


@activity.defn
async def complete_async() -> str:
    """Is completed by another client, with the token or the ID."""
    activity.raise_complete_async()
