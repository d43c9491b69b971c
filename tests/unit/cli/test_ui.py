"""`perdure ui`: access to the local address, the forwarded token, and the connection to the cluster."""

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from perdure.cli.connection import connect
from perdure.cli.web_ui import Proxy
from perdure.client.errors import ClientError
from perdure.client.route import AccountToken, KubeconfigToken, PortForward
from perdure.kube import clock
from support.apiserver import ApiServer
from support.cli import perdure

TOKENS = "/api/v1/namespaces/shop/serviceaccounts/me/token"


@asynccontextmanager
async def web_ui() -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A server in place of the Web UI: its address, and its requests."""
    requests: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(request)
        body = await request.text()
        return web.Response(text=f"{request.method} {request.raw_path} {body}", headers={"X-Frame-Options": "DENY"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", requests
    finally:
        await runner.cleanup()


@asynccontextmanager
async def opened(upstream: str, token: str = "t1") -> AsyncIterator[tuple[Proxy, aiohttp.ClientSession]]:
    """A proxy, and a browser that has opened its address."""

    async def address() -> str:
        return upstream

    async def current() -> str:
        return token

    proxy = Proxy(address, current)
    jar = aiohttp.CookieJar(unsafe=True)
    async with proxy.serve(0), aiohttp.ClientSession(cookie_jar=jar) as browser:
        yield proxy, browser


async def test_the_address_authenticates_the_browser_with_the_token_of_the_user() -> None:
    async with web_ui() as (upstream, requests), opened(upstream) as (proxy, browser):
        async with browser.get(proxy.guard.url("/namespaces/shop/workflows")) as answer:
            assert answer.status == 200
            assert str(answer.url.relative()) == "/namespaces/shop/workflows"
            assert await answer.text() == "GET /namespaces/shop/workflows "
            assert answer.headers["X-Frame-Options"] == "DENY"
        assert requests[0].headers["Authorization"] == "Bearer t1"
        assert "Cookie" not in requests[0].headers
        origin = proxy.guard.url().partition("/?")[0]
        async with browser.post(
            f"{origin}/api/v1/a%2Fb?q=%3D", data="{}", headers={"Origin": origin, "Authorization": "Bearer other"}
        ) as answer:
            assert await answer.text() == "POST /api/v1/a%2Fb?q=%3D {}"
        assert requests[1].headers.getall("Authorization") == ["Bearer t1"]


async def test_requests_without_the_key_are_not_forwarded() -> None:
    async with web_ui() as (upstream, requests), opened(upstream) as (proxy, _), aiohttp.ClientSession() as other:
        origin = proxy.guard.url().partition("/?")[0]
        for path in ("/", "/?key=", "/?key=wrong", "/api/v1/settings"):
            async with other.get(origin + path) as answer:
                assert answer.status == 403
                assert "Open the address that `perdure ui` printed" in await answer.text()
        assert not requests


async def test_requests_of_other_sites_are_rejected() -> None:
    async with web_ui() as (upstream, requests), opened(upstream) as (proxy, browser):
        async with browser.get(proxy.guard.url()) as answer:
            assert answer.status == 200
        origin = proxy.guard.url().partition("/?")[0]
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
            async with browser.post(f"{origin}/api/v1/x", data="{}", headers=headers) as answer:
                assert answer.status == 403
        assert len(requests) == 1


async def test_the_cookie_is_same_site_and_http_only() -> None:
    async with web_ui() as (upstream, _), opened(upstream) as (proxy, browser):
        async with browser.get(proxy.guard.url(), allow_redirects=False) as answer:
            assert answer.status == 303
            assert answer.headers["Location"] == "/"
            cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie


async def test_an_unreachable_web_ui_is_reported_and_recovers() -> None:
    async with web_ui() as (upstream, _):
        pass
    async with opened(upstream) as (proxy, browser), browser.get(proxy.guard.url()) as answer:
        assert answer.status == 502
        assert "The Web UI does not respond" in await answer.text()


async def test_a_port_that_is_in_use_is_an_error() -> None:
    async with web_ui() as (upstream, _):
        proxy = Proxy(lambda: asyncio.sleep(0, ""), lambda: asyncio.sleep(0, ""))
        with pytest.raises(ClientError, match="choose another one with --port"):
            async with proxy.serve(int(upstream.rpartition(":")[2])):
                pass


# --- Tokens -----------------------------------------------------------------------------------------------------------


def issued(server: ApiServer, *lifetimes: timedelta) -> None:
    """Have the API server issue tokens that live so long, one after the other."""
    left = list(enumerate(lifetimes, 1))

    def create(path: str, body: dict[str, Any], _: Any) -> tuple[int, dict[str, Any]]:
        assert path == TOKENS
        assert body["spec"] == {"audiences": ["ours"]}
        number, lifetime = left.pop(0)
        expires = (clock.now() + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
        return 201, {**body, "status": {"token": f"t{number}", "expirationTimestamp": expires}}

    server.create = create  # type: ignore[method-assign]


async def test_a_token_of_the_service_account_is_renewed_before_it_expires(server: ApiServer) -> None:
    issued(server, timedelta(minutes=4), timedelta(hours=1))
    async with connect(context=None, namespace="shop", program="perdure") as cluster:
        token = AccountToken(cluster, "me", "ours")
        assert [await token.current() for _ in range(3)] == ["t1", "t2", "t2"]


async def test_a_service_account_that_does_not_exist_is_an_error(server: ApiServer) -> None:
    message = 'serviceaccounts "me" not found'
    server.create = lambda *_: (404, {"kind": "Status", "reason": "NotFound", "message": message})  # type: ignore[method-assign]
    async with connect(context=None, namespace="shop", program="perdure") as cluster:
        with pytest.raises(ClientError, match="there is no ServiceAccount `me` in namespace `shop`"):
            await AccountToken(cluster, "me", "ours").current()
        with pytest.raises(ClientError, match=r"there is no ServiceAccount `\.\./x`"):
            await AccountToken(cluster, "../x", "ours").current()


@pytest.mark.usefixtures("server")
async def test_a_kubeconfig_without_a_token_needs_a_service_account() -> None:
    async with connect(context=None, namespace="shop", program="perdure") as cluster:
        assert cluster.bearer() is None
        with pytest.raises(ClientError, match="--service-account"):
            KubeconfigToken(cluster)


# --- The port-forward -------------------------------------------------------------------------------------------------


def kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


async def test_the_port_forward_targets_the_service_and_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(
        tmp_path,
        monkeypatch,
        f'echo "$*" >> {tmp_path}/calls; call=$(wc -l < {tmp_path}/calls)\n'
        'echo "Forwarding from 127.0.0.1:4$call -> 8080"\n'
        "test $call = 1 || exec sleep 60",  # the first one is lost
    )
    forward = PortForward("perdure-system", "perdure-ui", 8080, ["--context=kind"])
    try:
        assert await forward.address() == "http://127.0.0.1:41"
        assert forward.process is not None
        await forward.process.wait()
        assert await forward.address() == "http://127.0.0.1:42"
        assert await forward.address() == "http://127.0.0.1:42"
    finally:
        await forward.close()
    call = "port-forward --context=kind --namespace=perdure-system --address=127.0.0.1 service/perdure-ui :8080"
    assert (tmp_path / "calls").read_text().splitlines() == [call, call]


async def test_a_service_that_does_not_exist_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl(tmp_path, monkeypatch, "echo 'services \"perdure-ui\" not found' >&2; exit 1")
    with pytest.raises(
        ClientError, match=r'Service `perdure-ui` in namespace `there`: services "perdure-ui" not found'
    ):
        await PortForward("there", "perdure-ui", 8080).address()


async def test_a_missing_kubectl_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClientError, match="kubectl is needed"):
        await PortForward("there", "perdure-ui", 8080).address()


@pytest.mark.usefixtures("server")
def test_invalid_settings_fail_before_serving() -> None:
    done = perdure("ui", "--no-browser")
    assert done.exit_code == 2
    assert "--service-account" in done.stderr
