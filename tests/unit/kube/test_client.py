"""The client, with a small HTTP server on loopback in place of the API server."""

import asyncio
import gc
import json
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web

from perdure.kube.access import Access
from perdure.kube.client import (
    CORE,
    PERDURE,
    AlreadyExistsError,
    ApiError,
    Client,
    ConflictError,
    InvalidError,
    NoResponseError,
    NotFoundError,
    TooLargeError,
    UnreadableError,
    path,
)
from perdure.kube.responses import Stored, Undecodable
from support.http_server import PODS, WEB, Server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().serve() as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client.open(Access(server=server.address, token="t"), user_agent="perdure-test/1") as opened:
        yield opened


# Paths


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        ((CORE, "default", "pods", "web-0"), "/api/v1/namespaces/default/pods/web-0"),
        ((CORE, "default", "pods", "web-0", "log"), "/api/v1/namespaces/default/pods/web-0/log"),
        ((PERDURE, None, "workflowruns"), "/apis/perdure.dev/v1alpha1/workflowruns"),
        ((CORE, None, "nodes", "n"), "/api/v1/nodes/n"),
    ],
    ids=["an object", "a subresource", "all namespaces", "an object without a namespace"],
)
def test_the_path_of_a_resource(parts: tuple[Any, ...], want: str) -> None:
    assert path(*parts) == want


# Requests


async def test_a_request_has_user_agent_token_and_accept_headers(server: Server, client: Client) -> None:
    server.answer = lambda _: web.json_response({"metadata": {"name": "web"}})
    assert await client.get(WEB) == {"metadata": {"name": "web"}}
    (request,) = server.asked
    assert (request.method, request.path) == ("GET", WEB)
    assert request.headers["Authorization"] == "Bearer t"
    assert request.headers["Accept"] == "application/json"
    assert request.headers["User-Agent"] == "perdure-test/1"


async def test_objects_are_sent_unchanged(server: Server, client: Client) -> None:
    body = {"metadata": {"name": "ü"}, "spec": {"n": 1.0, "none": None}}
    await client.create(PODS, body)
    await client.replace(WEB, body)
    assert [(request.method, request.path) for request in server.asked] == [("POST", PODS), ("PUT", WEB)]
    assert server.bodies == [body, body]


async def test_patches_have_their_content_type_and_request_only_metadata(server: Server, client: Client) -> None:
    operations = [{"op": "add", "path": "/status/-", "value": None}]
    await client.patch(WEB, operations)
    await client.merge(WEB, {"metadata": {"finalizers": None}})
    assert [request.method for request in server.asked] == ["PATCH", "PATCH"]
    assert [request.headers["Content-Type"] for request in server.asked] == [
        "application/json-patch+json",
        "application/merge-patch+json",
    ]
    assert {request.headers["Accept"] for request in server.asked} == {
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    }
    assert server.bodies == [operations, {"metadata": {"finalizers": None}}]


async def test_a_status_replaces_the_version_that_was_read(server: Server, client: Client) -> None:
    identity = {"namespace": "shop", "name": "web", "resourceVersion": "7"}
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {**identity, "labels": {"a": "b"}}, "spec": {}, "status": {}}
    await client.set_status(WEB, obj, {"phase": "Running"})
    (request,) = server.asked
    assert (request.method, request.path) == ("PUT", f"{WEB}/status")
    assert request.headers["Accept"] == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert server.bodies == [{"apiVersion": "v1", "kind": "Pod", "metadata": identity, "status": {"phase": "Running"}}]


async def test_a_log_with_invalid_utf_8_is_read_as_text(server: Server, client: Client) -> None:
    server.answer = lambda _: web.Response(body=b"one\n\xfftwo")
    assert await client.text(f"{WEB}/log", container="main", tailLines="2") == "one\n\ufffdtwo"
    assert dict(server.asked[0].query) == {"container": "main", "tailLines": "2"}
    assert server.asked[0].headers["Authorization"] == "Bearer t"


async def test_a_missing_log_is_an_error(server: Server, client: Client) -> None:
    server.refuse(404, "NotFound")
    with pytest.raises(NotFoundError):
        await client.text(f"{WEB}/log")


