"""JSON patches (RFC 6902): compute the patch that turns one JSON value into another.

Only the patch is sent, not the whole object: appending to a history costs only the new events. A merge patch would be even
shorter, but cannot express null, which payloads may contain.
"""

import json
from typing import Any, Final

_MOST: Final = 1_000
"""The most operations within one value; beyond that, the value is replaced. The API server accepts 10,000 in a patch."""

Operation = dict[str, Any]


def json_patch(old: Any, new: Any, path: str = "") -> list[Operation]:
    """Operations that turn `old` into `new`. Objects are compared member by member; a list that only grew gets appends.

    A list that lost its head is shortened or replaced, whichever is smaller to send.

    A value that needs more than `_MOST` operations, at any depth, is replaced as a whole.
    """
    operations = _operations(old, new, path)
    return operations if len(operations) <= _MOST else [{"op": "replace", "path": path, "value": new}]


def _operations(old: Any, new: Any, path: str) -> list[Operation]:
    if old is new or (old == new and _same(old, new)):
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        operations: list[Operation] = [{"op": "remove", "path": _join(path, key)} for key in old if key not in new]
        for key, value in new.items():
            if key in old:
                operations += json_patch(old[key], value, _join(path, key))
            else:
                operations.append({"op": "add", "path": _join(path, key), "value": value})
        return operations
    whole = [{"op": "replace", "path": path, "value": new}]
    if not isinstance(old, list) or not isinstance(new, list):
        return whole
    lost = next((n for n, first in enumerate(old) if new and first == new[0] and _begins_with(new, old[n:])), None)
    if lost is None:
        return whole
    appended = [{"op": "add", "path": f"{path}/-", "value": value} for value in new[len(old) - lost :]]
    if not lost:
        return appended
    cut = [{"op": "remove", "path": f"{path}/0"}] * lost + appended
    return min(whole, cut, key=lambda operations: len(json.dumps(operations)))


def _join(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"


def _begins_with(whole: list[Any], part: list[Any]) -> bool:
    head = whole[: len(part)]
    return head == part and _same(part, head)


def _same(old: Any, new: Any) -> bool:
    """Whether two equal values have the same types. This is fast if they print the same, with the same order of keys."""
    if isinstance(old, list) and isinstance(new, list):  # most items of long lists are the same objects
        return all(a is b or _same(a, b) for a, b in zip(old, new, strict=True))
    return repr(old) == repr(new) or _same_types(old, new)


def _same_types(old: Any, new: Any) -> bool:
    """Compare the types of two equal values: in Python 1 == 1.0 == True, in JSON not."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        return all(_same_types(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return all(_same_types(a, b) for a, b in zip(old, new, strict=True))
    return True
