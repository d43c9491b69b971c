"""The event history as lines: one for each event with its most useful attributes, or every attribute."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.text import Text

from perdure.api import times
from perdure.api.json_values import mapping
from perdure.language.step_paths import Path, title
from perdure.view import text
from perdure.view.page import Page, style_of
from perdure.view.runs.failure import summary, task_failure
from perdure.view.runs.history import by_worker

Event = Mapping[str, Any]
Parts = list[str | None]
"""The attributes of an event to show, without None and empty texts."""


_STYLES = (("Completed", "Succeeded"), ("Failed", "Failed"), ("TimedOut", "TimedOut"), ("Canceled", "Cancelled"))
_UNTRUNCATED = frozenset({"WorkflowTaskFailed"})


class GapError(ValueError):
    """Events are missing, or out of order."""


def check(events: Sequence[Event]) -> None:
    """Check that a history is complete.

    Args:
        events: The events.

    Raises:
        GapError: The events are not numbered from 1 without gaps.
    """
    for expected, event in enumerate(events, start=1):
        if event.get("eventId") != expected:
            raise GapError(f"event {expected} is missing: event {event.get('eventId')} is in its place")


def table(
    events: Sequence[Event], page: Page, *, detailed: bool = False, reverse: bool = False, after: int = 0
) -> list[Text]:
    """Show a history.

    Args:
        events: The events.
        page: The page for the output.
        detailed: Whether to show every attribute of every event below it.
        reverse: Whether the newest event comes first.
        after: Number of events that were already shown, with the heading.

    Returns:
        Lines; the first one is the heading.
    """
    start = times.read_kubernetes_time(events[0].get("eventTime")) if events else None
    rows = [
        (
            str(event.get("eventId")),
            _time(event, start, page),
            text.one_line(str(event.get("eventType"))),
            short(event),
        )
        for event in events
    ]
    heading = ("ID", "TIME", "EVENT", "" if detailed else "ATTRIBUTES")
    widths = [max(cell_len(row[i]) for row in (heading, *rows)) for i in range(3)]
    number, time, kind, attributes = heading
    title = f"{number:>{widths[0]}}  {text.pad(time, widths[1])}  {text.pad(kind, widths[2])}  {attributes}"
    lines = [] if after else [Text(title.rstrip(), style="dim")]
    wanted = list(zip(events, rows, strict=True))[after:]
    for event, row in reversed(wanted) if reverse else wanted:
        number, time, kind, attributes = row
        line = Text(f"{number:>{widths[0]}}  {text.pad(time, widths[1])}  ")
        line.append(text.pad(kind, widths[2]), style=_style(kind))
        room = max(page.width - sum(widths) - 6, 20)
        # A message that says what blocks a run is shown in full.
        below = kind in _UNTRUNCATED and cell_len(attributes) > room and not detailed
        if not detailed and not below:
            line.append(f"  {page.shorten(attributes, room)}")
        line.rstrip()
        lines.append(line)
        if below:
            lines += [Text(" " * (widths[0] + 2) + part) for part in _wrapped(attributes, page.width - widths[0] - 2)]
        if detailed:
            lines += _attributes(event, widths[0] + 2, page)
    return lines


def _time(event: Event, start: datetime | None, page: Page) -> str:
    time = times.read_kubernetes_time(event.get("eventTime"))
    return page.glyphs.dash if time is None else page.since(time, start)


def _style(kind: str) -> str:
    return next((style_of(word) for ending, word in _STYLES if kind.endswith(ending)), "")


def _attributes(event: Event, indent: int, page: Page) -> Iterator[Text]:
    for name, value in event.items():
        if name in ALWAYS:
            continue
        line = Text(" " * indent)
        line.append(f"{text.one_line(name)}: ", style="dim")
        first, *rest = _wrapped(readable(name, value), page.width - cell_len(line.plain))
        yield line.append(first)
        yield from (Text(" " * (indent + 2) + part) for part in rest)


def _wrapped(attributes: str, width: int) -> list[str]:
    return text.wrap(attributes, max(width, 30))


# The attributes of an event in one line

ALWAYS = ("eventId", "eventTime", "eventType")
"""The attributes of every event, which have their own columns."""


_IDS = ("activityId", "timerId", "childId", "signalId")


_OMITTED = (*ALWAYS, *_IDS, "scheduledEventId", "startedEventId", "initiatedEventId")


def short(event: Event) -> str:
    """Show an event's attributes.

    Args:
        event: The event.

    Returns:
        One line, beginning with the step if there is one.
    """
    step = next((title(str(event[key])) for key in _IDS if event.get(key)), None)
    describe = _DESCRIBE.get(str(event.get("eventType")))
    parts: Parts = (
        describe(event) if describe else [f"{k} {text.value(v)}" for k, v in event.items() if k not in _OMITTED]
    )
    if step and parts and (parts[0] or "").startswith("("):
        step = f"{step} {parts.pop(0)}"
    return text.join((text.one_line(part) for part in (step, *parts) if part), "  ")


def readable(name: str, value: Any) -> str:
    """Format an attribute, with durations, also nested ones, as in manifests.

    Args:
        name: The name of the attribute.
        value: The value of the attribute.

    Returns:
        One line.
    """
    return text.value(_durations(name, value))


def _durations(name: str, value: Any) -> Any:
    if isinstance(value, dict) and name not in {"input", "result", "details"}:
        return {key: _durations(key, each) for key, each in value.items()}
    if isinstance(value, str) and name.endswith(("Timeout", "Interval", "Backoff", "timeout")):
        try:
            return text.duration(msgspec.convert(value, timedelta))
        except msgspec.ValidationError:
            pass
    return value


def _value(name: str) -> Callable[[Event], Parts]:
    """Format a value of the user with its name."""
    return lambda event: [f"{name} {text.value(event[name])}" if name in event else None]


def _text(*names: str) -> Callable[[Event], Parts]:
    """Format all attributes, unchanged."""
    return lambda event: [str(event[name]) if event.get(name) else None for name in names]


def _failure(event: Event) -> Parts:
    return [summary(mapping(event.get("failure"))) if event.get("failure") else None, event.get("retryState")]


def _request(event: Event) -> Parts:
    """Format the requester and the reason of a request."""
    who = event.get("identity")
    return [f"by {who}" if who else None, str(event.get("cause") or event.get("reason") or "")]


def _next(event: Event) -> Parts:
    """Format the next run of the chain."""
    run = event.get("newWorkflowRun")
    wait = event.get("newRunBackoff")
    return [f"continues as {run}" if run else None, f"in {readable('newRunBackoff', wait)}" if wait else None]


def _started(event: Event) -> Parts:
    attempt, parent = event.get("attempt", 1), mapping(event.get("parent"))
    wait = event.get("firstWorkflowTaskBackoff")
    failed = mapping(event.get("continuedFailure"))
    return [
        str(event.get("workflowType")),
        f"attempt {attempt}" if attempt != 1 else None,
        f"after {summary(failed)}" if failed else None,
        f"child of {parent.get('name')}" if parent else None,
        f"begins in {readable('firstWorkflowTaskBackoff', wait)}" if wait else None,
        *_value("input")(event),
    ]


def _activity_started(event: Event) -> Parts:
    failed = mapping(event.get("lastFailure"))
    who = event.get("identity")
    return [
        f"attempt {event.get('attempt', 1)}",
        f"by {who}" if who else None,
        f"after {summary(failed)}" if failed else None,
    ]


def _artifacts(event: Event) -> Parts:
    found = mapping(event.get("artifacts"))
    return [f"artifact {name} ({mapping(each).get('size')} bytes)" for name, each in found.items()]


def _cached(event: Event) -> Parts:
    return [f"cached result {event['cached']}"] if event.get("cached") else []


def _activity_scheduled(event: Event) -> Parts:
    queue = by_worker(event.get("taskQueue"))
    path = Path.parse(str(event.get("activityId")))
    if (path.service or path.awaited) and not queue:  # its name says all
        return []
    return [f"({event.get('activityType')})", f"task queue {queue}" if queue else None, *_value("input")(event)]


def _child(event: Event) -> Parts:
    start = mapping(event.get("start"))
    return [f"({start.get('workflowType')})", str(start.get("workflowId") or ""), *_value("input")(start)]


def _signal_to(event: Event) -> Parts:
    return [f"signal {event.get('signalName')} to {event.get('workflowId')}", *_value("input")(event)]


def _marker(event: Event) -> Parts:
    details = mapping(event.get("details"))
    failed = mapping(details.get("failure"))
    if not details:
        return [*_text("markerName")(event), *_value("details")(event)]
    shown = None if failed else f"details {text.value(details)}"
    return [*_text("markerName")(event), details.get("step"), summary(failed) if failed else shown]


def _operation(event: Event) -> Parts:
    """Format a scheduled Nexus operation; the endpoint determines the namespace that handles it."""
    what = f"{event.get('service')}.{event.get('operation')}"
    where = f"at {event.get('endpoint')} in {event.get('handlerNamespace')}"
    return [what, where, *_value("input")(event)]


def _of_operation(describe: Callable[[Event], Parts] = lambda _: []) -> Callable[[Event], Parts]:
    """Format a later event of a Nexus operation, which only has the ID of the Scheduled event."""
    return lambda event: [f"operation {event.get('scheduledEventId')}", *describe(event)]


_DESCRIBE: dict[str, Callable[[Event], Parts]] = {
    "ActivityTaskCancelRequested": lambda _: ["cancellation requested"],
    "ActivityTaskCanceled": _value("details"),
    "ActivityTaskCompleted": lambda event: [*_value("result")(event), *_artifacts(event), *_cached(event)],
    "ActivityTaskFailed": _failure,
    "ActivityTaskScheduled": _activity_scheduled,
    "ActivityTaskStarted": _activity_started,
    "ActivityTaskTimedOut": _failure,
    "ChildWorkflowExecutionCanceled": _value("details"),
    "ChildWorkflowExecutionCompleted": _value("result"),
    "ChildWorkflowExecutionFailed": _failure,
    "ChildWorkflowExecutionStarted": lambda event: [f"run id {event.get('runId')}"],
    "ChildWorkflowExecutionTerminated": _text("reason"),
    "ChildWorkflowExecutionTimedOut": _text("retryState"),
    "ExternalWorkflowExecutionCancelRequested": _text("workflowId"),
    "ExternalWorkflowExecutionSignaled": _text("workflowId"),
    "MarkerRecorded": _marker,
    "NexusOperationCancelRequestCompleted": _of_operation(),
    "NexusOperationCancelRequestFailed": _of_operation(_failure),
    "NexusOperationCancelRequested": _of_operation(lambda _: ["cancellation requested"]),
    "NexusOperationCanceled": _of_operation(_failure),
    "NexusOperationCompleted": _of_operation(_value("result")),
    "NexusOperationFailed": _of_operation(_failure),
    "NexusOperationScheduled": _operation,
    "NexusOperationStarted": _of_operation(_text("operationToken")),
    "NexusOperationTimedOut": _of_operation(_failure),
    "RequestCancelExternalWorkflowExecutionFailed": lambda event: [*_text("workflowId")(event), *_failure(event)],
    "RequestCancelExternalWorkflowExecutionInitiated": _text("workflowId", "reason"),
    "SignalExternalWorkflowExecutionFailed": lambda event: [*_text("workflowId")(event), *_failure(event)],
    "SignalExternalWorkflowExecutionInitiated": _signal_to,
    "StartChildWorkflowExecutionFailed": lambda event: [*_text("workflowId")(event), *_failure(event)],
    "StartChildWorkflowExecutionInitiated": _child,
    "TimerCanceled": lambda _: [],
    "TimerFired": lambda _: [],
    "TimerStarted": lambda event: [readable("startToFireTimeout", event.get("startToFireTimeout"))],
    "WorkflowExecutionCancelRequested": _request,
    "WorkflowExecutionCanceled": lambda event: [*_value("details")(event), *_failure(event)],
    "WorkflowExecutionCompleted": _value("result"),
    "WorkflowExecutionContinuedAsNew": lambda event: [*_next(event), *_value("input")(event)],
    "WorkflowExecutionFailed": lambda event: [*_failure(event), *_next(event)],
    "WorkflowExecutionOptionsUpdated": _request,
    "WorkflowExecutionPaused": _request,
    "WorkflowExecutionSignaled": lambda event: [
        *_text("signalName")(event),
        *_value("input")(event),
        f"from {event['identity']}" if event.get("identity") else None,
    ],
    "WorkflowExecutionStarted": _started,
    "WorkflowExecutionTerminated": _request,
    "WorkflowExecutionTimedOut": lambda event: [*_text("retryState")(event), *_next(event)],
    "WorkflowExecutionUnpaused": _request,
    "WorkflowTaskFailed": lambda event: [
        task_failure(event),
        *_request({**event, "cause": None}),
    ],
    "WorkflowTaskScheduled": _text("taskQueue"),
    "WorkflowTaskStarted": _text("identity"),
    "WorkflowTaskCompleted": _text("identity"),
    "WorkflowTaskTimedOut": _text("timeoutType"),
    "WorkflowExecutionUpdateAdmitted": lambda event: [*_text("name")(event), *_value("input")(event)],
    "WorkflowExecutionUpdateAccepted": lambda event: [*_text("name")(event), *_value("input")(event)],
    "WorkflowExecutionUpdateCompleted": lambda event: [*_text("updateId")(event), *_value("result")(event)],
    "UpsertWorkflowSearchAttributes": _value("searchAttributes"),
    "WorkflowPropertiesModified": _value("upsertedMemo"),
}
"""The most useful attributes by type of event. For other types, of a newer operator, all attributes are shown."""


DESCRIBED = frozenset(_DESCRIBE)
"""The types of events with a separate format."""
