"""Converts the `steps` and `dag` templates of Argo to lists of steps: their arguments, dependencies, and hooks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from perdure.api.policies import FailurePolicy
from perdure.importing.argo.artifacts import argument
from perdure.importing.argo.containers import is_tag
from perdure.importing.argo.loops import ITEM, for_each
from perdure.importing.argo.retries import MAX_ATTEMPT
from perdure.importing.argo.scope import ERRORS, OUTPUT_MISSING, CalledStep, Scope, Shape, artifact_field, variable
from perdure.importing.durations import NO_LIMIT, go_duration
from perdure.importing.expressions import (
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
from perdure.importing.reader import Fields, Object, as_text
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

    def constant(self, value: Any) -> Any:
        """Return the value of a constant parameter."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """The `continueOn` of a step: after which failures its dependents run."""

    failed: bool = False
    error: bool = False


class Blocks:
    """The blocks of a definition."""

    def __init__(self) -> None:
        self.entries: list[Object] = []
        self.names = Names()

    def caught(self) -> str:
        """Return the block that converts a failure to an output."""
        return self._once("caught", [{"name": "go-on", "return": {"output": {"failed": "${params}"}}}])

    def not_caught(self) -> str:
        """Return the block that fails with the type of a failure."""
        fails = {"type": OUTPUT_MISSING, "message": "the step has the status Error, which `continueOn` does not name"}
        return self._once("not-caught", [{"name": "fails", "fail": fails}])

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
        return CallTarget(name, "block", Shape((*outputs, "result"), is_block=True))

    def _once(self, wish: str, steps: list[Object]) -> str:
        name = self.names.of("", wish)
        if not any(each["name"] == name for each in self.entries):
            self.entries.append({"name": name, "steps": steps})
        return name


_TOKEN: Final = re.compile(r"\s*(?:([A-Za-z0-9_][-A-Za-z0-9_]*)(?:\.([A-Za-z]+))?|(&&|\|\||!|\(|\)))")
_STATUSES: Final = frozenset(
    {"", "Succeeded", "Failed", "Errored", "Daemoned", "AnySucceeded", "AllFailed", "Skipped", "Omitted"}
)

_SIGNS: Final = frozenset({"&&", "||", "!", "(", ")"})


@dataclass(frozen=True, slots=True)
class Depends:
    """A parsed `depends`."""

    tokens: tuple[tuple[str, str], ...]
    """Names with their statuses, and operators without one."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its tasks, each once."""
        return tuple(dict.fromkeys(name for name, _ in self.tokens if name not in _SIGNS))

    @property
    def is_plain(self) -> bool:
        """Whether the expression only requires that all tasks have succeeded."""
        statuses = {status for name, status in self.tokens if name not in _SIGNS}
        return statuses <= {"", "Succeeded", "Daemoned"} and not {"||", "!"} & {sign for sign, _ in self.tokens}

    def always(self, tasks: Mapping[str, "TaskState"]) -> bool:
        """Whether all tasks always have the statuses that the expression requires, unless a failure ends the DAG."""
        return all(tasks[name].has(status) == "true" for name, status in self.tokens if name not in _SIGNS)

    def condition(self, tasks: Mapping[str, "TaskState"]) -> str:
        """Return the expression as a condition in CEL.

        Args:
            tasks: The conditions about the end of each task.
        """
        return " ".join(tasks[name].has(status) if name not in _SIGNS else name for name, status in self.tokens)


