"""The root file system of the image: Debian packages, unpacked for any architecture without executing anything of them.

So it lacks what their scripts do when a package is installed; `base` adds the parts that the image needs.
"""

import os
import re
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import commands, debian
from cluster.errors import ClusterError
from cluster.paths import Cache
from release.files import Entry, sha256
from release.source import Source

PACKAGES = (
    *(
        "base-files",
        "bash",
        "ca-certificates",
        "coreutils",
        "dash",
        "findutils",
        "grep",
        "gzip",
        "mawk",
        "netbase",
        "sed",
        "tar",
    ),
    *("libstdc++6", "python-is-python3", "python3"),
)
"""What an image "with a shell and Python" has; their dependencies come with them."""

_LICENSE_NAME = re.compile(r"[\w.+/-]+(,? (and|or|with) [\w.+/-]+( exception)?)*")
_NEEDED = re.compile(r"Shared library: \[(.+)\]")
_MERGED_USR = "/usr/share/mmdebstrap/hooks/merged-usr"
_DEBS = "var/cache/apt/archives/"
_LEFT_OUT = (
    *(f"usr/share/{name}/" for name in ("bug", "info", "lintian", "locale", "man", "menu", "pixmaps", "doc-base")),
    *("usr/share/bash-completion/", "usr/share/debconf/", "usr/share/perl5/", "usr/lib/valgrind/"),
    *("var/cache/", "var/lib/apt/", "var/lib/dpkg/", "var/log/", "etc/apt/", "dev/", "proc/", "sys/", "run/"),
)
_DOCUMENTATION = "usr/share/doc/"
_PACKAGE_DEPTH = 3
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    "perdure:x:65532:65532:Perdure:/tmp:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\nperdure:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
"""Files that the scripts of base-passwd and base-files write, and the user of the image."""


@dataclass(frozen=True, slots=True)
class Deb:
    """A Debian package."""

    name: str
    version: str
    architecture: str
    sha256: str
    control: str
    """Its control file."""
    licenses: tuple[str, ...] = ()
    """The licenses that its copyright file names."""


@dataclass(frozen=True, slots=True)
class Root:
    """A root file system."""

    folder: Path
    debs: tuple[Deb, ...]


def unpack(cache: Cache, source: Source, architecture: str, work: Path) -> Root:
    """Download and unpack the packages."""
    debian.require_packages({"mmdebstrap": "mmdebstrap", "readelf": "binutils"}, cache.logs / "apt.log")
    archive, log = work / f"debian-{architecture}.tar", cache.logs / f"release-{architecture}-root.log"
    options = (
        *("--variant=extract", "--skip=cleanup/apt", f"--hook-dir={_MERGED_USR}"),
        *(f"--architectures={architecture}", f"--include={','.join(PACKAGES)}"),
    )
    debian.bootstrap(options, archive, log, suite=debian.PYTHON_SUITE, epoch=source.epoch)
    folder = work / f"debian-{architecture}"
    with tarfile.open(archive) as files:
        files.extractall(folder, [each for each in files if not each.isdev()], filter="tar")
    archive.unlink()
    debs = tuple(sorted((_read(file, folder) for file in (folder / _DEBS).glob("*.deb")), key=lambda deb: deb.name))
    if {deb.name for deb in debs}.isdisjoint(PACKAGES):
        raise ClusterError(f"mmdebstrap has left no packages in /{_DEBS}")
    return Root(folder, debs)


def _read(file: Path, root: Path) -> Deb:
    control = commands.capture(["dpkg-deb", "--field", str(file)])
    fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line and not line.startswith(" "))
    name = fields["Package"]
    return Deb(name, fields["Version"], fields["Architecture"], sha256(file), control, _licenses(root, name))


def _licenses(root: Path, package: str) -> tuple[str, ...]:
    """Read the names of licenses in a machine-readable copyright file."""
    file = root / _DOCUMENTATION / package / "copyright"
    if not file.is_file():
        return ()
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    names = (line.removeprefix("License:").strip() for line in lines if line.startswith("License:"))
    return tuple(sorted({name for name in names if _LICENSE_NAME.fullmatch(name)}))


def base(root: Root, content: list[Entry]) -> list[Entry]:
    """Select the files of the lowest layer, and add what the scripts of the packages would have created.

    Args:
        root: The unpacked packages.
        content: Everything in its folder.
    """
    kept = [entry for entry in content if not f"{entry.name}/".startswith(_LEFT_OUT) and _is_needed(entry.name)]
    kept += [Entry(name, mode=0o755, folder=True) for name in ("dev", "proc", "run", "sys", "var/lib/dpkg/status.d")]
    kept += [Entry("tmp", mode=0o1777, folder=True), Entry("var/tmp", mode=0o1777, folder=True)]
    kept += [Entry(name, text.encode()) for name, text in _ACCOUNTS.items()]
    # What vulnerability scanners read, in the form of images without dpkg.
    kept += [Entry(f"var/lib/dpkg/status.d/{deb.name}", f"{deb.control.rstrip()}\n".encode()) for deb in root.debs]
    certificates = sorted((root.folder / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = "".join(file.read_text(encoding="ascii") for file in certificates)
    return [*kept, Entry("etc/ssl/certs/ca-certificates.crt", bundle.encode())]


def _is_needed(name: str) -> bool:
    """Whether a file is more than documentation. The copyright files are the licenses of the packages."""
    return not name.startswith(_DOCUMENTATION) or name.endswith("/copyright") or name.count("/") == _PACKAGE_DEPTH


def check_libraries(root: Root, site: Path) -> None:
    """Check that the image has each library that an extension module needs: for another architecture, nothing else shows it.

    Raises:
        ClusterError: A library is missing.
    """
    modules = [file for file in site.rglob("*") if file.is_file() and re.search(r"\.so(\.|$)", file.name)]
    found = commands.capture(["readelf", "--dynamic", *map(str, modules)])
    folders = [root.folder / "usr/lib", *(root.folder / "usr/lib").glob("*-linux-gnu")]
    existing = {file.name for folder in folders for file in folder.iterdir()} | {file.name for file in modules}
    if missing := sorted(set(_NEEDED.findall(found)) - existing):
        raise ClusterError(
            f"Modules need {', '.join(missing)}: add the Debian package to PACKAGES in hack/release/debian.py"
        )


def compile_library(python: Sequence[str], root: Path, prefix: str, *, epoch: int) -> None:
    """Compile the modules in a folder to bytecode that does not depend on times, for a read-only file system.

    Args:
        python: The beginning of a command: Python of the same version.
        root: The folder.
        prefix: Its path in the image.
        epoch: The time of the files.
    """
    # -P: otherwise, Python would import modules of this folder, and leave bytecode with the path of the build.
    command = [*python, "-P", "-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash"]
    subprocess.run(
        [
            *command,
            "-s",
            str(root),
            "-p",
            prefix,
            "-x",
            "/(test|tests|idlelib)/|bad_coding|badsyntax",
            str(root),
        ],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"},
        cwd=root,
        check=True,
    )
