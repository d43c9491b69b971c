"""The rules of the cache: keys by content, atomic entries, locks.

A later build must not mistake the leftovers of a killed build for a completed entry. So an
entry is created in ``work/`` and renamed as the last step, and anything in ``work/`` is a
leftover if the caller holds the build lock.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.console import say

KEY_LENGTH = 16


def fingerprint(*, files: Iterable[Path] = (), words: Iterable[str] = ()) -> str:
    """Hash files (by name and content) and words into a cache key."""
    digest = hashlib.sha256()

    def add(part: bytes) -> None:
        # Each part has its length in front, so that no two lists of parts have the same bytes.
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)

    for file in sorted(files):
        add(file.name.encode())
        add(b"x" if os.access(file, os.X_OK) else b"-")
        add(file.read_bytes())
    for word in words:
        add(word.encode())
    return digest.hexdigest()[:KEY_LENGTH]


def files_below(folder: Path) -> list[Path]:
    """Return all files of a folder, for a fingerprint."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


@contextmanager
def locked(lock: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock file; print a message if another process holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with lock.open("a") as handle:
        try:
            fcntl.flock(handle, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Waiting for another run to finish ({lock}) …")
            fcntl.flock(handle, mode)
        yield


@contextmanager
def locked_if_free(lock: Path) -> Iterator[bool]:
    """Try to lock a file exclusively, and return whether that succeeded."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def ensure_entry(entry: Path, work: Path, make: Callable[[Path], None]) -> Path:
    """Return a cache entry, and create it first if it does not exist.

    ``make`` gets a path that does not exist yet, and creates a file or a folder there.
    """
    if entry.exists():
        return entry
    entry.parent.mkdir(parents=True, exist_ok=True)
    with work_folder(work, entry.name) as folder:
        draft = folder / entry.name
        make(draft)
        draft.rename(entry)
    return entry


@contextmanager
def work_folder(work: Path, name: str) -> Iterator[Path]:
    """Create a folder for an incomplete entry, and remove it afterwards."""
    work.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))
    # mkdtemp makes it private, but its content may become a root folder.
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_atomically(path: Path, text: str) -> None:
    """Replace the content of a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.rename(path)
