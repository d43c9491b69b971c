"""Programs: a Workflow's definition, checked and compiled once, ready to be interpreted by any number of runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.api.retrypolicy import RetryPolicyChoice
from perdure.api.steps import ActivityCall, Step
from perdure.api.workflow import Activity, WorkflowSpec
from perdure.engine.retry import RetryPolicy
from perdure.language.expressions import ExpressionError, Template, compile_template

ROOTS = frozenset({"input", "steps", "vars", "run", "now"})
"""The names an expression may start from."""

_KINDS = ("activity", "sleep", "set", "return", "fail")
_LATER_MODIFIERS = ("needs", "when", "for_each", "catch", "compensate", "timeout", "dead_letter")
_LATER_PARTS = ("blocks", "on_cancel", "on_failure", "finally_")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a definition."""

    path: str
    """Where: ``spec.steps[2].activity.name``."""
    message: str
    """What is wrong, and what to do."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidWorkflowError(Exception):
    """A definition that cannot be run; `findings` tells everything that is wrong."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("; ".join(map(str, findings)))
        self.findings = findings


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """A step and its templates, by the name of what they are for."""

    step: Step
    templates: Mapping[str, Template]


@dataclass(frozen=True, slots=True)
class Program:
    """A definition that can be run."""

    spec: WorkflowSpec
    steps: tuple[CompiledStep, ...]
    output: Template | None
    """None: the output of the last step."""
    activities: Mapping[str, Activity]
    kept: frozenset[str] = field(default_factory=frozenset)
    """The steps whose outputs an expression may still ask for; others are not remembered."""


def compile_program(spec: WorkflowSpec) -> Program:
    """Check and compile a definition.

    Raises:
        InvalidWorkflowError: it cannot be run.
    """
    compiler = _Compiler(spec)
    program = compiler.compile()
    if compiler.findings:
        raise InvalidWorkflowError(compiler.findings)
    return program


def retry_policy(choice: RetryPolicyChoice | None) -> RetryPolicy:
    """The engine's form of a policy that is written in place; None is Temporal's default."""
    if choice is None or choice.exponential is None:
        return RetryPolicy()
    return RetryPolicy(
        initial_interval=choice.exponential.initial_interval,
        backoff_coefficient=float(choice.exponential.backoff_coefficient),
        maximum_interval=choice.exponential.maximum_interval,
        maximum_attempts=choice.exponential.maximum_attempts,
        non_retryable_error_types=tuple(choice.exponential.non_retryable_error_types),
    )


