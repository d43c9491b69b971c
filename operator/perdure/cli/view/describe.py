"""A whole run: header, steps, what is open, why it failed, what to do next."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from rich.text import Text

from perdure.cli.view import failure, hints, text
from perdure.cli.view.facts import OpenActivity, Run
from perdure.cli.view.page import Page
from perdure.cli.view.tree import heartbeat, tree

_LABEL = 14


def describe(run: Run, page: Page) -> list[Text]:
    """Show a run.

    Args:
        run: The run.
        page: What it is shown on.

    Returns:
        Lines.
    """
    return [*header(run, page), *sections(run, page)]


def sections(run: Run, page: Page) -> Iterator[Text]:
    """Show what there is to know below the header: steps, what is open, why it failed, what to do next.

    Args:
        run: The run.
        page: What it is shown on.

    Yields:
        Lines; an empty one before each section.
    """
    for title, content in (
        (f"Steps {run.progress}".strip(), tree(run, page) if run.steps else []),
        ("Pending activities", [line for activity in run.activities for line in _card(activity, page)]),
        ("Pending timers", list(_timers(run, page))),
        ("Failure", list(failure.chain(run.failure, page)) if run.failure else []),
        ("What next", list(hints.show(hints.hints(run, page)))),
    ):
        if content:
            yield Text()
            yield Text(title, style="bold")
            yield from content


def header(run: Run, page: Page) -> Iterator[Text]:
    """Show what a run is and how it stands.

    Args:
        run: The run.
        page: What it is shown on.

    Yields:
        Lines.
    """
    yield _field("Name", run.name)
    yield _field("Namespace", run.namespace)
    yield _field("Workflow", run.workflow or "written in the run itself")
    if run.workflow_id != run.name:
        yield _field("Workflow id", run.workflow_id)
    if run.uid:
        yield _field("Run id", run.uid)
    yield from status(run, page)
    if run.start is not None:
        yield _field("Started", page.moment(run.start))
    if run.end is not None:
        yield _field("Ended", page.moment(run.end))
    length = run.duration(page.now)
    if length is not None:
        yield _field("Duration", text.duration(length))
    for label, data in (("Input", run.input), ("Output", run.output)):
        if data is not None:
            yield _field(label, page.shorten(text.value(data), page.width - _LABEL))


def status(run: Run, page: Page) -> Iterator[Text]:
    """Show how a run stands, and why.

    Args:
        run: The run.
        page: What it is shown on.

    Yields:
        Lines.
    """
    line = _label("Status").append_text(page.status(run.phase))
    if run.reason and run.reason != run.phase:
        line.append(f" ({text.one_line(run.reason)})")
    if run.deleting:
        line.append(", being deleted", style="magenta")
    yield line
    if run.message and not run.failure:
        yield from _wrapped("Message", run.message, page)
    if run.undecided and run.undecided.next_attempt is not None:
        yield _field("Next try", f"attempt {run.undecided.attempt + 1} {page.near(run.undecided.next_attempt)}")


def as_data(run: Run, page: Page) -> dict[str, Any]:
    """Give what `describe` shows as data.

    Args:
        run: The run.
        page: How commands are written.

    Returns:
        JSON values under the names that the status of a run uses; what is not known is left out.
    """
    data = asdict(run)
    for name in ("seen", "observed"):
        del data[name]
    for step in data["steps"]:
        del step["open"], step["timer"]  # they stand under `pendingActivities` and `pendingTimers`
    for activity in data["activities"]:
        time, kind = activity["deadline"] or (None, None)
        activity["deadline"] = time and {"time": time, "timeout": kind}
    data["duration_seconds"] = run.duration(page.now)
    data["pods"] = sorted(run.seen.pods) if run.seen else None
    data["next"] = [{"purpose": purpose, "command": command} for purpose, command in hints.hints(run, page)]
    cleaned: dict[str, Any] = _clean(data)
    return cleaned


_NAMES = {
    "activities": "pendingActivities",
    "created": "creationTime",
    "details": "heartbeatDetails",
    "end": "completionTime",
    "fires": "fireTime",
    "heartbeat": "lastHeartbeatTime",
    "last_start": "lastAttemptStartTime",
    "next_attempt": "nextAttemptTime",
    "removed_at": "removalTime",
    "scheduled": "scheduledTime",
    "start": "startTime",
    "started": "startedTime",
    "timers": "pendingTimers",
    "uid": "runId",
}
_THEIRS = frozenset({"input", "output", "details", "failure", "last_failure"})
"""What users and their programs gave: it is not touched."""


def _clean(data: Any) -> Any:
    """JSON as Kubernetes writes it: camelCase, times as text, durations in seconds, nothing for nothing."""
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


def _label(name: str) -> Text:
    return Text(text.pad(f"{name}:", _LABEL), style="").append("")


def _field(name: str, shown: str) -> Text:
    return _label(name).append(text.one_line(shown))


def _wrapped(name: str, shown: str, page: Page) -> Iterator[Text]:
    first, *rest = text.wrap(text.one_line(shown), page.width - _LABEL)
    yield _field(name, first)
    yield from (Text(" " * _LABEL + line) for line in rest)


def _card(activity: OpenActivity, page: Page) -> Iterator[Text]:
    of = f" of {activity.maximum_attempts}" if activity.maximum_attempts else ""
    head = Text(f"  {text.one_line(activity.step)} ({text.one_line(activity.activity)})  ").append_text(
        page.status(activity.state)
    )
    yield head
    due = f", {page.near(activity.next_attempt)}" if activity.next_attempt else ""
    told = [("Attempt", f"{activity.attempt}{of}{due}")]
    if activity.pod and not activity.next_attempt:
        told.append(("Pod", text.join((activity.pod, activity.waits_for), ": ")))
    if activity.scheduled:
        told.append(("Scheduled", page.moment(activity.scheduled)))
    if activity.started:
        told.append(("Started", page.moment(activity.started)))
    beat = heartbeat(activity, page).removeprefix("heartbeat ")
    if beat:
        told.append(("Heartbeat", beat))
    if activity.deadline:
        told.append(("Times out", f"{page.near(activity.deadline[0])} ({activity.deadline[1]})"))
    if activity.last_failure:
        told.append(("Last failure", failure.summary(activity.last_failure)))
    for name, shown in told:
        line = Text(f"    {text.pad(f'{name}:', _LABEL)}")
        yield line.append(page.shorten(text.one_line(shown), page.width - _LABEL - 4))


def _timers(run: Run, page: Page) -> Iterator[Text]:
    for timer in run.timers:
        due = "is due" if timer.fires <= page.now else f"fires {page.moment(timer.fires)}"
        yield Text(f"  {text.one_line(timer.step)}  {due}")
