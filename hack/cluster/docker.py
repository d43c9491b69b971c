"""Docker: a daemon that responds, or the project's own daemon.

The project's own daemon keeps its socket, data, and settings in the cache folder, so it
does not conflict with others. It is identified by its pid file and the path of its
configuration file on its command line, and it outlives the command that started it. With
``live-restore``, clusters survive if the daemon is killed: the next ``up`` starts a new
daemon that takes over the running nodes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cluster import commands, debian, leftovers, processes
from cluster.console import stage
from cluster.errors import ClusterError
from cluster.paths import Cache
from cluster.store import locked, write_atomically

CAP_SYS_RESOURCE = 24
NETWORK = "kind"
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Docker:
    """A Docker daemon that responds."""

    host: str | None
    """Value for DOCKER_HOST; None for the client's own default."""
    is_ours: bool

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which docker and kind use this daemon."""
        provider = {"KIND_EXPERIMENTAL_PROVIDER": "docker"}
        return provider | ({"DOCKER_HOST": self.host} if self.host else {})

    def run(self, *arguments: str, timeout: float | None = 120) -> str:
        """Run the docker client and return its output."""
        return commands.capture(
            ["docker", *arguments],
            environment={**os.environ, **self.environment},
            timeout=timeout,
        )

    def images(self) -> frozenset[str]:
        """Return the names of all images of the daemon."""
        return frozenset(self.run("images", "--format", "{{.Repository}}:{{.Tag}}").split())


@dataclass(frozen=True, slots=True)
class ProjectDaemon:
    """The project's own daemon for a cache folder, running or not."""

    cache: Cache

    @property
    def config(self) -> Path:
        """Configuration file; its path on a command line marks a process as ours."""
        return self.cache.docker / "daemon.json"

    @property
    def socket(self) -> Path:
        """Socket that the daemon listens on."""
        return self.cache.docker_run / "docker.sock"

    @property
    def host_state(self) -> Path:
        """File with the host's settings from before the daemon first ran."""
        return self.cache.docker / "host-state.json"

    @property
    def log(self) -> Path:
        """Log of the daemon."""
        return self.cache.docker / "dockerd.log"

    @property
    def bridge(self) -> str:
        """Name of the network interface of the nodes."""
        return f"perdure{self.cache.identity}"

    @property
    def docker(self) -> Docker:
        """The address of the daemon."""
        return Docker(f"unix://{self.socket}", is_ours=True)

    def pid(self) -> int | None:
        """Pid of the daemon, if it runs."""
        return processes.pid_from_file(self.cache.docker_run / "docker.pid", str(self.config))

    def settings(self, *, capable: bool) -> dict[str, object]:
        """Content of the configuration file."""
        run = self.cache.docker_run
        settings: dict[str, object] = {
            "hosts": [f"unix://{self.socket}"],
            "data-root": str(self.cache.docker / "data"),
            "exec-root": str(run / "exec"),
            "pidfile": str(run / "docker.pid"),
            "live-restore": True,
            "log-level": "warn",
            # Nodes have a separate network; docker0 might belong to another user.
            "bridge": "none",
        }
        if not capable:
            settings["runtimes"] = {"perdure": {"path": str(self.cache.docker / "runc-wrapper")}}
            settings["default-runtime"] = "perdure"
        return settings

    def start(self) -> Docker:
        """Start the daemon unless it is running; the caller holds the Docker lock."""
        if self.pid() and answers(self.docker):
            return self.docker
        if os.geteuid() != 0:
            raise ClusterError("No Docker daemon responds, and starting one requires root.")
        debian.require_packages(debian.DOCKER_PACKAGES, self.cache.logs / "apt.log")
        self.clear_stale()
        leftovers.HostState.observe().save(self.host_state)
        leftovers.raise_limits()
        write_atomically(self.config, json.dumps(self.settings(capable=has_cap_sys_resource()), indent=2))
        install_runc_wrapper(self.cache.docker / "runc-wrapper")
        self.cache.docker_run.mkdir(parents=True, exist_ok=True)
        dockerd = commands.found("dockerd") or "dockerd"
        with stage("our own Docker daemon"), self.log.open("a") as log:
            daemon = subprocess.Popen(
                [dockerd, "--config-file", str(self.config)],
                env=daemon_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # In its own session, so that it does not get Ctrl-C and hang-ups of the caller.
                start_new_session=True,
            )
            deadline = time.monotonic() + START_SECONDS
            while not answers(self.docker):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    end = commands.tail(self.log.read_text(errors="replace"))
                    raise ClusterError(f"dockerd did not start:\n{end}\nFull log: {self.log}")
                time.sleep(0.1)
            self.ensure_network()
        return self.docker

    def ensure_network(self) -> None:
        """Create kind's network with a bridge name that identifies its owner.

        kind uses an existing network of this name unchanged. IPv6 is disabled: kind derives
        the prefix from the name of the network, so two daemons would use the same one.
        """
        if self.docker.run("network", "ls", "--quiet", "--filter", f"name=^{NETWORK}$").strip():
            return
        leftovers.remove_bridge(self.bridge)
        bridge = f"com.docker.network.bridge.name={self.bridge}"
        self.docker.run("network", "create", "--driver=bridge", "--opt", bridge, NETWORK)

    def clear_stale(self) -> None:
        """Remove what prevents a new daemon from starting after the previous one was killed."""
        if pid := self.pid():
            # It is running but does not respond.
            processes.stop(pid, str(self.config))
        pid_file = self.cache.docker_run / "docker.pid"
        # dockerd does not start while any process has the pid in its file.
        pid_file.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)
        containerd = self.cache.docker_run / "exec" / "containerd" / "containerd.pid"
        if processes.pid_from_file(containerd, str(containerd.parent)) is None:
            containerd.unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop the daemon and restore the host; its images stay in the cache."""
        run = str(self.cache.docker_run)
        if pid := self.pid():
            processes.stop(pid, str(self.config))
        self.end_orphans()
        leftovers.unmount_below(self.cache.docker)
        leftovers.remove_tree(Path(run))
        if not processes.find("dockerd"):
            leftovers.remove_docker_rules(self.bridge)
        leftovers.remove_bridge(self.bridge)
        leftovers.HostState.restore(self.host_state)

    def end_orphans(self) -> None:
        """Stop what survived the daemon: containers, their shims, and containerd.

        The command lines of all but the containers contain our run folder; the containers
        are children of the shims.
        """
        run = str(self.cache.docker_run)
        # Also check the name: another tool may have our log or a socket open.
        programs = {
            pid: Path(processes.command_line(pid)[0]).name for pid in processes.find(run) if processes.command_line(pid)
        }
        shims = {pid for pid, name in programs.items() if name.startswith("containerd-shim")}
        for pid in processes.children(shims):
            # All processes of a container end with its first one.
            os.kill(pid, signal.SIGKILL)
        for pid, name in programs.items():
            if name.startswith(("containerd", "docker")):
                processes.stop(pid, run, grace=5.0)


def answers(docker: Docker) -> bool:
    """Whether a daemon exists."""
    return commands.succeeds(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        environment={**os.environ, **docker.environment},
    )


def find_docker(cache: Cache) -> Docker | None:
    """Find a daemon that responds: that of the environment, the default one, or our own."""
    project_docker = ProjectDaemon(cache)
    if not commands.found("docker"):
        return None
    ambient = os.environ.get("DOCKER_HOST")
    if ambient != project_docker.docker.host:
        ambient_docker = Docker(ambient, is_ours=False)
        if answers(ambient_docker):
            return ambient_docker
    if project_docker.pid() and answers(project_docker.docker):
        return project_docker.docker
    return None


def ensure_docker(cache: Cache) -> Docker:
    """Find a daemon or start one."""
    if docker := find_docker(cache):
        return docker
    with locked(cache.locks / "docker"):
        return find_docker(cache) or ProjectDaemon(cache).start()


def has_cap_sys_resource(status: Path = Path("/proc/self/status")) -> bool:
    """Whether this process may raise limits and lower OOM scores."""
    for line in status.read_text().splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def install_runc_wrapper(target: Path) -> None:
    """Copy the wrapper to a place where it exists as long as the daemon needs it."""
    body = Path(__file__).with_name("runc_wrapper.py").read_text()
    # The current Python, in isolated mode and without site: it is started for every step of
    # every container, and nothing on the daemon's PATH can interfere.
    write_atomically(target, f"#!{os.path.realpath(sys.executable)} -IS\n{body}")
    target.chmod(0o755)


def daemon_environment() -> dict[str, str]:
    """Environment of the daemon: without a DOCKER_HOST, with the system's folders."""
    environment = {k: v for k, v in os.environ.items() if k != "DOCKER_HOST"}
    environment["PATH"] = f"/usr/local/sbin:/usr/sbin:/sbin:{environment.get('PATH', '')}"
    return environment
