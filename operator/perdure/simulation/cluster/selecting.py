"""Label and field selectors of lists."""

from collections.abc import Callable
from typing import Any

Select = Callable[[dict[str, Any]], bool]


def by_labels(selector: str) -> Select:
    """Return a filter for labels: ``a``, ``!a``, ``a=b`` and ``a!=b``, separated by commas."""
    wanted = [_requirement(part.strip()) for part in selector.split(",") if part.strip()]

    def select(obj: dict[str, Any]) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(each(labels) for each in wanted)

    return select


def _requirement(part: str) -> Callable[[dict[str, str]], bool]:
    if "!=" in part:
        key, value = part.split("!=", 1)
        return lambda labels: labels.get(key) != value
    if "=" in part:
        key, value = part.split("=", 1)
        return lambda labels: labels.get(key) == value.removeprefix("=")
    if part.startswith("!"):
        return lambda labels: part[1:] not in labels
    return lambda labels: part in labels


def by_fields(selector: str) -> tuple[Select, set[str]]:
    """Return a filter for fields, and the names of these fields."""
    wanted = list(map(_term, _terms(selector)))

    def select(obj: dict[str, Any]) -> bool:
        return all((_field(obj, path) == value) is equal for path, value, equal in wanted)

    return select, {path for path, _, _ in wanted}


def _terms(selector: str) -> list[str]:
    """Split a selector at unescaped commas. The parts stay escaped."""
    parts, part, rest = [], "", iter(selector)
    for character in rest:
        if character == ",":
            parts.append(part)
            part = ""
        else:
            part += character + (next(rest, "") if character == "\\" else "")
    return [each for each in (*parts, part) if each]


def _term(term: str) -> tuple[str, str, bool]:
    path, _, value = term.partition("=")
    equal = not path.endswith("!")
    read, rest = "", iter(value.removeprefix("="))
    for character in rest:
        read += next(rest, "") if character == "\\" else character
    return path.removesuffix("!"), read, equal


def _field(obj: dict[str, Any], path: str) -> str:
    at: Any = obj
    for key in path.split("."):
        at = at.get(key) if isinstance(at, dict) else None
    return "" if at is None else str(at)
