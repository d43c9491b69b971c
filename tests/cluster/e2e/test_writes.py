"""How many API writes an activity costs, counted in the API server's audit log. The budget is a promise, so it is asserted."""

from collections import Counter

import pytest

from support.cluster.audit import by_operator, what, writes
from support.cluster.namespace import Cluster, python

pytestmark = pytest.mark.cluster

ACTIVITIES = 10
BUDGET = 5.0


@pytest.mark.parametrize("heartbeat", [False, True], ids=["without a Lease", "with a Lease"])
def test_an_activity_costs_at_most_five_writes(namespace: Cluster, *, heartbeat: bool) -> None:
    options = {"heartbeatTimeout": "1m"} if heartbeat else {}
    # By default, the writes are the same, but the pods are deleted some minutes later.
    now = {"onSuccess": "Delete"}
    work = python("activity.heartbeat(1); activity.complete('done')", podRetention=now, **options)
    steps = [{"name": f"step-{n}", "activity": {"name": "work"}} for n in range(ACTIVITIES)]
    namespace.start("counted", {"inline": {"activities": [work], "steps": steps}})
    status = namespace.closed("counted", seconds=300)
    assert status["phase"] == "Completed"
    namespace.wait("the pods to be gone", lambda: not namespace.list("pods"))

    def counted() -> Counter[str]:
        return Counter(what(entry) for entry in writes(namespace.namespace) if by_operator(entry))

    # The log is written shortly after the response.
    namespace.wait("the log to have it all", lambda: counted()["delete pods"] >= ACTIVITIES)
    found = counted()
    # A run without activities also costs these: the commit that starts it, its Events, and objects of the namespace.
    in_each_namespace = ("create serviceaccounts", "create rolebindings", "create configmaps")
    once = 1 + sum(found[kind] for kind in ("create events", *in_each_namespace))
    per_activity = (sum(found.values()) - once) / ACTIVITIES
    print(
        f"\n{per_activity:.2f} writes per activity ({'with' if heartbeat else 'without'} a Lease), and {once} for the run"
    )
    for kind, count in sorted(found.items()):
        print(f"  {count:4d}  {kind}")
    assert per_activity <= BUDGET
