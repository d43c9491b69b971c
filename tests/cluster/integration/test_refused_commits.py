"""A request that the API server does not allow a run to record is rejected, and the run continues."""

import json
from typing import Any

import pytest

from support.cluster.namespace import Cluster

pytestmark = pytest.mark.cluster

WAITS = [
    {"name": "first", "waitForSignal": {"name": "first"}},
    {"name": "second", "waitForSignal": {"name": "second"}},
]


def against(namespace: str) -> list[dict[str, Any]]:
    """A policy that prevents runs of a namespace from recording a signal `poison`."""
    name = f"no-poison-{namespace}"
    about = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    rule = {
        "apiGroups": ["perdure.dev"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["workflowruns/status"],
    }
    clean = "!has(object.status.pendingSignals) || !object.status.pendingSignals.exists(s, s.name == 'poison')"
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return [
        {
            **about,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
                "validations": [{"expression": clean, "message": "no poison"}],
            },
        },
        {
            **about,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def ask(name: str, signal: str) -> dict[str, Any]:
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Operation",
        "metadata": {"name": name},
        "spec": {"target": {"kind": "WorkflowRun", "name": "order"}, "signal": {"name": signal}},
    }


def test_only_the_request_that_cannot_be_recorded_is_rejected(namespace: Cluster) -> None:
    policy = against(namespace.namespace)
    namespace.apply(*policy)
    try:
        namespace.start("order", {"inline": {"steps": WAITS}})
        namespace.condition("workflowrun", "order", "Running")
        poisoned = {"status": {"pendingSignals": [{"name": "poison", "receivedTime": "2026-01-01T00:00:00Z"}]}}
        patch = ["patch", "wfr", "order", "--subresource=status", "--type=merge", "--dry-run=server"]

        def holds() -> bool:
            tried = namespace.run(*patch, "-p", json.dumps(poisoned))
            return "no poison" in tried.stderr

        namespace.wait("the policy to hold", holds)
        namespace.apply(ask("poison", "poison"))
        assert "no poison" in namespace.condition("operation", "poison", "InvalidInput")["message"]
        namespace.apply(ask("first", "first"), ask("poison-too", "poison"), ask("second", "second"))
        namespace.condition("operation", "poison-too", "InvalidInput")
        namespace.condition("operation", "first", "Done")
        namespace.condition("operation", "second", "Done")
        assert namespace.closed("order")["phase"] == "Completed"
    finally:
        for each in policy:
            namespace.delete(each["kind"], each["metadata"]["name"])
