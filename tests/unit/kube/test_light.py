"""The client of commands, against an HTTP server."""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import trustme

from perdure.kube.access import Access
from perdure.kube.errors import ApiError, NotFoundError
from perdure.kube.light import LightClient, NoResponseError
from support.threads import join


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[["Handler"], None]

    def do_GET(self) -> None:
        self.answer(self)

    def reply(self, body: Any, status: int = 200) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(answer: Callable[[Handler], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), type("H", (Handler,), {"answer": staticmethod(answer)}))
    http.daemon_threads = True
    if tls is not None:
        http.socket = tls.wrap_socket(http.socket, server_side=True)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        join(thread)
        http.server_close()


async def test_a_connection_is_reused_and_replaced_after_the_server_closes_it() -> None:
    peers = []

    def answer(handler: Handler) -> None:
        peers.append(handler.client_address)
        handler.reply({"n": len(peers)})
        handler.close_connection = len(peers) == 2  # without saying so

    with serving(answer) as url:
        async with LightClient.open(Access(server=url), user_agent="test") as client:
            assert [(await client.get("/a"))["n"] for _ in range(3)] == [1, 2, 3]
    assert peers[0] == peers[1] != peers[2]


async def test_requests_have_token_and_impersonation_headers() -> None:
    access = {"token": "t", "headers": (("Impersonate-User", "Zo\u00eb"), ("Impersonate-Group", "g"))}
    with serving(lambda handler: handler.reply(dict(handler.headers))) as url:
        async with LightClient.open(Access(server=url, **access), user_agent="test") as client:
            sent = await client.get("/a")
    user = sent["Impersonate-User"].encode("latin-1").decode()
    assert (sent["Authorization"], user, sent["User-Agent"]) == ("Bearer t", "Zo\u00eb", "test")


async def test_a_redirect_is_an_error() -> None:
    with serving(lambda handler: handler.reply(b"", 307)) as url:
        async with LightClient.open(Access(server=url), user_agent="test") as client:
            with pytest.raises(ApiError) as caught:
                await client.get("/a")
    assert caught.value.status == 307


async def test_a_list_is_read_in_pages() -> None:
    def answer(handler: Handler) -> None:
        last = "continue=next" in handler.path
        meta = {"resourceVersion": "1", **({} if last else {"continue": "next"})}
        handler.reply({"metadata": meta, "items": [{"metadata": {"name": "b" if last else "a"}}]})

    with serving(answer) as url:
        async with LightClient.open(Access(server=f"{url}/prefix"), user_agent="test") as client:
            assert [each["metadata"]["name"] for each in await client.list_all("/runs", labelSelector="a=b")] == [
                "a",
                "b",
            ]


async def test_a_table_is_read_in_pages_without_the_objects() -> None:
    asked: list[tuple[str, str]] = []

    def answer(handler: Handler) -> None:
        asked.append((handler.path, handler.headers["Accept"]))
        last = "continue=next" in handler.path
        meta = {"resourceVersion": "1", **({} if last else {"continue": "next"})}
        columns = [{"name": "Name", "type": "string"}, {"name": "Phase", "type": "string"}]
        partial = {"metadata": {"name": "a", "labels": {"team": "shop"}, "managedFields": [{"manager": "kubectl"}]}}
        rows = [{"cells": ["b", None]}] if last else [{"cells": ["a", "Failed"], "object": partial}]
        handler.reply({"kind": "Table", "metadata": meta, "columnDefinitions": columns, "rows": rows})

    with serving(answer) as url:
        async with LightClient.open(Access(server=url), user_agent="test") as client:
            rows = [row async for row in client.rows("/runs", metadata=True, labelSelector="a=b")]
    assert [row.cells for row in rows] == [{"Name": "a", "Phase": "Failed"}, {"Name": "b", "Phase": None}]
    assert [row.metadata for row in rows] == [{"name": "a", "labels": {"team": "shop"}}, {}]
    assert {accept for _, accept in asked} == {"application/json;as=Table;g=meta.k8s.io;v=v1"}
    assert asked[0][0] == "/runs?limit=500&includeObject=Metadata&labelSelector=a%3Db"


