"""The Webhooks that this operator watches: their status, their signatures, and the objects that their requests create.

A request creates one object, a WorkflowRun or an Operation, whose name follows from the ID of the request. So it does not
matter which operator receives it, and a repeated request finds the object of the first one. The secrets that senders share with
the operator are read on demand.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self

import pydantic

from perdure.api.kinds.status import read_conditions, set_condition
from perdure.api.kinds.webhook import RequestSignature, SecretKey, WebhookSpec, WebhookStatus
from perdure.api.labels import API_VERSION
from perdure.api.models import mistakes, unknown_field
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.controller.queue import Key, KeyedQueue, WebhookKey
from perdure.controller.reconcile.newer_states import NewerStateReports, message_for, with_report
from perdure.controller.reconcile.record import Status, write_status
from perdure.controller.state_versions import state_versions
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.language.expressions import ExpressionError
from perdure.language.program import Severity
from perdure.language.webhooks import MAX_DELIVERY_ID, UnusableRequestError, WebhookProgram, WebhookRequest

_GITHUB_DELIVERY = "x-github-delivery"
_PREFIX = b"sha256="
_LONGEST_TIMESTAMP = 12
"""Maximum number of digits of a timestamp."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A received request."""

    headers: Mapping[str, str]
    """The headers by name in lower case."""
    body: bytes


def signed_content(signature: RequestSignature, delivery: Delivery) -> bytes:
    """The content that the sender of a request signed."""
    if signature.timestamp_header is None:
        return delivery.body
    timestamp = delivery.headers.get(signature.timestamp_header.lower(), "")
    return timestamp.encode(errors="surrogateescape") + b"." + delivery.body


def request_id(signature: RequestSignature, delivery: Delivery) -> str:
    """Return the ID of a request: a hash of the signed content, or GitHub's ID.

    GitHub's ID is not signed. It is ignored if the time is signed: otherwise, a recorded request could have a second effect with
    another ID.
    """
    value = delivery.headers.get(_GITHUB_DELIVERY, "")
    if signature.timestamp_header is None and 0 < len(value) <= MAX_DELIVERY_ID:
        return value
    return f"sha256:{hashlib.sha256(signed_content(signature, delivery)).hexdigest()}"


def is_authentic(signature: RequestSignature, secret: bytes, delivery: Delivery, now: datetime) -> bool:
    """Whether a request has a valid signature, and is recent if it has a timestamp."""
    value = delivery.headers.get(signature.header.lower(), "").encode(errors="surrogateescape")
    valid = hmac.new(secret, signed_content(signature, delivery), hashlib.sha256).hexdigest().encode()
    same = hmac.compare_digest(valid, value.removeprefix(_PREFIX).lower())
    return same and (signature.timestamp_header is None or _is_recent(signature, delivery, now))


def _is_recent(signature: RequestSignature, delivery: Delivery, now: datetime) -> bool:
    text = delivery.headers.get(str(signature.timestamp_header).lower(), "")
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_TIMESTAMP):
        return False
    try:
        sent = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(text))
    except OverflowError:
        return False
    return abs(now - sent) <= signature.tolerance


READ_AGAIN: Final = timedelta(seconds=30)
"""How long a secret, or the failure to read it, is cached."""
SHORTEST: Final = 16
"""Minimum length of a secret, in bytes."""
_MAX_CACHED: Final = 1_000
"""Maximum number of cached secrets."""
_FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """A secret, or the reason why it cannot be used."""

    value: bytes = b""
    """The secret; empty if it cannot be used."""
    problem: str = ""


_Place = tuple[str, str, str]
"""Namespace, name, and key."""


class WebhookSecrets:
    """Reads secrets, and caches each of them briefly."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._read: OrderedDict[_Place, tuple[datetime, FoundSecret]] = OrderedDict()
        self._locks: dict[_Place, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def find(self, namespace: str, reference: SecretKey) -> FoundSecret:
        """Return a secret.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        place = namespace, reference.name, reference.key
        async with self._locks[place]:
            since, found = self._read.get(place, (None, FoundSecret()))
            if since is None or not since <= now() < since + READ_AGAIN:
                found = await self._find(namespace, reference)
                self._read[place] = now(), found
                self._read.move_to_end(place)
                if len(self._read) > _MAX_CACHED:
                    self._locks.pop(self._read.popitem(last=False)[0], None)
        return found

    async def _find(self, namespace: str, reference: SecretKey) -> FoundSecret:
        try:
            secret = await self._client.get(kube.path(kube.CORE, namespace, "secrets", reference.name))
        except kube.NotFoundError:
            return FoundSecret(problem=f"Secret `{reference.name}` does not exist")
        except kube.ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            return FoundSecret(
                problem=f"The operator is not allowed to read Secret `{reference.name}`: create a Role and a RoleBinding for it "
                f"(docs/webhooks.md). {error.message}"
            )
        encoded = (secret.get("data") or {}).get(reference.key)
        if encoded is None:
            return FoundSecret(problem=f"Secret `{reference.name}` has no key `{reference.key}`")
        try:
            value = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            return FoundSecret(problem=f"Secret `{reference.name}`: key `{reference.key}` cannot be decoded")
        if len(value) < SHORTEST:
            return FoundSecret(
                problem=f"Secret `{reference.name}`: the value of `{reference.key}` must have at least {SHORTEST} bytes"
            )
        return FoundSecret(value)


