"""What Nexus adds to Temporal's messages: headers of operations, links between runs, and completion callbacks. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict
from temporalio.api.common.v1 import Callback as ProtoCallback
from temporalio.api.common.v1 import Link
from temporalio.api.enums.v1 import CallbackState, EventType

from perdure.controller.directory import Entry
from perdure.controller.namespaces import ServedNamespaces
from perdure.engine.nexus import MAX_CALLBACKS
from perdure.engine.starts import Callback
from perdure.engine.state import PendingCallback
from perdure.frontend.messages import failures
from perdure.frontend.messages.values import UnfitError, to_enum
from perdure.runtime.attempts import RunRef
from perdure.runtime.callbacks import SYSTEM_URL, TOKEN_HEADER, token_of

_MAX_HEADER: Final = 8_192
"""Maximum size of the headers of an operation, or of a callback, in bytes."""
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


def lowered_headers(headers: Mapping[str, str], field: str) -> dict[str, str]:
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


def additional_headers(names: Iterable[str]) -> frozenset[str]:
    """Check which further headers of HTTP requests handlers get; return their names in lower case.

    Raises:
        ValueError: A name is not valid, only the server may set the header, or it can carry credentials.
    """
    found = set()
    for header in sorted(names):
        name = header.lower()
        if not (header.isascii() and _NAME.fullmatch(name)):
            raise ValueError(f"{header!r} is not the name of a header: use letters, digits, and `-`")
        if name in SERVERS_HEADERS or CREDENTIALS.search(name):
            reason = "it can carry credentials of the caller, or belongs to the connection or the protocol"
            raise ValueError(f"Nexus handlers must not get the header {name!r}: {reason}")
        found.add(name)
    return frozenset(found)


def passed_headers(headers: Mapping[str, str], more: frozenset[str]) -> Iterator[tuple[str, str]]:
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


# Links in responses to the event that a request caused, as on Temporal's server


def link_to_start(entry: Entry) -> Link:
    """Return a link to the first event of a run."""
    link = _link_to(entry)
    link.workflow_event.event_ref.event_id = 1
    link.workflow_event.event_ref.event_type = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
    return link


def link_to_signal(entry: Entry, request_id: str) -> Link:
    """Return a link to the later event of a signal, by request ID; empty if the client set none."""
    return _link_by_request(entry, request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)


def link_to_update(entry: Entry, request_id: str) -> Link:
    """Return a link to the event of an accepted update."""
    return _link_by_request(entry, request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED)


def link_to_attachment(entry: Entry, request_id: str) -> Link:
    """Return a link to the event that records the callbacks of a start that attached to an open run."""
    return _link_by_request(entry, request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_OPTIONS_UPDATED)


def link_to_rejection(entry: Entry) -> Link:
    """Return a link to the run that rejected an update; a rejection leaves no event."""
    link = Link()
    link.workflow.namespace, link.workflow.workflow_id, link.workflow.run_id = _execution(entry)
    link.workflow.reason = "Update rejected"
    return link


def link_to_event(run: RunRef, event_id: int, kind: "EventType.ValueType") -> Link:
    """Return a link to an event of a run."""
    link = Link()
    event = link.workflow_event
    event.namespace, event.workflow_id, event.run_id = run.namespace, run.workflow_id, run.uid
    event.event_ref.event_id, event.event_ref.event_type = event_id, kind
    return link


def _link_by_request(entry: Entry, request_id: str, kind: "EventType.ValueType") -> Link:
    link = _link_to(entry)
    link.workflow_event.request_id_ref.request_id = request_id
    link.workflow_event.request_id_ref.event_type = kind
    return link


def _link_to(entry: Entry) -> Link:
    link = Link()
    link.workflow_event.namespace, link.workflow_event.workflow_id, link.workflow_event.run_id = _execution(entry)
    return link


def _execution(entry: Entry) -> tuple[str, str, str]:
    return entry.namespace, entry.workflow_id, entry.uid


def links_to_json(links: Iterable[Link]) -> Any:
    """Convert links to JSON; None if there are none."""
    return [MessageToDict(link) for link in links] or None


def links_from_json(links: Any) -> list[Link]:
    """Read links that were stored as JSON."""
    return [ParseDict(link, Link(), ignore_unknown_fields=True) for link in links or ()]


def request_links(request: Any) -> Any:
    """The links of a request, as JSON, without those of its callbacks."""
    of_callbacks = [link for each in getattr(request, "completion_callbacks", ()) for link in each.links]
    return links_to_json(link for link in request.links if link not in of_callbacks)


# Completion callbacks: Nexus operations that the end of a workflow, an update, or a standalone activity completes


def callbacks_of(request: Any, served: ServedNamespaces, limit: int = MAX_CALLBACKS) -> tuple[Callback, ...]:
    """The completion callbacks of a request.

    Args:
        request: Any message with the field `completion_callbacks`.
        served: The namespaces that this operator serves.
        limit: The maximum number of callbacks.

    Raises:
        UnfitError: A callback is not a Nexus operation of a workflow of this operator, or there are too many.
    """
    found = callbacks_to_engine(request.completion_callbacks)
    if len(found) > limit:
        raise UnfitError(f"cannot attach more than {limit} callbacks to an execution")
    for callback in found:
        if callback.url != SYSTEM_URL:
            raise UnfitError(f"invalid url: url does not match any configured callback address: {callback.url[:1_000]}")
        if sum(len(key) + len(value) for key, value in callback.header.items()) > _MAX_HEADER:
            raise UnfitError(f"invalid header: header size longer than max allowed size of {_MAX_HEADER}")
        token = token_of(callback)
        if token is None or token.namespace not in served:
            raise UnfitError(f"invalid callback: {TOKEN_HEADER} is missing or invalid")
    return found


def callbacks_to_engine(callbacks: Iterable[ProtoCallback]) -> tuple[Callback, ...]:
    """Convert callbacks to the form in events.

    Raises:
        UnfitError: A callback is not a Nexus operation.
    """
    return tuple(map(_callback_to_engine, callbacks))


def _callback_to_engine(proto: ProtoCallback) -> Callback:
    kind = proto.WhichOneof("variant")
    if kind != "nexus":
        raise UnfitError(f"unknown callback variant: {kind}")
    header = {key.lower(): value for key, value in proto.nexus.header.items()}
    return Callback(url=proto.nexus.url, header=header, links=links_to_json(proto.links))


def callback_to_proto(callback: Callback) -> ProtoCallback:
    """Convert a callback to the form for clients."""
    made = ProtoCallback(links=links_from_json(callback.links))
    made.nexus.url = callback.url
    made.nexus.header.update(callback.header)
    return made


def describe_callback(info: Any, pending: PendingCallback, *, due: bool) -> None:
    """Fill a CallbackInfo of temporal.api.workflow.v1 or temporal.api.callback.v1.

    Args:
        info: The message to fill.
        pending: The callback.
        due: Whether its operation can be completed now.
    """
    info.callback.CopyFrom(callback_to_proto(pending.callback))
    info.state = to_enum(CallbackState, pending.state or ("Scheduled" if due else "Standby"))
    info.attempt = 1 if pending.state else 0
    info.request_id = pending.request_id
    info.registration_time.FromDatetime(pending.registration_time)
    if pending.complete_time is not None:
        info.last_attempt_complete_time.FromDatetime(pending.complete_time)
    if pending.failure is not None:
        info.last_attempt_failure.CopyFrom(failures.to_proto(pending.failure))
