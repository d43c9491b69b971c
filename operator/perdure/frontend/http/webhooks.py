"""Receive webhook requests: signed HTTP requests without a token, at `/webhooks/<namespace>/<name>`.

A sender without the secret learns nothing: requests to a Webhook that does not exist, with a wrong signature, or with an
old timestamp get the same response after the same time.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import unquote

import orjson
import structlog
from aiohttp import hdrs, web

from perdure.api.stored import MessageStruct
from perdure.controller.webhooks import Delivery, DeliveryOutcome, KnownWebhook, Receipt, Webhooks
from perdure.frontend.http.connections import HttpConnections
from perdure.frontend.http.server import read_body, sender_of
from perdure.frontend.matching.dispatch import Throttle
from perdure.frontend.transport.door import Places, Shares
from perdure.kube import client as kube
from perdure.language.webhooks import UnusableRequestError
from perdure.observe import metrics

MAX_BODY: Final = 256 * 1024
"""Maximum size of the body of a request, in bytes."""
PREFIX: Final = "/webhooks/"
_PATH: Final = re.compile(r"/webhooks/(?P<namespace>[^/]+)/(?P<name>[^/]+)")
_BODIES: Final = 200
"""Maximum number of requests that have shown no valid signature yet, whose bodies take 50 MiB."""
_REQUESTS: Final = 200
"""Maximum number of signed requests in progress."""
_READ_SECONDS: Final = 10.0
_REFUSAL_SECONDS: Final = 0.5
"""Seconds from the arrival of a request to its rejection, which is longer than reading a Secret takes."""
_MAX_THROTTLES: Final = 10_000
_STATUSES: Final = {
    DeliveryOutcome.CREATED: HTTPStatus.ACCEPTED,
    DeliveryOutcome.DUPLICATE: HTTPStatus.OK,
    DeliveryOutcome.IGNORED: HTTPStatus.OK,
}


class RejectedError(Exception):
    """A request is rejected."""

    def __init__(self, status: HTTPStatus, outcome: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self._answer = status, outcome, retry_after

    def answer(self) -> "WebhookAnswer":
        """The response."""
        status, outcome, retry_after = self._answer
        return WebhookAnswer(status=status, outcome=outcome, content={"message": str(self)}, retry_after=retry_after)


_UNAUTHENTICATED: Final = "the request has no valid signature for a Webhook at this path"


class UnsignedRequests:
    """Limits the requests that have shown no valid signature yet.

    A sender without the secret can be as slow as it wants; an honest one needs some milliseconds. So when all places are taken, a
    new request takes the place of another one: the oldest of the address that has the most.
    """

    def __init__(self, total: int, seconds: float) -> None:
        """Create free places, each for some seconds."""
        self._total = total
        self._seconds = seconds
        self._by_address: dict[str, dict[asyncio.Timeout, None]] = {}

    @asynccontextmanager
    async def place(self, address: str) -> AsyncIterator[None]:
        """Hold a place within the block.

        Raises:
            TimeoutError: The block took too long, or another request has taken its place.
        """
        if sum(map(len, self._by_address.values())) >= self._total:
            self._displace()
        async with asyncio.timeout(self._seconds) as place:
            self._by_address.setdefault(address, {})[place] = None
            try:
                yield
            finally:
                self._leave(address, place)

    def _displace(self) -> None:
        address = max(self._by_address, key=lambda each: len(self._by_address[each]))
        place = next(iter(self._by_address[address]))
        self._leave(address, place)
        if not place.expired():
            place.reschedule(0)

    def _leave(self, address: str, place: asyncio.Timeout) -> None:
        places = self._by_address.get(address, {})
        places.pop(place, None)
        if not places:
            self._by_address.pop(address, None)


class WebhookAnswer(MessageStruct, frozen=True, kw_only=True):
    """The response to a request with a valid signature."""

    status: int
    """The HTTP status."""
    outcome: str
    """The outcome, for the metric."""
    content: dict[str, str]
    retry_after: float = 0.0
    """When the sender may send the request again, in seconds; zero: unknown."""


class SignedRequest(Protocol):
    """A request with a valid signature."""

    async def answer(self) -> WebhookAnswer:
        """Process the request."""


class Receiver(Protocol):
    """Authenticates and processes requests: of this operator or, for a frontend of its own, another one."""

    async def authenticate(self, namespace: str, name: str, delivery: Delivery) -> SignedRequest | None:
        """Check the signature of a request to a Webhook; None if it has no valid one, or the Webhook does not exist."""


class WebhookGateway:
    """Answers webhook requests."""

    def __init__(self, receiver: Receiver, connections: HttpConnections, seconds: float = _READ_SECONDS) -> None:
        """Create it.

        Args:
            receiver: Authenticates and processes requests.
            connections: Gets the connections of senders with a valid signature.
            seconds: How long a request may take until its signature was checked.
        """
        self._receiver = receiver
        self._connections = connections
        self._seconds = seconds
        self._unsigned = UnsignedRequests(_BODIES, seconds)
        self._refusals = Places("refused webhook requests", each=500, total=500)

    @staticmethod
    def serves(request: web.BaseRequest) -> bool:
        """Whether a request is for a Webhook."""
        return request.rel_url.raw_path.startswith(PREFIX)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer a request."""
        namespace, keep = "", True
        try:
            namespace, signed = await self._authenticated(request)
            keep = self._connections.admit_sender(sender_of(request))
            answer = await signed.answer()
        except RejectedError as error:
            answer = error.answer()
        metrics.WEBHOOK_REQUESTS.labels(namespace, answer.outcome).inc()
        headers = {"Retry-After": str(max(1, round(answer.retry_after)))} if answer.retry_after else {}
        response = web.Response(
            status=answer.status,
            body=orjson.dumps(answer.content),
            headers={hdrs.CONTENT_TYPE: "application/json", **headers},
        )
        if not keep:
            response.force_close()
        return response

    async def _authenticated(self, request: web.BaseRequest) -> tuple[str, SignedRequest]:
        """The namespace in the path of a request, and the request once its signature was checked."""
        namespace, signed = "", None
        try:
            async with self._unsigned.place(sender_of(request).address):
                async with asyncio.timeout(_READ_SECONDS):
                    delivery = Delivery(_headers(request), await _body(request))
                until = asyncio.get_running_loop().time() + _REFUSAL_SECONDS
                found = _PATH.fullmatch(request.rel_url.raw_path)
                if found is not None and request.method == "POST":
                    namespace = unquote(found["namespace"])
                    signed = await self._receiver.authenticate(namespace, unquote(found["name"]), delivery)
        except TimeoutError:
            message = f"the request took more than {self._seconds:.0f} s, or there are too many requests; retry later"
            raise RejectedError(HTTPStatus.REQUEST_TIMEOUT, "Limited", message, 1.0) from None
        if signed is None:
            await self._delay_rejection(until)
            raise RejectedError(HTTPStatus.UNAUTHORIZED, "Unauthenticated", _UNAUTHENTICATED)
        return namespace, signed

    async def _delay_rejection(self, until: float) -> None:
        if self._refusals.free(None):
            with self._refusals.take(None):
                await asyncio.sleep(max(0.0, until - asyncio.get_running_loop().time()))


