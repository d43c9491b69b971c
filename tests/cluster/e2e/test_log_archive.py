"""Logs of activities on a real cluster after their pods are deleted: they come from an S3 server."""

import os
import subprocess
import sys

import pytest

from support.cluster.artifacts import store
from support.cluster.namespace import IMAGE, Cluster, run_manifest

pytestmark = pytest.mark.cluster

_FAILS_ONCE = 'echo "attempt $PERDURE_ATTEMPT"; echo problem >&2; exit $((2 - PERDURE_ATTEMPT))'
_STOPPED = "trap 'echo stopped; exit 1' TERM; echo begun; while :; do sleep 0.2; done"


def logs(namespace: Cluster, run: str) -> list[str]:
    command = [sys.executable, "-c", "from perdure.cli.app import main; main()", "logs", run, "-n", namespace.namespace]
    environ = {**os.environ, "KUBECONFIG": str(namespace.kubeconfig)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_logs_of_all_attempts_can_be_read_when_their_pods_are_deleted(namespace: Cluster) -> None:
    store(namespace)
    activities = [
        {
            "name": name,
            "startToCloseTimeout": timeout,
            "retryPolicy": {"exponential": {"initialInterval": "1s", "maximumAttempts": attempts}},
            "podRetention": {"onSuccess": "Delete", "onFailure": "Delete"},
            "artifacts": {"archiveLogs": True},
            "container": {"image": IMAGE, "command": ["sh", "-c", program]},
        }
        for name, timeout, attempts, program in (("work", "2m", 2, _FAILS_ONCE), ("slow", "10s", 1, _STOPPED))
    ]
    steps = [
        {"name": "work", "activity": {"name": "work"}},
        {"name": "slow", "activity": {"name": "slow"}, "catch": [{"call": {"block": "late"}}]},
    ]
    blocks = [{"name": "late", "steps": [{"name": "note", "return": {"output": "late"}}]}]
    output = "${[steps.slow.output, steps.work.artifacts['log.gz'].archive]}"
    inline = {"activities": activities, "blocks": blocks, "steps": steps, "output": output}
    namespace.apply(run_manifest("logged", {"inline": inline}))
    status = namespace.closed("logged")
    assert (status["phase"], status["output"]) == ("Completed", ["late", "None"]), status
    namespace.wait("pods are gone", lambda: not namespace.list("pods", "-l", "perdure.dev/run=logged"))
    assert logs(namespace, "logged") == [
        "work#1: attempt 1",
        "work#1: problem",
        "work#2: attempt 2",
        "work#2: problem",
        "slow#1: begun",
        "slow#1: stopped",
    ]
