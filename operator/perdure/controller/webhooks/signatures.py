"""Signatures of webhook requests. Pure."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perdure.api.kinds.webhook import RequestSignature
from perdure.language.webhooks import MAX_DELIVERY_ID

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
