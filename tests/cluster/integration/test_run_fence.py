"""Only the operator can set relations between runs: the policy of the chart, as installed.

The callers are impersonated: an editor of the namespace, who may create and change runs there, and the operator.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from perdure.api import labels
from support.cluster.namespace import Cluster, run_manifest

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
EDITOR = "--as=editor"
OPERATOR = "--as=system:serviceaccount:perdure-system:perdure"
UID = "0b7d1b5e-0000-4000-8000-000000000000"
WAITS = {"workflow": {"name": "not-there"}}
ANNOTATIONS = [
    {labels.PARENT_ANNOTATION: json.dumps({"name": "a", "workflowId": "a", "runId": UID, "initiatedEventId": 2})},
    {labels.CONTINUES_ANNOTATION: json.dumps({"name": "a", "runId": UID, "firstRunId": UID})},
    {labels.START_SIGNAL_ANNOTATION: json.dumps({"requestId": UID, "signalName": "forged"})},
    {"perdure.dev/reset": "{}"},
]
LABELS = [
    {labels.PARENT_RUN_LABEL: "a"},
    {labels.PARENT_RUN_ID_LABEL: UID},
    {labels.RUN_ID_LABEL: UID},
    {"perdure.dev/schedule": "nightly"},
]


@pytest.fixture
def scene(namespace: Cluster) -> Iterator[Cluster]:
    """A namespace with an editor."""
    namespace("create", "rolebinding", "editor", "--clusterrole=edit", "--user=editor")
    return namespace


def owner(kind: str, uid: str = UID, **more: Any) -> Json:
    return {"apiVersion": labels.API_VERSION, "kind": kind, "name": "nightly", "uid": uid, **more}


def create(scene: Cluster, who: str, name: str, **metadata: Any) -> str:
    """Create a run as a user, and return the error, if any."""
    manifest = run_manifest(name, WAITS)
    manifest["metadata"] |= metadata
    done = scene.run("create", who, "-f", "-", stdin=yaml.safe_dump(manifest))
    return done.stderr if done.returncode else ""


def patch(scene: Cluster, who: str, name: str, **metadata: Any) -> str:
    """Patch a run as a user, and return the error, if any."""
    done = scene.run("patch", who, "wfr", name, "--type=merge", "-p", json.dumps({"metadata": metadata}))
    return done.stderr if done.returncode else ""


def test_only_the_operator_creates_runs_with_relations(scene: Cluster) -> None:
    for forged in ANNOTATIONS:
        assert "perdure-runs" in create(scene, EDITOR, "forged", annotations=forged), forged
    for forged in LABELS:
        assert "perdure-runs" in create(scene, EDITOR, "forged", labels=forged), forged
    plain = {"labels": {"app": "shop", "search.perdure.dev/customer": "ada"}, "annotations": {"note": "mine"}}
    assert not create(scene, EDITOR, "plain", **plain)
    assert not create(scene, OPERATOR, "child", annotations=ANNOTATIONS[0], labels=LABELS[0])


def test_users_cannot_add_change_or_remove_relations(scene: Cluster) -> None:
    assert not create(scene, EDITOR, "plain")
    assert not create(scene, OPERATOR, "child", annotations=ANNOTATIONS[0], labels=LABELS[0])
    for forged in ANNOTATIONS:
        assert "must not set, change or remove" in patch(scene, EDITOR, "plain", annotations=forged), forged
    for forged in LABELS:
        assert "perdure-runs" in patch(scene, EDITOR, "plain", labels=forged), forged
    (key,), (label,) = ANNOTATIONS[0], LABELS[0]
    assert "perdure-runs" in patch(scene, EDITOR, "child", annotations={key: "{}"})
    assert "perdure-runs" in patch(scene, EDITOR, "child", annotations={key: None})
    assert "perdure-runs" in patch(scene, EDITOR, "child", labels={label: "b"})
    assert "perdure-runs" in patch(scene, EDITOR, "child", labels={label: None})
    assert not patch(scene, EDITOR, "child", labels={"app": "shop"}, annotations={"note": "mine"})
    assert not patch(scene, OPERATOR, "child", labels={label: "b"})
    scene("delete", EDITOR, "wfr", "plain", "child")


def owners(scene: Cluster) -> Json:
    """A Schedule and a Workflow that exist: the garbage collector deletes objects whose owners are missing."""
    template = {"workflowRunTemplate": {"spec": WAITS}, "paused": True}
    specs: Json = {"Schedule": template, "Workflow": {"steps": [{"name": "rest", "sleep": {"duration": "1s"}}]}}
    made: Json = {}
    for kind, spec in specs.items():
        scene.apply({"apiVersion": labels.API_VERSION, "kind": kind, "metadata": {"name": "nightly"}, "spec": spec})
        found = scene.get(kind, "nightly")
        assert found is not None
        made[kind] = owner(kind, found["metadata"]["uid"])
    return made


def test_only_the_operator_sets_a_schedule_run_or_dead_letter_as_owner(scene: Cluster) -> None:
    there = owners(scene)
    free, schedule = [there["Workflow"], owner("Other") | {"apiVersion": "example.com/v1"}], there["Schedule"]
    for kind in ("Schedule", "WorkflowRun", "DeadLetter"):
        for forged in (schedule | {"kind": kind}, schedule | {"kind": kind, "controller": True}):
            said = create(scene, EDITOR, "forged", ownerReferences=[free[0], forged])
            assert "perdure-runs" in said, forged
            assert 'metadata.ownerReferences: "editor" must not set' in said
    assert not create(scene, EDITOR, "plain", ownerReferences=free)
    assert "perdure-runs" in patch(scene, EDITOR, "plain", ownerReferences=[*free, schedule])
    assert not patch(scene, EDITOR, "plain", ownerReferences=free[:1])
    assert not create(scene, OPERATOR, "own", ownerReferences=[schedule | {"controller": True}])
    for change in ([], [schedule], [schedule | {"controller": True, "uid": UID}]):
        assert "perdure-runs" in patch(scene, EDITOR, "own", ownerReferences=change), change
    assert not patch(scene, EDITOR, "own", labels={"app": "shop"})


def test_runs_of_a_deleted_schedule_can_be_orphaned(scene: Cluster) -> None:
    """The garbage collector removes their owner references, which others must not."""
    owned = owners(scene)["Schedule"] | {"controller": True, "blockOwnerDeletion": True}
    assert not create(scene, OPERATOR, "own", ownerReferences=[owned])
    scene("delete", EDITOR, "schedule", "nightly", "--cascade=orphan")

    def left() -> bool:
        run = scene.get("workflowrun", "own")
        assert run is not None, "the run was deleted with the Schedule"
        return not run["metadata"].get("ownerReferences")

    scene.wait("the run to be left alone", left)
