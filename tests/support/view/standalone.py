"""A standalone activity as the object that the command line reads."""

from typing import Any

from perdure.controller.runs.status import StatusComposer
from support.engine.script import Drive
from support.view.flow import UID


def object_of(run: Drive) -> dict[str, Any]:
    """The WorkflowRun of a standalone activity."""
    made: dict[str, Any] = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkflowRun",
        "metadata": {"name": "charge-k9", "namespace": "shop", "uid": UID, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "activity": {"type": "Do", "taskQueue": "q", "startToCloseTimeout": "1m"},
            "workflowId": "charge-1",
            "input": {"order": 17},
        },
    }
    return {**made, "status": StatusComposer(UID).compose(made, run.state, run.history, run.now)}
