"""Resolves the variables of Tekton, `$(…)`: in pipelines and tasks they become expressions, or values that are known."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.importing.expressions import (
    Resolve,
    UntranslatableError,
    has_field,
    literal,
    member,
    tag,
    template,
    was_caught,
)
from perdure.importing.reader import ConversionReport, Fields, as_text, format_value, walk

VARIABLE: Final = re.compile(
    r"\$\(((?:params|tasks|context\.(?:pipelineRun|pipelineTask|pipeline|taskRun|task)|workspaces|results|steps|step|finally|artifacts|credentials)"
    r"\b[-\w.\[\]'\"*]*)\)"
)
"""A variable. Other texts in `$(…)`, also with another name in `context`, stay as they are, as in Tekton."""
_RESULT: Final = re.compile(r"\$\(tasks\.([-\w]+)\.(?:results|outputs|matrix)\b")
_PATH: Final = re.compile(r"\[(?:'([^']*)'|\"([^\"]*)\"|(\*|[0-9]+))\]|\.?([-\w]+)")
_RUN: Final = {"name": "run.name", "namespace": "run.namespace", "uid": "run.runId"}


def with_tags(text: str) -> str:
    """Rewrite the variables of a text as tags for the parser of expressions."""
    return VARIABLE.sub(lambda found: "{{" + ".".join(path_of(found[1])) + "}}", text)


def path_of(reference: str) -> tuple[str, ...]:
    """Split a reference, such as `params["a.b"][0]`, into parts; a dot in a name is kept."""
    parts = [next(part for part in found.groups() if part is not None) for found in _PATH.finditer(reference)]
    return tuple(part.replace(".", "\0") for part in parts)


def params_read(value: Any) -> list[str]:
    """Return the parameters that a value refers to, at any depth."""
    paths = [path_of(found[1]) for _, text in walk(value, "") for found in VARIABLE.finditer(text)]
    return [path[1].replace("\0", ".") for path in paths if path[0] == "params" and len(path) > 1]


def is_spread(value: Any) -> bool:
    """Whether a value is one variable with all items of an array, `$(params.x[*])`."""
    found = VARIABLE.fullmatch(value) if isinstance(value, str) else None
    return found is not None and found[1].endswith("[*]")


def any_spread(value: Any) -> bool:
    """Whether a list or a map has such a variable as an item."""
    if isinstance(value, dict):
        return any(map(any_spread, value.values()))
    return any(map(any_spread, value)) if isinstance(value, list) else is_spread(value)


def text_of(value: Any, resolve: Resolve) -> str:
    """Convert a text with variables to one expression."""
    text, parts, end = as_text(value), [], 0
    for found in VARIABLE.finditer(text):
        if found.start() > end:
            parts.append(literal(text[end : found.start()]))
        made = tag(".".join(path_of(found[1])), resolve)
        parts.append(made if made.startswith("'") else f"string({made})")
        end = found.end()
    if end < len(text) or not parts:
        parts.append(literal(text[end:]))
    return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"


def list_of(values: Sequence[Any], resolve: Resolve) -> str:
    """Convert a list of texts to one expression; the items of arrays among them are spliced in."""
    parts: list[str] = []
    single: list[str] = []
    for each in values:
        if is_spread(each):
            parts += [f"[{', '.join(single)}]"] if single else []
            parts.append(tag(".".join(path_of(each[2:-1])), resolve))
            single = []
        else:
            single.append(text_of(each, resolve))
    parts += [f"[{', '.join(single)}]"] if single or not parts else []
    return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"


def value_of(value: Any, resolve: Resolve) -> str:
    """Convert the value of a parameter to one expression.

    Raises:
        UntranslatableError: A variable has no counterpart.
    """
    if is_spread(value):
        return list_of([value], resolve)
    if isinstance(value, list):
        return list_of(value, resolve)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(str(key))}: {value_of(each, resolve)}" for key, each in value.items()) + "}"
    return text_of(value, resolve)


_TYPES: Final = {"array": "a list", "object": "a map", "string": "a string"}


_KINDS: Final[Mapping[type, str]] = {list: "array", dict: "object"}


def kind_of(declared: Mapping[str, Any]) -> str:
    """Return the type of a parameter: the declared one, or that of its default."""
    by_default = "object" if declared.get("properties") else _KINDS.get(type(declared.get("default")), "string")
    return str(declared.get("type") or by_default)


def mistake_of_type(declared: Mapping[str, Any], value: Any) -> str:
    """Return what is wrong with the type of a value of a parameter; empty if it has the declared one."""
    kind, found = kind_of(declared), _KINDS.get(type(value), "string")
    if kind == found or kind not in _TYPES or (isinstance(value, str) and VARIABLE.fullmatch(value)):
        return ""
    return f"must be {_TYPES[kind]}, as the parameter is declared, not {format_value(value)}"


def composed(values: Mapping[str, Any], composite: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in which references to each other are replaced by the referred values, at any depth.

    Args:
        values: The values, which must not refer to each other in a circle.
        composite: The values that refer to others of `values`; the others are final.
    """
    made: dict[str, Any] = {name: value for name, value in values.items() if name not in composite}
    for name in composite:
        _compose(name, values, composite, made)
    return {name: made[name] for name in values}