_EVENTS = {
    ConditionReason.INVALID_SPEC: EventReason.INVALID_SPEC,
    ConditionReason.SECRET_NOT_READABLE: EventReason.SECRET_NOT_READABLE,
}


class DeliveryOutcome(StrEnum):
    """The effect of a request with a valid signature."""

    CREATED = "Created"
    """It created a run or an Operation."""

    DUPLICATE = "Duplicate"
    """An earlier request with this ID created it."""

    IGNORED = "Ignored"
    """It had no effect, because the condition `when` of the Webhook is false."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of a request, and the object that it created."""

    outcome: DeliveryOutcome
    kind: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWebhook:
    """A Webhook: the object and its parsed spec."""

    object: kube.Object
    program: WebhookProgram | None
    """The compiled program; None if the spec is invalid."""
    mistakes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    newer: str = ""
    """What only a newer version can read in its spec or in its status; empty if there is nothing."""

    @classmethod
    def read(cls, obj: kube.Object) -> Self:
        """Read and compile a Webhook."""
        newer = WebhookStatus.newer_part(obj.get("status") or {}, state_versions().reads)
        try:
            program = WebhookProgram.compile(WebhookSpec.parse(obj.get("spec") or {}))
        except pydantic.ValidationError as error:
            newer = unknown_field(error, "spec") or newer
            return cls(object=obj, program=None, mistakes=tuple(mistakes(error)), newer=newer)
        except ExpressionError as error:
            return cls(object=obj, program=None, mistakes=(str(error),), newer=newer)
        found = list(program.findings())
        if wrong := tuple(str(each) for each in found if each.severity is Severity.ERROR):
            return cls(object=obj, program=None, mistakes=wrong, newer=newer)
        return cls(object=obj, program=program, warnings=tuple(map(str, found)), newer=newer)

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata."""
        metadata: dict[str, Any] = self.object["metadata"]
        return metadata


class Webhooks:
    """All Webhooks that this operator watches."""

    def __init__(
        self,
        client: kube.Client,
        recorder: Recorder,
        queue: KeyedQueue[Key],
        created: Callable[[kube.Object], None],
    ) -> None:
        """Create it without Webhooks.

        Args:
            client: For requests to the API server.
            recorder: For Events.
            queue: The queue that calls `reconcile`.
            created: Called with each run that a request has created, before the response is sent: the sender can then find it.
        """
        self._client = client
        self._created = created
        self._recorder = recorder
        self._queue = queue
        self._secrets = WebhookSecrets(client)
        self._known: dict[tuple[str, str], KnownWebhook] = {}
        self._newer: dict[tuple[str, str], NewerStateReports] = {}
        self._served = False

    def serve(self) -> None:
        """Record that the HTTP API of this operator accepts requests."""
        self._served = True
        for namespace, name in self._known:
            self._queue.wake(WebhookKey(namespace, name))

    def update(self, obj: kube.Object) -> None:
        """Process the creation or change of a Webhook."""
        self._keep(obj)
        self._queue.wake(WebhookKey(obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a Webhook."""
        place = obj["metadata"]["namespace"], obj["metadata"]["name"]
        known = self._known.get(place)
        if known is not None and known.metadata["uid"] == obj["metadata"]["uid"]:
            del self._known[place]
            self._newer.pop(place, None)
        self._queue.forget(WebhookKey(*place))

    def _keep(self, obj: kube.Object) -> None:
        """Keep a version of a Webhook, unless a newer one is known."""
        meta = obj["metadata"]
        known = self._known.get((meta["namespace"], meta["name"]))
        same = known is not None and known.metadata["uid"] == meta["uid"]
        if known is None or not same or kube.older(known.metadata["resourceVersion"], meta["resourceVersion"]):
            self._known[meta["namespace"], meta["name"]] = KnownWebhook.read(obj)

    # Requests

    async def authenticate(self, namespace: str, name: str, delivery: Delivery) -> KnownWebhook | None:
        """Find the Webhook of a request; None if there is none, or the request has no valid signature.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        known = self._known.get((namespace, name))
        if known is None or known.program is None:
            return None
        signature = known.program.spec.signature
        secret = await self._secrets.find(namespace, signature.secret)
        if not secret.value or not is_authentic(signature, secret.value, delivery, wall_clock()):
            return None
        return known

    async def receive(self, known: KnownWebhook, delivery: Delivery, body: Any) -> Receipt:
        """Process a request with a valid signature.

        Raises:
            UnusableRequestError: An expression has no value for the request, or the API server rejects the object to create.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        assert known.program is not None, "it has authenticated the request"
        signature = known.program.spec.signature
        request = WebhookRequest(headers=delivery.headers, body=body, id=request_id(signature, delivery))
        try:
            created = known.program.created(known.metadata, request)
        except UnusableRequestError as error:
            raise self._unusable(known, str(error)) from None
        if created is None:
            return Receipt(DeliveryOutcome.IGNORED)
        kind, name = created.object["kind"], created.object["metadata"]["name"]
        try:
            obj = await self._client.create(
                kube.path(kube.PERDURE, known.metadata["namespace"], created.plural), created.object
            )
        except kube.AlreadyExistsError:
            return Receipt(DeliveryOutcome.DUPLICATE, kind, name)
        except (kube.InvalidError, kube.TooLargeError) as error:
            raise self._unusable(known, error.message) from None
        if created.plural == "workflowruns":
            self._created(obj)
        return Receipt(DeliveryOutcome.CREATED, kind, name)

    def _unusable(self, known: KnownWebhook, message: str) -> UnusableRequestError:
        self._record(known, EventReason.DELIVERY_FAILED, message, "Receive")
        return UnusableRequestError(message)

    # Status

    async def reconcile(self, namespace: str, name: str, now: datetime) -> datetime | None:
        """Update the status of a Webhook, and return when to check its secret again.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        known = self._known.get((namespace, name))
        if known is None:
            return None
        current = known
        verdict: tuple[bool, ConditionReason, str] = (True, ConditionReason.ACCEPTED, "")

        async def compute(obj: kube.Object) -> Status | None:
            nonlocal current, verdict
            if current.object is not obj:  # another client has written
                current = KnownWebhook.read(obj)
            if current.newer:
                return self._newer_status(current, now)
            verdict = await self._verdict(current)
            return state_versions().stamp(_status(current, verdict, now), obj.get("status"))

        url = kube.path(kube.PERDURE, namespace, "webhooks", name)
        obj = await write_status(self._client, url, compute, known.object)
        if obj is None:
            self._known.pop((namespace, name), None)
            self._newer.pop((namespace, name), None)
            return None
        if obj is not current.object:
            self._report(current, verdict)
            self._keep(obj)
        return now + READ_AGAIN

    def _newer_status(self, known: KnownWebhook, now: datetime) -> Status | None:
        """The status with the report that only a newer version can read a Webhook; None if it is not due.

        Requests are accepted if the whole spec can be read.
        """
        meta = known.metadata
        place = meta["namespace"], meta["name"]
        reports = self._newer.setdefault(place, NewerStateReports("Webhook", meta["namespace"]))
        if not reports.due(known.object.get("status") or {}, now):
            return None
        verdicts = {ConditionType.READY: False} if known.program is None else {ConditionType.NEWER_STATE: True}
        return with_report(known.object, message_for(known.newer), verdicts, now)

    async def _verdict(self, known: KnownWebhook) -> tuple[bool, ConditionReason, str]:
        if known.program is None:
            return False, ConditionReason.INVALID_SPEC, "; ".join(known.mistakes)
        if not self._served:
            message = "The operator does not serve webhooks: its HTTP API or its webhooks are disabled"
            return False, ConditionReason.NOT_SERVED, message
        reference = known.program.spec.signature.secret
        secret = await self._secrets.find(known.metadata["namespace"], reference)
        if secret.problem:
            return False, ConditionReason.SECRET_NOT_READABLE, secret.problem
        return True, ConditionReason.ACCEPTED, "; ".join(known.warnings)

    def _report(self, known: KnownWebhook, verdict: tuple[bool, ConditionReason, str]) -> None:
        """Record an Event if the Webhook stopped being ready, or is not ready for another reason."""
        if known.newer:
            self._record(known, EventReason.NEWER_STATE, message_for(known.newer), "Read")
            return
        _, reason, message = verdict
        before = next(
            (c for c in read_conditions(known.object.get("status") or {}) if c.type == ConditionType.READY), None
        )
        if reason in _EVENTS and (before is None or before.reason != reason):
            self._record(known, _EVENTS[reason], message, "Check")

    def _record(self, known: KnownWebhook, reason: EventReason, note: str, action: str) -> None:
        about = {"apiVersion": API_VERSION, "kind": "Webhook", "metadata": known.metadata}
        self._recorder.record(about, kind="Warning", reason=reason, note=note, action=action)


def _status(known: KnownWebhook, verdict: tuple[bool, ConditionReason, str], now: datetime) -> dict[str, Any]:
    ready, reason, message = verdict
    meta = known.metadata
    before = read_conditions(known.object.get("status") or {})
    conditions = set_condition(
        [each for each in before if each.type != ConditionType.NEWER_STATE],
        ConditionType.READY,
        ready,
        reason,
        message,
        now=now,
        observed_generation=meta.get("generation", 1),
    )
    return {
        "observedGeneration": meta.get("generation", 1),
        "conditions": [condition.dump() for condition in conditions],
        "path": f"/webhooks/{meta['namespace']}/{meta['name']}",
    }
