"""`perdure query`, `update`, and `stack`: the command line against the operator on an API server in memory."""

import json
import ssl
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog
import trustme
from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from support.apiserver import ApiServer, serving
from support.cli import perdure_in_thread
from support.operator import OPEN, in_memory
from support.ports import free_port
from support.threads import join

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"
APPROVAL = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "approval"},
    "spec": {"steps": [{"name": "wait", "waitForSignal": {"name": "decided"}}]},
}


@workflow.defn(sandboxed=False)
class Cart:
    """Holds items until it is paid."""

    def __init__(self) -> None:
        self.items = ["lamp"]
        self.paid = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self.paid)
        return self.items

    @workflow.query
    def contents(self, prefix: str = "", count: int = 9) -> list[str]:
        return [item for item in self.items if item.startswith(prefix)][:count]

    @workflow.update
    def add(self, item: str, note: dict[str, Any] | None = None) -> str:
        if item == "piano":
            raise ApplicationError("a piano does not fit")
        self.items.append(item)
        return f"{len(self.items)} items {note or ''}".strip()

    @workflow.signal
    def pay(self) -> None:
        self.paid = True


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Keep the audit log of the frontend out of the output of the command: both are in this process."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.configure(**before)


@pytest.fixture(scope="module")
def served(quiet: None) -> Iterator[tuple[str, str]]:  # noqa: ARG001
    """The addresses of a frontend: for SDKs, and of the HTTP API."""
    port = free_port()
    settings = replace(OPEN, http_address=f"127.0.0.1:{port}")
    with in_memory(namespace="shop", settings=settings, objects=[APPROVAL]) as found:
        yield found.address, f"http://127.0.0.1:{port}"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """The cluster of the kubeconfig, with the runs that a test adds."""
    with serving(tmp_path, monkeypatch) as api:
        yield api


async def cart(client: Client, name: str) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow(Cart.run, id=name, task_queue="carts")


async def test_workflows_in_code_answer_queries_and_updates(served: tuple[str, str], server: ApiServer) -> None:
    client = await Client.connect(served[0], namespace="shop")
    at = ("--address", served[1])
    async with Worker(client, task_queue="carts", workflows=[Cart]):
        handle = await cart(client, "cart/7")
        meta = {"name": "cart-run", "namespace": "shop", "uid": handle.result_run_id}
        server.answers[f"{RUNS}/cart-run"] = {"metadata": meta, "spec": {"workflowId": "cart/7"}}

        done = await perdure_in_thread("update", "-w", "cart/7", "add", "chair", '{"color": "red"}', *at)
        assert (done.exit_code, done.stdout) == (0, "2 items {'color': 'red'}\n"), done.output
        done = await perdure_in_thread("query", "cart-run", "contents", *at)
        assert (done.exit_code, json.loads(done.stdout)) == (0, ["lamp", "chair"]), done.output
        done = await perdure_in_thread("query", "cart-run", "contents", "l", "1", "-o", "yaml", *at)
        assert done.stdout == "- lamp\n"

        done = await perdure_in_thread("stack", "cart-run", *at)
        assert done.exit_code == 0, done.output
        assert "_run_top_level_workflow_function" in done.stdout  # the SDK shows the outermost frame of each coroutine

        done = await perdure_in_thread("update", "cart-run", "add", "piano", *at)
        assert (done.exit_code, done.stderr) == (1, "Error: the update failed: a piano does not fit\n")
        done = await perdure_in_thread("query", "cart-run", "nonsense", *at)
        assert done.exit_code == 1
        assert "nonsense" in done.stderr
        for _ in range(2):
            done = await perdure_in_thread("update", "cart-run", "add", "rug", "--update-id", "one", *at)
            assert done.stdout == "3 items\n"

        await handle.signal(Cart.pay)
        await handle.result()
        done = await perdure_in_thread("query", "cart-run", "contents", *at)
        assert json.loads(done.stdout) == ["lamp", "chair", "rug"]
        done = await perdure_in_thread("query", "-w", "cart/8", "contents", *at)
        assert done.exit_code == 2
        assert "`perdure list` shows the runs" in done.stderr


@pytest.mark.usefixtures("server")
async def test_an_update_without_a_worker_times_out(served: tuple[str, str]) -> None:
    client = await Client.connect(served[0], namespace="shop")
    await cart(client, "alone")
    done = await perdure_in_thread("update", "-w", "alone", "add", "rug", "--timeout", "1s", "--address", served[1])
    assert done.exit_code == 124, done.output