@pytest.mark.parametrize("ending", ["", "/"], ids=["without a slash at its end", "with a slash at its end"])
async def test_the_address_of_the_api_server_can_have_a_path(server: Server, ending: str) -> None:
    access = Access(server=f"{server.address}/k8s/clusters/c-1{ending}")
    async with Client.open(access, user_agent="u") as opened:
        await opened.get(WEB)
        await opened.text(f"{WEB}/log")
    assert [request.path for request in server.asked] == [
        f"/k8s/clusters/c-1{WEB}",
        f"/k8s/clusters/c-1{WEB}/log",
    ]


# Letting in


async def test_a_token_is_read_from_its_file_for_each_request(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    async with Client.open(Access(server=server.address, token_file=file), user_agent="u") as opened:
        await opened.get(WEB)
        file.write_text("second\n")
        await opened.get(WEB)
        await opened.text(WEB)
    assert [request.headers["Authorization"] for request in server.asked] == [
        "Bearer first",
        "Bearer second",
        "Bearer second",
    ]


async def test_no_authorization_header_is_sent_without_a_token(server: Server) -> None:
    async with Client.open(Access(server=server.address), user_agent="u") as opened:
        await opened.get(WEB)
    assert "Authorization" not in server.asked[0].headers


async def test_a_missing_token_file_is_transient(server: Server, tmp_path: Path) -> None:
    access = Access(server=server.address, token_file=tmp_path / "token")
    async with Client.open(access, user_agent="u") as opened:
        with pytest.raises(NoResponseError):
            await opened.get(WEB)


# Refusals


@pytest.mark.parametrize(
    ("code", "reason", "want"),
    [
        (400, "BadRequest", InvalidError),
        (401, "Unauthorized", ApiError),
        (403, "Forbidden", ApiError),
        (404, "NotFound", NotFoundError),
        (409, "AlreadyExists", AlreadyExistsError),
        (409, "Conflict", ConflictError),
        (410, "Expired", ApiError),
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", ApiError),
        (500, "InternalError", ApiError),
        (503, "ServiceUnavailable", ApiError),
    ],
)
async def test_an_error_response_has_a_class_and_the_message_of_the_api_server(
    server: Server, client: Client, code: int, reason: str, want: type[ApiError]
) -> None:
    server.refuse(code, reason, 'pods "web" …')
    with pytest.raises(ApiError) as caught:
        await client.get(WEB)
    assert type(caught.value) is want
    assert (caught.value.status, caught.value.reason, caught.value.message) == (code, reason, 'pods "web" …')
    assert str(caught.value) == 'pods "web" …'


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
        (413, "RequestEntityTooLarge", "The allowed maximum operations in a JSON patch is 10000, got 10001"),
        (500, "", "etcdserver: request is too large"),
        (500, "", "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)"),
    ],
)
async def test_every_response_for_a_too_large_request_is_a_too_large_error(
    server: Server, client: Client, code: int, reason: str, message: str
) -> None:
    server.refuse(code, reason, message)
    with pytest.raises(TooLargeError):
        await client.get(WEB)


def test_already_exists_is_not_a_conflict_and_api_errors_are_not_transient() -> None:
    assert not issubclass(AlreadyExistsError, ConflictError)
    assert not issubclass(ConflictError, AlreadyExistsError)
    assert not issubclass(ApiError, NoResponseError)


@pytest.mark.parametrize(
    ("raw", "want"),
    [(b"upstream is away", "upstream is away"), (b"", ""), (b"[1]", "[1]"), (b"x" * 10_000, "x" * 500), (b"{}", "{}")],
    ids=["text of a proxy", "nothing", "other JSON", "a long page", "an empty object"],
)
async def test_an_error_response_that_is_not_from_kubernetes_keeps_its_text(
    server: Server, client: Client, raw: bytes, want: str
) -> None:
    server.answer = lambda _: web.Response(status=502, body=raw)
    with pytest.raises(ApiError) as caught:
        await client.get(WEB)
    assert (caught.value.status, caught.value.reason, caught.value.message) == (502, "502", want)


