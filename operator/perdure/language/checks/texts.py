"""Finds texts that look like expressions but are not evaluated, and expressions in dangerous places."""

import re
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, Final

from perdure.api.kinds.workflow import Activity, WorkflowSpec
from perdure.language import containers
from perdure.language.cel import CompileError, compile_source
from perdure.language.compiler import ROOTS
from perdure.language.expressions import ExpressionError, Template, compile_template, sources_in
from perdure.language.program import Finding, Severity

_ARGO: Final = re.compile(
    r"\{\{=?-?\s*(?:inputs|outputs|steps|tasks|workflow|item|pod|node|retries|lastRetry|loop|cronworkflow|io)\b[^{}]*\}\}"
)
"""A tag of Argo Workflows; other programs also use `{{…}}`."""
_INTERPRETERS: Final = (
    (re.compile(r"(?:ba|da|a|k|z)?sh|busybox|python[0-9.]*"), re.compile("-[a-zA-Z]*c")),
    (re.compile("perl|ruby|node|php"), re.compile("-[a-zA-Z]*[er]")),
)
"""Programs that take a program on their command line, and the option before it, such as `-c` or `-ec`."""
_SHELL_VARIABLE: Final = re.compile(r"\s*(?:\w+(?:\[[^\]]*\])?)?\s*")
"""An expression that a shell could also read: the name of a variable, or an entry of an array."""
KNOWN: Final = ROOTS | {"params", "item", "index", "error", "attempt"}
"""The names that an expression can read somewhere. The admission policy `<release>-expressions` has the same."""
_MAX_TEXTS: Final = 10
_MAX_EXPRESSIONS: Final = 20
"""Of one text."""
_SCOPE: Final = (
    "expressions in a container can read `input` (the input of the activity), `run`, and `attempt`; pass what you need in the "
    "`input` of the step"
)


def container_templates(path: str, activity: Activity) -> tuple[list[tuple[str, Template]], list[Finding]]:
    """Return the expressions in the containers of an activity, and the errors of those that do not compile.

    Args:
        path: The path of the activity.
        activity: The definition of the activity.
    """
    templates, findings = [], []
    for where, text in containers.places(activity):
        place = f"{path}.{where}"
        try:
            templates.append((place, compile_template(text, path=place, names=containers.NAMES)))
        except ExpressionError as error:
            findings.append(Finding(place, f"`{error.expression}`: {error.message}; {_remedy(error)}"))
    return templates, findings


def _remedy(error: ExpressionError) -> str:
    name = re.match("unknown name `([^`]*)`", error.message)
    if name and name[1] in KNOWN:
        return _SCOPE
    if name and error.expression == name[1]:
        return f"for a shell variable, write `${name[1]}` or `$${{{name[1]}}}`"
    return "for a literal `${`, such as in a shell, write `$${`"


def in_containers(path: str, activity: Activity) -> Iterator[Finding]:
    """Warn about containers of an activity: text that is not evaluated, and expressions inside of programs.

    Args:
        path: The path of the activity.
        activity: The definition of the activity.
    """
    evaluated = {where for where, _ in containers.places(activity)}
    for key, part in (
        ("container", activity.container),
        ("podTemplate", activity.pod_template),
        ("script", activity.script),
    ):
        for where, text in _texts(key, part.dump() if part else None):
            found = [] if where in evaluated else _expressions_in(text)
            if found:
                message = (
                    "`${…}` is not evaluated here, only in `args`, `image`, the `value` of `env` and the `source` of a script; "
                    "move it there"
                )
                is_certain = not all(map(_SHELL_VARIABLE.fullmatch, found))
                yield Finding(
                    f"{path}.{where}", message, Severity.ERROR if is_certain else Severity.WARNING, local=True
                )
    for where, container in _containers(activity):
        yield from _programs(f"{path}.{where}", container)
    if activity.script is not None and _has_expression(activity.script.source):
        yield _injected(f"{path}.script.source", PurePosixPath(activity.script.command[0]).name)


_OF_PODS: Final = re.compile(r"spec\.activities\[\d+\]\.(?:container|podTemplate|script)\b|.*\bservices\[\d+\]")
"""Paths that `in_containers` checks."""
_PROSE: Final = frozenset({"description", "title", "examples", "$comment", "pattern"})
"""Fields for people, and regular expressions."""


