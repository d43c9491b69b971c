"""Reading what is valid of a manifest that has mistakes, so that one run of `lint` reports all of them."""

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import pydantic

from perdure.api.common import Resource, field_path, mistakes_by_path
from perdure.api.fields import NAME_PATTERN

Location = tuple[int | str, ...]

_ROUNDS: Final = 64
"""How often a manifest is read again; each time some of what does not fit is taken out."""

_STAND_INS: Final[dict[str, dict[str, Any]]] = {
    "steps": {"waitForSignal": {"name": "unreadable"}},
    "activities": {"worker": {"taskQueue": "unreadable"}, "startToCloseTimeout": "1m"},
    "blocks": {"steps": [{"name": "unreadable", "waitForSignal": {"name": "unreadable"}}]},
}
"""What takes the place of an entry of these lists that cannot be read: its name still counts."""

_PLAIN_STAND_INS: Final[dict[str, Any]] = {"cron": "@daily", "intervals": {"every": "1h"}}
_PLAIN_STAND_IN: Final = "unreadable"
"""What takes the place of an entry of another list; if it does not fit either, the whole list is left out."""

_NAME: Final = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What could be read of a manifest with mistakes."""

    resource: Resource | None
    """The object without what does not fit; None if too much of it does not."""
    mistakes: tuple[tuple[str, str], ...]
    """What does not fit: the path of the field, and the sentence."""
    replaced: tuple[str, ...]
    """The paths of entries that a stand-in has taken the place of: findings about them mean nothing."""


def salvage(kind: type[Resource], data: dict[str, Any]) -> Salvaged:
    """Read as much of a manifest as fits its model.

    A field that does not fit is left out; a step, an activity or a block that cannot do without it is replaced by one that
    has nothing but its name.

    Args:
        kind: The model of the manifest.
        data: The manifest; it stays as it is.
    """
    data = deepcopy(data)
    found: dict[tuple[str, str], None] = {}
    removed: set[Location] = set()
    replaced: set[Location] = set()
    for _ in range(_ROUNDS):
        try:
            return Salvaged(
                kind.parse(data), tuple(found), tuple(field_path(each) for each in sorted(replaced, key=str))
            )
        except pydantic.ValidationError as error:
            details = error.errors(include_url=False)
            for detail, mistake in zip(details, mistakes_by_path(error), strict=True):
                if not _follows(detail["loc"], detail["type"], removed):
                    found[mistake] = None
        for place in {_place(data, detail["loc"], detail["type"]) for detail in details}:
            if not _take_out(data, place, removed, replaced):
                return Salvaged(None, tuple(found), ())
    return Salvaged(None, tuple(found), ())


def _follows(location: Location, type_: str, removed: set[Location]) -> bool:
    """Whether a mistake is there only because something was taken out of the object that it is about."""
    about = location[:-1] if type_ == "missing" else location
    return any(each[: len(about)] == about and len(each) <= len(about) + 1 for each in removed)


def _place(data: Any, location: Location, type_: str) -> Location:
    """What to take out for a mistake: the field itself, or the object that lacks one; as far as the manifest has it."""
    place: list[int | str] = []
    for part in location[:-1] if type_ == "missing" else location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
        place.append(part)
    return tuple(place)


def _take_out(data: Any, place: Location, removed: set[Location], replaced: set[Location]) -> bool:
    """Take a value out of a manifest, or put a stand-in in its place; whether that was possible."""
    if not place or place in {("spec",), ("kind",), ("apiVersion",)}:
        return False
    *path, last = place
    holder = data
    for part in path:
        try:
            holder = holder[part]
        except (KeyError, IndexError, TypeError):
            return True  # something further out was taken out for another mistake
    if isinstance(holder, dict):
        if last == "name" and len(path) > 1 and path[-2] in _STAND_INS:
            return _take_out(data, tuple(path), removed, replaced)
        holder.pop(last, None)
        removed.add(place)
        return True
    if place in replaced or not isinstance(last, int):
        return _take_out(data, tuple(path), removed, replaced)
    of_list = str(path[-1])
    named = _STAND_INS.get(of_list)
    plain = _PLAIN_STAND_INS.get(of_list, _PLAIN_STAND_IN)
    holder[last] = plain if named is None else {"name": _name_of(holder, last), **named}
    removed.add(place)
    replaced.add(place)
    return True


def _name_of(holder: list[Any], index: int) -> str:
    """The name of an entry, if it can serve as one."""
    names = list(_names(holder))
    name = names[index]
    return name if names.count(name) == 1 and _NAME.fullmatch(name) else f"unreadable-{index}"


def _names(holder: list[Any]) -> Iterator[str]:
    for each in holder:
        name = each.get("name") if isinstance(each, dict) else None
        yield name if isinstance(name, str) else ""
