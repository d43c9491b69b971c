"""Compiles sources to programs, with a cache."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from perdure.language.cel.closures import MISSING, Builder, Frame, Run
from perdure.language.cel.errors import CompileError, EvaluationError
from perdure.language.cel.limits import MAX_SOURCE, Meter
from perdure.language.cel.parser import translate
from perdure.language.cel.syntax import RESERVED, NameReader
from perdure.language.cel.values import TYPES

_MAX_OPT_MAPS: Final = 4
_CACHED_PROGRAMS: Final = 1_024


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """A compiled expression: immutable, and without the state of any evaluation."""

    source: str
    names: frozenset[str]
    """The names that the expression reads from the scope."""
    steps: frozenset[str]
    """The fields of `steps` that the expression reads by name."""
    every_step: bool
    every_signal: bool
    """Whether the expression may read any field of `steps`."""
    signals: frozenset[str]
    """The fields of `signals` that the expression reads by name."""
    _roots: tuple[tuple[str, int], ...]
    _slots: int
    _cost: int
    _run: Run

    def evaluate(self, scope: Mapping[str, Any], meter: Meter) -> Any:
        """Return the value, of a type in `values`. Raises EvaluationError or LimitError."""
        meter.charge(self._cost)
        frame: Frame = [MISSING] * self._slots
        frame[0] = meter
        for name, slot in self._roots:
            frame[slot] = scope.get(name, MISSING)
        try:
            return self._run(frame)
        except (ArithmeticError, TypeError, ValueError) as error:
            # The input has a number beyond 64 bits or a time without a zone: CEL has no such values, but must not crash.
            raise EvaluationError(f"it cannot be computed: {error}") from None


def _refuse_unknown(found: frozenset[str], known: frozenset[str], source: str) -> None:
    """Report an unknown name, and suggest a similar one."""
    for name in sorted(found - known):
        hint = ""
        if re.search(rf"[\w\]]-{re.escape(name)}\b", source):
            hint = "; write a name with a dash in brackets: steps['cool-off']"
        elif near := get_close_matches(name, sorted(known), 1):
            hint = f", did you mean `{near[0]}`"
        listed = ", ".join(sorted(known))
        raise CompileError(f"unknown name `{name}`{hint}; the available names are: {listed or 'none'}")


@functools.lru_cache(maxsize=_CACHED_PROGRAMS)
def compile_source(source: str, names: frozenset[str] | None) -> CompiledExpression:
    """Compile one expression; `names` are the names it may read, None for any."""
    if len(source) > MAX_SOURCE:
        raise CompileError(
            f"it has {len(source)} characters, but at most {MAX_SOURCE} are allowed; split it into several steps"
        )
    if len(re.findall(r"\bopt(?:Flat)?Map\b", source)) > _MAX_OPT_MAPS:
        # The macro copies its target, so each one in a chain doubles the size.
        raise CompileError(f"more than {_MAX_OPT_MAPS} optMap() in one expression; split it into several steps")
    parsed = NameReader(translate(source, frozenset(), check=False))
    for name in sorted(parsed.names & (names or frozenset()) & TYPES.keys()):
        raise CompileError(f"`{name}` is a type in CEL, so it cannot be the name of a variable; give it another name")
    free = frozenset(name for name in parsed.names if name not in RESERVED or (names and name in names))
    if names is not None:
        _refuse_unknown(free, names, source)
    tree = translate(source, free, check=True)
    builder = Builder()
    for name in sorted(free):
        builder.roots[name] = builder.slot()
    run = builder.build(tree)
    return CompiledExpression(
        source=source,
        names=free,
        steps=frozenset(parsed.steps),
        every_step=parsed.every_step,
        every_signal=parsed.every_signal,
        signals=frozenset(parsed.signals),
        _roots=tuple(builder.roots.items()),
        _slots=builder.slots,
        _cost=builder.cost,
        _run=run,
    )