class _Compiler:
    def __init__(self, spec: WorkflowSpec) -> None:
        self.spec = spec
        self.findings: list[Finding] = []
        self.templates: list[tuple[str, Template, list[str]]] = []
        """Where it stands, what it is, and which steps have ended by the time it is evaluated."""
        self.ended: list[str] = []
        self.activities = {activity.name: activity for activity in spec.activities}

    def compile(self) -> Program:
        for name in _LATER_PARTS:
            if getattr(self.spec, name):
                self.not_yet(f"spec.{_field(name)}", f"`{_field(name)}`")
        if self.spec.input and self.spec.input.schema_ is not None:
            self.not_yet("spec.input.schema", "a schema for the input")
        if not self.spec.steps:
            self.found("spec.steps", "there is nothing to do: must have at least one step")
        for i, activity in enumerate(self.spec.activities):
            self.check_activity(f"spec.activities[{i}]", activity)
        steps = []
        for i, step in enumerate(self.spec.steps):
            steps.append(self.compile_step(f"spec.steps[{i}]", step))
            self.ended.append(step.name)
        output = self.template("spec.output", self.spec.output) if self.spec.output is not None else None
        names = [step.name for step in self.spec.steps]
        self.check_references(names)
        return Program(self.spec, tuple(steps), output, self.activities, self.kept(names, output))

    def found(self, path: str, message: str) -> None:
        self.findings.append(Finding(path, message))

    def not_yet(self, path: str, what: str) -> None:
        self.found(
            path, f"{what} is part of the API but not yet run by this version of the operator; see docs/limits.md"
        )

    def check_activity(self, path: str, activity: Activity) -> None:
        if activity.worker is not None:
            self.not_yet(f"{path}.worker", "an activity done by a Temporal SDK worker")
        self.check_retry(f"{path}.retryPolicy", activity.retry_policy)

    def check_retry(self, path: str, choice: RetryPolicyChoice | None) -> None:
        if choice is not None and choice.name is not None:
            self.not_yet(f"{path}.name", "a RetryPolicy by name (write `exponential` in place)")
        if choice is not None and choice.cloud_scheduler is not None:
            self.not_yet(f"{path}.cloudScheduler", "a `cloudScheduler` policy (write `exponential`)")

    def compile_step(self, path: str, step: Step) -> CompiledStep:
        if step.kind not in _KINDS:
            self.not_yet(f"{path}.{_field(step.kind)}", f"a step of kind `{_field(step.kind)}`")
        for name in _LATER_MODIFIERS:
            # Not what is empty is left out, but what is the default: `needs: []` starts a step at once.
            if getattr(step, name) != Step.model_fields[name].get_default(call_default_factory=True):
                self.not_yet(f"{path}.{_field(name)}", f"the modifier `{_field(name)}`")
        if step.activity:
            self.check_call(f"{path}.activity", step.activity)
        templates = {
            name: self.template(f"{path}.{where}", value)
            for name, where, value in _values_of(step)
            if value is not None
        }
        return CompiledStep(step, templates)

    def check_call(self, path: str, call: ActivityCall) -> None:
        if call.name not in self.activities:
            known = ", ".join(sorted(self.activities)) or "none"
            self.found(f"{path}.name", f"there is no activity `{call.name}` in `spec.activities`; there are: {known}")
        self.check_retry(f"{path}.retryPolicy", call.retry_policy)

    def template(self, path: str, value: Any) -> Template:
        try:
            template = compile_template(value, path=path, names=ROOTS)
        except ExpressionError as error:
            self.found(error.path or path, error.message)
            return compile_template(None)
        self.templates.append((path, template, self.ended.copy()))
        return template

    def check_references(self, names: list[str]) -> None:
        """Each `steps.<name>` must be a step of this workflow, and an earlier one."""
        for path, template, ended in self.templates:
            for name in sorted(template.references().steps - set(ended)):
                source = next((source for source in template.sources if name in source), "")
                if name in names:
                    message = f"step `{name}`, which `{source}` refers to, has not run by then; move it before this one"
                else:
                    message = f"there is no step `{name}`, which `{source}` refers to; there are: {', '.join(names)}"
                self.found(path, message)

    def kept(self, names: list[str], output: Template | None) -> frozenset[str]:
        asked: set[str] = set()
        for _, template, _ in self.templates:
            references = template.references()
            asked |= set(names) if references.every_step else references.steps
        if output is None and names:
            asked.add(names[-1])
        return frozenset(asked)


def _values_of(step: Step) -> Iterator[tuple[str, str, Any]]:
    """The parts of a step that may hold expressions: key, where it stands, value."""
    if step.activity:
        yield "input", "activity.input", step.activity.input
    if step.sleep:
        yield "duration", "sleep.duration", _literal(step.sleep.duration)
        yield "until", "sleep.until", _literal(step.sleep.until)
    if step.set_:
        yield "set", "set", step.set_
    if step.return_:
        yield "output", "return.output", step.return_.output
    if step.fail:
        yield "message", "fail.message", step.fail.message
        yield "details", "fail.details", step.fail.details


def _literal(value: Any) -> Any:
    """A duration or time that is no expression is not a template: it is used as it is."""
    return value if isinstance(value, str) else None


def _field(name: str) -> str:
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(map(str.capitalize, rest))