class WebhookReceiver:
    """Authenticates and processes requests by the Webhooks that this operator knows."""

    def __init__(self, webhooks: Webhooks, ready: Callable[[], Awaitable[None]]) -> None:
        """Create it.

        Args:
            webhooks: The Webhooks.
            ready: Waits until this operator can process requests.
        """
        self._webhooks = webhooks
        self._ready = ready
        self._signed = Shares(_REQUESTS)
        self._throttles: dict[str, Throttle] = {}
        """The throttles by UID of the Webhook."""
        self._log = structlog.get_logger("perdure.webhooks")

    async def authenticate(self, namespace: str, name: str, delivery: Delivery) -> SignedRequest | None:
        """Check the signature of a request to a Webhook; None if it has no valid one, or the Webhook does not exist."""
        await self._ready()
        try:
            known = await self._webhooks.authenticate(namespace, name, delivery)
        except kube.RequestError as error:  # a sender without the secret must not notice
            self._log.warning(
                "Could not read the secret of a Webhook", namespace=namespace, name=name, error=repr(error)
            )
            return None
        return None if known is None else _Signed(self, known, delivery)

    async def receive(self, known: KnownWebhook, delivery: Delivery) -> WebhookAnswer:
        """Process a request with a valid signature."""
        try:
            self._throttle(known)
            with self._place(known.metadata["namespace"]):
                receipt = await self._process(known, delivery)
        except RejectedError as error:
            return error.answer()
        created = {"kind": receipt.kind, "name": receipt.name} if receipt.name else {}
        return WebhookAnswer(
            status=_STATUSES[receipt.outcome],
            outcome=receipt.outcome,
            content={"outcome": receipt.outcome, **created},
        )

    @contextmanager
    def _place(self, namespace: str) -> Iterator[None]:
        """Hold a place for a signed request of a namespace within the block."""
        if not self._signed.fits(namespace, 1):
            raise RejectedError(HTTPStatus.TOO_MANY_REQUESTS, "Limited", "too many requests; retry later", 1.0)
        self._signed.add(namespace, 1)
        try:
            yield
        finally:
            self._signed.add(namespace, -1)

    async def _process(self, known: KnownWebhook, delivery: Delivery) -> Receipt:
        try:
            body: Any = orjson.loads(delivery.body) if delivery.body else None
        except orjson.JSONDecodeError as error:
            raise RejectedError(HTTPStatus.BAD_REQUEST, "Unusable", f"the body is not JSON: {error}") from None
        try:
            return await self._webhooks.receive(known, delivery, body)
        except UnusableRequestError as error:
            raise RejectedError(HTTPStatus.UNPROCESSABLE_ENTITY, "Unusable", str(error)) from None
        except kube.RequestError as error:
            self._log.warning("Could not process a webhook request", error=repr(error), **_place(known))
            message = "the Kubernetes API request failed; retry later"
            raise RejectedError(HTTPStatus.SERVICE_UNAVAILABLE, "Failed", message, 5.0) from None

    def _throttle(self, known: KnownWebhook) -> None:
        assert known.program is not None, "it has authenticated the request"
        per_minute, time = known.program.spec.requests_per_minute, asyncio.get_running_loop().time()
        throttle = self._throttles.get(known.metadata["uid"])
        if throttle is None or throttle.at_once != per_minute:
            if len(self._throttles) >= _MAX_THROTTLES:
                self._throttles = {uid: each for uid, each in self._throttles.items() if each.wait(time)}
            throttle = self._throttles[known.metadata["uid"]] = Throttle(per_minute / 60, at_once=per_minute)
        wait = throttle.wait(time)
        if wait:
            message = f"more than {per_minute} requests per minute"
            raise RejectedError(HTTPStatus.TOO_MANY_REQUESTS, "Limited", message, wait)
        throttle.count(time)


@dataclass(frozen=True, slots=True)
class _Signed:
    """A request with a valid signature to a Webhook of this operator."""

    receiver: WebhookReceiver
    known: KnownWebhook
    delivery: Delivery

    async def answer(self) -> WebhookAnswer:
        """Process the request."""
        return await self.receiver.receive(self.known, self.delivery)


def _place(known: KnownWebhook) -> dict[str, str]:
    return {"namespace": known.metadata["namespace"], "name": known.metadata["name"]}


def _headers(request: web.BaseRequest) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


async def _body(request: web.BaseRequest) -> bytes:
    """Read the body.

    Raises:
        RejectedError: It is too large.
    """
    body = await read_body(request, MAX_BODY)
    if body is None:
        message = f"the body must have at most {MAX_BODY} bytes"
        raise RejectedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Unusable", message)
    return body
