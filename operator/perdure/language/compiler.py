"""Compiles a definition to a program, and collects all errors.

These errors make interpretation impossible. `perdure.language.checks` finds what can be interpreted, but would fail or surprise.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.steps import ActivityCall, BlockCall, Step
from perdure.api.kinds.steps import Parallel as ParallelSpec
from perdure.api.kinds.steps import Switch as SwitchSpec
from perdure.api.kinds.workflow import Activity, Block, InputSpec, WorkflowSpec
from perdure.api.policies import FailurePolicy
from perdure.api.rules import json_name
from perdure.engine.state import PODS_QUEUE
from perdure.language.coercion import OF_ACTIVITY
from perdure.language.expressions import ExpressionError, Template, compile_condition, compile_template
from perdure.language.program import (
    Action,
    CallBlock,
    Case,
    Catch,
    CompiledHandler,
    CompiledLimit,
    CompiledService,
    CompiledStep,
    ContinueAsNew,
    Fail,
    Finding,
    Flow,
    InvalidWorkflowError,
    Loop,
    Parallel,
    Program,
    Return,
    RunActivity,
    RunChild,
    SetVariables,
    SignalRun,
    Sleep,
    Switch,
    Timeout,
    WaitForSignal,
    WaitUntil,
    outputs_read,
)
from perdure.language.schemas import InputCheck, InputSchemaError, input_check
from perdure.language.services import compiled_service, service_activity, services_read

ROOTS = frozenset({"input", "steps", "vars", "signals", "run", "schedule", "now"})
"""The names that any expression may read."""
SERVICES = "services"
"""The name of the addresses of services, if the definition has any."""
LIMIT_ROOTS = frozenset({"input", "schedule"})
"""The names that the key of a limit may read."""
_UNKNOWN_NAME = re.compile("unknown name `([^`]*)`")
NO_STEPS: Final = Finding("spec.steps", "must have at least one step")
"""The error of a definition without steps. A library (`perdure.language.reuse`) needs none."""
HANDLERS = {"on_cancel": "onCancel", "on_failure": "onFailure", "finally_": "finally"}


def compile_program(spec: WorkflowSpec) -> Program:
    """Check and compile a definition.

    Raises:
        InvalidWorkflowError: The definition cannot run.
    """
    program, findings = compile_partially(spec)
    if findings:
        raise InvalidWorkflowError(findings)
    return program


def compile_partially(spec: WorkflowSpec) -> tuple[Program, list[Finding]]:
    """Compile as much of a definition as possible, and return all errors that prevent runs.

    If there are errors, the program is only for further checks: it lacks the invalid parts.
    """
    compiler = _WorkflowCompiler(spec)
    return compiler.compile(), compiler.findings


class _WorkflowCompiler:
    def __init__(self, spec: WorkflowSpec) -> None:
        self.spec = spec
        self.findings: list[Finding] = []
        self.policies: set[str] = set()
        self.activities = {activity.name: activity for activity in spec.activities}
        self.workspaces = {workspace.name for workspace in spec.workspaces}
        self.blocks = {block.name: block for block in spec.blocks}
        self.served: dict[str, Activity] = {}
        """The activities that are the services of steps."""
        self.roots = ROOTS | ({SERVICES} if spec.services or any(block.services for block in spec.blocks) else set())

    def compile(self) -> Program:
        if not self.spec.steps:
            self.findings.append(NO_STEPS)
        for i, activity in enumerate(self.spec.activities):
            self.check_activity(f"spec.activities[{i}]", activity)
        checked = self.input("spec.input", self.spec.input)
        flows = {"": _FlowCompiler(self, "spec", self.roots).compile(self.spec)}
        for i, block in enumerate(self.spec.blocks):
            path = f"spec.blocks[{i}]"
            params = self.input(f"{path}.params", block.params)
            if not block.steps and block.from_ is None:
                self.report(f"{path}.steps", "must have at least one step")
            flows[block.name] = _FlowCompiler(self, path, self.roots | {"params"}, params).compile(block)
        handlers = {}
        for field, name in HANDLERS.items():
            handler = getattr(self.spec, field)
            if handler:
                self.check_block(f"spec.{name}", handler.block)
                names = ROOTS | ({"error"} if name == "onFailure" else set())
                template = self.template(f"spec.{name}.input", handler.input, names)
                self.check_steps(f"spec.{name}.input", template, [s.name for s in self.spec.steps], None)
                handlers[name] = CompiledHandler(handler, template)
        self.check_continue_as_new()
        self.keep_for_handlers(flows, handlers)
        activities = {**self.activities, **self.served}
        program = Program(self.spec, flows, activities, handlers, checked, frozenset(self.policies))
        return replace(program, outputs_read=outputs_read(program.templates()), limits=self.limits())

    def limits(self) -> tuple[CompiledLimit, ...]:
        """Compile the limits. A run acquires limits before it starts, so their expressions can only read its input."""
        compiled = [
            CompiledLimit(use, self.template(f"spec.limits[{i}].key", use.key, LIMIT_ROOTS))
            for i, use in enumerate(self.spec.limits)
        ]
        return tuple(sorted(compiled, key=lambda each: each.use.name))

    def keep_for_handlers(self, flows: dict[str, Flow], handlers: Mapping[str, CompiledHandler]) -> None:
        main = flows[""]
        kept = set(main.kept)
        for handler in handlers.values():
            references = handler.input.references
            kept |= set(main.by_name) if references.every_step else references.steps & set(main.by_name)
        flows[""] = replace(main, kept=frozenset(kept))

    def check_continue_as_new(self) -> None:
        """Report `continueAsNew` in blocks that run while the run closes."""
        entries = [(f"spec.{name}", getattr(self.spec, field)) for field, name in HANDLERS.items()]
        lists = [("spec", self.spec.steps), *((f"spec.blocks[{i}]", b.steps) for i, b in enumerate(self.spec.blocks))]
        for path, steps in lists:
            for i, step in enumerate(steps):
                if step.compensate and step.compensate.call:
                    entries.append((f"{path}.steps[{i}].compensate", step.compensate.call))
                if step.on_end:
                    entries.append((f"{path}.steps[{i}].onEnd", step.on_end))
        for path, entry in entries:
            found = self.find_continue_as_new(entry.block) if entry else None
            if found:
                block, step_name = found
                self.report(
                    path,
                    f"runs step `{step_name}` of block `{block}`, which is `continueAsNew`: the run is already closing "
                    "then; remove the call",
                )

    def find_continue_as_new(self, start: str) -> tuple[str, str] | None:
        """Return the first `continueAsNew` reachable from a block: its block and step."""
        visited, waiting = {start}, [start]
        while waiting:
            name = waiting.pop()
            for step in self.blocks[name].steps if name in self.blocks else ():
                if step.continue_as_new:
                    return name, step.name
                following = {call.block for _, call in calls_of(step)} - visited
                visited |= following
                waiting += sorted(following)
        return None

    # Requirements of flows

    def report(self, path: str, message: str) -> None:
        self.findings.append(Finding(path, message))

    def input(self, path: str, declared: InputSpec | None) -> InputCheck:
        if declared is None:
            return InputCheck()
        try:
            return input_check(declared.schema_, declared.default)
        except InputSchemaError as error:
            self.report(f"{path}.schema", f"is not a valid JSON Schema: {error}")
            return InputCheck(declared.default)

    def template(self, path: str, value: Any, names: Iterable[str], *, condition: bool = False) -> Template:
        compile_one = compile_condition if condition else compile_template
        try:
            return compile_one(value, path=path, names=frozenset(names))
        except ExpressionError as error:
            self.report(error.path or path, error.message + self.defining_loop(error.message))
            return compile_template(None)

    def check_steps(self, path: str, template: Template, names: list[str], ended: set[str] | None) -> None:
        """Check that each `steps.<name>` is an ended step of the same list; None: any step may have ended."""
        for name in sorted(template.references.steps):
            if (ended is None and name in names) or (ended is not None and name in ended):
                continue
            source = next((source for source in template.sources if name in source), "")
            if name in names:
                message = (
                    f"step `{name}`, which `{source}` refers to, may not have ended by then; add it to `needs`, or "
                    "move it before this one"
                )
            else:
                message = f"`{source}` refers to step `{name}`, which is not in this list of steps: {', '.join(names)}"
                message += self.other_list(name)
            self.report(path, message)

    def other_list(self, name: str) -> str:
        """Describe the other list that contains a step; expressions can only read steps of their own list."""
        lists = [("the main steps", self.spec.steps), *((f"block `{b.name}`", b.steps) for b in self.spec.blocks)]
        where = next((where for where, steps in lists if any(step.name == name for step in steps)), None)
        if where is None:
            return ""
        return f" (it is in {where}: pass what you need in the `input` or the `output` of a block)"

    def defining_loop(self, message: str) -> str:
        """Describe the loop that defines an unknown name; only expressions in the loop can read the name."""
        unknown = _UNKNOWN_NAME.match(message)
        steps = [*self.spec.steps, *(step for block in self.spec.blocks for step in block.steps)]
        loops = [step for step in steps if step.for_each and unknown and unknown[1] in {step.for_each.as_, "index"}]
        return f" (`{unknown[1]}` is defined only in step `{loops[0].name}`)" if loops and unknown else ""

    def check_activity(self, path: str, activity: Activity) -> None:
        if activity.worker is not None and activity.worker.task_queue.startswith(PODS_QUEUE):
            self.report(f"{path}.worker.taskQueue", f"must not begin with `{PODS_QUEUE}`: use `container` to run a pod")
        for i, mount in enumerate(activity.workspaces):
            if mount.name not in self.workspaces:
                known = ", ".join(sorted(self.workspaces)) or "none"
                self.report(
                    f"{path}.workspaces[{i}].name",
                    f"workspace `{mount.name}` is not defined in `workspaces`; defined: {known}",
                )
        self.add_policy(activity.retry_policy)

    def add_policy(self, choice: RetryPolicyChoice | None) -> None:
        if choice is not None and choice.name is not None:
            self.policies.add(choice.name)

    def check_call(self, path: str, call: ActivityCall) -> None:
        if call.name not in self.activities:
            known = ", ".join(sorted(self.activities)) or "none"
            self.report(f"{path}.name", f"activity `{call.name}` is not defined in `activities`; defined: {known}")
        self.add_policy(call.retry_policy)

    def check_block(self, path: str, name: str) -> None:
        if name not in self.blocks:
            known = ", ".join(sorted(self.blocks)) or "none"
            self.report(f"{path}.block", f"block `{name}` is not defined in `blocks`; defined: {known}")


class _FlowCompiler:
    """Compiles one list of steps."""

    def __init__(
        self, compiler: _WorkflowCompiler, path: str, names: frozenset[str], params: InputCheck | None = None
    ) -> None:
        self.compiler = compiler
        self.path = path
        self.names = names
        self.params = params or InputCheck()
        self.kept: set[str] = set()
        self.spec: WorkflowSpec | Block = compiler.spec

    def compile(self, spec: WorkflowSpec | Block) -> Flow:
        self.spec = spec
        steps, output = spec.steps, spec.output
        policy = spec.failure_policy or self.compiler.spec.failure_policy or FailurePolicy.CANCEL_RUNNING
        names = [step.name for step in steps]
        needs = self.needs(steps)
        before = ancestors(needs)
        compiled = tuple(
            self.step(f"{self.path}.steps[{i}]", step, needs[step.name], names, before[step.name], policy)
            for i, step in enumerate(steps)
        )
        result = None
        if output is not None:
            result = self.compiler.template(f"{self.path}.output", output, self.names)
            self.check_references(f"{self.path}.output", result, names, set(names))
        elif names:
            self.kept.add(names[-1])
        dependants: dict[str, list[str]] = {name: [] for name in names}
        for name in names:
            for need in needs[name]:
                dependants[need].append(name)
        return Flow(
            compiled,
            {step.step.name: step for step in compiled},
            {name: tuple(found) for name, found in dependants.items()},
            result,
            frozenset(self.kept & set(names)),
            self.params,
            spec.max_concurrency,
            policy,
            self.steps_timeout(spec.steps_timeout),
            self.services(spec),
        )

    def services(self, spec: WorkflowSpec | Block) -> tuple[CompiledService, ...]:
        """Compile the services of the list, and note the activities that are their pods."""
        block = spec.name if isinstance(spec, Block) else ""
        compiled = tuple(compiled_service(block, each) for each in spec.services)
        for each, service in zip(compiled, spec.services, strict=True):
            self.compiler.served[each.activity] = service_activity(each.activity, service)
        return compiled

    def known_services(self) -> set[str]:
        """The services that expressions of the list can read: its own, and those of the run."""
        return {service.name for service in (*self.compiler.spec.services, *self.spec.services)}

    def steps_timeout(self, timeout: timedelta | str | None) -> Timeout:
        """Compile the `stepsTimeout`. It begins before any step, so its expression cannot read steps."""
        if not isinstance(timeout, str):
            return timeout
        names = self.names - {"steps", "signals", SERVICES}
        return self.compiler.template(f"{self.path}.stepsTimeout", timeout, names)

    def needs(self, steps: list[Step]) -> dict[str, tuple[str, ...]]:
        """Return the needs of each step; report and omit invalid ones."""
        names = [step.name for step in steps]
        needs: dict[str, tuple[str, ...]] = {}
        for i, step in enumerate(steps):
            if step.needs is None:
                needs[step.name] = (names[i - 1],) if i else ()
                continue
            for need in step.needs:
                if need not in names:
                    message = f"step `{need}` is not in this list of steps: {', '.join(names)}"
                    self.compiler.report(f"{self.path}.steps[{i}].needs", message)
            needs[step.name] = tuple(need for need in step.needs if need in names)
        cycle = _cycle(needs)
        if cycle:
            index = names.index(cycle[0])
            chain = " needs ".join(f"`{name}`" for name in (*cycle, cycle[0]))
            self.compiler.report(
                f"{self.path}.steps[{index}].needs",
                f"these steps wait for each other, so none of them ever starts: {chain}; remove one of the `needs` "
                "(a step without `needs` waits for the step before it)",
            )
            return dict.fromkeys(needs, ())
        return needs

    def step(
        self,
        path: str,
        step: Step,
        needs: tuple[str, ...],
        names: list[str],
        before: set[str],
        policy: FailurePolicy,
    ) -> CompiledStep:
        if step.activity:
            self.compiler.check_call(f"{path}.activity", step.activity)
        if step.child_workflow:
            child = step.child_workflow
            self.compiler.add_policy(child.retry_policy)
        if step.on_end and step.continue_as_new:
            self.compiler.report(f"{path}.onEnd", "must not be used with `continueAsNew`: the run closes with the step")
        if step.compensate and step.compensate.activity:
            self.compiler.check_call(f"{path}.compensate.activity", step.compensate.activity)
        for where, call in calls_of(step):
            self.compiler.check_block(f"{path}.{where}", call.block)
        loop = {step.for_each.as_, "index"} if step.for_each else set()
        templates: dict[str, Template] = {}
        for key, where, value, extra in values_of(step):
            if value is None:
                continue
            known = self.names | extra | (set() if key in {"when", "items"} else loop)
            condition = key in {"when", "condition"} or key.startswith("case")
            template = self.compiler.template(f"{path}.{where}", value, known, condition=condition)
            self.check_references(
                f"{path}.{where}", template, names, before | ({step.name} if key.startswith("compensate") else set())
            )
            templates[key] = template
        return CompiledStep(
            step,
            needs,
            templates,
            _action_of(step, templates, policy),
            templates.get("when"),
            _loop_of(step, templates, policy),
            _catches_of(step, templates),
            _compensation_of(step, templates),
            _timeout_of(templates, "timeout", step.timeout),
            _hook_of(step.on_start, templates.get("onStart")),
            _hook_of(step.on_end, templates.get("onEnd")),
        )

    def check_references(self, path: str, template: Template, names: list[str], ended: set[str]) -> None:
        self.compiler.check_steps(path, template, names, ended)
        known = self.known_services()
        for name in sorted(services_read(template) - known):
            listed = ", ".join(sorted(known)) or "none"
            self.compiler.report(
                path, f"service `{name}` is not in `services` of this list of steps or of the run: {listed}"
            )
        references = template.references
        self.kept |= set(names) if references.every_step else references.steps


# The action and the modifiers of a step


_Templates = Mapping[str, Template]
"""The templates of a step by key (`values_of`), without keys that have no value."""


def _action_of(step: Step, templates: _Templates, policy: FailurePolicy) -> Action:
    """Compile the action of a step.

    Args:
        step: The step, in which exactly one kind is set.
        templates: The templates of the step.
        policy: The failure policy of the list of steps.
    """
    get = templates.get
    if step.activity is not None:
        return _activity(step.activity, get("input"), templates, "")
    if step.sleep is not None:
        duration, until = step.sleep.duration, step.sleep.until
        return Sleep(
            duration=templates["duration"] if isinstance(duration, str) else duration,
            until=templates["until"] if isinstance(until, str) else until,
        )
    if step.wait_for_signal is not None:
        wait = step.wait_for_signal
        limit = _timeout_of(templates, "waitTimeout", wait.timeout)
        return WaitForSignal(wait.name, limit, wait.approval, get("waitMessage"))
    if step.wait_until is not None:
        timeout = _timeout_of(templates, "waitTimeout", step.wait_until.timeout)
        return WaitUntil(templates["condition"], timeout)
    if step.child_workflow is not None:
        child = step.child_workflow
        return RunChild(
            child,
            get("input"),
            get("workflowId"),
            get("searchAttributes"),
            _timeout_of(templates, "executionTimeout", child.execution_timeout),
            _timeout_of(templates, "runTimeout", child.run_timeout),
        )
    if step.call is not None:
        return CallBlock(step.call.block, get("input"))
    if step.switch is not None:
        return _switch(step.switch, templates)
    if step.parallel is not None:
        return _parallel(step.parallel, templates, policy)
    if step.set_ is not None:
        return SetVariables(templates["set"])
    if step.signal is not None:
        return SignalRun(get("workflowId"), get("name"), get("input"))
    if step.continue_as_new is not None:
        return ContinueAsNew(get("input"))
    if step.fail is not None:
        return Fail(step.fail.type, step.fail.non_retryable, get("message"), get("details"))
    return Return(get("output"))


def _loop_of(step: Step, templates: _Templates, policy: FailurePolicy) -> Loop | None:
    """Compile the `forEach` of a step."""
    each = step.for_each
    if each is None:
        return None
    return Loop(templates.get("items"), each.as_, each.max_concurrency, each.failure_policy or policy)


def _catches_of(step: Step, templates: _Templates) -> tuple[Catch, ...]:
    """Compile the `catch` of a step."""
    return tuple(
        Catch(tuple(clause.error_types), clause.as_, CallBlock(clause.call.block, templates.get(f"catch/{i}")))
        for i, clause in enumerate(step.catch)
    )


def _compensation_of(step: Step, templates: _Templates) -> RunActivity | CallBlock | None:
    """Compile the `compensate` of a step."""
    compensation, value = step.compensate, templates.get("compensate")
    if compensation is None:
        return None
    if compensation.activity is not None:
        return _activity(compensation.activity, value, templates, "compensate/")
    return CallBlock(compensation.call.block, value) if compensation.call is not None else None


def _hook_of(call: BlockCall | None, value: Template | None) -> CallBlock | None:
    """Compile the `onStart` or `onEnd` of a step."""
    return None if call is None else CallBlock(call.block, value)


def _timeout_of(templates: _Templates, key: str, timeout: timedelta | str | None) -> Timeout:
    """Return a constant timeout, or the template of its expression."""
    return templates[key] if isinstance(timeout, str) else timeout


def _activity(call: ActivityCall, value: Template | None, templates: _Templates, prefix: str) -> RunActivity:
    keys = {name: f"{prefix}{json_name(name)}" for name in OF_ACTIVITY}
    return RunActivity(call, value, {name: templates[key] for name, key in keys.items() if key in templates})


def _switch(switch: SwitchSpec, templates: _Templates) -> Switch:
    cases = tuple(
        Case(templates[f"case/{i}"], CallBlock(case.call.block, templates.get(f"input/{i}")))
        for i, case in enumerate(switch.cases)
    )
    default = CallBlock(switch.default.call.block, templates.get("input/default")) if switch.default else None
    return Switch(cases, default)


def _parallel(parallel: ParallelSpec, templates: _Templates, policy: FailurePolicy) -> Parallel:
    branches = {b.name: CallBlock(b.block, templates.get(f"branch/{b.name}")) for b in parallel.branches}
    required = {"All": len(branches), "Any": 1}.get(parallel.wait)
    number = int(parallel.wait) if required is None else required
    return Parallel(branches, number, parallel.failure_policy or policy)


# The parts of a definition


def calls_of(step: Step) -> Iterator[tuple[str, Any]]:
    """The blocks that a step calls, and the paths of the calls."""
    calls = (("onStart", step.on_start), ("call", step.call), ("onEnd", step.on_end))
    yield from ((where, call) for where, call in calls if call)
    if step.parallel:
        for i, branch in enumerate(step.parallel.branches):
            yield f"parallel.branches[{i}]", branch
    if step.switch:
        for i, case in enumerate(step.switch.cases):
            yield f"switch.cases[{i}].call", case.call
        if step.switch.default:
            yield "switch.default.call", step.switch.default.call
    for i, clause in enumerate(step.catch):
        yield f"catch[{i}].call", clause.call
    if step.compensate and step.compensate.call:
        yield "compensate.call", step.compensate.call


_VALUES = (
    ("when", "when"),
    ("items", "for_each.items"),
    ("input", "activity.input"),
    ("duration", "sleep.duration"),
    ("until", "sleep.until"),
    ("condition", "wait_until.condition"),
    ("input", "child_workflow.input"),
    ("workflowId", "child_workflow.workflow_id"),
    ("searchAttributes", "child_workflow.search_attributes"),
    ("input", "call.input"),
    ("input/default", "switch.default.call.input"),
    ("set", "set_"),
    ("workflowId", "signal.workflow_id"),
    ("name", "signal.name"),
    ("input", "signal.input"),
    ("input", "continue_as_new.input"),
    ("output", "return_.output"),
    ("message", "fail.message"),
    ("details", "fail.details"),
    ("compensate", "compensate.activity.input"),
    ("compensate", "compensate.call.input"),
    ("timeout", "timeout"),
    ("onStart", "on_start.input"),
    ("waitTimeout", "wait_for_signal.timeout"),
    ("waitMessage", "wait_for_signal.message"),
    ("waitTimeout", "wait_until.timeout"),
    ("executionTimeout", "child_workflow.execution_timeout"),
    ("runTimeout", "child_workflow.run_timeout"),
    *((json_name(name), f"activity.{name}") for name in OF_ACTIVITY),
    *((f"compensate/{json_name(name)}", f"compensate.activity.{name}") for name in OF_ACTIVITY),
)
"""The parts of a step that may contain expressions, except lists: key and path."""


def values_of(step: Step) -> Iterator[tuple[str, str, Any, set[str]]]:
    """Yield the parts of a step that may contain expressions: key, path, value, and extra names for the expressions."""
    for key, fields in _VALUES:
        value: Any = step
        for field in fields.split("."):
            value = getattr(value, field, None)
        if value is None or isinstance(value, datetime | timedelta):
            continue  # a constant duration or time is used unchanged
        yield key, ".".join(map(json_name, fields.split("."))), value, set()
    for i, branch in enumerate(step.parallel.branches if step.parallel else ()):
        yield f"branch/{branch.name}", f"parallel.branches[{i}].input", branch.input, set()
    for i, case in enumerate(step.switch.cases if step.switch else ()):
        yield f"case/{i}", f"switch.cases[{i}].when", case.when, set()
        yield f"input/{i}", f"switch.cases[{i}].call.input", case.call.input, set()
    for i, clause in enumerate(step.catch):
        yield f"catch/{i}", f"catch[{i}].call.input", clause.call.input, {clause.as_}
    for i, limit in enumerate(step.limits):
        yield f"limits/{i}", f"limits[{i}].key", limit.key, set()
    if step.on_end:
        yield "onEnd", "onEnd.input", step.on_end.input, {"step"}


def ancestors(needs: Mapping[str, tuple[str, ...]]) -> dict[str, set[str]]:
    """Return the steps that must have ended when each step begins."""
    found: dict[str, set[str]] = {}

    def visit(name: str) -> set[str]:
        if name not in found:
            found[name] = set()
            found[name] = set(needs[name]).union(*(visit(need) for need in needs[name]))
        return found[name]

    for name in needs:
        visit(name)
    return found


def _cycle(needs: Mapping[str, tuple[str, ...]]) -> list[str] | None:
    """Find steps that wait for each other in a cycle."""
    done: set[str] = set()
    for start in needs:
        trail: list[str] = []
        stack: list[tuple[str, Iterator[str]]] = [(start, iter(needs[start]))] if start not in done else []
        trail += [start] if stack else []
        while stack:
            name, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                done.add(name)
                stack.pop()
                trail.pop()
            elif following in trail:
                return trail[trail.index(following) :]
            elif following not in done:
                stack.append((following, iter(needs[following])))
                trail.append(following)
    return None
