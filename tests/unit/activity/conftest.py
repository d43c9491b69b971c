"""A small API server on loopback that knows one Lease, and pods' environments that point to it."""

import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.activity._context import Context
from support.threads import join

SOURCE = Path(perdure.__file__).parent.parent
PATH = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/order-42-5-2"


class ApiServer:
    """Answers PATCH of one Lease as the API server would, after the `answers` that a test wants first."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] = {"metadata": {"annotations": {}}, "spec": {}}
        self.requests: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.answers: list[int] = []
        """Statuses of refusals to give before anything passes; 0 closes the connection without an answer."""
        self.always: int | None = None
        """The status of a refusal that stays."""
        self.close_after_answer = False
        self.changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_port
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.01), daemon=True)

    def start(self, context: ssl.SSLContext | None = None) -> None:
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            join(self._thread)
        self._server.server_close()

    @property
    def annotations(self) -> dict[str, str]:
        return self.lease["metadata"]["annotations"]

    def wait_for(self, what: Callable[[], bool], timeout: float = 10) -> None:
        with self.changed:
            assert self.changed.wait_for(what, timeout), "it did not happen in time"

    def _patch(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self.changed:
            self.requests.append(body)
            self.changed.notify_all()
            status = self.answers.pop(0) if self.answers else self.always
            if status is not None and status != 200:
                return status, {"kind": "Status", "message": f"refused with {status}"}
            for name, value in body.get("metadata", {}).get("annotations", {}).items():
                if value is None:
                    self.annotations.pop(name, None)
                else:
                    self.annotations[name] = value
            self.lease["spec"] |= body.get("spec", {})
            return 200, self.lease

    def _handler(outer) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler's below
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PATCH(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == PATH
                assert self.headers["Content-Type"] == "application/merge-patch+json"
                outer.tokens.append(self.headers["Authorization"])
                status, answer = outer._patch(body)
                if status == 0:
                    self.close_connection = True
                    return
                payload = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)
                # Without `Connection: close`: as a load balancer that drops idle connections.
                self.close_connection = outer.close_after_answer

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler


class FakeClock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Pod:
    """The environment of an activity's container, and processes and contexts in it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.message_file = folder / "termination-log"
        self.token_file = folder / "token"
        self.token_file.write_text("secret-1\n")
        self.environ = {
            "PERDURE_NAMESPACE": "shop",
            "PERDURE_RUN": "order-42",
            "PERDURE_RUN_ID": "uid-42",
            "PERDURE_WORKFLOW_ID": "order",
            "PERDURE_ACTIVITY": "charge",
            "PERDURE_ACTIVITY_ID": "5",
            "PERDURE_ATTEMPT": "2",
            "PERDURE_INPUT": '{"amount": 12}',
            "PERDURE_TERMINATION_LOG": str(self.message_file),
            "PERDURE_API_SERVER": f"http://127.0.0.1:{port}",
            "PERDURE_SERVICE_ACCOUNT_DIRECTORY": str(folder),
        }
        self._contexts: list[Context] = []

    def with_lease(self, heartbeat_timeout: float | None = 60, *, large: bool = False) -> "Pod":
        self.environ["PERDURE_LEASE"] = "order-42-5-2"
        if heartbeat_timeout:
            self.environ["PERDURE_HEARTBEAT_TIMEOUT"] = str(heartbeat_timeout)
        if large:
            self.environ |= {"PERDURE_RESULT_SIZE": "Large", "PERDURE_RESULT_LIMIT": str(252 * 1024)}
        return self

    def context(self, clock: Callable[[], float] = time.monotonic, **environ: str) -> Context:
        context = Context(self.environ | environ, clock)
        self._contexts.append(context)
        return context

    def heartbeats(self, clock: Callable[[], float] | None = None) -> Any:
        found = self.context(clock=clock or time.monotonic).heartbeats
        assert found is not None
        return found

    @property
    def message(self) -> Any:
        return json.loads(self.message_file.read_text())

    def start(self, script: str, **environ: str) -> subprocess.Popen[str]:
        """Run a script as a pod's container would, with nothing but the standard library and the helper."""
        prologue = f"import sys; sys.path.insert(0, {str(SOURCE)!r})\nfrom perdure import activity\n"
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", prologue + script],
            env={"PATH": "/usr/bin:/bin", **self.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
        process = self.start(script, **environ)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def close(self) -> None:
        for context in self._contexts:
            if context.heartbeats is not None:
                context.heartbeats.close()


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def pod(tmp_path: Path, api: ApiServer) -> Iterator[Pod]:
    made = Pod(tmp_path, api.port)
    yield made
    made.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tls_api(tmp_path: Path) -> Iterator[ApiServer]:
    """The same over TLS, with a certificate authority in the pod's folder as a pod has it."""
    openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "ca.crt")]
    names = ["-days", "2", "-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*openssl, *files, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.crt", tmp_path / "key.pem")
    server = ApiServer()
    server.start(context)
    yield server
    server.stop()


@pytest.fixture
def make_now() -> datetime:
    return datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
