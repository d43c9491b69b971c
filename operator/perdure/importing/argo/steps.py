"""Converts the `steps` and `dag` templates of Argo to lists of steps: their arguments, dependencies, and hooks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from perdure.api.policies import FailurePolicy
from perdure.importing.argo.artifacts import argument
from perdure.importing.argo.depends import (
    Continuation,
    Depends,
    TaskState,
    all_of,
    ancestors,
    either,
    observed,
    ordered,
    parse_depends,
)
from perdure.importing.argo.loops import ITEM, LOOPS, filtered, for_each
from perdure.importing.argo.retries import MAX_ATTEMPT, NOT_RETRIED
from perdure.importing.argo.scope import (
    ERRORS,
    OUTPUT_MISSING,
    CalledStep,
    Scope,
    Shape,
    artifact_field,
    is_tag,
    variable,
)
from perdure.importing.durations import NO_LIMIT, go_duration
from perdure.importing.expressions import (
    CAUGHT,
    TAG,
    Resolve,
    UntranslatableError,
    condition,
    expression,
    literal,
    member,
    tag,
    template,
)
from perdure.importing.reader import Fields, Object, as_text, circle, cycle_of
from perdure.importing.writer import Names, valid_name


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
    deadline_in_seconds: bool = False
    """Whether the limit is a number of seconds."""
    child: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of a call of a child."""
    deletion: str = ""
    """The activity that deletes the Pod that the call leaves."""
    wait: Mapping[str, Any] = field(default_factory=dict)
    """The fields of a step that waits."""


class Definition(Protocol):
    """The definition that steps belong to. Its templates become the targets of steps, and contain further steps."""

    @property
    def blocks(self) -> "Blocks":
        """Its blocks."""

    def target(self, home: str, step: Fields) -> CallTarget:
        """Return the target of a step."""

    def service(self, home: str, step: Fields, scope: Scope, name: str) -> Object | None:
        """Return the service of the list of steps for a step that starts a daemon; None if it is none."""

    def starts_daemon(self, home: str, step: Object) -> bool:
        """Whether a step starts a daemon."""

    def repeats(self, home: str, step: Object) -> bool:
        """Whether the template of a step has a `retryStrategy`."""

    def constant(self, value: Any) -> Any:
        """Return the value of a constant parameter."""


class Blocks:
    """The blocks of a definition."""

    def __init__(self) -> None:
        self.entries: list[Object] = []
        self.names = Names()

    def caught(self) -> str:
        """Return the block that converts a failure to an output."""
        return self._once("caught", [{"name": "go-on", "return": {"output": {CAUGHT: "${params}"}}}])

    def not_caught(self) -> str:
        """Return the block that fails with the type of a failure."""
        fails = {"type": OUTPUT_MISSING, "message": "the step has the status Error, which `continueOn` does not name"}
        return self._once("not-caught", [{"name": "fails", "fail": fails}])

    def errors_apart(self) -> list[Object]:
        """Return the `catch` of a step that lets failures be told by their types: that of an Error, and that of all others."""
        error = self._once("error", [{"name": "fails", "fail": {"type": OUTPUT_MISSING, "message": "${params}"}}])
        failure = self._once("failure", [{"name": "fails", "fail": {"type": NOT_RETRIED, "message": "${params}"}}])
        return [
            {"errorTypes": list(ERRORS), "call": {"block": error, "input": "${error.message}"}},
            {"call": {"block": failure, "input": "${error.message}"}},
        ]

    def value(self) -> str:
        """Return the block that returns its input."""
        return self._once("value", [{"name": "value", "return": {"output": "${params}"}}])

    def add(self, wish: str, steps: list[Object]) -> str:
        """Add a block with a unique name."""
        name = self.names.fresh(wish)
        self.entries.append({"name": name, "steps": steps})
        return name

    def with_limits(self, limits: list[Object], target: CallTarget) -> CallTarget:
        """Return a target that holds limits while another one runs: a block with a single step.

        Args:
            limits: The `limits` of the step; if there are none, the target is returned.
            target: What runs while the step holds them.
        """
        if not limits:
            return target
        name = self.names.fresh(f"{target.name}-locked")
        step = {"name": target.name, "limits": limits, **call_fields(target, "${params}")}
        output = "${" + member("steps", target.name) + ".output}"
        self.entries.append({"name": name, "steps": [step], "output": output})
        return replace(target, name=name, kind="block", wait={})

    def missing(self, wish: str, outputs: tuple[str, ...] = ()) -> CallTarget:
        """Add a block that fails, in place of a template that was not imported."""
        message = f"the template `{wish}` was not imported"
        name = self._once(f"missing-{wish}", [{"name": "missing", "fail": {"type": "NotImported", "message": message}}])
        return CallTarget(name, "block", Shape((*outputs, "result"), is_block=True, is_unknown=True))

    def _once(self, wish: str, steps: list[Object]) -> str:
        name = self.names.of("", wish)
        if not any(each["name"] == name for each in self.entries):
            self.entries.append({"name": name, "steps": steps})
        return name


