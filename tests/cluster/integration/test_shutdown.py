"""An operator stops immediately on a signal."""

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.kube.paths import WATCHED
from support.cluster.namespace import Cluster
from support.ports import free_port

pytestmark = pytest.mark.cluster


WATCHES = len(WATCHED) + 1
"""Of the one namespace: each kind that the operator watches, and the pods of runs."""


def test_a_signal_ends_the_operator_without_waiting_for_tasks_that_hang(namespace: Cluster, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "operator.log"
    environment = {
        **os.environ,
        "KUBECONFIG": str(namespace.kubeconfig),
        "PERDURE_HTTP_PORT": str(port),
        "PERDURE_WATCH_NAMESPACES": namespace.namespace,
        "PERDURE_LOG_LEVEL": "debug",
    }
    program = [sys.executable, "-c", "from perdure.handlers.main import main; main()"]
    with log.open("wb") as output:
        process = subprocess.Popen(program, env=environment, stdout=output, stderr=output)
    try:

        def ready() -> http.client.HTTPConnection | None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            try:
                connection.request("GET", "/readyz")
                return connection if connection.getresponse().status == 200 else None
            except OSError:
                return None

        namespace.wait("its watches to run", lambda: log.read_text().count("Starting the watch-stream") == WATCHES)
        # A client that would keep its connection, as Prometheus does.
        kept = namespace.wait("the operator to be ready", ready)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        kept.close()
    finally:
        process.kill()
        process.wait()
    reported = log.read_text()
    assert "Signal SIGTERM is received" in reported
    assert "Hung tasks stopping is skipped: no tasks given" in reported
