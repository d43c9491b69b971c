"""Until when a server on a laptop runs."""

import asyncio
import signal


async def interrupted() -> None:
    """Wait for Ctrl-C, or for the end that a supervisor asks for."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
