"""Looks up fields and items of values; errors list the existing ones."""

from typing import Any, Final

from perdure.language.cel.comparison import map_key, sorted_keys
from perdure.language.cel.errors import EvaluationError
from perdure.language.cel.expression_limits import Meter
from perdure.language.cel.formats import short
from perdure.language.cel.values import NONE, Optional, article, kind

_LISTED: Final = 20
_YAML_TRUE: Final = frozenset({"y", "yes", "on"})
_YAML_FALSE: Final = frozenset({"n", "no", "off"})
"""Words that YAML 1.1 (used by kubectl) parses as booleans, even as keys."""


def no_field(where: dict[Any, Any], spelled: str, field: Any) -> EvaluationError:
    """Report a missing key, with the existing keys."""

    def describe() -> str:
        names = sorted(str(key) for key in where)
        shown = ", ".join(short(name)[1:-1] for name in names[:_LISTED])
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        tail = f"it has: {shown}{more}" if names else "it is empty"
        if str(field).lower() in _YAML_TRUE | _YAML_FALSE and {"true", "false"} & set(names):
            read = str(str(field).lower() in _YAML_TRUE).lower()
            tail += f"; YAML reads {field} without quotes as {read}: write the key as '{field}' in the manifest"
        return f"{spelled or 'the value'} has no field `{short(str(field))[1:-1]}`; {tail}"

    return EvaluationError(describe)


def get_item(value: Any, key: Any, spelled: str) -> Any:
    """`value.key` or `value[key]`; a missing key or index raises EvaluationError; `MISSING` is never returned."""
    type_name = kind(value)
    if type_name == "map":
        try:
            return value[map_key(key)]
        except KeyError:
            raise no_field(value, spelled, key) from None
    if type_name == "list":
        if isinstance(key, bool) or not isinstance(key, int | float) or key != int(key):
            raise EvaluationError(
                f"{spelled or 'the value'} is a list, whose items have numbers, not {short(str(key))}"
            )
        index = int(key)
        if 0 <= index < len(value):
            return value[index]
        raise EvaluationError(f"{spelled or 'the list'} has {len(value)} items, so item {index} does not exist")
    what = type_name if type_name == "null" else article(type_name)
    raise EvaluationError(f"{spelled or 'the value'} is {what}, so it has no field {short(str(key))}")


def find_item(value: Any, key: Any) -> Optional:
    """`value.?key` or `value[?key]`: an optional; the value may be an optional, too."""
    if type(value) is Optional:
        return find_item(value.value, key) if value.present else NONE
    type_name = kind(value)
    if type_name == "map":
        try:
            return Optional(present=True, value=value[map_key(key)])
        except (KeyError, EvaluationError):
            return NONE
    if type_name == "list" and type(key) is int:
        return Optional(present=True, value=value[key]) if 0 <= key < len(value) else NONE
    raise EvaluationError(f"{article(type_name) if type_name != 'null' else type_name} has no fields to look for")


def loop_items(meter: Meter, value: Any) -> list[Any]:
    """The items of a loop: those of a list, or the keys of a map in order."""
    type_name = kind(value)
    if type_name == "list":
        return value  # type: ignore[no-any-return]
    if type_name == "map":
        return sorted_keys(meter, value)
    raise EvaluationError(
        f"{article(type_name) if type_name != 'null' else type_name} cannot be iterated; use a list or a map"
    )