@dataclass(slots=True)
class _Step:
    """A step of Argo during its conversion."""

    source: Fields
    original: str
    target: CallTarget
    called: CalledStep
    needs: list[str] | None
    conditions: list[str]
    continues: Continuation
    decided: bool = False
    """Whether conditions decide what its failure means, as in a DAG."""


_MAX_DEPENDS: Final = 2_500
"""Maximum characters of a condition on other tasks, in which their statuses are written out."""
_MAX_STATUS: Final = 60
"""Maximum characters of a status in a longer one."""
_MAX_CONDITION: Final = 500
"""Maximum characters of a condition that others contain."""
_CONDITIONAL: Final = (*LOOPS, "when", "hooks", "onExit")
"""The fields of a step that a service of the list does not have."""
_MAX_SERVICE: Final = 36
"""Characters of the name of a service, without a number."""


class FlowBuilder:
    """Converts the steps of one template."""

    def __init__(
        self, definition: Definition, home: str, scope: Scope, limit: int | None = None, *, stops_early: bool = False
    ) -> None:
        """`stops_early`: whether a failure prevents all later steps and items, as `failFast` of a template does."""
        self._definition = definition
        self._home = home
        self._scope = scope
        self._limit = limit
        self._names = Names()
        self._service_names = Names()
        self._called: dict[str, CalledStep] = {}
        self._ends: dict[str, str] = {}
        """The last converted step for each step of Argo: its handler, if it has one."""
        self._services: list[tuple[CalledStep, Object]] = []
        """The steps that leave a Pod, with the calls that delete it."""
        self.services: list[Object] = []
        """The services of the list."""
        self._kept: dict[str, str] = {}
        """The steps whose outputs are conditions, and the expressions of these."""
        self.converted: list[Object] = []
        self.is_parallel = False
        """Whether steps of different kinds run at the same time."""
        self._item_policy = (FailurePolicy.FINISH_RUNNING if stops_early else FailurePolicy.CONTINUE).value
        """What a failed item does to the others."""
        self.failure_policy = FailurePolicy.FINISH_RUNNING.value
        """What a failure does to other steps: Argo never stops those that run."""

    @property
    def scope(self) -> Scope:
        """Return the scope after the last step."""
        return self._scope.at(steps=self._called)

    def steps(self, template_: Fields) -> None:
        """Convert a list of lists of steps."""
        stages = template_.take("steps", [])
        parallel = any(isinstance(stage, list) and len(stage) > 1 for stage in stages)
        self.is_parallel = parallel
        self.failure_policy = self._item_policy
        before: list[str] = []
        works = self._works([each for stage in stages for each in (stage if isinstance(stage, list) else [stage])])
        for i, stage in enumerate(stages):
            listed = stage if isinstance(stage, list) else [stage]
            known = dict(self._called)
            ends: list[str] = []
            for j, each in enumerate(listed):
                source = Fields(each, f"{template_.at('steps')}[{i}][{j}]", template_.report)
                if i == 0 and works and self._serve(source):
                    continue
                step = self._read(source, caught=False, needs=list(before) if parallel else None)
                ends.append(self._add(step, known))
            before = ends
        self._stop_services(parallel=parallel)

    def dag(self, template_: Fields) -> None:
        """Convert tasks with dependencies."""
        dag = template_.part("dag")
        # Argo's controller starts all tasks whose dependencies permit it in any case: this only decides between Failed and Error.
        first_decides = dag.take("failFast") is not False
        self.failure_policy = self._item_policy
        tasks = {str(each.data.get("name")): each for each in dag.parts("tasks")}
        depends = {name: self._depends(each) for name, each in tasks.items()}
        for name, of in depends.items():
            for each in of.names:
                if each not in tasks:
                    tasks[name].gap("depends", f"there is no task `{each}`; define it")
        cycle = cycle_of({name: of.names for name, of in depends.items()})
        if cycle:
            dag.gap(
                "tasks", f"{circle(cycle, 'depends on')}; none of them would ever run: remove one of the dependencies"
            )
        targeted = self._targets(dag, tasks, depends)
        dag.done({})
        self.is_parallel = len(tasks) > 1
        late = observed(depends, {name for name, each in tasks.items() if "continueOn" in each})
        names = ordered(depends, tasks)
        works = self._works([each.data for each in tasks.values()])
        states: dict[str, TaskState] = {}
        for name in names:
            if works and not depends[name].names and name not in targeted and (called := self._serve(tasks[name])):
                states[name] = TaskState(called, "", Continuation())
        names = [name for name in names if name not in states]
        hooked = {
            name
            for name in names
            if _exits(tasks[name].data) and self._definition.repeats(self._home, tasks[name].data)
        }
        read_ = {name: self._read(tasks[name], caught=name in late, needs=[]) for name in names}
        for step in read_.values():
            step.decided = True
        for name in names:
            step, of = read_[name], depends[name]
            before = [states[each] for each in of.names if each in states]
            step.needs = [self._ends[each] for each in of.names if each in self._ends]
            known = self._known(of, states) if len(before) == len(of.names) else ""
            omitted = "" if known in {"", "true"} or (of.is_plain and of.always(states)) else f"!({known})"
            if of.names and omitted:
                step.conditions.append(known)
                step.needs += [kept for kept, text in self._kept.items() if text in known]
            has_when = "when" in step.source
            if omitted or name in targeted:
                step.called = replace(step.called, may_skip=True)
            if omitted:
                step.called = replace(step.called, omitted=omitted if has_when else step.called.not_started)
            skipped = step.called.skipped if omitted or has_when or step.called.may_be_empty else ""
            inherited, errored = (
                self._shortened(
                    f"{name}-{of_what}", either([getattr(each, of_what) for each in before]), step.needs or []
                )
                for of_what in ("branch", "errored")
            )
            states[name] = TaskState(
                step.called, skipped, step.continues, inherited, errored, is_covered=name in hooked
            )
            step.conditions += [targeted[name]] if name in targeted else []
            above = ancestors(name, depends)
            self._add(step, {each: called for each, called in self._called.items() if each in above})
        self._fail_late(depends, states, first_decides=first_decides)
        self._stop_services(parallel=True)

    def _works(self, steps: list[Any]) -> bool:
        """Whether any step does something else than to start a daemon."""
        return not all(isinstance(each, dict) and self._definition.starts_daemon(self._home, each) for each in steps)

    def _serve(self, source: Fields) -> CalledStep | None:
        """Make a step a service of the list, if it starts a daemon; otherwise return None."""
        original = str(source.data.get("name") or "step")
        if any(name in source for name in _CONDITIONAL) or not self._definition.starts_daemon(self._home, source.data):
            return None
        name = self._service_names.fresh(valid_name(original).lower().replace("_", "-")[:_MAX_SERVICE].strip("-"))
        made = self._definition.service(self._home, source, self._scope, name)
        if made is None:
            return None
        self.services.append({"name": name, **made})
        called = CalledStep(name, Shape(is_service=True), service=member("services", name))
        self._called[original] = called
        source.drop("name", "template", "templateRef", "inline", "arguments", "continueOn", "depends", "dependencies")
        source.done({})
        return called

    def _stop_services(self, *, parallel: bool) -> None:
        """Add the steps that delete the Pods that steps have left."""
        ends = [step["name"] for step in self.converted]
        for step, deleted in self._services:
            self.converted.append(
                {
                    "name": self._names.fresh(f"delete-{step.name}"),
                    **({"needs": ends} if parallel else {}),
                    "when": "${" + f"{step.step}.status == 'Succeeded'" + "}",
                    "activity": deleted,
                }
            )

    def _depends(self, task: Fields) -> Depends:
        names = task.take("dependencies", [])
        text = task.text("depends")
        if text is None:
            return Depends(tuple(token for name in names for token in (("&&", ""), (name, "")))[1:])
        try:
            return parse_depends(text)
        except UntranslatableError as error:
            task.gap("depends", str(error))
            return Depends(())

    def _targets(self, dag: Fields, tasks: dict[str, Fields], depends: dict[str, Depends]) -> dict[str, str]:
        """Remove the tasks that the targets of a DAG do not need, or return the condition of each task for computed targets."""
        target = dag.text("target")
        if target is None:
            return {}
        if "{{" in target:
            computed = self._computed_target(dag, target)
            needed = {name: [each for each in tasks if name in {each, *ancestors(each, depends)}] for name in tasks}
            return {
                name: f"{computed}.split(' ').exists(t, t in {literal(of)})" for name, of in needed.items() if computed
            }
        for each in target.split():
            if each not in tasks:
                dag.gap("target", f"there is no task `{each}`; define it")
        wanted = {name for each in target.split() if each in tasks for name in (each, *ancestors(each, depends))}
        for name in set(tasks) - wanted:
            del tasks[name], depends[name]
        return {}

    def _computed_target(self, dag: Fields, target: str) -> str:
        """Return the expression for a target with tags; empty after a gap."""
        match = TAG.fullmatch(target.strip())
        try:
            if match and "}}" not in match[1]:
                return f"string({tag(match[1], self._scope.resolve)})"
            dag.gap("target", "must be one tag, or have none")
        except UntranslatableError as error:
            dag.gap("target", str(error))
        return ""

    def _known(self, depends: Depends, states: Mapping[str, TaskState]) -> str:
        """Return a `depends` as a condition; if it would be too long, statuses in it become the outputs of steps."""
        condition_ = depends.condition(states)
        if len(condition_) <= _MAX_DEPENDS:
            return condition_
        return depends.condition(
            states,
            lambda name, status, of: self._shortened(
                f"{name}-{status or 'ended'}", of, [self._ends[name]], longest=_MAX_STATUS
            ),
        )

    def _shortened(self, wish: str, condition_: str, needs: list[str], *, longest: int = _MAX_CONDITION) -> str:
        """Return a condition about the tasks before another one; a long one becomes the output of a step.

        It contains those of the tasks before, each as often as a path leads there.

        Args:
            wish: The preferred name of the step.
            condition_: The condition.
            needs: The steps before.
            longest: The length of a condition that is long.
        """
        if len(condition_) <= longest:
            return condition_
        name = self._names.fresh(wish)
        read = [kept for kept, text in self._kept.items() if text in condition_]
        call = {"block": self._definition.blocks.value(), "input": "${" + condition_ + "}"}
        self.converted.append({"name": name, "needs": [*needs, *read], "call": call})
        self._kept[name] = f"{member('steps', name)}.output"
        return self._kept[name]

    def _fail_late(self, depends: dict[str, Depends], states: dict[str, TaskState], *, first_decides: bool) -> None:
        """Add a step that fails at the end if a last task did not run after a failure.

        A DAG ends as its last tasks do. One that did not run counts as the tasks do that it depends on. If several have failed,
        the first one in the order of their names decides whether the status is Error, or the last one (dag.go, assessDAGPhase).
        """
        needed = {name for each in depends.values() for name in each.names}
        last = {
            name: state
            for name, state in states.items()
            if name not in needed and state.ends and name in self._ends  # one without a name has no end
        }
        ends = {name: self._shortened(f"{name}-end", state.ends, [self._ends[name]]) for name, state in last.items()}
        errors = ""
        for name in sorted(last, reverse=first_decides):  # from the one that decides last
            others = all_of([f"!{ends[name]}", errors]) if errors else ""
            errors = either([last[name].ends_as_error, others])
        errors = self._shortened("omitted-error", errors, [self._ends[name] for name in last])
        message = "a task did not run because a task that it depends on has failed"
        kinds = [(errors, {"type": OUTPUT_MISSING, "message": message})] if errors else []
        failed = either(list(ends.values()))
        kinds += [(all_of([failed, f"!{errors}" if errors else ""]), {"message": message})] if failed else []
        self.converted += [
            {
                "name": self._names.fresh("omitted"),
                "needs": [*(self._ends[name] for name in last), *self._kept],
                "when": "${" + when + "}",
                "fail": fail,
            }
            for when, fail in kinds
        ]

    def _read(self, source: Fields, *, caught: bool, needs: list[str] | None) -> _Step:
        target = self._definition.target(self._home, source)  # before its name is taken: an inline template has it, too
        original = source.text("name") or "step"
        continue_on = source.part("continueOn")
        continues = Continuation(bool(continue_on.take("failed")), bool(continue_on.take("error")))
        continue_on.done({})
        loop = any(name in source for name in LOOPS)
        when = source.data.get("when")
        of_item = loop and isinstance(when, str) and bool(ITEM.search(when))
        called = CalledStep(
            self._names.of(original),
            target.shape,
            is_loop=loop,
            is_caught=caught or self._may_continue(continues, target),
            may_skip=when is not None and not of_item,
            may_be_empty=loop and (of_item or not isinstance(source.data.get("withItems"), list)),
        )
        return _Step(source, original, target, called, needs, [], continues)

    @staticmethod
    def _may_continue(continues: Continuation, target: CallTarget) -> bool:
        return continues.failed or (continues.error and target.shape.errs)

    def _add(self, step: _Step, known: dict[str, CalledStep]) -> str:
        """Add a step, and return its name or the name of the handler after it."""
        source, target = step.source, step.target
        scope = self._scope.at(steps=known, step=step.original)
        made: Object = {"name": step.called.name}
        if step.needs is not None:
            made["needs"] = step.needs
        conditions = [*step.conditions]
        loop = self._loop(source, scope)
        try:
            when = source.text("when")
            conditions += [condition(when, scope.resolve)] if when else []
        except UntranslatableError as error:
            source.gap("when", str(error))
        if conditions:
            made["when"] = "${" + " && ".join(f"({each})" if len(conditions) > 1 else each for each in conditions) + "}"
        if loop is not None:
            concurrency = {"maxConcurrency": self._limit} if self._limit else {}
            made["forEach"] = {**loop, **concurrency, "failurePolicy": self._item_policy}
        values = arguments(self._definition, source, target, scope)
        made |= call_fields(target, values)
        if target.deadline:
            limit = str(values.get(target.deadline, ""))
            made["activity"]["startToCloseTimeout"] = _deadline(source, target, limit)
        if target.timeout:
            made["timeout"] = target.timeout
        if step.called.is_caught:
            made["catch"] = self._catch(step)
        made |= self._service(step)
        made |= hooks_of_step(self._definition, self._home, source, step.called, step.original, scope)
        self.converted.append(made)
        self._called[step.original] = step.called
        end = self._after(step)
        self._ends[step.original] = end
        source.done({})
        return end

    def _loop(self, source: Fields, scope: Scope) -> Object | None:
        """Take the loop of a step, and the condition that reads its item."""
        field = next((name for name in LOOPS if name in source), "")
        try:
            loop = for_each(source, scope.resolve, is_tag)
            when = source.data.get("when")
            if loop is not None and isinstance(when, str) and ITEM.search(when):
                field = "when"
                source.drop("when")
                loop = filtered(loop, when, scope.resolve)
        except UntranslatableError as error:
            source.gap(field, str(error))
            return None
        return loop

    def _catch(self, step: _Step) -> list[Object]:
        """Return the `catch` of a step whose failure becomes its output."""
        blocks, continues = self._definition.blocks, step.continues
        caught: Object = {"call": {"block": blocks.caught(), "input": "${error.type}"}}
        if not step.target.shape.errs or step.decided or continues.failed == continues.error:
            return [caught]
        if continues.error:
            return [{"errorTypes": list(ERRORS), **caught}]
        return [{"errorTypes": list(ERRORS), "call": {"block": blocks.not_caught()}}, caught]

    def _service(self, step: _Step) -> Object:
        """Return the compensation of a step that leaves a Pod, which is deleted after the last step otherwise."""
        if not step.target.deletion:
            return {}
        if step.called.is_loop:
            step.source.gap("", "daemons do not run in loops; write a step for each")
        deleted = {"name": step.target.deletion, "input": {"name": "${" + f"{step.called.step}.output.name" + "}"}}
        self._services.append((step.called, deleted))
        return {"compensate": {"activity": deleted}}

    def _after(self, step: _Step) -> str:
        """Add the step that sets the global outputs of a step."""
        end = step.called.name
        values: Object = {}
        for output, name in step.target.global_names.items():
            if step.called.shape.has(output):
                values[variable(name)] = "${" + step.called.resolve(("outputs", "parameters", output)) + "}"
            else:
                step.source.gap(
                    "", f"the `globalName` of the output `{output}` has no value, as the output is not imported"
                )
        for output, name in step.target.global_artifacts.items():
            values[variable(artifact_field(name))] = "${" + step.called.resolve(("outputs", "artifacts", output)) + "}"
        if not values:
            return end
        made: Object = {
            "name": self._names.fresh(f"{end}-global"),
            **({"needs": [end]} if step.needs is not None else {}),
        }
        failed = f"!{step.called.failed}" if step.called.failed and not step.called.is_loop else ""
        when = all_of([f"{step.called.step}.status == 'Succeeded'", failed])
        self.converted.append({**made, "when": "${" + when + "}", "set": values})
        return str(made["name"])


