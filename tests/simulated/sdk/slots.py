"""The parallel polls of a worker, which end when the worker dies."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any


class DeathError(Exception):
    """The process has died."""


async def run_slots(slots: Iterable[Coroutine[Any, Any, None]], name: str, fail: Callable[[str], None]) -> None:
    """Poll in all slots until the worker dies in one of them.

    Args:
        slots: What polls for ever.
        name: The name of the worker.
        fail: Records a violation, for any other end of a slot.
    """
    tasks = [asyncio.create_task(slot) for slot in slots]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, DeathError):
                fail(f"worker {name} has failed: {ended!r}")
