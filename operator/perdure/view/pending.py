"""Formats the open work of a run: a card for each activity and Nexus operation, a line for each timer, child, and signal."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from rich.text import Text

from perdure.engine.state import TAKE_LIMITS
from perdure.view import failure, text
from perdure.view.facts import ShownRun
from perdure.view.notes import heartbeat
from perdure.view.openings import OpenActivity, OpenCancellation, OpenOperation
from perdure.view.page import Page
from perdure.view.tree import tries

_LABEL = 14
_MAX_SHOWN = 20
"""Maximum number of timers, children, Nexus operations, and signals to show, each."""

_Entry = TypeVar("_Entry")


def activity_card(activity: OpenActivity, page: Page) -> Iterator[Text]:
    """Show an open activity.

    Args:
        activity: The activity.
        page: The page for the output.

    Yields:
        Lines.
    """
    head = Text(f"  {text.one_line(activity.step)} ({text.one_line(activity.activity)})  ")
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
    due = f", {page.near(activity.next_attempt)}" if activity.next_attempt else ""
    shown = tries(activity.attempt, activity.maximum_attempts, activity.losses)
    yield "Attempt", shown.replace("/", " of ", 1).replace(" +", ", plus ") + due


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
        yield "Scheduled", page.moment(activity.scheduled)
    if activity.started:
        yield "Started", page.moment(activity.started)
    beat = heartbeat(activity, page).removeprefix("heartbeat ")
    if beat:
        yield "Heartbeat", page.shorten(beat, page.width - _LABEL - 4)
    if activity.deadline:
        yield "Times out", _timeout(activity.deadline, page)
    if activity.last_failure:
        yield "Last failure", failure.summary(activity.last_failure)


def _timeout(deadline: tuple[datetime, str], page: Page) -> str:
    time, timeout = deadline
    return f"{'is due' if time <= page.now else page.near(time)} ({timeout})"


def operation_cards(run: ShownRun, page: Page) -> Iterator[Text]:
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
    due = page.near(operation.next_attempt) if operation.next_attempt else None
    yield "Attempt", text.join((str(operation.attempt), due))
    if operation.operation_token:
        yield "Token", operation.operation_token
    if operation.scheduled:
        yield "Scheduled", page.moment(operation.scheduled)
    if operation.started:
        yield "Started", page.moment(operation.started)
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
            page.moment(cancellation.requested) if cancellation.requested else "yes",
            f"{cancellation.state}, attempt {cancellation.attempt}",
            page.near(cancellation.next_attempt) if cancellation.next_attempt else None,
            failure.summary(cancellation.last_failure) if cancellation.last_failure else None,
        )
    )


def timer_lines(run: ShownRun, page: Page) -> Iterator[Text]:
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
        due = "is due" if timer.fires <= page.now else f"{verb} {page.moment(timer.fires)}"
        yield Text(f"  {text.one_line(timer.path)}  {due}")
    yield from _rest(run.timers, page)


def child_lines(run: ShownRun, page: Page) -> Iterator[Text]:
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


def signal_lines(run: ShownRun, page: Page) -> Iterator[Text]:
    """Show the received signals that were not consumed yet.

    Args:
        run: The run.
        page: The page for the output.

    Yields:
        Lines.
    """
    for signal in _first(run.signals):
        when = page.moment(signal.received) if signal.received else None
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
