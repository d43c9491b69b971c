"""Only users who may create pods write definitions: the policies of the chart, as installed and with inlineDefinitions: Deny.

The callers are impersonated: an editor, who may create pods; a Temporal client, who may write through the frontend only; a user
who may do anything with Perdure's kinds and nothing else; and the operator.
"""

import json
import secrets
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from perdure.api import labels
from perdure.api.labels import API_VERSION
from support.cluster.namespace import SYSTEM, Cluster, helm_program, run_manifest
from support.manuals import REPOSITORY

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
EDITOR, CLIENT, OWNER = "--as=editor", "--as=client", "--as=owner"
OPERATOR = f"--as=system:serviceaccount:{SYSTEM}:perdure"
STEPS: Json = {"steps": [{"name": "rest", "sleep": {"duration": "1s"}}]}
OTHER: Json = {"steps": [{"name": "rest", "sleep": {"duration": "2s"}}]}
ACTIVITY = {
    "name": "steal",
    "startToCloseTimeout": "1m",
    "podTemplate": {"spec": {"serviceAccountName": "admin", "containers": [{"name": "main", "image": "steal"}]}},
}


def manifest(kind: str, name: str, spec: Json, **metadata: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def schedule(name: str, **run: Json) -> Json:
    return manifest("Schedule", name, {"paused": True, "workflowRunTemplate": {"spec": run}})


LETTER = manifest(
    "DeadLetter",
    "letter",
    {
        "workflowRun": {"name": "order", "workflowId": "order", "runId": "0b1c"},
        "step": "hotel",
        "activity": "steal",
        "definition": ACTIVITY,
        "failure": {"type": "NoRoom"},
        "attempts": 1,
        "failedTime": "2026-01-02T00:00:00Z",
    },
)
DEFINITIONS = {
    "spec.inline": run_manifest("written", {"inline": STEPS | {"activities": [ACTIVITY]}}),
    "spec": manifest("Workflow", "written", STEPS),
    "spec.workflowRunTemplate.spec.inline": schedule("written", inline=STEPS),
    "spec.definition": LETTER,
}


REVISION = manifest(
    "WorkflowRevision", "written-0b1c", {"workflow": "written", "definition": STEPS, "hash": f"sha256:{'0b1c' * 16}"}
)


@pytest.fixture
def scene(namespace: Cluster) -> Cluster:
    """A namespace with an editor, a Temporal client, and an owner of Perdure's kinds."""
    namespace("create", "rolebinding", "editor", "--clusterrole=edit", "--user=editor")
    namespace("create", "rolebinding", "client", "--clusterrole=perdure-temporal-client", "--user=client")
    rules = [{"apiGroups": ["perdure.dev"], "resources": ["*"], "verbs": ["*"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "owner"}, "rules": rules}
    namespace.apply(role)
    namespace("create", "rolebinding", "owner", "--role=owner", "--user=owner")
    return namespace


def create(scene: Cluster, who: str, obj: Json, *flags: str) -> str:
    """Create an object as someone; the refusal, or nothing."""
    done = scene.run("create", who, *flags, "-f", "-", stdin=yaml.safe_dump(obj))
    return done.stderr if done.returncode else ""


def patch(scene: Cluster, who: str, kind: str, change: Json, *flags: str) -> str:
    """Patch the object `written` as someone; the refusal, or nothing."""
    done = scene.run("patch", who, kind, "written", "--type=merge", *flags, "-p", json.dumps(change))
    return done.stderr if done.returncode else ""


def test_writing_a_definition_requires_permission_to_create_pods(scene: Cluster) -> None:
    for where, obj in DEFINITIONS.items():
        refused = create(scene, OWNER, obj)
        assert "perdure-definitions" in refused, where
        assert f'{where}: "owner" must be allowed to create pods in namespace "{scene.namespace}"' in refused
    for where, obj in DEFINITIONS.items():
        assert 'User "client" cannot create resource' in create(scene, CLIENT, obj), where
    for where in ("spec.inline", "spec", "spec.workflowRunTemplate.spec.inline"):
        assert not create(scene, EDITOR, DEFINITIONS[where], "--dry-run=server"), where
    assert not create(scene, OPERATOR, LETTER)
    refused = create(scene, OWNER, REVISION)
    assert f'spec.definition: "owner" must be allowed to create pods in namespace "{scene.namespace}"' in refused
    assert 'User "editor" cannot create resource' in create(scene, EDITOR, REVISION)
    assert not create(scene, OPERATOR, REVISION)
    changed = {"spec": {"definition": OTHER}}
    assert (
        "`spec` must not change"
        in scene.run(
            "patch", OPERATOR, "workflowrevision", "written-0b1c", "--type=merge", "-p", json.dumps(changed)
        ).stderr
    )
    assert not create(scene, OPERATOR, DEFINITIONS["spec.inline"])
    by_name = {"workflow": {"name": "written"}}
    assert not create(scene, OWNER, run_manifest("by-name", by_name))
    assert not create(scene, OWNER, schedule("by-name", **by_name))
    # A start by an Operation cannot contain a definition: the API server does not know the field.
    start = {"workflow": {"name": "written"}, "inline": STEPS}
    asked = {"target": {"kind": "WorkflowRun", "workflowId": "a"}, "signalWithStart": {"name": "go", "start": start}}
    refused = create(scene, OWNER, manifest("Operation", "smuggled", asked))
    assert 'unknown field "spec.signalWithStart.start.inline"' in refused


def test_running_a_workflow_of_another_namespace_requires_permission_to_create_pods(scene: Cluster) -> None:
    foreign: Json = {"workflow": {"name": "tools/report"}}
    for obj in (run_manifest("foreign", foreign), schedule("foreign", **foreign)):
        refused = create(scene, OWNER, obj)
        may_not = (
            f'"owner" must be allowed to create pods in namespace "{scene.namespace}" to run Workflow "tools/report"'
        )
        assert may_not in refused
        assert not create(scene, EDITOR, obj, "--dry-run=server")
    own = {"workflow": {"name": f"{scene.namespace}/report"}}
    assert not create(scene, OWNER, run_manifest("own", own), "--dry-run=server")


def test_writing_a_claim_template_requires_permission_to_create_claims(scene: Cluster) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    scene.apply(
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "pods"}, "rules": rules}
    )
    scene("create", "rolebinding", "pods", "--role=pods", "--user=owner")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"name": "files", "volumeClaimTemplate": {"spec": claim}}
    existing = {"name": "files", "persistentVolumeClaim": {"claimName": "mine"}}
    for where, obj in (
        ("spec.inline", run_manifest("claims", {"inline": STEPS | {"workspaces": [template]}})),
        ("spec", manifest("Workflow", "claims", STEPS | {"workspaces": [template]})),
        ("spec.workflowRunTemplate.spec.inline", schedule("claims", inline=STEPS | {"workspaces": [template]})),
    ):
        refused = create(scene, OWNER, obj)
        assert f'{where}.workspaces: "owner" must be allowed to create PersistentVolumeClaims' in refused
        assert not create(scene, EDITOR, obj, "--dry-run=server"), where
    assert not create(scene, OWNER, manifest("Workflow", "written", STEPS | {"workspaces": [existing]}))
    assert "PersistentVolumeClaims" in patch(scene, OWNER, "workflow", {"spec": {"workspaces": [template]}})
    assert not create(scene, OWNER, run_manifest("written", {"workflow": {"name": "none"}}))
    with_claim = STEPS | {"workspaces": [template]}
    for forged in (with_claim, json.dumps(with_claim)):
        refused = patch(scene, OWNER, "workflowrun", {"status": {"definition": forged}}, "--subresource=status")
        assert 'status.definition.workspaces: "owner" must be allowed to create PersistentVolumeClaims' in refused


