"""Markdown of generated pages."""

import re
from collections.abc import Iterable, Iterator, Sequence


def page(title: str, source: str, *parts: str) -> str:
    """Write a page.

    Args:
        title: Its heading.
        source: The file that it is generated from, for those who want to edit it.
        parts: Paragraphs, headings, and tables.
    """
    note = f"<!-- Written by `make generate` from {source}; do not edit. -->"
    return "\n\n".join((f"# {title}", note, *parts)) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table."""
    return "\n".join(_rows(head, rows))


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(cell(each) for each in row)} |"


def cell(text: str) -> str:
    """Write text for the cell of a table: one line, without bars that would end the cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))
