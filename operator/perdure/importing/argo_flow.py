"""Converts the `steps` and `dag` templates of Argo to lists of steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.importing.argo_calls import Book, CallTarget, arguments, called
from perdure.importing.argo_depends import Depends, TaskState, read
from perdure.importing.argo_loops import for_each
from perdure.importing.argo_pods import is_tag
from perdure.importing.argo_retry import duration
from perdure.importing.argo_scope import Called, Scope, artifact_field, variable
from perdure.importing.argo_step_hooks import hooks_of_step
from perdure.importing.expressions import TAG, UntranslatableError, condition, tag
from perdure.importing.field_reader import Fields, Names, Object, literal


@dataclass(slots=True)
class _Step:
    """A step of Argo during its conversion."""

    source: Fields
    original: str
    target: CallTarget
    called: Called
    needs: list[str] | None
    conditions: list[str]
    continues: bool
    """Whether dependent steps also run after its failure, because of `continueOn`."""


class FlowBuilder:
    """Converts the steps of one template."""

    def __init__(self, book: Book, home: str, scope: Scope, limit: int | None = None) -> None:
        self._book = book
        self._home = home
        self._scope = scope
        self._limit = limit
        self._names = Names()
        self._called: dict[str, Called] = {}
        self._ends: dict[str, str] = {}
        """The last converted step for each step of Argo: its handler, if it has one."""
        self._services: list[tuple[Called, Object]] = []
        """The steps that leave a Pod, with the calls that delete it."""
        self.made: list[Object] = []
        self.is_parallel = False
        """Whether steps of different kinds run at the same time."""

    @property
    def scope(self) -> Scope:
        """Return the scope after the last step."""
        return self._scope.at(steps=self._called)

    def steps(self, template_: Fields) -> None:
        """Convert a list of lists of steps."""
        stages = template_.take("steps", [])
        parallel = any(isinstance(stage, list) and len(stage) > 1 for stage in stages)
        self.is_parallel = parallel
        before: list[str] = []
        for i, stage in enumerate(stages):
            listed = stage if isinstance(stage, list) else [stage]
            known = dict(self._called)
            ends: list[str] = []
            for j, each in enumerate(listed):
                source = Fields(each, f"{template_.at('steps')}[{i}][{j}]", template_.report)
                step = self._read(source, caught=False, needs=list(before) if parallel else None)
                ends.append(self._add(step, known))
            before = ends
        self._stop_services(parallel=parallel)

    def dag(self, template_: Fields) -> None:
        """Convert tasks with dependencies."""
        dag = template_.part("dag")
        fail_fast = dag.take("failFast", True)
        if not fail_fast:
            dag.note("failFast", "if a task fails, tasks that are running are cancelled")
        tasks = {str(each.data.get("name")): each for each in dag.parts("tasks")}
        depends = {name: self._depends(each) for name, each in tasks.items()}
        targeted = self._targets(dag, tasks, depends)
        dag.done({})
        self.is_parallel = len(tasks) > 1
        observed = _observed(depends)
        ordered = _ordered(depends, tasks)
        read_ = {name: self._read(tasks[name], caught=name in observed, needs=[]) for name in ordered}
        states: dict[str, TaskState] = {}
        for name in ordered:
            step, of = read_[name], depends[name]
            known = of.condition(states) if all(each in states for each in of.names) else ""
            omitted = (
                ""
                if known in {"", "true"} or (all(states[each].has("") == "true" for each in of.names) and of.is_plain)
                else f"!({known})"
            )
            if of.names and omitted:
                step.conditions.append(known)
            has_when = "when" in step.source
            skipped = step.called.skipped if omitted or has_when else ""
            states[name] = TaskState(
                failed=step.called.failed if step.called.is_caught else "",
                continues=name not in observed or step.continues,
                skipped=skipped,
                omitted=(step.called.skipped if not has_when else omitted) if omitted else "",
            )
            step.needs = [self._ends[each] for each in of.names if each in self._ends]
            step.conditions += [targeted[name]] if name in targeted else []
            ancestors = _ancestors(name, depends)
            self._add(step, {each: called for each, called in self._called.items() if each in ancestors})
        self._fail_late(depends, read_, states)
        self._stop_services(parallel=True)

    def _stop_services(self, *, parallel: bool) -> None:
        """Add the steps that delete the Pods that steps have left."""
        ends = [step["name"] for step in self.made]
        for step, deleted in self._services:
            self.made.append(
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
            return read(text)
        except UntranslatableError as error:
            task.gap("depends", str(error))
            return Depends(())

    def _targets(self, dag: Fields, tasks: dict[str, Fields], depends: dict[str, Depends]) -> dict[str, str]:
        """Remove the tasks that the targets of a DAG do not need, or return the condition of each task for computed targets."""
        target = dag.text("target")
        if target is None:
            return {}
        if "{{" in target:
            given = self._computed_target(dag, target)
            needed = {name: [each for each in tasks if name in {each, *_ancestors(each, depends)}] for name in tasks}
            return {name: f"{given}.split(' ').exists(t, t in {literal(of)})" for name, of in needed.items() if given}
        wanted = {name for each in target.split() if each in tasks for name in (each, *_ancestors(each, depends))}
        for name in set(tasks) - wanted:
            del tasks[name], depends[name]
        return {}

    def _computed_target(self, dag: Fields, target: str) -> str:
        """Return the expression for a target with tags; empty after a gap."""
        whole = TAG.fullmatch(target.strip())
        try:
            if whole and "}}" not in whole[1]:
                return f"string({tag(whole[1], self._scope.resolve)})"
            dag.gap("target", "must be one tag, or have none")
        except UntranslatableError as error:
            dag.gap("target", str(error))
        return ""

    def _fail_late(self, depends: dict[str, Depends], steps: dict[str, _Step], states: dict[str, TaskState]) -> None:
        """Add a step that fails at the end if a failed task prevented a last task from running."""
        needed = {name for each in depends.values() for name in each.names}
        parts, needs = [], []
        for name in steps:
            failures = [states[each].failed for each in _ancestors(name, depends) if states[each].failed]
            if name not in needed and states[name].omitted and failures:
                parts.append(f"{states[name].omitted} && ({' || '.join(failures)})")
                needs.append(self._ends[name])
        if parts:
            self.made.append(
                {
                    "name": self._names.fresh("omitted"),
                    "needs": needs,
                    "when": "${" + " || ".join(f"({part})" for part in parts) + "}",
                    "fail": {"message": "a task did not run because a task that it depends on has failed"},
                }
            )

    def _read(self, source: Fields, *, caught: bool, needs: list[str] | None) -> _Step:
        original = source.text("name") or "step"
        target = self._book.target(self._home, source)
        continue_on = source.part("continueOn")
        continues = any([continue_on.take("failed"), continue_on.take("error")])
        continue_on.done({})
        loop = any(name in source for name in ("withItems", "withParam", "withSequence"))
        called = Called(self._names.of(original), target.shape, is_loop=loop, is_caught=caught or continues)
        return _Step(source, original, target, called, needs, [], continues)

    def _add(self, step: _Step, known: dict[str, Called]) -> str:
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
            made["forEach"] = {**loop, **({"maxConcurrency": self._limit} if self._limit else {})}
        given = arguments(self._book, source, target, scope)
        made |= called(target, given)
        if target.deadline:
            limit = str(given.get(target.deadline, ""))
            made["activity"]["startToCloseTimeout"] = duration(limit) or limit
        if target.timeout:
            made["timeout"] = target.timeout
        if step.called.is_caught:
            made["catch"] = [{"call": {"block": self._book.caught(), "input": "${error.type}"}}]
        made |= self._service(step)
        made |= hooks_of_step(self._book, self._home, source, step.called, step.original, scope)
        self.made.append(made)
        self._called[step.original] = step.called
        end = self._after(step)
        self._ends[step.original] = end
        source.done({})
        return end

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
        self.made.append({**made, "when": "${" + f"{step.called.step}.status == 'Succeeded'" + "}", "set": values})
        return str(made["name"])


def _observed(depends: Mapping[str, Depends]) -> set[str]:
    """Return the tasks whose failure does not end the DAG, because another task depends on that failure."""
    return {name for each in depends.values() for name in each.observed}


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
    made: dict[str, None] = {}

    def visit(name: str, above: frozenset[str]) -> None:
        if name in above or name not in tasks or name in made:
            return
        for each in depends[name].names:
            visit(each, above | {name})
        made[name] = None

    for name in tasks:
        visit(name, frozenset())
    return list(made)
