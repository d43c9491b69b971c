"""Registered search attributes: a line for each."""

from collections.abc import Mapping

from rich.cells import cell_len
from rich.text import Text

from perdure.api.searching import AttributeType
from perdure.cli.view import text
from perdure.cli.view.page import Page

_HEADING = ("NAME", "TYPE")
_GAP = "  "


def table(types: Mapping[str, str], page: Page) -> list[Text]:
    """Show search attributes.

    Args:
        types: The type of each, by name.
        page: What they are shown on.

    Returns:
        Lines; the first one is the heading.
    """
    rows = [(text.one_line(name), text.one_line(kind) or page.glyphs.dash) for name, kind in sorted(types.items())]
    width = max(cell_len(name) for name, _ in (_HEADING, *rows))
    lines = [Text(f"{text.pad(_HEADING[0], width)}{_GAP}{_HEADING[1]}", style="dim")]
    for name, kind in rows:
        unknown = "" if kind in set(AttributeType) else " (no such type: it counts as not registered)"
        lines.append(Text(f"{text.pad(name, width)}{_GAP}{kind}{unknown}"))
    return lines
