"""The shapes of the values that expressions read: JSON Schemas of inputs, and of values of the interpreter."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from perdure.language.cel import CompileError, type_of
from perdure.language.checks.reads import Path, Reads

Shape = Mapping[str, Any]
"""A JSON Schema. In addition to JSON's types, it may have `timestamp`. An empty schema allows everything."""

ANY: Final[Shape] = {}
TEXT: Final[Shape] = {"type": "string"}
NUMBER: Final[Shape] = {"type": "integer"}
MOMENT: Final[Shape] = {"type": "timestamp"}
REFERENCE: Final = {"store": TEXT, "key": TEXT, "size": NUMBER, "sha256": TEXT, "archive": TEXT}
"""The fields of a reference to an artifact or a large result."""
_LARGE: Final = "$large"
LARGE: Final[Shape] = {_LARGE: True}
"""A result of any kind, or a reference to it if it is large."""
_DEEPEST: Final = 32
_COMBINING: Final = ("anyOf", "oneOf", "allOf", "if", "not", "dependentSchemas", "patternProperties", "$dynamicRef")
_KINDS: Final = {"string": "string", "boolean": "bool", "integer": "int", "timestamp": "timestamp", "object": "map"}


def known_object(fields: Mapping[str, Shape], *, optional: Iterable[str] = ()) -> Shape:
    """The shape of an object with exactly these fields."""
    left_out = set(optional)
    return {
        "type": "object",
        "properties": dict(fields),
        "required": [name for name in fields if name not in left_out],
        "additionalProperties": False,
    }


RUN: Final = known_object(
    {
        **dict.fromkeys(("name", "namespace", "workflowId", "runId"), TEXT),
        "attempt": NUMBER,
        "startTime": MOMENT,
        "continueAsNewSuggested": {"type": "boolean"},
        "status": TEXT,
        "failure": ANY,
    }
)
SCHEDULE: Final = known_object(dict.fromkeys(("name", "scheduledTime", "lastCompletionResult", "lastFailure"), ANY))
ERROR: Final = known_object(
    {"type": TEXT, "message": TEXT, "details": ANY, "nonRetryable": {"type": "boolean"}, "failure": ANY}
)


def step_shape(output: Shape, artifacts: Shape) -> Shape:
    """The shape of `steps.<name>`."""
    return known_object({"status": TEXT, "startTime": MOMENT, "endTime": ANY, "output": output, "artifacts": artifacts})


def input_shape(schema: Mapping[str, Any] | None, default: Any) -> Shape:
    """Return the shape of an input that was validated by a schema and completed by a default."""
    if schema is None:
        return ANY
    shape = resolved(schema, schema)
    if isinstance(default, dict) and isinstance(shape.get("required", []), list):
        shape = {**shape, "required": [*shape.get("required", []), *default]}
        if isinstance(shape.get("properties"), dict):
            shape["properties"] = dict.fromkeys(default, ANY) | shape["properties"]
    return {**shape, "$root": schema}


def resolved(shape: Any, root: Mapping[str, Any]) -> Shape:
    """A schema with its `$ref` resolved; an unsupported one becomes unknown."""
    for _ in range(_DEEPEST):
        if not isinstance(shape, dict):
            return ANY
        target = shape.get("$ref")
        if target is None:
            return shape
        if not isinstance(target, str) or not target.startswith("#") or len(shape.keys() - {"$ref", "description"}):
            return ANY
        shape = root
        for part in target.removeprefix("#").split("/")[1:]:
            shape = shape.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(shape, dict) else None
    return ANY


@dataclass(frozen=True, slots=True)
class Miss:
    """A path with a field that does not exist, or may not exist."""

    path: Path
    """The path up to the missing field."""
    message: str
    certain: bool
    """Whether the field can never exist."""


