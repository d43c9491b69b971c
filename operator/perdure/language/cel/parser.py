"""Parses expressions and checks their types with cel-cpp, with our names and functions. Its errors become sentences.

The library gives a tree in protobuf's wire format, which is decoded here. Generated messages exist (`cel.expr` of xds-protos) and
decode an expression of 1.4 kB in 0.8 ms instead of 1.9 ms. But importing them takes as long as decoding several hundred such
expressions, and they bring grpcio and protobuf, 31 MB, into the command line.
"""

import functools
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_math, ext_optional

from perdure.language.cel.functions import SIGNATURES, plain_name
from perdure.language.cel.limits import CompileError
from perdure.language.cel.syntax import Call, Comprehension, Constant, List, Map, Name, Node, Select

_CACHED_ENVIRONMENTS: Final = 32
_CONFIG: Final = "stdlib:\n  exclude_functions:\n" + "".join(
    f'    - name: "{name}"\n' for name in ("_+_", "_-_", "_*_", "_/_", "uint")
)


def _type_of(name: str) -> Any:
    """The library's type for a kind."""
    if name == "optional":
        return cel.Type.AbstractType("optional_type", [cel.Type.DYN])
    return cel.Type.List(cel.Type.DYN) if name == "list" else getattr(cel.Type, name.upper())


def _declarations() -> list[Any]:
    """The declarations of our functions for the type checker."""
    overloads: dict[str, list[Any]] = {}
    for signature in SIGNATURES:
        overloads.setdefault(signature.name, []).append(
            cel.Overload(
                f"{signature.name}({','.join(signature.takes)})",
                return_type=_type_of(signature.gives),
                parameters=[_type_of(each) for each in signature.takes],
                is_member=signature.member,
            )
        )
    return [cel.FunctionDecl(name, each) for name, each in overloads.items()]


@functools.lru_cache(maxsize=_CACHED_ENVIRONMENTS)
def _environment(names: frozenset[str]) -> Any:
    """Create a type checker that accepts only these names."""
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(_CONFIG),
        variables=dict.fromkeys(sorted(names), cel.Type.DYN),
        extensions=[ext_math.ExtMath(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
        functions=_declarations(),
    )


_PLACE = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): ([^\n]*)")
_OVERLOAD = re.compile(r"found no matching overload for '([^']*)' applied to '([^']*)'")
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
_RECURSION = re.compile(r"recursion (?:depth|limit)")


def _explain(error: Exception) -> CompileError:
    """The library's first error, as a sentence."""
    text = str(error)
    if not isinstance(error, RuntimeError):
        return CompileError("it contains characters that are not Unicode text")
    if _RECURSION.search(text):
        return CompileError(
            "it is nested too deeply: at most 32 levels; each + in a chain is one; join a list of strings, or use `set` steps"
        )
    place = _PLACE.search(text)
    line, column, message = (int(place[1]), int(place[2]), place[3]) if place else (0, 0, text.splitlines()[0])
    at = f" at column {column}" if line == 1 else f" at line {line}, column {column}" if line > 1 else ""
    if found := _OVERLOAD.search(message):
        message = f"`{plain_name(found[1])}` does not work on {found[2]}"
    elif message.startswith("Syntax error"):
        message = message.split(" expecting ")[0].replace("Syntax error: ", "it does not parse: ")
    elif found := _UNDECLARED.search(message):
        message = f"unknown function or name `{found[1]}`"
    return CompileError(f"{message[:300]}{at}")


def translate(source: str, names: frozenset[str], *, check: bool) -> Node:
    """Return the tree of a source that may read these names; types are checked if `check` is set."""
    try:
        return Decoder(_environment(names).compile(source, disable_check=not check).serialize()).root
    except (RuntimeError, ValueError, TypeError) as error:
        raise _explain(error) from None


def parse(source: str) -> Node:
    """Return the tree of a source without checking names and types.

    Raises:
        CompileError: The source is not valid.
    """
    return translate(source, frozenset(), check=False)


def type_of(source: str, known: frozenset[tuple[str, str]]) -> str:
    """Return the type of an expression if it can be inferred, such as `string` (see `values`); otherwise `dyn`.

    Args:
        source: The expression.
        known: Names, and the kinds of their values. A path such as `input.nights` is a name too: the checker prefers the
            longest name that it knows (cel-spec, "Name Resolution").

    Raises:
        CompileError: The expression always fails with such values.
    """
    try:
        found = str(_typed_environment(known).compile(source).return_type())
    except (RuntimeError, ValueError, TypeError) as error:
        raise _explain(error) from None
    return found.partition("<")[0].lower()


