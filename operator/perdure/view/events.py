"""Formats the event history: a line for each event, or every attribute."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from perdure.api import lenient
from perdure.view import text
from perdure.view.attributes import ALWAYS, Event, readable, short
from perdure.view.page import Page, style_of

_STYLES = (("Completed", "Succeeded"), ("Failed", "Failed"), ("TimedOut", "TimedOut"), ("Canceled", "Cancelled"))
_WHOLE = frozenset({"WorkflowTaskFailed"})


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
    start = lenient.read_time(events[0].get("eventTime")) if events else None
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
        below = kind in _WHOLE and cell_len(attributes) > room and not detailed
        if not detailed and not below:
            line.append(f"  {page.shorten(attributes, room)}")
        line.rstrip()
        lines.append(line)
        if below:
            lines += [Text(" " * (widths[0] + 2) + part) for part in _broken(attributes, page.width - widths[0] - 2)]
        if detailed:
            lines += _attributes(event, widths[0] + 2, page)
    return lines


def _time(event: Event, start: datetime | None, page: Page) -> str:
    time = lenient.read_time(event.get("eventTime"))
    return page.glyphs.dash if time is None else page.since(time, start)


def _style(kind: str) -> str:
    return next((style_of(word) for ending, word in _STYLES if kind.endswith(ending)), "")


def _attributes(event: Event, indent: int, page: Page) -> Iterator[Text]:
    for name, given in event.items():
        if name in ALWAYS:
            continue
        line = Text(" " * indent)
        line.append(f"{text.one_line(name)}: ", style="dim")
        first, *rest = _broken(readable(name, given), page.width - cell_len(line.plain))
        yield line.append(first)
        yield from (Text(" " * (indent + 2) + part) for part in rest)


def _broken(shown: str, width: int) -> list[str]:
    return text.wrap(shown, max(width, 30))
