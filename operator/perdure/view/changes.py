"""Formats the changes between two reads of a run, one line each."""

from collections.abc import Iterator

from perdure.view import text
from perdure.view.facts import ShownRun
from perdure.view.failure import summary
from perdure.view.notes import note
from perdure.view.page import Page
from perdure.view.steps import ShownStep

_QUIET = frozenset({"Pending", "NotReached"})


def changes(before: ShownRun | None, after: ShownRun, page: Page) -> Iterator[str]:
    """Show the changes.

    Args:
        before: The previous read of the run; None for the first one.
        after: The current read of the run.
        page: The page for the output.

    Yields:
        A line for each step whose status has changed, and one for the run if its status has changed.
    """
    known = {step.path: step for step in before.every_step()} if before else {}
    for step in after.every_step():
        if step.state not in _QUIET and _position(known.get(step.path)) != _position(step):
            yield _line(_when(step, after, page), page, step.path, step.state, _attempt(step), note(step, after, page))
    if before is None or (before.phase, why(before)) != (after.phase, why(after)):
        at = page.since(after.end or page.now, after.start)
        yield _line(at, page, after.name, after.phase, _duration(after, page), why(after))


def why(run: ShownRun) -> str:
    """Format the reason for the status of a run in one line.

    Args:
        run: The run.

    Returns:
        The failure, or reason and message; empty if there is none.
    """
    detail = summary(run.failure) if run.failure else run.message
    return text.one_line(text.join((run.reason if run.reason != run.phase else None, detail)))


def _duration(run: ShownRun, page: Page) -> str:
    length = run.duration(page.now) if run.closed else None
    return "" if length is None else f"after {text.duration(length)}"


def _position(step: ShownStep | None) -> tuple[object, ...]:
    if step is None:
        return ("Pending",)
    if step.state in _QUIET:
        return ("Pending",)
    waits_for = step.open.waits_for if step.open else None
    return (step.state, step.attempt, waits_for)


def _attempt(step: ShownStep) -> str:
    """Return the number of the attempt, unless its note contains it."""
    in_note = step.state in {"BackingOff", "Scheduled"}
    return f"attempt {step.attempt}" if step.attempt and step.attempt > 1 and not in_note else ""


def _when(step: ShownStep, run: ShownRun, page: Page) -> str:
    """Return when the state changed, if known; otherwise when the change was observed."""
    ended = step.end if step.open is None and step.timer is None else None
    return page.since(ended or page.now, run.start)


def _line(at: str, page: Page, name: str, state: str, *parts: str) -> str:
    icon = page.glyphs.icons.get(state, "?")
    return text.one_line(f"{at} {icon} {name} {text.join((state, *parts), ': ')}")
