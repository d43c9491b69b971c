"""Find and remove what a killed run or a Docker daemon leaves on the host."""

import contextlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from cluster import commands
from cluster.errors import ClusterError
from cluster.store import write_atomically

MOUNT_TABLE = Path("/proc/self/mountinfo")

HOST_LIMITS = {"fs/inotify/max_user_instances": 1_024, "fs/inotify/max_user_watches": 524_288}
"""Settings of the host under /proc/sys that the nodes of several clusters need. With the default of 128 instances, the kubelets
of a second cluster do not start: ``inotify_init: too many open files``."""

HOST_SETTINGS = (
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    *HOST_LIMITS,
)
"""Settings under /proc/sys that Docker, kubelets and these scripts change for the whole host."""

IPTABLES = ("iptables", "ip6tables")


def mounts_below(mountinfo: str, folder: Path) -> list[Path]:
    """Mount points at or below a folder, the innermost first."""
    points = []
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        # The kernel writes spaces and backslashes in paths as octal escapes.
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        path = Path(point)
        if path == folder or folder in path.parents:
            points.append(path)
    # Of two mounts on the same mount point, the later line is on top, so unmount it first.
    points.reverse()
    return sorted(points, key=lambda path: len(path.parts), reverse=True)


def unmount_below(folder: Path) -> None:
    """Unmount everything at or below a folder, even if a process still uses it."""
    for point in mounts_below(MOUNT_TABLE.read_text(), folder):
        if not commands.succeeds(["umount", str(point)]):
            commands.succeeds(["umount", "--lazy", str(point)])


def remove_tree(folder: Path) -> None:
    """Remove a folder and whatever is mounted in it."""
    if folder.exists():
        unmount_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


def clear_work(work: Path) -> list[str]:
    """Remove incomplete builds; the caller must hold the build lock."""
    names = sorted(entry.name for entry in work.iterdir()) if work.is_dir() else []
    for name in names:
        remove_tree(work / name)
    return names


def docker_rules(saved: str, bridge: str) -> list[list[str]]:
    """Commands (without ``iptables``) that undo what ``iptables-save`` shows of Docker.

    ``bridge`` is the prefix of our bridge's name; rules that contain it are deleted, too. Rules are
    deleted first, because a chain can only be deleted when nothing refers to it.
    """
    rules: list[list[str]] = []
    flushes: list[list[str]] = []
    deletions: list[list[str]] = []
    table = ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif match := re.match(r":(DOCKER\S*)", line):
            flushes.append(["-t", table, "-F", match[1]])
            deletions.append(["-t", table, "-X", match[1]])
        elif line.startswith("-A ") and not line.startswith("-A DOCKER"):
            words = line.split()
            if any(word.startswith(("DOCKER", bridge)) for word in words[2:]):
                rules.append(["-t", table, "-D", *words[1:]])
    return rules + flushes + deletions


def remove_docker_rules(bridge: str) -> None:
    """Remove Docker's packet filter rules, if no Docker daemon is left."""
    for tool in IPTABLES:
        with contextlib.suppress(ClusterError):
            for rule in docker_rules(commands.capture([f"{tool}-save"]), bridge):
                commands.succeeds([tool, "-w", *rule])


def remove_bridge(bridge: str) -> None:
    """Remove the bridge of our Docker network, if the daemon has not done so."""
    if Path("/sys/class/net", bridge).exists():
        commands.succeeds(["ip", "link", "delete", bridge])


@dataclass(frozen=True, slots=True)
class HostState:
    """The settings of the host before our Docker daemon first ran."""

    sysctls: dict[str, str]
    forward_policies: dict[str, str]

    @classmethod
    def observe(cls) -> "HostState":
        """Read the current settings."""
        policies = {}
        for tool in IPTABLES:
            with contextlib.suppress(ClusterError):
                if policy := forward_policy(commands.capture([tool, "-w", "-S", "FORWARD"])):
                    policies[tool] = policy
        sysctls = {}
        for name in HOST_SETTINGS:
            with contextlib.suppress(OSError):
                sysctls[name] = Path("/proc/sys", name).read_text().strip()
        return cls(sysctls, policies)

    def save(self, file: Path) -> None:
        """Store the settings, unless an earlier run that did not end cleanly has done so."""
        if not file.exists():
            state = {"sysctls": self.sysctls, "forward_policies": self.forward_policies}
            write_atomically(file, json.dumps(state, indent=2))

    @classmethod
    def restore(cls, file: Path) -> None:
        """Restore the stored settings, and delete the stored copy."""
        if not file.exists():
            return
        state = json.loads(file.read_text())
        for tool, policy in state["forward_policies"].items():
            commands.succeeds([tool, "-w", "-P", "FORWARD", policy])
        for name, value in state["sysctls"].items():
            with contextlib.suppress(OSError):
                Path("/proc/sys", name).write_text(value)
        file.unlink()


def raise_limits(proc_sys: Path = Path("/proc/sys")) -> None:
    """Raise the limits of the host to what several clusters need; keep higher ones."""
    for name, least in HOST_LIMITS.items():
        with contextlib.suppress(OSError):
            file = proc_sys / name
            if int(file.read_text()) < least:
                file.write_text(str(least))


def forward_policy(rules: str) -> str | None:
    """Policy of the FORWARD chain in the output of ``iptables -S FORWARD``."""
    match = re.search(r"^-P FORWARD (\S+)", rules, re.MULTILINE)
    return match[1] if match else None