async def test_an_empty_table_has_no_rows() -> None:
    with serving(lambda handler: handler.reply({"kind": "Table", "metadata": {}, "rows": None})) as url:
        async with LightClient.open(Access(server=url), user_agent="test") as client:
            assert [row async for row in client.rows("/runs", metadata=False)] == []


async def test_a_list_in_place_of_a_table_is_an_error() -> None:
    with serving(lambda handler: handler.reply({"kind": "List", "items": []})) as url:
        async with LightClient.open(Access(server=url), user_agent="test") as client:
            with pytest.raises(NoResponseError, match="the response is not a table"):
                [row async for row in client.rows("/runs", metadata=False)]


async def test_an_error_response_is_an_error_of_its_class() -> None:
    with serving(lambda handler: handler.reply({"reason": "NotFound", "message": "no such run"}, 404)) as url:
        async with LightClient.open(Access(server=url), user_agent="test") as client:
            with pytest.raises(NotFoundError, match="no such run"):
                await client.get("/a")


@pytest.mark.parametrize("body", [b"<html>", b""])
async def test_a_response_that_is_not_json_is_transient(body: bytes) -> None:
    with serving(lambda handler: handler.reply(body)) as url:
        async with LightClient.open(Access(server=url), user_agent="test") as client:
            with pytest.raises(NoResponseError):
                await client.get("/a")


async def test_a_cancelled_request_does_not_wait_for_the_server() -> None:
    asked, proceed = threading.Event(), threading.Event()

    def answer(_: Handler) -> None:
        asked.set()
        proceed.wait(60)

    with serving(answer) as url:
        async with LightClient.open(Access(server=url), user_agent="test") as client:
            request = asyncio.create_task(client.get("/a"))
            assert await asyncio.to_thread(asked.wait, 60)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
        proceed.set()


async def test_a_request_that_takes_too_long_is_transient() -> None:
    proceed = threading.Event()
    with serving(lambda _: proceed.wait(60) and None) as url:
        async with LightClient.open(Access(server=url, timeout=0.05), user_agent="test") as client:
            with pytest.raises(NoResponseError):
                await client.get("/a")
        proceed.set()


async def test_tls_checks_the_name_of_the_server() -> None:
    authority = trustme.CA()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("kubernetes").configure_cert(served)
    ca = authority.cert_pem.bytes().decode()
    with serving(lambda handler: handler.reply({"a": 1}), served) as url:
        good = Access(server=url, ca_data=ca, server_name="kubernetes")
        async with LightClient.open(good, user_agent="test") as client:
            assert await client.get("/a") == {"a": 1}
        async with LightClient.open(Access(server=url, ca_data=ca), user_agent="test") as client:
            with pytest.raises(NoResponseError, match="IP address mismatch"):
                await client.get("/a")


async def test_a_client_certificate_is_presented() -> None:
    authority = trustme.CA()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(served)
    authority.configure_trust(served)
    served.verify_mode = ssl.CERT_REQUIRED
    certificate = authority.issue_cert("ada@example.com")
    access = {
        "ca_data": authority.cert_pem.bytes().decode(),
        "client_cert_data": certificate.cert_chain_pems[0].bytes().decode(),
        "client_key_data": certificate.private_key_pem.bytes().decode(),
    }
    with serving(lambda handler: handler.reply({"a": 1}), served) as url:
        async with LightClient.open(Access(server=url, **access), user_agent="test") as client:
            assert await client.get("/a") == {"a": 1}


async def test_requests_go_through_the_proxy() -> None:
    paths = []

    class Tunnel(Handler):
        def do_CONNECT(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.close_connection = False

    http = ThreadingHTTPServer(("127.0.0.1", 0), Tunnel)
    Tunnel.answer = staticmethod(lambda handler: handler.reply({"a": 1}))
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        access = Access(server="http://far.example:8001", proxy=f"http://127.0.0.1:{http.server_port}")
        async with LightClient.open(access, user_agent="test") as client:
            assert await client.get("/a") == {"a": 1}
    finally:
        http.shutdown()
        join(thread)
        http.server_close()
    assert paths == ["far.example:8001"]
