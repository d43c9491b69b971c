"""`perdure top`: the open runs by Workflow, and the load of the operators."""

import json
from datetime import timedelta
from typing import Any

import pytest
from click.testing import Result

from perdure.kube import clock
from support.apiserver import ApiServer, Log, items
from support.cli import perdure
from support.doctor import DEPLOYMENTS, PODS, deployment

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/perdure-system/pods"
METRICS = """\
# TYPE perdure_fleet_shards gauge
perdure_fleet_shards 32.0
# TYPE perdure_queue_depth gauge
perdure_queue_depth{queue="runs"} 3.0
perdure_queue_depth{queue="schedules"} 1.0
# TYPE perdure_runs_known gauge
perdure_runs_known 120.0
# TYPE perdure_timers gauge
perdure_timers 7.0
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1.048576e+08
"""


def top(*options: str) -> Result:
    return perdure("top", *options)


def run(name: str, spec: dict[str, Any], phase: str, *activities: str, days: int = 0) -> dict[str, Any]:
    time = (clock.now() - timedelta(days=days, minutes=1)).isoformat()
    status = {"phase": phase, "pendingActivities": [{"step": "a", "state": state} for state in activities]}
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": time}
    return {"metadata": metadata, "spec": spec, "status": status}


@pytest.fixture
def busy(server: ApiServer) -> ApiServer:
    order, flow = {"workflow": {"name": "order"}}, {"workflow": {"type": "Billing", "taskQueue": "q"}}
    usage = {"metadata": {"name": "op-1"}, "containers": [{"usage": {"cpu": "250m", "memory": "204800Ki"}}]}
    server.answers |= {
        RUNS: items(
            run("a", order, "Running", "Started", "BackingOff", days=2),
            run("b", order, "Paused", "CancelRequested"),
            run("c", order, "Pending"),
            run("d", flow, "Running"),
        ),
        DEPLOYMENTS: items(deployment()),
        PODS: items({"metadata": {"name": "op-2"}}, {"metadata": {"name": "op-1"}}),
        USAGE: items(usage),
        f"{PODS}/op-1:8080/proxy/metrics": Log(METRICS),
    }
    return server


def test_runs_are_counted_and_operators_measured(busy: ApiServer) -> None:
    done = top()
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["WORKFLOW", "OPEN", "PENDING", "PAUSED", "ACTIVITIES", "RETRYING", "OLDEST"],
        ["order", "3", "1", "1", "2", "1", "2d"],
        ["Billing", "1", "0", "0", "0", "0", done.stdout.splitlines()[2].split()[-1]],
        [],
        ["OPERATOR", "CPU", "MEMORY", "SHARDS", "RUNS", "QUEUE", "TIMERS"],
        ["op-1", "250m", "200Mi", "32", "120", "4", "7"],
        ["op-2", "-", "-", "-", "-", "-", "-"],
    ]
    (query,) = (query for path, query in busy.asked if path == RUNS)
    assert "status.phase!=Completed" in query["fieldSelector"][0]


def test_without_the_metrics_server_the_memory_is_the_operators_own_figure(busy: ApiServer) -> None:
    busy.answers[USAGE] = (503, {"kind": "Status", "message": "the server is currently unable to handle the request"})
    assert top().stdout.splitlines()[5].split()[:3] == ["op-1", "-", "100Mi"]


def test_json_contains_numbers(busy: ApiServer) -> None:
    busy.answers["/apis/perdure.dev/v1alpha1/workflowruns"] = busy.answers[RUNS]
    found = json.loads(top("-A", "-o", "json").stdout)
    order, billing = found["workflows"]
    assert (order["namespace"], order["workflow"], order["open"], billing["open"]) == ("shop", "order", 3, 1)
    assert order["oldest"] >= 2 * 86_400
    figures = {"cpu": 0.25, "memory": 200 * 2**20, "shards": 32, "runs": 120, "queue": 4, "timers": 7}
    assert found["operators"] == [{"name": "op-1", **figures}, {"name": "op-2"}]


def test_without_permission_for_the_operator_the_runs_are_shown(busy: ApiServer) -> None:
    busy.answers[DEPLOYMENTS] = (403, {"kind": "Status", "message": "deployments.apps is forbidden"})
    done = top()
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == "No operator can be read in namespace `perdure-system`.\n"


def test_no_open_run_is_reported(busy: ApiServer) -> None:
    busy.answers[RUNS] = items()
    done = top()
    assert (done.exit_code, done.stderr) == (0, "No run is open.\n")
