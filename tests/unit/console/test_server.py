"""`perdure-console`: each request acts with the token that it brings, and with nothing else."""

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
import pytest
from starlette.types import ASGIApp

from perdure.console.app import console
from perdure.console.server import application, listener, serve_app
from perdure.console.site import ConsoleSettings, TokenAccess
from perdure.kube.access import Access
from support.console import limit

TOKENS = {"Bearer of-ada": "shop", "Bearer of-eve": "shop"}
"""The namespaces that users may read."""
WRITERS = {"Bearer of-ada"}
"""Those who may also create objects."""


@pytest.fixture
def api() -> Iterator[tuple[str, list[str | None]]]:
    """An API server that knows one user; its address, and the tokens that it has seen."""
    tokens: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers.get("Authorization"))
            allowed = TOKENS.get(self.headers.get("Authorization", ""))
            if allowed is None:
                self.reply(401, {"reason": "Unauthorized", "message": "Unauthorized"})
            elif f"/namespaces/{allowed}/" not in self.path:
                self.reply(403, {"reason": "Forbidden", "message": f"ada cannot get {self.path}"})
            else:
                self.reply(200, {"metadata": {}, "items": [limit()]})

        def do_POST(self) -> None:
            tokens.append(self.headers.get("Authorization"))
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Authorization") in WRITERS:
                self.reply(201, json.loads(body))
            else:
                self.reply(403, {"reason": "Forbidden", "message": f"the user cannot create {self.path}"})

        def reply(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}", tokens
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serve_app(app, listener), aiohttp.ClientSession() as session:
            yield session, f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_the_token_of_the_user_determines_what_is_shown(api: tuple[str, list[str | None]]) -> None:
    address, tokens = api
    settings = ConsoleSettings(namespace="shop", system_namespace="perdure-system", web_ui="")
    async with serving(console(TokenAccess(Access(server=address)), settings)) as (session, origin):

        async def get(namespace: str, token: str | None) -> tuple[int, str]:
            headers = {"Authorization": token} if token else {}
            async with session.get(f"{origin}/namespaces/{namespace}/limits", headers=headers) as answer:
                return answer.status, await answer.text()

        status, page = await get("shop", "Bearer of-ada")
        assert status == 200
        assert "one-per-customer" in page
        for namespace, token, expected in (
            ("billing", "Bearer of-ada", 403),
            ("shop", "Bearer of-bob", 401),
            ("shop", None, 401),
            ("shop", "Bearer ", 401),
            ("shop", "Basic YWRhOmE=", 401),
        ):
            status, page = await get(namespace, token)
            assert status == expected
            assert "one-per-customer" not in page
    assert tokens == ["Bearer of-ada", "Bearer of-ada", "Bearer of-bob"]


async def test_a_form_uses_the_token_of_its_user(api: tuple[str, list[str | None]]) -> None:
    address, tokens = api
    settings = ConsoleSettings(namespace="shop", system_namespace="perdure-system", web_ui="")
    form = {"request": "0123456789"}
    async with serving(console(TokenAccess(Access(server=address)), settings)) as (session, origin):
        path = f"{origin}/namespaces/shop/workflows/order-flow/start"
        statuses = []
        for token in ("Bearer of-ada", "Bearer of-eve", None):
            headers = {"Sec-Fetch-Site": "same-origin", **({"Authorization": token} if token else {})}
            async with session.post(path, data=form, headers=headers, allow_redirects=False) as answer:
                statuses.append(answer.status)
                page = await answer.text()
                if answer.status == 403:
                    assert "the user cannot create" in page
                    assert "role `edit`" in page
        assert statuses == [303, 403, 401]
    assert tokens == ["Bearer of-ada", "Bearer of-ada", "Bearer of-eve", "Bearer of-eve"]


async def test_a_read_only_server_has_no_forms(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "PERDURE_CONSOLE_READ_ONLY": "true"}
    async with serving(application(environment, tmp_path / "ca.crt")) as (session, origin):
        answer = await session.post(f"{origin}/namespaces/shop/workflows/order-flow/start")
        answer.close()
        assert answer.status == 404


async def test_the_probe_requires_no_token(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "PERDURE_CONSOLE_NAMESPACE": "shop"}
    async with serving(application(environment, tmp_path / "ca.crt")) as (session, origin):
        async with session.get(f"{origin}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with session.get(f"{origin}/") as answer:
            assert answer.status == 401
            assert answer.url.path == "/namespaces/shop/runs"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        async with session.get(f"{origin}/static/console.css") as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "runs in a pod"),
        ({"KUBERNETES_SERVICE_HOST": "h", "PERDURE_WEB_UI_URL": "javascript:1"}, "PERDURE_WEB_UI_URL"),
        ({"KUBERNETES_SERVICE_HOST": "h", "PERDURE_FRONTEND_URL": "file:///"}, "PERDURE_FRONTEND_URL"),
    ],
)
def test_the_server_does_not_start_with_invalid_settings(environment: dict[str, str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        application(environment)


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_it_is_reached_at_addresses_of_both_families(family: socket.AddressFamily, address: str) -> None:
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with listener(0) as listening, socket.socket(family) as client:
        client.connect((address, listening.getsockname()[1]))
