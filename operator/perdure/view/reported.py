"""Formats the newest Events of an object, one line each."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from perdure.api import lenient
from perdure.api.lenient import integer, mapping
from perdure.view import columns, text
from perdure.view.page import Page, style_of

_MOST = 5


def lines(events: Sequence[Mapping[str, Any]], page: Page) -> Iterator[Text]:
    """Show Events below a title; nothing if there are none.

    Args:
        events: The Events.
        page: The page for the output.

    Yields:
        Lines, oldest first. Messages are truncated to the width of the page.
    """
    newest = sorted(events, key=lambda event: str(_time(event) or ""))[-_MOST:]
    if not newest:
        return
    yield Text()
    left_out = len(events) - len(newest)
    yield Text(f"Events{f' (the last {len(newest)} of {len(events)})' if left_out else ''}", style="bold")
    cells = [(columns.ago(_time(event), page), str(event.get("type")), str(event.get("reason"))) for event in newest]
    widths = columns.widths_of(cells)
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
    return lenient.read_time(last or event.get("eventTime") or mapping(event.get("metadata")).get("creationTimestamp"))
