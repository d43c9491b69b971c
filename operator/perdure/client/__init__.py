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
        NotStartedError,
        RefusedError,
        RunCancelledError,
        RunEndedError,
        RunFailedError,
        RunTerminatedError,
        RunTimedOutError,
        UnreachableError,
    )
    from perdure.client.run import AsyncRun, LogLine
    from perdure.client.run_requests import RunRequest
    from perdure.client.schedules import ScheduleState
    from perdure.client.snapshots import RunSnapshot

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
    **dict.fromkeys((name for name in __all__ if name.endswith("Error")), "errors"),
    "AsyncClient": "asynchronous",
    **dict.fromkeys(("Client", "Run"), "blocking"),
    **dict.fromkeys(("AsyncRun", "LogLine"), "run"),
    "RunRequest": "run_requests",
    "ScheduleState": "schedules",
    "RunSnapshot": "snapshots",
}


if not TYPE_CHECKING:  # checkers know the names from the imports above, and report others

    def __getattr__(name: str) -> Any:
        """Import the module of a public name."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)

    def __dir__() -> list[str]:
        """Return the public names too, for completion in notebooks."""
        return sorted({*globals(), *__all__})