def test_changing_a_definition_requires_permission_to_write_it(scene: Cluster) -> None:
    for where in ("spec", "spec.workflowRunTemplate.spec.inline"):
        assert not create(scene, EDITOR, DEFINITIONS[where])
    other = {"spec": {"workflowRunTemplate": {"spec": {"inline": OTHER}}}}
    assert "perdure-definitions" in patch(scene, OWNER, "workflow", {"spec": OTHER})
    assert "perdure-definitions" in patch(scene, OWNER, "schedule", other)
    # The rest of the object is theirs, as RBAC says.
    marked = {"metadata": {"labels": {"team": "shop"}}}
    for who in (OWNER, EDITOR):
        assert not patch(scene, who, "workflow", marked)
        assert not patch(scene, who, "schedule", marked | {"spec": {"notes": f"seen by {who[5:]}"}})
    assert not patch(scene, EDITOR, "workflow", {"spec": OTHER})
    assert not patch(scene, EDITOR, "schedule", other)
    # A definition can be removed: the owner refers to a Workflow instead.
    named = {"spec": {"workflowRunTemplate": {"spec": {"inline": None, "workflow": {"name": "written"}}}}}
    assert not patch(scene, OWNER, "schedule", named)
    assert "perdure-definitions" in patch(
        scene, OWNER, "schedule", {"spec": {"workflowRunTemplate": {"spec": {"inline": STEPS, "workflow": None}}}}
    )


