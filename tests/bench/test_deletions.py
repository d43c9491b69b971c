"""Workflows as code while the pod of the operator is deleted three times: how many stall until a timeout of their activity.

PERDURE_TRIALS says how often this is tried for each kind of deletion (1 by default). A forced deletion may lose the completion
that a worker is just sending (docs/limits.md). A workflow also counts as stalled if the operator was away for as long as its
timeout. Figures are printed, and nothing is decided by them.
"""

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster.namespace import IMAGE, SYSTEM, Cluster, temporary_namespace
from support.manuals import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.bench, pytest.mark.timeout(3600)]

TRIALS = int(os.environ.get("PERDURE_TRIALS", "1"))
WORKFLOWS = 300
DELETIONS = 3
FORCED = ("--force", "--grace-period=0")


def deploy(namespace: Cluster) -> None:
    """Start the worker and client, with the rights of the example's worker."""
    namespace("create", "configmap", "app", f"--from-file={Path(__file__).parent / 'deletions.py'}")
    for each in yaml.safe_load_all((REPOSITORY / "examples" / "temporal" / "worker.yaml").read_text(encoding="utf-8")):
        if each["kind"] != "Deployment":
            namespace.apply(each)
            continue
        spec = each["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        container |= {"image": IMAGE, "command": ["python", "/app/deletions.py", str(WORKFLOWS)]}
        next(volume for volume in spec["volumes"] if volume["name"] == "app")["configMap"]["name"] = "app"
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}}
        namespace.create({**pod, "spec": {**spec, "restartPolicy": "Never"}})


def trial(cluster: Cluster, *options: str) -> dict[str, Any]:
    """Run the workflows while the pods of the operator are deleted, and return the figures."""
    with temporary_namespace(cluster) as namespace:
        deploy(namespace)
        namespace.wait("the workflows to run", lambda: "running" in namespace.run("logs", "trial").stdout)
        system = Cluster(cluster.kubectl, cluster.kubeconfig, SYSTEM)
        for _ in range(DELETIONS):
            time.sleep(random.uniform(1, 6))
            system("delete", "pod", "-l", "app.kubernetes.io/name=perdure", "--wait=false", *options)
        ended = namespace.wait(
            "the workflows to end",
            lambda: [line for line in namespace.run("logs", "trial").stdout.splitlines() if line.startswith("{")],
            seconds=900,
        )
        figures: dict[str, Any] = json.loads(ended[0])
        return figures


@pytest.mark.parametrize("options", [FORCED, ()], ids=["forced", "graceful"])
def test_workflows_stall_seldom_when_operators_are_deleted(cluster: Cluster, options: tuple[str, ...]) -> None:
    found = [trial(cluster, *options) for _ in range(TRIALS)]
    for each in found:
        print(f"{'forced' if options else 'graceful'}: {each}")
    stalled = sum(each["stalled"] for each in found)
    print(f"{stalled} of {TRIALS * WORKFLOWS} workflows have stalled, in {TRIALS} trials of {DELETIONS} deletions")
    assert all(each["workflows"] == WORKFLOWS for each in found)
