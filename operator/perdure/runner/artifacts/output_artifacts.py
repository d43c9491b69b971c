"""Upload the output artifacts and the log of an activity when Kubernetes stops this sidecar.

Kubernetes sends SIGTERM to sidecars after the other containers have ended, also if the pod is deleted. Only then are the outputs
complete. The container must start with SIGTERM blocked: the kernel drops one that comes before the program can wait for it.

$PERDURE_OUTPUTS          the artifacts to upload: a JSON list with `name`, `path`, and perhaps `optional` and the `key` of a copy
$PERDURE_OUTPUTS_FOLDER   the folder that the paths are relative to
$PERDURE_NAMESPACE, $PERDURE_RUN_ID, $PERDURE_EVENT, $PERDURE_ATTEMPT   the attempt, which determines the keys
$PERDURE_KEPT             set if the artifacts are kept after the run is deleted
$PERDURE_LOG_FOLDER       the folder with the copy of the log; not set if it is not archived
$PERDURE_STORE_…          the artifact store

Its termination message lists the stored artifacts: `{"at": …, "files": {name: [bytes, SHA-256, archive]}}`, where `at` is the
prefix of the keys. With an archived log, it also has `{"log": [key, bytes, SHA-256]}`; a log that cannot be stored is only
reported in the log of this container. If an artifact cannot be stored, it is `{"error": {"type": …, "message": …}}`.

The copy of the log is in a volume that the container of the activity can write. Its content is untrusted, as that of the outputs.
"""

import ctypes
import hashlib
import io
import json
import os
import signal
import stat
import sys
import zlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Final

from perdure.api.names import artifact_file, artifact_folder, log_key
from perdure.runner.artifacts.archives import open_within, packed, pieces
from perdure.runner.artifacts.programs import ArtifactError
from perdure.runner.artifacts.store import ArtifactStore

LIMIT: Final = 10 * 1024 * 1024
"""How much of the end of a log is stored, in bytes."""
_LOG_FILE: Final = "log"
_BLOCK: Final = 512
_LOG_PIECE: Final = 64 * 1024
_GZIP: Final = 31
_KEEP_SIZE_AND_PUNCH_HOLE: Final = 3
_CUT: Final = b"(earlier lines are not archived)\n"

