"""Nothing starts runs in the namespaces of system components, as the chart is installed by default."""

import json
from typing import Any

import pytest

from support.cluster.namespace import SYSTEM, Cluster, run_manifest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAP = {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}
OPERATOR = f"--as=system:serviceaccount:{SYSTEM}:perdure"
SCHEDULE = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "Schedule",
    "metadata": {"name": "fenced"},
    "spec": {"cron": ["0 3 * * *"], "workflowRunTemplate": {"spec": {"workflow": {"name": "fenced"}}}},
}
WEBHOOK = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "Webhook",
    "metadata": {"name": "fenced"},
    "spec": {"signature": {"secret": {"name": "fenced"}}, "start": {"workflow": {"name": "fenced"}}},
}


def refused(cluster: Cluster, namespace: str, manifest: dict[str, Any], *flags: str) -> str:
    """What kubectl says about a manifest that is not stored in any case; empty if it would be."""
    done = cluster.run("create", "--dry-run=server", "-n", namespace, "-f", "-", *flags, stdin=json.dumps(manifest))
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("namespace", ["kube-system", SYSTEM])
@pytest.mark.parametrize(
    "manifest", [run_manifest("fenced", {"inline": NAP}), SCHEDULE, WEBHOOK], ids=lambda each: each["kind"]
)
def test_nothing_that_starts_runs_is_admitted_in_system_namespaces(
    cluster: Cluster, namespace: str, manifest: dict[str, Any]
) -> None:
    creators: list[tuple[str, ...]] = [()]
    if manifest["kind"] != "Webhook":  # the operator creates none
        creators.append((OPERATOR,))
    for flags in creators:
        said = refused(cluster, namespace, manifest, *flags)
        assert f'Perdure runs nothing in namespace "{namespace}"' in said
        assert "change namespaceFence of the release perdure" in said
    assert not refused(cluster, "default", manifest)