def arguments(definition: Definition, source: Fields, target: CallTarget, scope: Scope) -> Object:
    """Return the input of a call: its arguments, the defaults of other inputs, and values of the workflow for the target."""
    declared = source.part("arguments")
    passed: Object = {}
    for each in declared.parts("parameters"):
        name = each.text("name") or ""
        value = each.take("value", each.take("default"))
        of = each.part("valueFrom")
        default = of.take("default")
        reads = _Reads(scope)
        if "expression" in of:
            value = "{{=" + (of.text("expression") or "") + "}}"
        of.done({"configMapKeyRef": "pass the value as a parameter of the run"})
        each.drop("description", "enum")
        each.done({})
        made = _value(definition, default if value is None else value, each.path, source, reads.resolve)
        try:
            passed[name] = reads.with_default(made, default)
        except UntranslatableError as error:
            each.gap("valueFrom.default", str(error))
            passed[name] = made
    result: Object = dict(passed) if target.shape.is_foreign else {}
    for name, default in target.inputs.items():
        if name in passed:
            result[name] = passed[name]
        elif default is not None:
            result[name] = _value(definition, default, source.path, source, _of_default(scope))
        elif target.kind != "wait":
            source.gap("arguments", f"the parameter `{name}` of the template has no value")
    result |= _artifacts(declared, source, target, scope)
    for key, path in target.captured.items():
        try:
            result[key] = "${" + scope.resolve(path) + "}"
        except UntranslatableError as error:
            source.gap("", f"{error} (in template `{target.name}`)")
    return result