_TRIM_SECONDS: Final = 0.25
_LOG_PATIENCE: Final = timedelta(seconds=20)
"""How long the upload of the log is retried if the store does not respond."""
_LONGEST: Final = 900
"""Maximum length of an error, in characters."""


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
            file = os.open(self._folder / _LOG_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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
            descriptor = open_within(self._folder, _LOG_FILE)
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
            file.readline(_LOG_PIECE)  # the rest of a line
            parts.append(packer.compress(_CUT))
        left = self._limit
        while left > 0 and (piece := file.read(min(_LOG_PIECE, left))):
            left -= len(piece)
            parts.append(packer.compress(piece))
        return b"".join([*parts, packer.flush()])


def _punch_hole(file: int, length: int) -> bool:
    """Release the disk space of the beginning of a file, which then reads as zeros; return False if the disk cannot do that."""
    allocate = ctypes.CDLL(None, use_errno=True).fallocate
    allocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(allocate(file, _KEEP_SIZE_AND_PUNCH_HOLE, 0, length) == 0)


class _Hashed:
    """Counts the bytes that pass, and computes their hash."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source = source
        self._digest = hashlib.sha256()
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._source:
            self._digest.update(piece)
            self.size += len(piece)
            yield piece

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class Outputs:
    """Uploads artifacts from a folder."""

    def __init__(self, folder: Path, store: ArtifactStore, at: str) -> None:
        """`folder`: the folder that the paths are relative to. `at`: the prefix of the keys."""
        self._folder = folder
        self._store = store
        self._at = at

    def upload(self, artifact: Mapping[str, Any]) -> list[Any] | None:
        """Upload one artifact.

        Returns:
            Its size in bytes, its SHA-256, and its archive format; None if an optional artifact does not exist.

        Raises:
            ArtifactError: The artifact cannot be uploaded.
        """
        name, path = artifact["name"], artifact["path"]
        try:
            try:
                found = open_within(self._folder, path)
            except (FileNotFoundError, NotADirectoryError) as error:
                if artifact.get("optional"):
                    return None
                raise ArtifactError(
                    f"the container has ended, and `{path}` does not exist", "ArtifactMissing"
                ) from error
            try:
                return self._send(name, found, artifact.get("key"))
            finally:
                os.close(found)
        except ArtifactError as error:
            raise ArtifactError(f"artifact `{name}`: {error}", error.kind) from error
        except OSError as error:
            raise ArtifactError(f"artifact `{name}`: `{path}`: {error}") from error

    def _send(self, name: str, found: int, copy: str | None) -> list[Any]:
        mode = os.fstat(found).st_mode
        if stat.S_ISDIR(mode):
            archive, content = "Tar", _Hashed(packed(found))
        elif stat.S_ISREG(mode):
            archive, content = "None", _Hashed(pieces(os.fdopen(found, "rb", closefd=False)))
        else:
            raise ArtifactError("it is not a file or a folder")
        key = f"{self._at}/{artifact_file(name, archive)}"
        self._store.upload(key, iter(content))
        if copy is not None:
            self._store.copy(key, copy)
        return [content.size, content.sha256, archive]


def uploaded(environ: Mapping[str, str]) -> dict[str, Any]:
    """Upload all artifacts, and return the list of stored artifacts for the operator.

    Raises:
        ArtifactError: An artifact cannot be uploaded.
    """
    folder = artifact_folder(
        environ["PERDURE_NAMESPACE"], environ["PERDURE_RUN_ID"], kept=bool(environ.get("PERDURE_KEPT"))
    )
    at = f"{folder}/{environ['PERDURE_EVENT']}-{environ['PERDURE_ATTEMPT']}"
    wanted, files = json.loads(environ["PERDURE_OUTPUTS"]), dict[str, Any]()
    if wanted:
        outputs = Outputs(Path(environ["PERDURE_OUTPUTS_FOLDER"]), ArtifactStore(environ), at)
        for artifact in wanted:
            stored = outputs.upload(artifact)
            if stored is not None:
                files[artifact["name"]] = stored
                sys.stdout.write(f"artifact `{artifact['name']}`: {stored[0]} bytes are stored at {at}/\n")
    return {"at": at, "files": files}


def archived(log: LogCopy, environ: Mapping[str, str], *, patience: timedelta = _LOG_PATIENCE) -> dict[str, Any]:
    """Store the log, and return what to report about it; nothing if that is not possible.

    Args:
        log: The copy of the log.
        environ: The attempt, and the artifact store.
        patience: How long a request is retried if the store does not respond.
    """
    names = ("PERDURE_NAMESPACE", "PERDURE_RUN_ID", "PERDURE_EVENT", "PERDURE_ATTEMPT")
    key = log_key(*(environ[name] for name in names))
    try:
        content = log.packed()
        ArtifactStore(environ, patience=patience).upload(key, pieces(io.BytesIO(content)))
    except (ArtifactError, OSError) as error:
        sys.stderr.write(f"the log is not archived: {error}\n")
        return {}
    sys.stdout.write(f"the log is archived: {len(content)} bytes are stored at {key}\n")
    return {"log": [key, len(content), hashlib.sha256(content).hexdigest()]}


def await_end(log: LogCopy | None) -> None:
    """Wait until the activity's container has ended.

    Args:
        log: The copy of the log, which is trimmed meanwhile; None if it is not archived.
    """
    if log is None:
        signal.sigwait({signal.SIGTERM})
        return
    while not signal.sigtimedwait({signal.SIGTERM}, _TRIM_SECONDS):
        log.trim()


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Wait until the activity's container has ended, upload its artifacts, and return the exit code."""
    log = LogCopy(Path(environ["PERDURE_LOG_FOLDER"])) if environ.get("PERDURE_LOG_FOLDER") else None
    await_end(log)
    about_log, code = archived(log, environ) if log is not None else {}, 0
    try:
        report = uploaded(environ) | about_log
    except ArtifactError as error:
        sys.stderr.write(f"{error}\n")
        report, code = {"error": {"type": error.kind, "message": str(error)[:_LONGEST]}}, 1
    text = json.dumps(report, ensure_ascii=False, separators=(",", ":"))
    Path(environ["PERDURE_TERMINATION_LOG"]).write_text(text, encoding="utf-8")
    return code


if __name__ == "__main__":
    # A process that is not the first one of a container would be ended by the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.exit(main())
