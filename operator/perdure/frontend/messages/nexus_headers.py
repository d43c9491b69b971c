"""Headers of Nexus operations. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from perdure.frontend.messages.values import UnfitError

_MAX_HEADER = 8_192
SERVERS_HEADERS = frozenset(
    {
        "request-timeout",
        "xdc-redirection",
        "xdc-redirection-api",
        "xdc-redirection-source-cell",
        "caller-name",
        "caller-type",
        "call-initiation",
        "temporal-principal-type",
        "temporal-principal-name",
    }
)
"""Headers of a Nexus operation that only the server sets (nexusoperations/config.go)."""
CALLBACK_PREFIX: Final = "nexus-callback-"
"""Prefix of the headers for the callback, which are not headers of the operation."""
_PREFIX: Final = "nexus-"
"""Prefix of the protocol's own headers."""
_PASSED: Final = frozenset(
    {
        "operation-timeout",
        "user-agent",
        # trace context: W3C, B3, Jaeger, and of clouds
        "baggage",
        "traceparent",
        "tracestate",
        "b3",
        "x-b3-flags",
        "x-b3-parentspanid",
        "x-b3-sampled",
        "x-b3-spanid",
        "x-b3-traceid",
        "uber-trace-id",
        "x-amzn-trace-id",
        "x-cloud-trace-context",
        "x-correlation-id",
        "x-request-id",
    }
)
"""Headers of HTTP requests that handlers get in any case."""
CREDENTIALS: Final = re.compile(
    "auth|cookie|token|secret|passw|credential|api-?key|access-?key|session|jwt|assertion|oidc|saml|csrf|cert|signature"
    "|principal|grpc-metadata|bearer|dpop|otp|pwd|impersonat|remote-|forwarded"
    "|^host$|^connection$|^keep-alive$|^te$|^trailer$|^transfer-encoding$|^upgrade$|^content-|^nexus-"
)
"""Part of the name of a header that can carry credentials, or that belongs to the connection or to the protocol."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")


def lowered(headers: Mapping[str, str], field: str) -> dict[str, str]:
    """Return a caller's headers with names in lower case.

    Args:
        headers: The headers by name.
        field: The name of the field in messages.

    Raises:
        UnfitError: The headers are too large, or only the server may set one of them.
    """
    header = {key.lower(): value for key, value in headers.items()}
    for key in headers:
        if key.lower() in SERVERS_HEADERS:
            raise UnfitError(f'{field} contains a disallowed header key: "{key}"')
    if sum(len(key) + len(value) for key, value in header.items()) > _MAX_HEADER:
        raise UnfitError(f"{field} exceeds size limit")
    return header


def additional(names: Iterable[str]) -> frozenset[str]:
    """Check which further headers of HTTP requests handlers get; return their names in lower case.

    Raises:
        ValueError: A name is not valid, only the server may set the header, or it can carry credentials.
    """
    found = set()
    for given in sorted(names):
        name = given.lower()
        if not (given.isascii() and _NAME.fullmatch(name)):
            raise ValueError(f"{given!r} is not the name of a header: use letters, digits, and `-`")
        if name in SERVERS_HEADERS or CREDENTIALS.search(name):
            reason = "it can carry credentials of the caller, or belongs to the connection or the protocol"
            raise ValueError(f"Nexus handlers must not get the header {name!r}: {reason}")
        found.add(name)
    return frozenset(found)


def passed(headers: Mapping[str, str], more: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the headers of an HTTP request that a handler gets, in lower case.

    The handler can belong to another tenant, and proxies add credentials of the caller under many names. Therefore, handlers
    get only known headers.

    Args:
        headers: The headers of the request.
        more: The names of further headers, in lower case.
    """
    for name, value in headers.items():
        lower = name.lower()
        if lower in SERVERS_HEADERS or lower.startswith(CALLBACK_PREFIX):
            continue
        if lower.startswith(_PREFIX) or lower in _PASSED or lower in more:
            yield lower, value
