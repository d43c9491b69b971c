"""Resolves the tags of Argo in each part of a workflow."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from perdure.importing.expressions import CAUGHT, UntranslatableError, has_field, literal, member, value_of, was_caught


def _quoted(text: str) -> str:
    """Return the expression of a text in JSON."""
    escaped = text
    for character, escape in (("\\\\", "\\\\\\\\"), ('"', '\\\\"'), ("\\n", "\\\\n"), ("\\t", "\\\\t")):
        escaped += f".replace('{character}', '{escape}')"
    return f"('\"' + {escaped} + '\"')"


STATUS: Final = "(run.status == 'Completed' ? 'Succeeded' : 'Failed')"
"""Converts the values of `workflow.status` to those of Perdure."""

ROOTS: Final = (
    "inputs",
    "outputs",
    "steps",
    "tasks",
    "workflow",
    "item",
    "lastRetry",
    "retries",
    "node",
    "pod",
    "loop",
    "cronworkflow",
)
"""Names that tags begin with; other texts in braces are not tags."""


def is_tag(content: str) -> bool:
    """Whether a text in braces is a tag of Argo."""
    return content.startswith("=") or re.split(r"[.\[]", content, maxsplit=1)[0].strip() in ROOTS


_RUN: Final = {
    "name": "run.name",
    "namespace": "run.namespace",
    "uid": "run.runId",
    "creationTimestamp": "run.startTime",
    "creationTimestamp.RFC3339": "run.startTime",
    "duration": "(now - run.startTime).getSeconds()",
    "creationTimestamp.s": "int(run.startTime)",
    "scheduledTime": "schedule.scheduledTime",
}
_NOT_NAME: Final = re.compile("[^a-z0-9]+")
_MAX_NAME: Final = 63
_IN_PODS: Final = frozenset({"name", "namespace", "uid"})
"""The values of the run that expressions in a container can read."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The output of an activity or a block."""

    parameters: tuple[str, ...] = ()
    result: bool = False
    """Whether the output is its stdout."""
    is_block: bool = False
    is_foreign: bool = False
    """Whether it is that of a block of a Workflow that is not known: it gets all arguments, and has any output parameters."""
    is_unknown: bool = False
    """Whether it is that of a template that was not imported."""
    is_service: bool = False
    """Whether it is the address and the name of a Pod."""
    optional: frozenset[str] = frozenset()
    """The output artifacts that may not exist."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The values of output parameters that were not written."""
    errs: bool = False
    """Whether it can fail with the status Error: because it has not written an output."""

    @property
    def is_plain(self) -> bool:
        """Whether the output is a single value, not an object of values."""
        return not self.is_block and len(self.parameters) + self.result == 1

    def has(self, name: str) -> bool:
        """Whether there may be an output parameter."""
        return name in self.parameters or self.is_foreign or self.is_unknown

    def value(self, output: str, name: str) -> str:
        """Return the expression for one value of an output."""
        return output if self.is_plain else member(output, name)


