"""Workspaces: the claim of a run, and the pod of an activity that mounts volumes."""

from typing import Any

import pytest

from perdure.api.kinds.workflow import Activity
from perdure.api.kinds.workspace import Workspace
from perdure.api.names import claim_name
from perdure.runtime.attempts import PodSettings, RunRef
from perdure.runtime.pods.builder import build_pod
from perdure.runtime.pods.workspaces import (
    Volume,
    build_claim,
    ephemeral_volume,
    is_deleted_after,
    volume_of,
    with_volumes,
)

ORIGINAL = ("order-42", "11111111-2222-3333-4444-555555555555")
ONCE: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CLAIM = "claim.perdure.dev/files-1"


def workspace(**fields: Any) -> Workspace:
    return Workspace.parse({"name": "files", **(fields or {"volumeClaimTemplate": {"spec": ONCE}})})


def claim(*modes: str, name: str = "files-1") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"accessModes": list(modes)}}


def spec_of(
    make: Any, definition: Activity, volumes: dict[str, Volume], settings: PodSettings | None = None
) -> dict[str, Any]:
    settings = settings or PodSettings()
    mounted = with_volumes(definition, volumes, settings.run_as_user)
    return build_pod(make.run, make.attempt, mounted, settings)


def test_a_claim_is_owned_by_its_run_and_follows_the_template(make: Any) -> None:
    claim_template = {
        "metadata": {"labels": {"team": "shop", "perdure.dev/run-id": "mine"}, "annotations": {"a": "b"}},
        "spec": {**ONCE, "storageClassName": "fast"},
    }
    made = build_claim(make.run, ORIGINAL, workspace(volumeClaimTemplate=claim_template))
    assert made["spec"] == claim_template["spec"]
    assert made["metadata"] == {
        "name": claim_name(*ORIGINAL, "files"),
        "namespace": "shop",
        "labels": {
            "team": "shop",
            "perdure.dev/run": "order-42",
            "perdure.dev/run-id": make.run.uid,
            "perdure.dev/workspace": "files",
            "perdure.dev/stays-until": "run-closed",
        },
        "annotations": {"a": "b", "perdure.dev/claim-retention": "Delete/Keep"},
        "ownerReferences": [
            {
                "apiVersion": "perdure.dev/v1alpha1",
                "kind": "WorkflowRun",
                "name": "order-42",
                "uid": make.run.uid,
                "blockOwnerDeletion": False,
            }
        ],
    }


def test_a_reset_run_uses_the_claim_of_the_original_run() -> None:
    reset = RunRef(namespace="shop", name="order-42-reset-h2345a", uid="other", workflow_id="order-42")
    made = build_claim(reset, ORIGINAL, workspace())["metadata"]
    assert made["name"] == claim_name(*ORIGINAL, "files")
    assert (made["labels"]["perdure.dev/run-id"], made["ownerReferences"][0]["uid"]) == ("other", "other")


def test_names_of_claims_are_unique() -> None:
    names = {claim_name("a", "u", "b-c"), claim_name("a-b", "u", "c"), claim_name("a", "v", "b-c")}
    assert len(names) == 3
    assert all(name.startswith("a-b-c-h") for name in names)
    assert len(claim_name("r" * 253, "u", "w" * 50)) == 253


@pytest.mark.parametrize(
    ("retention", "label", "want"),
    [
        ({}, "run-closed", (True, False)),
        ({"onSuccess": "Keep"}, "run-deleted", (False, False)),
        ({"onSuccess": "Keep", "onFailure": "Delete"}, "run-closed", (False, True)),
        ({"onFailure": "Delete"}, "run-closed", (True, True)),
    ],
)
def test_the_retention_of_a_claim_is_recorded_on_it(
    make: Any, retention: dict[str, str], label: str, want: tuple[bool, bool]
) -> None:
    made = build_claim(make.run, ORIGINAL, workspace(volumeClaimTemplate={"spec": ONCE}, retention=retention))
    assert made["metadata"]["labels"]["perdure.dev/stays-until"] == label
    assert (is_deleted_after(made, succeeded=True), is_deleted_after(made, succeeded=False)) == want


