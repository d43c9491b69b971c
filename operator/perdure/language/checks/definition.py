"""All checks of one definition, and of the references between the manifests of several files.

Such references are children, RetryPolicies, WorkflowLimits, signals, and the inputs of runs.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import pydantic

from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.workflow import Activity, Block, WorkflowSpec
from perdure.api.kinds.workflowlimit import OverflowPolicy
from perdure.api.models import mistakes_by_path
from perdure.api.names import MAX_WORKFLOW_ID
from perdure.api.rules import json_name
from perdure.api.search_attributes import text_of
from perdure.language.cel import CHECKED_WORK, CompileError, Meter
from perdure.language.checks import activities, texts
from perdure.language.checks import flow as flows
from perdure.language.checks.activities import key_templates, of_artifacts, of_cache, of_pod
from perdure.language.checks.flow import ring_of
from perdure.language.checks.run_options import search_attributes
from perdure.language.checks.shapes import (
    ANY,
    ERROR,
    LARGE,
    NUMBER,
    RUN,
    SCHEDULE,
    TEXT,
    TIMESTAMP,
    Path,
    Shape,
    artifacts_shape,
    format_path,
    input_shape,
    kind_of_expression,
    look_up,
    object_shape,
    reads_of,
    step_shape,
)
from perdure.language.checks.templates import CONDITION, Scope, guards_of, of_template, reads_schedule
from perdure.language.coercion import OF_ACTIVITY, as_duration, as_text, as_time, format_value
from perdure.language.compiler import HANDLERS, calls_of, compile_partially
from perdure.language.defaults import NO_DEFAULTS, NamespaceDefaults, completed, is_of_defaults, with_handlers
from perdure.language.expressions import ExpressionError, Template, compile_template
from perdure.language.program import CompiledStep, Finding, Flow, Program, Severity
from perdure.language.reuse import Libraries, MissingLibrary, compose_all
from perdure.language.schemas import Kind, Place, default_mismatches, mismatches
from perdure.language.services import service_activity
from perdure.language.signals import SignalNames, Signals, signals_of


def limits_of(spec: WorkflowSpec) -> Iterator[tuple[str, str]]:
    """The WorkflowLimits that runs of a definition and their activities take: the path, and the name."""
    for i, taken in enumerate(spec.limits):
        yield f"spec.limits[{i}].name", taken.name
    for i, activity in enumerate(spec.activities):
        for k, use in enumerate(activity.limits):
            yield f"spec.activities[{i}].limits[{k}].name", use.name
    yield from _of_steps(spec)


def _of_steps(spec: WorkflowSpec) -> Iterator[tuple[str, str]]:
    lists = [("spec.steps", spec.steps), *((f"spec.blocks[{i}].steps", b.steps) for i, b in enumerate(spec.blocks))]
    for path, steps in lists:
        for i, step in enumerate(steps):
            for k, limit in enumerate(step.limits):
                yield f"{path}[{i}].limits[{k}].name", limit.name


def self_blocking_limits(spec: WorkflowSpec) -> Iterator[Finding]:
    """Warn about limits that a run holds while its activities or steps wait for them."""
    held = {taken.name for taken in spec.limits}
    for path, name in _of_steps(spec):
        if name in held:
            message = (
                f"the run holds WorkflowLimit `{name}` already (`limits`), so its step can wait for it forever; "
                "take the limit in one place only, or use two"
            )
            yield Finding(path, message, Severity.WARNING, local=True)
    for i, activity in enumerate(spec.activities):
        for k, use in enumerate(activity.limits):
            if use.name in held:
                message = (
                    f"the run holds WorkflowLimit `{use.name}` already (`limits`), so its activity can wait for it forever; "
                    "take the limit in one place only, or use two"
                )
                yield Finding(f"spec.activities[{i}].limits[{k}].name", message, Severity.WARNING, local=True)


_EVERYWHERE: Final[Scope] = {"run": RUN, "schedule": SCHEDULE, "now": TIMESTAMP, "vars": ANY, "signals": ANY}
_IN_CONTAINERS: Final[Scope] = {
    "input": ANY,
    "run": object_shape(dict.fromkeys(("name", "namespace", "workflowId", "runId"), TEXT)),
    "attempt": NUMBER,
}
_AFTER_WORK: Final[Scope] = {
    **_IN_CONTAINERS,
    activities.RESPONSE: object_shape({"status": NUMBER, "headers": ANY, "body": ANY}),
    activities.OBJECT: ANY,
}
_TIMEOUTS: Final = {
    "executionTimeout": "childWorkflow.executionTimeout",
    "runTimeout": "childWorkflow.runTimeout",
    **{json_name(name): f"activity.{json_name(name)}" for name in OF_ACTIVITY},
    **{f"compensate/{json_name(name)}": f"compensate.activity.{json_name(name)}" for name in OF_ACTIVITY},
}
"""The timeouts that must be longer than `0s`, and their paths in a step."""
_DURATION: Final = ({"string", "duration"}, "a duration, such as `duration('30d')`")
_EXPECTED: Final = {
    "items": ({"list", "map"}, "a list or a map"),
    **dict.fromkeys(("duration", "timeout", "waitTimeout", *_TIMEOUTS), _DURATION),
    "until": ({"string", "timestamp"}, "a time, such as `now + duration('2h')`"),
}
"""The kinds of values that a part of a step accepts, and how to recognize them."""
_FIELDS: Final = {
    "items": "forEach.items",
    "duration": "sleep.duration",
    "until": "sleep.until",
    **_TIMEOUTS,
}
_ENDED: Final = object_shape({"status": TEXT, "output": ANY, "artifacts": ANY, "failure": ANY})
_APPROVAL: Final = object_shape({"approved": {"type": "boolean"}, "comment": ANY, "by": TEXT})
SERVICE: Final = object_shape({"host": TEXT, "ip": TEXT, "pod": TEXT})
"""The value of `services.<name>`."""
_OUTPUT_DEPTH: Final = 3
"""Parts of `steps.<name>.output`."""
_RESULTS: Final[Mapping[Path, str]] = {("output",): "null", ("artifacts",): "empty"}
"""The values of `steps.<name>` after the step was skipped."""
_ORDER: Final = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


_NO_LIBRARIES: Final[Libraries] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ChildCall:
    """A step that starts another Workflow."""

    path: str
    workflow: str
    input: Any
    kind: Kind
    always: bool
    """Whether every run starts the child unless the run fails first."""


@dataclass(frozen=True, slots=True)
class CheckedDefinition:
    """The result of the checks of a definition."""

    program: Program
    """The program; it can run only if no finding is an error."""
    findings: tuple[Finding, ...]
    """The findings: errors first, then in the order of the definition."""
    broken: tuple[Finding, ...] = ()
    """The errors that make interpreting the program impossible."""
    children: tuple[ChildCall, ...] = ()
    policies: tuple[tuple[str, str], ...] = ()
    """The RetryPolicies that are referenced by name: the path, and the name."""
    limits: tuple[tuple[str, str], ...] = ()
    """The WorkflowLimits that a run and its activities take: the path, and the name."""
    signals: Signals = field(default_factory=Signals)
    libraries: tuple[MissingLibrary, ...] = ()
    """The Workflows from which it copies parts and that are not known."""

    def moved(self, place: Callable[[str], str]) -> "CheckedDefinition":
        """Return a copy with other paths."""

        def named(found: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
            return tuple((place(path), name) for path, name in found)

        return replace(
            self,
            findings=tuple(replace(finding, path=place(finding.path)) for finding in self.findings),
            broken=tuple(replace(finding, path=place(finding.path)) for finding in self.broken),
            children=tuple(replace(child, path=place(child.path)) for child in self.children),
            policies=named(self.policies),
            limits=named(self.limits),
            signals=replace(self.signals, sent=named(self.signals.sent)),
            libraries=tuple(replace(each, path=place(each.path)) for each in self.libraries),
        )

    @property
    def errors(self) -> list[Finding]:
        """Return the findings that prevent runs."""
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]


def check(
    spec: WorkflowSpec,
    *,
    path: str = "spec",
    libraries: Libraries = _NO_LIBRARIES,
    namespace: str = "",
    defaults: NamespaceDefaults = NO_DEFAULTS,
) -> CheckedDefinition:
    """Check a definition.

    Args:
        spec: The definition.
        path: The path of the definition in the manifest, for the findings.
        libraries: The Workflows from which it can copy parts; others do not exist.
        namespace: The namespace of the definition; empty: unknown.
        defaults: The defaults that it takes.
    """
    if not any(spec.copied()) and not defaults.spec:
        return _check(spec).moved(partial(_moved, path))
    handled = with_handlers(spec.dump(), defaults.spec)
    composed = completed(compose_all(handled.definition, libraries, namespace), handled, defaults)
    try:
        checked = _check(WorkflowSpec.parse(composed.definition))
    except pydantic.ValidationError as error:
        checked = _check(spec)
        wrong = [Finding(f"spec.{where}", message) for where, message in mistakes_by_path(error)]
        checked = replace(checked, findings=(*wrong, *checked.findings), broken=(*wrong, *checked.broken))
    findings = [*composed.findings, *composed.located(checked.findings)]
    findings.sort(key=lambda finding: _ORDER[finding.severity])
    broken = (*composed.findings, *composed.located(checked.broken))
    located = replace(checked, findings=(), broken=()).moved(composed.place)
    return replace(located, findings=tuple(findings), broken=broken, libraries=composed.missing).moved(
        partial(_moved, path)
    )


def _check(spec: WorkflowSpec) -> CheckedDefinition:
    """Check a definition that copies nothing."""
    program, broken = compile_partially(spec)
    checks = _Checks(spec, program, broken)
    checks.run()
    reported = {finding.path for finding in broken}
    signals = signals_of(program)
    found = (*checks.findings, *signals.misread)
    findings = [*broken, *(finding for finding in found if finding.path not in reported)]
    findings.sort(key=lambda finding: _ORDER[finding.severity])
    return CheckedDefinition(
        program,
        tuple(findings),
        tuple(broken),
        tuple(checks.children),
        (*_policies(spec),),
        (*limits_of(spec),),
        signals,
    )


def _moved(path: str, where: str) -> str:
    """Move a path of a definition to `path` in its manifest; what comes from defaults stays there."""
    return where if is_of_defaults(where) else path + where.removeprefix("spec")


class _Checks:
    def __init__(self, spec: WorkflowSpec, program: Program, broken: Iterable[Finding]) -> None:
        self.spec = spec
        self.program = program
        self.findings: list[Finding] = []
        self.evaluated = {template.path for template in program.templates()} | {_part_of(each.path) for each in broken}
        """The paths of the values in which expressions are evaluated, and of the parts that did not compile."""
        self.children: list[ChildCall] = []
        lists = [spec.steps, *(block.steps for block in spec.blocks)]
        self.variables = {name for steps in lists for step in steps for name in step.set_ or ()}

    def report(self, path: str, message: str, severity: Severity = Severity.WARNING) -> None:
        self.findings.append(Finding(path, message, severity))

    def run(self) -> None:
        spec, program = self.spec, self.program
        self.findings += flows.of_definition(spec, program)
        self.findings += texts.of_argo(spec)
        self.findings += self_blocking_limits(spec)
        for i, activity in enumerate(spec.activities):
            self.activity(f"spec.activities[{i}]", activity)
        self.services("spec", spec)
        for i, each in enumerate(spec.blocks):
            self.services(f"spec.blocks[{i}]", each)
        input_ = input_shape(spec.input.schema_, spec.input.default) if spec.input else ANY
        self.default("spec.input", "")
        for limit in program.limits:
            path = f"spec.limits[{spec.limits.index(limit.use)}].key"
            self.template(path, limit.key, {"input": input_, "schedule": SCHEDULE}, guards_of([limit.key]))
        places = {"": "spec", **{block.name: f"spec.blocks[{i}]" for i, block in enumerate(spec.blocks)}}
        for name, path in places.items():
            scope: dict[str, Shape] = {**_EVERYWHERE, "input": input_}
            block = spec.block(name) if name else None
            if block is not None:
                scope["params"] = input_shape(block.params.schema_, block.params.default) if block.params else ANY
                self.default(f"{path}.params", name)
            flow = program.flows[name]
            known = {service.name: SERVICE for each in (program.main, flow) for service in each.services}
            if known:
                scope["services"] = object_shape(known)
            self.findings += flows.of_flow(path, flow)
            if isinstance(flow.steps_timeout, Template):
                guards = guards_of([flow.steps_timeout])
                self.template(f"{path}.stepsTimeout", flow.steps_timeout, scope, guards, _DURATION)
            self.flow(path, flow, scope)
        for attribute, name in HANDLERS.items():
            handler = getattr(spec, attribute)
            if handler is None:
                continue
            steps = self.steps_shape(program.main, may_be_missing=True)
            scope = {**_EVERYWHERE, "input": input_, "steps": steps}
            if name == "onFailure":
                scope["error"] = ERROR
            template = program.handlers[name].input
            self.template(f"spec.{name}.input", template, scope, guards_of([template]))
            self.block_input(f"spec.{name}", handler.block, handler.input, scope)
        self.findings += reads_schedule(program)
        reported = {finding.path for finding in self.findings}
        self.findings += (each for each in texts.of_definition(spec, self.evaluated) if each.path not in reported)

    def activity(self, path: str, activity: Activity) -> None:
        if activity.from_ is not None:
            return  # its library is not known
        self.findings += of_pod(path, activity)
        if activity.artifacts is not None:
            self.findings += of_artifacts(f"{path}.artifacts", activity.artifacts)
        self.findings += texts.in_containers(path, activity)
        templates, broken = texts.container_templates(path, activity)
        self.findings += broken
        for place, template in templates:
            self.template(place, template, _IN_CONTAINERS, guards_of([template]))
        keys, broken = key_templates(path, activity)
        self.findings += broken
        for place, template in keys:
            self.template(place, template, _IN_CONTAINERS, guards_of([template]))
        self.findings += activities.of_work(path, activity)
        self.findings += of_cache(path, activity)
        later, broken = activities.later_templates(path, activity)
        self.findings += broken
        for place, template, condition in later:
            self.template(place, template, _AFTER_WORK, guards_of([template]), CONDITION if condition else None)

    def services(self, path: str, spec: WorkflowSpec | Block) -> None:
        """Check the services of a list of steps."""
        for i, service in enumerate(spec.services):
            where, activity = f"{path}.services[{i}]", service_activity(service.name, service)
            before = len(self.findings)
            self.activity(where, activity)
            checked = self.findings[before:]
            of_service = [replace(each, path=each.path.replace(f"{where}.container", where, 1)) for each in checked]
            self.findings[before:] = [*of_service, *activities.of_service(where, service)]

    def default(self, path: str, block: str) -> None:
        check = self.program.flows[block].params if block else self.program.input
        for where, message in default_mismatches(check):
            self.report(f"{path}.default{where}", f"does not match `{path}.schema`: {message}", Severity.ERROR)
        self.evaluated.add(f"{path}.default")
        self.findings += texts.in_data(f"{path}.default", check.default, "it is data; write the expression in a step")

    # Steps

    def flow(self, path: str, flow: Flow, scope: dict[str, Shape]) -> None:
        scope = {**scope, "steps": self.steps_shape(flow)}
        for i, compiled in enumerate(flow.steps):
            self.step(f"{path}.steps[{i}]", compiled, flow, scope)
        if flow.output is not None:
            guards = guards_of([flow.output])
            self.template(f"{path}.output", flow.output, scope, guards)
            self.skipped([flow.output], flow, None, guards)

    def step(self, path: str, compiled: CompiledStep, flow: Flow, scope: Scope) -> None:
        step = compiled.step
        guards = guards_of(compiled.templates.values())
        looped = {**scope}
        if step.for_each:
            looped |= {step.for_each.as_: _item_shape(compiled.templates.get("items"), scope), "index": NUMBER}
        for key, template in compiled.templates.items():
            visible: Scope = scope if key in {"when", "items"} else looped
            if key.startswith("catch/"):
                visible = {**looped, step.catch[int(key[6:])].as_: ERROR}
            if key == "onEnd":
                visible = {**looped, "step": _ENDED}
            expected = CONDITION if key in {"when", "condition"} or key.startswith("case/") else _EXPECTED.get(key)
            before = len(self.findings)
            self.template(path, template, visible, guards, expected)
            if len(self.findings) == before:
                self.constant(f"{path}.{_field(key, compiled)}", key, template)
        self.skipped(compiled.templates.values(), flow, compiled, guards)
        for where, call in calls_of(step):
            self.block_input(f"{path}.{where}", call.block, call.input, looped)
        if step.child_workflow:
            attributes = _literals(step.child_workflow.search_attributes)
            self.findings += search_attributes(f"{path}.childWorkflow.searchAttributes", attributes)
        if step.child_workflow and step.child_workflow.workflow.name:
            self.children.append(
                ChildCall(
                    f"{path}.childWorkflow",
                    step.child_workflow.workflow.name,
                    step.child_workflow.input,
                    partial(_kind_of_text, looped),
                    flows.always_runs(compiled, flow) and flow is self.program.main,
                )
            )

    def steps_shape(self, flow: Flow, *, may_be_missing: bool = False) -> Shape:
        names = [compiled.step.name for compiled in flow.steps]
        shapes = {
            compiled.step.name: step_shape(
                _output_shape(compiled, self.program), artifacts_shape(compiled, self.program)
            )
            for compiled in flow.steps
        }
        return object_shape(shapes, optional=names if may_be_missing else ())

    def block_input(self, path: str, block: str, value: Any, scope: Scope) -> None:
        if block not in self.program.flows:
            return
        for where, message in mismatches(self.program.flows[block].params, value, partial(_kind_of_text, scope)):
            self.report(
                f"{path}.input{where}", f"does not match the params of block `{block}`: {message}", Severity.ERROR
            )

    # Expressions

    def template(
        self,
        path: str,
        template: Template,
        scope: Scope,
        guards: frozenset[Path],
        expected: tuple[set[str], str] | None = None,
    ) -> None:
        self.evaluated.add(template.path)
        self.findings += of_template(path, template, scope, guards, expected, self.variables)

    def constant(self, path: str, key: str, template: Template) -> None:
        """Check a constant part of a step."""
        if template.references.roots:
            return
        try:
            value = template.evaluate({}, Meter(CHECKED_WORK))
        except ExpressionError:
            return  # reported already, or too much work
        message = _mismatch(key, value)
        if message is not None:
            self.report(path, message, Severity.ERROR)

    def skipped(
        self,
        templates: Iterable[Template],
        flow: Flow,
        reader: CompiledStep | None,
        guards: frozenset[Path],
    ) -> None:
        """Report reads of outputs of steps that may have been skipped, unless the expression tests for that."""
        sources = [(where, reads_of(source)) for template in templates for where, source in template.places]
        when = _when_reads(reader)
        for where, reads in sources:
            for path in sorted(reads.paths, key=str):
                name = str(path[1]) if len(path) > 1 and path[0] == "steps" else ""
                other = flow.by_name.get(name)
                if other is None or other is reader or path[2:3] not in _RESULTS or not flows.may_be_skipped(other):
                    continue
                output = path[:_OUTPUT_DEPTH]
                guarded = (
                    (reader is not None and reader.step.when == other.step.when)
                    or any(each[:2] == path[:2] for each in when)
                    or any((*path[:2], "status") in each.paths for _, each in sources)
                    or any(guard[:2] == path[:2] for guard in guards)
                    or (output in reads.paths and reads.alone is None)
                )
                if not guarded:
                    self.report(
                        where,
                        f"step `{name}` may be skipped, and then `{format_path(output)}` is {_RESULTS[path[2:3]]}; check "
                        f"`{format_path(path[:2])}.status == 'Succeeded'` first, or give this step the same `when`",
                    )
                    break


def _part_of(path: str) -> str:
    """The step or the field of a definition that a path is in."""
    found = re.match(r".*\bsteps\[\d+\]|spec\.[^.\[]+(?:\[\d+\])?", path)
    return found[0] if found else path


def _literals(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known values; the values of expressions are unknown."""
    return {name: None if "${" in (text_of(value) or "") else value for name, value in attributes.items()}


