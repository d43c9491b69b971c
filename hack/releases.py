"""Earlier releases, for tests of upgrades: their source and their image, in the cache.

A release is built from its commit by its own scripts, so its image is what it was.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cluster import commands
from cluster.console import stage
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from cluster.store import ensure_entry

FILE = REPOSITORY / "hack" / "releases.txt"


@dataclass(frozen=True, slots=True)
class Release:
    """A release, and the commit that it was built from."""

    version: str
    commit: str

    @property
    def image(self) -> str:
        """Name of its image."""
        return f"localhost/perdure:{self.version}-{self.commit[:12]}"


def releases(text: str = "") -> list[Release]:
    """The releases in `hack/releases.txt`, or in a text of its form, the newest first."""
    lines = (text or FILE.read_text(encoding="utf-8")).splitlines()
    return [Release(*line.split()) for line in lines if line and not line.startswith("#")]


def source(cache: Cache, release: Release) -> Path:
    """The folder with the source of a release.

    Raises:
        ClusterError: This clone does not have its commit.
    """

    def make(draft: Path) -> None:
        draft.mkdir()
        tar = draft / ".tar"
        try:
            commands.capture(["git", "-C", str(REPOSITORY), "archive", f"--output={tar}", release.commit])
        except ClusterError as error:
            message = f"This clone does not have the commit of {release.version}: git fetch --unshallow ({error})"
            raise ClusterError(message) from error
        commands.capture(["tar", "-C", str(draft), "-xf", str(tar)])
        tar.unlink()

    return ensure_entry(cache.built / f"release-{release.commit[:12]}", cache.work, make)


def image(cache: Cache, release: Release) -> Path:
    """The archive with the image of a release, built by its own scripts.

    Raises:
        ClusterError: It cannot be built.
    """
    archive = cache.built / f"release-{release.commit[:12]}.tar"
    if archive.exists():
        return archive
    scripts, draft = source(cache, release) / "hack" / "cluster", archive.with_suffix(f".{os.getpid()}")
    command = [sys.executable, str(scripts), "image", f"--tag={release.image}", f"--out={draft}"]
    with stage(f"build {release.image}"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"{release.version} cannot be built:\n{commands.tail(done.stdout + done.stderr)}")
    draft.rename(archive)
    return archive
