"""DeadLetters: set aside by a real run, re-driven by Operations, shown and removed by the command line."""

import os
import subprocess
import sys

import pytest

from support.cluster.namespace import Cluster, Json, one_step, python

pytestmark = pytest.mark.cluster

FAILS_FIRST = (
    "def work(given):\n"
    "    if '-redrive-' in activity.info().run:\n"
    "        return {'booked': given}\n"
    "    raise activity.ApplicationError('the ledger is closed', type='Closed')\n"
    "activity.main({'work': work})"
)


def perdure(namespace: Cluster, *arguments: str, status: int = 0) -> str:
    command = [sys.executable, "-c", "from perdure.cli.app import main; main()", *arguments, "-n", namespace.namespace]
    environment = {**os.environ, "KUBECONFIG": str(namespace.kubeconfig)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


def set_aside(namespace: Cluster, name: str, code: str = FAILS_FIRST) -> str:
    """Start a run that leaves a DeadLetter and continues with its `catch`, and return the name of the DeadLetter."""
    spec = one_step(
        python(code, retryPolicy={"exponential": {"maximumAttempts": 2, "initialInterval": "1s"}}), input={"count": 7}
    )
    spec["inline"]["steps"][0] |= {"deadLetter": True, "catch": [{"call": {"block": "later"}}]}
    spec["inline"]["blocks"] = [{"name": "later", "steps": [{"name": "note", "return": {"output": "set aside"}}]}]
    namespace.start(name, spec)
    assert namespace.closed(name)["output"] == "set aside"
    letters = namespace.wait("its DeadLetter", lambda: namespace.list("deadletters"))
    found: str = letters[-1]["metadata"]["name"]
    return found


def redriven(namespace: Cluster, name: str) -> Json | None:
    status = (namespace.get("deadletter", name) or {}).get("status") or {}
    found = [c for c in status.get("conditions") or [] if c["type"] == "Redriven" and c["status"] != "Unknown"]
    return status if found else None


def test_a_dead_letter_runs_again_with_the_same_input(namespace: Cluster) -> None:
    name = set_aside(namespace, "order")
    letter = namespace.get("deadletter", name)
    assert letter is not None
    assert letter["spec"]["input"] == {"count": 7}
    assert letter["spec"]["attempts"] == 2
    assert letter["spec"]["retryState"] == "MaximumAttemptsReached"
    assert name in perdure(namespace, "deadletters", "list")
    assert "the ledger is closed" in perdure(namespace, "deadletters", "show", name)

    assert f"runs again as WorkflowRun `{name}-redrive-1`" in perdure(namespace, "deadletters", "redrive", name)
    status = namespace.wait("the re-drive to end", lambda: redriven(namespace, name))
    assert (status["redrives"], status["output"]) == (1, {"booked": {"count": 7}})
    (operation,) = namespace.list("operations")
    assert operation["status"]["result"] == {"workflowRun": f"{name}-redrive-1"}

    refused = perdure(namespace, "deadletters", "redrive", name, status=1)
    assert f"deadletter.perdure.dev/{name} not re-driven: RedriveSucceeded: " in refused
    assert name in perdure(namespace, "deadletters", "delete", "--redriven")
    namespace.wait("the letter and its run to be gone", lambda: not namespace.list("deadletters"))
    namespace.wait("its run to be gone", lambda: namespace.get("workflowrun", f"{name}-redrive-1") is None)


def test_simultaneous_operations_start_one_run(namespace: Cluster) -> None:
    name = set_aside(namespace, "order", "activity.fail('never', type='Never')")
    manifest = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Operation",
        "spec": {"target": {"kind": "DeadLetter", "name": name}, "redrive": {}},
    }
    namespace.apply(*({**manifest, "metadata": {"name": f"again-{number}"}} for number in range(5)))
    namespace.wait(
        "all of them to be answered",
        lambda: all((o.get("status") or {}).get("completionTime") for o in namespace.list("operations")),
    )
    done = [o["metadata"]["name"] for o in namespace.list("operations") if "result" in (o.get("status") or {})]
    assert len(done) == 1
    status = namespace.wait("the re-drive to end", lambda: redriven(namespace, name))
    assert status["redrives"] == 1
    assert status["failure"]["cause"]["type"] == "Never"
    namespace.apply({**manifest, "metadata": {"name": "once-more"}})
    namespace.wait(
        "it to run again", lambda: ((namespace.get("deadletter", name) or {}).get("status") or {}).get("redrives") == 2
    )