def _field(key: str, compiled: CompiledStep) -> str:
    """The path of a part in its step."""
    if key == "workflowId":
        return "childWorkflow.workflowId" if compiled.step.child_workflow else "signal.workflowId"
    if key == "waitTimeout":
        return "waitForSignal.timeout" if compiled.step.wait_for_signal else "waitUntil.timeout"
    return _FIELDS.get(key, key)


def _mismatch(key: str, value: Any) -> str | None:
    """The problem with the value of a part of a step; None if it is valid."""
    if key == "items" and not isinstance(value, list | dict):
        return f"must be a list or a map, not {format_value(value)}"
    if key == "workflowId" and len(as_text(value)) > MAX_WORKFLOW_ID:
        return f"has {len(as_text(value)):,} characters; the limit is {MAX_WORKFLOW_ID:,}"
    try:
        if _EXPECTED.get(key) is _DURATION and as_duration(value) <= timedelta(0) and key in _TIMEOUTS:
            return "must be longer than `0s`"
        if key == "until":
            as_time(value)
    except ValueError as error:
        return str(error)
    return None


def _when_reads(compiled: CompiledStep | None) -> frozenset[Path]:
    template = compiled.templates.get("when") if compiled else None
    return reads_of(template.sources[0]).paths if template and template.sources else frozenset()


