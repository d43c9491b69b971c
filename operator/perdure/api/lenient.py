"""Read JSON that can come from a newer operator, or be damaged: unexpected values count as missing."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import orjson

from perdure.api.depth import nests_deeper

Json = dict[str, Any]

_Kind = TypeVar("_Kind")


def mapping(value: Any) -> Json:
    """Return an object; an empty one if the value is not an object."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[Json]:
    """Return the objects of a list; an empty list if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def integer(value: Any) -> int | None:
    """Return a whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Any) -> str:
    """Return a string; an empty one if the value is not a string."""
    return value if isinstance(value, str) else ""


def moment(value: Any) -> datetime | None:
    """Return a time with a time zone, or None."""
    try:
        found = datetime.fromisoformat(text(value))
    except ValueError:
        return None
    return None if found.tzinfo is None else found


def convert(value: Any, kind: type[_Kind]) -> _Kind | None:
    """Convert JSON to a value of a type, or return None."""
    try:
        return None if value is None else msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def convert_all(value: Any, kind: type[_Kind]) -> dict[str, _Kind]:
    """Convert the entries of an object; those that are not valid are left out."""
    entries = ((key, convert(entry, kind)) for key, entry in mapping(value).items())
    return {key: entry for key, entry in entries if entry is not None}


def name_in(annotation: Any) -> str:
    """Return the `name` in an annotation that is a JSON object; an empty string if it has none."""
    try:
        return str(mapping(msgspec.json.decode(annotation)).get("name") or "")
    except (TypeError, msgspec.DecodeError, RecursionError):
        return ""


def read_annotation(obj: Mapping[str, Any], key: str, kind: type[_Kind]) -> _Kind | None:
    """Read an annotation as JSON.

    Args:
        obj: The object.
        key: Name of the annotation.
        kind: Type of the value.

    Returns:
        None if the annotation does not exist, is not valid, or nests deeper than a status can.
    """
    given = (obj["metadata"].get("annotations") or {}).get(key)
    if not given:
        return None
    try:
        found = orjson.loads(given)
    except orjson.JSONDecodeError:
        return None
    return None if nests_deeper(found) else convert(found, kind)
