"""Describe this machine, for bug reports."""

import os
from collections.abc import Iterator
from pathlib import Path

from cluster import commands, gobuild, leftovers, lifecycle, nodeimage, processes
from cluster.docker import ProjectDaemon, find_docker, has_cap_sys_resource
from cluster.errors import ClusterError
from cluster.kindconfig import has_cgroup_v2
from cluster.paths import Cache
from cluster.registry import registry_answers
from cluster.tools import DEFAULT_TOOLS


def report(cache: Cache) -> Iterator[str]:
    """Print one line per subject."""
    docker = find_docker(cache)
    daemon = ProjectDaemon(cache)
    if docker:
        kind_of = "our own" if docker.is_ours else "the machine's"
        version = docker.run("version", "--format", "{{.Server.Version}}").strip()
        yield f"docker:      {kind_of}, version {version}, {docker.host or 'default socket'}"
    else:
        yield "docker:      no daemon responds"
    yield f"registry:    {'reachable' if registry_answers() else 'not reachable'}"
    yield f"cgroup:      {'v2' if has_cgroup_v2() else 'v1'}"
    capable = "yes" if has_cap_sys_resource() else "no (our daemon runs a wrapped runc)"
    yield f"CAP_SYS_RESOURCE: {capable}"
    yield f"root:        {'yes' if os.geteuid() == 0 else 'no'}"
    size = commands.capture(["du", "-sh", str(cache.root)]).split()[0] if cache.root.exists() else 0
    yield f"cache:       {cache.root} ({size})"
    images = docker.images() if docker else frozenset()
    for kubernetes in (gobuild.KUBERNETES, *gobuild.OTHER_KUBERNETES):
        name = nodeimage.image_name(kubernetes)
        yield f"node image:  {name}{'' if name in images else ' (not built)'}"
    for name in DEFAULT_TOOLS:
        link = cache.bin / name
        yield f"{name + ':':12} {link.resolve() if link.exists() else 'not downloaded yet'}"
    yield from clusters(cache)
    yield from remains(cache, daemon)


def clusters(cache: Cache) -> Iterator[str]:
    """Yield the clusters and the state of their nodes."""
    docker = find_docker(cache)
    for name in lifecycle.known_clusters(cache):
        try:
            states = lifecycle.node_containers(docker, name) if docker else {}
        except ClusterError:
            states = {}
        nodes = ", ".join(f"{node} {state}" for node, state in sorted(states.items()))
        yield f"cluster:     {name}: {nodes or 'no nodes'}"


def remains(cache: Cache, daemon: ProjectDaemon) -> Iterator[str]:
    """Yield what runs that should have ended have left behind."""
    if cache.work.is_dir():
        for entry in sorted(cache.work.iterdir()):
            yield f"leftover:    {entry} (from a build that is running or was killed)"
    if daemon.pid():
        return
    for pid in processes.find(str(cache.docker_run)):
        yield f"leftover:    process {pid}: {' '.join(processes.command_line(pid))[:80]}"
    for point in leftovers.mounts_below(leftovers.MOUNT_TABLE.read_text(), cache.docker):
        yield f"leftover:    mount {point}"
    if Path("/sys/class/net", daemon.bridge).exists():
        yield f"leftover:    network interface {daemon.bridge}"