@pytest.mark.usefixtures("server")
async def test_workflows_in_yaml_answer_queries(served: tuple[str, str]) -> None:
    client = await Client.connect(served[0], namespace="shop")
    await client.start_workflow("approval", id="a-1", task_queue="workflows")
    at = ("--address", served[1])
    done = await perdure_in_thread("stack", "-w", "a-1", *at)
    assert (done.exit_code, done.stdout) == (0, "at wait (waitForSignal decided)\n    signal decided\n"), done.output
    done = await perdure_in_thread("query", "-w", "a-1", "steps", "--output", "json", *at)
    assert [step["status"] for step in json.loads(done.stdout)] == ["Waiting"]
    done = await perdure_in_thread("update", "-w", "a-1", "approve", *at)
    assert done.exit_code == 1, done.output


# --- The way to the frontend ------------------------------------------------------------------------------------------


class Frontend(BaseHTTPRequestHandler):
    """Answers every query with the headers of the request."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        data = json.dumps({"queryResult": [[self.headers["Authorization"], self.path]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def frontend(tmp_path: Path, server: ApiServer) -> Iterator[int]:
    """The port of a frontend with TLS for `localhost`, and its CA as the operator publishes it."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    http = ThreadingHTTPServer(("127.0.0.1", 0), Frontend)
    http.socket = context.wrap_socket(http.socket, server_side=True)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    server.answers["/api/v1/namespaces/shop/configmaps/perdure-temporal-ca"] = {
        "metadata": {"name": "perdure-temporal-ca"},
        "data": {"ca.crt": authority.cert_pem.bytes().decode()},
    }
    server.answers["/api/v1/namespaces/system/services/perdure-temporal"] = {
        "spec": {"ports": [{"name": "http-api", "port": 7243, "appProtocol": "https"}]}
    }
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        f'#!/bin/sh\necho "$*" > {tmp_path}/call\necho "Forwarding from 127.0.0.1:{http.server_port}"\nexec sleep 60'
    )
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    try:
        yield http.server_port
    finally:
        http.shutdown()
        join(thread)
        http.server_close()


QUERY = ("query", "-w", "order 7", "status", "--system-namespace", "system")


@pytest.mark.usefixtures("frontend")
async def test_requests_go_through_a_port_forward_with_the_options_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    kubeconfig = tmp_path / "kubeconfig"
    done = await perdure_in_thread(
        *QUERY, "--token", "t0ken", "--as", "ada", "--as-group=a", "--kubeconfig", str(kubeconfig)
    )
    assert done.exit_code == 0, done.output
    path = "/api/v1/namespaces/shop/workflows/order%207/query/status"
    assert json.loads(done.stdout) == ["Bearer t0ken", path]
    assert (tmp_path / "call").read_text().split() == [
        *("port-forward", "--as=ada", "--as-group=a", f"--kubeconfig={kubeconfig}", "--token=t0ken"),
        *("--namespace=system", "--address=127.0.0.1", "service/perdure-temporal", ":7243"),
    ]


async def test_an_https_address_is_verified_with_its_certificate(frontend: int) -> None:
    done = await perdure_in_thread(*QUERY, "--token", "t", "--address", f"localhost:{frontend}")
    assert json.loads(done.stdout)[0] == "Bearer t", done.output
    done = await perdure_in_thread(*QUERY, "--token", "t", "--address", f"127.0.0.1:{frontend}")
    assert done.exit_code == 2
    assert "certificate" in done.stderr


async def test_a_token_is_not_sent_without_tls(server: ApiServer) -> None:
    done = await perdure_in_thread(*QUERY, "--token", "t", "--address", "http://frontend.example")
    assert done.exit_code == 2
    assert "use https://" in done.stderr
    assert not server.asked


async def test_a_missing_frontend_is_an_error(server: ApiServer) -> None:
    done = await perdure_in_thread(*QUERY, "--token", "t")
    assert done.exit_code == 2
    assert "there is no Service `perdure-temporal` in namespace `system`: set `temporal.enabled`" in done.stderr
    server.answers["/api/v1/namespaces/system/services/perdure-temporal"] = {"spec": {"ports": [{"name": "grpc"}]}}
    done = await perdure_in_thread(*QUERY, "--token", "t")
    assert "set `temporal.httpApi.enabled`" in done.stderr
    server.answers["/api/v1/namespaces/system/services/perdure-temporal"] = {
        "spec": {"ports": [{"name": "http-api", "port": 7243, "appProtocol": "https"}]}
    }
    done = await perdure_in_thread(*QUERY)
    assert "--service-account" in done.stderr
