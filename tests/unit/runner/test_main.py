"""The process in the pod of an HTTP request."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perdure.api.kinds.workflow import Http
from unit.runner.attempt import ENVIRONMENT


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ok" else 503)
        self.send_header("Retry-After", "17")
        self.end_headers()
        self.wfile.write(b'{"path": "%s"}' % self.path.encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(30)


def perform(folder: Path, url: str) -> tuple[int, Any]:
    """Run the process for a request: its exit code, and its termination message."""
    work = {"http": Http.parse({"url": url, "output": "${response.body.path + ' ' + input.id}"}).dump()}
    (folder / "work.json").write_text(json.dumps(work))
    log = folder / "termination-log"
    variables = {
        **ENVIRONMENT,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PERDURE_INPUT": '{"id": "7"}',
        "PERDURE_TERMINATION_LOG": str(log),
        "PERDURE_WORK_FILE": str(folder / "work.json"),
    }
    command = [sys.executable, "-m", "perdure.runner"]
    done = subprocess.run(command, env=variables, timeout=120, check=False, capture_output=True)
    return done.returncode, json.loads(log.read_text())


def test_the_result_is_the_termination_message(server: str, tmp_path: Path) -> None:
    assert perform(tmp_path, f"{server}/ok") == (0, "/ok 7")


def test_a_failure_contains_the_retry_delay(server: str, tmp_path: Path) -> None:
    code, message = perform(tmp_path, f"{server}/busy")
    assert code == 1
    wanted = {
        "type": "Http503",
        "message": f'GET {server}/busy: 503 Service Unavailable: {{"path":"/busy"}}',
        "details": {"status": 503},
        "nextRetryDelay": "17.000000s",
    }
    assert {name: message["error"].get(name) for name in wanted} == wanted
