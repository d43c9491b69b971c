"""Webhooks over HTTP: the examples and the page, against the operator on an API server in memory."""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from perdure.frontend.http.webhooks import MAX_BODY
from perdure.kube.clock import now
from rpc.http.calls import Http
from support.operator import OPEN, in_memory
from support.ports import free_port

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "webhooks"
PAGE = (ROOT / "docs" / "webhooks.md").read_text(encoding="utf-8")
SECRET = "a secret of the test"
OTHERS = f"""
apiVersion: perdure.dev/v1alpha1
kind: Webhook
metadata: {{name: one-per-minute}}
spec:
  signature: {{secret: {{name: shop-webhook}}}}
  start: {{workflow: {{name: build}}}}
  requestsPerMinute: 1
---
apiVersion: perdure.dev/v1alpha1
kind: Webhook
metadata: {{name: either}}
spec:
  signature: {{secret: {{name: shop-webhook}}}}
  workflowId: order-${{body.order}}
  start: {{workflow: {{name: order}}, input: {{order: "${{body.order}}"}}}}
  signal: {{name: paid, input: {{amount: 5}}}}
---
apiVersion: perdure.dev/v1alpha1
kind: Webhook
metadata: {{name: no-secret}}
spec:
  signature: {{secret: {{name: not-there}}}}
  start: {{workflow: {{name: build}}}}
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {{name: build}}
spec:
  input: {{default: {{commit: HEAD}}}}
  steps: [{{name: nothing, set: {{done: true}}}}]
  output: "built ${{input.commit}}"
---
kind: Secret
metadata: {{name: github-webhook}}
data: {{secret: {base64.b64encode(SECRET.encode()).decode()}}}
---
kind: Secret
metadata: {{name: shop-webhook}}
data: {{secret: {base64.b64encode(SECRET.encode()).decode()}}}
---
kind: Secret
metadata: {{name: payment-webhook}}
data: {{signing-key: {base64.b64encode(SECRET.encode()).decode()}}}
"""


