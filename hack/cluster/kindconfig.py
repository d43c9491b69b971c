"""The configuration for kind: ``kind-config.yaml`` with the requested changes.

The standard library has no YAML parser, and none is needed: ``kind-config.yaml`` is ours,
and only whole top-level blocks are replaced or added.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

AUDIT_FOLDER = "/var/log/kubernetes/audit"
AUDIT_LOG = f"{AUDIT_FOLDER}/audit.log"
AUDIT_POLICY = "/etc/kubernetes/audit-policy.yaml"

AUDIT_POLICY_TEXT = """\
# One line per write request: enough to count writes per user agent.
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
  omitManagedFields: true
- level: None
"""


CGROUP_V1 = """\
- |
  kind: KubeletConfiguration
  apiVersion: kubelet.config.k8s.io/v1beta1
  metadata:
    name: config
  cgroupDriver: cgroupfs
containerdConfigPatches:
- |
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.test-handler.options]
    SystemdCgroup = false
"""
"""On cgroup v1, runc freezes a container while it sets it up through systemd. A busy kernel sometimes fails to freeze it, and the
container ends with "unable to freeze". Without systemd, nothing is frozen (opencontainers/cgroups, systemd/v1.go).
"""


@dataclass(frozen=True, slots=True)
class Audit:
    """Host paths of the API server's audit log and policy."""

    folder: Path
    policy: Path


def has_cgroup_v2() -> bool:
    """Whether this machine, whose kernel the nodes share, has the unified hierarchy."""
    return Path("/sys/fs/cgroup/cgroup.controllers").exists()


def render(base: str, *, name: str, workers: int, audit: Audit | None = None, cgroup_v2: bool = True) -> str:
    """Render the configuration of one cluster."""
    blocks = top_level_blocks(base)
    blocks["name"] = f"name: {name}\n"
    blocks["nodes"] = nodes(workers, audit)
    if not cgroup_v2:
        blocks["kubeadmConfigPatches"] += CGROUP_V1
    if audit:
        blocks["kubeadmConfigPatchesJSON6902"] = audit_patch()
    return "".join(blocks.values())


def top_level_blocks(text: str) -> dict[str, str]:
    """Split a YAML mapping into its top-level keys with their lines."""
    blocks: dict[str, str] = {}
    key = ""
    for line in text.splitlines(keepends=True):
        if match := re.match(r"([A-Za-z][\w.-]*):", line):
            key = match[1]
        blocks[key] = blocks.get(key, "") + line
    return blocks


def nodes(workers: int, audit: Audit | None) -> str:
    """Render the ``nodes`` block: one control plane and its workers."""
    lines = ["nodes:", "- role: control-plane"]
    if audit:
        lines += [
            "  extraMounts:",
            f"  - hostPath: {json.dumps(str(audit.folder))}",
            f"    containerPath: {AUDIT_FOLDER}",
            f"  - hostPath: {json.dumps(str(audit.policy))}",
            f"    containerPath: {AUDIT_POLICY}",
            "    readOnly: true",
        ]
    lines += ["- role: worker"] * workers
    return "\n".join(lines) + "\n"


def audit_patch() -> str:
    """Render the patch that turns the audit log on.

    A JSON patch, because extraArgs is a list since kubeadm's v1beta4: a merge patch would
    replace the arguments that kind itself passes.
    """
    arguments = {
        "audit-policy-file": AUDIT_POLICY,
        "audit-log-path": AUDIT_LOG,
        # One file of up to a gigabyte, so that benchmarks do not have to read rotated files.
        "audit-log-maxsize": "1024",
        "audit-log-maxbackup": "1",
    }
    volumes = [
        volume("audit-log", AUDIT_FOLDER, "DirectoryOrCreate", read_only=False),
        volume("audit-policy", AUDIT_POLICY, "File", read_only=True),
    ]
    operations: list[dict[str, object]] = [
        {"op": "add", "path": "/apiServer/extraArgs/-", "value": {"name": n, "value": v}} for n, v in arguments.items()
    ]
    operations.append({"op": "add", "path": "/apiServer/extraVolumes", "value": volumes})
    # JSON is valid YAML, so the patch needs no YAML writer.
    patch = "\n".join(f"    {line}" for line in json.dumps(operations, indent=2).splitlines())
    return (
        "kubeadmConfigPatchesJSON6902:\n"
        "- group: kubeadm.k8s.io\n"
        "  version: v1beta4\n"
        "  kind: ClusterConfiguration\n"
        f"  patch: |\n{patch}\n"
    )


def volume(name: str, path: str, path_type: str, *, read_only: bool) -> dict[str, object]:
    """Build a kubeadm HostPathMount of the same path on both sides."""
    return {
        "name": name,
        "hostPath": path,
        "mountPath": path,
        "pathType": path_type,
        "readOnly": read_only,
    }
