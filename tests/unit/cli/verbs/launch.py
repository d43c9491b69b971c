"""The Workflow `flow` that a test starts, and a pod of its run."""

from typing import Any

WORKFLOW = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflows/flow"
PODS = "/api/v1/namespaces/shop/pods"
DEFINITION: dict[str, Any] = {
    "metadata": {"name": "flow"},
    "spec": {
        "input": {"schema": {"type": "object", "required": ["id"]}},
        "steps": [{"name": "a", "sleep": {"duration": "1s"}}],
    },
}


def pod() -> dict[str, Any]:
    ended = {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}
    notes = {"perdure.dev/scheduled-event-id": "2", "perdure.dev/attempt": "2"}
    return {
        "metadata": {"name": "order-2-2", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": notes},
        "spec": {"containers": [{"name": "activity", "env": [{"name": "PERDURE_ACTIVITY_ID", "value": "reserve"}]}]},
        "status": {"phase": "Succeeded", "containerStatuses": [{"name": "activity", "state": {"terminated": ended}}]},
    }