@functools.lru_cache(maxsize=_CACHED_ENVIRONMENTS)
def _typed_environment(known: frozenset[tuple[str, str]]) -> Any:
    """Create a type checker that accepts these names, with their types."""
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(_CONFIG),
        variables={name: _kind_type(kind) for name, kind in sorted(known)},
        extensions=[ext_math.ExtMath(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
        functions=_declarations(),
    )


def _kind_type(kind: str) -> Any:
    """Return the type of the library for a kind; a list may include the type of its items: `list<string>`."""
    if kind.startswith("list<"):
        return cel.Type.List(_kind_type(kind[5:-1]))
    if kind == "map":
        return cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    return _type_of(kind)


# The tree, from protobuf's wire format


_Fields = dict[int, list[Any]]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGN_BIT: Final = 1 << 63


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 -- the continuation bit of the wire format
            return value, at
        shift += 7


def _message(data: bytes) -> _Fields:
    """The fields of one protobuf message, by number, each with all its values."""
    fields: _Fields = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value: Any
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
            case 1:
                value, at = data[at : at + 8], at + 8
            case 2:
                length, at = _varint(data, at)
                value, at = data[at : at + length], at + length
            case other:
                raise CompileError(f"the compiler wrote an unknown wire type {other}")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _text(fields: _Fields, number: int) -> str:
    found: bytes = fields.get(number, [b""])[-1]
    return found.decode("utf-8", "surrogatepass")


class Decoder:
    """Reads `cel.expr.ParsedExpr` and `cel.expr.CheckedExpr` (cel-spec, proto/cel/expr/{syntax,checked}.proto)."""

    def __init__(self, serialized: bytes) -> None:
        envelope = _message(serialized)
        body = _message(envelope[2][-1])
        checked = _text(envelope, 1).endswith("CheckedExpr")
        self._forms: dict[int, Callable[[_Fields], Node]] = {
            3: self._constant,
            4: self._name,
            5: self._select,
            6: self._call,
            7: self._list,
            8: self._map,
            9: self._loop,
        }
        self._references: dict[int, str] = {}
        for entry in body.get(2, []) if checked else []:
            pair = _message(entry)
            self._references[pair.get(1, [0])[-1]] = _text(_message(pair[2][-1]), 1)
        self.root = self._node(body[4 if checked else 2][-1])

    def _node(self, data: bytes) -> Node:
        fields = _message(data)
        form = max(fields)
        identity = fields.get(2, [0])[-1]
        if form in {4, 5} and identity in self._references:
            return Name(self._references[identity].lstrip("."))
        read = self._forms.get(form)
        if read is None:
            raise CompileError("this form of expression is not supported")
        return read(_message(fields[form][-1]))

    @staticmethod
    def _name(fields: _Fields) -> Node:
        return Name(_text(fields, 1).lstrip("."))

    def _select(self, fields: _Fields) -> Node:
        return Select(self._node(fields[1][-1]), _text(fields, 2), bool(fields.get(3, [0])[-1]))

    def _call(self, fields: _Fields) -> Node:
        target = self._node(fields[1][-1]) if 1 in fields else None
        return Call(_text(fields, 2), target, tuple(map(self._node, fields.get(3, []))))

    def _list(self, fields: _Fields) -> Node:
        return List(tuple(map(self._node, fields.get(1, []))), frozenset(_packed(fields.get(2, []))))

    def _loop(self, fields: _Fields) -> Node:
        over, start, condition, step, outcome = (self._node(fields[number][-1]) for number in (2, 4, 5, 6, 7))
        return Comprehension(_text(fields, 1), over, _text(fields, 3), start, condition, step, outcome)

    def _map(self, fields: _Fields) -> Node:
        if 1 in fields:
            raise CompileError(
                f"`{_text(fields, 1)}{{…}}` creates a protobuf message; write a map instead: {{'key': value}}"
            )
        entries = []
        for data in fields.get(2, []):
            entry = _message(data)
            key, item = self._node(entry[3][-1]), self._node(entry[4][-1])
            entries.append((key, item, bool(entry.get(5, [0])[-1])))
        return Map(tuple(entries))

    @staticmethod
    def _constant(fields: _Fields) -> Constant:
        (number, values), *_ = fields.items()
        raw = values[-1]
        match number:
            case 1:
                return Constant(None)
            case 2:
                return Constant(bool(raw))
            case 3:
                return Constant(raw - (_SIGN_BIT << 1) if raw >= _SIGN_BIT else raw)
            case 4:
                raise CompileError(f"JSON has no unsigned numbers: write {raw} for {raw}u")
            case 5:
                return Constant(struct.unpack("<d", raw)[0])
            case 6:
                return Constant(raw.decode("utf-8", "surrogatepass"))
            case 7:
                return Constant(raw)
            case _:
                raise CompileError("this form of constant is not supported")


def _packed(values: list[Any]) -> Iterator[int]:
    """A repeated integer, packed or not."""
    for value in values:
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            yield number
