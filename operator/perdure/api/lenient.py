"""Reading JSON that may come from a newer operator, or be damaged: what is not as expected counts as not there."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import orjson

from perdure.api.depth import nests_deeper

Json = dict[str, Any]

_Kind = TypeVar("_Kind")


def mapping(value: Any) -> Json:
    """An object; empty where there is none."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[Json]:
    """The objects of a list; none where there is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def integer(value: Any) -> int | None:
    """A whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Any) -> str:
    """A text; empty where there is none."""
    return value if isinstance(value, str) else ""


def moment(value: Any) -> datetime | None:
    """A time with its zone, or None."""
    try:
        found = datetime.fromisoformat(text(value))
    except ValueError:
        return None
    return None if found.tzinfo is None else found


def convert(value: Any, kind: type[_Kind]) -> _Kind | None:
    """What the JSON says as a value of that type, or None."""
    try:
        return None if value is None else msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def convert_all(value: Any, kind: type[_Kind]) -> dict[str, _Kind]:
    """The entries of an object that can be understood."""
    entries = ((key, convert(entry, kind)) for key, entry in mapping(value).items())
    return {key: entry for key, entry in entries if entry is not None}


def name_in(annotation: Any) -> str:
    """The `name` in an annotation that is a JSON object; empty where there is none."""
    try:
        return str(mapping(msgspec.json.decode(annotation)).get("name") or "")
    except (TypeError, msgspec.DecodeError, RecursionError):
        return ""


def read_annotation(obj: Mapping[str, Any], key: str, kind: type[_Kind]) -> _Kind | None:
    """What an annotation of an object holds as JSON.

    Args:
        obj: The object.
        key: Name of the annotation.
        kind: What it should hold.

    Returns:
        None where there is none, where it cannot be read, or where it nests deeper than what a status can hold.
    """
    given = (obj["metadata"].get("annotations") or {}).get(key)
    try:
        found = orjson.loads(given) if given else None
    except orjson.JSONDecodeError:
        return None
    return None if nests_deeper(found) else convert(found, kind)
