"""For Python code that runs inside an activity's pod: input, result, failures, heartbeats, cancellation.

It needs nothing but the standard library (Python 3.11 or later), so an image may install the `perdure` wheel without its
dependencies or just copy this folder. An activity is a function:

    from perdure import activity

    @activity.defn
    def charge(order):
        for done, item in enumerate(order["items"]):
            activity.heartbeat({"done": done})
            ...
        return {"receipt": "…"}

    activity.main()

or a script that calls `input`, `complete` and `fail` itself. Outside of a pod the input is null, heartbeats go nowhere, and
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
    """Tell which attempt this is.

    Returns:
        Names, the attempt's number, its timeouts.
    """
    return current().info


def read_input() -> Any:
    """Read the activity's input.

    Returns:
        The JSON value that the step gave; None where it gave none.
    """
    return current().payload("PERDURE_INPUT")


input: Callable[[], Any] = read_input  # noqa: A001 - only ever used as `activity.input()`
"""See `read_input`."""


def last_heartbeat_details() -> Any:
    """Read the details of the last heartbeat of an earlier attempt, to resume from there.

    Returns:
        The JSON value; None where there is none.
    """
    return current().payload("PERDURE_LAST_HEARTBEAT_DETAILS")


def heartbeat(details: Any = None) -> None:
    """Say that the activity is alive, and how far it is. May be called as often as you like; it is sent when due.

    Without `heartbeatTimeout` (or a large result) there is nobody to tell, and this does nothing.

    Args:
        details: Any JSON value, for the next attempt and for people. None takes back earlier details.

    Raises:
        CancelledError: A cancellation was requested. Raised once: you can catch it, and heartbeat while you clean up.
        SupersededError: Nobody waits for this attempt any more.
        PayloadTooLargeError: The details do not fit.
    """
    context = current()
    if context.heartbeats is not None:
        context.heartbeats.beat(details)


@contextmanager
def auto_heartbeat() -> Iterator[None]:
    """Have heartbeats sent in the background within a block, with the details that were given last.

    That shows that the process is alive, not that it gets on. Whether it should stop, `cancelled` tells meanwhile.
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
    """Tell whether the activity should stop, as far as heartbeats and signals have told.

    Returns:
        True if `heartbeat` has raised, or would raise, `CancelledError`, or SIGTERM came.
    """
    return current().cancelled() is not None


def __getattr__(name: str) -> Any:
    """What only tests want is imported when they ask for it."""
    if name == "ActivityEnvironment":
        from .testing import ActivityEnvironment  # noqa: PLC0415 - as it says

        return ActivityEnvironment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