def _compose(name: str, values: Mapping[str, Any], composite: Mapping[str, Any], made: dict[str, Any]) -> None:
    if name in made:
        return
    read = [each for each in params_read(composite[name]) if each in values]
    for each in read:
        _compose(each, values, composite, made)
    made[name] = substituted(composite[name], {each: made[each] for each in read})


def results_read(value: Any) -> set[str]:
    """Return the tasks whose results some fields read."""
    return set(_RESULT.findall(str(value)))


def translated(text: str, resolve: Callable[[tuple[str, ...]], str]) -> str:
    """Replace variables in a text by expressions. Braces of other programs are kept.

    Raises:
        UntranslatableError: A variable has no counterpart.
    """
    made, end = "", 0
    for found in VARIABLE.finditer(text):
        made += text[end : found.start()].replace("${", "$${")
        made += template("{{" + ".".join(path_of(found[1])) + "}}", resolve)
        end = found.end()
    return made + text[end:].replace("${", "$${")


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """A task of a pipeline that later tasks can reference."""

    step: str
    """The expression for its step: its status and its output."""
    results: tuple[str, ...]
    is_loop: bool = False
    is_caught: bool = False
    is_pipeline: bool = False
    is_unknown: bool = False
    """Whether it was not imported."""

    @property
    def is_plain(self) -> bool:
        """Whether the output of the task is its only result."""
        return len(self.results) == 1 and not self.is_caught and not self.is_pipeline

    def resolve(self, path: tuple[str, ...]) -> str:
        """Translate a reference to the task."""
        match path:
            case ("status",):
                return self._status("Failed")
            case ("reason",):
                return self._status("FailureIgnored")
            case ("results", name, *rest):
                return _selected(self._result(name.replace("\0", ".")), tuple(rest))
            case ("matrix", "length"):
                return f"size({self.step}.output)"
            case ("matrix", name, "length"):
                return f"size({self._result(name)})"
        name = ".".join(path).replace("\0", ".")
        raise UntranslatableError(f"`{name}` of a task has no counterpart; remove the reference")

    def _status(self, failed: str) -> str:
        """Return the status of the task; `failed` is that of one that may fail."""
        status = f"({self.step}.status == 'Skipped' ? 'None' : {self.step}.status)"
        if not self.is_caught:
            return status
        output = f"{self.step}.output"
        found = (
            f"type({output}) == list && {output}.exists(o, {was_caught('o')})" if self.is_loop else was_caught(output)
        )
        return f"({found} ? {literal(failed)} : {status})"

    def _result(self, name: str) -> str:
        """Return a result; of a loop, the list of those that its tasks have written."""
        if self.is_unknown:
            raise UntranslatableError(f"the task with the result `{name}` is not imported, which is reported above")
        if name not in self.results:
            raise UntranslatableError(f"the task has no result `{name}`; declare it")
        output = f"{self.step}.output"
        if self.is_loop:
            values = output if self.is_plain else f"{output}.map(o, {member('o', name)})"
            return f"{values}.filter(v, v != null && v != '')"
        return output if self.is_plain else member(output, name)


def _selected(value: str, path: tuple[str, ...]) -> str:
    for part in path:
        if part != "*":
            value = f"{value}[{part}]" if part.isdigit() else member(value, part.replace("\0", "."))
    return value