def _artifacts(declared: Fields, source: Fields, target: CallTarget, scope: Scope) -> Object:
    """Return the artifacts for a target."""
    passed: Object = {}
    for each in declared.parts("artifacts"):
        name = str(each.data.get("name"))
        passed[name] = argument(each, scope.resolve)
        each.done({"subPath": "pass the whole artifact, and read the part of it"})
    foreign = {artifact_field(name): value for name, value in passed.items() if value is not None}
    result: Object = foreign if target.shape.is_foreign else {}
    for name, optional in target.artifacts.items():
        if passed.get(name) is not None:
            result[artifact_field(name)] = passed[name]
        elif optional:
            result[artifact_field(name)] = "${null}"
        elif name not in passed:
            source.gap("arguments", f"the artifact `{name}` of the template has no value")
    return result


def _value(definition: Definition, value: Any, path: str, source: Fields, resolve: Resolve) -> Any:
    if value is None:
        return ""
    text = as_text(value)
    if not TAG.search(text):
        return definition.constant(text)
    try:
        return template(text, resolve, is_tag)
    except UntranslatableError as error:
        source.report.gap(path, str(error))
        return ""


def _of_default(scope: Scope) -> Resolve:
    """Return what translates the references in the default of an input: only those to the workflow have a value."""

    def resolve(path: tuple[str, ...]) -> str:
        if path[0] != "workflow":
            raise UntranslatableError(
                f"`{'.'.join(path)}` has no value in the default of an input; pass it as an argument"
            )
        return scope.resolve(path)

    return resolve


