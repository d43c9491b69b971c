"""The activity library for Python code in an activity's pod: input, result, failures, heartbeats, cancellation.

It needs only the standard library (Python 3.11 or later), so an image can install the `perdure` wheel without its
dependencies, or just copy this folder. An activity is a function:

    from perdure import activity

    @activity.defn
    def charge(order):
        for done, item in enumerate(order["items"]):
            activity.heartbeat({"done": done})
            ...
        return {"receipt": "…"}

    activity.main()

or a script that calls `input`, `complete` and `fail` itself. Outside of a pod, the input is null, heartbeats have no effect, and
the result is printed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._context import Info, current
from ._errors import ApplicationError, CancelledError, PayloadTooLargeError, SupersededError
from ._run import complete, defn, fail, main, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "ApplicationError",
    "CancelledError",
    "Info",
    "PayloadTooLargeError",
    "SupersededError",
    "auto_heartbeat",
    "cancelled",
    "complete",
    "defn",
    "fail",
    "heartbeat",
    "info",
    "input",
    "last_heartbeat_details",
    "main",
    "run",
]


def info() -> Info:
    """Return the metadata of this attempt.

    Returns:
        The attempt's names, number and timeouts.
    """
    return current().info


def read_input() -> Any:
    """Read the activity's input.

    Returns:
        The JSON value from the step; None if the step has no input.
    """
    return current().payload("PERDURE_INPUT")


input: Callable[[], Any] = read_input  # noqa: A001 - only used as `activity.input()`
"""See `read_input`."""


def last_heartbeat_details() -> Any:
    """Read the details of the last heartbeat of an earlier attempt, to resume from there.

    Returns:
        The JSON value; None if there are no details.
    """
    return current().payload("PERDURE_LAST_HEARTBEAT_DETAILS")


def heartbeat(details: Any = None) -> None:
    """Report that the activity is alive, and its progress. Call it as often as you like: heartbeats are sent when due.

    Without `heartbeatTimeout` (or a large result), the attempt has no Lease, and this does nothing.

    Args:
        details: Any JSON value, for the next attempt and for users. None clears earlier details.

    Raises:
        CancelledError: A cancellation was requested. It is raised once: you can catch it, and heartbeat while you clean up.
        SupersededError: The run no longer waits for this attempt.
        PayloadTooLargeError: The details are too large.
    """
    context = current()
    if context.heartbeats is not None:
        context.heartbeats.beat(details)


@contextmanager
def auto_heartbeat() -> Iterator[None]:
    """Send heartbeats in the background within a block, with the last details.

    They show that the process is alive, not that it makes progress. Use `cancelled` to see whether it should stop.
    """
    heartbeats = current().heartbeats
    if heartbeats is None:
        yield
        return
    heartbeats.begin()
    try:
        yield
    finally:
        heartbeats.end()


def cancelled() -> bool:
    """Return whether the activity should stop, according to heartbeats and signals.

    Returns:
        True if `heartbeat` has raised or would raise `CancelledError`, or if the process received SIGTERM.
    """
    return current().cancelled() is not None


def __getattr__(name: str) -> Any:
    """Import the test helpers when they are first used."""
    if name == "ActivityEnvironment":
        from .testing import ActivityEnvironment  # noqa: PLC0415 - only tests pay for it

        return ActivityEnvironment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
