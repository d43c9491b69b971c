"""Temporal's own server, built from hack/node-image/temporal into the project's cache."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cluster import gobuild
from cluster.paths import Cache
from cluster.store import locked
from support.ports import free_port
from support.temporal import Server

SWITCHED_ON = (
    "frontend.enableBatchOperationsForStandaloneActivities=true",
    "history.enableStandaloneActivityOperatorCommands=true",
    "history.enableUpdateCallbacks=true",
)
"""Settings of the server that is recorded: what it serves only with them, Perdure always serves."""


def _program() -> Path:
    cache = Cache.from_environment(os.environ)
    with locked(cache.locks / f"build-{gobuild.TEMPORAL.name}"):
        return gobuild.build(cache, gobuild.TEMPORAL) / "temporal"


@contextmanager
def temporal_server(*dynamic_config: str) -> Iterator[Server]:
    """A server with a namespace of its own, in memory, on loopback ports; gone at the end of the block.

    Args:
        dynamic_config: Settings of the server, as `name=value` with a value in YAML.
    """
    with subprocess.Popen(
        [_program(), *dynamic_config], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            address, namespace, http_address = running.stdout.readline().split()
            yield Server(address, namespace, http_address=http_address)
        finally:
            running.stdin.close()  # it ends with that


@dataclass
class DurableServer:
    """A server whose state is in a file, so that it can be killed and started again."""

    file: Path
    """The file, which it creates."""
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(4)])
    program: Path = field(default_factory=_program)
    namespace: str = ""
    _process: "subprocess.Popen[str] | None" = None

    @property
    def address(self) -> str:
        """Where SDKs connect to."""
        return f"127.0.0.1:{self.ports[0]}"

    @contextmanager
    def running(self) -> Iterator["DurableServer"]:
        """Run it, and kill it at the end of the block."""
        try:
            self.start()
            yield self
        finally:
            self.kill()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        command = [self.program, "-file", str(self.file), "-ports", ",".join(map(str, self.ports))]
        self._process = process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        _, self.namespace = process.stdout.readline().split()

    def kill(self) -> None:
        """kill -9, at this very instant."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()
