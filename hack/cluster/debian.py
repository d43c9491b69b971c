"""Debian packages: install them on the host, or unpack them as root file systems."""

import os
from collections.abc import Sequence
from pathlib import Path

from cluster import commands
from cluster.console import stage
from cluster.errors import ClusterError
from cluster.paths import Cache
from cluster.store import ensure_entry, fingerprint

SUITE = "bookworm"
"""The Debian of the nodes: their programs are compiled on it."""
PYTHON_SUITE = "trixie"
"""The Debian of the image."""
PYTHON = "3.13"
"""The version of Python in that Debian."""

DOCKER_PACKAGES = {"dockerd": "docker.io", "iptables": "iptables", "ip": "iproute2"}
BUILD_PACKAGES = {"mmdebstrap": "mmdebstrap", "gcc": "gcc", "jq": "jq", "systemctl": "systemd"}
RUNC_PACKAGES = {"pkg-config": "pkg-config"}
BUILDAH_PACKAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}
"""Required command -> package that contains it."""

NODE_PACKAGES = [
    "bash",
    "ca-certificates",
    "conntrack",
    "containernetworking-plugins",
    "curl",
    "dbus",
    "e2fsprogs",
    "ethtool",
    "hostname",
    "iproute2",
    "iptables",
    "jq",
    "kmod",
    "libseccomp2",
    "mount",
    "nftables",
    "openssl",
    "pigz",
    "procps",
    "socat",
    "systemd",
    "systemd-sysv",
    "util-linux",
]
"""Packages that systemd, the kubelet, kube-proxy's checks, and kind itself need in a node."""

PROXY_PACKAGES = ("conntrack", "dash", "iptables", "nftables")
"""Commands that kube-proxy calls. Without its libraries, iptables fails and no Service works."""

PYTHON_PACKAGES = ("ca-certificates", "python-is-python3", "python3", "python3-venv")
"""Replaces ``python:3.x-slim`` if that image cannot be pulled."""

NO_DOCUMENTATION = tuple(
    f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "info", "lintian", "locale", "man")
)


def require_packages(commands_needed: dict[str, str], log: Path, *, libraries: Sequence[str] = ()) -> None:
    """Install the Debian packages of commands that are missing on the host."""
    missing = [p for command, p in commands_needed.items() if not commands.found(command)]
    missing += [p for p in libraries if not commands.succeeds(["dpkg", "--status", p])]
    if not missing:
        return
    wanted = " ".join(missing)
    if not commands.found("apt-get"):
        raise ClusterError(f"Install the equivalents of these Debian packages: {wanted}")
    if os.geteuid() != 0:
        raise ClusterError(f"Not running as root; run: sudo apt-get install {wanted}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with stage(f"Debian packages: {wanted}"):
        commands.run_logged(["apt-get", "update", "-qq"], log, environment=environment)
        commands.run_logged(
            ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", *missing],
            log,
            environment=environment,
        )


def root_file_system(
    cache: Cache, name: str, packages: Sequence[str], *, variant: str = "minbase", suite: str = SUITE
) -> Path:
    """Return a tar of a Debian root file system with some packages, cached by their names."""
    options = [f"--variant={variant}", f"--include={','.join(packages)}", *NO_DOCUMENTATION]
    key = fingerprint(words=[suite, *options])

    def make(draft: Path) -> None:
        with stage(f"Debian root file system: {name}"):
            bootstrap(options, draft, cache.logs / f"{name}-root.log", suite=suite)

    return ensure_entry(cache.built / f"{name}-root-{key}.tar", cache.work, make)


def bootstrap(options: Sequence[str], target: Path, log: Path, *, suite: str, epoch: int | None = None) -> None:
    """Write a tar of a Debian root file system.

    Args:
        options: The options of mmdebstrap: the variant, the packages, and so on.
        target: The tar to write.
        log: The log file.
        suite: The release of Debian.
        epoch: The time of files that are newer; None: they keep their times.
    """
    run = [
        *commands.DIE_WITH_ME,
        "mmdebstrap",
        "--quiet",
        '--aptopt=Acquire::Retries "5"',
        "--mode=root",
        "--format=tar",
    ]
    environment = None if epoch is None else {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    commands.run_logged([*run, *options, suite, str(target)], log, environment=environment)