@dataclass(frozen=True, slots=True)
class WorkflowFacts:
    """The facts about a workflow before it runs."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    constants: Mapping[str, str]
    """The values of other tags of the workflow, such as `serviceAccountName`."""
    parameters: frozenset[str]
    artifacts: frozenset[str] = frozenset()
    composed: Mapping[str, Any] = field(default_factory=dict)
    """The values of parameters that refer to others; they apply where the input of the run has none."""
    name: str = ""
    """The name of the object, without a trailing dash."""
    errs: bool = False
    """Whether it can end with the status Error."""
    is_closed: bool = False
    """Whether a run has no other parameters than those that are declared."""

    @property
    def status(self) -> str:
        """Return the expression of its status."""
        if not self.errs:
            return STATUS
        errored = f"run.failure != null && run.failure.type in {list(ERRORS)}"
        return f"(run.status == 'Completed' ? 'Succeeded' : {errored} ? 'Error' : 'Failed')"

    @property
    def failures(self) -> str:
        """Return the expression of its failures: a list in JSON, in quotes, as Argo has it."""
        message = _quoted("run.failure.message")
        found = f"'[{{\"message\":' + {message} + ',\"phase\":\"' + {self.status} + '\"}}]'"
        return f"(run.failure == null ? '\"null\"' : {_quoted(f'({found})')})"


_FAILED_ITEM: Final = was_caught("o")
"""The condition that the item `o` of a loop has failed, whose failure was caught."""

OUTPUT_MISSING: Final = "OutputMissing"
"""The type of the failure of a container that did not write the file of an output."""
ERRORS: Final = (OUTPUT_MISSING, "ArtifactMissing")
"""The types of failures whose status is Error: what the executor of Argo finds, not the container."""


@dataclass(frozen=True, slots=True)
class CalledStep:
    """A step that later steps can reference."""

    name: str
    """Its name on Perdure."""
    shape: Shape
    is_loop: bool = False
    is_caught: bool = False
    """Whether its failure becomes its output: an object with the field `CAUGHT`."""
    may_skip: bool = False
    """Whether a condition can prevent it from running."""
    may_be_empty: bool = False
    """Whether it is a loop whose items the run computes, of which there may be none."""
    base: str = ""
    """The expression for it, in its own hooks."""
    omitted: str = ""
    """The condition that it did not run because of `depends`; empty if it has none."""
    service: str = ""
    """The expression for the service of the list that it became."""

    @property
    def step(self) -> str:
        """The expression for it."""
        return self.base or member("steps", self.name)

    @property
    def failed(self) -> str:
        """Return the condition that the step has failed, also with the status Error; empty if its failure is not caught."""
        if not self.is_caught:
            return ""
        output = f"{self.step}.output"
        if self.is_loop:
            return f"(type({output}) == list && {output}.exists(o, {_FAILED_ITEM}))"
        return f"({was_caught(output)})"

    @property
    def errored(self) -> str:
        """Return the condition that the step has the status Error; empty if it cannot have it.

        A loop has that of its last item that has failed.
        """
        if not self.shape.errs:
            return ""
        if not self.is_caught:
            return f"(step.failure != null && step.failure.type in {list(ERRORS)})" if self.base else ""
        output = f"{self.step}.output"
        if not self.is_loop:
            return f"({self.failed} && {member(output, CAUGHT)} in {list(ERRORS)})"
        failed = f"{output}.filter(o, {_FAILED_ITEM})"
        return f"({self.failed} && {member(f'{failed}[size({failed}) - 1]', CAUGHT)} in {list(ERRORS)})"

    @property
    def passes_error(self) -> str:
        """Return the condition that the tasks after it that do not run inherit the status Error; empty if they cannot.

        They inherit that of the first item of a loop that has failed (dag.go, assessDAGPhase).
        """
        if not (self.is_loop and self.is_caught and self.shape.errs):
            return self.errored
        first = f"{self.step}.output.filter(o, {_FAILED_ITEM})[0]"
        return f"({self.failed} && {member(first, CAUGHT)} in {list(ERRORS)})"

    @property
    def all_failed(self) -> str:
        """Return the condition that all items of the loop have failed; other steps have no items."""
        output = f"{self.step}.output"
        is_list = f"type({output}) == list && {output} != []"
        item = f"{_FAILED_ITEM} && !({member('o', CAUGHT)} in {list(ERRORS)})" if self.shape.errs else _FAILED_ITEM
        return f"({is_list} && {output}.all(o, {item}))" if self.is_loop else "false"

    @property
    def any_succeeded(self) -> str:
        """Return the condition that an item of the loop has succeeded; other steps have no items."""
        output = f"{self.step}.output"
        found = f"(type({output}) == list && {output}.exists(o, !({_FAILED_ITEM})))"
        return found if self.is_loop else "false"

    @property
    def not_started(self) -> str:
        """Return the condition that the step did not run because of its condition."""
        return f"{self.step}.status == 'Skipped'"

    @property
    def skipped(self) -> str:
        """Return the condition that the step was skipped, as a loop without items is, too."""
        return f"({self.not_started} || {self.step}.output == [])" if self.may_be_empty else self.not_started

    @property
    def absent(self) -> str:
        """Return the condition that the step has no output: it was skipped or has failed. Empty if it always has one."""
        parts = [self.not_started] if self.may_skip else []
        return " || ".join([*parts, self.failed] if self.is_caught else parts)

    def resolve(self, path: tuple[str, ...]) -> str:
        """Translate a reference to the step."""
        step = self.step
        match path:
            case ("status",):
                return self._status
            case ("startedAt" | "finishedAt" | "exitCode",) if self.service:
                raise UntranslatableError(f"`{path[0]}` of a service has no counterpart; remove the reference")
            case ("ip",) if self.service:
                return f"{self.service}.ip"
            case ("exitCode",):
                code = f"{member(f'{step}.output', CAUGHT)}.replace('ExitCode', '')"
                code = f"({self.errored} ? '0' : {code})" if self.errored else code
                return f"({self.failed} ? {code} : '0')" if self.is_caught else "'0'"
            case ("startedAt",):
                return f"{step}.startTime"
            case ("finishedAt",):
                return f"{step}.endTime"
            case ("ip",) if self.shape.is_service:
                return f"{step}.output.ip"
            case ("outputs", "result") if self.shape.is_foreign:
                raise UntranslatableError(
                    "`outputs.result` of a template in another file is not known; import the files together"
                )
            case ("outputs", "result") if self.shape.result or self.shape.is_unknown:
                return self._value("result")
            case ("outputs", "result"):
                raise UntranslatableError("the template has no `outputs.result`, as a container has; read a parameter")
            case ("outputs", "parameters"):
                return self._all(self._items if self.is_loop else f"{step}.output")
            case ("outputs", "parameters", name) if self.shape.has(name):
                return self._value(name)
            case ("outputs", "parameters", name):
                raise UntranslatableError(f"the template has no output parameter `{name}`; declare it")
            case ("outputs", "artifacts", name):
                return self._artifact(step, name)
        raise UntranslatableError(f"`{'.'.join(path)}` of a step has no counterpart; remove the reference")

    @property
    def _status(self) -> str:
        status = "'Running'" if self.shape.is_service else f"{self.step}.status"
        if self.base:  # the step may also be cancelled, by a deadline
            status = f"({status} == 'Succeeded' ? 'Succeeded' : 'Failed')"
        if self.may_be_empty:
            status = f"({self.step}.output == [] ? 'Skipped' : {status})"
        if self.omitted:
            status = f"({self.omitted} ? 'Omitted' : {status})"
        if self.is_caught:
            failed = f"({self.errored} ? 'Error' : 'Failed')" if self.errored else "'Failed'"
            return f"({self.failed} ? {failed} : {status})"
        return f"({self.errored} ? 'Error' : {status})" if self.errored else status

    @property
    def _items(self) -> str:
        """Return the outputs of a loop: of the items that have one."""
        output = f"{self.step}.output"
        items = f"({self.not_started} ? [] : {output})" if self.may_skip else output
        return f"{items}.filter(o, !({_FAILED_ITEM}))" if self.is_caught else items

    def _value(self, name: str) -> str:
        if self.is_loop:
            return self._items if self.shape.is_plain else f"{self._items}.map(o, {self.shape.value('o', name)})"
        value = self.shape.value(f"{self.step}.output", name)
        if name not in self.shape.defaults:
            return f"({self.not_started} ? '' : {value})" if self.may_skip else value
        if not self.absent:
            return value
        return f"({self.absent} ? {literal(self.shape.defaults[name])} : {value})"

    def _artifact(self, step: str, name: str) -> str:
        """Return the reference to an artifact; for a loop, to a list of artifacts."""
        of, key = ("output", artifact_field(name)) if self.shape.is_block else ("artifacts", artifact_name(name))
        found = f"{step}.{of}"
        item = "o" if self.is_loop else found
        optional = name in self.shape.optional or (self.may_skip and not self.shape.is_block)
        value = f"{item}[?{literal(key)}].orValue(null)" if optional else member(item, key)
        return f"{found}.map(o, {value})" if self.is_loop else value

    def _all(self, output: str) -> str:
        if not self.shape.is_plain:
            return output
        only = literal(self.shape.parameters[0] if self.shape.parameters else "result")
        return f"{output}.map(o, {{{only}: o}})" if self.is_loop else f"{{{only}: {output}}}"


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of references in a steps or dag template."""

    params: str
    """The name with the inputs: `params` in a block, `input` in the main steps."""
    workflow: WorkflowFacts
    steps: Mapping[str, CalledStep] = field(default_factory=dict)
    template: str = ""
    step: str = ""
    """The name of the step that is converted."""
    inputs: frozenset[str] | None = None
    """The input parameters of the template; None if they are not known."""

    def at(self, **changes: Any) -> "Scope":
        """Return a copy with other values in scope."""
        return replace(self, **changes)

    def resolve(self, path: tuple[str, ...]) -> str:
        """Translate a reference.

        Raises:
            UntranslatableError: The reference has no counterpart.
        """
        match path:
            case ("inputs", "parameters"):
                return all_parameters(self.params)
            case ("inputs", "parameters", name) if self.inputs is None or name in self.inputs:
                return member(self.params, name)
            case ("inputs", "parameters", name):
                raise UntranslatableError(f"`inputs.parameters.{name}` is not an input of the template; declare it")
            case ("inputs", "artifacts", name):
                return member(self.params, artifact_field(name))
            case ("workflow", *rest):
                return of_workflow(tuple(rest), self.workflow)
            case ("steps" | "tasks", name, *rest) if name in self.steps:
                return self.steps[name].resolve(tuple(rest))
            case ("steps" | "tasks", "name") if self.step:
                return literal(self.step)
            case ("item", *rest):
                made = "item"
                for each in rest:
                    made = member(made, each)
                return made
            case ("node", "name"):
                return literal(self.step or self.template)
        raise UntranslatableError(f"`{'.'.join(path)}` has no counterpart here; remove the reference")


