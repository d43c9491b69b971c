"""Tables: cells in columns as wide as their widest cell.

`rich.table` fits a table into the width of the terminal and fills its lines with spaces. Nothing is truncated here, and no line
ends with spaces, because programs also read these lines.
"""

from collections.abc import Sequence
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from perdure.view import text
from perdure.view.page import Page, style_of

_GAP = "  "


def table(
    heading: Sequence[str], rows: Sequence[Sequence[str]], page: Page, *, least: Sequence[int] = ()
) -> list[Text]:
    """Lay cells out in columns.

    Args:
        heading: Names of the columns; the words of the one named PHASE are colored.
        rows: The cells; an empty cell is shown as a dash.
        page: The page for the output.
        least: The minimum width of each column; empty if nothing precedes this table.

    Returns:
        Lines; the first one is the heading.
    """
    rows = [[text.one_line(cell) or page.glyphs.dash for cell in row] for row in rows]
    widths = widths_of((heading, *rows), least)
    lines = [Text(_line(row, widths)) for row in (heading, *rows)]
    lines[0].stylize("dim")
    if "PHASE" in heading:
        phase = heading.index("PHASE")
        begin = sum(widths[:phase]) + len(_GAP) * phase
        for row, line in zip(rows, lines[1:], strict=True):
            line.stylize(style_of(row[phase]), begin, begin + len(row[phase]))
    return lines


def widths_of(rows: Sequence[Sequence[str]], least: Sequence[int] = ()) -> list[int]:
    """Return the width of each column: the width of its widest cell, or the minimum."""
    return [max((*map(cell_len, cells), *least[i : i + 1])) for i, cells in enumerate(zip(*rows, strict=True))]


def ago(time: datetime | None, page: Page) -> str:
    """Format the time since a time, or the time itself, depending on the page; empty for None."""
    if time is None:
        return ""
    return text.iso(time) if page.iso else text.age(page.now - time)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(text.pad(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()
