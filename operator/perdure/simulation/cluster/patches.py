"""JSON patch and JSON merge patch, as the API server applies them."""

from typing import Any

import orjson


class PatchError(Exception):
    """A JSON patch does not apply to the object: a test fails, or a path does not exist."""


def copy(value: Any) -> Any:
    """A deep copy of a JSON value."""
    return orjson.loads(orjson.dumps(value))


def json_patch(value: Any, operations: list[dict[str, Any]]) -> Any:
    """Apply a JSON patch (RFC 6902). `value` itself does not change, and the result shares parts with it.

    Like the API server's library, and unlike the RFC, `replace` adds a missing member.

    Raises:
        PatchError: An operation does not apply.
    """
    copies: dict[int, Any] = {}
    root = _copy_once(value, copies)
    for operation in operations:
        keys = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")[1:]]
        try:
            at = root
            for key in keys[:-1]:
                where: Any = int(key) if isinstance(at, list) else key
                at[where] = _copy_once(at[where], copies)
                at = at[where]
            _apply(operation, at, keys[-1])
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise PatchError(f"{operation['op']} {operation['path']}: {error!r}") from error
    return root


def _copy_once(value: Any, copies: dict[int, Any]) -> Any:
    """Return a shallow copy to change, or the value itself if it is such a copy. `copies` holds all copies by `id()`."""
    if id(value) in copies or not isinstance(value, dict | list):
        return value
    made = value.copy()
    copies[id(made)] = made
    return made


def _apply(operation: dict[str, Any], at: Any, key: str) -> None:
    verb = operation["op"]
    where: Any = key
    if isinstance(at, list):
        where = len(at) if key == "-" else int(key)
        if not 0 <= where <= len(at) - (verb != "add"):
            raise IndexError(key)
    elif verb == "remove" and key not in at:
        raise KeyError(key)
    match verb:
        case "test":
            if (at[where] if isinstance(at, list) else at.get(where)) != operation["value"]:
                raise ValueError("the test fails")
        case "remove":
            del at[where]
        case "replace":
            at[where] = operation["value"]
        case "add" if isinstance(at, list):
            at.insert(where, operation["value"])
        case "add":
            at[where] = operation["value"]
        case _:
            raise ValueError(verb)


def merge_patch(value: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386). `value` itself does not change, and the result shares parts with it."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), change)
    return merged
