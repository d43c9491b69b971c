"""Formats a scenario of a flow in Python: the attempts of its activities, and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rich.cells import cell_len
from rich.text import Text

from perdure.simulation.transcript import length
from perdure.view import text
from perdure.view.runs import failure
from perdure.view.simulation import expectations, outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta

    from perdure.view.page import Page

_GAP = "  "


class FlowReport(Protocol):
    """What is shown of a scenario of a flow."""

    @property
    def phase(self) -> str:
        """The phase at the end."""

    @property
    def output(self) -> Any:
        """The result."""

    @property
    def elapsed(self) -> timedelta:
        """The virtual time that it took."""

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The failure with its causes."""

    @property
    def waits_for(self) -> str:
        """What it waits for if it has not ended."""

    @property
    def rows(self) -> Sequence[tuple[timedelta, str, int, str, str]]:
        """For each attempt: when it started, the activity's ID, its number, its outcome, and why it failed."""


def show(report: FlowReport, unmet: Sequence[str] | None, page: Page) -> Iterator[Text]:
    """Show a scenario of a flow.

    Args:
        report: The result.
        unmet: The unmet expectations; None if there are no expectations.
        page: The page for the output.

    Yields:
        Lines.
    """
    yield Text("Activities", style="bold")
    yield from _attempts(report, page)
    yield Text()
    yield Text("Outcome", style="bold")
    rows = [("Duration", length(report.elapsed))]
    if report.output is not None:
        rows.append(("Output", text.value(report.output)))
    if report.waits_for:
        rows.append(("Waits for", report.waits_for))
    yield from outcome(report.phase, rows, page)
    if report.failure is not None:
        yield Text()
        yield Text("Failure", style="bold")
        yield from failure.chain(report.failure, page)
    if unmet is not None:
        yield from expectations(unmet, page)


def _attempts(report: FlowReport, page: Page) -> Iterator[Text]:
    head = ("TIME", "ACTIVITY", "TRY", "OUTCOME")
    rows = [
        (f"+{length(since)}", text.one_line(name), str(number), outcome, text.one_line(why))
        for since, name, number, outcome, why in report.rows
    ]
    widths = [max(cell_len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    yield Text(_GAP.join(map(text.pad, head, widths)).rstrip(), style="dim")
    for *cells, ended, why in rows:
        line = Text(_GAP.join(map(text.pad, cells, widths)) + _GAP).append_text(page.status(ended))
        line.append(f"{_GAP}{page.shorten(why, page.width)}" if why else "")
        yield line
