"""Pods of the run `order-42` in the states that decide whether they have logs, and lines of a log."""

from typing import Any

DONE: dict[str, Any] = {"terminated": {"exitCode": 0}}
BROKEN: dict[str, Any] = {"terminated": {"exitCode": 3}}
RUNS_NOW: dict[str, Any] = {"running": {}}
WAITING: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}


def pod(step: str, event: int, attempt: int, state: dict[str, Any], **status: Any) -> dict[str, Any]:
    """A pod of `order-42`; `state` is that of the container `activity`."""
    return {
        "metadata": {
            "name": f"order-42-{event}-{attempt}",
            "creationTimestamp": f"2026-01-01T12:00:{event:02}Z",
            "annotations": {"perdure.dev/scheduled-event-id": str(event), "perdure.dev/attempt": str(attempt)},
        },
        "spec": {
            "containers": [
                {"name": "mesh"},
                {"name": "activity", "env": [{"name": "PERDURE_ACTIVITY_ID", "value": step}]},
            ]
        },
        "status": {"containerStatuses": [{"name": "activity", "state": state}], **status},
    }


def line(second: int, text: str) -> str:
    return f"2026-01-01T12:00:{second:02}.000000000Z {text}\n"
