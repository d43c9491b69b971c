"""The bulky fields of a run's status, which are stored as JSON texts. Pure.

    status.definition       one text
    status.history.events   a text for each event
    status.state            a text for each activity, timer, child, … and for each part of `code` and `memory`

The API server parses, validates, and compares each value of an object with every write, and `kubectl describe` prints each value
in a line of its own. A text is one value to both. The operator and the command line decode a run when they receive it, and the
operator encodes its status when it writes it, so everything else works with the values.

Earlier versions stored the values themselves. Both forms can be read, even in one status; a write stores texts.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import orjson

Json = dict[str, Any]

_TEXT: Final = "text"
"""An object or a list that is stored as a text."""
_EACH: Final = "each"
"""An object or a list whose members are stored as texts."""

_Shape: TypeAlias = "str | Mapping[str, _Shape]"

_CODE: Final[_Shape] = {
    **dict.fromkeys(("memo", "searchAttributes", "versioning", "admitted", "task", "buffered"), _TEXT),
    "updates": _EACH,
}
_MEMORY: Final[_Shape] = {
    **dict.fromkeys(("vars", "signals", "listeners", "watchers", "hungry", "undo", "closing", "agenda"), _TEXT),
    **dict.fromkeys(("frames", "tasks", "loops"), _EACH),
}
_STATE: Final[_Shape] = {
    **dict.fromkeys(("retryPolicy", "paused", "undecided", "task", "requests"), _TEXT),
    **dict.fromkeys(("activities", "leftActivities", "timers", "children", "externals", "operations"), _EACH),
    **dict.fromkeys(("leftOperations", "callbacks", "markers", "reports", "holds", "kept"), _EACH),
    "code": _CODE,
    "memory": _MEMORY,
}
_STATUS: Final[_Shape] = {"definition": _TEXT, "history": {"events": _EACH}, "state": _STATE}


class Texts:
    """Encodes statuses that share values. The text of each value is made once."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Any, str]] = {}
        """The encoded values, which must not change, and their texts, by `id()`."""

    def encode(self, status: Json) -> Json:
        """Return the status of a run as it is stored.

        Raises:
            TypeError: A value nests too deeply, or is a number of more than 64 bits.
        """
        return _converted(status, _STATUS, self._text_of)  # type: ignore[no-any-return]

    def size_of(self, status: Json) -> int:
        """The size of a status in bytes, as it is stored.

        Raises:
            TypeError: As for `encode`.
        """
        return len(orjson.dumps(self.encode(status)))

    def _text_of(self, value: Any) -> Any:
        known = self._texts.get(id(value))
        if known is not None:
            return known[1]
        if not isinstance(value, (dict, list)):
            return value
        text = orjson.dumps(value).decode()
        self._texts[id(value)] = value, text
        return text


def encode(status: Json) -> Json:
    """Return the status of a run as it is stored, like `Texts.encode`."""
    return Texts().encode(status)


def decode(run: Json) -> Json:
    """Return a WorkflowRun with the values of its status in place of their texts; other objects are returned unchanged.

    A text that is not JSON was written by another client. It stays a text, so the status counts as edited.
    """
    status = run.get("status")
    if run.get("kind") != "WorkflowRun" or not isinstance(status, dict):
        return run
    return {**run, "status": _converted(status, _STATUS, _value_of)}


def _converted(value: Any, shape: _Shape, convert: Callable[[Any], Any]) -> Any:
    """Convert the parts of a value that are stored as texts."""
    if shape is _TEXT:
        return convert(value)
    if isinstance(value, list):
        return [convert(item) for item in value] if shape is _EACH else value
    if not isinstance(value, dict):
        return value
    if isinstance(shape, str):
        return {key: convert(item) for key, item in value.items()}
    changed = {key: _converted(value[key], part, convert) for key, part in shape.items() if key in value}
    return {**value, **changed}


def _value_of(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, (dict, list)) else text
