"""The type checker of cel-cpp, with our names and functions, and with its errors converted to sentences."""

import functools
import re
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_math, ext_optional

from perdure.language.cel.decode import Decoder
from perdure.language.cel.errors import CompileError
from perdure.language.cel.functions import SIGNATURES, plain_name
from perdure.language.cel.syntax import Node

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
