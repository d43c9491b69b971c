"""Archives whose bytes depend on nothing but their content: sorted, with one time and one owner."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

_COMPRESSION = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder, or symbolic link in an archive."""

    name: str
    """Its path, without a leading ``/`` or ``./``."""
    content: bytes | Path = b""
    """The content of a file, or the file that has it."""
    mode: int = 0o644
    link: str = ""
    """Target of a symbolic link."""
    folder: bool = False

    def member(self, epoch: int) -> tarfile.TarInfo:
        """Return its header."""
        made = tarfile.TarInfo(self.name)
        made.mtime, made.mode = epoch, self.mode
        if self.link:
            made.type, made.linkname, made.mode = tarfile.SYMTYPE, self.link, 0o777
        elif self.folder:
            made.type = tarfile.DIRTYPE
        else:
            made.size = len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size
        return made


def entries(root: Path, prefix: str = "") -> list[Entry]:
    """List a folder, everything below it, and the folders above it in the archive.

    Args:
        root: The folder.
        prefix: Its path in the archive, such as ``venv/lib``; empty for the root of the archive.
    """
    parts = prefix.split("/") if prefix else []
    found = [Entry("/".join(parts[: depth + 1]), mode=0o755, folder=True) for depth in range(len(parts))]
    for path in root.rglob("*"):
        name = "/".join((*parts, path.relative_to(root).as_posix()))
        if path.is_symlink():
            found.append(Entry(name, link=str(path.readlink())))
        elif path.is_dir():
            found.append(Entry(name, mode=0o755, folder=True))
        else:
            found.append(Entry(name, path, 0o755 if path.stat().st_mode & 0o100 else 0o644))
    return found


def write_tar(content: Iterable[Entry], epoch: int, output: IO[bytes] | gzip.GzipFile) -> None:
    """Write entries as an uncompressed archive. Of entries with the same name, the last one counts."""
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for _, entry in sorted({entry.name: entry for entry in content}.items()):
            member = entry.member(epoch)
            if not member.isreg():
                archive.addfile(member)
            elif isinstance(entry.content, bytes):
                archive.addfile(member, io.BytesIO(entry.content))
            else:
                with entry.content.open("rb") as file:
                    archive.addfile(member, file)


def write_tar_gz(content: Iterable[Entry], epoch: int, target: Path) -> str:
    """Write entries as a compressed archive.

    Returns:
        The SHA-256 digest of the archive before its compression, in hex.
    """
    with target.open("wb") as file, gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as compressed:
        write_tar(content, epoch, compressed)
    with gzip.open(target) as uncompressed:
        return hashlib.file_digest(uncompressed, "sha256").hexdigest()


def below(folder: str, content: Iterable[Entry]) -> list[Entry]:
    """Move entries into a folder."""
    return [replace(entry, name=f"{folder}/{entry.name}") for entry in content]


def sha256(file: Path) -> str:
    """Return the digest of a file, in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
