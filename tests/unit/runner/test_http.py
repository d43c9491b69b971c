"""HTTP requests as activities, against a server."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from perdure.activity import ApplicationError
from perdure.api.kinds.workflow import Http
from perdure.runner import http
from perdure.runner.expressions import DeferredExpressions


class Shop:
    """A server that answers as a test defines, and records the requests."""

    def __init__(self) -> None:
        self.answers: list[web.StreamResponse | Exception] = []
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path_qs, dict(request.headers), await request.text()))
        answer = self.answers.pop(0) if self.answers else web.json_response({"ok": True})
        if isinstance(answer, Exception):
            raise answer
        return answer


def app_of(shop: Shop) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", shop.handle)
    return app


@asynccontextmanager
async def served() -> AsyncIterator[Shop]:
    shop = Shop()
    async with TestServer(app_of(shop)) as server:
        shop.url = str(server.make_url("/"))
        yield shop


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    async with served() as found:
        yield found


@pytest.fixture
async def other() -> AsyncIterator[Shop]:
    """A server of another origin: another port."""
    async with served() as found:
        yield found


@asynccontextmanager
async def secured(shop: Shop) -> AsyncIterator[tuple[str, str]]:
    """Serve a shop also over TLS; yield its URL, and the certificate of its CA."""
    ca, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    server = TestServer(app_of(shop), scheme="https")
    await server.start_server(ssl=context)
    try:
        yield str(server.make_url("/")), ca.cert_pem.bytes().decode()
    finally:
        await server.close()


async def send(shop: Shop, later: DeferredExpressions, *, secrets: dict[str, str] | None = None, **fields: Any) -> Any:
    request = Http.parse({"url": f"{shop.url}orders", **fields}).dump()
    return await http.send(request, later, secrets or {})


async def failure(shop: Shop, later: DeferredExpressions, **fields: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await send(shop, later, **fields)
    return caught.value


async def test_the_request_is_sent_as_defined(shop: Shop, later: DeferredExpressions) -> None:
    result = await send(
        shop,
        later,
        method="POST",
        query={"a": "b c&d", "n": 3},
        body={"id": 7},
        headers=[
            {"name": "X-Plain", "value": "v"},
            {"name": "Authorization", "value": "Bearer ", "secret": {"name": "api", "key": "token"}},
        ],
        secrets={"PERDURE_HEADER_1": "s3cret\n"},
    )
    assert result == {"status": 200, "body": {"ok": True}}
    ((method, path, headers, body),) = shop.asked
    assert (method, path, body) == ("POST", "/orders?a=b+c%26d&n=3", '{"id":7}')
    assert headers["Authorization"] == "Bearer s3cret"
    assert headers["X-Plain"] == "v"
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == "uid-1/step"


async def test_a_text_body_is_sent_unchanged(shop: Shop, later: DeferredExpressions) -> None:
    await send(shop, later, method="PUT", body="a,b", headers=[{"name": "Content-Type", "value": "text/csv"}])
    ((_, _, headers, body),) = shop.asked
    assert (body, headers["Content-Type"]) == ("a,b", "text/csv")
    assert "Idempotency-Key" not in headers


async def test_output_and_conditions_can_use_response_and_input(shop: Shop, later: DeferredExpressions) -> None:
    shop.answers = [web.json_response({"id": 7, "state": "new"}, status=404, headers={"ETag": "x"})]
    result = await send(
        shop,
        later,
        successCondition="${response.status == 404 && response.body.id == input.id}",
        output={"tag": "${response.headers.etag}", "state": "${response.body.state}", "attempt": "${attempt}"},
    )
    assert result == {"tag": "x", "state": "new", "attempt": 2}


@pytest.mark.parametrize(
    ("text", "body"), [("", None), ("plain", "plain"), ("[1, 2]", [1, 2]), ("3", 3), ('{"broken', '{"broken')]
)
async def test_a_body_is_parsed_as_json_if_possible(
    shop: Shop, later: DeferredExpressions, text: str, body: Any
) -> None:
    shop.answers = [web.Response(text=text)]
    assert (await send(shop, later))["body"] == body


@pytest.mark.parametrize(("status", "retried"), [(503, True), (429, True), (500, True), (404, False), (400, False)])
async def test_the_status_code_determines_if_a_request_is_retried(
    shop: Shop, later: DeferredExpressions, status: int, *, retried: bool
) -> None:
    shop.answers = [web.Response(status=status, text="no luck")]
    error = await failure(shop, later)
    assert (error.type, error.non_retryable, error.details) == (f"Http{status}", not retried, {"status": status})
    assert error.message.startswith(f"GET {shop.url}orders: {status} ")
    assert error.message.endswith(": no luck")


async def test_retried_status_codes_are_configurable(shop: Shop, later: DeferredExpressions) -> None:
    shop.answers = [web.Response(status=404), web.Response(status=503)]
    assert not (await failure(shop, later, retryStatuses=[404])).non_retryable
    assert (await failure(shop, later, retryStatuses=[404])).non_retryable


async def test_a_false_or_failing_condition_fails_the_attempt(shop: Shop, later: DeferredExpressions) -> None:
    for condition in ("${response.body.ok == false}", "${response.body.nope}"):
        error = await failure(shop, later, successCondition=condition)
        assert (error.type, error.non_retryable) == ("ConditionFailed", False)
        assert "200 OK, and `successCondition` is false" in error.message


async def test_retry_after_sets_the_next_retry_delay(shop: Shop, later: DeferredExpressions) -> None:
    shop.answers = [web.Response(status=503, headers={"Retry-After": "17"})]
    assert (await failure(shop, later)).next_retry_delay == 17.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0.0),
        ("99999999", 86_400.0),
        ("", None),
        ("soon", None),
        ("-1", None),
    ],
)
def test_retry_after_can_be_a_number_or_a_date(text: str, seconds: float | None) -> None:
    assert http.retry_after(text, datetime(2026, 10, 21, 7, 28, tzinfo=UTC)) == seconds


async def test_a_timeout_is_retried(shop: Shop, later: DeferredExpressions) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    app = web.Application()
    app.router.add_get("/", never)
    async with TestServer(app) as server:
        error = await failure(shop, later, url=str(server.make_url("/")), timeout="50ms")
    assert (error.type, error.non_retryable) == ("RequestTimeout", False)
    assert error.message.endswith("no response within 50ms")


async def test_an_unreachable_server_is_retried(shop: Shop, later: DeferredExpressions) -> None:
    error = await failure(shop, later, url="http://127.0.0.1:1/path?token=x")
    assert (error.type, error.non_retryable) == ("RequestFailed", False)
    assert error.message.startswith("GET http://127.0.0.1:1/path: ")


@pytest.mark.parametrize("url", ["http://", "ftp://x/y", "nothing"])
async def test_an_invalid_url_is_not_retried(shop: Shop, later: DeferredExpressions, url: str) -> None:
    error = await failure(shop, later, url=url)
    assert (error.type, error.non_retryable) == ("InvalidUrl", True)


async def test_a_too_large_response_is_an_error(shop: Shop, later: DeferredExpressions) -> None:
    shop.answers = [web.Response(body=b"x" * (http.MAX_BODY + 1))]
    error = await failure(shop, later)
    assert (error.type, error.non_retryable) == ("ResponseTooLarge", True)


SECRET = {"name": "api", "key": "token"}
STATUSES = (301, 302, 303, 307, 308)


def redirect(to: str, status: int = 302) -> web.Response:
    return web.Response(status=status, headers={"Location": to})


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("name", ["X-Api-Key", "authorization", "Cookie", "PRIVATE-TOKEN"])
async def test_secret_headers_are_not_sent_to_another_server_after_a_redirect(
    shop: Shop, other: Shop, later: DeferredExpressions, name: str, status: int
) -> None:
    shop.answers = [redirect(f"{other.url}x", status)]
    header = {"name": name, "value": "Bearer ", "secret": SECRET}
    headers = [{"name": "X-Plain", "value": "v"}, header]
    await send(shop, later, method="PUT", body="a", headers=headers, secrets={"PERDURE_HEADER_1": "s3cret"})
    assert {key.lower(): value for key, value in shop.asked[0][2].items()}[name.lower()] == "Bearer s3cret"
    ((_, path, received, _),) = other.asked
    assert (path, received["X-Plain"]) == ("/x", "v")
    assert name.lower() not in {key.lower() for key in received}


async def test_secret_headers_are_removed_in_any_case(shop: Shop, other: Shop, later: DeferredExpressions) -> None:
    shop.answers = [redirect(other.url)]
    headers = [{"name": "x-api-key", "secret": SECRET}, {"name": "X-API-KEY", "secret": SECRET}]
    await send(shop, later, headers=headers, secrets={"PERDURE_HEADER_0": "s3cret", "PERDURE_HEADER_1": "s3cret"})
    assert "s3cret" in str(shop.asked)
    assert "s3cret" not in str(other.asked)


@pytest.mark.parametrize("status", STATUSES)
async def test_secret_headers_are_kept_after_a_redirect_within_the_origin(
    shop: Shop, later: DeferredExpressions, status: int
) -> None:
    shop.answers = [redirect(f"{shop.url}orders/", status), redirect("/elsewhere", status)]
    headers = [{"name": "X-Api-Key", "secret": SECRET}]
    await send(shop, later, headers=headers, secrets={"PERDURE_HEADER_0": "s3cret"})
    assert [path for _, path, _, _ in shop.asked] == ["/orders", "/orders/", "/elsewhere"]
    assert [received["X-Api-Key"] for _, _, received, _ in shop.asked] == ["s3cret"] * 3


async def test_secret_headers_stay_removed_when_a_redirect_returns(
    shop: Shop, other: Shop, later: DeferredExpressions
) -> None:
    """Otherwise, the other server could choose what is requested with them."""
    shop.answers = [redirect(other.url)]
    other.answers = [redirect(f"{shop.url}orders?delete=all")]
    headers = [{"name": "X-Api-Key", "secret": SECRET}, {"name": "Authorization", "secret": SECRET}]
    await send(shop, later, headers=headers, secrets={"PERDURE_HEADER_0": "s3cret", "PERDURE_HEADER_1": "s3cret"})
    assert [path for _, path, _, _ in shop.asked] == ["/orders", "/orders?delete=all"]
    assert "s3cret" in str(shop.asked[0])
    assert "s3cret" not in str(shop.asked[1])
    assert "s3cret" not in str(other.asked)


async def test_a_secret_host_is_that_of_the_other_server_after_a_redirect(
    shop: Shop, other: Shop, later: DeferredExpressions
) -> None:
    shop.answers = [redirect(other.url)]
    await send(shop, later, headers=[{"name": "Host", "secret": SECRET}], secrets={"PERDURE_HEADER_0": "private"})
    assert shop.asked[0][2]["Host"] == "private"
    assert other.asked[0][2]["Host"] == URL(other.url).host_port_subcomponent


async def test_secret_headers_are_not_sent_without_encryption_after_a_redirect(
    shop: Shop, other: Shop, later: DeferredExpressions
) -> None:
    shop.answers = [redirect(other.url)]
    headers = [{"name": "X-Api-Key", "secret": SECRET}]
    async with secured(shop) as (url, ca):
        await send(shop, later, url=url, headers=headers, secrets={"PERDURE_HEADER_0": "s3cret", "PERDURE_CA": ca})
    assert shop.asked[0][2]["X-Api-Key"] == "s3cret"
    assert "s3cret" not in str(other.asked)


@pytest.mark.parametrize("name", ["Authorization", "Cookie", "Proxy-Authorization"])
async def test_plain_credentials_are_not_sent_to_another_server(
    shop: Shop, other: Shop, later: DeferredExpressions, name: str
) -> None:
    shop.answers = [redirect(other.url)]
    await send(shop, later, headers=[{"name": name, "value": "known"}])
    assert (shop.asked[0][2][name], name in other.asked[0][2]) == ("known", False)


async def test_a_user_in_the_url_is_not_sent_to_another_server(
    shop: Shop, other: Shop, later: DeferredExpressions
) -> None:
    shop.answers = [redirect(other.url)]
    await send(shop, later, url=f"{shop.url.replace('//', '//me:s3cret@')}orders")
    assert shop.asked[0][2]["Authorization"].startswith("Basic ")
    assert not other.asked[0][2].keys() & {"Authorization", "Referer"}


@pytest.mark.parametrize(
    ("status", "want"), [(307, ("POST", '{"id":7}')), (308, ("POST", '{"id":7}')), (302, ("GET", ""))]
)
async def test_a_redirect_sends_the_body_again_only_with_status_307_or_308(
    shop: Shop, other: Shop, later: DeferredExpressions, status: int, want: tuple[str, str]
) -> None:
    shop.answers = [redirect(other.url, status)]
    await send(shop, later, method="POST", body={"id": 7})
    ((method, _, _, body),) = other.asked
    assert (method, body) == want


async def test_a_redirect_with_a_user_fails_if_the_request_has_its_own_authorization(
    shop: Shop, later: DeferredExpressions
) -> None:
    shop.answers = [redirect(f"{shop.url.replace('//', '//me:x@')}orders")]
    error = await failure(shop, later, headers=[{"name": "Authorization", "value": "known"}])
    assert error.type == "RequestFailed"


@pytest.mark.parametrize(("count", "followed"), [(5, True), (6, False)])
async def test_five_redirects_are_followed(
    shop: Shop, later: DeferredExpressions, count: int, *, followed: bool
) -> None:
    shop.answers = [redirect("/next") for _ in range(count)]
    if followed:
        assert (await send(shop, later))["status"] == 200
    else:
        assert (await failure(shop, later)).type == "RequestFailed"
    assert len(shop.asked) == 6


async def test_the_server_certificate_is_verified_with_the_given_ca(shop: Shop, later: DeferredExpressions) -> None:
    other = trustme.CA().cert_pem.bytes().decode()
    async with secured(shop) as (url, ca):
        assert (await send(shop, later, url=url, secrets={"PERDURE_CA": ca}))["status"] == 200
        with pytest.raises(ApplicationError) as caught:
            await send(shop, later, url=url, secrets={"PERDURE_CA": other})
        assert caught.value.type == "RequestFailed"
