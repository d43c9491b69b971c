"""Flows: durable workflows in plain Python, whose activities run in pods.

    import perdure.flow as pf

    etl = pf.Environment("etl", image="registry.example.com/etl:1.4", cpu="500m", memory="256Mi")

    @etl.activity(timeout="10m", retries=5)
    def extract(source: str, day: date) -> list[Row]: ...

    @etl.flow
    async def nightly(day: date, sources: list[str] = ["eu", "us"]) -> int:
        parts = await pf.map(extract, sources, day=day, at_most=4)
        return sum(len(each) for each in parts)

    nightly.run_local(day=date(2026, 11, 27))

A flow is a workflow of Temporal's Python SDK: everything of `temporalio.workflow` can be used in it. The pods of activities
import this without that SDK, so what needs it is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from perdure.api.files import File, Folder
from perdure.api.values import ValueTypeError
from perdure.flow.definitions import Activity, Environment, Flow, Retry, Secret
from perdure.flow.workspaces import Workspace

if TYPE_CHECKING:
    from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, ChildWorkflowError

    from perdure.flow.control import (
        MapError,
        Saga,
        gather,
        map,  # noqa: A004 - `pf.map`
        now,
        race,
        scheduled_time,
        signal,
        sleep,
    )
    from perdure.flow.local import LocalRun, SandboxError, StuckError
    from perdure.flow.replays import replay

__all__ = [
    "Activity",
    "ActivityError",
    "ApplicationError",
    "CancelledError",
    "ChildWorkflowError",
    "Environment",
    "File",
    "Flow",
    "Folder",
    "LocalRun",
    "MapError",
    "Retry",
    "Saga",
    "SandboxError",
    "Secret",
    "StuckError",
    "ValueTypeError",
    "Workspace",
    "gather",
    "map",
    "now",
    "race",
    "replay",
    "scheduled_time",
    "signal",
    "sleep",
]

_LATER = {
    **dict.fromkeys(
        ("MapError", "Saga", "gather", "map", "now", "race", "scheduled_time", "signal", "sleep"),
        "perdure.flow.control",
    ),
    **dict.fromkeys(("LocalRun", "SandboxError", "StuckError"), "perdure.flow.local"),
    "replay": "perdure.flow.replays",
    **dict.fromkeys(
        ("ActivityError", "ApplicationError", "CancelledError", "ChildWorkflowError"), "temporalio.exceptions"
    ),
}


if not TYPE_CHECKING:  # checkers know the names from the imports above, and report others

    def __getattr__(name: str) -> Any:
        """Import what needs the Temporal SDK."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LATER[name]), name)

    def __dir__() -> list[str]:
        """Return the public names too, for completion in notebooks."""
        return sorted({*globals(), *__all__})
