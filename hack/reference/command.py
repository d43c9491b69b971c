"""The command: write or check all pages, and the list of values that the chart checks."""

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from reference import commands, errors, fields, metrics, reasons, rpcs, values

FOLDER: Final = "docs/reference"
CHECKOUT: Final = Path(__file__).resolve().parents[2]
_SOURCES: Final = (fields, commands, values, metrics, reasons, errors, rpcs)


@cache
def generated_pages() -> dict[str, str]:
    """Write all pages.

    Returns:
        The text of each page, by its path in the folder.
    """
    return {name: text for source in _SOURCES for name, text in source.pages().items()}


def stale_pages(folder: Path, pages: dict[str, str]) -> list[str]:
    """Find the pages that are missing, differ, or must not exist, by their paths in the folder."""
    existing = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    differing = {
        name
        for name, text in pages.items()
        if name not in existing or (folder / name).read_text(encoding="utf-8") != text
    }
    return sorted(differing | (existing - pages.keys()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages.

    Args:
        arguments: The command line; None means that of the process.

    Returns:
        The exit code: 0, or 1 if pages are stale.
    """
    parser = argparse.ArgumentParser(prog="python hack/reference", description=f"Write the pages in {FOLDER}.")
    parser.add_argument("--check", action="store_true", help="Write nothing, and fail if a page is stale")
    parser.add_argument("--root", type=Path, default=CHECKOUT, help="The checkout to write to")
    options = parser.parse_args(arguments)
    folder = options.root / FOLDER
    pages = generated_pages()
    listed = options.root / values.REQUIRED
    unlisted = not listed.exists() or listed.read_text(encoding="utf-8") != values.required()
    if unlisted and options.check:
        sys.stderr.write(f"{values.REQUIRED} is stale: run `make generate`\n")
    elif unlisted:
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text(values.required(), encoding="utf-8")
    stale = stale_pages(folder, pages)
    for name in stale:
        if options.check:
            sys.stderr.write(f"{FOLDER}/{name} is stale: run `make generate`\n")
        elif name in pages:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(pages[name], encoding="utf-8")
        else:
            (folder / name).unlink()
    return 1 if options.check and (stale or unlisted) else 0