def _deadline(source: Fields, target: CallTarget, limit: str) -> str:
    """Return the time limit of an attempt that an argument sets."""
    if "${" not in limit:
        try:
            return go_duration(limit, seconds=True) or NO_LIMIT
        except ValueError as error:
            source.gap("arguments", f"{error}; it is the time limit of the template")
            return MAX_ATTEMPT
    if not (limit.startswith("${") and limit.endswith("}") and limit.count("${") == 1):
        return limit
    text = f"string({limit[2:-1]})"
    return "${" + (f"{text} + 's'" if target.deadline_in_seconds else f"duration({text})") + "}"


def call_fields(target: CallTarget, input_: Any) -> Object:
    """Return the kind of a step that calls a target."""
    if target.kind == "wait":
        return dict(target.wait)
    value = {"input": input_} if input_ else {}
    if target.kind == "child":
        return {"childWorkflow": {"workflow": {"name": target.name}, **value, **target.child}}
    key = "name" if target.kind == "activity" else "block"
    return {"activity" if target.kind == "activity" else "call": {key: target.name, **value}}


def output_of(output: Fields, scope: Scope) -> Any:
    """Return the value of an output parameter of a steps or dag template."""
    source = output.part("valueFrom")
    output.drop("globalName", "description")
    output.done({"value": "set `valueFrom.parameter`", "default": "set `valueFrom.default`"})
    parameter, default, computed = source.text("parameter"), source.take("default"), source.text("expression")
    source.done({})
    if parameter is None and computed is None:
        output.gap("valueFrom", "only `parameter` and `expression` have a counterpart")
        return None
    reads = _Reads(scope)
    try:
        if computed is not None:
            made = "${" + expression(computed, reads.resolve) + "}"
        else:
            made = template(str(parameter), reads.resolve, is_tag)
        return reads.with_default(made, default)
    except UntranslatableError as error:
        output.gap("valueFrom", str(error))
        return None


