"""The first difference between the decisions of a definition and a history."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.text import Text

from perdure.view import text
from perdure.view.events import readable
from perdure.view.page import Page

_NAMES = ("activity_id", "activity_type", "timer_id", "child_id", "signal_id", "workflow_id", "signal_name")
"""Attributes that identify the step, which are always shown."""
_ALWAYS = (*_NAMES, "start_to_fire_timeout", "input", "result", "failure")
_EXCLUDED = {"event_id", "event_time", "event_type", "successor", "new_run_backoff"}
"""Attributes that do not depend on the definition."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event that differs from the decisions of the definition."""

    number: int
    """ID of the event; if the history ends too early, the ID after the last event."""
    event: Any
    """The event; None if the history has ended."""
    command: Any
    """The command from the definition instead; None if there is none."""


def show(difference: Difference, page: Page) -> Iterator[Text]:
    """Show a difference.

    Args:
        difference: The difference.
        page: The page for the output.

    Yields:
        Lines.
    """
    yield Text(f"does not replay: event {difference.number} differs", style="bold red")
    for name, side, other, nothing in (
        ("history", difference.event, difference.command, "has ended"),
        ("definition", difference.command, difference.event, "does nothing"),
    ):
        label = f"  {text.pad(f'{name}:', 12)}"
        yield Text(f"{label}{type(side).__name__ if side is not None else nothing}")
        for key, value, differs in _attributes(side, other, page.width - 40):
            line = Text(f"{' ' * 14}{key}: ", style="yellow" if differs else "")
            yield line.append(page.shorten(readable(key, value), max(page.width - len(line.plain), 30)))


def _attributes(side: Any, other: Any, width: int) -> Iterator[tuple[str, Any, bool]]:
    """Yield attributes of one side: name, value, and whether the other side has another value."""
    if side is None:
        return
    rest = (key for key in _fields(side) if key not in _ALWAYS and key in _fields(other) and key not in _EXCLUDED)
    for key in (*_ALWAYS, *rest):
        shown, against = _plain(side, key), _plain(other, key)
        differs = shown != against
        if differs and isinstance(shown, dict) and isinstance(against, dict) and len(text.value(shown)) > width:
            for path, value in _parts(_camel(key), shown, against):
                yield path, value, True
        elif (key in _ALWAYS and (shown, against) != (None, None)) or differs:
            yield _camel(key), shown, differs


def _parts(path: str, shown: dict[str, Any], against: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the differing parts of two long objects."""
    for key in sorted(shown.keys() | against.keys()):
        here, there = shown.get(key), against.get(key)
        if here == there:
            continue
        if isinstance(here, dict) and isinstance(there, dict):
            yield from _parts(f"{path}.{key}", here, there)
        else:
            yield f"{path}.{key}", here


def _fields(side: Any) -> tuple[str, ...]:
    """Return the names of the attributes of an event or a command."""
    found: tuple[str, ...] = getattr(side, "__struct_fields__", ())
    return found or tuple(getattr(side, "__dataclass_fields__", ()))


def _plain(side: Any, key: str) -> Any:
    return None if side is None else msgspec.to_builtins(getattr(side, key, None))


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