def of_workflow(path: tuple[str, ...], workflow: WorkflowFacts) -> str:
    """Translate a reference to the workflow.

    Raises:
        UntranslatableError: The reference has no counterpart.
    """
    match path:
        case ("parameters",) | ("parameters", "json") if not workflow.composed:
            return all_parameters("input")
        case ("parameters", name) if name in workflow.composed:
            made = value_of(workflow.composed[name], lambda inner: _of_argument(inner, workflow), is_tag)
            return f"({has_field('input', name)} ? {member('input', name)} : {made})"
        case ("parameters", name) if not (workflow.is_closed and name not in workflow.parameters):
            return member("input", name)
        case ("parameters", name):
            raise UntranslatableError(f"the workflow has no parameter `{name}`; declare it in `arguments`")
        case ("artifacts", name):
            return member("input", artifact_field(name))
        case ("outputs", "parameters", name):
            return member("vars", variable(name))
        case ("outputs", "artifacts", name):
            return member("vars", variable(artifact_field(name)))
        case ("labels", *rest) if ".".join(rest) in workflow.labels:
            return literal(workflow.labels[".".join(rest)])
        case ("annotations", *rest) if ".".join(rest) in workflow.annotations:
            return literal(workflow.annotations[".".join(rest)])
    name = ".".join(path)
    if name == "status":
        return workflow.status
    if name == "failures":
        return workflow.failures
    if name in _RUN:
        return _RUN[name]
    if name in workflow.constants:
        return literal(workflow.constants[name])
    raise UntranslatableError(f"`workflow.{name}` has no counterpart; pass the value as a parameter")


