"""Threads of tests: bounded waits for their end that show what a busy thread is doing."""

import asyncio
import io
import sys
import traceback
from threading import Thread


def join(thread: Thread, loop: asyncio.AbstractEventLoop | None = None, seconds: float = 60) -> None:
    """Wait for the end of a thread.

    Args:
        thread: The thread. It should be a daemon, so that it cannot keep the process of the tests alive.
        loop: The event loop that it runs, if any.
        seconds: How long to wait.

    Raises:
        AssertionError: It has not ended; the message shows where it is, and the tasks of its loop.
    """
    thread.join(seconds)
    if not thread.is_alive():
        return
    reported = io.StringIO()
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is not None:
        traceback.print_stack(frame, file=reported)
    for task in asyncio.all_tasks(loop) if loop is not None else ():
        task.print_stack(file=reported)
    raise AssertionError(f"{thread.name} has not ended within {seconds:g} s:\n{reported.getvalue()}")