def look_up(scope: Mapping[str, Shape], path: Path) -> tuple[Shape, list[Miss]]:
    """Find the shape of a path, and the fields in it that may not exist."""
    root, *rest = path
    shape = scope.get(str(root), ANY)
    whole = shape.get("$root", shape)
    misses: list[Miss] = []
    for depth, key in enumerate(rest, 2):
        if isinstance(key, int):
            items = shape.get("items") if shape.get("type") == "array" and "prefixItems" not in shape else None
            shape = resolved(items, whole)
            continue
        fields = shape.get("properties")
        if shape.get("type", "object") != "object" or any(word in shape for word in _COMBINING):
            return ANY, misses
        if _LARGE in shape:
            small, large = "a small result, which is not a reference", "the reference to a large result"
            misses.append(_optional(path[:depth], f"is missing in {small if key in REFERENCE else large}"))
            return ANY, misses
        if not isinstance(fields, dict):
            return resolved(shape.get("additionalProperties"), whole), misses
        if key not in fields:
            others = shape.get("additionalProperties")
            if others is False or (fields and others is None):
                misses.append(_unknown(path[:depth], fields, certain=others is False))
            return resolved(others, whole), misses
        if key not in shape.get("required", ()):
            misses.append(_optional(path[:depth]))
        shape = resolved(fields[key], whole)
    return ({**shape, "$root": whole} if "$root" in scope.get(str(root), ANY) else shape), misses


def spelled(path: Path) -> str:
    """Format a path as in an expression."""
    text = str(path[0])
    for key in path[1:]:
        text += f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
    return text


def _unknown(path: Path, fields: Mapping[str, Any], *, certain: bool) -> Miss:
    near = get_close_matches(str(path[-1]), sorted(fields), 1)
    hint = f", did you mean `{near[0]}`" if near else ""
    there = ", ".join(sorted(fields)) or "none"
    problem = "there is no field" if certain else "the schema does not define field"
    return Miss(path, f"{problem} `{path[-1]}` in `{spelled(path[:-1])}`{hint}; the fields are: {there}", certain)


def _optional(path: Path, why: str = "may be missing") -> Miss:
    if isinstance(path[-1], str) and path[-1].isidentifier():
        optional = f"{spelled(path[:-1])}.?{path[-1]}"
    else:
        optional = f"{spelled(path[:-1])}[?{path[-1]!r}]"
    remedy = "make it `required`, give it a default, or write" if path[0] in {"input", "params"} else "write"
    return Miss(path, f"`{spelled(path)}` {why}; {remedy} `{optional}.orValue(…)`", certain=False)


def kind_of(shape: Shape) -> str:
    """Return the CEL kind of the values of a shape; `dyn` if there are several or it is not known."""
    found = shape.get("type")
    if found == "array":
        inner = shape.get("items")
        kind = kind_of(inner) if isinstance(inner, dict) and "$ref" not in inner else "dyn"
        return f"list<{kind}>" if kind in {"string", "bool"} else "list"
    return _KINDS.get(found, "dyn") if isinstance(found, str) else "dyn"


def kind_given(source: str, reads: Reads, scope: Mapping[str, Shape]) -> str:
    """Return the kind of value of an expression in a scope; `dyn` if it is not known.

    Raises:
        CompileError: The expression always fails with values of these shapes.
    """
    if reads.bound & {str(path[0]) for path in reads.paths}:
        return "dyn"
    kinds = dict(_kinds(reads, scope))
    # A schema's integer may be 3.0, and CEL distinguishes ints from doubles: only what fails with both is an error.
    variants = [kinds]
    if "int" in kinds.values():
        other = "dyn" if reads.doubles else "double"
        variants.append({name: other if kind == "int" else kind for name, kind in kinds.items()})
    failed: CompileError | None = None
    for variant in variants:
        try:
            return type_of(source, frozenset(variant.items()))
        except CompileError as error:
            failed = failed or error
    assert failed is not None
    raise failed


def _kinds(reads: Reads, scope: Mapping[str, Shape]) -> Iterator[tuple[str, str]]:
    for path in reads.paths:
        root = str(path[0])
        if root not in scope:
            continue
        yield root, kind_of(scope[root])
        for length in range(2, len(path) + 1):
            part = path[:length]
            name = ".".join(map(str, part))
            if not all(isinstance(key, str) and key.isidentifier() for key in part) or name in reads.tested:
                break
            kind = kind_of(look_up(scope, part)[0])
            if kind != "dyn":
                yield name, kind
