"""Builders: an attempt, its definition, and pods the way kubelets report them."""

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.api.kinds.workflow import Activity
from perdure.runtime.attempts import Attempt, PodSettings, RunRef
from perdure.runtime.leases import build_lease
from perdure.runtime.pods.builder import build_pod

RUN = RunRef(namespace="shop", name="order-42", uid="11111111-2222-3333-4444-555555555555", workflow_id="order-42")
ATTEMPT = Attempt(
    scheduled_event_id=5,
    attempt=2,
    activity_id="5",
    activity_type="charge",
    input={"amount": 12},
    start_to_close=timedelta(minutes=5),
)
POD_UID = "99999999-0000-0000-0000-000000000000"
STARTED = "2026-01-31T12:00:10Z"
FINISHED = "2026-01-31T12:01:00Z"


def activity(**fields: Any) -> Activity:
    base: dict[str, Any] = {"name": "charge", "startToCloseTimeout": "5m"}
    if not {"container", "podTemplate", "script", "http", "resource", "worker"} & fields.keys():
        base["container"] = {"image": "shop/charge:1"}
    return Activity.parse({**base, **fields})


def terminated(exit_code: int = 0, *, name: str = "activity", **fields: Any) -> dict[str, Any]:
    state = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
    return {
        "name": name,
        "state": {"terminated": {**state, "startedAt": STARTED, "finishedAt": FINISHED, **fields}},
    }


def running(name: str = "activity") -> dict[str, Any]:
    return {"name": name, "state": {"running": {"startedAt": STARTED}}}


def waiting(reason: str, message: str = "", *, name: str = "activity") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def disruption(reason: str, *, at: str = FINISHED, status: str = "True") -> dict[str, Any]:
    return {
        "type": "DisruptionTarget",
        "status": status,
        "reason": reason,
        "message": f"told by {reason}.",
        "lastTransitionTime": at,
    }


class Builders:
    """Builders of test data for this folder."""

    run = RUN
    attempt = ATTEMPT
    pod_uid = POD_UID
    now = datetime(2026, 1, 31, 12, 2, tzinfo=UTC)
    activity = staticmethod(activity)
    terminated = staticmethod(terminated)
    running = staticmethod(running)
    waiting = staticmethod(waiting)
    disruption = staticmethod(disruption)

    def pod(
        self,
        *containers: dict[str, Any],
        phase: str = "Running",
        definition: Activity | None = None,
        attempt: Attempt = ATTEMPT,
        node: str | None = "node-1",
        init: tuple[dict[str, Any], ...] = (),
        deleted_at: str | None = None,
        grace: int = 30,
        **status: Any,
    ) -> dict[str, Any]:
        """The attempt's pod, with a status as a kubelet would write it."""
        pod = build_pod(RUN, attempt, definition or activity(), PodSettings())
        pod["metadata"]["uid"] = POD_UID
        if node is not None:
            pod["spec"]["nodeName"] = node
        if deleted_at is not None:
            # Kubernetes writes the end of the grace period there.
            end = datetime.fromisoformat(deleted_at) + timedelta(seconds=grace)
            pod["metadata"] |= {"deletionTimestamp": end.isoformat(), "deletionGracePeriodSeconds": grace}
        pod["status"] = {"phase": phase, "startTime": "2026-01-31T12:00:00Z", **status}
        if containers:
            pod["status"]["containerStatuses"] = list(containers)
        if init:
            pod["status"]["initContainerStatuses"] = list(init)
        return copy.deepcopy(pod)

    def lease(self, attempt: Attempt = ATTEMPT, **annotations: str) -> dict[str, Any]:
        """The attempt's Lease; annotations by their name after `perdure.dev/`, underscores for dashes."""
        lease = build_lease(RUN, attempt, POD_UID)
        lease["metadata"]["annotations"] |= {
            f"perdure.dev/{name.replace('_', '-')}": text for name, text in annotations.items()
        }
        return lease

    def with_attempt(self, **changes: Any) -> Attempt:
        return replace(ATTEMPT, **changes)


@pytest.fixture
def make() -> Builders:
    return Builders()


@pytest.fixture(scope="module")
def maker() -> Builders:
    """The same for property tests, which require a fixture that lives longer than one example."""
    return Builders()
