"""The real operator as a process of this machine, against a real API server, for tests that speak Temporal to it.

It runs here and not in the cluster so that a kill hits at the very instant, and because a client needs a way in.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kube import Cluster


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@dataclass
class Operator:
    """One operator, and the namespace that it serves."""

    cluster: Cluster
    log: Path
    port: int = field(default_factory=free_port)
    health: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    options: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def namespace(self) -> str:
        return self.cluster.namespace

    def start(self) -> None:
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "PERDURE_HTTP_PORT": str(self.health),
            "PERDURE_WATCH_NAMESPACES": self.namespace,
            "PERDURE_TEMPORAL_ADDRESS": self.address,
            "PERDURE_TEMPORAL_AUTHENTICATION": "None",
            **self.options,
        }
        program = [sys.executable, "-c", "from perdure.handlers.main import main; main()"]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(program, env=environment, stdout=output, stderr=output)
        deadline = time.monotonic() + 120
        while not self._is_ready():
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9, at this very instant."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        self.kill()
        self.start()


@contextmanager
def serving(cluster: Cluster, log: Path, **options: str) -> Iterator[Operator]:
    """An operator with a namespace of its own, both gone at the end of the block; no other operator runs meanwhile."""
    name = f"sdk-{secrets.token_hex(4)}"
    cluster("create", "namespace", name)
    operator = Operator(Cluster(cluster.kubectl, cluster.kubeconfig, name), log, options=options)
    try:
        with cluster.operator_down():
            operator.start()
            try:
                yield operator
            finally:
                operator.kill()
    finally:
        cluster("delete", "namespace", name, "--wait=false")
