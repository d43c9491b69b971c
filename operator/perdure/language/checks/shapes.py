"""The paths that expressions read, such as `input.guest.name`, and the shapes of their values.

A shape is a JSON Schema: that of an input, or of a value of the interpreter. It shows whether a path can exist, and which kind of
value an expression has.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from perdure.api.names import LOG_ARTIFACT, RESULT_ARTIFACT
from perdure.language.cel import CompileError, parse, type_of
from perdure.language.cel.syntax import Call, Comprehension, Constant, Name, Node, Select, parts_of
from perdure.language.checks import flow as flows
from perdure.language.program import CompiledStep, Program

Path = tuple[str | int, ...]
"""A root, followed by fields and indices."""

# The paths of an expression


_CACHED: Final = 1_024
_OPTIONAL: Final = frozenset({"_?._", "_[?_]"})


@dataclass(frozen=True, slots=True)
class Reads:
    """The paths of one expression."""

    paths: frozenset[Path] = frozenset()
    """The paths that the expression reads, up to the first computed key or index."""
    guarded: frozenset[Path] = frozenset()
    """The paths whose existence the expression tests with `has()`, `in`, or an optional."""
    tested: frozenset[str] = frozenset()
    """The paths within `has()`, as they are written."""
    bound: frozenset[str] = frozenset()
    """The loop variables of the expression."""
    doubles: bool = False
    """Whether the expression contains a number with a fraction."""
    alone: Path | None = None
    """The path, if the whole expression is one."""


@functools.lru_cache(maxsize=_CACHED)
def reads_of(source: str) -> Reads:
    """Find the paths that an expression reads; none if it is not valid."""
    try:
        tree = parse(source)
    except CompileError:
        return Reads()
    reader = _PathReader(tree)
    return Reads(
        frozenset(reader.paths),
        frozenset(reader.guarded),
        frozenset(reader.tested),
        frozenset(reader.bound),
        reader.doubles,
        _path(tree, frozenset()),
    )


class _PathReader:
    def __init__(self, tree: Node) -> None:
        self.paths: set[Path] = set()
        self.guarded: set[Path] = set()
        self.tested: set[str] = set()
        self.bound: set[str] = set()
        self.doubles = False
        self._visit(tree, frozenset())

    def _visit(self, node: Node, bound: frozenset[str]) -> None:
        path = _path(node, bound)
        if path is not None:
            self.paths.add(path)
            return
        match node:
            case Constant(value):
                self.doubles |= isinstance(value, float)
            case Select(operand, field, test):
                self._below(operand, field, bound, guard=test)
            case Call(function, None, (operand, Constant(str(field)))) if function in _OPTIONAL:
                self._below(operand, field, bound, guard=True)
            case Call("@in", None, (Constant(str(field)), where)):
                self._below(where, field, bound, guard=True)
            case Comprehension():
                self._loop(node, bound)
            case _:
                for part in parts_of(node):
                    self._visit(part, bound)

    def _loop(self, node: Comprehension, bound: frozenset[str]) -> None:
        self.bound |= {node.variable, node.result}
        self._visit(node.over, bound)
        self._visit(node.start, bound)
        for part in (node.condition, node.step, node.outcome):
            self._visit(part, bound | {node.variable, node.result})

    def _below(self, operand: Node, field: str, bound: frozenset[str], *, guard: bool) -> None:
        """Visit a field of a value that is not a path, or a field that is tested."""
        path = _path(operand, bound)
        if path is not None and guard:
            self.guarded.add((*path, field))
            self.tested.add(".".join(map(str, (*path, field))))
        self._visit(operand, bound)


def _path(node: Node, bound: frozenset[str]) -> Path | None:
    match node:
        case Name(name):
            return None if name in bound or name.startswith(("@", "__")) else (name,)
        case Select(operand, field, False):
            inner = _path(operand, bound)
            return None if inner is None else (*inner, field)
        case Call("_[_]", None, (operand, Constant(str() | int() as key))) if not isinstance(key, bool):
            inner = _path(operand, bound)
            return None if inner is None else (*inner, key)
        case _:
            return None


# Shapes


Shape = Mapping[str, Any]
"""A JSON Schema. In addition to JSON's types, it may have `timestamp`. An empty schema allows everything."""

ANY: Final[Shape] = {}
TEXT: Final[Shape] = {"type": "string"}
NUMBER: Final[Shape] = {"type": "integer"}
TIMESTAMP: Final[Shape] = {"type": "timestamp"}
REFERENCE: Final = {"store": TEXT, "key": TEXT, "size": NUMBER, "sha256": TEXT, "archive": TEXT}
"""The fields of a reference to an artifact or a large result."""
_LARGE: Final = "$large"
LARGE: Final[Shape] = {_LARGE: True}
"""A result of any kind, or a reference to it if it is large."""
_MAX_DEPTH: Final = 32
_COMBINING: Final = ("anyOf", "oneOf", "allOf", "if", "not", "dependentSchemas", "patternProperties", "$dynamicRef")
_KINDS: Final = {"string": "string", "boolean": "bool", "integer": "int", "timestamp": "timestamp", "object": "map"}


