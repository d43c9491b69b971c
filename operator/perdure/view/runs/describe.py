"""A whole run: header, steps, open work, failure, next commands, and the newest Events, as lines or as data for programs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, TypeVar

from rich.text import Text

from perdure.api import times
from perdure.api.json_values import Json, integer, mapping
from perdure.engine.state import AWAIT_SERVICE, TAKE_LIMITS
from perdure.language.step_paths import Path
from perdure.view import tables, text
from perdure.view.page import Page, style_of
from perdure.view.runs import failure, hints
from perdure.view.runs.open_work import OpenActivity, OpenCancellation, OpenOperation
from perdure.view.runs.run import CodeView, OpenRequest, RunView, task_state
from perdure.view.runs.tree import attempt_count, heartbeat, is_shortened, tree

_LABEL = 14


def describe(run: RunView, page: Page) -> list[Text]:
    """Show a run.

    Args:
        run: The run.
        page: The page for the output.

    Returns:
        Lines.
    """
    return [*header(run, page), *sections(run, page)]


def sections(run: RunView, page: Page) -> Iterator[Text]:
    """Show the part below the header: steps, open work, failure, and next commands.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines; an empty one before each section.
    """
    steps = tree(run, page) if run.steps else []
    if is_shortened(run, page):
        every = page.perdure(run.namespace, "describe", run.name, "--all")
        steps.append(Text(f"All steps: {every}", style="dim"))
    for title, content in (
        (f"Steps {run.progress}".strip(), steps),
        ("Pending activities", list(activity_cards(run, page))),
        ("Pending timers", list(timer_lines(run, page))),
        ("Pending children", list(child_lines(run, page))),
        ("Pending Nexus operations", list(operation_cards(run, page))),
        ("Pending signals", list(signal_lines(run, page))),
        ("Search attributes", list(_named_values(run.search_attributes or {}, page))),
        ("Memo", list(_named_values(run.memo or {}, page))),
        ("Artifacts", list(tables.artifact_lines(run.artifacts or {}, page))),
        ("Failure", list(failure.chain(run.failure, page, run.titles)) if run.failure else []),
        ("What next", list(hints.show(hints.hints(run, page)))),
    ):
        if content:
            yield Text()
            yield Text(title, style="bold")
            yield from content


def _named_values(values: Mapping[str, Any], page: Page) -> Iterator[Text]:
    """Show values by name, a line each."""
    for name, value in values.items():
        yield Text(page.shorten(f"  {text.one_line(name)}: {text.value(value)}", page.width))


def _workers(run: RunView) -> Iterator[Text]:
    if run.task_queue:
        yield _field("Task queue", run.task_queue)
    if run.versioning:
        yield _field("Version", run.versioning)


def _id_label(run: RunView) -> str:
    if run.activity is not None:
        return "Activity ID"
    return "Workflow ID" if run.operation is None else "Operation ID"


def header(run: RunView, page: Page) -> Iterator[Text]:
    """Show a run and its phase.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines.
    """
    yield _field("Name", run.name)
    yield _field("Namespace", run.namespace)
    if run.activity is not None:
        yield _field("Activity", f"{run.activity} (standalone)")
    elif run.operation is not None:
        yield _field("Operation", f"{run.operation} (standalone)")
        yield _field("Endpoint", run.endpoint)
    else:
        yield _field("Workflow", run.workflow or "inline")
    if run.revision:
        yield _field("Revision", run.revision)
    yield from _sources(run)
    yield from _workers(run)
    if run.workflow_id != run.name:
        yield _field(_id_label(run), run.workflow_id)
    if run.uid:
        yield _field("Run ID", run.uid)
    yield from _chain(run)
    yield from _workspaces(run)
    yield from status(run, page)
    if run.start is not None:
        yield _field("Started", page.timestamp(run.start))
    if run.end is not None:
        yield _field("Ended", page.timestamp(run.end))
    length = run.duration(page.now)
    if length is not None:
        yield _field("Duration", text.duration(length))
    for label, data in (("Input", run.input), ("Output", run.output)):
        if data is not None:
            yield _field(label, page.shorten(text.value(data), page.width - _LABEL))


def _chain(run: RunView) -> Iterator[Text]:
    """Yield lines for the related runs."""
    chain = run.chain
    if chain.parent:
        yield _field("Parent", chain.parent)
    if chain.attempt > 1:
        yield _field("Attempt", str(chain.attempt))
    if chain.continues:
        yield _field("After", chain.continues)
    if chain.continued_as:
        yield _field("Continues as", chain.continued_as)
    if chain.base:
        yield _field("Retries", chain.base)
    if run.retries:
        yield _field("Retried as", ", ".join(f"{each.name} ({each.phase})" for each in run.retries))


def _sources(run: RunView) -> Iterator[Text]:
    """Yield a line for each Workflow from which the definition has copied parts, and for the defaults that it has taken."""
    for source in run.sources:
        if source.get("workflowDefaults"):
            yield _field("Defaults", _taken(source))
            continue
        parts = [
            text.join((noun, ", ".join(_renamed(local, name) for local, name in mapping(source.get(key)).items())), " ")
            for key, noun in (("activities", "activity"), ("blocks", "block"))
            if source.get(key)
        ]
        generation = f", generation {source.get('generation')}"
        yield _field("Copied from", text.join((f"{source.get('workflow')}{generation}", "; ".join(parts)), ": "))


def _taken(source: Json) -> str:
    by_fields: dict[str, list[str]] = {}
    for name, names in mapping(source.get("activityFields")).items():
        by_fields.setdefault(", ".join(map(str, names)), []).append(name)
    parts = [", ".join(map(str, source.get("fields") or ()))]
    parts += [f"{names} of {', '.join(which)}" for names, which in by_fields.items()]
    return text.join((f"generation {source.get('generation')}", "; ".join(filter(None, parts))), ": ")


def _renamed(local: str, name: str) -> str:
    return local if local == name else f"{local} ({name})"


def _workspaces(run: RunView) -> Iterator[Text]:
    for workspace, claim in run.claims:
        yield _field("Workspace", f"{workspace} (PersistentVolumeClaim {claim})")


def status(run: RunView, page: Page) -> Iterator[Text]:
    """Show the status of a run and its reason.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines.
    """
    line = _label("Status").append_text(page.status(run.phase))
    if run.reason and run.reason != run.phase:
        line.append(f" ({text.one_line(run.reason)})")
    if run.deleting:
        line.append(", being deleted", style="magenta")
    yield line
    if run.paused is not None:
        yield from _wrapped("Paused", _request(run.paused, page), page)
    elif run.message and not run.failure:
        yield from _wrapped("Message", failure.titled(run.message, run.titles), page)
    if run.code is not None and not run.closed:
        yield from _task(run, run.code, page)
    if run.undecided and run.undecided.next_attempt is not None:
        yield _field("Next attempt", f"attempt {run.undecided.attempt + 1} {page.relative(run.undecided.next_attempt)}")
    if run.cancel is not None:
        yield from _wrapped("Cancellation", _request(run.cancel, page), page)
    for condition in run.conditions:
        if condition.type not in {"Succeeded", "Paused", "CancelRequested"}:
            message = failure.titled(condition.message, run.titles)
            yield from _wrapped(
                condition.type, text.join((f"{condition.status} ({condition.reason})", message), ": "), page
            )


def _task(run: RunView, code: CodeView, page: Page) -> Iterator[Text]:
    """Show the workflow task; if there is none, what the run waits for."""
    if code.task is not None:
        yield from _wrapped("Task", task_state(code.task, page), page)
    elif run.phase == "Running":
        waits = any(step.end is None for step in run.steps)
        yield _field("Task", f"none; the run waits for {'its pending work' if waits else 'a signal or an update'}")


def _request(request: OpenRequest, page: Page) -> str:
    """Format the time, the requester, and the reason of a request."""
    when = page.timestamp(request.time) if request.time else "yes"
    origin = text.join((when + (f" by {request.identity}" if request.identity else ""), request.reason), ": ")
    return text.join((origin, request.effect), ". ")


def _label(name: str) -> Text:
    return Text(text.pad(f"{name}:", _LABEL - 1) + " ", style="").append("")


def _field(name: str, shown: str) -> Text:
    return _label(name).append(text.one_line(shown))


def _wrapped(name: str, shown: str, page: Page) -> Iterator[Text]:
    first, *rest = text.wrap(text.one_line(shown), page.width - _LABEL)
    yield _field(name, first)
    yield from (Text(" " * _LABEL + line) for line in rest)


# Open work: a card for each activity and Nexus operation, a line for each timer, child, and signal

_MAX_SHOWN = 20
"""Maximum number of timers, children, Nexus operations, and signals to show, each."""


_MAX_CARDS = 3
"""Maximum number of open activities to show on a brief page of a run with many steps."""

_Entry = TypeVar("_Entry")


def activity_cards(run: RunView, page: Page) -> Iterator[Text]:
    """Show the open activities of a run; on a brief page, the first ones.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines.
    """
    activities = [each for each in run.activities if each.activity != AWAIT_SERVICE]  # the tree of the steps shows them
    shown = activities[:_MAX_CARDS] if is_shortened(run, page) else activities
    titles = run.titles
    for activity in shown:
        yield from activity_card(activity, page, titles.get(activity.step, activity.step))
    if len(shown) < len(activities):
        yield Text(f"  {page.glyphs.ellipsis} {len(activities) - len(shown)} more", style="dim")


def activity_card(activity: OpenActivity, page: Page, title: str) -> Iterator[Text]:
    """Show an open activity.

    Args:
        activity: The activity.
        page: The page for the output.
        title: The name of its step for users.

    Yields:
        Lines.
    """
    head = Text(f"  {text.one_line(title)} ({text.one_line(activity.activity)})  ")
    yield head.append_text(page.status(activity.state))
    yield from _fields(_rows(activity, page), page)


def _fields(rows: Iterable[tuple[str, str]], page: Page) -> Iterator[Text]:
    for name, shown in rows:
        first, *rest = text.wrap(text.one_line(shown), max(page.width - _LABEL - 4, 20))
        yield Text(f"    {text.pad(f'{name}:', _LABEL)}{first}")
        yield from (Text(" " * (_LABEL + 4) + line) for line in rest)


def _attempt(activity: OpenActivity, page: Page) -> Iterator[tuple[str, str]]:
    if activity.activity == TAKE_LIMITS:
        return  # it has none
    due = f", {page.relative(activity.next_attempt)}" if activity.next_attempt else ""
    shown = attempt_count(activity.attempt, activity.maximum_attempts, activity.losses)
    yield "Attempt", shown.replace("/", " of ", 1).replace(" +", ", plus ") + due
    if activity.resets:
        yield "Reset", "takes effect when the running attempt has ended: the next one counts as the first"


def _rows(activity: OpenActivity, page: Page) -> Iterator[tuple[str, str]]:
    yield from _attempt(activity, page)
    if activity.pod and not activity.next_attempt:
        yield "Pod", text.join((activity.pod, activity.waits_for), ": ")
    elif activity.waits_for:
        yield "Waits", activity.waits_for
    if activity.task_queue:
        yield "Task queue", activity.task_queue
    if activity.worker:
        yield "Worker", activity.worker
    if activity.scheduled:
        yield "Scheduled", page.timestamp(activity.scheduled)
    if activity.started:
        yield "Started", page.timestamp(activity.started)
    beat = heartbeat(activity, page).removeprefix("heartbeat ")
    if beat:
        yield "Heartbeat", page.shorten(beat, page.width - _LABEL - 4)
    if activity.deadline and not Path.parse(activity.step).service:  # a service ends with its steps
        yield "Times out", _timeout(activity.deadline, page)
    if activity.last_failure:
        yield "Last failure", failure.summary(activity.last_failure)


def operation_cards(run: RunView, page: Page) -> Iterator[Text]:
    """Show the Nexus operations of a run.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines.
    """
    for operation in _first(run.operations):
        yield Text(f"  {text.one_line(operation.name)}  ").append_text(page.status(operation.state))
        yield from _fields(_of_operation(operation, page), page)
    yield from _rest(run.operations, page)


def _of_operation(operation: OpenOperation, page: Page) -> Iterator[tuple[str, str]]:
    yield "Endpoint", f"{operation.endpoint}, handled in namespace {operation.handler_namespace}"
    due = page.relative(operation.next_attempt) if operation.next_attempt else None
    yield "Attempt", text.join((str(operation.attempt), due))
    if operation.operation_token:
        yield "Token", operation.operation_token
    if operation.scheduled:
        yield "Scheduled", page.timestamp(operation.scheduled)
    if operation.started:
        yield "Started", page.timestamp(operation.started)
    if operation.deadline:
        yield "Times out", _timeout(operation.deadline, page)
    if operation.last_failure:
        yield "Last failure", failure.summary(operation.last_failure)
    if operation.cancellation:
        yield "Cancellation", _cancellation(operation.cancellation, page)


def _cancellation(cancellation: OpenCancellation, page: Page) -> str:
    if not cancellation.state:
        return "yes; sent to the handler once the operation has started"
    return text.join(
        (
            page.timestamp(cancellation.requested) if cancellation.requested else "yes",
            f"{cancellation.state}, attempt {cancellation.attempt}",
            page.relative(cancellation.next_attempt) if cancellation.next_attempt else None,
            failure.summary(cancellation.last_failure) if cancellation.last_failure else None,
        )
    )


def _timeout(deadline: tuple[datetime, str], page: Page) -> str:
    time, timeout = deadline
    return f"{'is due' if time <= page.now else page.relative(time)} ({timeout})"


def timer_lines(run: RunView, page: Page) -> Iterator[Text]:
    """Show the timers of a run.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines.
    """
    kinds = {step.path: step.kind for step in run.every_step()}
    for timer in _first(run.timers):
        waits = kinds.get(timer.path) in {"waitForSignal", "waitUntil"}
        verb = "times out" if timer.limits or waits else "fires"
        due = "is due" if timer.fires <= page.now else f"{verb} {page.timestamp(timer.fires)}"
        yield Text(f"  {text.one_line(timer.path) or 'all steps'}  {due}")
    yield from _rest(run.timers, page)


def child_lines(run: RunView, page: Page) -> Iterator[Text]:
    """Show the children of a run.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines.
    """
    for child in _first(run.children):
        line = Text(f"  {text.one_line(child.step)}  {text.one_line(child.workflow_run)}  ")
        if child.phase:
            line.append_text(page.status(child.phase)).append(f" {child.progress}".rstrip())
        else:
            line.append("has started" if child.child_run_id else "is being started")
        details = text.join(
            (
                child.waits_for,
                f"workflow ID {child.workflow_id}" if child.workflow_id != child.step else None,
                f"if this run closes first: {child.parent_close_policy}" if child.parent_close_policy else None,
            )
        )
        yield line
        if details:
            yield Text(f"    {page.shorten(text.one_line(details), page.width - 4)}", style="dim")
    yield from _rest(run.children, page)


def signal_lines(run: RunView, page: Page) -> Iterator[Text]:
    """Show the received signals that were not consumed yet.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines.
    """
    for signal in _first(run.signals):
        when = page.timestamp(signal.received) if signal.received else None
        details = text.join(
            (
                text.join(("received", when, f"from {signal.identity}" if signal.identity else None), " "),
                None if signal.input is None else f"input {text.value(signal.input)}",
            )
        )
        line = f"  {text.one_line(signal.name)}  {text.one_line(details)}"
        yield Text(page.shorten(line, page.width))
    yield from _rest(run.signals, page)


def _first(entries: Sequence[_Entry]) -> Sequence[_Entry]:
    return entries[:_MAX_SHOWN]


def _rest(entries: Sequence[object], page: Page) -> Iterator[Text]:
    if len(entries) > _MAX_SHOWN:
        rest = f"  {page.glyphs.ellipsis} {len(entries) - _MAX_SHOWN} more, see --output json"
        yield Text(rest, style="dim")


# Events

_MAX_EVENTS = 5


def event_lines(events: Sequence[Mapping[str, Any]], page: Page) -> Iterator[Text]:
    """Show Events below a title; nothing if there are none.

    Args:
        events: The Events.
        page: The page for the output.

    Yields:
        Lines, oldest first. Messages are truncated to the width of the page.
    """
    newest = sorted(events, key=lambda event: str(_time(event) or ""))[-_MAX_EVENTS:]
    if not newest:
        return
    yield Text()
    left_out = len(events) - len(newest)
    yield Text(f"Events{f' (the last {len(newest)} of {len(events)})' if left_out else ''}", style="bold")
    cells = [(tables.ago(_time(event), page), str(event.get("type")), str(event.get("reason"))) for event in newest]
    widths = tables.widths_of(cells)
    for event, row in zip(newest, cells, strict=True):
        line = Text("  ").append("  ".join(text.pad(cell, width) for cell, width in zip(row, widths, strict=True)))
        if row[1] == "Warning":
            line.stylize(style_of("Warning"))
        count = integer(mapping(event.get("series")).get("count")) or integer(event.get("count")) or 1
        message = text.one_line(str(event.get("message") or "")) + (f" (x{count})" if count > 1 else "")
        yield line.append(f"  {page.shorten(message, max(page.width - sum(widths) - 8, 20))}")


def _time(event: Mapping[str, Any]) -> datetime | None:
    """Return the time of the last occurrence of an Event."""
    last = mapping(event.get("series")).get("lastObservedTime") or event.get("lastTimestamp")
    return times.read_kubernetes_time(
        last or event.get("eventTime") or mapping(event.get("metadata")).get("creationTimestamp")
    )


# Data

_NAMES = {
    "activities": "pendingActivities",
    "cancel": "cancelRequested",
    "children": "pendingChildren",
    "created": "creationTime",
    "details": "heartbeatDetails",
    "end": "completionTime",
    "fires": "fireTime",
    "continued_as": "newWorkflowRun",
    "base": "retriedWorkflowRun",
    "continues": "continuedWorkflowRun",
    "heartbeat": "lastHeartbeatTime",
    "last_start": "lastAttemptStartTime",
    "losses": "lostAttempts",
    "next_attempt": "nextAttemptTime",
    "operations": "pendingNexusOperations",
    "received": "receivedTime",
    "removed_at": "removalTime",
    "requested": "requestedTime",
    "scheduled": "scheduledTime",
    "signals": "pendingSignals",
    "start": "startTime",
    "started": "startedTime",
    "timers": "pendingTimers",
    "uid": "runId",
    "waits_for": "waitingReason",
}


_THEIRS = frozenset({"input", "output", "details", "failure", "last_failure", "memo", "search_attributes"})
"""Fields with values of users and their programs, which are not converted."""


_OF_STEPS = ("open", "timer", "limit", "child", "operation", "recorded")
"""Fields that are listed under `pendingActivities`, `pendingTimers`, `pendingChildren` and `pendingNexusOperations`, or in other
fields of the step."""


def as_data(run: RunView, page: Page) -> dict[str, Any]:
    """Return the output of `describe` as data.

    Args:
        run: The run.
        page: The settings of the output.

    Returns:
        JSON with the names of a run's status; unknown values are omitted.
    """
    data = asdict(run)
    for name in ("live", "observed", "failed_from", "titles"):
        del data[name]
    for step in data["steps"]:
        _prune(step)
    for called in (*data["activities"], *data["operations"]):
        time, kind = called["deadline"] or (None, None)
        called["deadline"] = time and {"time": time, "timeout": kind}
    for activity in data["activities"]:
        activity["losses"] = activity["losses"] or None
    data["duration_seconds"] = run.duration(page.now)
    data["pods"] = sorted(run.live.pods) if run.live else None
    data["next"] = [{"purpose": purpose, "command": command} for purpose, command in hints.hints(run, page)]
    cleaned: dict[str, Any] = _clean(data)
    return cleaned


def _prune(step: dict[str, Any]) -> None:
    for name in _OF_STEPS:
        del step[name]
    for name in ("steps", "losses", "pods"):
        step[name] = step[name] or None
    for inner in step["steps"] or ():
        _prune(inner)


def _clean(data: Any) -> Any:
    """Convert to JSON in the form of Kubernetes: camelCase, times as text, durations in seconds, and no empty values."""
    match data:
        case datetime():
            return text.iso(data)
        case timedelta():
            return data.total_seconds()
        case list() | tuple():
            return [_clean(item) for item in data]
        case dict():
            return {
                _NAMES.get(key) or _camel(key): item if key in _THEIRS else _clean(item)
                for key, item in data.items()
                if item is not None and (key in _THEIRS or item != "")
            }
        case _:
            return data


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