def _output_shape(compiled: CompiledStep, program: Program) -> Shape:
    """The shape of a step's output, if known."""
    step = compiled.step
    if step.catch or flows.may_be_skipped(compiled):
        return ANY
    if step.for_each:
        return {"type": "array"}
    if step.set_:
        return object_shape(dict.fromkeys(step.set_, ANY))
    if step.wait_for_signal and step.wait_for_signal.approval:
        return _APPROVAL
    if step.parallel:
        names = [branch.name for branch in step.parallel.branches]
        return object_shape(dict.fromkeys(names, ANY), optional=() if step.parallel.wait == "All" else names)
    activity = program.activities.get(compiled.activity) if compiled.activity is not None else None
    artifacts = activity.artifacts if activity is not None else None
    return LARGE if artifacts is not None and artifacts.large_results else ANY


def _item_shape(items: Template | None, scope: Scope) -> Shape:
    """The shape of the items of a loop, if known."""
    if items is None or not items.is_expression:
        return ANY
    alone = reads_of(items.sources[0]).alone
    return look_up(scope, (*alone, 0))[0] if alone else ANY


def _kind_of_text(scope: Scope, place: Place, text: str) -> str:  # noqa: ARG001 (the kind goes by the text alone)
    """Return the kind of value of a text with expressions."""
    try:
        template = compile_template(text)
        if not template.is_expression:
            return "string"
        return kind_of_expression(template.sources[0], reads_of(template.sources[0]), scope)
    except (ExpressionError, CompileError):
        return "dyn"


