"""The targets of steps, and the arguments that steps pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from perdure.importing.argo_artifacts import argument
from perdure.importing.argo_pods import is_tag
from perdure.importing.argo_scope import Scope, Shape, artifact_field
from perdure.importing.expressions import TAG, UntranslatableError, expression, template
from perdure.importing.field_reader import Fields, Object, as_text, literal


@dataclass(frozen=True, slots=True)
class CallTarget:
    """The target of a step: an activity, a block, a child, or a wait."""

    name: str
    kind: str
    """`activity`, `block`, `child`, or `wait`."""
    shape: Shape
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The defaults of its inputs; None for one without."""
    artifacts: Mapping[str, bool] = field(default_factory=dict)
    """The artifacts that callers pass, and whether each is optional."""
    captured: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    global_names: Mapping[str, str] = field(default_factory=dict)
    global_artifacts: Mapping[str, str] = field(default_factory=dict)
    timeout: str | None = None
    deadline: str = ""
    """The name of the input with the time limit of an attempt."""
    child: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of a call of a child."""
    deletion: str = ""
    """The activity that deletes the Pod that the call leaves."""
    wait: Mapping[str, Any] = field(default_factory=dict)
    """The fields of a step that waits."""


class Book(Protocol):
    """The parts of a definition that the conversion of its flows needs."""

    def target(self, home: str, step: Fields) -> CallTarget:
        """Return the target of a step."""

    def caught(self) -> str:
        """Return the block that converts a failure to an output."""

    def block(self, wish: str, steps: list[Object]) -> str:
        """Add a block."""

    def given(self, value: Any) -> Any:
        """Return the value of an argument, if it is a constant."""


def arguments(book: Book, source: Fields, target: CallTarget, scope: Scope) -> Object:
    """Return the input of a call: its arguments, the defaults of other inputs, and values of the workflow for the target."""
    declared = source.part("arguments")
    given: Object = {}
    for each in declared.parts("parameters"):
        name = each.text("name") or ""
        value = each.take("value", each.take("default"))
        of = each.part("valueFrom")
        if "expression" in of:
            value = "{{=" + (of.text("expression") or "") + "}}"
        of.done({"configMapKeyRef": "pass the value as a parameter of the run"})
        each.drop("description", "enum")
        each.done({})
        given[name] = _value(book, value, each.path, source, scope)
    made: Object = {}
    for name, default in target.inputs.items():
        if name in given:
            made[name] = given[name]
        elif default is not None:
            made[name] = _value(book, default, source.path, source, scope)
        elif target.kind != "wait":
            source.gap("arguments", f"the parameter `{name}` of the template has no value")
    made |= _artifacts(declared, source, target, scope)
    for key, path in target.captured.items():
        try:
            made[key] = "${" + scope.resolve(path) + "}"
        except UntranslatableError as error:
            source.gap("", f"{error} (in template `{target.name}`)")
    return made


def _artifacts(declared: Fields, source: Fields, target: CallTarget, scope: Scope) -> Object:
    """Return the artifacts for a target."""
    given: Object = {}
    for each in declared.parts("artifacts"):
        name = str(each.data.get("name"))
        given[name] = argument(each, scope.resolve)
        each.done({"subPath": "pass the whole artifact, and read the part of it"})
    made: Object = {}
    for name, optional in target.artifacts.items():
        if given.get(name) is not None:
            made[artifact_field(name)] = given[name]
        elif optional:
            made[artifact_field(name)] = "${null}"
        elif name not in given:
            source.gap("arguments", f"the artifact `{name}` of the template has no value")
    return made


def _value(book: Book, value: Any, path: str, source: Fields, scope: Scope) -> Any:
    if value is None:
        return ""
    text = as_text(value)
    if not TAG.search(text):
        return book.given(text)
    try:
        return template(text, scope.resolve, is_tag)
    except UntranslatableError as error:
        source.report.gap(path, str(error))
        return ""


def called(target: CallTarget, given: Any) -> Object:
    """Return the kind of a step that calls a target."""
    if target.kind == "wait":
        return dict(target.wait)
    value = {"input": given} if given else {}
    if target.kind == "child":
        return {"childWorkflow": {"workflow": {"name": target.name}, **value, **target.child}}
    key = "name" if target.kind == "activity" else "block"
    return {"activity" if target.kind == "activity" else "call": {key: target.name, **value}}


def output_of(output: Fields, scope: Scope) -> Any:
    """Return the value of an output parameter of a steps or dag template."""
    source = output.part("valueFrom")
    output.drop("globalName", "description")
    given, default = source.text("parameter"), source.text("default")
    try:
        if "expression" in source:
            return "${" + expression(source.text("expression") or "", scope.resolve) + "}"
        if given is not None:
            made = template(given, scope.resolve, is_tag)
            if default is not None and made.startswith("${"):
                name = next((called for original, called in scope.steps.items() if f".{original}." in given), None)
                fallback = literal(default)
                return "${" + f"{name.skipped} ? {fallback} : {made[2:-1]}" + "}" if name else made
            return made
    except UntranslatableError as error:
        output.gap("valueFrom", str(error))
    output.gap("valueFrom", "only `parameter` and `expression` have a counterpart") if given is None else None
    return None
