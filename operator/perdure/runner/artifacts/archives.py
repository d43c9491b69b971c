"""Archives of folders. Their content is untrusted: nothing is read or written through a link that leads out of a folder."""

import errno
import gzip
import os
import posixpath
import shutil
import stat
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO, Final

from perdure.runner.artifacts.programs import ArtifactError

PIECE: Final = 8 * 1024 * 1024
"""Size of a part of an upload, in bytes. S3 accepts 10,000 parts, which is 78 GiB."""
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags for reading. Non-blocking, so that opening a pipe without a writer does not hang."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FAST: Final = 1


def open_within(root: Path, path: str) -> int:
    """Open a file or folder below a folder without following links, and return the descriptor.

    Raises:
        FileNotFoundError: The path does not exist.
        ArtifactError: The path is a link, or contains one.
    """
    found = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in path.strip("/").split("/"):
        folder = found
        try:
            found = os.open(part, _READ, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ArtifactError(f"`{path}` is a symbolic link, or in one") from error
            raise
        finally:
            os.close(folder)
    return found


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a file in pieces of `PIECE` bytes."""
    while piece := file.read(PIECE):
        yield piece


def packed(folder: int) -> Iterator[bytes]:
    """Yield a folder as a gzipped tar archive, in pieces of `PIECE` bytes. The same files give the same bytes.

    Args:
        folder: The descriptor of the folder.

    Raises:
        ArtifactError: The folder contains something other than files, folders, and links within the folder.
        OSError: A file cannot be read.
    """
    readable, writable = os.pipe()
    failures: list[Exception] = []

    def write() -> None:
        try:
            with (
                os.fdopen(writable, "wb") as file,
                gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_FAST, mtime=0) as packer,
                tarfile.open(fileobj=packer, mode="w|") as tar,
            ):
                _add_all(tar, folder)
        except (OSError, ArtifactError) as error:
            failures.append(error)

    thread = Thread(target=write, daemon=True)
    thread.start()
    try:
        with os.fdopen(readable, "rb") as file:
            yield from pieces(file)
    finally:
        thread.join()  # it ends with the pipe
    if failures:
        raise failures[0]


def _add_all(tar: tarfile.TarFile, folder: int) -> None:
    for root, folders, files, at in os.fwalk(".", dir_fd=folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            _add(tar, posixpath.normpath(f"{root}/{name}"), name, at)


def _add(tar: tarfile.TarFile, path: str, name: str, folder: int) -> None:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    member = tarfile.TarInfo(path)
    member.mtime, member.mode = int(found.st_mtime), stat.S_IMODE(found.st_mode) & 0o755
    if stat.S_ISDIR(found.st_mode):
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    elif stat.S_ISLNK(found.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder)
        if _leads_out(path, member.linkname):
            raise ArtifactError(f"the link `{path}` leads out of the folder, to `{member.linkname}`")
        tar.addfile(member)
    else:
        with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
            opened = os.fstat(file.fileno())
            if not stat.S_ISREG(opened.st_mode):
                raise ArtifactError(f"`{path}` is not a file, a folder, or a link")
            member.size = opened.st_size
            tar.addfile(member, file)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive, compressed or not, into a folder.

    Raises:
        ArtifactError: A member would be outside of the folder, or is not a file, folder, or link.
        tarfile.TarError, EOFError, OSError: The archive is invalid or incomplete.
    """
    root = os.open(folder, _FOLDER)
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                try:
                    _extract(tar, member, root)
                except OSError as error:
                    if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                        raise
                    raise ArtifactError(f"`{member.name}` in the archive is in a link or a file") from error
    finally:
        os.close(root)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, root: int) -> None:
    """Extract one member. Folders are opened one by one, so that no link is followed."""
    *parents, name = _parts(member.name) or ["."]
    at = _make_folders(root, parents)
    try:
        if member.isdir():
            os.close(_make_folders(at, [] if name == "." else [name]))
            return
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=at)
        if member.isreg():
            with os.fdopen(os.open(name, _WRITE, 0o600, dir_fd=at), "wb") as file:
                content = tar.extractfile(member)
                assert content is not None, "it is a regular file"
                shutil.copyfileobj(content, file)
                os.fchmod(file.fileno(), (member.mode & 0o755) | 0o644)
        elif member.issym():
            if _leads_out("/".join([*parents, name]), member.linkname):
                raise ArtifactError(f"the link `{member.name}` in the archive leads out of it, to `{member.linkname}`")
            os.symlink(member.linkname, name, dir_fd=at)
        elif member.islnk():
            *others, original = _parts(member.linkname) or ["."]
            source = _make_folders(root, others)
            try:
                os.link(original, name, src_dir_fd=source, dst_dir_fd=at, follow_symlinks=False)
            finally:
                os.close(source)
        else:
            raise ArtifactError(f"`{member.name}` in the archive is not a file, a folder, or a link")
    finally:
        os.close(at)


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts:
        raise ArtifactError(f"the archive contains `{path}`, which is not a path within it")
    return parts


def _make_folders(root: int, parts: Sequence[str]) -> int:
    """Open a folder below another one, and create missing folders."""
    found = os.dup(root)
    for part in parts:
        above = found
        try:
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=above)
            found = os.open(part, _FOLDER, dir_fd=above)
        finally:
            os.close(above)
    return found


def _leads_out(path: str, target: str) -> bool:
    """Whether a link leads out of the folder that its path is relative to."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return posixpath.isabs(target) or found.split("/")[0] == ".."
