"""RetryPolicies as resources: shared by name, waited for, pinned; their circuit breakers; retry timing as computed."""

from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from perdure.engine import events as ev
from support.cluster.namespace import IMAGE, Cluster, Json, one_step, recorded
from support.cluster.process import Process

pytestmark = pytest.mark.cluster


def policy(name: str, **spec: Any) -> Json:
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "RetryPolicy", "metadata": {"name": name}, "spec": spec}


def shell(script: str, **options: Any) -> Json:
    container = {"image": IMAGE, "command": ["sh", "-c", script]}
    return {"name": "work", "startToCloseTimeout": "2m", "container": container, **options}


def scheduled(namespace: Cluster, run: str) -> ev.ActivityTaskScheduled:
    found = namespace.get("workflowrun", run)
    assert found is not None
    return next(event for event in recorded(found) if isinstance(event, ev.ActivityTaskScheduled))


def circuit(namespace: Cluster, name: str) -> Json:
    found: Json = ((namespace.get("retrypolicy", name) or {}).get("status") or {}).get("circuit") or {}
    return found


def test_the_status_and_the_columns_show_the_waits(namespace: Cluster) -> None:
    google = {"retryCount": 5, "minBackoffDuration": "10s", "maxBackoffDuration": "300s", "maxDoublings": 3}
    namespace.apply(policy("google", cloudScheduler=google))
    namespace.condition("retrypolicy", "google", "Accepted")
    found = namespace.get("retrypolicy", "google")
    assert found is not None
    assert found["status"]["preview"] == ["10s", "20s", "40s", "1m20s", "2m40s", "4m", "5m", "5m"]
    assert found["status"]["observedGeneration"] == 1
    namespace.apply(policy("google", exponential={}))
    namespace.wait(
        "the preview of the change",
        lambda: ((namespace.get("retrypolicy", "google") or {}).get("status") or {}).get("observedGeneration") == 2,
    )


def test_a_run_waits_for_a_missing_policy_and_keeps_its_first_version(namespace: Cluster) -> None:
    fails = 'test "$PERDURE_ATTEMPT" -ge 2 || exit 1'
    namespace.start("waits", one_step(shell(fails, retryPolicy={"name": "shared"})))
    condition = namespace.condition("workflowrun", "waits", "RetryPolicyNotFound")
    assert condition["status"] == "Unknown"
    assert "`shared`" in condition["message"]
    namespace.apply(policy("shared", exponential={"initialInterval": "4s"}))
    namespace.pending("waits", attempt=2)
    namespace.apply(policy("shared", exponential={"initialInterval": "1h"}))
    assert namespace.closed("waits")["phase"] == "Completed"
    recorded_policy = scheduled(namespace, "waits").retry_policy
    assert (recorded_policy.name, recorded_policy.initial_interval.total_seconds()) == ("shared", 4)


@pytest.mark.parametrize(
    ("spec", "waits"),
    [
        (
            {
                "exponential": {
                    "initialInterval": "1s",
                    "backoffCoefficient": "3",
                    "maximumInterval": "4s",
                    "maximumAttempts": 4,
                }
            },
            [1, 3, 4],
        ),
        (
            {
                "cloudScheduler": {
                    "retryCount": 4,
                    "minBackoffDuration": "1.5s",
                    "maxBackoffDuration": "5s",
                    "maxDoublings": 1,
                }
            },
            [1.5, 3, 4.5, 5],
        ),
    ],
    ids=["exponential", "cloudScheduler"],
)
def test_the_observed_waits_are_the_computed_ones(namespace: Cluster, spec: Json, waits: list[float]) -> None:
    """A pod is created soon after its wait is over, never before."""
    namespace.apply(policy("timed", **spec))
    namespace.start("timed", one_step(shell("exit 1", retryPolicy={"name": "timed"})))
    assert namespace.closed("timed", seconds=300)["failure"]["retryState"] == "MaximumAttemptsReached"
    pods = sorted(namespace.list("pods"), key=lambda pod: pod["metadata"]["name"])
    assert len(pods) == len(waits) + 1
    for (earlier, later), wait in zip(pairwise(pods), waits, strict=True):
        (ended,) = earlier["status"]["containerStatuses"]
        finished = datetime.fromisoformat(ended["state"]["terminated"]["finishedAt"])
        made = datetime.fromisoformat(later["metadata"]["creationTimestamp"])
        observed = (made - finished).total_seconds()
        print(f"computed {wait:>5.1f} s, observed {observed:>5.1f} s (whole seconds of Kubernetes)")
        assert observed >= wait - 1


