"""The page of reasons: which conditions and Events each kind has, and what their reasons mean.

Each meaning comes from the docstring in `perdure.api.reasons`: the part for all kinds, and the part after the name of the kind.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from perdure.api.crdgen import member_docs
from perdure.api.reasons import ConditionReason, ConditionStatus, ConditionType, EventReason
from reference.markdown import page, table

_UNKNOWN, _TRUE, _FALSE = str(ConditionStatus.UNKNOWN), str(ConditionStatus.TRUE), str(ConditionStatus.FALSE)
_NORMAL, _WARNING = "Normal", "Warning"

CONDITIONS: Final[Mapping[str, Mapping[ConditionType, Mapping[ConditionReason, str]]]] = {
    "WorkflowRun": {
        ConditionType.SUCCEEDED: {
            ConditionReason.RUNNING: _UNKNOWN,
            ConditionReason.PAUSED: _UNKNOWN,
            ConditionReason.START_DELAYED: _UNKNOWN,
            ConditionReason.COMPILING: _UNKNOWN,
            ConditionReason.WORKFLOW_NOT_FOUND: _UNKNOWN,
            ConditionReason.REVISION_NOT_FOUND: _UNKNOWN,
            ConditionReason.INVALID_WORKFLOW: f"{_UNKNOWN} or {_FALSE}",
            ConditionReason.RETRY_POLICY_NOT_FOUND: _UNKNOWN,
            ConditionReason.LIMIT_REACHED: f"{_UNKNOWN} or {_FALSE}",
            ConditionReason.TOO_MANY_OPEN_RUNS: _UNKNOWN,
            ConditionReason.MEMORY_SHORTAGE: _UNKNOWN,
            ConditionReason.LIMIT_NOT_FOUND: _UNKNOWN,
            ConditionReason.WORKFLOW_ID_IN_USE: _UNKNOWN,
            ConditionReason.ATTEMPT_NOT_STARTING: _UNKNOWN,
            ConditionReason.ATTEMPTS_LOST: _UNKNOWN,
            ConditionReason.CREATE_REFUSED: _UNKNOWN,
            ConditionReason.NO_WORKER: _UNKNOWN,
            ConditionReason.WORKFLOW_TASK_FAILED: _UNKNOWN,
            ConditionReason.STATE_DAMAGED: _UNKNOWN,
            ConditionReason.NEWER_STATE: _UNKNOWN,
            ConditionReason.INTERNAL_ERROR: _UNKNOWN,
            ConditionReason.CONTINUED_AS_NEW: _UNKNOWN,
            ConditionReason.COMPLETED: _TRUE,
            ConditionReason.FAILED: _FALSE,
            ConditionReason.DEADLINE_EXCEEDED: _FALSE,
            ConditionReason.TIMED_OUT: _FALSE,
            ConditionReason.CANCELLED: _FALSE,
            ConditionReason.TERMINATED: _FALSE,
            ConditionReason.INVALID_INPUT: _FALSE,
            ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED: _FALSE,
            ConditionReason.SUCCESSOR_REFUSED: _FALSE,
        },
        ConditionType.PAUSED: {
            ConditionReason.PAUSED: _TRUE,
            ConditionReason.NOT_PAUSED: _FALSE,
        },
        ConditionType.CANCEL_REQUESTED: {
            ConditionReason.CANCEL_REQUESTED: _TRUE,
        },
        ConditionType.HISTORY_TRUNCATED: {
            ConditionReason.SEGMENT_MISSING: _TRUE,
            ConditionReason.SEGMENT_CHANGED: _TRUE,
        },
        ConditionType.NEWER_STATE: {
            ConditionReason.NEWER_STATE: _TRUE,
        },
    },
    "Workflow": {
        ConditionType.READY: {
            ConditionReason.ACCEPTED: _TRUE,
            ConditionReason.INVALID_SPEC: _FALSE,
            ConditionReason.WORKFLOW_NOT_FOUND: _FALSE,
            ConditionReason.RETRY_POLICY_NOT_FOUND: _FALSE,
            ConditionReason.POD_REFUSED: _FALSE,
        },
    },
    "Schedule": {
        ConditionType.READY: {
            ConditionReason.ACCEPTED: _TRUE,
            ConditionReason.INVALID_SPEC: _FALSE,
            ConditionReason.UNKNOWN_TIME_ZONE: _FALSE,
            ConditionReason.NO_MORE_TIMES: _FALSE,
            ConditionReason.WORKFLOW_NOT_FOUND: _FALSE,
            ConditionReason.INVALID_WORKFLOW: _FALSE,
            ConditionReason.INVALID_INPUT: _FALSE,
            ConditionReason.RETRY_POLICY_NOT_FOUND: _FALSE,
            ConditionReason.RUN_REFUSED: _FALSE,
            ConditionReason.STATE_DAMAGED: _FALSE,
            ConditionReason.NEWER_STATE: _FALSE,
            ConditionReason.INTERNAL_ERROR: _FALSE,
        },
        ConditionType.PAUSED: {
            ConditionReason.PAUSED_BY_SPEC: _TRUE,
            ConditionReason.PAUSED_BY_OPERATION: _TRUE,
            ConditionReason.PAUSED_BY_FAILURE: _TRUE,
            ConditionReason.OUT_OF_ACTIONS: _TRUE,
            ConditionReason.NOT_PAUSED: _FALSE,
        },
    },
    "RetryPolicy": {
        ConditionType.READY: {
            ConditionReason.ACCEPTED: _TRUE,
            ConditionReason.INVALID_SPEC: _FALSE,
            ConditionReason.NEWER_STATE: _FALSE,
        },
        ConditionType.CIRCUIT_CLOSED: {
            ConditionReason.CIRCUIT_CLOSED: _TRUE,
            ConditionReason.CIRCUIT_OPEN: _FALSE,
            ConditionReason.CIRCUIT_HALF_OPEN: _FALSE,
        },
    },
    "WorkflowLimit": {
        ConditionType.READY: {
            ConditionReason.ACCEPTED: _TRUE,
            ConditionReason.INVALID_SPEC: _FALSE,
            ConditionReason.NEWER_STATE: _FALSE,
        },
    },
    "WorkflowDefaults": {
        ConditionType.READY: {
            ConditionReason.ACCEPTED: _TRUE,
            ConditionReason.INVALID_SPEC: _FALSE,
            ConditionReason.WORKFLOW_NOT_FOUND: _FALSE,
            ConditionReason.RETRY_POLICY_NOT_FOUND: _FALSE,
            ConditionReason.POD_REFUSED: _FALSE,
        },
    },
    "Webhook": {
        ConditionType.READY: {
            ConditionReason.ACCEPTED: _TRUE,
            ConditionReason.INVALID_SPEC: _FALSE,
            ConditionReason.SECRET_NOT_READABLE: _FALSE,
            ConditionReason.NOT_SERVED: _FALSE,
            ConditionReason.NEWER_STATE: _FALSE,
        },
        ConditionType.NEWER_STATE: {
            ConditionReason.NEWER_STATE: _TRUE,
        },
    },
    "WorkerDeployment": {
        ConditionType.READY: {
            ConditionReason.SERVING: _TRUE,
            ConditionReason.IDLE: _TRUE,
            ConditionReason.WORKERS_STARTING: _FALSE,
            ConditionReason.WORKERS_FAILING: _FALSE,
            ConditionReason.POD_REFUSED: _FALSE,
            ConditionReason.INVALID_SPEC: _FALSE,
            ConditionReason.NOT_SERVED: _FALSE,
            ConditionReason.NEWER_STATE: _FALSE,
        },
        ConditionType.ROLLED_OUT: {
            ConditionReason.ROLLED_OUT: _TRUE,
            ConditionReason.WORKERS_STARTING: _FALSE,
            ConditionReason.WORKERS_FAILING: _FALSE,
            ConditionReason.RAMPING: _FALSE,
            ConditionReason.ROUTING_REFUSED: _FALSE,
            ConditionReason.ROUTING_MANUAL: _FALSE,
            ConditionReason.POD_REFUSED: _FALSE,
        },
    },
    "Operation": {
        ConditionType.COMPLETE: {
            ConditionReason.DONE: _TRUE,
            ConditionReason.SIGNAL_NOT_AWAITED: _TRUE,
            ConditionReason.DEFERRED: _TRUE,
        },
        ConditionType.FAILED: {
            ConditionReason.TARGET_NOT_FOUND: _TRUE,
            ConditionReason.WORKFLOW_EXECUTION_COMPLETED: _TRUE,
            ConditionReason.WORKFLOW_CLOSING: _TRUE,
            ConditionReason.ACTIVITY_NOT_FOUND: _TRUE,
            ConditionReason.CANCEL_NOT_REQUESTED: _TRUE,
            ConditionReason.INVALID_SPEC: _TRUE,
            ConditionReason.INVALID_INPUT: _TRUE,
            ConditionReason.PAYLOAD_TOO_LARGE: _TRUE,
            ConditionReason.SIGNAL_LIMIT_EXCEEDED: _TRUE,
            ConditionReason.WORKFLOW_ID_IN_USE: _TRUE,
            ConditionReason.RESET_POINT_NOT_FOUND: _TRUE,
            ConditionReason.WORKSPACE_LOST: _TRUE,
            ConditionReason.SEGMENT_MISSING: _TRUE,
            ConditionReason.SEGMENT_CHANGED: _TRUE,
            ConditionReason.OVERLAP_SKIPPED: _TRUE,
            ConditionReason.TOO_MANY_BACKFILLS: _TRUE,
            ConditionReason.PAUSED_BY_SPEC: _TRUE,
            ConditionReason.REDRIVE_RUNNING: _TRUE,
            ConditionReason.REDRIVE_SUCCEEDED: _TRUE,
            ConditionReason.NOT_SUPPORTED: _TRUE,
            ConditionReason.STATE_DAMAGED: _TRUE,
            ConditionReason.NEWER_STATE: _TRUE,
            ConditionReason.INTERNAL_ERROR: _TRUE,
        },
        ConditionType.NEWER_STATE: {
            ConditionReason.NEWER_STATE: _TRUE,
        },
    },
    "DeadLetter": {
        ConditionType.REDRIVEN: {
            ConditionReason.REDRIVE_RUNNING: _UNKNOWN,
            ConditionReason.REDRIVE_SUCCEEDED: _TRUE,
            ConditionReason.REDRIVE_FAILED: _FALSE,
            ConditionReason.REDRIVE_DELETED: _FALSE,
        },
    },
}
"""By kind and type of the condition: its reasons, and the status for each."""

EVENTS: Final[Mapping[str, Mapping[EventReason, str]]] = {
    "WorkflowRun": {
        EventReason.STARTED: _NORMAL,
        EventReason.COMPLETED: _NORMAL,
        EventReason.CONTINUED_AS_NEW: _NORMAL,
        EventReason.FAILED: _WARNING,
        EventReason.TIMED_OUT: _WARNING,
        EventReason.CANCELLED: _WARNING,
        EventReason.TERMINATED: _WARNING,
        EventReason.CANCEL_REQUESTED: _NORMAL,
        EventReason.PAUSED: _NORMAL,
        EventReason.UNPAUSED: _NORMAL,
        EventReason.OPERATION_DONE: f"{_NORMAL} or {_WARNING}",
        EventReason.OPERATION_FAILED: _WARNING,
        EventReason.ATTEMPT_FAILED: _WARNING,
        EventReason.ATTEMPT_NOT_STARTING: _WARNING,
        EventReason.POD_REFUSED: _WARNING,
        EventReason.CREATE_REFUSED: _WARNING,
        EventReason.DOUBTFUL_RESULT: _WARNING,
        EventReason.DEAD_LETTERED: _WARNING,
        EventReason.WORKFLOW_NOT_FOUND: _WARNING,
        EventReason.REVISION_NOT_FOUND: _WARNING,
        EventReason.INVALID_WORKFLOW: _WARNING,
        EventReason.RETRY_POLICY_NOT_FOUND: _WARNING,
        EventReason.LIMIT_REACHED: _WARNING,
        EventReason.TOO_MANY_OPEN_RUNS: _WARNING,
        EventReason.MEMORY_SHORTAGE: _WARNING,
        EventReason.LIMIT_NOT_FOUND: _WARNING,
        EventReason.RESULT_NOT_CACHED: _WARNING,
        EventReason.LOG_NOT_ARCHIVED: _WARNING,
        EventReason.WORKFLOW_ID_IN_USE: _WARNING,
        EventReason.COMPILING: _WARNING,
        EventReason.NO_WORKER: _WARNING,
        EventReason.WORKFLOW_TASK_FAILED: _WARNING,
        EventReason.SUCCESSOR_REFUSED: _WARNING,
        EventReason.PAYLOAD_TOO_LARGE: _WARNING,
        EventReason.HISTORY_TRUNCATED: _WARNING,
        EventReason.STATE_DAMAGED: _WARNING,
        EventReason.NEWER_STATE: _WARNING,
        EventReason.INTERNAL_ERROR: _WARNING,
        EventReason.FINISHED_RUNS_REMOVED: _WARNING,
        EventReason.NOT_ARCHIVED: _WARNING,
        EventReason.ARCHIVE_UNAVAILABLE: _WARNING,
    },
    "Workflow": {
        EventReason.INVALID_SPEC: _WARNING,
        EventReason.WORKFLOW_NOT_FOUND: _WARNING,
        EventReason.RETRY_POLICY_NOT_FOUND: _WARNING,
        EventReason.POD_REFUSED: _WARNING,
    },
    "Schedule": {
        EventReason.RUN_SKIPPED: _NORMAL,
        EventReason.CATCHUP_WINDOW_MISSED: _WARNING,
        EventReason.BUFFER_DROPPED: _WARNING,
        EventReason.BACKFILL_CANCELLED: _NORMAL,
        EventReason.RUN_REFUSED: _WARNING,
        EventReason.RUN_NAME_TAKEN: _WARNING,
        EventReason.RETRYING: _NORMAL,
        EventReason.PAUSED: _NORMAL,
        EventReason.UNPAUSED: _NORMAL,
        EventReason.PAUSED_BY_FAILURE: _WARNING,
        EventReason.OUT_OF_ACTIONS: _NORMAL,
        EventReason.PAYLOAD_TOO_LARGE: _WARNING,
        EventReason.INVALID_SPEC: _WARNING,
        EventReason.WORKFLOW_NOT_FOUND: _WARNING,
        EventReason.INVALID_WORKFLOW: _WARNING,
        EventReason.INVALID_INPUT: _WARNING,
        EventReason.RETRY_POLICY_NOT_FOUND: _WARNING,
        EventReason.STATE_DAMAGED: _WARNING,
        EventReason.NEWER_STATE: _WARNING,
        EventReason.INTERNAL_ERROR: _WARNING,
    },
    "RetryPolicy": {
        EventReason.CIRCUIT_OPENED: _WARNING,
        EventReason.CIRCUIT_HALF_OPENED: _NORMAL,
        EventReason.CIRCUIT_CLOSED: _NORMAL,
        EventReason.NEWER_STATE: _WARNING,
    },
    "WorkflowLimit": {
        EventReason.INVALID_SPEC: _WARNING,
        EventReason.NEWER_STATE: _WARNING,
    },
    "WorkflowDefaults": {
        EventReason.INVALID_SPEC: _WARNING,
        EventReason.WORKFLOW_NOT_FOUND: _WARNING,
        EventReason.RETRY_POLICY_NOT_FOUND: _WARNING,
        EventReason.POD_REFUSED: _WARNING,
    },
    "Webhook": {
        EventReason.INVALID_SPEC: _WARNING,
        EventReason.SECRET_NOT_READABLE: _WARNING,
        EventReason.DELIVERY_FAILED: _WARNING,
        EventReason.NEWER_STATE: _WARNING,
    },
    "WorkerDeployment": {
        EventReason.VERSION_CREATED: _NORMAL,
        EventReason.VERSION_REMOVED: _NORMAL,
        EventReason.WORKERS_SCALED: _NORMAL,
        EventReason.WORKERS_FAILING: _WARNING,
        EventReason.ROUTING_REFUSED: _WARNING,
        EventReason.POD_REFUSED: _WARNING,
        EventReason.INVALID_SPEC: _WARNING,
        EventReason.NEWER_STATE: _WARNING,
    },
    "Operation": {
        EventReason.OPERATION_DONE: _NORMAL,
        EventReason.OPERATION_FAILED: _WARNING,
        EventReason.NEWER_STATE: _WARNING,
    },
    "DeadLetter": {
        EventReason.REDRIVEN: _NORMAL,
    },
    "ArtifactSet": {
        EventReason.ARTIFACTS_NOT_DELETED: _WARNING,
        EventReason.NEWER_STATE: _WARNING,
    },
    "ConfigMap": {
        EventReason.CURRENT_VERSION_CHANGED: _NORMAL,
        EventReason.RAMPING_VERSION_CHANGED: _NORMAL,
        EventReason.STATE_VERSION: _NORMAL,
    },
    "Pod": {
        EventReason.ARCHIVE_UNAVAILABLE: _WARNING,
        EventReason.ARCHIVE_AVAILABLE: _NORMAL,
    },
    "Lease": {
        EventReason.OPERATOR_JOINED: _NORMAL,
        EventReason.OPERATOR_LOST: _WARNING,
    },
    "any object": {
        EventReason.UNREADABLE: _WARNING,
    },
}
"""By kind of the involved object: the reasons of Events, and the type of each."""

_OF_KIND: Final = re.compile(rf" ?\b({'|'.join(CONDITIONS)}): ")
_SOURCE: Final = "operator/perdure/api/reasons.py"

_HEAD: Final = f"""\
Look up here what a condition or an Event means and what you can do. The reason is for programs; the message next to
it says what exactly is wrong.

    kubectl get wfr order-1001 -o jsonpath='{{.status.conditions}}'
    kubectl wait wfr/order-1001 --for=condition=Succeeded
    kubectl describe wfr order-1001
    kubectl get events -A --field-selector involvedObject.kind=WorkflowRun,type={_WARNING}

