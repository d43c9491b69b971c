import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import kindconfig
from cluster.kindconfig import Audit
from cluster.paths import KIND_CONFIG

AUDIT = Audit(Path("/cache with blank/audit"), Path("/cache with blank/audit-policy.yaml"))


def rendered(*, workers: int = 2, audit: Audit | None = None) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(
        kindconfig.render(KIND_CONFIG.read_text(), name="t1", workers=workers, audit=audit)
    )
    return config


def test_the_file_users_give_to_kind_has_one_control_plane_two_workers_and_the_cgroup_patch() -> None:
    config = yaml.safe_load(KIND_CONFIG.read_text())
    assert [node["role"] for node in config["nodes"]] == ["control-plane", "worker", "worker"]
    patch = yaml.safe_load(config["kubeadmConfigPatches"][0])
    assert (patch["kind"], patch["failCgroupV1"]) == ("KubeletConfiguration", False)


def test_only_the_name_changes_by_default() -> None:
    assert rendered() == yaml.safe_load(KIND_CONFIG.read_text()) | {"name": "t1"}


@pytest.mark.parametrize("workers", [0, 1, 5])
def test_the_number_of_workers_is_configurable(workers: int) -> None:
    roles = [node["role"] for node in rendered(workers=workers)["nodes"]]
    assert roles == ["control-plane"] + ["worker"] * workers


def test_the_audit_log_is_mounted_from_the_host() -> None:
    config = rendered(audit=AUDIT)
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in config["nodes"][0]["extraMounts"]}
    assert mounts == {
        kindconfig.AUDIT_FOLDER: str(AUDIT.folder),
        kindconfig.AUDIT_POLICY: str(AUDIT.policy),
    }
    assert "extraMounts" not in config["nodes"][1]
    (patch,) = config["kubeadmConfigPatchesJSON6902"]
    operations = yaml.safe_load(patch["patch"])
    arguments = {o["value"]["name"]: o["value"]["value"] for o in operations if o["path"].endswith("/-")}
    assert arguments["audit-log-path"] == kindconfig.AUDIT_LOG
    assert arguments["audit-policy-file"] == kindconfig.AUDIT_POLICY
    (volumes,) = [o["value"] for o in operations if o["path"] == "/apiServer/extraVolumes"]
    assert {v["hostPath"]: v["readOnly"] for v in volumes} == {
        kindconfig.AUDIT_FOLDER: False,
        kindconfig.AUDIT_POLICY: True,
    }


def test_audit_adds_to_the_patches_of_the_file() -> None:
    assert rendered(audit=AUDIT)["kubeadmConfigPatches"] == rendered()["kubeadmConfigPatches"]


def test_kubelet_and_containerd_do_not_use_systemd_cgroups_on_cgroup_v1() -> None:
    text = kindconfig.render(KIND_CONFIG.read_text(), name="t1", workers=2, audit=AUDIT, cgroup_v2=False)
    config = yaml.safe_load(text)
    patches = [yaml.safe_load(patch) for patch in config["kubeadmConfigPatches"]]
    assert [patch.get("cgroupDriver") for patch in patches] == [None, "cgroupfs"]
    (patch,) = [tomllib.loads(patch) for patch in config["containerdConfigPatches"]]
    runtimes = patch["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
    assert {runtime["options"]["SystemdCgroup"] for runtime in runtimes.values()} == {False}
    assert len(config["kubeadmConfigPatchesJSON6902"]) == 1


def test_the_policy_logs_each_write_once_and_no_read() -> None:
    policy = yaml.safe_load(kindconfig.AUDIT_POLICY_TEXT)
    writes, rest = policy["rules"]
    assert writes["level"] == "Metadata"
    assert set(writes["verbs"]) >= {"create", "update", "patch", "delete"}
    assert not {"get", "list", "watch"} & set(writes["verbs"])
    assert rest == {"level": "None"}
    assert "ResponseComplete" not in policy["omitStages"]
