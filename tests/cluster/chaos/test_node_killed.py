"""A node dies under running activities: those that heartbeat are missed within their timeout, the others when their pods are
taken off the node; all of them are done elsewhere, and none twice.
"""

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.engine import events as ev
from support.cluster.namespace import SYSTEM, Cluster, Json, check_history, python, recorded

NAME = os.environ.get("PERDURE_TEST_CLUSTER", "")
EACH = 5
"""Activities of either sort."""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not NAME, reason="only nodes of a kind cluster of our own can be killed"),
]


def docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], check=True, capture_output=True)


def node_of_operator(cluster: Cluster) -> str:
    (pod,) = Cluster(cluster.kubectl, cluster.kubeconfig, SYSTEM).list("pods", "--field-selector=status.phase=Running")
    return str(pod["spec"]["nodeName"])


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """The worker that will be killed, and the other one; both as they were afterwards."""
    safe = node_of_operator(cluster)
    doomed = next(name for name in (f"{NAME}-worker", f"{NAME}-worker2") if name != safe)
    try:
        yield doomed, safe
    finally:
        docker("start", doomed)
        cluster("wait", "node", doomed, "--for=condition=Ready", "--timeout=180s")
        cluster("uncordon", doomed, safe)


def loop(doomed: str, **options: Any) -> Json:
    """A run of several activities that never end on the node to kill, and end immediately on any other."""
    code = (
        "import os, time\n"
        "def work(_):\n"
        f"    while os.environ['NODE'] == {doomed!r}:\n"
        "        activity.heartbeat()\n"
        "        time.sleep(0.5)\n"
        "    return os.environ['NODE']\n"
        "activity.main({'work': work})"
    )
    work = python(code, **options)
    container = {**work.pop("container"), "name": "main"}
    container["env"] = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    gone = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    spec = {"containers": [container], "tolerations": [gone], "terminationGracePeriodSeconds": 2}
    work["podTemplate"] = {"spec": spec}
    steps = [
        {"name": "all", "forEach": {"items": f"${{lists.range({EACH})}}"}, "activity": {"name": "work"}},
        {"name": "end", "return": {"output": "${steps.all.output}"}},
    ]
    return {"inline": {"activities": [work], "steps": steps}}


def test_activities_on_a_killed_node_run_on_another_node(namespace: Cluster, nodes: tuple[str, str]) -> None:
    doomed, safe = nodes
    namespace("cordon", safe)
    retries = {"exponential": {"initialInterval": "1s", "maximumAttempts": 2}}
    namespace.start("beats", loop(doomed, heartbeatTimeout="5s", startToCloseTimeout="1h", retryPolicy=retries))
    # A lost node does not count against the maximum number of attempts.
    once = {"exponential": {"maximumAttempts": 1}}
    namespace.start("plain", loop(doomed, startToCloseTimeout="1h", retryPolicy=once))

    def running() -> bool:
        pods = namespace.list("pods", "--field-selector=status.phase=Running")
        return len([pod for pod in pods if pod["spec"]["nodeName"] == doomed]) == 2 * EACH

    namespace.wait("all of them to run there", running)
    namespace("uncordon", safe)
    namespace("cordon", doomed)
    docker("kill", doomed)
    for run, timed_out in (("beats", True), ("plain", False)):
        status = namespace.closed(run, seconds=400)
        assert status["phase"] == "Completed", status.get("failure")
        assert status["output"] == [safe] * EACH
        complete = namespace.with_history(run)
        check_history(complete)
        started = [event for event in recorded(complete) if isinstance(event, ev.ActivityTaskStarted)]
        assert [event.attempt for event in started] == [2] * EACH
        failures = [event.last_failure for event in started]
        assert all(failure is not None for failure in failures)
        assert [failure.timeout_type for failure in failures if failure] == ["Heartbeat" if timed_out else None] * EACH