def _policies(spec: WorkflowSpec) -> Iterator[tuple[str, str]]:
    def named(path: str, choice: RetryPolicyChoice | None) -> Iterator[tuple[str, str]]:
        if choice is not None and choice.name is not None:
            yield f"{path}.retryPolicy.name", choice.name

    for i, activity in enumerate(spec.activities):
        yield from named(f"spec.activities[{i}]", activity.retry_policy)
    lists = [("spec", spec.steps), *((f"spec.blocks[{i}]", block.steps) for i, block in enumerate(spec.blocks))]
    for path, steps in lists:
        for i, step in enumerate(steps):
            where = f"{path}.steps[{i}]"
            if step.activity:
                yield from named(f"{where}.activity", step.activity.retry_policy)
            if step.child_workflow:
                yield from named(f"{where}.childWorkflow", step.child_workflow.retry_policy)
            if step.compensate and step.compensate.activity:
                yield from named(f"{where}.compensate.activity", step.compensate.activity.retry_policy)


@dataclass(frozen=True, slots=True)
class Documents:
    """The definitions and runs of the files, by name."""

    workflows: Mapping[str, CheckedDefinition] = field(default_factory=dict)
    policies: frozenset[str] = frozenset()
    limits: frozenset[str] = frozenset()
    signals: SignalNames = field(default_factory=SignalNames)
    runs: Mapping[str, str] = field(default_factory=dict)
    """The Workflows of runs."""
    closed: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The `allowedNamespaces` of the Workflows of other namespaces that runs of this namespace cannot use, by
    `<namespace>/<name>`."""


def check_references(checked: CheckedDefinition, documents: Documents, *, name: str = "") -> Iterator[Finding]:
    """Find the mistakes in a definition that depend on other manifests.

    Args:
        checked: The definition.
        documents: The manifests of the files.
        name: The name of the Workflow; empty for the definition of a single run.
    """
    for child in checked.children:
        other = documents.workflows.get(child.workflow.rpartition("/")[2])
        if other is None:
            known = sorted(documents.workflows.keys() - {name})
            yield _unknown(f"{child.path}.workflow.name", "Workflow", child.workflow, known)
            continue
        yield from _closed(child.workflow, documents, f"{child.path}.workflow.name")
        for where, message in mismatches(other.program.input, child.input, child.kind):
            problem = f"does not match the input schema of Workflow `{child.workflow}`: {message}"
            yield Finding(f"{child.path}.input{where}", problem)
        yield from _blocked_child(checked, child, other)
    yield from policies_of(checked.policies, documents)
    for path, limit in checked.limits:
        if limit not in documents.limits:
            yield _unknown(path, "WorkflowLimit", limit, sorted(documents.limits))
    for library in checked.libraries:
        home, _, plain = library.workflow.rpartition("/")
        if home and plain in documents.workflows:
            message = (
                f"`allowedNamespaces` of Workflow `{plain}` does not have this namespace, or it is not in `{home}`"
            )
            yield Finding(library.path, message, Severity.WARNING)
            continue
        yield _unknown(library.path, "Workflow", library.workflow, sorted(documents.workflows.keys() - {name}))
    for path, signal in checked.signals.sent:
        yield from documents.signals.unmatched(path, signal)
    yield from _endless_children(checked, documents, name)


def _closed(workflow: str, documents: Documents, path: str) -> Iterator[Finding]:
    """Warn about a Workflow of another namespace that does not allow runs of this one."""
    allowed = documents.closed.get(workflow)
    if allowed is not None:
        home, _, name = workflow.rpartition("/")
        known = f"has only {', '.join(f'`{each}`' for each in allowed)}" if allowed else "is not set"
        message = (
            f"`allowedNamespaces` of Workflow `{name}` in `{home}` {known}, so runs of this namespace cannot use it"
        )
        yield Finding(path, message, Severity.WARNING)


def _blocked_child(checked: CheckedDefinition, child: ChildCall, other: CheckedDefinition) -> Iterator[Finding]:
    """Warn about limits that a run holds while its child waits for them."""
    held = {each.name for each in checked.program.spec.limits}
    for each in other.program.spec.limits:
        if each.name in held and each.wait_timeout is None and each.overflow_policy is not OverflowPolicy.FAIL:
            message = (
                f"the run holds WorkflowLimit `{each.name}` already (`limits`), and Workflow `{child.workflow}` takes it, "
                "so the child can wait for it forever; take the limit in one place only, or use two"
            )
            yield Finding(f"{child.path}.workflow.name", message, Severity.WARNING)


def policies_of(named: tuple[tuple[str, str], ...], documents: Documents) -> Iterator[Finding]:
    """The references to RetryPolicies that are in none of the files."""
    for path, policy in named:
        if policy not in documents.policies:
            yield _unknown(path, "RetryPolicy", policy, sorted(documents.policies))


def run_input(
    workflow: str, value: Any, documents: Documents, path: str, *, knows_input: bool = True
) -> Iterator[Finding]:
    """Find the mistakes in a run that references a Workflow by name.

    Args:
        workflow: The name of the Workflow.
        value: The input of the run.
        documents: The manifests of the files.
        path: Path of the spec of the run.
        knows_input: Whether the input is known before the run starts.
    """
    other = documents.workflows.get(workflow.rpartition("/")[2])
    if other is None:
        yield _unknown(f"{path}.workflow.name", "Workflow", workflow, sorted(documents.workflows))
        return
    yield from _closed(workflow, documents, f"{path}.workflow.name")
    for where, message in other.program.input.check(other.program.input.complete(value)) if knows_input else ():
        yield Finding(f"{path}.input{where}", f"does not match the input schema of Workflow `{workflow}`: {message}")


def _unknown(path: str, kind: str, name: str, known: list[str]) -> Finding:
    """Report a name that is in none of the files: likely a mistake if the files have other objects of this kind."""
    if not known:
        message = f"{kind} `{name}` is in none of the files, so it is not checked; include its file"
        return Finding(path, message, Severity.NOTE)
    near = get_close_matches(name, known, 1)
    hint = f", did you mean `{near[0]}`" if near else ""
    message = f"there is no {kind} `{name}` in the files{hint}; they define: {', '.join(known)}"
    return Finding(path, message, Severity.WARNING)


def _endless_children(checked: CheckedDefinition, documents: Documents, name: str) -> Iterator[Finding]:
    """Find Workflows that always start each other as children in a cycle."""
    edges = {key: {c.workflow for c in each.children if c.always} for key, each in documents.workflows.items()}
    ring = ring_of(name, edges) if name in edges else []
    if ring and name == min(ring):
        child = next((child for child in checked.children if child.always and child.workflow in ring), None)
        if child is None:  # another manifest in the files has the same name
            return
        chain = " starts ".join(f"`{each}`" for each in (*ring, ring[0]))
        message = f"these Workflows start each other endlessly: {chain}; give one of the steps a `when`"
        yield Finding(child.path, message)
