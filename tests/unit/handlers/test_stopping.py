"""Connections and readiness of a stopping operator."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from support.ports import free_port

PATIENCE = 60
"""Seconds after which the test fails."""
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: none
clusters: [{{name: none, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: none, user: {{}}}}]
contexts: [{{name: none, context: {{cluster: none, user: none}}}}]
"""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return False
    return True


def why_unready(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def test_a_stopping_operator_rejects_connections_and_is_not_ready(tmp_path: Path) -> None:
    temporal, health, log = free_port(), free_port(), tmp_path / "operator.log"
    (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(port=free_port()))  # of an API server that does not answer
    environment = {
        **os.environ,
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "PERDURE_HTTP_PORT": str(health),
        "PERDURE_TEMPORAL_ADDRESS": f"127.0.0.1:{temporal}",
        "PERDURE_TEMPORAL_AUTHENTICATION": "None",
        "PERDURE_LINGER_SECONDS": "600",
    }
    program = [sys.executable, "-c", "from perdure.handlers.main import main; main()"]
    with log.open("wb") as output:
        process = subprocess.Popen(program, env=environment, stdout=output, stderr=output)
    try:
        until(lambda: is_open(temporal))
        process.send_signal(signal.SIGTERM)
        until(lambda: not is_open(temporal))
        assert why_unready(health) == "this operator is shutting down"
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
