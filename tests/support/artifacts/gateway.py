"""An S3 server, built from hack/node-image/versitygw into the project's cache: the files of a folder are its objects."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.paths import Cache
from cluster.tools import ensure_tools

BUCKET = "files"
_KEY, _SECRET = "ours", "not-a-secret"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Gateway:
    """A server that runs."""

    port: int
    folder: Path
    """Its objects."""

    @property
    def environ(self) -> dict[str, str]:
        """The variables for the programs of Perdure."""
        return {
            "PERDURE_STORE_BUCKET": BUCKET,
            "PERDURE_STORE_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "PERDURE_STORE_REGION": "us-east-1",
            "PERDURE_STORE_PREFIX": "team/a",
            "PERDURE_STORE_ACCESS_KEY_ID": _KEY,
            "PERDURE_STORE_SECRET_ACCESS_KEY": _SECRET,
        }

    def object(self, key: str) -> Path:
        """The file of an object."""
        return self.folder / BUCKET / "team" / "a" / key


def program() -> Path:
    """The server's program."""
    cache = Cache.from_environment(os.environ)
    return ensure_tools(cache, ("versitygw",)) / "versitygw"


@contextmanager
def serving(folder: Path, port: int) -> Iterator[Gateway]:
    """Run a server over a folder until the end of the block."""
    (folder / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").mkdir(exist_ok=True)
    command = [program(), "--access", _KEY, "--secret", _SECRET, "--port", f"127.0.0.1:{port}", "--quiet"]
    command += ["posix", "--sidecar", folder / "metadata", folder / "objects"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        try:
            _await(port, running, folder / "log")
            yield Gateway(port, folder / "objects")
        finally:
            running.kill()


def _await(port: int, running: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if running.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the S3 server does not start: {log.read_text()}")
