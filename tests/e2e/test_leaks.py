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
    for number in range(RUNS):
        namespace.closed(f"run-{number}", seconds=600)
    failed = len(range(1, RUNS, 3))

    def settled() -> bool:
        return counted(namespace) - before == +Counter({"pods": failed})

    # Leases go with their pods, when the cluster's garbage collector comes to it.
    namespace.wait("only the pods of failed attempts to be left, held by nothing", settled, seconds=600)
    namespace("delete", "workflowruns", "--all", "--wait=true", "--timeout=300s")
    namespace.wait("nothing to be left", lambda: +(counted(namespace) - before) == Counter(), seconds=600)
