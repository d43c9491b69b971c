"""The status of Webhooks, with an API server on loopback that may refuse to give out Secrets."""

import base64
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from perdure.api.kinds.webhook import RequestSignature
from perdure.api.state_versions import NEWEST
from perdure.controller import webhooks as secrets
from perdure.controller.queue import Key, KeyedQueue
from perdure.controller.webhooks import Delivery, KnownWebhook, Webhooks, request_id
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from support.clock import stopped_clock
from unit.controller.stored import Store, serving

SPEC: dict[str, Any] = {"signature": {"secret": {"name": "shared"}}, "start": {"workflow": {"name": "build"}}}
FORBIDDEN = 'secrets "shared" is forbidden: User "system:serviceaccount:perdure-system:perdure" cannot get it'


class GuardedStore(Store):
    """Returns Secrets only to callers with permission."""

    forbidden = False
    reads = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if "/secrets/" in request.path:
            self.reads += 1
            if self.forbidden:
                return web.json_response({"reason": "Forbidden", "message": FORBIDDEN}, status=403)
        if request.method == "POST" and request.path.endswith("/workflowruns"):
            return web.json_response(await request.json(), status=201)
        return await super().answer(request)

    def secret(self, value: str, key: str = "secret") -> None:
        self.put("secrets", "shared", data={key: base64.b64encode(value.encode()).decode()})

    @property
    def ready(self) -> tuple[str, str, str]:
        (condition,) = self.objects["webhooks/push"]["status"]["conditions"]
        return condition["status"], condition["reason"], condition.get("message", "")


def unserved_queue() -> KeyedQueue[Key]:
    """A queue that processes nothing."""

    async def work(_key: Key) -> None:
        raise AssertionError

    return KeyedQueue(work, clock=now)


@asynccontextmanager
async def operator(store: Store, made: Callable[[Any], None] = lambda _run: None) -> AsyncIterator[Webhooks]:
    async with Client.open(Access(server=store.address), user_agent="test") as client:
        webhooks = Webhooks(client, Recorder(client, instance="test"), unserved_queue(), made)
        webhooks.serve()
        yield webhooks


@pytest.fixture
async def store() -> AsyncIterator[GuardedStore]:
    async with serving(GuardedStore()) as found:
        assert isinstance(found, GuardedStore)
        yield found


async def reconcile(
    store: GuardedStore, spec: dict[str, Any] | None = None, *, served: bool = True
) -> tuple[str, str, str]:
    async with Client.open(Access(server=store.address), user_agent="test") as client:
        webhooks = Webhooks(client, Recorder(client, instance="test"), unserved_queue(), lambda _run: None)
        if served:
            webhooks.serve()
        webhooks.update(store.put("webhooks", "push", spec=spec or SPEC))
        time = now()
        assert await webhooks.reconcile("shop", "push", time) == time + secrets.READ_AGAIN
    return store.ready


async def test_a_webhook_with_a_readable_secret_is_ready(store: GuardedStore) -> None:
    store.secret("a secret of the test")
    assert await reconcile(store) == ("True", "Accepted", "")
    assert store.objects["webhooks/push"]["status"]["path"] == "/webhooks/shop/push"


async def test_a_secret_that_the_operator_cannot_read_is_reported_with_the_remedy(store: GuardedStore) -> None:
    store.forbidden = True
    status, reason, message = await reconcile(store)
    assert (status, reason) == ("False", "SecretNotReadable")
    assert "Role" in message
    assert FORBIDDEN in message


@pytest.mark.parametrize(
    ("value", "key", "part"),
    [("", "", "does not exist"), ("a secret of the test", "other", "no key `secret`"), ("short", "secret", "16 bytes")],
)
async def test_an_unusable_secret_is_reported(store: GuardedStore, value: str, key: str, part: str) -> None:
    if value:
        store.secret(value, key)
    status, reason, message = await reconcile(store)
    assert (status, reason) == ("False", "SecretNotReadable")
    assert part in message


async def test_an_invalid_webhook_is_reported(store: GuardedStore) -> None:
    status, reason, message = await reconcile(store, {**SPEC, "workflowId": "${input.order}"})
    assert (status, reason) == ("False", "InvalidSpec")
    assert message.startswith("spec.workflowId: ")


