"""When a pod has ended: before its phase says so, and never while it still works."""

from typing import Any

import pytest

from perdure.controller.pods import has_ended

RUNS: dict[str, Any] = {"state": {"running": {"startedAt": "2026-01-31T12:00:00Z"}}}
WAITS: dict[str, Any] = {"state": {"waiting": {"reason": "PodInitializing"}}}


def ended(code: int) -> dict[str, Any]:
    return {"state": {"terminated": {"exitCode": code}}}


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({}, False),
        ({"phase": "Running", "containerStatuses": [RUNS]}, False),
        ({"phase": "Running", "containerStatuses": [ended(0), RUNS]}, False),
        ({"phase": "Running", "containerStatuses": [ended(0), ended(1)]}, True),
        ({"phase": "Failed"}, True),
        ({"phase": "Pending", "initContainerStatuses": [ended(0)], "containerStatuses": [WAITS]}, False),
        ({"phase": "Pending", "initContainerStatuses": [ended(1)], "containerStatuses": [WAITS]}, True),
    ],
    ids=[
        "nothing is known",
        "it runs",
        "one of two runs",
        "all containers have ended",
        "its phase says so",
        "an init container has succeeded",
        "an init container has failed",
    ],
)
def test_whether_a_pod_has_ended(status: dict[str, Any], want: bool) -> None:
    assert has_ended({"metadata": {"name": "one"}, "status": status}) is want