def of_definition(spec: WorkflowSpec, evaluated: Collection[str]) -> Iterator[Finding]:
    """Find expressions in all texts of a definition that are used unchanged, such as names and the types of errors.

    Args:
        spec: The definition.
        evaluated: The paths of the values in which expressions are evaluated.
    """
    for where, text in _texts("spec", _without_prose(spec.dump())):
        if "${" not in text or _OF_PODS.match(where) or any(_is_within(where, path) for path in evaluated):
            continue
        found = _expressions_in(text)
        if found:
            is_certain = not all(map(_SHELL_VARIABLE.fullmatch, found))
            severity = Severity.ERROR if is_certain else Severity.WARNING
            yield Finding(where, "`${…}` is not evaluated here: this text is used unchanged", severity, local=True)


def _is_within(where: str, path: str) -> bool:
    return where == path or where.startswith((f"{path}.", f"{path}["))


def _without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_prose(entry) for key, entry in value.items() if key not in _PROSE}
    return [_without_prose(entry) for entry in value] if isinstance(value, list) else value


def of_argo(spec: WorkflowSpec) -> Iterator[Finding]:
    """Find tags of Argo Workflows in a definition."""
    for where, text in _texts("spec", spec.dump()):
        tag = _ARGO.search(text)
        if tag is not None:
            message = (
                f"`{tag[0]}` looks like a tag of Argo Workflows, which is not evaluated here; write an expression in "
                "`${…}`, such as `${input.x}` or `${steps.a.output}`"
            )
            yield Finding(where, message, Severity.WARNING, local=True)


def in_data(
    path: str,
    value: Any,
    message: str,
    severity: Severity = Severity.ERROR,
    names: frozenset[str] = KNOWN,
) -> Iterator[Finding]:
    """Find expressions in data, which is used unchanged.

    Args:
        path: The path of the data.
        value: The data. The work is limited, so only its first texts with `${` are checked.
        message: Where expressions are evaluated instead.
        severity: The severity of the findings.
        names: The names that expressions could read.
    """
    candidates = (found for found in _texts(path, value) if "${" in found[1])
    for where, text in islice(candidates, _MAX_TEXTS):
        if _expressions_in(text, names):
            yield Finding(where, f"`${{…}}` is not evaluated here: {message}", severity, local=True)


def _expressions_in(text: str, known: frozenset[str] = KNOWN) -> list[str]:
    """The expressions in a text: those that compile, with known names or a computation.

    Names of shell variables are not known, and `${1}` is a parameter of a shell.
    """
    found = []
    for source in islice(sources_in(text), _MAX_EXPRESSIONS):
        try:
            names = compile_source(source, known).names
        except CompileError:
            continue
        if names or not _SHELL_VARIABLE.fullmatch(source):
            found.append(source)
    return found


def _programs(path: str, container: dict[str, Any]) -> Iterator[Finding]:
    """Find expressions in a program on the command line of a shell or another interpreter."""
    command, args = _list(container.get("command")), _list(container.get("args"))
    line = [*command, *args]
    if not line:
        return
    name = PurePosixPath(line[0]).name
    option = next((option for program, option in _INTERPRETERS if program.fullmatch(name)), None)
    code = next((i + 1 for i, word in enumerate(line) if i and option and option.fullmatch(word)), len(line))
    number = code - len(command)
    if code >= len(line) or number < 0 or not _has_expression(args[number]):
        return
    yield _injected(f"{path}.args[{number}]", name)


def _injected(path: str, name: str) -> Finding:
    message = (
        f"the value becomes a part of the program that `{name}` runs: anyone who can choose the value can run any command. "
        "Pass it in `env`, or as an argument after the program"
    )
    return Finding(path, message, Severity.WARNING, local=True)


def _has_expression(text: str) -> bool:
    try:
        return "${" in text and bool(compile_template(text, names=containers.NAMES).sources)
    except ExpressionError:
        return False


def _containers(activity: Activity) -> Iterator[tuple[str, dict[str, Any]]]:
    if activity.container is not None:
        yield "container", activity.container.dump()
    elif activity.script is not None:
        yield "script", activity.script.dump()
    elif activity.pod_template is not None:
        spec = activity.pod_template.spec.dump()
        for key in ("containers", "initContainers"):
            for i, one in enumerate(_list(spec.get(key), dict)):
                yield f"podTemplate.spec.{key}[{i}]", one


def _list(value: Any, kind: type = str) -> list[Any]:
    return value if isinstance(value, list) and all(isinstance(one, kind) for one in value) else []


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """All strings in a value, with their paths."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _texts(f"{path}.{key}", entry)
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            yield from _texts(f"{path}[{i}]", entry)