def test_a_container_gets_its_volumes_and_the_pod_their_group(make: Any) -> None:
    mounts = [
        {"name": "files"},
        {"name": "files", "mountPath": "/parts", "subPath": "parts/1", "readOnly": True},
        {"name": "scratch", "mountPath": "/tmp"},
    ]
    definition = make.activity(workspaces=mounts)
    scratch = ephemeral_volume(Workspace.parse({"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}))
    assert scratch is not None
    volumes = {"files": volume_of(claim("ReadWriteMany")), "scratch": scratch}
    pod = spec_of(make, definition, volumes)
    spec, main = pod["spec"], pod["spec"]["containers"][0]
    assert (main["name"], main["image"]) == ("activity", "shop/charge:1")
    assert [each for each in spec["volumes"] if each["name"] != "perdure"] == [
        {"name": "workspace-files", "persistentVolumeClaim": {"claimName": "files-1"}},
        {"name": "workspace-scratch", "emptyDir": {"sizeLimit": "1Gi"}},
    ]
    assert [each for each in main["volumeMounts"] if each["name"] != "perdure"] == [
        {"name": "workspace-files", "mountPath": "/workspaces/files"},
        {"name": "workspace-files", "mountPath": "/parts", "subPath": "parts/1", "readOnly": True},
        {"name": "workspace-scratch", "mountPath": "/tmp"},
    ]
    assert spec["securityContext"]["fsGroup"] == main["securityContext"]["runAsUser"] == 65532
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert "affinity" not in spec
    assert pod["metadata"]["labels"][CLAIM] == ""
    assert definition.pod_template is None, "the definition itself is not changed"


def test_settings_of_a_pod_template_are_kept(make: Any) -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
    pod_spec = {
        "securityContext": {"fsGroup": 7, "runAsUser": 5},
        "affinity": {
            "nodeAffinity": {},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        },
        "volumes": [{"name": "own", "emptyDir": {}}],
        "containers": [
            {"name": "main", "image": "i", "volumeMounts": [{"name": "own", "mountPath": "/own"}]},
            {"name": "side", "image": "i", "volumeMounts": [{"name": "workspace-files", "mountPath": "/files"}]},
        ],
    }
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec}
    definition = make.activity(podTemplate=template, workspaces=[{"name": "files"}])
    pod = spec_of(make, definition, {"files": volume_of(claim("ReadWriteOnce"))})
    spec = pod["spec"]
    assert spec["securityContext"]["fsGroup"] == 7
    assert "fsGroupChangePolicy" not in spec["securityContext"]
    assert [each["name"] for each in spec["volumes"]] == ["own", "workspace-files", "perdure"]
    assert [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]] == [
        "/own",
        "/workspaces/files",
        "/perdure",
    ]
    assert spec["containers"][1]["volumeMounts"] == pod_spec["containers"][1]["volumeMounts"]
    assert spec["affinity"] == {
        "nodeAffinity": {},
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                term,
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchExpressions": [{"key": CLAIM, "operator": "Exists"}]},
                },
            ]
        },
    }
    assert {"app", CLAIM} < pod["metadata"]["labels"].keys()


@pytest.mark.parametrize(
    ("modes", "together"),
    [
        (["ReadWriteOnce"], True),
        (["ReadWriteOnce", "ReadOnlyMany"], False),
        (["ReadWriteMany"], False),
        (["ReadWriteOncePod"], False),
    ],
)
def test_pods_are_co_located_only_for_single_node_volumes(modes: list[str], together: bool) -> None:
    assert volume_of(claim(*modes)).one_node is together


def test_no_group_is_set_for_clusters_that_choose_users_and_for_windows(make: Any) -> None:
    volumes = {"files": volume_of(claim("ReadWriteMany"))}
    definition = make.activity(workspaces=[{"name": "files"}])
    pod = spec_of(make, definition, volumes, PodSettings(run_as_user=None))
    assert "fsGroup" not in pod["spec"]["securityContext"]
    windows = {"spec": {"os": {"name": "windows"}, "containers": [{"name": "main", "image": "i"}]}}
    pod = spec_of(make, make.activity(podTemplate=windows, workspaces=[{"name": "files"}]), volumes)
    assert "fsGroup" not in pod["spec"]["securityContext"]


def test_an_activity_without_workspaces_is_unchanged(make: Any) -> None:
    definition = make.activity()
    assert with_volumes(definition, {}, 65532) is definition


def test_a_script_mounts_workspaces(make: Any) -> None:
    parsed = make.activity(
        script={"image": "shell", "source": "ls /data", "args": ["a"]},
        workspaces=[{"name": "data", "mountPath": "/data"}],
    )
    definition = with_volumes(parsed, {"data": Volume(source={"emptyDir": {}})}, 65532)
    pod = build_pod(make.run, make.attempt, definition, PodSettings())
    (container,) = pod["spec"]["containers"]
    assert (container["name"], container["command"], container["args"]) == (
        "activity",
        ["sh", "/perdure/script"],
        ["a"],
    )
    assert {"name": "workspace-data", "mountPath": "/data"} in container["volumeMounts"]
    assert pod["metadata"]["annotations"]["perdure.dev/script"] == "ls /data"
