"""Runs of Workflows: without pods, and with pods compared to bare pods."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median

from bench.costs import ApiServerCosts, operator_cpu
from bench.results import Result
from bench.schedules import QUICK, create_all
from support.cluster.namespace import IMAGE, Cluster, Json, run_manifest, temporary_namespace
from support.sdk.server import Operator

RUNS = 300
REPEATED = 3
CONTAINER: Json = {
    "image": IMAGE,
    "command": ["python", "-c", "pass"],
    "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}},
}
RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65_532,
    "seccompProfile": {"type": "RuntimeDefault"},
}


async def measure_podless(operator: Operator) -> list[Result]:
    """Runs that only return a value, all created as fast as the API server accepts them."""
    namespace = operator.cluster
    runs = [run_manifest(f"quick-{number}", {"inline": QUICK}) for number in range(RUNS)]
    api, cpu = ApiServerCosts(namespace), operator_cpu(operator)
    began = datetime.now(UTC)  # noqa: TID251 (of this machine, which is the operator's)
    await create_all("workflowruns", namespace.namespace, runs)

    def closed() -> list[datetime] | None:
        found = namespace.list("workflowruns", "--field-selector=status.phase=Completed")
        times = [run["status"]["completionTime"] for run in found if run["metadata"]["name"].startswith("quick-")]
        return list(map(datetime.fromisoformat, times)) if len(times) == RUNS else None

    # Listing all of them repeatedly would distort the measured CPU time.
    namespace.wait("the last run to close", lambda: "completionTime" in _status(namespace, f"quick-{RUNS - 1}"))
    ends: list[datetime] = namespace.wait("all runs to close", closed)
    took = (max(ends) - began).total_seconds()
    cpu_of_operator = operator_cpu(operator) - cpu
    api_cpu, _ = api.spent()
    raw_took, raw_cpu = await _created_raw(namespace, runs, _status(namespace, "quick-0"))
    raw = "the same objects without an operator"
    return [
        Result(f"YAML runs without pods, {RUNS} created in parallel", "/s", RUNS / took, raw, RUNS / raw_took),
        Result("CPU of the operator for each", "ms", cpu_of_operator / RUNS),
        Result("CPU of the API server for each", "ms", api_cpu / RUNS, raw, raw_cpu / RUNS),
    ]


def _status(cluster: Cluster, run: str) -> Json:
    found = cluster.get("workflowrun", run)
    assert found is not None
    return dict(found.get("status") or {})


async def _created_raw(cluster: Cluster, runs: list[Json], status: Json) -> tuple[float, float]:
    """Create runs where no operator sees them, and write the status of a finished run into each.

    Returns:
        The seconds that it took, and the milliseconds of CPU time of the API server.
    """
    with temporary_namespace(cluster, excluded=True) as unserved:
        api = ApiServerCosts(unserved)
        took = await create_all("workflowruns", unserved.namespace, runs, status=status)
        return took, api.spent()[0]


def measure_pods(operator: Operator) -> list[Result]:
    """One pod, five in a row, and thirty in parallel, by runs and without them."""
    namespace = operator.cluster
    _run(namespace, "warm", _in_a_row(1))
    cases: tuple[tuple[str, int, Json, Callable[[Cluster, str], None]], ...] = (
        ("run with one pod", REPEATED, _in_a_row(1), lambda where, name: _pods(where, [name])),
        ("run with five pods in a row", 1, _in_a_row(5), lambda where, name: _pods_in_a_row(where, name, 5)),
        ("run with thirty pods in parallel", 1, _at_once(30), lambda where, name: _pods(where, _names(name, 30))),
    )
    results = []
    for case, (what, times, spec, bare) in enumerate(cases):
        mine, theirs = [], []
        for turn in range(times):
            began = time.perf_counter()
            _run(namespace, f"pods-{case}-{turn}", spec)
            between = time.perf_counter()
            bare(namespace, f"bare-{case}-{turn}")
            mine.append(between - began)
            theirs.append(time.perf_counter() - between)
        results.append(Result(what, "s", median(mine), "bare pods", median(theirs)))
    return results


def _in_a_row(steps: int) -> Json:
    calls = [{"name": f"step-{number}", "activity": {"name": "work"}} for number in range(steps)]
    return {"inline": {"activities": [_activity()], "steps": calls}}


def _at_once(steps: int) -> Json:
    loop = {"items": f"${{lists.range({steps})}}", "maxConcurrency": steps}
    step = {"name": "all", "forEach": loop, "activity": {"name": "work"}}
    return {"inline": {"activities": [_activity()], "steps": [step]}}


def _activity() -> Json:
    return {"name": "work", "startToCloseTimeout": "5m", "container": CONTAINER}


def _run(namespace: Cluster, name: str, spec: Json) -> None:
    namespace.start(name, spec)
    assert namespace.closed(name)["phase"] == "Completed"


def _names(name: str, number: int) -> list[str]:
    return [f"{name}-{pod}" for pod in range(number)]


def _pods(namespace: Cluster, names: Sequence[str]) -> None:
    """Create pods, and wait until all have succeeded."""
    container = {**CONTAINER, "name": "main", "securityContext": RESTRICTED}
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    for name in names:
        namespace.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    def succeeded() -> bool:
        found = namespace.list("pods", "--field-selector=status.phase=Succeeded")
        return set(names) <= {pod["metadata"]["name"] for pod in found}

    namespace.wait("bare pods to succeed", succeeded)


def _pods_in_a_row(namespace: Cluster, name: str, number: int) -> None:
    for pod in _names(name, number):
        _pods(namespace, [pod])
