"""The cluster as its users reach it: requests with their own permissions; every error becomes one sentence with the fix.

`Client` and `AsyncClient` are for programs and notebooks; the command line and the console are built on the same modules. What is
slow to import is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.client.asynchronous import AsyncClient
    from perdure.client.blocking import Client, Run
    from perdure.client.errors import (
        AlreadyExistsError,
        ClientError,
        ForbiddenError,
        NotFoundError,
        RefusedError,
        UnreachableError,
    )
    from perdure.client.run import AsyncRun, LogLine
    from perdure.client.run_errors import (
        RunCancelledError,
        RunEndedError,
        RunFailedError,
        RunTerminatedError,
        RunTimedOutError,
    )
    from perdure.client.run_requests import RunRequest
    from perdure.client.schedules import ScheduleState
    from perdure.client.snapshots import RunSnapshot
    from perdure.client.verdicts import NotStartedError

__all__ = [
    "AlreadyExistsError",
    "AsyncClient",
    "AsyncRun",
    "Client",
    "ClientError",
    "ForbiddenError",
    "LogLine",
    "NotFoundError",
    "NotStartedError",
    "RefusedError",
    "Run",
    "RunCancelledError",
    "RunEndedError",
    "RunFailedError",
    "RunRequest",
    "RunSnapshot",
    "RunTerminatedError",
    "RunTimedOutError",
    "ScheduleState",
    "UnreachableError",
]

_LATER = {
    "AsyncClient": "asynchronous",
    **dict.fromkeys(("Client", "Run"), "blocking"),
    **dict.fromkeys(
        ("AlreadyExistsError", "ClientError", "ForbiddenError", "NotFoundError", "RefusedError", "UnreachableError"),
        "errors",
    ),
    **dict.fromkeys(("AsyncRun", "LogLine"), "run"),
    **dict.fromkeys(
        ("RunCancelledError", "RunEndedError", "RunFailedError", "RunTerminatedError", "RunTimedOutError"), "run_errors"
    ),
    "RunRequest": "run_requests",
    "ScheduleState": "schedules",
    "RunSnapshot": "snapshots",
    "NotStartedError": "verdicts",
}


if not TYPE_CHECKING:  # checkers know the names from the imports above, and report others

    def __getattr__(name: str) -> Any:
        """Import the module of a public name."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