# Deleting


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, {"propagationPolicy": "Background"}),
        ({"uid": "u-1"}, {"propagationPolicy": "Background", "preconditions": {"uid": "u-1"}}),
        ({"grace_seconds": 0}, {"propagationPolicy": "Background", "gracePeriodSeconds": 0}),
    ],
    ids=["without preconditions", "with a UID", "immediately"],
)
async def test_a_delete_has_preconditions_and_propagation_policy(
    server: Server, client: Client, options: dict[str, Any], want: dict[str, Any]
) -> None:
    await client.delete(WEB, **options)
    assert server.asked[0].method == "DELETE"
    assert server.bodies == [want]


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (409, "Conflict")], ids=["deleted", "recreated"])
async def test_deleting_a_missing_object_succeeds(server: Server, client: Client, code: int, reason: str) -> None:
    server.refuse(code, reason)
    await client.delete(WEB, uid="u-1")
    assert len(server.asked) == 1


async def test_a_forbidden_delete_is_an_error(server: Server, client: Client) -> None:
    server.refuse(403, "Forbidden")
    with pytest.raises(ApiError):
        await client.delete(WEB)


# Lists


async def test_a_list_is_read_in_pages_with_its_selectors(server: Server, client: Client) -> None:
    one, two, three = ({"metadata": {"name": name}} for name in ("one", "two", "three"))
    pages = {"": ([one, two], "a+/="), "a+/=": ([three], "b"), "b": ([], "")}

    def page(request: web.BaseRequest) -> web.Response:
        items, following = pages[request.query.get("continue", "")]
        return web.json_response({"metadata": {"continue": following} if following else {}, "items": items})

    server.answer = page
    assert await client.lists.all(PODS, labelSelector="a=b,c") == [one, two, three]
    assert [dict(request.query) for request in server.asked] == [
        {"limit": "100", "labelSelector": "a=b,c"},
        {"limit": "200", "labelSelector": "a=b,c", "continue": "a+/="},
        {"limit": "400", "labelSelector": "a=b,c", "continue": "b"},
    ]


async def test_an_interrupted_list_is_an_error(server: Server, client: Client) -> None:
    def page(request: web.BaseRequest) -> web.Response:
        if "continue" in request.query:
            return web.json_response({"reason": "Expired", "message": "too old"}, status=410)
        return web.json_response({"metadata": {"continue": "x"}, "items": [{}]})

    server.answer = page
    with pytest.raises(ApiError, match="too old"):
        await client.lists.all(PODS)


async def test_a_too_large_page_is_requested_again_with_fewer_objects(server: Server, client: Client) -> None:
    client.lists.page_bytes = 100_000
    objects = [{"metadata": {"name": str(number)}, "blob": "x" * 30_000} for number in range(10)]
    objects[4]["blob"] = "x" * 300_000  # larger than a page may be: it has its own page

    def page(request: web.BaseRequest) -> web.Response:
        begin = int(request.query.get("continue", "0"))
        end = begin + int(request.query["limit"])
        meta = {"continue": str(end)} if end < len(objects) else {}
        return web.json_response({"metadata": meta, "items": objects[begin:end]})

    server.answer = page
    assert await client.lists.all(PODS) == objects
    assert {request.query["limit"] for request in server.asked} == {"100", "25", "6", "1", "2"}


async def test_an_undecodable_object_of_a_list_is_skipped_and_reported(server: Server, client: Client) -> None:
    deep = '{"metadata": {"namespace": "shop", "name": "deep", "uid": "u", "resourceVersion": "1"}, "spec": $}'
    deep = deep.replace("$", '{"items": [' * 5_000 + "]}" * 5_000)
    body = (
        f'{{"kind": "PodList", "metadata": {{"resourceVersion": "9"}}, "items": [{{"a": "]}}"}}, {deep}, {{"b": []}}]}}'
    )
    server.answer = lambda _: web.Response(body=body)
    skipped: list[Undecodable] = []
    client.lists.skipped = skipped.append
    pages = [page async for page in client.lists.pages(PODS)]
    assert [(page.version, page.kind, len(page.items)) for page in pages] == [("9", "Pod", 3)]
    assert await client.lists.all(PODS) == [{"a": "]}"}, {"b": []}]
    stored = Stored(namespace="shop", name="deep", uid="u", version="1")
    assert [(found.kind, found.stored) for found in skipped] == [("Pod", stored)]
    assert [stored] == [each async for page in client.lists.versions(PODS) for each in page]


