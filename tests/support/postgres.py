"""A PostgreSQL server of Debian's package, in a folder of its own, that tests stop, kill, and start again."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster import debian
from cluster.paths import Cache
from cluster.store import locked
from support.ports import free_port

_START_SECONDS = 60.0
_PACKAGES = {"postgres": "postgresql"}


def programs() -> Path:
    """The folder of the server's programs. If they are missing, Debian's package is installed."""
    if not _found():
        cache = Cache.from_environment(os.environ)
        cache.logs.mkdir(parents=True, exist_ok=True)
        with locked(cache.locks / "build"):
            debian.require_packages(_PACKAGES, cache.logs / "apt.log")
    folder = _found()
    assert folder is not None, "install PostgreSQL: its programs initdb and postgres are not found"
    return folder


def _found() -> Path | None:
    """The newest installed version; Debian does not put the server's programs on the PATH."""
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(re.sub(r"\D", "", path.parts[4]) or 0)
    )
    on_path = shutil.which("initdb")
    if installed:
        return installed[-1].parent
    return Path(on_path).resolve().parent if on_path else None


@dataclass
class PostgresServer:
    """A server on a loopback port. It refuses to run as root, so root runs it as the user `nobody`."""

    folder: Path
    port: int
    _running: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def conninfo(self) -> str:
        """How to connect to it."""
        return f"postgresql://perdure@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        """Create its files."""
        if os.geteuid() == 0:
            os.chown(self.folder, _NOBODY, _NOBODY)
        made = [programs() / "initdb", "--auth=trust", "--username=perdure", "--encoding=UTF8", "--locale=C.UTF-8"]
        subprocess.run(
            [*AS_NOBODY, *made, "--no-sync", f"--pgdata={self.folder / 'data'}"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
        )

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 40,
        }
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        log = self.folder / "log"
        with log.open("ab") as output:
            self._running = subprocess.Popen(
                [*AS_NOBODY, programs() / "postgres", "-D", self.folder / "data", *options],
                stdout=output,
                stderr=output,
                cwd=self.folder,
            )
        deadline = time.monotonic() + _START_SECONDS
        ready = [programs() / "pg_isready", "--quiet", "--host=127.0.0.1", f"--port={self.port}"]
        while subprocess.run(ready, check=False).returncode != 0:
            if self._running.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"PostgreSQL does not start: {log.read_text()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it, and end its connections."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it like a lost node: nothing is written any more."""
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        if self._running is not None:
            self._running.send_signal(number)
            self._running.wait(_START_SECONDS)
            self._running = None

    def statement(self, text: str) -> str:
        """Execute a statement, and return its result."""
        command = [programs() / "psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", self.conninfo]
        done = subprocess.run([*command, "--command", text], check=True, capture_output=True, text=True)
        return done.stdout.strip()


_NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """Run a server within the block."""
    with TemporaryDirectory(prefix="perdure-postgres-") as folder:  # the server's user cannot enter pytest's folders
        server = PostgresServer(Path(folder), free_port())
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