Conditions are in the status of the object. A HistorySegment, a Payload, an ArtifactSet, a CachedResult, and a
WorkflowRevision have none.

`perdure.dev/operator` reports Events on the object that they concern, for people. The API server deletes them after
an hour by default, and some can be lost. Do not rely on them: conditions and histories are the record. The Events of
an Operation are on the run that it targets, or on the Operation itself if it targets no run."""


def pages() -> dict[str, str]:
    """Write the page: a section for each kind, with its conditions and its Events.

    Raises:
        ValueError: A member has no docstring.
    """
    parts = (part for kind in EVENTS for part in section(kind))
    return {"reasons.md": page("Conditions and Events", _SOURCE, _HEAD, *parts)}


def section(kind: str) -> Iterator[str]:
    """Yield the heading of a kind, a table for each of its conditions, and one for its Events."""
    yield f"## {kind[0].upper()}{kind[1:]}"
    yield from _conditions(kind)
    yield "### Events"
    yield _events(kind)


def _conditions(kind: str) -> Iterator[str]:
    types, reasons = member_docs(ConditionType), member_docs(ConditionReason)
    for each, rows in CONDITIONS.get(kind, {}).items():
        yield f"### {each}"
        yield meaning(types[each], kind)
        yield table(
            ("reason", "status", "meaning"),
            ((f"`{reason}`", status, meaning(reasons[reason], kind)) for reason, status in rows.items()),
        )


def _events(kind: str) -> str:
    docs = member_docs(EventReason)
    rows = ((f"`{reason}`", type_, meaning(docs[reason], kind)) for reason, type_ in EVENTS[kind].items())
    return table(("reason", "type", "meaning"), rows)


def meaning(doc: str, kind: str) -> str:
    """Return the part of a docstring that applies to a kind; the names of other pages become links."""
    general, *special = _OF_KIND.split(doc)
    by_kind = dict(zip(special[::2], special[1::2], strict=True))
    text = " ".join(filter(None, (general, by_kind.get(kind))))
    return re.sub(r"docs/([a-z]+)[.]md", r"[\1](../\1.md)", text)
