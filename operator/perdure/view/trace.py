"""Formats the timeline of a run as text: a line with a bar for each attempt."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from rich.cells import cell_len
from rich.text import Text

from perdure.view import columns, text
from perdure.view.page import Page
from perdure.view.timeline import StepSpan

_HEADING = ("STEP", "ATTEMPT", "PHASE", "START", "WAIT", "POD", "RUN")
_PHASES = ("wait", "pod start", "run")
_NARROWEST, _WIDEST = 20, 60


def lines(spans: Sequence[StepSpan], start: datetime, end: datetime, page: Page) -> Iterator[Text]:
    """Show the timeline of a run.

    Args:
        spans: The steps of the run.
        start: When the run started.
        end: When the run ended, or the current time.
        page: The page for the output.

    Yields:
        Lines; the first one is the heading.
    """
    rows = [row for span in spans for row in _rows(span, start, page)]
    taken = sum(max(cell_len(cells[i]) for cells in (_HEADING, *(cells for cells, _ in rows))) for i in range(7))
    width = min(max(page.width - taken - 2 * len(_HEADING), _NARROWEST), _WIDEST)
    marks = page.glyphs.bars
    cells = [[*row, _bar(times, (start, end), width, marks)] for row, times in rows]
    yield from columns.table((*_HEADING, "TIMELINE"), cells, page)
    yield Text(f"{marks[0]} wait  {marks[1]} pod start  {marks[2]} run", style="dim")


_Times = dict[str, tuple[datetime, datetime]]


def _rows(span: StepSpan, start: datetime, page: Page) -> Iterator[tuple[list[str], _Times]]:
    """Yield the cells of each attempt, and its phases."""
    by_attempt: dict[int, _Times] = {}
    for attempt, phase, begin, until in span.phases(page.now):
        by_attempt.setdefault(span.attempts.index(attempt), {})[phase] = begin, until
    for index, times in by_attempt.items():
        attempt = span.attempts[index]
        name = span.path if not index else ""
        first = min(begin for begin, _ in times.values())
        lengths = [_length(times[phase]) if phase in times else "" for phase in _PHASES]
        number = "" if attempt.number is None else f"#{attempt.number}"
        yield [name, number, attempt.result, page.since(first, start), *lengths], times


def _length(times: tuple[datetime, datetime]) -> str:
    return text.duration(times[1] - times[0])


def _bar(times: _Times, whole: tuple[datetime, datetime], width: int, marks: str) -> str:
    """Draw phases to scale, with at least one character for each."""
    start, total = whole[0], max(whole[1] - whole[0], timedelta(milliseconds=1))
    bar = [marks[3]] * width
    for phase, mark in zip(_PHASES, marks, strict=False):
        if phase not in times:
            continue
        first, last = ((time - start) / total * width for time in times[phase])
        left = min(max(int(first), 0), width - 1)
        if times[phase][1] > times[phase][0]:
            bar[left : max(round(last), left + 1)] = mark * (min(max(round(last), left + 1), width) - left)
    return "".join(bar)
