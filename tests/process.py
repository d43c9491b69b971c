"""The operator as a process of this machine, so that a kill hits at the very instant."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kube import Cluster


@contextmanager
def operator(cluster: Cluster, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An operator as a process, killed with -9 at the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PERDURE_HTTP_PORT": str(port)}
    program = [sys.executable, "-c", "from perdure.handlers.main import main; main()"]
    with log.open("ab") as output:
        process = subprocess.Popen(program, env=environment, stdout=output, stderr=output)
    try:
        cluster.wait("the operator to begin", lambda: process.poll() is not None or is_ready(port), seconds=300)
        assert process.poll() is None, log.read_text()[-4000:]
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
