"""Formats registered search attributes, one line each."""

from collections.abc import Mapping

from rich.text import Text

from perdure.api.search_attributes import AttributeType
from perdure.view import columns
from perdure.view.page import Page

_UNKNOWN = " (unknown type: treated as not registered)"


def table(types: Mapping[str, str], page: Page) -> list[Text]:
    """Show search attributes.

    Args:
        types: The types by name.
        page: The page for the output.

    Returns:
        Lines; the first one is the heading.
    """
    rows = [
        (name, kind if kind in set(AttributeType) else f"{kind or page.glyphs.dash}{_UNKNOWN}")
        for name, kind in sorted(types.items())
    ]
    return columns.table(("NAME", "TYPE"), rows, page)