async def test_lists_omit_namespaces_that_are_not_served(server: Server, client: Client) -> None:
    def pod(namespace: str) -> dict[str, Any]:
        return {"metadata": {"namespace": namespace, "name": "web", "uid": namespace, "resourceVersion": "7"}}

    unreadable = json.dumps({**pod("team-a"), "spec": "$"}).replace('"$"', "[" * 100_000 + "]" * 100_000)
    items = ",".join([json.dumps(pod("shop")), json.dumps(pod("team-a")), unreadable])
    server.answer = lambda _: web.Response(body=f'{{"kind": "PodList", "metadata": {{}}, "items": [{items}]}}')
    skipped: list[Undecodable] = []
    client.lists.skipped = skipped.append
    client.lists.serves = lambda namespace: namespace != "team-a"
    assert await client.lists.all(PODS) == [pod("shop")]
    assert [each.namespace async for page in client.lists.versions(PODS) for each in page] == ["shop"]
    assert [each["metadata"]["namespace"] async for each in client.lists.each_metadata(PODS)] == ["shop"]
    assert skipped == []


async def test_an_undecodable_object_is_an_unreadable_error(server: Server, client: Client) -> None:
    server.answer = lambda _: web.Response(body=b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    with pytest.raises(UnreadableError, match="nested too deeply"):
        await client.get(WEB)


async def test_versions_are_read_without_the_objects(server: Server, client: Client) -> None:
    meta = {"namespace": "default", "name": "web", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
    server.answer = lambda _: web.json_response({"metadata": {}, "items": [{"metadata": meta}]})
    stored = Stored(namespace="default", name="web", uid="u", version="7", labels={"a": "b"})
    assert [page async for page in client.lists.versions(PODS)] == [[stored]]
    assert "as=PartialObjectMetadataList" in server.asked[0].headers["Accept"]
    server.answer = lambda _: web.json_response({"metadata": meta})
    assert await client.stored(WEB) == stored


# Connection errors


async def test_an_unreachable_server_is_transient() -> None:
    async with Server().serve() as gone:
        pass
    async with Client.open(Access(server=gone.address), user_agent="u") as opened:
        with pytest.raises(NoResponseError):
            await opened.get(WEB)


async def test_an_interrupted_response_is_transient(server: Server, client: Client) -> None:
    def broken(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.json_response({})

    server.answer = broken
    with pytest.raises(NoResponseError):
        await client.get(WEB)


@pytest.mark.parametrize(
    "raw", [b"<html>log in</html>", b'{"metadata": {', b""], ids=["a page", "half of it", "nothing"]
)
async def test_a_response_that_is_not_json_is_transient(server: Server, client: Client, raw: bytes) -> None:
    server.answer = lambda _: web.Response(body=raw)
    with pytest.raises(NoResponseError, match="not JSON"):
        await client.get(WEB)


async def test_a_server_that_does_not_respond_is_a_timeout(server: Server) -> None:
    server.answers.clear()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.05)) as session:
        with pytest.raises(NoResponseError, match="TimeoutError") as caught:
            await Client(Access(server=server.address), session).get(WEB)
    server.answers.set()
    assert caught.value.is_timeout


@pytest.mark.skipif(sys.version_info >= (3, 12, 8), reason="aiohttp does so for older versions only")
def test_closing_a_client_during_a_request_closes_its_connection(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def ask(port: int, asked: asyncio.Event) -> None:
        access = Access(server=f"https://127.0.0.1:{port}", ca_file=str(tmp_path / "ca.pem"))
        async with Client.open(access, user_agent="u") as opened:
            request = asyncio.create_task(opened.get(WEB))
            await asked.wait()
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)

    async def both() -> socket.socket:
        asked = asyncio.Event()
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def hold() -> socket.socket:
                """Accept the request, and neither respond nor close the connection."""
                connection = context.wrap_socket(listening.accept()[0], server_side=True)
                connection.recv(65536)
                loop.call_soon_threadsafe(asked.set)
                return connection

            loop = asyncio.get_running_loop()
            held = loop.run_in_executor(None, hold)
            await ask(listening.getsockname()[1], asked)
            return await held

    with asyncio.run(both()):
        gc.collect()  # an open connection is an error then


async def test_every_request_has_a_timeout(server: Server) -> None:
    async with Client.open(Access(server=server.address), user_agent="u") as opened:
        assert opened.connection.session.timeout.total
        assert opened.connection.session.timeout.sock_connect


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../secrets/x", "a%2fb", "a?b"])
def test_an_invalid_object_name_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an object"):
        path(CORE, "default", "pods", name)
