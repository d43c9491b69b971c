"""Links in responses to the event that a request caused, as on Temporal's server."""

from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from temporalio.api.common.v1 import Link
from temporalio.api.enums.v1 import EventType

from perdure.controller.directory import Entry
from perdure.runtime.attempts import RunRef


def to_start(entry: Entry) -> Link:
    """Return a link to the first event of a run."""
    link = _to(entry)
    link.workflow_event.event_ref.event_id = 1
    link.workflow_event.event_ref.event_type = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
    return link


def to_signal(entry: Entry, request_id: str) -> Link:
    """Return a link to the later event of a signal, by request ID; empty if the client set none."""
    return _by_request(entry, request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)


def to_update(entry: Entry, request_id: str) -> Link:
    """Return a link to the event of an accepted update."""
    return _by_request(entry, request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED)


def to_attachment(entry: Entry, request_id: str) -> Link:
    """Return a link to the event that records the callbacks of a start that attached to an open run."""
    return _by_request(entry, request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_OPTIONS_UPDATED)


def to_rejection(entry: Entry) -> Link:
    """Return a link to the run that rejected an update; a rejection leaves no event."""
    link = Link()
    link.workflow.namespace, link.workflow.workflow_id, link.workflow.run_id = _execution(entry)
    link.workflow.reason = "Update rejected"
    return link


def _by_request(entry: Entry, request_id: str, kind: "EventType.ValueType") -> Link:
    link = _to(entry)
    link.workflow_event.request_id_ref.request_id = request_id
    link.workflow_event.request_id_ref.event_type = kind
    return link


def _to(entry: Entry) -> Link:
    link = Link()
    link.workflow_event.namespace, link.workflow_event.workflow_id, link.workflow_event.run_id = _execution(entry)
    return link


def _execution(entry: Entry) -> tuple[str, str, str]:
    return entry.namespace, entry.workflow_id, entry.uid


def to_event(run: RunRef, event_id: int, kind: "EventType.ValueType") -> Link:
    """Return a link to an event of a run."""
    link = Link()
    event = link.workflow_event
    event.namespace, event.workflow_id, event.run_id = run.namespace, run.workflow_id, run.uid
    event.event_ref.event_id, event.event_ref.event_type = event_id, kind
    return link


def to_json(links: Iterable[Link]) -> Any:
    """Convert links to JSON; None if there are none."""
    return [MessageToDict(link) for link in links] or None


def from_json(links: Any) -> list[Link]:
    """Read links that were stored as JSON."""
    return [ParseDict(link, Link(), ignore_unknown_fields=True) for link in links or ()]
