"""Many runs: a line for each."""

from collections.abc import Sequence
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from perdure.cli.view import text
from perdure.cli.view.facts import ShownRun
from perdure.cli.view.page import Page, style_of

_GAP = "  "


def table(runs: Sequence[ShownRun], page: Page, *, namespaces: bool = False, wide: bool = False) -> list[Text]:
    """Show runs. Nothing is cut: the lines are also read by programs.

    Args:
        runs: The runs.
        page: What they are shown on.
        namespaces: Whether their namespaces are shown.
        wide: Whether more columns are shown.

    Returns:
        Lines; the first one is the heading.
    """
    heading = ["NAME", "PHASE", "PROGRESS", "REASON", "STARTED", "DURATION", "AGE"]
    if namespaces:
        heading.insert(0, "NAMESPACE")
    if wide:
        heading += ["WORKFLOW", "WORKFLOW-ID", "MESSAGE"]
    return lines(heading, [_cells(run, page, namespaces=namespaces, wide=wide) for run in runs], page)


def lines(heading: Sequence[str], rows: Sequence[Sequence[str]], page: Page) -> list[Text]:
    """Lay cells out in columns.

    Args:
        heading: Names of the columns; the words of the one called PHASE have colours.
        rows: The cells; an empty one is shown as a dash.
        page: What they are shown on.

    Returns:
        Lines; the first one is the heading.
    """
    rows = [[text.one_line(cell) or page.glyphs.dash for cell in row] for row in rows]
    widths = [max(cell_len(row[i]) for row in (heading, *rows)) for i in range(len(heading))]
    phase = heading.index("PHASE")
    shown = [Text(_line(heading, widths), style="dim")]
    for row in rows:
        line = Text(_line(row, widths))
        begin = sum(widths[:phase]) + len(_GAP) * phase
        line.stylize(style_of(row[phase]), begin, begin + len(row[phase]))
        shown.append(line)
    return shown


def _cells(run: ShownRun, page: Page, *, namespaces: bool, wide: bool) -> list[str]:
    length = run.duration(page.now)
    cells = [
        run.name,
        run.phase,
        run.progress,
        run.reason,
        ago(run.start, page),
        "" if length is None else text.duration(length),
        ago(run.created, page),
    ]
    if namespaces:
        cells.insert(0, run.namespace)
    if wide:
        cells += [run.workflow or run.activity or run.operation or "", run.workflow_id, run.message]
    return cells


def ago(time: datetime | None, page: Page) -> str:
    """How long ago a time was, or the time itself, as the page wants it; empty for none."""
    if time is None:
        return ""
    return text.iso(time) if page.iso else text.age(page.now - time)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(text.pad(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()
