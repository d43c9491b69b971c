"""Checks the expressions of a template: the paths that they read, their types, and whether they have a value."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from perdure.language.cel import CHECKED_WORK, CompileError, Meter, failing_parts
from perdure.language.checks.shapes import Path, Reads, Shape, format_path, kind_of_expression, look_up, reads_of
from perdure.language.expressions import ExpressionError, Template
from perdure.language.program import Finding, Program, Severity

Scope = Mapping[str, Shape]
"""The shapes of the values that an expression can read, by name."""
CONDITION: Final = ({"bool"}, "true or false; compare it with something")
"""What a condition must be, for `of_template`."""


def guards_of(templates: Iterable[Template]) -> frozenset[Path]:
    """Return the paths whose existence is tested in some templates."""
    return frozenset[Path]().union(
        *(reads_of(source).guarded for template in templates for _, source in template.places)
    )


def of_template(
    path: str,
    template: Template,
    scope: Scope,
    guards: frozenset[Path],
    expected: tuple[set[str], str] | None = None,
    variables: Collection[str] = (),
) -> Iterator[Finding]:
    """Check the expressions of a template.

    Args:
        path: The path of the template.
        template: The template.
        scope: The values that it can read.
        guards: The paths whose existence is tested.
        expected: The types that its value may have, and how to describe them; None for any.
        variables: The names that steps set in `vars`.
    """
    fails = False
    for where, source in template.places:
        reads = reads_of(source)
        for failing in failing_parts(source):
            fails |= failing.certain
            message = f"`{source}` always fails" if failing.certain else f"a part of `{source}` always fails"
            severity = Severity.ERROR if failing.certain else Severity.WARNING
            yield Finding(where or path, f"{message}: {failing.message}", severity)
        yield from _of_paths(where or path, reads, scope, guards, variables)
        try:
            kind = kind_of_expression(source, reads, scope)
        except CompileError as error:
            yield Finding(where or path, f"`{source}` always fails: {error}")
            continue
        if expected is not None and template.is_expression and kind not in {*expected[0], "dyn"}:
            yield Finding(where or path, f"the value of `{source}` has type {kind}, but must be {expected[1]}")

    if template.places and not fails and not template.references.roots:
        meter = Meter(CHECKED_WORK)
        try:
            template.evaluate({}, meter)
        except ExpressionError as error:  # its parts have values, but the whole has none
            if meter.left >= 0:
                yield Finding(error.path or path, f"always fails: {error.message}")


def reads_schedule(program: Program) -> Iterator[Finding]:
    """Find the expressions that fail in a run without a Schedule, because `schedule` is empty there; report them once.

    A step that tests for one field of `schedule` may read all of them.

    Args:
        program: The program; it need not be complete.
    """
    parts: list[Iterable[Template]] = [[handler.input] for handler in program.handlers.values()]
    parts += [[limit.key] for limit in program.limits]
    for flow in program.flows.values():
        parts += [step.templates.values() for step in flow.steps]
        parts += [[each] for each in (flow.output, flow.steps_timeout) if isinstance(each, Template)]
    found: list[tuple[str, Path]] = []
    for templates in parts:
        if any(guard[0] == "schedule" for guard in guards_of(templates)):
            continue
        for where, source in (place for template in templates for place in template.places):
            reads = sorted(
                (each for each in reads_of(source).paths if each[0] == "schedule" and len(each) > 1), key=str
            )
            found += [(where, read) for read in reads[:1]]
    if found:
        where, read = found[0]
        field = format_path(read[:2])
        count = len(found) - 1
        others = f", as in {count} more {'expression' if count == 1 else 'expressions'}" if count else ""
        message = (
            f"`{field}` has a value only in runs of a Schedule: a run that is started in another way fails here{others}; take "
            f"the value as input, or read `{field.replace('.', '.?', 1)}.orValue(…)`"
        )
        yield Finding(where, message, Severity.NOTE)


def _of_paths(
    where: str, reads: Reads, scope: Scope, guards: frozenset[Path], variables: Collection[str]
) -> Iterator[Finding]:
    reported: set[Path] = set()
    for path in sorted(reads.paths, key=str):
        for miss in look_up(scope, path)[1]:
            if miss.certain and miss.path[:1] == ("steps",) and len(miss.path) == 2:  # noqa: PLR2004 (steps.<name>)
                continue  # the compiler reports it with its path
            guarded = miss.path in guards if not miss.certain else miss.path in reads.guarded
            if not guarded and miss.path not in reported:
                reported.add(miss.path)
                yield Finding(where, miss.message, Severity.ERROR if miss.certain else Severity.WARNING)
        if path[0] == "vars" and len(path) > 1 and path[1] not in variables and path[:2] not in guards:
            message = f"no step sets the variable `{path[1]}`; set it in a step of kind `set`"
            yield Finding(where, message, Severity.WARNING)
