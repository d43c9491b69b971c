"""Checks values in a manifest against a schema, before the values of their expressions are known."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from perdure.language.schemas import InputCheck, UncheckedError

Place = tuple[str | int, ...]
Kind = Callable[[Place, str], str]
"""Returns CEL's kind of value for the text at a path; `dyn` if it is not known."""

_SAMPLES: Final[dict[str, Any]] = dict.fromkeys(("string", "timestamp", "duration"), "") | {
    "int": 0,
    "double": 0.5,
    "bool": True,
    "list": [],
    "map": {},
    "null": None,
}
"""A sample value of the kind: for an expression, only the type is checked."""


def mismatches(check: InputCheck, value: Any, kind: Kind) -> list[tuple[str, str]]:
    """Return where and why a value, completed by defaults, does not fit; paths are like `.guests[0]`.

    Args:
        check: The schema and the default.
        value: The value in the manifest, with its expressions; None if there is none.
        kind: Returns the kinds of the expressions in the value.
    """
    if check.validator is None:
        return []
    holes: dict[Place, str] = {}
    filled = check.complete(_fill(value, (), kind, holes))
    found = []
    for error in _errors(check, filled):
        place = tuple(error.instance_path)
        keyword = str(error.schema_path[-1]) if error.schema_path else ""
        inside = next((holes[place[:n]] for n in range(len(place) + 1) if place[:n] in holes), None)
        if inside is not None:
            if place in holes and keyword == "type" and inside in _SAMPLES and inside != "double":
                found.append(
                    (_format_place(place), f"an expression that returns {_article(inside)}: {_expected(error)}")
                )
        elif keyword in _WHOLE_VALUE_KEYWORDS and any(hole[: len(place)] == place for hole in holes):
            continue
        else:
            found.append((_format_place(place), error.message))
    return found


def _errors(check: InputCheck, value: Any) -> Iterable[Any]:
    """The errors; none if finding them takes too much work, because the run reports them anyway."""
    try:
        return check.errors(value)
    except UncheckedError:
        return []


_WHOLE_VALUE_KEYWORDS: Final = frozenset(
    {*("anyOf", "oneOf", "not", "if", "then", "else", "const", "enum", "uniqueItems", "contains", "dependentSchemas")}
)
"""Keywords that concern a whole value: they cannot be checked if a part of it is unknown."""


def _fill(value: Any, place: Place, kind: Kind, holes: dict[Place, str]) -> Any:
    match value:
        case str() if "${" in value.replace("$${", ""):
            holes[place] = kind(place, value)
            return _SAMPLES.get(holes[place])
        case str():
            return value.replace("$${", "${")
        case list():
            return [_fill(item, (*place, i), kind, holes) for i, item in enumerate(value)]
        case dict():
            return {key: _fill(item, (*place, key), kind, holes) for key, item in value.items()}
        case _:
            return value


def default_mismatches(check: InputCheck) -> list[tuple[str, str]]:
    """Return where and why a default does not fit its own schema. A default object may lack fields."""
    if check.validator is None or check.default is None:
        return []
    return [
        (_format_place(tuple(error.instance_path)), error.message)
        for error in _errors(check, check.default)
        if error.instance_path or str(error.schema_path[-1]) not in _INCOMPLETE or not isinstance(check.default, dict)
    ]


_INCOMPLETE: Final = frozenset({"required", "minProperties", "dependentRequired", *_WHOLE_VALUE_KEYWORDS})


def _format_place(place: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)


def _article(kind: str) -> str:
    return "nothing" if kind == "null" else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _expected(error: Any) -> str:
    """Return the end of the validator's message, with the expected type."""
    return f"it {error.message[error.message.rfind('is not of type') :]}"
