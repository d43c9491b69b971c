"""Only the operator can create pods and Leases of activities: the policy of the chart, as installed.

The callers are impersonated: an editor of the namespace, who may create and change pods there, and the operator.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from perdure.api import labels
from support.cluster.namespace import IMAGE, Cluster, one_step, python

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
EDITOR = "--as=editor"
OPERATOR = "--as=system:serviceaccount:perdure-system:perdure"
RUN_ID = "0b7d1b5e-0000-4000-8000-000000000000"
OURS = {labels.RUN_ID_LABEL: RUN_ID}
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SECURITY = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.fixture
def scene(namespace: Cluster) -> Iterator[Cluster]:
    """A namespace with an editor."""
    namespace("create", "rolebinding", "editor", "--clusterrole=edit", "--user=editor")
    return namespace


def pod(name: str, marks: Json, **metadata: Any) -> Json:
    """A pod that is never scheduled."""
    container = {"name": "activity", "image": "none", "securityContext": RESTRICTED}
    spec = {"schedulerName": "nobody", "containers": [container], "securityContext": SECURITY}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": marks, **metadata}, "spec": spec}


def create(scene: Cluster, who: str, manifest: Json) -> str:
    """Create an object as a user, and return the error, if any."""
    done = scene.run("create", who, "-f", "-", stdin=yaml.safe_dump(manifest))
    return done.stderr if done.returncode else ""


def patch(scene: Cluster, who: str, name: str, change: Json) -> str:
    """Patch a pod as a user, and return the error, if any."""
    done = scene.run("patch", who, "pod", name, "-p", json.dumps(change))
    return done.stderr if done.returncode else ""


def test_only_the_operator_creates_pods_with_its_label(scene: Cluster) -> None:
    assert "must not create a Pod with the label perdure.dev/run-id" in create(scene, EDITOR, pod("forged", OURS))
    assert not create(scene, EDITOR, pod("plain", {"app": "shop"}))
    assert not create(scene, OPERATOR, pod("attempt", OURS))


def test_only_the_operator_creates_pods_that_delete_artifacts(scene: Cluster) -> None:
    """Its message says which artifacts are gone: a forged one would make the operator forget artifacts that exist."""
    store = {labels.ARTIFACT_STORE_LABEL: "perdure-artifacts"}
    found = create(scene, EDITOR, pod("forged", store))
    assert "must not create a Pod with the label perdure.dev/artifact-store" in found
    assert not create(scene, OPERATOR, pod("deletion", store))


def test_users_cannot_add_the_label_or_change_the_identity_of_a_pod(scene: Cluster) -> None:
    notes = {labels.ATTEMPT_ANNOTATION: "1", labels.SCHEDULED_EVENT_ANNOTATION: "2"}
    assert not create(scene, EDITOR, pod("plain", {}, annotations=notes))
    assert not create(scene, OPERATOR, pod("attempt", OURS, annotations=notes))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "plain", "uid": RUN_ID}
    refused = {
        "plain": [{"metadata": {"labels": OURS}}],
        "attempt": [
            {"metadata": {"labels": {labels.RUN_ID_LABEL: "another"}}},
            {"metadata": {"labels": {labels.RUN_ID_LABEL: None}}},
            {"metadata": {"annotations": {labels.ATTEMPT_ANNOTATION: "2"}}},
            {"metadata": {"annotations": {labels.ATTEMPT_ANNOTATION: None}}},
            {"metadata": {"annotations": {labels.INPUT_ANNOTATION: "1"}}},
            {"metadata": {"ownerReferences": [owner]}},
            {"spec": {"containers": [{"name": "activity", "image": "forged"}]}},
        ],
    }
    for name, changes in refused.items():
        for change in changes:
            assert "perdure-pods" in patch(scene, EDITOR, name, change), change
    allowed = {"metadata": {"labels": {"app": "shop"}, "annotations": {"note": "mine"}, "finalizers": None}}
    assert not patch(scene, EDITOR, "attempt", allowed)
    scene("delete", EDITOR, "pod", "attempt", "plain", "--grace-period=0", "--force")


def test_controllers_cannot_create_pods_with_the_label_for_users(scene: Cluster) -> None:
    template = pod("", OURS)
    del template["apiVersion"], template["kind"], template["metadata"]["name"]
    spec = {"selector": {"matchLabels": OURS}, "serviceName": "none", "template": template}
    stateful = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "order-2"}, "spec": spec}
    assert not create(scene, EDITOR, stateful)

    def refused() -> list[Json]:
        return [e for e in scene.list("events") if e["reason"] == "FailedCreate" and "perdure-pods" in e["message"]]

    scene.wait("the controller to be refused", refused)
    assert not scene.list("pods")


def test_only_the_operator_creates_leases_with_its_label(scene: Cluster) -> None:
    def lease(name: str, marks: Json) -> Json:
        metadata = {"name": name, "labels": marks}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}

    assert "must not create a Lease" in create(scene, EDITOR, lease("forged", OURS))
    assert not create(scene, EDITOR, lease("plain", {}))
    assert not create(scene, OPERATOR, lease("attempt", OURS))


def test_a_forged_pod_with_the_name_of_the_next_attempt_is_not_adopted(scene: Cluster) -> None:
    once = "import time\nif activity.info().attempt == 1:\n    time.sleep(5)\n    raise SystemExit(1)\nactivity.complete('real')"
    scene.start("order", one_step(python(once)))
    mine = scene.pod("order-2-1", "Running")["metadata"]
    notes = mine["annotations"] | {labels.ATTEMPT_ANNOTATION: "2"}
    forged = pod("order-2-2", {}, annotations=notes, ownerReferences=mine["ownerReferences"])
    del forged["spec"]["schedulerName"]
    program = "open('/dev/termination-log', 'w').write('\"forged\"')"
    forged["spec"] |= {"restartPolicy": "Never"}
    forged["spec"]["containers"][0] |= {"image": IMAGE, "command": ["python", "-c", program]}
    assert not create(scene, EDITOR, forged)

    def reported() -> list[str]:
        events = scene.list("events.v1.events.k8s.io")
        return [e["note"] for e in events if e["regarding"]["name"] == "order" and e["reason"] == "PodRefused"]

    scene.wait("an Event with the conflict", reported)
    assert "was not created by Perdure" in reported()[0]
    assert scene.pod("order-2-2", "Succeeded")
    scene("delete", EDITOR, "pod", "order-2-2")
    assert scene.closed("order")["output"] == "real"
