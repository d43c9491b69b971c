"""Completion callbacks: Nexus operations that the end of a workflow, an update, or a standalone activity completes."""

from collections.abc import Iterable
from typing import Any

from temporalio.api.common.v1 import Callback as ProtoCallback
from temporalio.api.enums.v1 import CallbackState

from perdure.controller.namespaces import ServedNamespaces
from perdure.engine.nexus import MAX_CALLBACKS
from perdure.engine.starts import Callback
from perdure.engine.state import PendingCallback
from perdure.frontend.messages import failures, links
from perdure.frontend.messages.values import UnfitError, to_enum
from perdure.runtime.callbacks import SYSTEM_URL, TOKEN_HEADER, token_of

_MAX_HEADER = 8_192


def callbacks_of(request: Any, served: ServedNamespaces, limit: int = MAX_CALLBACKS) -> tuple[Callback, ...]:
    """The completion callbacks of a request.

    Args:
        request: Any message with the field `completion_callbacks`.
        served: The namespaces that this operator serves.
        limit: The maximum number of callbacks.

    Raises:
        UnfitError: A callback is not a Nexus operation of a workflow of this operator, or there are too many.
    """
    found = to_engine(request.completion_callbacks)
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


def to_engine(callbacks: Iterable[ProtoCallback]) -> tuple[Callback, ...]:
    """Convert callbacks to the form in events.

    Raises:
        UnfitError: A callback is not a Nexus operation.
    """
    return tuple(map(_to_engine, callbacks))


def _to_engine(proto: ProtoCallback) -> Callback:
    kind = proto.WhichOneof("variant")
    if kind != "nexus":
        raise UnfitError(f"unknown callback variant: {kind}")
    header = {key.lower(): value for key, value in proto.nexus.header.items()}
    return Callback(url=proto.nexus.url, header=header, links=links.to_json(proto.links))


def to_proto(callback: Callback) -> ProtoCallback:
    """Convert a callback to the form for clients."""
    made = ProtoCallback(links=links.from_json(callback.links))
    made.nexus.url = callback.url
    made.nexus.header.update(callback.header)
    return made


def describe(info: Any, pending: PendingCallback, *, due: bool) -> None:
    """Fill a CallbackInfo of temporal.api.workflow.v1 or temporal.api.callback.v1.

    Args:
        info: The message to fill.
        pending: The callback.
        due: Whether its operation can be completed now.
    """
    info.callback.CopyFrom(to_proto(pending.callback))
    info.state = to_enum(CallbackState, pending.state or ("Scheduled" if due else "Standby"))
    info.attempt = 1 if pending.state else 0
    info.request_id = pending.request_id
    info.registration_time.FromDatetime(pending.registration_time)
    if pending.complete_time is not None:
        info.last_attempt_complete_time.FromDatetime(pending.complete_time)
    if pending.failure is not None:
        info.last_attempt_failure.CopyFrom(failures.to_proto(pending.failure))


def request_links(request: Any) -> Any:
    """The links of a request, as JSON, without those of its callbacks."""
    of_callbacks = [link for each in getattr(request, "completion_callbacks", ()) for link in each.links]
    return links.to_json(link for link in request.links if link not in of_callbacks)