def objects() -> list[dict[str, Any]]:
    """The objects of the example, the first Webhook of the documentation, and some for other features."""
    first = next(block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
    files = [(EXAMPLES / name).read_text(encoding="utf-8") for name in ("order.yaml", "webhooks.yaml")]
    return [each for text in (*files, first, OTHERS) for each in yaml.safe_load_all(text)]


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    port = free_port()
    settings = replace(OPEN, http_address=f"127.0.0.1:{port}")
    with in_memory("elsewhere", namespace="orders", settings=settings, objects=objects()):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def http(base: str) -> AsyncIterator[Http]:
    async with aiohttp.ClientSession() as session:
        yield Http(session, base)


def signature(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


async def send(http: Http, name: str, body: Any, namespace: str = "orders", **headers: str) -> tuple[int, Any]:
    """Send a request that is signed as GitHub does."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    signed = {"X-Hub-Signature-256": f"sha256={signature(raw)}", **headers}
    return await http.call("POST", f"/webhooks/{namespace}/{name}", raw, headers=signed)


async def result(http: Http, workflow_id: str) -> Any:
    _, found = await http.call("GET", f"/perdure/v1/namespaces/orders/workflows/{workflow_id}/result")
    return found.get("result")


async def test_a_repeated_request_starts_one_run(http: Http) -> None:
    order = {"type": "order.created", "order": "1"}
    status, created = await send(http, "orders", order)
    assert (status, created["outcome"], created["kind"]) == (202, "Created", "WorkflowRun")
    assert await send(http, "orders", order) == (200, {**created, "outcome": "Duplicate"})
    paid = {"event": "e1", "order": "1", "amount": 95}
    status, signaled = await pay(http, paid)
    assert (status, signaled["outcome"], signaled["kind"]) == (202, "Created", "Operation")
    assert await result(http, "order-1") == {"order": "1", "amount": 95}


async def pay(http: Http, body: Any, later: int = 0, **headers: str) -> tuple[int, Any]:
    """Send a request with a signed time: now, or some seconds later."""
    raw, at = json.dumps(body).encode(), str(int(now().timestamp()) + later)
    signed = {"X-Signature": signature(f"{at}.".encode() + raw), "X-Timestamp": at, **headers}
    return await http.call("POST", "/webhooks/orders/payments", raw, headers=signed)


async def test_requests_with_the_same_id_in_the_body_start_one_run(http: Http) -> None:
    paid = {"event": "e2", "order": "none", "amount": 5}
    status, first = await pay(http, paid)
    assert status == 202
    assert await pay(http, {**paid, "amount": 6}, -60) == (200, {**first, "outcome": "Duplicate"})


async def test_a_request_for_which_when_is_false_is_ignored(http: Http) -> None:
    assert await send(http, "orders", {"type": "order.changed", "order": "2"}) == (200, {"outcome": "Ignored"})


async def test_start_and_signal_together_start_a_run_that_is_not_open(http: Http) -> None:
    status, created = await send(http, "either", {"order": "3"})
    assert (status, created["kind"]) == (202, "Operation")
    async with asyncio.timeout(30):
        while (found := await result(http, "order-3")) is None:  # noqa: ASYNC110 (the Operation starts it)
            await asyncio.sleep(0.05)
    assert found == {"order": "3", "amount": 5}


async def test_unsigned_requests_get_the_same_answer_for_existing_and_missing_webhooks(http: Http) -> None:
    order = {"type": "order.created", "order": "4"}
    stale = {"event": "e4", "order": "4", "amount": 1}
    answers = await asyncio.gather(
        send(http, "orders", order, **{"X-Hub-Signature-256": f"sha256={signature(b'{}')}"}),
        send(http, "orders", order, **{"X-Hub-Signature-256": "sha256=é"}),
        http.call("POST", "/webhooks/orders/orders", b"{}"),
        send(http, "not-there", order),
        send(http, "no-secret", order),
        send(http, "orders", order, "elsewhere"),
        send(http, "orders/deeper", order),
        http.call("GET", "/webhooks/orders/orders"),
        pay(http, stale, -180),
        pay(http, stale, 180),
        pay(http, stale, **{"X-Timestamp": "soon"}),
    )
    message = {"message": "the request has no valid signature for a Webhook at this path"}
    assert answers == [(401, message)] * len(answers)


async def test_a_signed_invalid_request_gets_a_detailed_error(http: Http) -> None:
    status, refused = await send(http, "orders", {"type": "order.created"})
    assert status == 422
    assert refused["message"].startswith("spec.workflowId: ${body.order}: ")
    status, refused = await send(http, "orders", {"type": "order.created", "order": "x" * 2000})
    assert (status, refused["message"]) == (422, "spec.workflowId: must have 1 to 1,000 characters; it has 2,006")
    status, refused = await send(http, "orders", b"payload=%7B%7D")
    assert status == 400
    assert refused["message"].startswith("the body is not JSON")
    assert (await send(http, "orders", b" " * (MAX_BODY + 1)))[0] == 413


async def test_requests_beyond_the_rate_limit_are_rejected(http: Http) -> None:
    assert (await send(http, "one-per-minute", {"number": 1}))[0] == 202
    body = b'{"number": 2}'
    headers = {"X-Hub-Signature-256": signature(body)}
    async with http.session.post(f"{http.base}/webhooks/orders/one-per-minute", data=body, headers=headers) as response:
        assert response.status == 429
        assert 0 < int(response.headers["Retry-After"]) <= 60


async def slow(base: str, name: str) -> asyncio.StreamWriter:
    """A request that the operator has begun to read, and whose body never arrives."""
    host, _, port = base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /webhooks/orders/{name} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
    writer.write(head.encode())
    assert b" 100 " in await reader.readline()
    return writer


async def test_slow_strangers_block_no_sender(http: Http, base: str) -> None:
    """Before, the 201st request was rejected."""
    writers = [await slow(base, "orders") for _ in range(220)]
    try:
        status, created = await send(http, "orders", {"type": "order.created", "order": "slow"})
        assert (status, created["outcome"]) == (202, "Created")
    finally:
        for writer in writers:
            writer.close()


async def test_senders_keep_their_connection_once_a_signature_is_valid() -> None:
    """Each of 17 is served, but senders have a budget of 16 connections."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    settings = replace(OPEN, http_address=f"127.0.0.1:{port}", max_connections=1)
    order = {"type": "order.changed"}
    async with AsyncExitStack() as stack:
        stack.enter_context(in_memory("elsewhere", namespace="orders", settings=settings, objects=objects()))
        body = json.dumps(order).encode()

        async def kept(http: Http, text: str) -> bool:
            headers = {"X-Hub-Signature-256": f"sha256={text}"}
            async with http.session.post(f"{base}/webhooks/orders/orders", data=body, headers=headers) as response:
                assert response.status == (200 if text == signature(body) else 401)
                return response.headers.get("Connection") != "close"

        senders = [Http(await stack.enter_async_context(aiohttp.ClientSession()), base) for _ in range(17)]
        assert [await kept(each, signature(body)) for each in senders] == [True] * 16 + [False]


async def test_the_openapi_document_describes_webhooks(http: Http) -> None:
    status, document = await http.call("GET", "/api/v1/openapi.json")
    assert status == 200
    described = document["paths"]["/webhooks/{namespace}/{name}"]["post"]
    assert (described["security"], "401" in described["responses"]) == ([], True)


async def run(base: str, command: str) -> Any:
    bash = await asyncio.create_subprocess_exec(
        "bash",
        "-euc",
        command,
        env={"BASE": base, "SECRET": SECRET, "PATH": "/usr/local/bin:/usr/bin:/bin", "no_proxy": "*"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await bash.communicate()
    assert bash.returncode == 0, error.decode()
    return json.loads(out)


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("openssl")), reason="needs curl and openssl")
async def test_the_commands_in_the_documentation_work(base: str, http: Http) -> None:
    found = dict(re.findall(r"```sh\n# ([^\n]*)\n(.*?)```", PAGE, re.DOTALL))
    first = await run(base, found["Send a request"])
    assert (first["outcome"], first["kind"]) == ("Created", "WorkflowRun")
    assert await result(http, first["name"]) == "built 5e1f"
    assert (await run(base, found["Send a request"]))["outcome"] == "Duplicate"
    assert (await run(base, found["Send a signed timestamp"]))["kind"] == "Operation"


async def test_webhooks_are_not_served_when_disabled() -> None:
    port = free_port()
    settings = replace(OPEN, http_address=f"127.0.0.1:{port}", webhooks=False)
    with in_memory(namespace="orders", settings=settings, objects=objects()):
        async with aiohttp.ClientSession() as session:
            http = Http(session, f"http://127.0.0.1:{port}")
            assert (await send(http, "orders", {"type": "order.created", "order": "9"}))[0] == 404