def _of_argument(path: tuple[str, ...], workflow: WorkflowFacts) -> str:
    """Translate a reference in the value of a parameter of the workflow."""
    if path[0] != "workflow":
        raise UntranslatableError(
            f"`{'.'.join(path)}` is not known when the workflow starts; pass the value as a parameter"
        )
    return of_workflow(path[1:], workflow)


def all_parameters(params: str) -> str:
    """Return all parameters in Argo's form: a list of names and values."""
    return f"{params}.map(p, {{'name': p, 'value': {params}[p]}})"


def artifact_field(name: str) -> str:
    """Return the field for an artifact in an input or in the output of a block. Parameters can have the same names."""
    return f"artifact-{name}"


def artifact_name(name: str) -> str:
    """Return the name of an artifact on Perdure."""
    return _NOT_NAME.sub("-", name.lower()).strip("-")[:_MAX_NAME].rstrip("-") or "artifact"


def variable(name: str) -> str:
    """Return the name of the variable for a global output."""
    made = "".join(each if each.isalnum() else "_" for each in name)
    return made if not made[0].isdigit() else f"_{made}"


class ServiceScope:
    """The scope of references in a service of a list of steps, which starts before them: the input of the list, and the run."""

    def __init__(self, scope: Scope, inputs: Mapping[str, Any]) -> None:
        """`inputs`: the values of the inputs of its template, with the tags of the caller."""
        self._scope = scope
        self._inputs = inputs

    def resolve(self, path: tuple[str, ...]) -> str:
        """Translate a reference of its template.

        Raises:
            UntranslatableError: The reference has no counterpart.
        """
        match path:
            case ("inputs", "parameters", name) if name in self._inputs:
                return value_of(self._inputs[name], self._of_caller)
            case ("inputs", *_):
                raise UntranslatableError(f"`{'.'.join(path)}` is not an input of the template; declare it")
        return self._of_caller(path)

    def _of_caller(self, path: tuple[str, ...]) -> str:
        workflow, name = self._scope.workflow, path[-1]
        match path:
            case ("inputs", "parameters", _):
                return member("input", name)
            case ("workflow", "parameters", _) if self._scope.params == "input" and name not in workflow.composed:
                return member("input", name)
            case ("workflow", _) if name in _IN_PODS:
                return _RUN[name]
            case ("workflow", "labels" | "annotations", *_):
                return of_workflow(path[1:], workflow)
            case ("workflow", _) if name in workflow.constants:
                return literal(workflow.constants[name])
        raise UntranslatableError(f"`{'.'.join(path)}` is not known when the services of a list start")


