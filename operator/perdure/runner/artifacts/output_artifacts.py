"""Upload the output artifacts of an activity. This is a sidecar that Kubernetes stops after the activity's container has ended.

$PERDURE_OUTPUTS          the artifacts to upload: a JSON list with `name`, `path`, and perhaps `optional` and the `key` of a copy
$PERDURE_OUTPUTS_FOLDER   the folder that the paths are relative to
$PERDURE_NAMESPACE, $PERDURE_RUN_ID, $PERDURE_EVENT, $PERDURE_ATTEMPT   the attempt, which determines the keys
$PERDURE_KEPT             set if the artifacts are kept after the run is deleted
$PERDURE_STORE_…          the artifact store
$PERDURE_STOP_FILE        exists when the activity's container has ended: the kernel drops a SIGTERM that comes too early

Its termination message lists the stored artifacts: `{"at": …, "files": {name: [bytes, SHA-256, archive]}}`, where `at` is the
prefix of the keys. If an artifact cannot be stored, it is `{"error": {"type": …, "message": …}}`.
"""

import hashlib
import json
import os
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from perdure.api.names import artifact_file, artifact_folder
from perdure.runner.artifacts.errors import ArtifactError
from perdure.runner.artifacts.packing import open_within, packed, pieces
from perdure.runner.artifacts.store import ArtifactStore

_LOOK_SECONDS: Final = 0.25
_LONGEST: Final = 900
"""Maximum length of an error, in characters."""


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
    outputs = Outputs(Path(environ["PERDURE_OUTPUTS_FOLDER"]), ArtifactStore(environ), at)
    files: dict[str, Any] = {}
    for artifact in json.loads(environ["PERDURE_OUTPUTS"]):
        stored = outputs.upload(artifact)
        if stored is not None:
            files[artifact["name"]] = stored
            sys.stdout.write(f"artifact `{artifact['name']}`: {stored[0]} bytes are stored at {at}/\n")
    return {"at": at, "files": files}


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Wait until the activity's container has ended, upload its artifacts, and return the exit code."""
    stop = Path(environ["PERDURE_STOP_FILE"])
    while not (signal.sigtimedwait({signal.SIGTERM}, _LOOK_SECONDS) or stop.exists()):
        pass
    code = 0
    try:
        report = uploaded(environ)
    except ArtifactError as error:
        sys.stderr.write(f"{error}\n")
        report, code = {"error": {"type": error.kind, "message": str(error)[:_LONGEST]}}, 1
    text = json.dumps(report, ensure_ascii=False, separators=(",", ":"))
    Path(environ["PERDURE_TERMINATION_LOG"]).write_text(text, encoding="utf-8")
    return code


if __name__ == "__main__":
    # The signal is blocked, so that it does not end the program if it arrives before the wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.exit(main())