def test_users_cannot_write_a_definition_to_a_status(scene: Cluster) -> None:
    assert not create(scene, OWNER, run_manifest("written", {"workflow": {"name": "none"}}))
    for forged in (json.dumps(STEPS), STEPS):
        change = {"status": {"definition": forged}}
        assert "status.definition" in patch(scene, OWNER, "workflowrun", change, "--subresource=status")


# --- definitionFence.inlineDefinitions: Deny --------------------------------------------------------------------------


@pytest.fixture
def strict(scene: Cluster) -> Iterator[Cluster]:
    """The scene, with inline definitions denied there."""
    release = f"strict-{secrets.token_hex(3)}"
    values = {
        "watchNamespaces": [scene.namespace],
        "definitionFence": {"inlineDefinitions": "Deny"},
        "serviceAccount": {"name": "perdure"},
    }
    flags = [part for name, value in values.items() for part in ("--set-json", f"{name}={json.dumps(value)}")]
    chart = str(REPOSITORY / "charts" / "perdure")
    command = [helm_program(), "template", release, chart, "--namespace", SYSTEM, *flags]
    only = ["--show-only", "templates/definitionfence.yaml"]
    rendered = subprocess.run([*command, *only], capture_output=True, text=True, timeout=60, check=True).stdout
    assert not create(scene, EDITOR, schedule("before", inline=STEPS))
    scene("apply", "-f", "-", stdin=rendered)
    try:
        # An API server takes a moment to apply a policy.
        scene.wait("the policy", lambda: create(scene, EDITOR, DEFINITIONS["spec.inline"], "--dry-run=server"))
        yield scene
    finally:
        scene("delete", "-f", "-", stdin=rendered)


def test_inline_definitions_can_be_denied(strict: Cluster) -> None:
    said = "inline definitions are disabled in this cluster"
    for who in (EDITOR, "--v=0", OPERATOR):  # `--v=0`: the administrator that runs the tests
        for where in ("spec.inline", "spec.workflowRunTemplate.spec.inline"):
            assert f"{where}: {said}" in create(strict, who, DEFINITIONS[where]), (who, where)
    assert not create(strict, EDITOR, DEFINITIONS["spec"])
    by_name = {"workflow": {"name": "written"}}
    assert not create(strict, EDITOR, run_manifest("by-name", by_name))
    assert not create(strict, EDITOR, schedule("by-name", **by_name))
    # A run admitted earlier can be paused, but its definition must not change.
    before = ("patch", EDITOR, "schedule", "before", "--type=merge", "-p")
    strict(*before, json.dumps({"spec": {"notes": "to be replaced"}}))
    change = json.dumps({"spec": {"workflowRunTemplate": {"spec": {"inline": OTHER}}}})
    assert said in strict.run(*before, change).stderr
    # Runs that follow others that were admitted.
    for key in (labels.CONTINUES_ANNOTATION, labels.RESET_ANNOTATION, labels.DEAD_LETTER_ANNOTATION):
        follower = run_manifest("follower", {"inline": STEPS})
        follower["metadata"]["annotations"] = {key: "{}"}
        assert not create(strict, OPERATOR, follower, "--dry-run=server"), key
