"""Permissions: the roles of the chart, as installed, checked by impersonating the users that they are bound to."""

from typing import Any

import pytest
import yaml

from perdure.kube.paths import PLURALS, WATCHED
from support.cluster.namespace import Cluster, run_manifest

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
WAITS = {"workflow": {"name": "not-there"}}
READ = {f"{verb} {kind}" for kind in PLURALS for verb in ("get", "list", "watch")}
CHANGE = {f"{verb} {kind}" for kind in WATCHED for verb in ("create", "update", "patch", "delete", "deletecollection")}
DISCARD = {f"{verb} {kind}" for kind in ("deadletters", "cachedresults") for verb in ("delete", "deletecollection")}
MAY = {
    "view": READ,
    "perdure-on-call": READ | {"create operations", "delete operations"},
    "edit": READ | CHANGE | DISCARD,
}
STATUS = {f"{verb} {kind}/status" for kind in PLURALS for verb in ("update", "patch")}


def operation(**request: Json) -> Json:
    spec = {"target": {"kind": "WorkflowRun", "name": "order"}, **request}
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "Operation", "metadata": {"generateName": "a-"}, "spec": spec}


@pytest.mark.parametrize("role", MAY)
def test_each_role_has_exactly_its_permissions(namespace: Cluster, role: str) -> None:
    namespace("create", "rolebinding", "who", f"--clusterrole={role}", "--user=ada")
    asked = {f"{verb} {kind}" for kind in PLURALS for verb in ("get", "list", "watch", "create", "update", "patch")}
    asked |= {f"{verb} {kind}" for kind in PLURALS for verb in ("delete", "deletecollection")} | STATUS
    rules = namespace("auth", "can-i", "--list", "--as=ada", "--no-headers").splitlines()
    granted: set[str] = set()
    for rule in rules:
        resource, _, rest = rule.partition(".perdure.dev")
        if rest:
            resource += rest.split()[0] if rest.startswith("/") else ""
            granted |= {f"{verb} {resource}" for verb in rule.rpartition("[")[2].rstrip("] ").split()}
    assert granted & asked == MAY[role]
    # The review of the API server, for some of each.
    for one in ("create operations", "create workflowruns", "get workflows", "patch workflowruns/status"):
        verb, _, resource = one.partition(" ")
        qualified = f"{resource.partition('/')[0]}.perdure.dev"
        subresource = [f"--subresource={resource.partition('/')[2]}"] if "/" in resource else []
        done = namespace.run("auth", "can-i", verb, qualified, *subresource, "--as=ada")
        assert done.stdout.strip() == ("yes" if one in MAY[role] else "no"), one


def test_the_on_call_role_can_operate_on_runs_and_change_nothing_else(namespace: Cluster) -> None:
    namespace("create", "rolebinding", "who", "--clusterrole=perdure-on-call", "--user=ada")
    namespace("create", "rolebinding", "reader", "--clusterrole=view", "--user=bob")
    signal = {"name": "go", "waitForSignal": {"name": "go"}}
    namespace.start("order", {"inline": {"steps": [signal]}})
    for request in ({"pause": {}}, {"unpause": {}}, {"signal": {"name": "go"}}):
        asked = yaml.safe_dump(operation(**request))
        assert "is forbidden" in namespace.run("create", "--as=bob", "-f", "-", stdin=asked).stderr
        namespace("create", "--as=ada", "-f", "-", stdin=asked)
    assert namespace.closed("order")["phase"] == "Completed"
    for forbidden in (
        ["create", "-f", "-"],
        ["delete", "wfr", "order"],
        ["label", "wfr", "order", "a=b"],
        ["patch", "wfr", "order", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Failed"}}'],
        ["get", "secrets"],
    ):
        body = yaml.safe_dump(run_manifest("mine", WAITS)) if forbidden[0] == "create" else None
        done = namespace.run(*forbidden, "--as=ada", stdin=body)
        assert done.returncode, forbidden
        assert "forbidden" in done.stderr.lower(), done.stderr
