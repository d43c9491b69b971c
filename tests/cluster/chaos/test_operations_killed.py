"""Kill the operator repeatedly while Operations arrive: each is executed exactly once, in the order of arrival.

Set PERDURE_LONGER for a longer trial, PERDURE_SEED to repeat one.
"""

import os
import random
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from perdure.engine import events as ev
from support.cluster.namespace import Cluster, Json, recorded
from support.cluster.process import LONGER, operator

pytestmark = [pytest.mark.cluster, pytest.mark.own, pytest.mark.timeout(600 * LONGER)]

KILLS, OPERATIONS = 5 * LONGER, 75 * LONGER
SEED = int(os.environ.get("PERDURE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
PER_RUN = 25

COLLECTOR: Json = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "collector"},
    "spec": {
        "input": {"default": {"got": []}},
        "steps": [
            {
                "name": "take",
                "forEach": {"items": f"${{lists.range({PER_RUN})}}", "maxConcurrency": 1},
                "waitForSignal": {"name": "tick"},
            },
            {
                "name": "again",
                "when": f"${{size(input.got) + size(steps.take.output) < {OPERATIONS}}}",
                "continueAsNew": {"input": {"got": "${input.got + steps.take.output}"}},
            },
            {"name": "done", "return": {"output": "${input.got + steps.take.output}"}},
        ],
    },
}
"""Takes signals, and goes on as a new run after each few of them: so kills hit requests whose run has just closed."""


def asks(chance: random.Random, first: int, last: int) -> str:
    """Operations whose names do not depend on their order."""
    return yaml.safe_dump_all(
        {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "Operation",
            "metadata": {"name": f"tick-{chance.randrange(16**8):08x}-{number}"},
            "spec": {
                "target": {"kind": "WorkflowRun", "workflowId": "collect"},
                "signal": {"name": "tick", "input": number},
            },
        }
        for number in range(first, last)
    )


def test_each_signal_arrives_once_and_in_order_when_operator_and_pods_are_killed(
    namespace: Cluster, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    namespace.apply(COLLECTOR)
    log = tmp_path / "operator.log"
    namespace.start("collect", {"workflow": {"name": "collector"}})
    with operator(namespace, log):
        namespace.condition("workflowrun", "collect", "Running")
    waiting = []
    for kill in range(KILLS):
        first, last = OPERATIONS * kill // KILLS, OPERATIONS * (kill + 1) // KILLS
        manifests = tmp_path / f"{kill}.yaml"
        manifests.write_text(asks(chance, first, last))
        create = [namespace.kubectl, "--kubeconfig", str(namespace.kubeconfig), "-n", namespace.namespace]
        with operator(namespace, log), subprocess.Popen([*create, "create", "-f", str(manifests)]) as creating:
            time.sleep(chance.uniform(0, 3))
        assert creating.returncode == 0
        states = [(each.get("status") or {}).get("phase") for each in namespace.list("operations")]
        waiting.append(sum(state not in {"Complete", "Failed"} for state in states))
    with operator(namespace, log):
        run = namespace.wait("the last run of the chain to complete", lambda: completed(namespace), seconds=600)
        namespace.wait("every answer", lambda: all(map(answered, namespace.list("operations"))), seconds=120)
    print(f"{KILLS} kills; Operations that waited after each: {waiting}")
    assert run["status"]["output"] == list(range(OPERATIONS))
    reported = [each["status"]["conditions"][0] for each in namespace.list("operations")]
    assert {condition["type"] for condition in reported} == {"Complete"}, reported
    assert len(reported) == OPERATIONS
    signals = [e for each in namespace.list("workflowruns") for e in recorded(each) if is_signal(e)]
    carried = sum(len(e.signals) for each in namespace.list("workflowruns") for e in recorded(each) if is_next(e))
    assert len(signals) == OPERATIONS + carried


def is_signal(event: ev.AnyEvent) -> bool:
    return isinstance(event, ev.WorkflowExecutionSignaled)


def is_next(event: ev.AnyEvent) -> bool:
    return isinstance(event, ev.WorkflowExecutionContinuedAsNew)


def answered(operation: Json) -> bool:
    return bool((operation.get("status") or {}).get("completionTime"))


def completed(namespace: Cluster) -> Json | None:
    runs = [run for run in namespace.list("workflowruns") if (run.get("status") or {}).get("phase") == "Completed"]
    return runs[0] if runs else None


def test_concurrent_signals_with_start_create_one_run_when_the_operator_is_killed(
    namespace: Cluster, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    namespace.apply(COLLECTOR)
    pairs = 5
    starts = [
        {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "Operation",
            "metadata": {"name": f"start-{pair}-{which}"},
            "spec": {
                "target": {"kind": "WorkflowRun", "workflowId": f"cart/{pair}"},
                "signalWithStart": {"name": "tick", "input": which, "start": {"workflow": {"name": "collector"}}},
            },
        }
        for pair in range(pairs)
        for which in "ab"
    ]
    for pair in range(pairs):
        created = namespace.run("create", "-f", "-", stdin=yaml.safe_dump_all(starts[2 * pair : 2 * pair + 2]))
        assert created.returncode == 0
        with operator(namespace, tmp_path / "operator.log"):
            time.sleep(chance.uniform(0, 0.5))
    with operator(namespace, tmp_path / "operator.log"):
        namespace.wait("every answer", lambda: all(map(answered, namespace.list("operations"))), seconds=120)
    runs = namespace.list("workflowruns")
    assert sorted(run["spec"]["workflowId"] for run in runs) == [f"cart/{pair}" for pair in range(pairs)]
    for run in runs:
        assert [e.input for e in recorded(run) if isinstance(e, ev.WorkflowExecutionSignaled)] == ["a", "b"]
    results = [each["status"]["result"]["started"] for each in namespace.list("operations")]
    assert results.count(True) == results.count(False) == pairs
