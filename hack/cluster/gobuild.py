"""Build programs from Go modules, each with its own go.mod in this project."""

import os
import platform
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cluster import commands, debian
from cluster.console import stage
from cluster.errors import ClusterError
from cluster.paths import NODE_IMAGE, REPOSITORY, Cache
from cluster.store import ensure_entry, fingerprint

GO_VERSION = (1, 26)

FLAGS = ("-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")
"""No debug information is compiled: the linker would drop it (-s -w) anyway."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program to build from one folder, by default of ``hack/node-image``."""

    name: str
    """Name of the folder, and of the binary unless the target makes several."""
    module: str
    """Module whose version in go.mod is this program's version."""
    target: str = "tool"
    """Package to build; ``tool`` means every tool in go.mod, ``.`` the main package of the folder."""
    modules: str = "go"
    """Name of the files with the modules, without their extensions ``.mod`` and ``.sum``."""
    tags: tuple[str, ...] = ()
    cgo: bool = False
    libraries: tuple[str, ...] = ()
    """Debian packages that cgo needs."""
    stamps: tuple[str, ...] = ()
    """Variables for the version: ``{version}`` is ``v1.2.3``, ``{major}`` and so on."""
    parent: Path = NODE_IMAGE
    """Folder that has the folder of the program."""

    @property
    def folder(self) -> Path:
        """Folder with go.mod."""
        return self.parent / self.name

    @property
    def version(self) -> str:
        """Version in go.mod, for example ``v1.36.3``."""
        return self.required(self.module)

    def required(self, module: str) -> str:
        """Version of a module that go.mod requires."""
        return required_version((self.folder / f"{self.modules}.mod").read_text(), module)

    def linker_flags(self) -> str:
        """Flags that drop the symbol table and stamp the version."""
        major, minor, _ = self.version.removeprefix("v").split(".", 2)
        values = {"version": self.version, "major": major, "minor": minor}
        stamps = [f"-X {stamp.format(**values)}" for stamp in self.stamps]
        return " ".join(["-s -w", *stamps])

    def command(self, output: str) -> list[str]:
        """Build the ``go build`` command."""
        tags = [f"-tags={','.join(self.tags)}"] if self.tags else []
        file = [] if self.modules == "go" else [f"-modfile={self.modules}.mod"]
        flags = [*FLAGS, *file, *tags, f"-ldflags={self.linker_flags()}"]
        return ["go", "build", "-v", *flags, "-o", output, self.target]

    def key(self) -> str:
        """Cache key: sources and flags, but not the Go that compiles them."""
        modules = [self.folder / f"{self.modules}{suffix}" for suffix in (".mod", ".sum")]
        sources = [*modules, *self.folder.glob("*.go")]
        words = [*self.command("out"), f"cgo={self.cgo}", platform.machine()]
        return fingerprint(files=sources, words=words)


KUBERNETES = GoProgram(
    "kubernetes",
    "k8s.io/kubernetes",
    target=".",
    stamps=tuple(
        f"{package}.{variable}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for variable in (
            "gitVersion={version}",
            "gitMajor={major}",
            "gitMinor={minor}",
            "gitCommit=unknown",
            "gitTreeState=clean",
        )
    ),
)
OTHER_KUBERNETES = tuple(
    replace(KUBERNETES, modules=file.stem) for file in sorted(KUBERNETES.folder.glob("[0-9]*.mod"))
)
"""Other minor versions of Kubernetes, in order; ``add-version.sh`` next to them adds one."""


def kubernetes(minor: str) -> GoProgram:
    """A minor version of Kubernetes, such as ``1.32``; the default one if it is empty."""
    found = {each.version.removeprefix("v").rpartition(".")[0]: each for each in (KUBERNETES, *OTHER_KUBERNETES)}
    if minor and minor not in found:
        raise ClusterError(f"KUBERNETES={minor} must be one of {', '.join(sorted(found))}")
    return found[minor] if minor else KUBERNETES


def admission(minor: str) -> GoProgram:
    """The validation of manifests by a minor version of Kubernetes (``hack/admission``); the default one if it is empty."""
    chosen = kubernetes(minor)
    modules = f"../node-image/{chosen.name}/{chosen.modules}"
    return GoProgram("admission", chosen.module, target=".", modules=modules, parent=REPOSITORY / "hack")


