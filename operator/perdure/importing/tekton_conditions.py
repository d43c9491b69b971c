"""Converts the `when` of Tekton's tasks."""

from collections.abc import Callable
from typing import Any

from perdure.importing.expressions import UntranslatableError, condition, tag
from perdure.importing.field_reader import Fields, literal
from perdure.importing.tekton_scope import VARIABLE, path_of, with_tags

Resolve = Callable[[tuple[str, ...]], str]


def conditions(task: Fields, resolve: Resolve) -> list[str]:
    """Take the conditions of a task, which must all be true.

    Raises:
        UntranslatableError: A condition has no counterpart.
    """
    return [_one(each, resolve) for each in task.parts("when")]


def _one(when: Fields, resolve: Resolve) -> str:
    cel = when.text("cel")
    if cel is not None:
        return condition("{{=" + with_tags(cel) + "}}", resolve)
    value = _text(when.take("input", ""), resolve)
    operator = when.text("operator")
    values = when.take("values", [])
    when.done({})
    if operator not in {"in", "notin"}:
        raise UntranslatableError(f"the operator `{operator}` is not `in` or `notin`")
    made = f"{value} in {_values(values, resolve)}"
    return made if operator == "in" else f"!({made})"


def _values(values: Any, resolve: Resolve) -> str:
    """Return the values as a list; arrays among them are flattened."""
    listed = values if isinstance(values, list) else [values]
    single, arrays = [], []
    for each in listed:
        found = VARIABLE.fullmatch(str(each))
        if found and found[1].endswith("[*]"):
            arrays.append(tag(".".join(path_of(found[1])), resolve))
        else:
            single.append(_text(each, resolve))
    parts = [*([f"[{', '.join(single)}]"] if single or not arrays else []), *arrays]
    return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"


def _text(value: Any, resolve: Resolve) -> str:
    """Convert a text with variables to one expression."""
    text, parts, end = str(value), [], 0
    for found in VARIABLE.finditer(text):
        if found.start() > end:
            parts.append(literal(text[end : found.start()]))
        made = tag(".".join(path_of(found[1])), resolve)
        parts.append(made if made.startswith("'") else f"string({made})")
        end = found.end()
    if end < len(text) or not parts:
        parts.append(literal(text[end:]))
    return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"
