"""Changes of the tables in a state, which are never changed in place."""

from typing import Any, TypeVar

_Entry = TypeVar("_Entry")


def removed(entries: dict[str, _Entry], key: Any) -> dict[str, _Entry]:
    """The entries without that of `key`."""
    kept = dict(entries)
    kept.pop(str(key), None)
    return kept


def updated(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The entries after an upsert, in which null removes an entry."""
    return {name: value for name, value in {**before, **changes}.items() if value is not None}
