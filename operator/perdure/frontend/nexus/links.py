"""Convert links to and from the URLs of Nexus handlers (temporalnexus/link_converter.go). Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlencode, urlsplit

from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import Link
from temporalio.api.enums.v1 import EventType
from temporalio.api.nexus.v1 import Link as NexusLink

from perdure.frontend.messages.values import from_enum, to_enum

_EVENT_TYPE: str = Link.WorkflowEvent.DESCRIPTOR.full_name
_OPERATION_TYPE: str = Link.NexusOperation.DESCRIPTOR.full_name
_ID = "([^/]+)"
_BY_EVENT, _BY_REQUEST = "EventReference", "RequestIdReference"


def to_event(event: Link.WorkflowEvent) -> NexusLink:
    """A link to an event of a workflow."""
    query = {"eventType": from_enum(EventType, event.event_ref.event_type), "referenceType": _BY_EVENT}
    if event.event_ref.event_id:
        query = {"eventID": str(event.event_ref.event_id), **query}
    url = _url(event.namespace, "workflows", event.workflow_id, event.run_id, "history")
    return NexusLink(url=f"{url}?{urlencode(query)}", type=_EVENT_TYPE)


def to_operation(operation: Link.NexusOperation) -> NexusLink:
    """A link to a standalone Nexus operation."""
    url = _url(operation.namespace, "nexus-operations", operation.operation_id, operation.run_id, "details")
    return NexusLink(url=url, type=_OPERATION_TYPE)


def _url(namespace: str, kind: str, named: str, run_id: str, end: str) -> str:
    namespace, named, run_id = (quote(part, safe="") for part in (namespace, named, run_id))
    return f"temporal:///namespaces/{namespace}/{kind}/{named}/{run_id}/{end}"


def from_nexus(links: Iterable[NexusLink]) -> Any:
    """Convert the links of a handler to JSON, without links of unknown kinds. None if there are none."""
    read = [link for link in map(_read, links) if link is not None]
    return [MessageToDict(link) for link in read] or None


def _read(link: NexusLink) -> Link | None:
    made = Link()
    with suppress(ValueError):
        url, kind = urlsplit(link.url), _KINDS.get(link.type)
        if kind is None or url.scheme != "temporal":
            return None
        path, read = kind
        parts = re.fullmatch(path, url.path)
        if parts is None:
            return None
        read(made, url, *map(unquote, parts.groups()))
        return made if made.WhichOneof("variant") else None
    return None


def _read_event(link: Link, url: SplitResult, *named: str) -> None:
    query = parse_qs(url.query)
    kind = to_enum(EventType, query.get("eventType", [""])[0])
    event = Link.WorkflowEvent()
    event.namespace, event.workflow_id, event.run_id = named
    if query.get("referenceType") == [_BY_EVENT]:
        event.event_ref.event_id, event.event_ref.event_type = int(query.get("eventID", ["0"])[0]), kind
    elif query.get("referenceType") == [_BY_REQUEST]:
        event.request_id_ref.request_id = query.get("requestID", [""])[0]
        event.request_id_ref.event_type = kind
    else:
        return
    link.workflow_event.CopyFrom(event)


def _read_workflow(link: Link, url: SplitResult, *named: str) -> None:
    link.workflow.namespace, link.workflow.workflow_id, link.workflow.run_id = named
    link.workflow.reason = parse_qs(url.query).get("reason", [""])[0]


def _read_activity(link: Link, _: SplitResult, *named: str) -> None:
    link.activity.namespace, link.activity.activity_id, link.activity.run_id = named


def _read_operation(link: Link, _: SplitResult, *named: str) -> None:
    link.nexus_operation.namespace, link.nexus_operation.operation_id, link.nexus_operation.run_id = named


_KINDS: Mapping[str, tuple[str, Callable[..., None]]] = {
    _EVENT_TYPE: (f"/namespaces/{_ID}/workflows/{_ID}/{_ID}/history", _read_event),
    Link.Workflow.DESCRIPTOR.full_name: (f"/namespaces/{_ID}/workflows/{_ID}/{_ID}", _read_workflow),
    Link.Activity.DESCRIPTOR.full_name: (f"/namespaces/{_ID}/activities/{_ID}/{_ID}/details", _read_activity),
    _OPERATION_TYPE: (f"/namespaces/{_ID}/nexus-operations/{_ID}/{_ID}/details", _read_operation),
}
"""The path of the URL and its reader, by type."""