@dataclass(frozen=True, slots=True)
class TaskState:
    """Conditions about the end of a task."""

    called: CalledStep
    skipped: str
    """The condition that it did not run; empty if it always runs."""
    continues: Continuation
    inherited: str = ""
    """The condition that a task that it depends on has failed, which counts where the task itself does not run."""
    errored_before: str = ""
    """The condition that it was with the status Error."""

    @property
    def branch(self) -> str:
        """The condition that the branch that ends with this task has failed; empty if it cannot, or if that ends the DAG."""
        return _either([self.called.failed, _all([self.skipped, self.inherited]) if self.passes_on else ""])

    @property
    def errored(self) -> str:
        """The condition that the branch that ends with this task has the status Error; empty if it cannot."""
        before = _all([self.skipped, self.errored_before]) if self.skipped and self.errored_before else ""
        return _either([self.called.errored, before])

    @property
    def ends_as_error(self) -> str:
        """The condition that `ends` is true, and the status is Error."""
        before = self.errored_before and self.skipped and not self.continues.failed
        inherited = _all([self.skipped, self.errored_before]) if before else ""
        return _either([inherited, "" if self.continues.error else self.called.errored])

    @property
    def passes_on(self) -> bool:
        """Whether the task may not run although a task that it depends on has failed."""
        return bool(self.skipped and self.inherited)

    @property
    def ends(self) -> str:
        """The condition that the DAG fails because of this task, the last one of a branch; empty if no condition decides that."""
        continues = self.continues
        inherited = _all([self.skipped, self.inherited]) if self.passes_on and not continues.failed else ""
        failed = self.has("Failed") if self.called.failed and not continues.failed else ""
        return _either([inherited, failed, "" if continues.error else self.called.errored])

    def has(self, status: str) -> str:
        """Return the condition that the task has a status."""
        failed, errored, omitted = self.called.failed, self.called.errored, self.called.omitted
        match status:
            case "Errored":
                return errored or "false"
            case "Failed":
                return _all([failed, f"!{errored}" if errored else ""]) if failed else "false"
            case "AnySucceeded":
                return self.called.any_succeeded
            case "AllFailed":
                return self.called.all_failed if failed else "false"
            case "Omitted":
                return f"({omitted})" if omitted else "false"
            case "Skipped":
                return _all([self.skipped, f"!({omitted})" if omitted else ""]) if self.skipped else "false"
            case "Daemoned" if not self.called.shape.is_service:
                return "false"
            case "Succeeded" if self.called.shape.is_service:
                return "false"
        prevented = self.skipped if status in {"Succeeded", "Daemoned"} else omitted
        return _all([*self._not_failed(status), f"!({prevented})" if prevented else ""])

    def _not_failed(self, status: str) -> list[str]:
        failed, errored = self.called.failed, self.called.errored
        if status or self.continues == Continuation():
            return [f"!{failed}"] if failed else []
        if self.continues.error:
            return [] if self.continues.failed or not failed else [f"!{self.has('Failed')}"]
        return [f"!{errored}"] if errored else []


def _all(parts: list[str]) -> str:
    found = [part for part in parts if part]
    return f"({' && '.join(found)})" if len(found) > 1 else found[0] if found else "true"


def _either(parts: list[str]) -> str:
    """Return the condition that one of several is true; empty ones never are."""
    found = list(dict.fromkeys(part for part in parts if part))
    return f"({' || '.join(found)})" if len(found) > 1 else "".join(found)


def _parse_depends(text: str) -> Depends:
    """Read a `depends`.

    Raises:
        UntranslatableError: The text is not a valid `depends`.
    """
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None or (found[2] or "") not in _STATUSES:
            raise UntranslatableError(f"`{text}` is not a valid condition on tasks; see Argo's enhanced depends logic")
        tokens.append((found[1] or found[3], found[2] or ""))
        at = found.end()
    return Depends(tuple(tokens))


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


