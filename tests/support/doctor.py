"""`perdure doctor`, and the objects of a cluster in which it finds nothing wrong."""

import json
from datetime import timedelta
from typing import Any

from click.testing import Result

from perdure import __version__
from perdure.controller.fleet.membership import MemberSettings, lease, renewal
from perdure.controller.state_versions import StateVersions
from perdure.kube import clock
from perdure.kube.paths import PLURALS
from perdure.runtime.upgrades import UpgradeRecord
from support.apiserver import ApiServer, items
from support.cli import perdure

OURS = "/apis/perdure.dev/v1alpha1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
DEPLOYMENTS = "/apis/apps/v1/namespaces/perdure-system/deployments"
PODS = "/api/v1/namespaces/perdure-system/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/perdure-system/leases"
RECORDS = "/api/v1/namespaces/perdure-system/configmaps"
IN_SHOP = f"{OURS}/namespaces/shop"

Json = dict[str, Any]


def run(*arguments: str) -> Result:
    return perdure("doctor", *arguments)


def findings(*arguments: str) -> dict[str, Json]:
    done = run("--output", "json", *arguments)
    found = json.loads(done.stdout)
    assert done.exit_code == any(each["result"] == "Failed" for each in found), done.output
    return {each["check"]: each for each in found}


def member(name: str, *members: str, ago: float = 0, release: str = __version__) -> Json:
    settings = MemberSettings(fleet="perdure", name=name)
    time = clock.now() - timedelta(seconds=ago)
    versions = StateVersions(2, 2, release)
    made = lease(settings, name, versions, time)
    renewed = renewal(settings, name, "1", members, versions, time)
    made["metadata"]["annotations"] = renewed["metadata"]["annotations"]
    return made


def deployment(*, ready: int = 2, wanted: int = 2, version: str = __version__, **environment: str) -> Json:
    labels = {"app.kubernetes.io/instance": "perdure", "app.kubernetes.io/version": version}
    variables = {"PERDURE_NAMESPACE": "", "PERDURE_FLEET": "perdure", **environment}
    container = {"name": "operator", "env": [{"name": key, "value": value} for key, value in variables.items()]}
    return {
        "metadata": {"name": "perdure", "namespace": "perdure-system", "labels": labels},
        "spec": {
            "replicas": wanted,
            "selector": {"matchLabels": {"app.kubernetes.io/name": "perdure"}},
            "template": {"spec": {"serviceAccountName": "perdure", "containers": [container]}},
        },
        "status": {"readyReplicas": ready},
    }


def crd(kind: str, version: str = __version__) -> Json:
    return {"metadata": {"name": f"{kind}.perdure.dev", "labels": {"app.kubernetes.io/version": version}}}


def policy(name: str, *actions: str) -> tuple[Json, Json]:
    spec = {"policyName": name, "validationActions": list(actions)}
    return {"metadata": {"name": name}}, {"metadata": {"name": name}, "spec": spec}


def make_healthy(server: ApiServer) -> ApiServer:
    """Have a server answer as a cluster in which everything works."""
    names = [*PLURALS, *(f"{kind}/status" for kind in PLURALS)]
    fence, binding = policy("perdure-runs", "Deny")
    server.answers |= {
        "/version": {"major": "1", "minor": "34+", "gitVersion": "v1.34.1"},
        OURS: {"resources": [{"name": name} for name in names]},
        CRDS: items(*map(crd, PLURALS)),
        POLICIES: items(fence),
        BINDINGS: items(binding),
        DEPLOYMENTS: items(deployment()),
        PODS: items(),
        RECORDS: items(UpgradeRecord(writes=2).config_map("perdure-state-version")),
        LEASES: lambda: items(member("op-1", "op-1", "op-2"), member("op-2", "op-1", "op-2")),
        "/api/v1/namespaces/shop/pods": items(),
        **{f"{IN_SHOP}/{kind}": items() for kind in PLURALS},
    }
    return server
