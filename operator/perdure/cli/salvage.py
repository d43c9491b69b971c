"""Reads the valid parts of a manifest with mistakes, so that one run of `lint` reports all mistakes."""

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import pydantic

from perdure.api.fields import NAME_PATTERN
from perdure.api.models import Resource, field_path, mistakes_by_path

Location = tuple[int | str, ...]

_ROUNDS: Final = 64
"""Maximum number of reads of a manifest; each read removes some invalid parts."""

_STAND_INS: Final[dict[str, dict[str, Any]]] = {
    "steps": {"waitForSignal": {"name": "unreadable"}},
    "activities": {"worker": {"taskQueue": "unreadable"}, "startToCloseTimeout": "1m"},
    "blocks": {"steps": [{"name": "unreadable", "waitForSignal": {"name": "unreadable"}}]},
}
"""Stand-ins for unreadable entries of these lists, so that their names remain known."""

_PLAIN_STAND_INS: Final[dict[str, Any]] = {"cron": "@daily", "intervals": {"every": "1h"}}
_PLAIN_STAND_IN: Final = "unreadable"
"""The stand-in for an entry of another list; if it is not valid either, the whole list is removed."""

_NAME: Final = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The valid part of a manifest with mistakes."""

    resource: Resource | None
    """The object without its invalid parts; None if too much is invalid."""
    mistakes: tuple[tuple[str, str], ...]
    """The mistakes: the path of the field, and the message."""
    replaced: tuple[str, ...]
    """The paths of entries that stand-ins replace: ignore findings about them."""


def salvage(kind: type[Resource], data: dict[str, Any]) -> Salvaged:
    """Read as much of a manifest as is valid.

    An invalid field is removed. A step, an activity, or a block that requires the field is replaced by a stand-in with only its
    name.

    Args:
        kind: The model of the manifest.
        data: The manifest; not modified.
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
    """Whether a mistake exists only because something was removed from its object."""
    about = location[:-1] if type_ == "missing" else location
    return any(each[: len(about)] == about and len(each) <= len(about) + 1 for each in removed)


def _place(data: Any, location: Location, type_: str) -> Location:
    """Return the part to remove for a mistake: the field, or the object without a required field, if it is in the manifest."""
    place: list[int | str] = []
    for part in location[:-1] if type_ == "missing" else location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
        place.append(part)
    return tuple(place)


def _take_out(data: Any, place: Location, removed: set[Location], replaced: set[Location]) -> bool:
    """Remove a value from a manifest, or replace it by a stand-in. Return whether this was possible."""
    if not place or place in {("spec",), ("kind",), ("apiVersion",)}:
        return False
    *path, last = place
    holder = data
    for part in path:
        try:
            holder = holder[part]
        except (KeyError, IndexError, TypeError):
            return True  # an enclosing part was removed for another mistake
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
    """Return the name of an entry, if it is valid."""
    names = list(_names(holder))
    name = names[index]
    return name if names.count(name) == 1 and _NAME.fullmatch(name) else f"unreadable-{index}"


def _names(holder: list[Any]) -> Iterator[str]:
    for each in holder:
        name = each.get("name") if isinstance(each, dict) else None
        yield name if isinstance(name, str) else ""
