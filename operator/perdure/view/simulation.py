"""Formats a simulation: the timeline, the tree of steps, and the result."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from perdure.language.step_failures import as_json
from perdure.language.step_paths import Path, title
from perdure.language.step_tree import StepNode
from perdure.simulation.report import Report, target_of
from perdure.simulation.transcript import TimelineEntry, length
from perdure.view import text
from perdure.view.page import Page, style_of
from perdure.view.runs import failure

_GAP = "  "
_LABEL = 14
_MAX_ENTRIES = 500
"""Maximum lines of the timeline; of a longer one, only the beginning and the end are shown."""
_MAX_DETAIL = 200
"""Maximum length of the text for one point in time."""


def show(report: Report, unmet: Sequence[str] | None, page: Page) -> Iterator[Text]:
    """Show a simulation.

    Args:
        report: The result.
        unmet: The unmet expectations; None if there are no expectations.
        page: The page for the output.

    Yields:
        Lines.
    """
    yield Text("Timeline", style="bold")
    yield from _timeline(report, page)
    yield Text()
    yield Text("Steps", style="bold")
    yield from _steps(report, page)
    yield Text()
    yield Text("Outcome", style="bold")
    yield from _outcome(report, page)
    if report.failure is not None:
        yield Text()
        yield Text("Failure", style="bold")
        yield from failure.chain(as_json(report.failure), page)
    if unmet is not None:
        yield from expectations(unmet, page)


def _timeline(report: Report, page: Page) -> Iterator[Text]:
    entries = report.transcript.timeline
    runs = len({entry.run for entry in entries}) > 1
    head = ("TIME", *(("RUN",) if runs else ()), "STEP", "WHAT HAPPENED")
    shown = entries if len(entries) <= _MAX_ENTRIES else [*entries[: _MAX_ENTRIES // 2], *entries[-_MAX_ENTRIES // 2 :]]
    rows = [_cells(entry, report, page, runs=runs) for entry in shown]
    widths = [max(cell_len(row[i]) for row in (head, *rows)) for i in range(len(head) - 1)]
    words = max(len(entry.word) for entry in shown)
    yield Text(_GAP.join([*map(text.pad, head, widths), head[-1]]), style="dim")
    for number, (entry, row) in enumerate(zip(shown, rows, strict=True)):
        if len(shown) < len(entries) and number == _MAX_ENTRIES // 2:
            yield Text(f"{page.glyphs.ellipsis} {len(entries) - len(shown)} more, see --output json", style="dim")
        line = Text(_GAP.join(map(text.pad, row, widths)) + _GAP)
        line.append_text(page.status(entry.word))
        detail = page.shorten(text.one_line(entry.detail), _MAX_DETAIL)
        line.append(" " * (words - len(entry.word)) + _GAP + detail if detail else "")
        yield line


def _cells(entry: TimelineEntry, report: Report, page: Page, *, runs: bool) -> tuple[str, ...]:
    step = text.one_line(title(entry.path)) or page.glyphs.dash
    return (_when(entry.time, report, page), *((text.one_line(entry.run),) if runs else ()), step)


def _when(time: datetime | None, report: Report, page: Page) -> str:
    """Format a time to the millisecond: in a simulation, time is exact."""
    if time is None:
        return ""
    return text.iso(time) if page.iso else f"+{length(time - report.start)}"


def _steps(report: Report, page: Page) -> Iterator[Text]:
    attempts: dict[str, int] = {}
    for attempt in report.transcript.attempts:
        if attempt.run is report.last:
            attempts[attempt.path] = max(attempts.get(attempt.path, 0), attempt.number)
    rows = [
        (
            stem + text.one_line(step.name),
            f"{page.glyphs.icons.get(step.state, '?')} {step.state}",
            text.one_line(f"{step.part or step.kind} {target_of(step)}".strip()),
            str(attempts.get(step.path, "")),
            _when(step.start, report, page),
            length(step.end - step.start) if step.start and step.end else "",
        )
        for stem, step in _stems(report.last.steps, "", page)
    ]
    head = ("STEP", "STATUS", "KIND", "TRIES", "START", "TIME")
    widths = [max(cell_len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    too_wide = sum(widths) + len(_GAP) * (len(head) - 1) - page.width
    widths[2] -= min(max(too_wide, 0), max(widths[2] - 8, 0))
    yield Text(_GAP.join(map(text.pad, head, widths)).rstrip(), style="dim")
    for row in rows:
        cells = [page.shorten(cell, widths[2]) if i == 2 else cell for i, cell in enumerate(row)]  # noqa: PLR2004
        line = Text(_GAP.join(map(text.pad, cells, widths)).rstrip())
        begin = widths[0] + len(_GAP)
        line.stylize(style_of(row[1].partition(" ")[2]), begin, begin + len(row[1]))
        yield line


def _stems(steps: Sequence[StepNode], before: str, page: Page) -> Iterator[tuple[str, StepNode]]:
    for step in steps:
        last = step is steps[-1]
        yield before + (page.glyphs.last if last else page.glyphs.branch), step
        yield from _stems(step.steps, before + (" " * cell_len(page.glyphs.pipe) if last else page.glyphs.pipe), page)


def _outcome(report: Report, page: Page) -> Iterator[Text]:
    rows = [("Duration", length(report.elapsed))]
    if len(report.root.runs) > 1:
        rows.append(("Runs", str(len(report.root.runs))))
    if report.output is not None:
        rows.append(("Output", text.value(report.output)))
    counted: Counter[str] = Counter()
    for each in report.transcript.attempts:
        service = Path.parse(each.path).service
        counted[f"service {service}" if service else each.activity] += 1
    rows += [("Attempts", ", ".join(f"{name} {count}" for name, count in counted.items()))]
    rows += [("Waits for", what) for what in report.waits_for]
    yield from outcome(report.phase, rows, page)


def outcome(phase: str, rows: Iterable[tuple[str, str]], page: Page) -> Iterator[Text]:
    """Show how a simulation ended.

    Args:
        phase: The phase of the run.
        rows: Labels and texts; those without a text are left out.
        page: The page for the output.

    Yields:
        Lines.
    """
    yield Text(text.pad("Status:", _LABEL)).append_text(page.status(phase))
    for label, what in rows:
        if what:
            yield Text(text.pad(f"{label}:", _LABEL) + page.shorten(text.one_line(what), page.width - _LABEL))


def expectations(unmet: Sequence[str], page: Page) -> Iterator[Text]:
    """Show which expectations of a scenario are not met, or that all are.

    Args:
        unmet: A sentence for each.
        page: The page for the output.

    Yields:
        Lines.
    """
    yield Text()
    yield Text("Expectations", style="bold")
    if not unmet:
        yield Text().append(f"{page.glyphs.icons['Succeeded']} met", style="green")
    for sentence in unmet:
        yield Text().append(f"{page.glyphs.icons['Failed']} {text.one_line(sentence)}", style="red")


def verdict(result: Mapping[str, Any], page: Page) -> Iterator[Text]:
    """Show the result of one scenario of many.

    Args:
        result: File and verdict: `Met`, `Unmet` or `Bad`.
        page: The page for the output.

    Yields:
        Lines.
    """
    word = {"Met": "Succeeded"}.get(result["verdict"], "Failed")
    line = Text(f"{page.glyphs.icons[word]} ", style=style_of(word)).append(text.one_line(result["file"]), style="")
    if result["verdict"] != "Bad":
        line.append(f"  {result['phase']} after {length(timedelta(seconds=result['elapsed']))}", style="dim")
        if not result["expects"]:
            line.append(", expects nothing", style="dim")
    yield line
    for sentence in (*result.get("unmet", ()), *result.get("errors", ())):
        yield Text(f"    {text.one_line(sentence)}", style="red")


def summary(count: Mapping[str, int], page: Page) -> Text:
    """Show the results of all scenarios in one line."""
    total = sum(count.values())
    words = (("Met", "as expected"), ("Unmet", "not as expected"), ("Bad", "invalid"))
    counts = ", ".join(f"{count[key]} {word}" for key, word in words if count[key])
    good = count["Met"] == total
    icon = page.glyphs.icons["Succeeded" if good else "Failed"]
    return Text(f"{icon} {total} scenario{'s' if total != 1 else ''}: {counts}", style="green" if good else "bold red")
