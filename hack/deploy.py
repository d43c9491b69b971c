"""Deploy Perdure to a cluster: build and load the image, and install the chart."""

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster import lifecycle, projectimage, webui
from cluster.console import stage
from cluster.docker import find_docker
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from cluster.registry import registry_answers
from cluster.tools import DEFAULT_TOOLS, ensure_tools

NAMESPACE = "perdure-system"
RELEASE = "perdure"
IMAGE = "localhost/perdure:dev"
ARCHIVE = REPOSITORY / "build" / "perdure.tar"


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster, and the image of Perdure in it."""

    name: str | None
    """Name of a kind cluster that these scripts created; None for another cluster."""
    image: str = IMAGE
    environment: Mapping[str, str] = field(default_factory=dict)
    """KUBECONFIG and PATH for kubectl and helm."""

    def run(self, *command: str, text: str | None = None) -> str:
        """Run a command against the cluster, and return its output.

        Raises:
            ClusterError: The command failed; the message is its output.
        """
        done = subprocess.run(
            command, env=self.environment, input=text, capture_output=True, text=True, check=False, cwd=REPOSITORY
        )
        if done.returncode:
            raise ClusterError(f"`{' '.join(command)}` failed:\n{(done.stdout + done.stderr).strip()}")
        return done.stdout

    def show(self, *command: str) -> int:
        """Run a command without capturing its output, and return its exit status."""
        return subprocess.run(command, env=self.environment, check=False, cwd=REPOSITORY).returncode


def kind_cluster(cache: Cache, name: str, *, workers: int | None = None, audit: bool = False) -> Target:
    """Return our kind cluster, and create it if it does not exist, with this number of worker nodes."""
    lifecycle.up(cache, name, workers, audit=audit)
    docker = find_docker(cache)
    if docker is None:
        raise ClusterError("The Docker daemon has stopped.")
    settings = dict(line.removeprefix("export ").split("=", 1) for line in lifecycle.exports(cache, name, docker))
    return Target(name, environment={**os.environ, **settings, "PATH": _path(cache)})


def existing_cluster(cache: Cache, image: str | None) -> Target:
    """Return the cluster of KUBECONFIG. Its nodes must be able to pull `image`.

    Raises:
        ClusterError: The cluster does not exist, or no image is set.
    """
    target = Target(None, image or IMAGE, {**os.environ, "PATH": _path(cache)})
    target.run("kubectl", "version", "--request-timeout=10s")
    if image is None:
        raise ClusterError(
            "CLUSTER=existing needs IMAGE=registry/name:tag: build the project's image (make image), push it to a registry "
            "that the cluster's nodes can reach, and name it here."
        )
    return target


def install(cache: Cache, target: Target, *values: str, web_ui: bool = False) -> None:
    """Install or upgrade Perdure, and wait until it is ready. `values` are for helm's ``--set``.

    Raises:
        ClusterError: It cannot be installed, or is not ready in time. Its pods are printed first.
    """
    repository, _, tag = target.image.rpartition(":")
    settings = [f"image.repository={repository}", f"image.tag={tag}", *values]
    if target.name is not None:
        projectimage.build(cache, REPOSITORY / "Dockerfile", REPOSITORY, target.image, ARCHIVE)
        lifecycle.load(cache, target.name, [ARCHIVE])
        # The tag stays the same if the image changes, so this annotation changes the Deployment.
        settings.append(f"podAnnotations.image={_digest(ARCHIVE)}")
    if web_ui:
        settings += ["ui.enabled=true", *_built_web_ui(cache, target)]
    with stage("helm install"):
        try:
            target.run(*_helm(settings))
        except ClusterError:
            target.show("kubectl", "get", "pods", f"--namespace={NAMESPACE}")
            raise


def _built_web_ui(cache: Cache, target: Target) -> list[str]:
    """Load our build of the Web UI if the nodes cannot pull the stock image, and return its chart values."""
    if target.name is None or registry_answers():
        return []
    lifecycle.load(cache, target.name, [webui.build(cache)])
    repository, _, tag = webui.image_name().rpartition(":")
    return [f"ui.image.repository={repository}", f"ui.image.tag={tag}"]


def _helm(settings: Sequence[str]) -> list[str]:
    command = ["helm", "upgrade", "--install", RELEASE, "charts/perdure", f"--namespace={NAMESPACE}"]
    command += ["--create-namespace", "--wait", "--timeout=3m"]
    return [*command, *(f"--set-string={s}" if "image" in s else f"--set={s}" for s in settings)]


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:16]


def _path(cache: Cache) -> str:
    tools = ensure_tools(cache, DEFAULT_TOOLS)
    return f"{tools}:{os.environ['PATH']}"
