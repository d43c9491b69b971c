"""The image's Python, on a machine that has another one: commands in the root file system that the image is built on.

They see /tmp and some other folders of the machine at the same paths.
"""

from collections.abc import Sequence
from pathlib import Path

from cluster import commands, debian, nodeimage
from cluster.paths import Cache
from cluster.store import ensure_entry

NAME = f"python{debian.PYTHON}"
"""The command."""

_ENTER = """
root=$1 folder=$PWD
shift
mount --rbind /tmp "$root/tmp"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
  mkdir -p "$root$1"
  mount --rbind "$1" "$root$1"
  shift
done
shift
exec chroot "$root" sh -c 'cd "$1" && shift && exec "$@"' enter "$folder" "$@"
"""
"""Mounts folders below a root and runs a command in it. The mounts end with the sandbox."""


def prefix(cache: Cache, folders: Sequence[Path]) -> list[str]:
    """Return what to write before a command so that it runs in the root file system.

    Args:
        cache: The cache of the cluster scripts.
        folders: The folders that the command reads and writes. One of them must be or have its working directory.
    """
    root = _ensure_root(cache)
    return [*commands.SANDBOX, "bash", "-euc", _ENTER, "enter", str(root), *map(str, folders), "--"]


def _ensure_root(cache: Cache) -> Path:
    """Return the folder with the unpacked root file system."""
    debian.require_packages({"mmdebstrap": "mmdebstrap"}, cache.logs / "apt.log")
    archive = nodeimage.python_base(cache)

    def make(draft: Path) -> None:
        draft.mkdir()
        commands.capture(["tar", "-C", str(draft), "-xf", str(archive)])

    return ensure_entry(cache.built / archive.stem, cache.work, make)
