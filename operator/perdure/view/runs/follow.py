"""A followed run: the part that fits on the screen, the changes between two reads, one line each, and the final output."""

from collections.abc import Iterator
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from perdure.view import text
from perdure.view.page import Page
from perdure.view.runs.describe import sections
from perdure.view.runs.failure import summary, titled
from perdure.view.runs.run import RunView
from perdure.view.runs.steps import StepView
from perdure.view.runs.tree import note, rows

_AHEAD = 2
"""Number of steps to show below the last one that has started."""


def window(run: RunView, page: Page, height: int) -> list[Text]:
    """Show the status of a run on one screen; if it is too long, only the active part.

    Args:
        run: The run.
        page: The page for the output.
        height: Lines of the screen.

    Returns:
        Fewer lines than the height of the screen, if that is at least ten.
    """
    head = one_line(run, page)
    if not run.steps:
        return [head]
    heading, blocks = rows(run, page, pods=False)
    room = max(height - 3, 7)  # besides header, heading, and cursor
    sizes = [len(block.lines) for block in blocks]
    if sum(sizes) <= room:
        return [head, heading, *(line for block in blocks for line in block.lines)]
    reached = max((i for i, block in enumerate(blocks) if block.reached), default=0)
    bottom = top = min(reached + 1 + _AHEAD, len(blocks))
    room -= 2  # the numbers of lines above and below
    while top > 0 and sizes[top - 1] <= room:
        top -= 1
        room -= sizes[top]
    while bottom < len(blocks) and sizes[bottom] <= room:
        room -= sizes[bottom]
        bottom += 1
    return [
        head,
        heading,
        *_omitted(top, "before", page),
        *(line for block in blocks[top:bottom] for line in block.lines),
        *_omitted(len(blocks) - bottom, "after", page),
    ]


def ended(run: RunView, page: Page) -> list[Text]:
    """Show a run that has ended.

    Args:
        run: The run.
        page: The page for the output.

    Returns:
        Lines.
    """
    return [one_line(run, page), *sections(run, page)]


def _omitted(count: int, where: str, page: Page) -> list[Text]:
    rest = f"{page.glyphs.ellipsis} {count} step{'s' if count > 1 else ''} {where}"
    return [Text(rest, style="dim")] if count else []


def one_line(run: RunView, page: Page) -> Text:
    """Show a run in one line.

    Args:
        run: The run.
        page: The page for the output.

    Returns:
        Name, status, progress, duration, and reason.
    """
    line = Text(f"{text.one_line(run.name)}  ").append_text(page.status(run.phase))
    length = run.duration(page.now)
    one_line = text.join(
        ("", run.progress, text.duration(length) if length is not None else None, status_reason(run)), "  "
    )
    return line.append(page.shorten(f"  {one_line}", max(page.width - cell_len(line.plain), 10)))


# Changes

_QUIET = frozenset({"Pending", "NotReached"})


class Changes:
    """The changes between the reads of a run, one line each, in the order of their times; an item keeps its name."""

    def __init__(self) -> None:
        self._before: RunView | None = None
        self._names: dict[str, str] = {}

    def lines(self, after: RunView, page: Page) -> Iterator[str]:
        """Show the changes since the read before.

        Args:
            after: The current read of the run.
            page: The page for the output.

        Yields:
            A line for each step whose status has changed, and one for the run if its status has changed.
        """
        before, self._before = self._before, after
        # Once a loop has ended, an open run no longer has the values of its items.
        for step in after.every_step():
            if (name := after.name_of(step)) != step.path or step.path not in self._names:
                self._names[step.path] = name
        known = {step.path: step for step in before.every_step()} if before else {}
        found = list[tuple[datetime, str]]()
        for step in after.every_step():
            if step.state not in _QUIET and _position(known.get(step.path)) != _position(step):
                parts = step.state, _attempt(step), note(step, after, page)
                found.append((_when(step, page), _line(page, self._names[step.path], *parts)))
        if before is None or (before.phase, status_reason(before)) != (after.phase, status_reason(after)):
            observed = page.now if before is not None or after.start is None else after.start
            parts = after.phase, _duration(after, page), status_reason(after)
            found.append((after.end or observed, _line(page, after.name, *parts)))
        for time, line in sorted(found, key=lambda change: change[0]):
            yield text.one_line(f"{page.since(time, after.start)} {line}")


def status_reason(run: RunView) -> str:
    """Format the reason for the status of a run in one line.

    Args:
        run: The run.

    Returns:
        The failure, or reason and message; empty if there is none.
    """
    detail = summary(run.failure, run.titles) if run.failure else titled(run.message, run.titles)
    return text.one_line(text.join((run.reason if run.reason != run.phase else None, detail)))


def _duration(run: RunView, page: Page) -> str:
    length = run.duration(page.now) if run.closed else None
    return "" if length is None else f"after {text.duration(length)}"


def _position(step: StepView | None) -> tuple[object, ...]:
    if step is None:
        return ("Pending",)
    if step.state in _QUIET:
        return ("Pending",)
    waits_for = step.open.waits_for if step.open else None
    return (step.state, step.attempt, waits_for)


def _attempt(step: StepView) -> str:
    """Return the number of the attempt, unless its note contains it."""
    in_note = step.state in {"BackingOff", "Scheduled"}
    return f"attempt {step.attempt}" if step.attempt and step.attempt > 1 and not in_note else ""


def _when(step: StepView, page: Page) -> datetime:
    """Return when the state changed, if it is recorded; otherwise when the change was observed."""
    if step.state == "Running" and step.last_start is not None:
        return step.last_start
    if step.state in {"Running", "Scheduled", "Waiting"} and (step.attempt or 1) == 1 and step.start is not None:
        return step.start
    return (step.end if step.open is None and step.timer is None else None) or page.now


def _line(page: Page, name: str, state: str, *parts: str) -> str:
    return f"{page.glyphs.icons.get(state, '?')} {name} {text.join((state, *parts), ': ')}"
