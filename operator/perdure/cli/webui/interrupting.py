"""Waits for the end of a server on a laptop."""

import asyncio
import signal


async def interrupted() -> None:
    """Wait for Ctrl-C, or for a termination signal from a supervisor."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