@dataclass(frozen=True, slots=True)
class PipelineScope:
    """The scope of references in the tasks of a pipeline."""

    params: str
    """The name with the parameters: `input`, or `params` in a block."""
    names: frozenset[str]
    pipeline: str
    tasks: Mapping[str, FinishedTask] = field(default_factory=dict)
    bound: Mapping[str, bool] = field(default_factory=dict)
    """The workspaces, and whether they are bound."""
    items: frozenset[str] = frozenset()
    """The parameters that a matrix sets."""
    retries: int = 0
    """The maximum number of retries of the converted task."""
    composed: Mapping[str, Any] = field(default_factory=dict)
    """The defaults of parameters that refer to others; they apply where the input of the run has none."""
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The keys of the parameters that are objects."""
    completed: str = "'Succeeded'"
    """The expression of the status of all tasks if none has failed: `Completed` if one was skipped."""

    def resolve(self, path: tuple[str, ...]) -> str:
        """Translate a reference.

        Raises:
            UntranslatableError: The reference has no counterpart.
        """
        match path:
            case ("params", name, key) if key != "*" and key.replace("\0", ".") not in self.keys.get(name, (key,)):
                raise UntranslatableError(f"the parameter `{name}` has no key `{key}`; declare it in its `properties`")
            case ("params", name, *rest) if name in self.items:
                return _selected(member("item", name.replace("\0", ".")), tuple(rest))
            case ("params", name, *rest) if name.replace("\0", ".") in self.composed:
                plain = name.replace("\0", ".")
                default = value_of(self.composed[plain], self.resolve)
                parameter = member(self.params, plain)
                return _selected(f"({has_field(self.params, plain)} ? {parameter} : {default})", tuple(rest))
            case ("params", name, *rest) if name in self.names:
                return _selected(member(self.params, name.replace("\0", ".")), tuple(rest))
            case ("tasks", name, *rest) if name in self.tasks:
                return self.tasks[name].resolve(tuple(rest))
            case ("tasks", "status"):
                return f"(run.status == 'Completed' ? {self.completed} : 'Failed')"
            case ("workspaces", name, "bound"):
                return literal("true" if self.bound.get(name) else "false")
            case ("workspaces", name, "path"):
                return literal(f"/workspace/{name}")
            case ("context", "pipelineTask", "retries"):
                return literal(str(self.retries))
            case ("context", "pipelineRun", name) if name in _RUN:
                return _RUN[name]
            case ("context", "pipeline", "name"):
                return literal(self.pipeline)
        raise UntranslatableError(
            f"`$({'.'.join(path)})` has no counterpart here; remove the reference".replace("\0", ".")
        )


class TaskScope:
    """The scope of references in the containers of a task. It collects other values for the caller to pass."""

    def __init__(self, task: str, step: str, params: Mapping[str, Any], paths: Mapping[str, str]) -> None:
        self._task = task
        self._step = step
        self._params = params
        self._paths = paths
        self.captured: dict[str, tuple[str, ...]] = {}
        """The values that the caller must pass: references by the field of the input."""

    def resolve(self, path: tuple[str, ...]) -> str:
        """Translate a reference.

        Raises:
            UntranslatableError: The reference has no counterpart.
        """
        name = ".".join(path)
        if name in self._paths:
            return literal(self._paths[name])
        match path:
            case ("workspaces", _, "bound"):  # of a workspace that the task does not declare
                return literal("false")
            case ("steps", step, "results", result) if "\0" not in result:
                return literal(f"{MARK}{step}/{result}{MARK}")
            case ("params", param, *rest):
                plain = param.replace("\0", ".")
                if param not in self._params:
                    self.captured[plain] = ("params", param)
                return _selected(member("input", plain), tuple(rest))
            case ("context", "taskRun", "name"):
                return f"(run.name + {literal(f'-{self._step}')})"
            case ("context", "taskRun" | "pipelineRun", field_) if field_ in _RUN:
                return _RUN[field_]
            case ("context", "task", "name"):
                return literal(self._task)
            case ("context", "task", "retry-count"):
                return "(attempt - 1)"
            case ("tasks", task, *_):
                return self._captured(f"{task}-{path[-1]}".replace("\0", ".").replace("*", "all"), path)
            case ("context", "pipeline", "name"):
                return self._captured("pipeline", path)
        raise UntranslatableError(f"`$({name})` has no counterpart here; remove the reference".replace("\0", "."))

    def _captured(self, wish: str, path: tuple[str, ...]) -> str:
        """Return a value that the caller passes, as a field of the input that nothing else is."""
        key, number = wish, 2
        while key in self._params or self.captured.get(key, path) != path:
            key, number = f"{wish}-{number}", number + 1
        self.captured[key] = path
        return member("input", key)


MARK: Final = "\x01"
"""Stands around the name of a step and of its result in a text: only the pod knows its value."""


class Spliced(str):
    """The expression of a list of arguments whose number only the run knows."""

    __slots__ = ()


_ARRAY: Final = re.compile(r"\$\(params(?:\.([-\w]+)|\[['\"]([^'\"]+)['\"]\])\[\*\]\)")


class TaskValues:
    """Converts the values in the containers of a task."""

    def __init__(
        self,
        scope: TaskScope,
        params: Mapping[str, Fields],
        *,
        known: Mapping[str, Any],
        lengths: Mapping[str, int],
        paths: Mapping[str, str],
        report: ConversionReport,
    ) -> None:
        """Create a converter.

        Args:
            scope: The scope of references in the containers.
            params: The declared parameters.
            known: The parameters whose values are known.
            lengths: The lengths of arrays whose values are computed.
            paths: The values of variables for paths.
            report: Collects the parts without a counterpart.
        """
        self._scope = scope
        self._params = params
        self._known = known
        self._lengths = lengths
        self._paths = paths
        self._report = report

    def words(self, text: str, path: str) -> list[str]:
        """Return the words of an argument; an array has several."""
        found = _ARRAY.fullmatch(text)
        if found is None:
            return [self.evaluated(text, path)]
        name = found[1] or found[2]
        default = self._params[name].data.get("default") if name in self._params else None
        values = self._known.get(name, default)
        if name in self._lengths and VARIABLE.search(str(self._known.get(name, "$(params.x)"))):
            return [f"${{{member('input', name)}[{i}]}}" for i in range(self._lengths[name])]
        if not isinstance(values, list) or VARIABLE.search(str(values)):
            return [Spliced("${" + self._scope.resolve(("params", name.replace(".", "\0"))) + "}")]
        return [as_text(each).replace("${", "$${") for each in values]

    def known(self, value: Any) -> Any:
        """Return a value in which parameters with known values are replaced by them."""
        defaults = {name: each.data.get("default") for name, each in self._params.items()}
        known = {name: each for name, each in {**defaults, **self._known}.items() if each is not None}
        return substituted(value, {name: each for name, each in known.items() if "$(" not in str(each)})

    def variable(self, variable: Any, path: str) -> Any:
        """Return an environment variable."""
        if not isinstance(variable, dict) or variable.get("value") is None:
            return self.plain(variable, path)
        return {**variable, "value": self.evaluated(as_text(variable["value"]), f"{path}.value")}

    def evaluated(self, text: str, path: str) -> str:
        """Return a text in which Perdure evaluates expressions."""
        try:
            return translated(text, self._scope.resolve)
        except UntranslatableError as error:
            self._report.gap(path, str(error))
            return VARIABLE.sub("", text).replace("${", "$${")

    def plain(self, value: Any, path: str) -> Any:
        """Return a value without expressions of Perdure, with known parameters replaced by their values."""
        made = with_paths(self.known(value), self._paths)
        if VARIABLE.search(str(made)):
            self._report.gap(
                path, "variables are evaluated in `image`, `args`, `env`, and scripts; write the value here"
            )
        return made


def substituted(value: Any, params: Mapping[str, Any]) -> Any:
    """Replace the parameters with known values in a value; arrays are spliced into lists."""
    if isinstance(value, list):
        items: list[Any] = []
        for each in value:
            made = substituted(each, params)
            items += made if is_spread(each) and isinstance(made, list) else [made]
        return items
    if isinstance(value, dict):
        return {key: substituted(each, params) for key, each in value.items()}
    if not isinstance(value, str):
        return value
    if is_spread(value):
        path = path_of(value[2:-1])
        known = params.get(path[1].replace("\0", ".")) if path[0] == "params" else None
        return value if known is None else known
    return VARIABLE.sub(lambda found: _known(found, params), value)


def _known(found: re.Match[str], params: Mapping[str, Any]) -> str:
    """Return the text of a variable, or the variable if its value is not known."""
    first, *rest = (part.replace("\0", ".") for part in path_of(found[1]))
    if first != "params" or not rest or rest[0] not in params:
        return found[0]
    value = params[rest[0]]
    for part in rest[1:]:
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        elif is_spread(value):  # a parameter that has all items, or fields, of another one
            value = f"{str(value).removesuffix('[*])')}[{part if part.isdigit() else literal(part)}])"
        else:
            return found[0]
    return as_text(value)


def with_paths(value: Any, paths: Mapping[str, str]) -> Any:
    """Replace the variables for paths of workspaces and results in a value."""
    if isinstance(value, list):
        return [with_paths(each, paths) for each in value]
    if isinstance(value, dict):
        return {key: with_paths(each, paths) for key, each in value.items()}
    if isinstance(value, str):
        for name, path in paths.items():
            value = value.replace(f"$({name})", path)
    return value
