"""The copy of the log of an activity's container, in a volume that the container can write. Its content is untrusted."""

import ctypes
import os
import stat
import zlib
from pathlib import Path
from typing import IO, Final

from perdure.runner.artifacts.errors import ArtifactError
from perdure.runner.artifacts.packing import open_within

LIMIT: Final = 10 * 1024 * 1024
"""How much of the end of a log is stored, in bytes."""
_FILE: Final = "log"
_BLOCK: Final = 512
_PIECE: Final = 64 * 1024
_GZIP: Final = 31
_KEEP_SIZE_AND_PUNCH_HOLE: Final = 3
_CUT: Final = b"(earlier lines are not archived)\n"


class LogCopy:
    """Keeps the end of the file on the disk, and reads it when the container has ended."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        """`folder`: the volume. `limit`: how much of the end is read, in bytes."""
        self._folder = folder
        self._limit = limit
        self._emptied = False

    def trim(self) -> None:
        """Release the disk space of the beginning of a long log. The container still appends to the file."""
        try:
            file = os.open(self._folder / _FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # it does not exist yet, or it is not the file that the container should write
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_blocks * _BLOCK <= 2 * self._limit:
                return
            if not _punch_hole(file, found.st_size - self._limit):
                os.ftruncate(file, 0)
                self._emptied = True
        finally:
            os.close(file)

    def packed(self) -> bytes:
        """Return the end of the log, compressed by gzip, in whole lines.

        Raises:
            ArtifactError: The log does not exist.
        """
        try:
            descriptor = open_within(self._folder, _FILE)
        except OSError as error:
            raise ArtifactError(f"the container has left no copy of its log: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ArtifactError("the copy of the log is not a file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return self._packed(file)
        finally:
            os.close(descriptor)

    def _packed(self, file: IO[bytes]) -> bytes:
        start = max(0, os.fstat(file.fileno()).st_size - self._limit)
        packer = zlib.compressobj(wbits=_GZIP)
        parts = []
        if start or self._emptied:
            file.seek(start)
            file.readline(_PIECE)  # the rest of a line
            parts.append(packer.compress(_CUT))
        left = self._limit
        while left > 0 and (piece := file.read(min(_PIECE, left))):
            left -= len(piece)
            parts.append(packer.compress(piece))
        return b"".join([*parts, packer.flush()])


def _punch_hole(file: int, length: int) -> bool:
    """Release the disk space of the beginning of a file, which then reads as zeros; return False if the disk cannot do that."""
    allocate = ctypes.CDLL(None, use_errno=True).fallocate
    allocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(allocate(file, _KEEP_SIZE_AND_PUNCH_HOLE, 0, length) == 0)
