"""After many runs, only objects that the policies keep still exist. PERDURE_RUNS says how many runs (20 by default)."""

import os
from collections import Counter

import pytest

from support.cluster.namespace import Cluster, Json, one_step, python

RUNS = int(os.environ.get("PERDURE_RUNS", "20"))

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600 + 20 * RUNS)]

ONCE = {"exponential": {"maximumAttempts": 1}}
NOW = {"onSuccess": "Delete"}
KINDS = ("pods", "leases", "secrets", "deadletters", "operations", "historysegments")


def counted(namespace: Cluster) -> Counter[str]:
    """Objects by kind, and pods that still have a finalizer."""
    found = Counter({kind: len(namespace.list(kind)) for kind in KINDS})
    found["held pods"] = sum(bool(pod["metadata"].get("finalizers")) for pod in namespace.list("pods"))
    return found


def ended_by_itself(status: Json) -> bool:
    """Whether the attempt of a run failed without being stopped, so that its pod is kept."""
    failure = status.get("failure") or {}
    while "cause" in failure:
        failure = failure["cause"]
    return bool(failure.get("kind") == "Application")


def test_finished_runs_leave_nothing_behind(namespace: Cluster) -> None:
    before = counted(namespace)
    well = python(
        "activity.heartbeat(1); activity.complete(1)", heartbeatTimeout="60s", retryPolicy=ONCE, podRetention=NOW
    )
    kept = python("activity.fail('no')", retryPolicy=ONCE)
    gone = python("activity.fail('no')", retryPolicy=ONCE, podRetention={"onFailure": "Delete"})
    for number in range(RUNS):
        work = (well, kept, gone)[number % 3]
        namespace.start(f"run-{number}", one_step(work))
    ends = [namespace.closed(f"run-{number}", seconds=600) for number in range(RUNS)]
    assert {status["phase"] for status in ends[1::3] + ends[2::3]} == {"Failed"}
    assert "Completed" in {status["phase"] for status in ends[::3]}
    # On a busy node, some do not start, which fails the attempt, or start late and are stopped.
    failed = sum(map(ended_by_itself, ends[::3]))
    left = +Counter({"pods": sum(map(ended_by_itself, ends[1::3])) + failed, "leases": failed})

    def settled() -> bool:
        return counted(namespace) - before == left

    # The garbage collector of the cluster deletes Leases with their pods.
    namespace.wait("only the pods of failed attempts to be left, held by nothing", settled, seconds=600)
    print(f"{RUNS} runs: {dict(left)} are left, as the policies say")
    namespace("delete", "workflowruns", "--all", "--wait=true", "--timeout=300s")
    namespace.wait("nothing to be left", lambda: +(counted(namespace) - before) == Counter(), seconds=600)