_CONDITIONAL: Final = ("withItems", "withParam", "withSequence", "when", "hooks", "onExit")
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
        dag.drop(
            "failFast"
        )  # Argo's controller starts all tasks whose dependencies permit it, also without `failFast: false`
        self.failure_policy = self._item_policy
        tasks = {str(each.data.get("name")): each for each in dag.parts("tasks")}
        depends = {name: self._depends(each) for name, each in tasks.items()}
        for name, of in depends.items():
            for each in of.names:
                if each not in tasks:
                    tasks[name].gap("depends", f"there is no task `{each}`; define it")
        targeted = self._targets(dag, tasks, depends)
        dag.done({})
        self.is_parallel = len(tasks) > 1
        observed = _observed(depends, {name for name, each in tasks.items() if "continueOn" in each})
        ordered = _ordered(depends, tasks)
        works = self._works([each.data for each in tasks.values()])
        states: dict[str, TaskState] = {}
        for name in ordered:
            if works and not depends[name].names and name not in targeted and (called := self._serve(tasks[name])):
                states[name] = TaskState(called, "", Continuation())
        ordered = [name for name in ordered if name not in states]
        read_ = {name: self._read(tasks[name], caught=name in observed, needs=[]) for name in ordered}
        for step in read_.values():
            step.decided = True
        for name in ordered:
            step, of = read_[name], depends[name]
            before = [states[each] for each in of.names if each in states]
            known = of.condition(states) if len(before) == len(of.names) else ""
            omitted = "" if known in {"", "true"} or (of.is_plain and of.always(states)) else f"!({known})"
            if of.names and omitted:
                step.conditions.append(known)
            has_when = "when" in step.source
            if omitted or name in targeted:
                step.called = replace(step.called, may_skip=True)
            if omitted:
                step.called = replace(step.called, omitted=omitted if has_when else step.called.not_started)
            skipped = step.called.skipped if omitted or has_when or step.called.may_be_empty else ""
            branches = _either([each.branch for each in before]), _either([each.errored for each in before])
            states[name] = TaskState(step.called, skipped, step.continues, *branches)
            step.needs = [self._ends[each] for each in of.names if each in self._ends]
            step.conditions += [targeted[name]] if name in targeted else []
            ancestors = _ancestors(name, depends)
            self._add(step, {each: called for each, called in self._called.items() if each in ancestors})
        self._fail_late(depends, states)
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
            return _parse_depends(text)
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
            needed = {name: [each for each in tasks if name in {each, *_ancestors(each, depends)}] for name in tasks}
            return {
                name: f"{computed}.split(' ').exists(t, t in {literal(of)})" for name, of in needed.items() if computed
            }
        wanted = {name for each in target.split() if each in tasks for name in (each, *_ancestors(each, depends))}
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

    def _fail_late(self, depends: dict[str, Depends], states: dict[str, TaskState]) -> None:
        """Add a step that fails at the end if a last task did not run after a failure.

        A DAG ends as its last tasks do. One that did not run counts as the tasks do that it depends on.
        """
        needed = {name for each in depends.values() for name in each.names}
        last = {name: state for name, state in states.items() if name not in needed and state.ends}
        errors = _either([state.ends_as_error for state in last.values()])
        message = "a task did not run because a task that it depends on has failed"
        kinds = [(errors, {"type": OUTPUT_MISSING, "message": message})] if errors else []
        failed = _either([state.ends for state in last.values()])
        kinds += [(_all([failed, f"!{errors}" if errors else ""]), {"message": message})] if failed else []
        self.converted += [
            {
                "name": self._names.fresh("omitted"),
                "needs": [self._ends[name] for name in last],
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
        loop = any(name in source for name in ("withItems", "withParam", "withSequence"))
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
        try:
            loop = for_each(source, scope.resolve, is_tag)
            when = source.text("when")
            conditions += [condition(when, scope.resolve)] if when else []
        except UntranslatableError as error:
            source.gap("when" if "when" in source else "withParam", str(error))
            loop = None
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
        kinds = (("parameters", step.target.global_names), ("artifacts", step.target.global_artifacts))
        values = {
            variable(name if kind == "parameters" else artifact_field(name)): "${"
            + step.called.resolve(("outputs", kind, output))
            + "}"
            for kind, names in kinds
            for output, name in names.items()
        }
        if not values:
            return end
        made: Object = {
            "name": self._names.fresh(f"{end}-global"),
            **({"needs": [end]} if step.needs is not None else {}),
        }
        self.converted.append({**made, "when": "${" + f"{step.called.step}.status == 'Succeeded'" + "}", "set": values})
        return str(made["name"])


def _observed(depends: Mapping[str, Depends], continuing: set[str]) -> set[str]:
    """Return the tasks whose failure does not end the DAG: another task may run after it, or it does not matter.

    Args:
        depends: What each task depends on.
        continuing: The tasks with `continueOn`. If one of them is the last and does not run, the DAG does not fail either.
    """
    last = continuing - {name for each in depends.values() for name in each.names}
    late = {name for name, each in depends.items() if not each.is_plain} | last
    return {above for name in late for above in _ancestors(name, depends)}


def _ancestors(name: str, depends: Mapping[str, Depends]) -> list[str]:
    """Return the tasks that a task needs, directly or indirectly."""
    found: dict[str, None] = {}
    queue = list(depends[name].names) if name in depends else []
    while queue:
        each = queue.pop()
        if each not in found and each in depends:
            found[each] = None
            queue += depends[each].names
    return list(found)


def _ordered(depends: Mapping[str, Depends], tasks: Mapping[str, Any]) -> list[str]:
    """Return the tasks in topological order, otherwise in the original order."""
    order: dict[str, None] = {}

    def visit(name: str, above: frozenset[str]) -> None:
        if name in above or name not in tasks or name in order:
            return
        for each in depends[name].names:
            visit(each, above | {name})
        order[name] = None

    for name in tasks:
        visit(name, frozenset())
    return list(order)


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
            result[name] = _value(definition, default, source.path, source, scope.resolve)
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
