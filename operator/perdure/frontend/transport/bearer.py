"""Read bearer tokens, and reject obviously invalid ones without a request to the API server. Pure."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

_MAX_LENGTH = 8_192
"""Maximum length of a token, in characters; a ServiceAccount token has about 1,200."""
_LEEWAY = timedelta(minutes=1)
"""The clock skew that the API server tolerates."""


class NoTokenError(ValueError):
    """A text cannot be a valid token; the message says why."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token. They are not verified."""

    issuer: str
    audiences: tuple[str, ...]
    subject: str = ""


def bearer_of(metadata: Sequence[tuple[str, str | bytes]]) -> str:
    """The bearer token in the metadata of an RPC; empty if there is none."""
    given = next((value for key, value in metadata if key == "authorization"), "")
    text = given.decode(errors="replace") if isinstance(given, bytes) else given
    scheme, _, token = text.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def claims_of(token: str, time: datetime) -> Claims:
    """Read a token without verifying it.

    Args:
        token: A JSON Web Token, as the API server issues them.
        time: The current time.

    Raises:
        NoTokenError: The API server cannot accept the token.
    """
    if len(token) > _MAX_LENGTH:
        raise NoTokenError(f"it is longer than {_MAX_LENGTH:,} characters")
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004 (header, claims, signature)
        raise NoTokenError("it is not a JSON Web Token")
    header, claims, _ = (_decode(part) for part in parts)
    if not isinstance(_json(header).get("alg"), str):
        raise NoTokenError("its header names no algorithm")
    values = _json(claims)
    issuer, audience, expires = values.get("iss"), values.get("aud", []), values.get("exp")
    if not isinstance(issuer, str) or not issuer:
        raise NoTokenError("it names no issuer")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
        raise NoTokenError("its audience is not a list of names")
    if expires is not None and _moment(expires) + _LEEWAY < time:
        raise NoTokenError("it has expired")
    subject = values.get("sub")
    return Claims(issuer, tuple(audiences), subject if isinstance(subject, str) else "")


def _decode(part: str) -> bytes:
    try:
        return base64.b64decode(part.encode("ascii") + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise NoTokenError("it is not a JSON Web Token") from None


def _json(raw: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise NoTokenError("it is not a JSON Web Token")
    return found


def _moment(seconds: Any) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise NoTokenError("its expiry is not a time") from None
