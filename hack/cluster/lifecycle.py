"""Create, repair, and delete clusters, and load images into them."""

import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from cluster import checks, commands, gobuild, kindconfig, nodeimage
from cluster.checks import Kubectl, Lookup
from cluster.console import say, stage
from cluster.docker import Docker, ProjectDaemon, answers, ensure_docker, find_docker
from cluster.errors import ClusterError, CommandError
from cluster.leftovers import clear_work
from cluster.paths import KIND_CONFIG, Cache
from cluster.registry import NodeImage, choose_node_image, registry_answers
from cluster.store import locked, locked_if_free, write_atomically
from cluster.tools import DEFAULT_TOOLS, ensure_tools

DEFAULT_NAME = "perdure"
DEFAULT_WORKERS = 2
KIND_LABEL = "io.x-k8s.kind.cluster"

RECOVERY_SECONDS = 90.0
_REMOVE_SECONDS = 900.0
"""How long the removal of a node may take: each overlay of its pods is flushed when it is unmounted."""

LOOKUP_SCRIPT = (
    "import socket, time\n"
    "for attempt in range(100):\n"
    "    try:\n"
    f"        print(socket.gethostbyname('{checks.LOOKUP_NAME}'))\n"
    "        break\n"
    "    except OSError:\n"
    "        time.sleep(0.3)\n"
    "else:\n"
    "    raise SystemExit(1)\n"
)
OWN_LOOKUP = Lookup(nodeimage.PYTHON_IMAGE, ("python3", "-c", LOOKUP_SCRIPT))
STOCK_LOOKUP = Lookup(
    "busybox:1.37",
    ("sh", "-c", f"until nslookup {checks.LOOKUP_NAME}; do sleep 0.3; done"),
)