class PodScope:
    """The scope of references in a container: its input and the run. It collects other values for the caller to pass."""

    def __init__(self, workflow: WorkflowFacts, inputs: Mapping[str, Any], paths: Mapping[str, str]) -> None:
        self._workflow = workflow
        self._inputs = inputs
        self._paths = paths
        self.captured: dict[str, tuple[str, ...]] = {}
        """The values that the caller must pass: references by the field of the input."""

    def resolve(self, path: tuple[str, ...]) -> str:
        """Translate a reference.

        Raises:
            UntranslatableError: The reference has no counterpart.
        """
        match path:
            case ("inputs", "parameters"):
                return all_parameters("input")
            case ("inputs", "parameters", name) if name in self._inputs:
                return member("input", name)
            case ("workflow", name) if name in _IN_PODS:
                return _RUN[name]
            case ("workflow", "labels" | "annotations", *_):
                return of_workflow(path[1:], self._workflow)
            case ("workflow", name) if name in self._workflow.constants:
                return literal(self._workflow.constants[name])
            case ("inputs" | "outputs", *_) if ".".join(path) in self._paths:
                return literal(self._paths[".".join(path)])
            case ("retries",):
                return "(attempt - 1)"
            case ("pod", "name"):
                raise UntranslatableError(
                    "`pod.name` is only known in `command`, `args`, and `env`; pass it in a variable"
                )
            case ("lastRetry", *_):
                raise UntranslatableError("`lastRetry` has no counterpart; `${attempt}` is the number of the attempt")
            case ("inputs", *_) | ("outputs", *_):
                raise UntranslatableError(f"`{'.'.join(path)}` is not an input or output of the template; declare it")
        wish = path[-1] if path[0] == "workflow" else "-".join(path)
        key, number = wish if wish not in self._inputs else f"workflow-{wish}", 2
        while key in self._inputs or self.captured.get(key, path) != path:
            key, number = f"{wish}-{number}", number + 1
        self.captured[key] = path
        return member("input", key)
