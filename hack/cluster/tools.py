"""The tools of the host in ``<cache>/bin``: kind, kubectl, helm."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster import commands, gobuild
from cluster.errors import ClusterError
from cluster.gobuild import GoProgram
from cluster.paths import Cache
from cluster.store import locked

Version = tuple[int, int, int]

HELM_AT_LEAST: Version = (3, 15, 0)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, how to recognize a suitable version on PATH, and how to build it."""

    name: str
    program: GoProgram
    binary: str
    """File name of the binary; links to it may have another name."""
    version_command: tuple[str, ...]
    suits: Callable[[Version], bool]
    """Whether a version on PATH is suitable."""


def version_in(text: str) -> Version:
    """Return the first version in the output of a tool; (0, 0, 0) if there is none."""
    match = re.search(r"v?(\d+)\.(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)


def kubectl_suits(version: Version) -> bool:
    """Return whether kubectl is at most one minor version away from the API server."""
    wanted = version_in(gobuild.KUBERNETES.version)
    return version[0] == wanted[0] and abs(version[1] - wanted[1]) <= 1


TOOLS = {
    "kind": Tool(
        "kind",
        gobuild.KIND,
        "kind",
        ("version",),
        lambda version: version == version_in(gobuild.KIND.version),
    ),
    "kubectl": Tool("kubectl", gobuild.KUBERNETES, "kubernetes", ("version", "--client"), kubectl_suits),
    "helm": Tool(
        "helm",
        gobuild.HELM,
        "helm",
        ("version", "--short"),
        lambda version: version >= HELM_AT_LEAST,
    ),
    "kwok": Tool(
        "kwok",
        gobuild.KWOK,
        "kwok",
        ("--version",),
        lambda version: version == version_in(gobuild.KWOK.version),
    ),
    "versitygw": Tool(
        "versitygw",
        gobuild.VERSITYGW,
        "versitygw",
        ("--version",),
        lambda version: version == version_in(gobuild.VERSITYGW.version),
    ),
    **{
        name: Tool(
            name,
            gobuild.ETCD_TOOLS,
            name,
            ("version",),
            lambda version: version == version_in(gobuild.ETCD_TOOLS.version),
        )
        for name in ("etcdctl", "etcdutl")
    },
    "registry": Tool(
        "registry",
        gobuild.REGISTRY,
        "registry",
        ("--version",),
        lambda version: version == version_in(gobuild.REGISTRY.version),
    ),
}
DEFAULT_TOOLS = ("kind", "kubectl", "helm")


def ensure_tool(cache: Cache, tool: Tool) -> Path:
    """Return a link in ``<cache>/bin`` to a suitable tool; the caller holds the build lock."""
    link = cache.bin / tool.name
    built = cache.built / f"{tool.program.name}-{tool.program.key()}"
    if built.exists() or not (target := suitable_on_path(tool, cache)):
        target = gobuild.build(cache, tool.program) / tool.binary
    if not link.is_symlink() or link.readlink() != target:
        cache.bin.mkdir(parents=True, exist_ok=True)
        draft = link.with_name(f".{link.name}.{os.getpid()}")
        draft.symlink_to(target)
        draft.rename(link)
    return link


def suitable_on_path(tool: Tool, cache: Cache) -> Path | None:
    """Find a tool with a suitable version on PATH, except in our own folder."""
    folders = [f for f in os.environ.get("PATH", "").split(":") if f and Path(f) != cache.bin]
    path = shutil.which(tool.name, path=":".join(folders))
    if not path:
        return None
    try:
        version = version_in(commands.capture([path, *tool.version_command], timeout=20))
    except ClusterError:
        return None
    return Path(path) if tool.suits(version) else None


def ensure_tools(cache: Cache, names: tuple[str, ...]) -> Path:
    """Return the folder with links to the tools, and build those that are missing."""
    with locked(cache.locks / "build"):
        for name in names:
            ensure_tool(cache, TOOLS[name])
    return cache.bin