def object_shape(fields: Mapping[str, Shape], *, optional: Iterable[str] = ()) -> Shape:
    """The shape of an object with exactly these fields."""
    left_out = set(optional)
    return {
        "type": "object",
        "properties": dict(fields),
        "required": [name for name in fields if name not in left_out],
        "additionalProperties": False,
    }


RUN: Final = object_shape(
    {
        **dict.fromkeys(("name", "namespace", "workflowId", "runId"), TEXT),
        "attempt": NUMBER,
        "startTime": TIMESTAMP,
        "continueAsNewSuggested": {"type": "boolean"},
        "status": TEXT,
        "failure": ANY,
    }
)
SCHEDULE: Final = object_shape(
    {
        **dict.fromkeys(("name", "timeZone", "utcOffset", "localTime", "localDate"), TEXT),
        **dict.fromkeys(("scheduledTime", "previousTime", "nextTime"), TIMESTAMP),
        **dict.fromkeys(("lastCompletionResult", "lastFailure"), ANY),
    }
)
ERROR: Final = object_shape(
    {"type": TEXT, "message": TEXT, "details": ANY, "nonRetryable": {"type": "boolean"}, "failure": ANY}
)


def step_shape(output: Shape, artifacts: Shape) -> Shape:
    """The shape of `steps.<name>`."""
    return object_shape(
        {"status": TEXT, "startTime": TIMESTAMP, "endTime": ANY, "output": output, "artifacts": artifacts}
    )


# The shapes of inputs


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
    for _ in range(_MAX_DEPTH):
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


# Paths in shapes


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
    schema = shape.get("$root", shape)
    misses: list[Miss] = []
    for depth, key in enumerate(rest, 2):
        if isinstance(key, int):
            items = shape.get("items") if shape.get("type") == "array" and "prefixItems" not in shape else None
            shape = resolved(items, schema)
            continue
        fields = shape.get("properties")
        if shape.get("type", "object") != "object" or any(word in shape for word in _COMBINING):
            return ANY, misses
        if _LARGE in shape:
            inline, large = "a small result, which is not a reference", "the reference to a large result"
            misses.append(_optional(path[:depth], f"is missing in {inline if key in REFERENCE else large}"))
            return ANY, misses
        if not isinstance(fields, dict):
            return resolved(shape.get("additionalProperties"), schema), misses
        if key not in fields:
            others = shape.get("additionalProperties")
            if others is False or (fields and others is None):
                misses.append(_unknown(path[:depth], fields, certain=others is False))
            return resolved(others, schema), misses
        if key not in shape.get("required", ()):
            misses.append(_optional(path[:depth]))
        shape = resolved(fields[key], schema)
    return ({**shape, "$root": schema} if "$root" in scope.get(str(root), ANY) else shape), misses


def format_path(path: Path) -> str:
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
    return Miss(path, f"{problem} `{path[-1]}` in `{format_path(path[:-1])}`{hint}; the fields are: {there}", certain)


def _optional(path: Path, why: str = "may be missing") -> Miss:
    if isinstance(path[-1], str) and path[-1].isidentifier():
        optional = f"{format_path(path[:-1])}.?{path[-1]}"
    else:
        optional = f"{format_path(path[:-1])}[?{path[-1]!r}]"
    remedy = "make it `required`, give it a default, or write" if path[0] in {"input", "params"} else "write"
    return Miss(path, f"`{format_path(path)}` {why}; {remedy} `{optional}.orValue(…)`", certain=False)


# Kinds of values


def kind_of(shape: Shape) -> str:
    """Return the CEL kind of the values of a shape; `dyn` if there are several or it is not known."""
    found = shape.get("type")
    if found == "array":
        inner = shape.get("items")
        kind = kind_of(inner) if isinstance(inner, dict) and "$ref" not in inner else "dyn"
        return f"list<{kind}>" if kind in {"string", "bool"} else "list"
    return _KINDS.get(found, "dyn") if isinstance(found, str) else "dyn"


def kind_of_expression(source: str, reads: Reads, scope: Mapping[str, Shape]) -> str:
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


_ARTIFACT: Final = object_shape(REFERENCE)


_COPIED: Final = object_shape({**REFERENCE, "copy": TEXT})


_NONE: Final = object_shape({})


# Artifacts


def artifacts_shape(compiled: CompiledStep, program: Program) -> Shape:
    """Return the shape of `steps.<name>.artifacts`.

    Args:
        compiled: The step.
        program: The program of the step.
    """
    definition = program.activities.get(compiled.activity) if compiled.activity is not None else None
    if definition is None or definition.artifacts is None:
        return _NONE
    outputs = definition.artifacts.outputs
    ours = [RESULT_ARTIFACT] if definition.artifacts.large_results else []
    ours += [LOG_ARTIFACT] if definition.artifacts.archive_logs else []
    uncertain = bool(compiled.step.catch) or flows.may_be_skipped(compiled)
    optional = [each.name for each in outputs if each.optional or uncertain]
    fields = {each.name: _ARTIFACT if each.key is None else _COPIED for each in outputs}
    found = object_shape({**fields, **dict.fromkeys(ours, _ARTIFACT)}, optional=[*optional, *ours])
    if not compiled.step.for_each:
        return found
    return ANY if uncertain else {"type": "array", "items": found}