async def test_a_webhook_with_an_expression_that_always_fails_is_not_ready(store: GuardedStore) -> None:
    store.secret("a secret of the test")
    status, reason, message = await reconcile(store, {**SPEC, "when": "${headers.event}"})
    assert (status, reason) == ("False", "InvalidSpec")
    assert (
        message
        == "spec.when: the value of `headers.event` has type string, but must be true or false; compare it with something"
    )
    # Each request evaluates only one of the two.
    doubtful = "${headers.event == 'push' ? body.id : string(1 / 0)}"
    status, reason, message = await reconcile(store, {**SPEC, "workflowId": doubtful})
    assert (status, reason) == ("True", "Accepted")
    assert message.startswith("spec.workflowId: a part of ")


async def test_a_webhook_that_is_not_served_is_reported(store: GuardedStore) -> None:
    store.secret("a secret of the test")
    assert (await reconcile(store, served=False))[:2] == ("False", "NotServed")


async def test_a_secret_is_cached_for_a_while(store: GuardedStore) -> None:
    with stopped_clock() as clock:
        delivery = Delivery({"x-hub-signature-256": "0"}, b"{}")
        async with operator(store) as webhooks:
            webhooks.update(store.put("webhooks", "push", spec=SPEC))
            for _ in range(5):  # a flood of bad requests costs one read
                assert await webhooks.authenticate("shop", "push", delivery) is None
            assert store.reads == 1
            clock.forward(secrets.READ_AGAIN + timedelta(seconds=1))
            assert await webhooks.authenticate("shop", "push", delivery) is None
            assert store.reads == 2


async def test_a_run_is_registered_before_the_response_is_sent(store: GuardedStore) -> None:
    made: list[dict[str, Any]] = []
    async with operator(store, made.append) as webhooks:
        known = KnownWebhook.read(store.put("webhooks", "push", spec=SPEC))
        receipt = await webhooks.receive(known, Delivery({}, b"{}"), {})
    assert (receipt.outcome, [run["metadata"]["name"] for run in made]) == ("Created", [receipt.name])


async def test_a_deleted_webhook_is_forgotten(store: GuardedStore) -> None:
    async with operator(store) as webhooks:
        obj = store.put("webhooks", "push", spec=SPEC)
        webhooks.update(obj)
        webhooks.delete(obj)
        assert await webhooks.reconcile("shop", "push", now()) is None
        assert store.writes == 0


def test_an_unsigned_id_is_ignored_if_the_time_is_signed() -> None:
    github = RequestSignature.parse({"secret": {"name": "shared"}})
    timed = RequestSignature.parse({"secret": {"name": "shared"}, "timestampHeader": "X-Time"})
    sent = [Delivery({"x-github-delivery": name, "x-time": "1"}, b"{}") for name in ("a", "b")]
    assert [request_id(github, each) for each in sent] == ["a", "b"]
    assert len({request_id(timed, each) for each in sent}) == 1
    assert request_id(timed, Delivery({"x-time": "2"}, b"{}")) != request_id(timed, sent[0])


async def test_a_webhook_whose_status_is_of_a_newer_version_takes_requests_and_keeps_its_status(
    store: GuardedStore,
) -> None:
    store.secret("a secret of the test")
    newer = {"path": "/hooks/1", "stateVersion": NEWEST + 1, "conditions": []}
    async with operator(store) as webhooks:
        webhooks.update(store.put("webhooks", "push", spec=SPEC, status=dict(newer)))
        for _ in range(2):  # the report is written once
            await webhooks.reconcile("shop", "push", now())
        status = dict(store.objects["webhooks/push"]["status"])
        (condition,) = status.pop("conditions")
        assert status == {key: value for key, value in newer.items() if key != "conditions"}
        assert (condition["type"], condition["status"], condition["reason"]) == ("NewerState", "True", "NewerState")
        signature = hmac.new(b"a secret of the test", b"{}", "sha256").hexdigest()
        delivery = Delivery({"x-hub-signature-256": signature}, b"{}")
        assert await webhooks.authenticate("shop", "push", delivery) is not None
        webhooks.update(store.put("webhooks", "push", spec=SPEC, status={"conditions": [condition]}))
        await webhooks.reconcile("shop", "push", now())
    assert store.ready == ("True", "Accepted", "")
    assert store.objects["webhooks/push"]["status"]["stateVersion"] == NEWEST


async def test_a_webhook_with_a_field_of_a_newer_version_takes_no_requests(store: GuardedStore) -> None:
    store.secret("a secret of the test")
    status, reason, message = await reconcile(store, {**SPEC, "dedupeWindow": "1h"})
    assert (status, reason) == ("False", "NewerState")
    assert "unknown field `spec.dedupeWindow`" in message
    assert (await reconcile(store))[:2] == ("True", "Accepted")
