"""Mistakes in foreign manifests that their schemas permit, and their systems reject: names without a meaning, or with two."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from perdure.importing.reader import ConversionReport, Object, format_value

_MAX_COMPOSED: Final = 131_072
"""Maximum characters of a value with those to which it refers."""


def report_names(
    items: Iterable[tuple[str, Any]], report: ConversionReport, *, key: str = "name", optional: bool = False
) -> None:
    """Report items that have no name, or the name of another one: only one of them could be meant.

    Args:
        items: The items that are named together, with their paths.
        report: Gets the mistakes.
        key: The field with the name.
        optional: Whether an item needs no name.
    """
    known: dict[str, str] = {}
    for path, item in items:
        name = item.get(key) if isinstance(item, dict) else None
        if name in {None, ""}:
            if not optional:
                report.gap(f"{path}.{key}", "must be set")
        elif not isinstance(name, str):
            report.gap(f"{path}.{key}", f"must be a string, not {format_value(name)}; write it in quotes")
        elif name in known:
            report.gap(f"{path}.{key}", f"{format_value(name)} is also the name of `{known[name]}`; rename one of them")
        else:
            known[name] = path


def items_of(value: Object, name: str, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list in a map, with their paths."""
    for i, each in enumerate(value.get(name) or []):
        yield f"{path}.{name}[{i}]", each


def maps_in(value: Any, path: str) -> Iterator[tuple[str, Object]]:
    """Yield all maps in a value, from the outside in, with their paths."""
    if isinstance(value, dict):
        yield path, value
        for key, each in value.items():
            yield from maps_in(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from maps_in(each, f"{path}[{i}]")


def too_long(values: Mapping[str, Any], refers: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the values that are too long with those to which they refer, as each can double another one.

    Args:
        values: The values.
        refers: For each value that refers to others, their names, as often as they occur; without circles.
    """
    lengths: dict[str, int] = {}

    def length(name: str) -> int:
        if name not in lengths:
            lengths[name] = len(str(values[name])) + sum(
                length(each) for each in refers.get(name, ()) if each in values
            )
        return lengths[name]

    return [each for each in refers if length(each) > _MAX_COMPOSED]