class _Reads:
    """Resolves references, and notes the steps that they read."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._absent: dict[str, None] = {}
        """The conditions that a step has no output."""
        self._asks = False
        """Whether the status of a step is read."""

    def resolve(self, path: tuple[str, ...]) -> str:
        """Translate a reference."""
        match path:
            case ("steps" | "tasks", name, "outputs", *rest) if name in self._scope.steps:
                called = self._scope.steps[name]
                if called.absent and (not rest or rest[-1] not in called.shape.defaults):
                    self._absent[called.absent] = None
            case ("steps" | "tasks", _, "status"):
                self._asks = True
        return self._scope.resolve(path)

    def with_default(self, made: str, default: Any) -> str:
        """Return a value, with the default in place of outputs that do not exist.

        Raises:
            UntranslatableError: Only a part of the value may need the default.
        """
        if default is None or not self._absent:
            return made
        if self._asks or not (made.startswith("${") and made.endswith("}") and made.count("${") == 1):
            raise UntranslatableError("the default applies to a single reference; write it into the expression")
        return "${" + f"{' || '.join(self._absent)} ? {literal(as_text(default))} : {made[2:-1]}" + "}"


_RUNNING: Final = re.compile(r"\s*(?:steps|tasks)\S+\.status\s*==\s*['\"]Running['\"]\s*")
"""The condition of a hook that runs when its step starts."""


def _exits(step: Object) -> bool:
    """Whether a step has an exit hook."""
    hooks = step.get("hooks")
    return bool(step.get("onExit") or (isinstance(hooks, dict) and "exit" in hooks))


def hooks_of_step(
    definition: Definition, home: str, source: Fields, step: CalledStep, original: str, scope: Scope
) -> Object:
    """Return the `onStart` and `onEnd` of a step.

    Args:
        definition: The definition.
        home: Where templates are looked up.
        source: The step; takes `hooks` and `onExit`.
        step: The converted step.
        original: Its name in Argo.
        scope: The scope of references before the step.
    """
    hooks = source.part("hooks")
    old = source.text("onExit")
    if old is not None:
        hooks.data["exit"] = {"template": old}
    single = replace(step, base="step", is_loop=False, may_skip=False, may_be_empty=False, omitted="")
    around = {"onStart": scope, "onEnd": scope.at(steps={**scope.steps, original: single})}
    steps: dict[str, list[Object]] = {"onStart": [], "onEnd": []}
    values: dict[str, Object] = {"onStart": {}, "onEnd": {}}
    for name in map(str, list(hooks.data)):
        hook, key = hooks.part(name), valid_name(name)
        expression = hook.text("expression")
        when = "onStart" if expression and _RUNNING.fullmatch(expression) else "onEnd"
        target = definition.target(home, hook)
        made: Object = {"name": key, "needs": []}
        value: Object = {}
        if expression and when == "onEnd":
            try:
                value["when"] = "${" + condition("{{=" + expression + "}}", around[when].resolve) + "}"
                made["when"] = "${" + member("params", key) + ".when}"
            except UntranslatableError as error:
                hook.gap("expression", str(error))
        passed = arguments(definition, hook, target, around[when])
        if passed:
            value["input"] = passed
        hook.done({})
        made |= call_fields(target, "${" + member("params", key) + ".input}" if passed else None)
        ignored = {"block": definition.blocks.caught(), "input": "${error.type}"}
        steps[when].append({**made, "catch": [{"call": ignored}]})
        values[when] |= {key: value} if value else {}
    return {
        field: {
            "block": definition.blocks.add(f"{step.name}-{'start' if field == 'onStart' else 'end'}", made_),
            **({"input": values[field]} if values[field] else {}),
        }
        for field, made_ in steps.items()
        if made_
    }
