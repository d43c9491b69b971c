"""Converts the output of `describe` to data for programs."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from perdure.view import hints, text
from perdure.view.facts import ShownRun
from perdure.view.page import Page

_NAMES = {
    "activities": "pendingActivities",
    "cancel": "cancelRequested",
    "children": "pendingChildren",
    "created": "creationTime",
    "details": "heartbeatDetails",
    "end": "completionTime",
    "fires": "fireTime",
    "continued_as": "newWorkflowRun",
    "continues": "continuedWorkflowRun",
    "heartbeat": "lastHeartbeatTime",
    "last_start": "lastAttemptStartTime",
    "losses": "lostAttempts",
    "next_attempt": "nextAttemptTime",
    "operations": "pendingNexusOperations",
    "received": "receivedTime",
    "removed_at": "removalTime",
    "requested": "requestedTime",
    "scheduled": "scheduledTime",
    "signals": "pendingSignals",
    "start": "startTime",
    "started": "startedTime",
    "timers": "pendingTimers",
    "uid": "runId",
    "waits_for": "waitingReason",
}
_THEIRS = frozenset({"input", "output", "details", "failure", "last_failure"})
"""Fields with values of users and their programs, which are not converted."""
_OF_STEPS = ("open", "timer", "limit", "child", "operation")
"""Fields that are listed under `pendingActivities`, `pendingTimers`, `pendingChildren` and `pendingNexusOperations`."""


def as_data(run: ShownRun, page: Page) -> dict[str, Any]:
    """Return the output of `describe` as data.

    Args:
        run: The run.
        page: The settings of the output.

    Returns:
        JSON with the names of a run's status; unknown values are omitted.
    """
    data = asdict(run)
    for name in ("seen", "observed"):
        del data[name]
    for step in data["steps"]:
        _prune(step)
    for called in (*data["activities"], *data["operations"]):
        time, kind = called["deadline"] or (None, None)
        called["deadline"] = time and {"time": time, "timeout": kind}
    for activity in data["activities"]:
        activity["losses"] = activity["losses"] or None
    data["duration_seconds"] = run.duration(page.now)
    data["pods"] = sorted(run.seen.pods) if run.seen else None
    data["next"] = [{"purpose": purpose, "command": command} for purpose, command in hints.hints(run, page)]
    cleaned: dict[str, Any] = _clean(data)
    return cleaned


def _prune(step: dict[str, Any]) -> None:
    for name in _OF_STEPS:
        del step[name]
    for name in ("steps", "losses", "pods"):
        step[name] = step[name] or None
    for inner in step["steps"] or ():
        _prune(inner)


def _clean(data: Any) -> Any:
    """Convert to JSON in the form of Kubernetes: camelCase, times as text, durations in seconds, and no empty values."""
    match data:
        case datetime():
            return text.iso(data)
        case timedelta():
            return data.total_seconds()
        case list() | tuple():
            return [_clean(item) for item in data]
        case dict():
            return {
                _NAMES.get(key) or _camel(key): item if key in _THEIRS else _clean(item)
                for key, item in data.items()
                if item is not None and (key in _THEIRS or item != "")
            }
        case _:
            return data


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
