"""After many runs there is what the policies say, and nothing else. PERDURE_RUNS says how many runs (20 by default)."""

import os
from collections import Counter

import pytest

from kube import Cluster, one_step, python

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

RUNS = int(os.environ.get("PERDURE_RUNS", "20"))
ONCE = {"exponential": {"maximumAttempts": 1}}
KINDS = ("pods", "leases", "secrets", "deadletters", "operations", "historysegments")


def counted(namespace: Cluster) -> Counter[str]:
    """Objects by kind; of pods also those that something still holds."""
    found = Counter({kind: len(namespace.list(kind)) for kind in KINDS})
    found["held pods"] = sum(bool(pod["metadata"].get("finalizers")) for pod in namespace.list("pods"))
    return found


def test_nothing_is_left_behind(namespace: Cluster) -> None:
    before = counted(namespace)
    well = python("activity.heartbeat(1); activity.complete(1)", heartbeatTimeout="60s", retryPolicy=ONCE)
    kept = python("activity.fail('no')", retryPolicy=ONCE)
    gone = python("activity.fail('no')", retryPolicy=ONCE, podRetention={"onFailure": "Delete"})
    for number in range(RUNS):
        work = (well, kept, gone)[number % 3]
        namespace.start(f"run-{number}", one_step(work))
    phases = [namespace.closed(f"run-{number}", seconds=600)["phase"] for number in range(RUNS)]
    assert set(phases[1::3] + phases[2::3]) == {"Failed"}
    assert "Completed" in phases[::3]
    # A busy node fails to start one now and then, which is an attempt that has failed.
    failed = phases[::3].count("Failed")
    left = +Counter({"pods": len(phases[1::3]) + failed, "leases": failed})

    def settled() -> bool:
        return counted(namespace) - before == left

    # Leases go with their pods, when the cluster's garbage collector comes to it.
    namespace.wait("only the pods of failed attempts to be left, held by nothing", settled, seconds=600)
    print(f"{RUNS} runs: {dict(left)} are left, as the policies say")
    namespace("delete", "workflowruns", "--all", "--wait=true", "--timeout=300s")
    namespace.wait("nothing to be left", lambda: +(counted(namespace) - before) == Counter(), seconds=600)
