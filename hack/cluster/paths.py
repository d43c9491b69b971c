"""The paths of the project's files and of the cache folder."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NODE_IMAGE = REPOSITORY / "hack" / "node-image"
KIND_CONFIG = REPOSITORY / "kind-config.yaml"

LONGEST_RUN_FOLDER = 60
"""A Unix socket's path is at most 107 bytes, and containerd appends about 40."""


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """Host files of one cluster."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of only this cluster."""
        return self.root / "kubeconfig"

    @property
    def kind_config(self) -> Path:
        """Configuration for kind."""
        return self.root / "kind.yaml"

    @property
    def audit(self) -> Path:
        """Folder that the API server writes its audit log to."""
        return self.root / "audit"

    @property
    def audit_policy(self) -> Path:
        """Audit policy that the API server reads."""
        return self.root / "audit-policy.yaml"

    @property
    def state(self) -> Path:
        """The requested configuration as JSON; it exists from the start of the creation."""
        return self.root / "state.json"


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder for everything that is built or running. It contains no files of the user."""

    root: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Cache":
        """Find the cache folder, according to the environment."""
        if chosen := environment.get("PERDURE_CACHE"):
            return cls(Path(chosen).absolute())
        base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return cls(Path(base).absolute() / "perdure")

    @property
    def identity(self) -> str:
        """Short name that distinguishes the daemon and bridge of this cache from those of others."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:8]

    @property
    def bin(self) -> Path:
        """Links to the host's tools: kind, kubectl, helm."""
        return self.root / "bin"

    @property
    def built(self) -> Path:
        """Completed cache entries, one folder or file per key."""
        return self.root / "built"

    @property
    def logs(self) -> Path:
        """Logs of builds, kept until the next build of the same thing."""
        return self.root / "logs"

    @property
    def work(self) -> Path:
        """Incomplete builds; anything here while no build runs is a leftover."""
        return self.root / "work"

    @property
    def locks(self) -> Path:
        """Lock files."""
        return self.root / "locks"

    @property
    def docker(self) -> Path:
        """Data, configuration and log of the project's own Docker daemon."""
        return self.root / "docker"

    @property
    def docker_run(self) -> Path:
        """Sockets and pid files of that daemon."""
        nearby = self.docker / "run"
        if len(str(nearby)) <= LONGEST_RUN_FOLDER:
            return nearby
        return Path("/run") / f"perdure-{self.identity}"

    @property
    def buildah(self) -> Path:
        """Image store of buildah."""
        return self.root / "buildah"

    @property
    def clusters(self) -> Path:
        """One folder per cluster."""
        return self.root / "clusters"

    def cluster(self, name: str) -> ClusterFolder:
        """Files of one cluster."""
        return ClusterFolder(self.clusters / name)