@dataclass(frozen=True, slots=True)
class State:
    """The requested configuration of a cluster, stored when its creation begins."""

    name: str
    workers: int
    audit: bool
    image: str | None = None
    """Node image; None for the default of kind."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.workers + 1

    @property
    def lookup(self) -> Lookup:
        """How a Pod can resolve a name with the images of its node."""
        is_project_image = self.image and self.image.startswith(nodeimage.REPOSITORY)
        return OWN_LOOKUP if is_project_image else STOCK_LOOKUP


def saved_state(cache: Cache, name: str) -> State | None:
    """Read the configuration with which a cluster was created."""
    try:
        return State(**json.loads(cache.cluster(name).state.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def up(cache: Cache, name: str, workers: int | None, *, audit: bool) -> None:
    """Make sure that a cluster exists and works."""
    # Shared: clusters can start concurrently, but not while the daemon is being stopped.
    with locked(cache.locks / "daemon-in-use", shared=True), locked(cache.locks / f"cluster-{name}"):
        docker = ensure_docker(cache)
        with locked(cache.locks / "build"):
            for leftover in clear_work(cache.work):
                say(f"Removed the leftovers of a killed build: {leftover}")
        ensure_tools(cache, DEFAULT_TOOLS)
        saved = saved_state(cache, name)
        if saved and workers not in {None, saved.workers}:
            raise ClusterError(f"Cluster {name} already exists with {saved.workers} workers; run `down` first.")
        chosen = os.environ.get("KUBERNETES", "")
        if saved and chosen and f":v{chosen}." not in (saved.image or ""):
            raise ClusterError(f"Cluster {name} already exists with the node image {saved.image}; run `down` first.")
        if saved and audit and not saved.audit:
            raise ClusterError(f"Cluster {name} has no audit log; run `down` first.")
        if saved and healthy_or_repaired(cache, docker, saved):
            return
        wanted = saved or State(name, DEFAULT_WORKERS if workers is None else workers, audit)
        create(cache, docker, wanted)


def node_containers(docker: Docker, name: str) -> dict[str, str]:
    """Return the names of the node containers of a cluster, and their states."""
    output = docker.run(
        "ps",
        "--all",
        f"--filter=label={KIND_LABEL}={name}",
        "--format={{.Names}} {{.State}}",
    )
    return dict(line.split(" ", 1) for line in output.splitlines())


def healthy_or_repaired(cache: Cache, docker: Docker, state: State) -> bool:
    """Start the stopped parts of a cluster, and return whether it works."""
    files = cache.cluster(state.name)
    containers = node_containers(docker, state.name)
    if len(containers) != state.nodes or not files.kubeconfig.exists():
        return False
    kubectl = Kubectl(cache, files.kubeconfig)
    stopped = [name for name, state in containers.items() if state in {"exited", "created"}]
    paused = [name for name, state in containers.items() if state == "paused"]
    try:
        if not stopped and not paused and checks.nodes_ready(kubectl, state.nodes):
            say(f"Cluster {state.name} is up and healthy.")
            return True
    except ClusterError:
        pass
    try:
        with stage(f"repair cluster {state.name}"):
            if stopped:
                docker.run("start", *stopped)
            if paused:
                docker.run("unpause", *paused)
            checks.wait_until("API server ready again", kubectl.ready, seconds=RECOVERY_SECONDS)
        # Check everything: a node that was just killed still counts as Ready.
        checks.check_cluster(kubectl, docker, list(containers), state.lookup)
    except ClusterError as error:
        say(f"Cluster {state.name} cannot be repaired ({error}); it is re-created.")
        return False
    return True


def create(cache: Cache, docker: Docker, wanted: State) -> None:
    """Create a cluster, and replace whatever a killed run has left of it."""
    state = replace(wanted, image=node_image(cache, docker))
    files = cache.cluster(state.name)
    remove(cache, docker, state.name)
    files.root.mkdir(parents=True)
    audit = None
    if state.audit:
        audit = kindconfig.Audit(files.audit, files.audit_policy)
        files.audit.mkdir()
        files.audit_policy.write_text(kindconfig.AUDIT_POLICY_TEXT)
    files.kind_config.write_text(
        kindconfig.render(
            KIND_CONFIG.read_text(),
            name=state.name,
            workers=state.workers,
            audit=audit,
            cgroup_v2=kindconfig.has_cgroup_v2(),
        )
    )
    write_atomically(files.state, json.dumps(asdict(state)))
    draft = files.root / "kubeconfig.new"
    try:
        kind_create(cache, docker, state, draft)
    except CommandError as error:
        if "already exist" not in error.tail:
            raise
        # A run that was just killed may have requested nodes that the daemon created
        # only after this run had looked for them.
        docker.run("rm", "--force", "--volumes", *node_containers(docker, state.name))
        kind_create(cache, docker, state, draft)
    kubectl = Kubectl(cache, draft)
    checks.check_cluster(kubectl, docker, list(node_containers(docker, state.name)), state.lookup)
    # Only now: if the kubeconfig exists, the cluster has worked before.
    draft.rename(files.kubeconfig)


def kind_create(cache: Cache, docker: Docker, state: State, kubeconfig: Path) -> None:
    """Run ``kind create cluster``."""
    with stage(f"kind create cluster {state.name} ({state.nodes} nodes)"):
        commands.run_logged(
            [
                *commands.DIE_WITH_ME,
                *kind(cache, "create", "cluster", "--retain"),
                f"--name={state.name}",
                f"--config={cache.cluster(state.name).kind_config}",
                f"--kubeconfig={kubeconfig}",
                *([f"--image={state.image}"] if state.image else []),
            ],
            cache.logs / f"kind-{state.name}.log",
            environment={**os.environ, **docker.environment},
        )


def node_image(cache: Cache, docker: Docker) -> str | None:
    """Choose the node image (None for kind's default) and make sure Docker has our own."""
    chosen, minor = os.environ.get("NODE_IMAGE", ""), os.environ.get("KUBERNETES", "")
    kubernetes = gobuild.kubernetes(minor)
    choice = choose_node_image(
        chosen=chosen,
        minor=minor,
        local_images=docker.images(),
        project_image=nodeimage.image_name(kubernetes),
        registry_reachable=registry_answers,
    )
    match choice.image:
        case NodeImage.CHOSEN:
            return chosen
        case NodeImage.STOCK:
            return None
        case NodeImage.OWN:
            say(f"Using our own node image: {choice.reason}.")
            with locked(cache.locks / "build"):
                return nodeimage.ensure_node_image(cache, docker, kubernetes)


def kind(cache: Cache, *arguments: str) -> list[str]:
    """Build a kind command."""
    return [str(cache.bin / "kind"), *arguments]


def remove(cache: Cache, docker: Docker, name: str) -> None:
    """Remove a cluster's nodes and files."""
    containers = list(node_containers(docker, name))
    if containers:
        # Without kind: it may not be built yet, and it does nothing else.
        with ThreadPoolExecutor() as pool:
            list(pool.map(partial(_remove_node, docker), containers))
    shutil.rmtree(cache.cluster(name).root, ignore_errors=True)


def _remove_node(docker: Docker, container: str) -> None:
    docker.run("rm", "--force", "--volumes", container, timeout=_REMOVE_SECONDS)


def known_clusters(cache: Cache) -> list[str]:
    """Return the names of the clusters that have files here."""
    if not cache.clusters.is_dir():
        return []
    return sorted(entry.name for entry in cache.clusters.iterdir())


def down(cache: Cache, names: Sequence[str]) -> None:
    """Remove clusters; stop our Docker daemon when none is left."""
    daemon = ProjectDaemon(cache)
    with locked(cache.locks / "daemon-in-use", shared=True):
        for name in names:
            with locked(cache.locks / f"cluster-{name}"):
                docker = find_docker(cache)
                if not docker and cache.cluster(name).root.exists() and daemon.host_state.exists():
                    # It was killed while its clusters were running: start it again, because it knows them.
                    docker = ensure_docker(cache)
                if docker:
                    with stage(f"remove cluster {name}"):
                        remove(cache, docker, name)
                else:
                    shutil.rmtree(cache.cluster(name).root, ignore_errors=True)
    if known_clusters(cache):
        return
    with locked_if_free(cache.locks / "daemon-in-use") as free:
        if free and daemon.host_state.exists():
            with stage("stop our Docker daemon"), locked(cache.locks / "docker"):
                if daemon.pid() and answers(daemon.docker):
                    nodeimage.remove_superseded(daemon.docker)
                    # Volumes of nodes that a killed run had not named yet.
                    daemon.docker.run("volume", "prune", "--force")
                daemon.stop()


def load(cache: Cache, name: str, archives: Sequence[Path]) -> None:
    """Load image archives into every node of a cluster."""
    docker = find_docker(cache)
    if not docker or not node_containers(docker, name):
        raise ClusterError(f"There is no cluster {name}; run `up` first.")
    for archive in archives:
        if not archive.is_file():
            raise ClusterError(f"There is no file {archive}.")
        with stage(f"load {archive.name} into {name}"):
            commands.run_logged(
                kind(cache, "load", "image-archive", str(archive), f"--name={name}"),
                cache.logs / f"load-{name}.log",
                environment={**os.environ, **docker.environment},
            )


def exports(cache: Cache, name: str, docker: Docker) -> list[str]:
    """Return lines for a shell to evaluate."""
    lines = [f"export KUBECONFIG={cache.cluster(name).kubeconfig}"]
    if docker.is_ours:
        lines.append(f"export DOCKER_HOST={docker.host}")
    return lines