CONTAINERD = GoProgram(
    "containerd",
    "github.com/containerd/containerd/v2",
    tags=("no_btrfs", "no_devmapper", "no_zfs"),
    stamps=("github.com/containerd/containerd/v2/version.Version={version}",),
)
RUNC = GoProgram(
    "runc",
    "github.com/opencontainers/runc",
    tags=("seccomp",),
    cgo=True,
    libraries=("libseccomp-dev", "libc6-dev"),
)
CRICTL = GoProgram(
    "crictl",
    "sigs.k8s.io/cri-tools",
    stamps=("sigs.k8s.io/cri-tools/pkg/version.Version={version}",),
)
COREDNS = GoProgram("coredns", "github.com/coredns/coredns", target=".")
KIND = GoProgram("kind", "sigs.k8s.io/kind")
HELM = GoProgram("helm", "helm.sh/helm/v4", stamps=("helm.sh/helm/v4/internal/version.version={version}",))
KWOK = GoProgram("kwok", "sigs.k8s.io/kwok")
TEMPORAL = GoProgram("temporal", "go.temporal.io/server", target=".")
UI = GoProgram("ui", "github.com/temporalio/ui-server/v2")
ARGO = GoProgram("argo", "github.com/argoproj/argo-workflows/v4")
"""Argo's workflow-controller, which the importer is compared with (``tests/fidelity/argo``)."""
TEKTON = GoProgram("tekton", "github.com/tektoncd/pipeline")
"""Tekton's controller, in the same way (``tests/fidelity/tekton``)."""
VERSITYGW = GoProgram("versitygw", "github.com/versity/versitygw")
ETCD_TOOLS = GoProgram("etcd", "go.etcd.io/etcd/etcdutl/v3")
"""etcdctl and etcdutl, which save and restore a snapshot."""
REGISTRY = GoProgram(
    "registry",
    "github.com/distribution/distribution/v3",
    stamps=("github.com/distribution/distribution/v3/version.version={version}",),
)

NODE_PROGRAMS = (CONTAINERD, RUNC, CRICTL, COREDNS)
"""The programs of a node apart from Kubernetes."""


def required_version(go_mod: str, module: str) -> str:
    """Version of a module that a go.mod requires."""
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if not match:
        raise ClusterError(f"go.mod does not require {module}")
    return match[1]


def build(cache: Cache, program: GoProgram) -> Path:
    """Return the folder with the binaries of a program, and build them if necessary."""
    entry = cache.built / f"{program.name}-{program.key()}"
    log = cache.logs / f"{program.name}.log"

    def make(draft: Path) -> None:
        require_go()
        if program.cgo:
            debian.require_packages(
                debian.RUNC_PACKAGES | {"gcc": "gcc"},
                cache.logs / "apt.log",
                libraries=program.libraries,
            )
        draft.mkdir()
        with stage(f"{program.name} {program.version}: go build") as current:
            current.progress = packages_compiled(log)
            commands.run_logged(
                [*commands.DIE_WITH_ME, *program.command(f"{draft}/")],
                log,
                environment={**os.environ, "CGO_ENABLED": "1" if program.cgo else "0"},
                folder=program.folder,
            )

    return ensure_entry(entry, cache.work, make)


def packages_compiled(log: Path) -> Callable[[], str]:
    """Return the progress of ``go build -v`` from its log: one line per package."""

    def progress() -> str:
        try:
            lines = log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        compiled = sum(not line.startswith("go: ") for line in lines)
        return f"{compiled} packages compiled" if compiled else f"{len(lines)} modules downloaded"

    return progress


def require_go() -> None:
    """Check that the installed Go can build these modules."""
    need = ".".join(map(str, GO_VERSION))
    if not shutil.which("go"):
        raise ClusterError(f"Go {need} or later is needed to build this: https://go.dev/dl/")
    # Go 1.21 and later downloads the toolchain that go.mod requires, unless this is disabled.
    found = commands.capture(["go", "env", "GOVERSION"], timeout=30).strip()
    local_only = commands.capture(["go", "env", "GOTOOLCHAIN"]).strip() == "local"
    version = tuple(map(int, re.findall(r"\d+", found)[:2]))
    if version < GO_VERSION and (local_only or version < (1, 21)):
        raise ClusterError(f"Go {need} or later is needed, {found} is installed")


def module_folder(program: GoProgram) -> Path:
    """Folder of a program's module in Go's module cache."""
    script = 'cd "$1" && go mod download -modfile="$2" "$3" && go list -modfile="$2" -m -f "{{.Dir}}" "$3"'
    words = (str(program.folder), f"{program.modules}.mod", program.module)
    return Path(commands.capture(["bash", "-c", script, "module-folder", *words]).strip())
