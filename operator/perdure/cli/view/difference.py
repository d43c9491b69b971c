"""Where a definition decides otherwise than a history tells."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.text import Text

from perdure.cli.view import text
from perdure.cli.view.attributes import readable
from perdure.cli.view.page import Page

_SHOWN = ("activity_id", "activity_type", "timer_id", "start_to_fire_timeout", "input", "result", "failure")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event that the definition does not lead to."""

    number: int
    """Its id; of the event after the last one where the history ends too early."""
    event: Any
    """The event; None where the history has ended."""
    command: Any
    """What the definition asks for in its place; None where it asks for nothing."""


def show(difference: Difference, page: Page) -> Iterator[Text]:
    """Show a difference.

    Args:
        difference: What differs.
        page: What it is shown on.

    Yields:
        Lines.
    """
    yield Text(f"does not replay: event {difference.number} differs", style="bold red")
    for name, side, other, nothing in (
        ("history", difference.event, difference.command, "has ended"),
        ("definition", difference.command, difference.event, "asks for nothing"),
    ):
        label = f"  {text.pad(f'{name}:', 12)}"
        yield Text(f"{label}{type(side).__name__ if side is not None else nothing}")
        for key in _SHOWN:
            shown, against = _plain(side, key), _plain(other, key)
            if shown is None and against is None:
                continue
            line = Text(f"{' ' * 14}{_camel(key)}: ", style="" if shown == against else "yellow")
            if side is not None:
                yield line.append(page.shorten(readable(_camel(key), shown), max(page.width - len(line.plain), 30)))


def _plain(side: Any, key: str) -> Any:
    return None if side is None else msgspec.to_builtins(getattr(side, key, None))


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
