"""Formats a followed run: the part that fits on the screen, and the final output."""

from rich.cells import cell_len
from rich.text import Text

from perdure.view import text
from perdure.view.changes import why
from perdure.view.describe import sections
from perdure.view.facts import ShownRun
from perdure.view.page import Page
from perdure.view.tree import rows

_AHEAD = 2
"""Number of steps to show below the last one that has started."""


def window(run: ShownRun, page: Page, height: int) -> list[Text]:
    """Show the status of a run on one screen; if it is too long, only the active part.

    Args:
        run: The run.
        page: The page for the output.
        height: Lines of the screen.

    Returns:
        Fewer lines than the height of the screen, if that is at least ten.
    """
    head = summary(run, page)
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
        *_left_out(top, "before", page),
        *(line for block in blocks[top:bottom] for line in block.lines),
        *_left_out(len(blocks) - bottom, "after", page),
    ]


def ended(run: ShownRun, page: Page) -> list[Text]:
    """Show a run that has ended.

    Args:
        run: The run.
        page: The page for the output.

    Returns:
        Lines.
    """
    return [summary(run, page), *sections(run, page)]


def _left_out(count: int, where: str, page: Page) -> list[Text]:
    rest = f"{page.glyphs.ellipsis} {count} step{'s' if count > 1 else ''} {where}"
    return [Text(rest, style="dim")] if count else []


def summary(run: ShownRun, page: Page) -> Text:
    """Show a run in one line.

    Args:
        run: The run.
        page: The page for the output.

    Returns:
        Name, status, progress, duration, and reason.
    """
    line = Text(f"{text.one_line(run.name)}  ").append_text(page.status(run.phase))
    length = run.duration(page.now)
    summary = text.join(("", run.progress, text.duration(length) if length is not None else None, why(run)), "  ")
    return line.append(page.shorten(f"  {summary}", max(page.width - cell_len(line.plain), 10)))
