"""The cache's rules: keys by content, entries that are whole or absent, locks.

A killed build must leave nothing that a later one takes for finished. So an entry is
made under ``work/`` and renamed to its place as the last step, and everything found
under ``work/`` by a holder of the build lock is a leftover.
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
        # With its length in front, no two lists of parts run together to the same bytes.
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
    """All files of a folder, for a fingerprint."""
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
    """Try to hold a lock file alone; say whether that worked."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def ensure_entry(entry: Path, work: Path, make: Callable[[Path], None]) -> Path:
    """Return a cache entry, making it first if it is not there.

    ``make`` is given a path that does not exist yet and leaves a file or a folder there.
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
    """Make a folder for half-made things and remove it afterwards."""
    work.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))
    # mkdtemp keeps others out, but what is laid out inside may become a root folder.
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.rename(path)
