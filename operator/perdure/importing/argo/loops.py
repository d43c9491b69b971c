"""Converts the loops of Argo: `withItems`, `withParam`, and `withSequence`."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from perdure.importing.expressions import TAG, Resolve, UntranslatableError, condition, literal, tag, template
from perdure.importing.reader import Fields, Object, as_text
from perdure.language.cel.limits import MAX_ITEMS

LOOPS: Final = ("withItems", "withParam", "withSequence")
"""The fields of loops; a step has one of them."""
ITEM: Final = re.compile(r"\bitem\b")
"""A condition that reads the item of its loop."""
_LISTED: Final = 200
"""Maximum number of items of a sequence to list explicitly."""
_INTEGER: Final = re.compile("-?[0-9]+")


def for_each(step: Fields, resolve: Resolve, is_tag: Callable[[str], bool]) -> Object | None:
    """Take the loop of a step.

    Returns:
        The `forEach`; None without a loop.

    Raises:
        UntranslatableError: The loop has no counterpart.
    """
    if "withItems" in step:
        return {"items": _items(step.take("withItems"), resolve, is_tag)}
    if "withParam" in step:
        return {"items": _param(step.take("withParam"), resolve, is_tag)}
    if "withSequence" in step:
        return {"items": _sequence(step.part("withSequence"), resolve)}
    return None


def filtered(loop: Object, when: str, resolve: Resolve) -> Object:
    """Return a loop over the items for which a condition is true.

    Raises:
        UntranslatableError: The condition has no counterpart.
    """
    items = loop["items"]
    source = items[2:-1] if isinstance(items, str) else _as_expression(items)
    return {"items": "${" + f"{source}.filter(item, {condition(when, resolve)})" + "}"}


def _as_expression(items: Any) -> str:
    text = json.dumps(items)
    if "${" in text:
        raise UntranslatableError(
            "`when` with `item` needs items that are written out; move the condition into the template"
        )
    return literal(items)


def _items(value: Any, resolve: Resolve, is_tag: Callable[[str], bool]) -> Any:
    if isinstance(value, str):
        return template(value, resolve, is_tag)
    if isinstance(value, list):
        return [_items(each, resolve, is_tag) for each in value]
    if isinstance(value, dict):
        return {key: _items(each, resolve, is_tag) for key, each in value.items()}
    return value


def _param(value: Any, resolve: Resolve, is_tag: Callable[[str], bool]) -> Any:
    text = value if isinstance(value, str) else as_text(value)
    match = TAG.fullmatch(text.strip())
    if match:
        return "${" + tag(match[1], resolve) + "}"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise UntranslatableError("`withParam` must be one tag, or a list in JSON")
    return _items(found, resolve, is_tag)


def _sequence(sequence: Fields, resolve: Resolve) -> Any:
    start, end, count = (sequence.text(name) for name in ("start", "end", "count"))
    form = sequence.text("format")
    sequence.done({})
    known = [each for each in (start, end, count) if each is not None]
    if all(_INTEGER.fullmatch(each) for each in known):
        first = int(start or 0)
        last = int(end) if end is not None else first + int(count or 0) - 1
        numbers = range(first, last + 1) if end is None or last >= first else range(first, last - 1, -1)
        if last - first >= MAX_ITEMS or first - last >= MAX_ITEMS:
            raise UntranslatableError(f"a loop has at most {MAX_ITEMS} items; let each step do a part of the work")
        if len(numbers) <= _LISTED:
            return [_formatted(form, number) for number in numbers] if form else list(numbers)
    lower = _number(start or "0", resolve)
    if count is not None:
        size = _number(count, resolve)
        made = f"lists.range({size})" if lower == "0" else f"lists.range({size}).map(i, i + {lower})"
    else:  # which may be below the start
        upper = _number(end or "0", resolve)
        up = f"lists.range({upper} - {lower} + 1).map(i, {lower} + i)"
        made = f"({lower} <= {upper} ? {up} : lists.range({lower} - {upper} + 1).map(i, {lower} - i))"
    if form:
        if not re.fullmatch("[^%]*%d[^%]*", form):
            raise UntranslatableError(f"the format `{form}` has no counterpart; format the number in the container")
        made += f".map(i, {literal(form)}.format([i]))"
    return "${" + made + "}"


_WIDE: Final = re.compile(r"%[^%A-Za-z]*[0-9]{4}")
"""A format that writes a number with thousands of characters."""


def _formatted(form: str, number: int) -> str:
    try:
        if not _WIDE.search(form):
            return form % number
    except (TypeError, ValueError):
        pass
    raise UntranslatableError(f"the format `{form}` has no counterpart; format the number in the container")


def _number(text: str, resolve: Resolve) -> str:
    match = TAG.fullmatch(text.strip())
    if match:
        return f"int({tag(match[1], resolve)})"
    if _INTEGER.fullmatch(text):
        return text
    raise UntranslatableError(f"`{text}` is not a number; set it with one tag")