@pytest.mark.own
def test_a_circuit_breaker_is_shared_by_runs_and_survives_the_operator(
    namespace: Cluster, operator_process: Process
) -> None:
    breaker = {"failureThreshold": 3, "openDuration": "20s", "successThreshold": 2}
    namespace.apply(
        policy("fragile", exponential={"initialInterval": "1s", "maximumInterval": "1s"}, circuitBreaker=breaker)
    )
    namespace.condition("retrypolicy", "fragile", "Accepted")
    # Their dependency is down until the ConfigMap exists.
    mounts = {"volumeMounts": [{"name": "backend", "mountPath": "/backend"}]}
    pod = {
        "containers": [{"name": "main", "image": IMAGE, "command": ["sh", "-c", "test -e /backend/up"], **mounts}],
        "volumes": [{"name": "backend", "configMap": {"name": "backend", "optional": True}}],
    }
    work = {
        "name": "work",
        "startToCloseTimeout": "1m",
        "retryPolicy": {"name": "fragile"},
        "podTemplate": {"spec": pod},
    }
    names = [f"caller-{number}" for number in range(4)]
    for name in names:
        namespace.start(name, one_step(work))
    namespace.wait("the circuit to open", lambda: circuit(namespace, "fragile").get("state") == "Open")
    opened = circuit(namespace, "fragile")["openedAt"]
    namespace.condition("retrypolicy", "fragile", "CircuitOpen")
    held = namespace.wait(
        "a run to say what it waits for",
        lambda: [
            activity["waitingReason"]
            for name in names
            for activity in ((namespace.get("workflowrun", name) or {}).get("status") or {}).get(
                "pendingActivities", []
            )
            if "circuit breaker" in activity.get("waitingReason", "")
        ],
    )
    assert "`fragile`" in held[0]
    namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "backend"}, "data": {"up": "yes"}})
    with operator_process.down():
        assert circuit(namespace, "fragile")["openedAt"] == opened
    for name in names:
        assert namespace.closed(name, seconds=240)["phase"] == "Completed"
    namespace.condition("retrypolicy", "fragile", "CircuitClosed")
    assert circuit(namespace, "fragile")["state"] == "Closed"

    def reported() -> set[str]:
        return {e["reason"] for e in namespace.list("events", "--field-selector=involvedObject.kind=RetryPolicy")}

    namespace.wait("the Event", lambda: {"CircuitOpened", "CircuitHalfOpened"} <= reported())


def test_a_run_is_retried_by_a_shared_policy(namespace: Cluster) -> None:
    namespace.apply(policy("runs", cloudScheduler={"retryCount": 1, "minBackoffDuration": "1s"}))
    once = {"exponential": {"maximumAttempts": 1}}
    namespace.start("chain", one_step(shell("exit 1", retryPolicy=once), retryPolicy={"name": "runs"}))
    status = namespace.closed("chain")
    assert status["phase"] == "Failed"
    runs = namespace.wait(
        "the second run", lambda: (found := namespace.list("workflowruns")) and len(found) == 2 and found
    )
    second = next(run["metadata"]["name"] for run in runs if run["metadata"]["name"] != "chain")
    assert namespace.closed(second)["attempt"] == 2
    assert len(namespace.list("workflowruns")) == 2
