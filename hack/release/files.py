"""Archives whose bytes depend on nothing but their content: sorted, with one time and one owner."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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


def write_tar(content: Iterable[Entry], epoch: int, output: "IO[bytes] | _Hashed") -> None:
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


class Digests(NamedTuple):
    """The SHA-256 digests of a compressed archive, in hex."""

    uncompressed: str
    compressed: str


class _Hashed(io.RawIOBase):
    """Passes on what is written, and hashes it."""

    def __init__(self, output: IO[bytes] | gzip.GzipFile) -> None:
        self._output = output
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: "ReadableBuffer") -> int:
        """Write bytes."""
        self.digest.update(content)
        return self._output.write(content)


def write_tar_gz(content: Iterable[Entry], epoch: int, target: Path) -> Digests:
    """Write entries as a compressed archive."""
    with target.open("wb") as file:
        compressed = _Hashed(file)
        with gzip.GzipFile("", "wb", _COMPRESSION, compressed, mtime=0) as output:
            uncompressed = _Hashed(output)
            write_tar(content, epoch, uncompressed)
    return Digests(uncompressed.digest.hexdigest(), compressed.digest.hexdigest())


def below(folder: str, content: Iterable[Entry]) -> list[Entry]:
    """Move entries into a folder."""
    return [replace(entry, name=f"{folder}/{entry.name}") for entry in content]


def sha256(file: Path) -> str:
    """Return the digest of a file, in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
