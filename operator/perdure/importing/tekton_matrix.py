"""Converts the matrix of a Tekton task to the items of a loop."""

import itertools
from collections.abc import Callable
from typing import Any

from perdure.importing.expressions import UntranslatableError, tag
from perdure.importing.field_reader import Fields, Object, literal
from perdure.importing.tekton_scope import VARIABLE, path_of, translated

Resolve = Callable[[tuple[str, ...]], str]


def items(matrix: Fields, resolve: Resolve) -> tuple[Any, frozenset[str]]:
    """Return the items of a matrix, and the parameters that they set.

    Raises:
        UntranslatableError: The matrix has no counterpart.
    """
    params = {each.text("name") or "": each.take("value", []) for each in matrix.parts("params")}
    included = [
        {param.text("name") or "": param.take("value", "") for param in each.parts("params")}
        for each in matrix.parts("include")
    ]
    names = frozenset({*params, *(name for each in included for name in each)})
    if all(isinstance(value, list) and not VARIABLE.search(str(value)) for value in params.values()):
        combined = _combined(params, included)
        return [{name: translated(str(value), resolve) for name, value in each.items()} for each in combined], names
    if included:
        raise UntranslatableError("`include` needs parameters whose values are written out")
    return "${" + _product(params, resolve) + "}", names


def _combined(params: Object, included: list[Object]) -> list[Object]:
    """Return all combinations. An `include` entry extends the matching ones, or becomes a separate one."""
    combined = (
        [dict(zip(params, values, strict=True)) for values in itertools.product(*params.values())] if params else []
    )
    for each in included:
        fixed = {name: value for name, value in each.items() if name in params}
        fitting = [one for one in combined if fixed and all(one[name] == value for name, value in fixed.items())]
        if fitting:
            for one in fitting:
                one.update({name: value for name, value in each.items() if name not in params})
        elif params and not fixed:
            for one in combined:
                one.update(each)
        else:
            combined.append(dict(each))
    return combined


def _product(params: Object, resolve: Resolve) -> str:
    fields = ", ".join(f"{literal(name)}: v{i}" for i, name in enumerate(params))
    made = f"{{{fields}}}"
    for i, value in reversed(list(enumerate(params.values()))):
        inner = f"{_list(value, resolve)}.map(v{i}, {made})"
        made = inner if i == len(params) - 1 else f"{inner}.flatten()"
    return made


def _list(value: Any, resolve: Resolve) -> str:
    """Return a list of values, or the expression of a variable with a list."""
    if isinstance(value, str):
        found = VARIABLE.fullmatch(value)
        if found is None:
            raise UntranslatableError(f"`{value}` is not a list")
        return tag(".".join(path_of(found[1])), resolve)
    parts = []
    for each in value:
        found = VARIABLE.fullmatch(each) if isinstance(each, str) else None
        if found and found[1].endswith("[*]"):
            parts.append(tag(".".join(path_of(found[1])), resolve))
        elif found:
            parts.append(f"[{tag('.'.join(path_of(found[1])), resolve)}]")
        else:
            parts.append(f"[{literal(each)}]")
    return " + ".join(parts) if len(parts) == 1 else f"({' + '.join(parts)})"
