"""The source of a release: the files of one commit, stamped with the version and the commit."""

import re
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from subprocess import run

from cluster import commands
from cluster.errors import ClusterError
from version import SOURCE, declared_version


@dataclass(frozen=True, slots=True)
class Source:
    """An exported commit."""

    folder: Path
    """Its files."""
    version: str
    """Such as ``0.1.0``, or ``0.1.0-dev.g1a2b3c4d5e6f`` for a development build: a semantic version, and the tag of the image."""
    commit: str
    epoch: int
    """Time of the commit, in seconds since 1970: the time of all files in all artifacts."""

    @property
    def python_version(self) -> str:
        """The version in Python's form."""
        return self.version.replace("-dev.g", ".dev0+g")


def export(repository: Path, version: str, target: Path) -> Source:
    """Export a commit and stamp it.

    Args:
        repository: The checkout.
        version: The version to release; empty for a development build, which also has uncommitted changes of tracked files.
        target: The folder to write to; it must not exist.

    Raises:
        ClusterError: The checkout is not that of a release commit of the version. The message says what to do.
    """
    declared = declared_version(repository)
    commit = _git(repository, "rev-parse", "HEAD")
    tree = commit
    if version:
        _check_release(repository, version, declared, commit)
    else:
        tree = _git(repository, "stash", "create", "development build") or commit
    archive = run(["git", "archive", "--format=tar", tree], cwd=repository, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(target, filter="tar")
    full = version or f"{declared}-dev.g{commit[:12]}"
    _stamp(target / SOURCE, commit, released=bool(version))
    return Source(target, full, commit, int(_git(repository, "show", "--no-patch", "--format=%ct", commit)))


def _check_release(repository: Path, version: str, declared: str, commit: str) -> None:
    if version != declared:
        raise ClusterError(
            f"This commit declares version {declared}. Run `make version VERSION={version}` and commit the result, or release "
            f"{declared}."
        )
    if changed := _git(repository, "status", "--porcelain"):
        raise ClusterError(f"A release is made of a commit, but these files differ from it:\n{changed}")
    tagged = run(
        ["git", "rev-parse", "--verify", "--quiet", f"refs/tags/v{version}^{{commit}}"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    if tagged not in {"", commit}:
        raise ClusterError(
            f"The tag v{version} is another commit, {tagged[:12]}. Check it out, or release a later version."
        )


def _stamp(file: Path, commit: str, *, released: bool) -> None:
    text = file.read_text(encoding="utf-8")
    text, first = re.subn(r"^RELEASED = False$", f"RELEASED = {released}", text, flags=re.MULTILINE)
    text, second = re.subn(r"^REVISION = .+$", f'REVISION = "{commit}"', text, flags=re.MULTILINE)
    if (first, second) != (1, 1):
        raise ClusterError(f"{SOURCE} must have one line `RELEASED = False` and one `REVISION = …`")
    file.write_text(re.sub(r"^import os\n\n", "", text, flags=re.MULTILINE), encoding="utf-8")


def _git(repository: Path, *arguments: str) -> str:
    return commands.capture(["git", "-C", str(repository), *arguments]).strip()
