"""Inputs of runs and blocks: completes defaults, and validates inputs with a JSON Schema at a cost that is known in advance.

jsonschema-rs validates the inputs with a regular-expression engine that never backtracks. Nothing is fetched: a ``$ref`` stays
within its schema.

For recursive schemas, jsonschema-rs caches the parts that a value has passed, so a check for *validity* costs at most one visit
for each part of the schema that applies to each value. Listing the *errors* does not use this cache: the cost of a schema in
which several parts refer back to it for the same value multiplies with each level.

Kubernetes' structural schemas would need no such model, as they have no `$ref`, and restrict `anyOf` and `oneOf`. But users
paste schemas from pydantic or zod for the input of an activity, and these refer to `$defs` if a model contains another one.

`mismatches` checks a value in a manifest before the values of its expressions are known.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import jsonschema_rs

from perdure.language.cel import pattern_weight

MAX_SCHEMA: Final = 10_000
"""Maximum parts of a schema with all its references expanded."""
MAX_SCHEMA_DEPTH: Final = 200
"""Maximum nesting of a schema, references included."""
MAX_CHECK: Final = 1_000_000
"""Units of work of checking one value; a unit, which is a part of the schema at a value, is at most a fifth of a microsecond."""
MAX_LISTED_TEXT: Final = 500_000
"""Maximum characters of values that may be read to list the errors of a value."""
MAX_LISTED_ERRORS: Final = 16_000
"""Maximum number of reasons; each takes about five microseconds."""
_PATTERN_CHARACTERS: Final = 16
"""Characters that one state of a regular expression processes for one unit of work."""

_IN_PLACE: Final = ("not", "if", "then", "else")
_IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_BELOW: Final = (
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("additionalItems", "unevaluatedItems", "contains"),
)
_DYNAMIC: Final = ("$dynamicRef", "$recursiveRef")
ALTERNATIVES: Final = frozenset({"anyOf", "oneOf"})
"""Keywords whose errors include the errors of each branch."""


class InputSchemaError(Exception):
    """A schema is invalid or not supported."""


# The cost of checks


class Cost:
    """The cost of checks against one schema.

    Raises:
        InputSchemaError: The schema is too large, or has a `$ref` to another document.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        if _Size(schema).of(schema, 0) > MAX_SCHEMA:
            raise InputSchemaError(f"with every `$ref` expanded, it has more than {MAX_SCHEMA:,} parts")
        visits = _Reach(schema, _compared, 1)
        texts = _Reach(schema, _patterns_of, 0)
        branches = _Reach(schema, lambda _: 0, 1)
        self._branches = branches.worst
        recursive = self._branches > 0
        self.parts = sum(map(_compared, visits.parts)) if recursive else visits.worst
        """Parts that may apply to one value."""
        self._states = sum(map(_patterns_of, visits.parts)) if recursive else texts.worst
        self._alternatives = any(ALTERNATIVES & part.keys() for part in visits.parts)

    def affordable(self, value: Any, length: int) -> bool:
        """Whether a value may be checked; `length` is the length of its JSON."""
        work = self._states * length // _PATTERN_CHARACTERS
        if work + self.parts * (length // 2 + 1) <= MAX_CHECK:  # each value has at least two characters
            return True
        return work + self.parts * _values(value) <= MAX_CHECK

    def all_reasons(self, value: Any, length: int) -> bool:
        """Whether all errors may be listed."""
        depth = _depth(value)
        ways: int = self.parts * max(self._branches, 1) ** depth
        return ways * depth * (length + 1) <= MAX_LISTED_TEXT and ways * _values(value) <= MAX_LISTED_ERRORS

    def first_reason(self) -> bool:
        """Whether the first error may be reported: the search ends there, but tries all alternatives."""
        return self._branches <= 1 and not self._alternatives


class _Size:
    """The size of a schema with its references expanded in place, which bounds the cost of reading it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[int, int] = {}

    def of(self, part: Any, depth: int) -> int:
        """Return the number of parts, or slightly more than the maximum. A schema that refers back to itself counts once."""
        if not isinstance(part, dict | list):
            return 0
        if depth > MAX_SCHEMA_DEPTH:
            return MAX_SCHEMA + 1
        if id(part) not in self._known:
            self._known[id(part)] = 1
            inside = list(part.values()) if isinstance(part, dict) else part
            if isinstance(part, dict) and isinstance(part.get("$ref"), str):
                inside = [*inside, target(self._root, part["$ref"])]
            total = 1 + sum(self.of(each, depth + 1) for each in inside)
            self._known[id(part)] = min(total, MAX_SCHEMA + 1)
        return self._known[id(part)]


class _Reach:
    """The maximum parts of a schema that apply to one value.

    Args:
        root: The schema.
        own: The cost of a part by itself.
        again: The cost of a part that was visited before, because the schema refers to itself.
    """

    def __init__(self, root: Mapping[str, Any], cost: Callable[[Mapping[str, Any]], int], again: int) -> None:
        self._root = root
        self._cost = cost
        self._again = again
        self._known: dict[int, tuple[int, int]] = {}
        self.parts: list[Mapping[str, Any]] = []
        """Each part of the schema once."""
        self.worst = max(self._of(root))

    def _of(self, part: Any) -> tuple[int, int]:
        """Return the cost for the value of a part, and for any single value within it."""
        if not isinstance(part, dict):
            return (0, 0)
        if id(part) in self._known:
            return self._known[id(part)]
        self._known[id(part)] = (self._again, self._again)
        self.parts.append(part)
        self._refuse_unsupported(part)
        here, below = self._cost(part), 0
        for each in self._in_place(part):
            more, more_below = self._of(each)
            here += more
            below += more_below
        for group in _below(part):
            below += max((max(self._of(each)) for each in group), default=0)
        self._known[id(part)] = (here, below)
        return here, below

    def _in_place(self, part: Mapping[str, Any]) -> Iterator[Any]:
        """The parts for the same value."""
        yield from (part[keyword] for keyword in _IN_PLACE if keyword in part)
        for keyword in _IN_PLACE_LISTS:
            yield from part[keyword] if isinstance(part.get(keyword), list) else ()
        for keyword in _IN_PLACE_MAPS:
            yield from part[keyword].values() if isinstance(part.get(keyword), dict) else ()
        if isinstance(part.get("$ref"), str):
            yield target(self._root, part["$ref"])

    def _refuse_unsupported(self, part: Mapping[str, Any]) -> None:
        for keyword in _DYNAMIC:
            if keyword in part:
                raise InputSchemaError(f"`{keyword}` is not supported; use `$ref` with `#/$defs/…`")
        if part is not self._root and isinstance(part.get("$id"), str):
            raise InputSchemaError(
                "`$id` is supported only at the top of a schema; remove it, and use `$ref` with `#/$defs/…`"
            )


def _below(part: Mapping[str, Any]) -> Iterator[list[Any]]:
    """The parts for the values within: groups, one of which applies to each value."""
    yield from ([part[keyword]] for keyword in _BELOW if keyword in part)
    if isinstance(part.get("properties"), dict):
        yield list(part["properties"].values())
    if isinstance(part.get("patternProperties"), dict):
        yield from ([each] for each in part["patternProperties"].values())
    for keyword in ("items", "prefixItems"):
        if keyword in part:
            yield part[keyword] if isinstance(part[keyword], list) else [part[keyword]]


def target(root: Mapping[str, Any], reference: str) -> Any:
    """Return the target of a `$ref`; raises InputSchemaError if it is not within the schema."""
    if reference != "#" and not reference.startswith("#/"):
        raise InputSchemaError(
            f"`$ref: {reference}` must be `#` or begin with `#/`; nothing is downloaded: put the schema under `$defs`"
        )
    found: Any = root
    for key in unquote(reference).split("/")[1:]:
        name = key.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            raise InputSchemaError(f"`$ref: {reference}`: `{name}` does not exist")
    return found


def _compared(part: Mapping[str, Any]) -> int:
    """The cost of a part and its comparisons. Choices that are all strings, or all integers, are looked up."""
    found = 1 + (_values(part["const"]) if isinstance(part.get("const"), dict | list) else 0)
    choices = part.get("enum")
    if isinstance(choices, list) and {type(each) for each in choices} not in ({str}, {int}):
        found += _values(choices)
    return found


def _patterns_of(part: Mapping[str, Any]) -> int:
    """The weight of the regular expressions of a part."""
    patterns = [part["pattern"]] if isinstance(part.get("pattern"), str) else []
    if isinstance(part.get("patternProperties"), dict):
        patterns += part["patternProperties"]
    return sum(pattern_weight(each) for each in patterns)


def _values(value: Any) -> int:
    """Return the number of values within a value, including itself."""
    count, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        count += 1
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return count


def _depth(value: Any) -> int:
    """The number of levels of a value; a string has one."""
    depth, level = 0, [value]
    while level:
        depth += 1
        within = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for every in within for each in every]
    return depth


# Checks of inputs


_MAX_ERRORS = 10


_TOO_COSTLY = (
    "cannot be checked: it is too large for its schema, of which {parts} may apply to each value. Make the input smaller, "
    "or the schema simpler: fewer branches of `anyOf` and `oneOf`, shorter `pattern`"
)
_UNLOCATED = (
    "does not match its schema. The field is unknown, because the schema has too many branches for an input of this size: "
    "try a smaller input, or use `if` and `then` in place of `anyOf` and `oneOf`"
)


class UncheckedError(Exception):
    """The errors of a value cannot be found; the message has the reason and the fix."""


@dataclass(frozen=True, slots=True)
class InputCheck:
    """The default and the schema of an input."""

    default: Any = None
    validator: "jsonschema_rs.Validator | None" = None
    cost: Cost | None = None

    def complete(self, value: Any) -> Any:
        """Complete a value by the default; field by field if both are objects."""
        if value is None:
            return self.default
        if isinstance(value, dict) and isinstance(self.default, dict):
            return {**self.default, **value}
        return value

    def check(self, value: Any) -> list[tuple[str, str]]:
        """Return the path and the reason of each error; empty if the value is valid. Paths are like ``.guests[0]``."""
        found: list[tuple[str, str]] = []
        try:
            for error in self.errors(value):
                if len(found) == _MAX_ERRORS:
                    found.append(("", "and more"))
                    break
                where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
                found.append((where, error.message))
        except UncheckedError as error:
            return [("", str(error))]
        return found

    def errors(self, value: Any) -> "Iterable[jsonschema_rs.ValidationError]":
        """Return the errors; of a large value, only the first.

        Raises:
            UncheckedError: Finding the errors takes too much work.
        """
        if self.validator is None or self.cost is None:
            return []
        length = len(json.dumps(value))
        if not self.cost.affordable(value, length):
            raise UncheckedError(_TOO_COSTLY.format(parts=f"{self.cost.parts:,} parts"))
        if self.validator.is_valid(value):
            return []
        if self.cost.all_reasons(value, length):
            return self.validator.iter_errors(value)
        if self.cost.first_reason():
            try:
                self.validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                return [error]
        raise UncheckedError(_UNLOCATED)


def input_check(schema: Mapping[str, Any] | None, default: Any) -> InputCheck:
    """Compile a schema.

    Args:
        schema: JSON Schema, draft 2020-12 unless `$schema` names another; None accepts everything.
        default: The default input.

    Raises:
        InputSchemaError: The schema is not valid, or has a `$ref` to another document.
    """
    if schema is None:
        return InputCheck(default)
    cost = Cost(schema)
    try:
        validator = jsonschema_rs.validator_for(
            dict(schema), pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise InputSchemaError(str(error).split("\n", 1)[0]) from None
    return InputCheck(default, validator, cost)


def _refuse(uri: str) -> Any:
    raise ValueError(f"`{uri}` lies outside of the schema; nothing is fetched: put it under `$defs`")


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
