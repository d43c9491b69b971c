"""Converts a pipeline of Tekton to steps: its tasks, their conditions (`when`), and their loops (`matrix`)."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

from perdure.api.fields import MAX_COUNT
from perdure.api.policies import FailurePolicy
from perdure.importing.durations import NO_LIMIT, go_duration
from perdure.importing.expressions import CAUGHT, Resolve, UntranslatableError, condition, literal, member, tag
from perdure.importing.mistakes import too_long
from perdure.importing.reader import ConversionReport, Fields, Object, as_text, circle, cycle_of, format_value, visible
from perdure.importing.tekton.task import TaskBuilder, TaskContext, WorkspaceBinding
from perdure.importing.tekton.variables import (
    VARIABLE,
    FinishedTask,
    PipelineScope,
    any_spread,
    composed,
    is_spread,
    kind_of,
    list_of,
    mistake_of_type,
    params_read,
    path_of,
    results_read,
    substituted,
    text_of,
    translated,
    with_tags,
)
from perdure.importing.writer import Names, valid_name
from perdure.language.cel.limits import MAX_ITEMS

_ADVICE: Final = {
    "matrix": "write the combinations as a loop over `forEach`",
}
_GROUP: Final = "tekton.dev/"
_ALL: Final = "tasks.status"
"""The parameter of the final tasks with the status of all others; no task has this name."""


def name_in(reference: Object) -> str:
    """Return the name of what a reference names; with a resolver, the name among its parameters, or that of the file."""
    if not reference.get("resolver"):
        return str(reference.get("name") or "")
    params = {str(each.get("name")): str(each.get("value")) for each in reference.get("params") or []}
    file = params.get("pathInRepo") or params.get("url") or ""
    return params.get("name") or PurePosixPath(file).stem


def take_name(reference: Fields, kind: str, *, found: Callable[[str], bool]) -> str | None:
    """Take a reference, and return the name of what it names; None after a gap, if a resolver has to fetch it.

    Args:
        reference: The reference.
        kind: `task` or `pipeline`.
        found: Whether the files have one with a name.
    """
    name, resolver = name_in(reference.data), reference.text("resolver")
    version = reference.text("apiVersion") or _GROUP
    reference.drop("name", "kind", "params")
    reference.done({"bundle": f"import the file with the {kind} together with this one"})
    if not version.startswith(_GROUP):
        reference.gap("apiVersion", f"`{version}` is that of a custom task; write it as an activity")
        return None
    if not resolver:
        return name
    if found(name):
        message = (
            f"the resolver `{resolver}` is not followed: the {kind} `{name}` in the files is used, whatever its version"
        )
        reference.note("resolver", message)
        return name
    message = f"the resolver `{resolver}` is not followed; import the file with the {kind} together with this one"
    reference.gap("resolver", message)
    return None


class Catalog:
    """The definitions in the files to which an object of one namespace can refer, by name."""

    def __init__(self, documents: Sequence[Object], namespace: str) -> None:
        """Find the definitions.

        Args:
            documents: All objects in the files.
            namespace: The namespace; empty for that of the kubeconfig.
        """
        self._found = visible(documents, namespace)
        self.actions: Mapping[str, Object] = {
            name: each.get("spec") or {} for (kind, name), each in self._found.items() if kind == "StepAction"
        }
        """The specs of StepActions."""

    def parts(self, document: Object) -> list[Object]:
        """Return the definitions that an object of the namespace uses, also indirectly."""
        parts: dict[tuple[str, str], Object] = {}
        queue: list[Any] = [document.get("spec")]
        while queue:
            value = queue.pop()
            if isinstance(value, list):
                queue += value
            elif isinstance(value, dict):
                queue += value.values()
                for field, kind in (("taskRef", "Task"), ("pipelineRef", "Pipeline")):
                    if isinstance(value.get(field), dict):
                        key = kind, name_in({"resolver": "", **value[field]})
                        if key in self._found and key not in parts:
                            parts[key] = self._found[key]
                            queue.append(parts[key].get("spec"))
        return list(parts.values())

    def task(self, name: str) -> Object | None:
        """The spec of a Task."""
        return self._spec("Task", name)

    def pipeline(self, name: str) -> Object | None:
        """The spec of a Pipeline."""
        return self._spec("Pipeline", name)

    def _spec(self, kind: str, name: str) -> Object | None:
        found = self._found.get((kind, name))
        return None if found is None else found.get("spec") or {}


@dataclass(slots=True)
class RunContext:
    """The environment of the tasks of a run."""

    workspaces: Mapping[str, WorkspaceBinding] = field(default_factory=dict)
    pod: Object = field(default_factory=dict)
    pods: Mapping[str, Object] = field(default_factory=dict)
    """Fields of the pod spec, by the name of the task in the pipeline."""
    timeouts: Mapping[str, str] = field(default_factory=dict)
    claims: list[Object] = field(default_factory=list)
    """The workspaces of Perdure."""
    name: str = "imported"
    """The name of the object, with which those of its pipelines in pipelines begin."""
    within: frozenset[str] = frozenset()
    """The Workflows of pipelines that contain this one."""


def limit(of: Fields, name: str) -> str | None:
    """Take a limit: None without one, `NO_LIMIT` for zero."""
    text = of.text(name)
    try:
        return None if text is None else go_duration(text) or NO_LIMIT
    except ValueError as error:
        of.gap(name, str(error))
        return None


class Pipeline:
    """Converts one pipeline: its tasks become activities and steps."""

    def __init__(self, catalog: Catalog, context: RunContext, report: ConversionReport) -> None:
        self._catalog = catalog
        self._context = context
        self._report = report
        self._names = Names()
        self._values: Mapping[str, Any] = {}
        """The parameters of the run whose values are known."""
        self._workspace_names: set[str] = set()
        self._skippable: set[str] = set()
        """The tasks that may be skipped."""
        self.activities: list[Object] = []
        self.blocks: list[Object] = []
        self.children: dict[str, Object] = {}
        """The specs of the Workflows of pipelines in this one, by name."""

    def build(self, spec: Fields, name: str, values: Mapping[str, Any]) -> Object:
        """Make the definition.

        Args:
            spec: The spec of the pipeline.
            name: Its name.
            values: The parameters whose values are known.
        """
        declared = spec.parts("params")
        names = frozenset(
            {
                *(str(each.data.get("name")).replace(".", "\0") for each in declared),
                *(key.replace(".", "\0") for key in values),
            }
        )
        known = {**{str(each.data.get("name")): each.data.get("default") for each in declared}, **values}
        for each in spec.parts("workspaces"):
            self._workspace_names.add(each.text("name") or "")
            each.drop("description", "optional")
            each.done({})
        bound = {key: volume.is_bound for key, volume in self._context.workspaces.items()}
        lazy = {key: each for key, each in known.items() if key not in values and VARIABLE.search(str(each))}
        lazy |= {key: each for key, each in values.items() if VARIABLE.search(str(each))}
        refused = refused_references(known, lazy, spec, "params")
        lazy = {key: each for key, each in lazy.items() if key not in refused}
        scope = PipelineScope("input", names, name, bound=bound, composed=lazy, keys=_keys(declared, known))
        self._values = {key: each for key, each in values.items() if key not in lazy}
        tasks = spec.parts("tasks")
        steps, scope = self._tasks(tasks, scope, known)
        results = {each.text("name") or "": self._result(each, scope) for each in spec.parts("results")}
        final = spec.parts("finally")
        definition: Object = {"workspaces": self._context.claims} if self._context.claims else {}
        if len(steps) > 1 or len(final) > 1 or any("forEach" in step for step in steps):
            definition["failurePolicy"] = FailurePolicy.FINISH_RUNNING.value
        definition |= {"activities": self.activities, "steps": steps}
        handler = self._finally(final, scope, known) if final else {}
        if self.blocks:
            definition["blocks"] = self.blocks
        spec.drop("description", "displayName")
        spec.done({})
        return {**definition, **handler, **({"output": results} if results else {})}

    def _result(self, result: Fields, scope: PipelineScope) -> Any:
        value = result.take("value", "")
        result.drop("description", "type")
        result.done({})
        return self._value(value, result.path, scope)

    def _tasks(self, tasks: list[Fields], scope: PipelineScope, known: Object) -> tuple[list[Object], PipelineScope]:
        steps: Object = {}
        skippable = self._skippable
        present: dict[str, set[str]] = {}  # what must be true so that a task, and all before it, have their results
        pending = {str(each.data.get("name")): each for each in tasks}
        for each in tasks:
            for name in set(map(str, each.data.get("runAfter") or [])) - pending.keys():
                each.gap("runAfter", f"there is no task `{name}`; define it")
        cycle = cycle_of({name: sorted(_needs(each)) for name, each in pending.items()})
        if cycle:
            message = f"{circle(cycle, 'needs')}; none of them would ever run: remove one of the dependencies"
            pending[cycle[0]].gap("runAfter", message)
        while pending:
            ready = [name for name, each in pending.items() if not _needs(each) & set(pending)] or list(pending)[:1]
            for name in ready:
                task = pending.pop(name)
                read = results_read(task.data)
                if "when" in task or read & skippable:
                    skippable.add(name)
                # A task that is skipped for a missing result also skips those after it; one skipped by its `when` does not.
                present[name] = {
                    *(f"{member('steps', valid_name(each))}.status != 'Skipped'" for each in read & skippable),
                    *(each for before in _needs(task) for each in present.get(before, ())),
                }
                guards = sorted(present[name])
                if guards:
                    skippable.add(name)
                needs = [valid_name(each) for each in sorted(_needs(task)) if each in steps]
                step, ran = self._task(task, scope, known, guards)
                steps[name] = {"name": step.pop("name"), "needs": needs, **step}
                scope = replace(scope, tasks={**scope.tasks, name: ran})
        return list(steps.values()), scope

    def _finally(self, tasks: list[Fields], scope: PipelineScope, known: Object) -> Object:
        """Return the block of the final tasks; values of other tasks that they read are its parameters."""
        text = str([each.data for each in tasks])
        used = [name for name in scope.tasks if f"tasks.{name}." in text]
        inner = {name: replace(scope.tasks[name], step=member("params", valid_name(name))) for name in used}
        if re.search(r"\$\(tasks\.[-\w]+\.reason\)", text):
            message = "the reason of a task is Succeeded, Failed, FailureIgnored, or None, also after a timeout"
            self._report.note("spec.pipelineSpec.finally", message)
        reads_status = "$(tasks.status)" in text and bool(self._skippable)
        here = replace(scope, tasks=inner, completed=member("params", _ALL) if reads_status else scope.completed)
        steps = []
        for task in tasks:
            guards = [f"{inner[each].step}.output != null" for each in sorted(results_read(task.data)) if each in inner]
            if task.take("runAfter"):
                task.gap("runAfter", "final tasks run at the same time; put a task that needs another one into `tasks`")
            step, _ = self._task(task, here, known, guards)
            steps.append({"name": step.pop("name"), "needs": [], **step})
        name = self._names.fresh("finally")
        self.blocks.append({"name": name, "steps": steps})
        value: Object = {}
        for each in map(valid_name, used):
            value[each] = {
                "status": "${" + _status(each) + "}",
                "output": "${" + f"{_optional(each)}.?output.orValue(null)" + "}",
            }
        if reads_status:
            skipped = [
                f"{_optional(valid_name(each))}.?status.orValue('') == 'Skipped'" for each in sorted(self._skippable)
            ]
            value[_ALL] = "${" + " || ".join(skipped) + " ? 'Completed' : 'Succeeded'}"
        limit = self._context.timeouts.get("finally", "1h")
        return {"finally": {"block": name, **({"input": value} if value else {}), "timeout": limit}}

    def _task(
        self, task: Fields, scope: PipelineScope, known: Object, guards: list[str]
    ) -> tuple[Object, FinishedTask]:
        name = task.text("name") or "task"
        step = valid_name(name)
        made: Object = {"name": step}
        loop, names = _loop(task, scope)
        retries = max(0, min(int(task.take("retries", 0)), MAX_COUNT - 1))
        scope = replace(scope, retries=retries)
        inner = replace(scope, items=frozenset(each.replace(".", "\0") for each in names))
        try:
            found = [*guards, *conditions(task, scope.resolve)]
        except UntranslatableError as error:
            task.gap("when", str(error))
            found = guards
        if found:
            made["when"] = "${" + " && ".join(found) + "}"
        if loop is not None:
            made["forEach"] = {"items": loop}
        parameters = {each.text("name") or "": each.take("value", "") for each in task.parts("params")}
        fixed = {key: each for key, each in self._values.items() if key not in names}
        parameters = {key: substituted(each, fixed) if any_spread(each) else each for key, each in parameters.items()}
        task_limit = limit(task, "timeout")
        caught = task.take("onError", "stopAndFail") == "continue"
        if task.data.keys() & {"pipelineRef", "pipelineSpec"}:
            value = {key: self._value(each, task.at("params"), inner) for key, each in parameters.items()}
            value |= _of_items(loop, names, {})
            call, results = self._child(task, name)
            made |= {"childWorkflow": {**call, **({"input": value} if value else {})}} if call else _not_imported(name)
            if "childWorkflow" in made:
                made["childWorkflow"] |= _limits_of_child(retries, task_limit)
            made |= {"catch": [{"call": {"block": self._caught(), "input": "${error.type}"}}]} if caught else {}
            task.drop("runAfter", "description", "displayName")
            task.done(_ADVICE)
            finished = FinishedTask(member("steps", step), results, is_loop=loop is not None, is_caught=caught)
            return made, replace(finished, is_pipeline=True, is_unknown=not call)
        context = TaskContext(
            task=name,
            step=name,
            values={**known, **{key: value for key, value in parameters.items() if not VARIABLE.search(str(value))}},
            workspaces=self._workspaces(task),
            pod={**self._context.pod, **self._context.pods.get(name, {})},
            actions=self._catalog.actions,
            lengths={
                key: len(value)
                for key, value in parameters.items()
                if isinstance(value, list) and not any(map(is_spread, value))
            },
            retries=retries,
            timeout=self._context.timeouts.get(name) or task_limit,
        )
        spec = self._spec(task, context)
        if spec is not None and not spec.data.get("steps"):
            spec.gap("steps", "must have a step; a task runs at least one container")
            spec = None
        if spec is None:
            made |= _not_imported(name)
            return made, FinishedTask(member("steps", step), (), is_unknown=True)
        builder = TaskBuilder(spec, context)
        activity = builder.build()
        self.activities.append({"#": f"task {context.task}", **activity.definition})
        parameters = {key: _with_propagated(key, each, known) for key, each in parameters.items()}
        value = {key: self._value(each, task.at("params"), inner) for key, each in parameters.items()}
        defaults = self._defaults(activity.defaults, {**parameters, **dict.fromkeys(names, None)}, task, inner)
        value = {**{key: each for key, each in defaults.items() if key not in names}, **value}
        value |= _of_items(loop, names, activity.defaults)
        for key, path in activity.captured.items():
            if key not in value or path[0] != "params":  # what the task gets has precedence over what it inherits
                value[key] = self._reference(path, task, inner)
        for key, param in builder.params.items():
            mistake = mistake_of_type(param.data, parameters[key]) if key in parameters else ""
            if mistake:
                task.gap("params", f"`{key}` {mistake}")
        for missing in [each for each in builder.params if each not in value]:
            task.gap("params", f"the parameter `{missing}` of the task has no value; pass one, or declare a default")
        made["activity"] = {"name": activity.definition["name"], **({"input": value} if value else {})}
        if caught:
            made["catch"] = [{"call": {"block": self._caught(), "input": "${error.type}"}}]
        task.drop("runAfter", "description", "displayName")
        task.done(_ADVICE)
        return made, FinishedTask(member("steps", step), activity.results, is_loop=loop is not None, is_caught=caught)

    def _child(self, task: Fields, name: str) -> tuple[Object, tuple[str, ...]]:
        """Add the Workflow of a pipeline in this one.

        Returns:
            The fields of its call, and the names of its results; empty if it is not imported.
        """
        of = take_name(
            task.part("pipelineRef"), "pipeline", found=lambda name: self._catalog.pipeline(name) is not None
        )
        if "workspaces" in task:
            task.drop("workspaces")
            task.gap("workspaces", "a pipeline in a pipeline is a run of its own, with workspaces of its own")
        if of is None:
            return {}, ()
        found = self._catalog.pipeline(of) if of else None
        if of and found is None:
            task.gap("pipelineRef.name", f"the pipeline `{of}` is in none of the files; import the files together")
            return {}, ()
        spec = task.part("pipelineSpec") if found is None else Fields(found, f"Pipeline/{of}: spec", self._report)
        results = tuple(str(each.get("name")) for each in spec.data.get("results") or [])
        child = of or valid_name(f"{self._context.name}-{name}").lower().replace("_", "-")
        if child in self._context.within:
            task.gap("pipelineRef.name", f"the pipeline `{of}` contains itself, which Tekton rejects")
            return {}, ()
        if child not in self.children:
            context = RunContext(pod=self._context.pod, name=child, within=self._context.within | {child})
            definition, more = workflow_of(self._catalog, context, spec, child)
            self.children |= {**more, child: definition}
        return {"workflow": {"name": child}}, results

    def _defaults(
        self, declared: Mapping[str, Any], passed: Mapping[str, Any], task: Fields, scope: PipelineScope
    ) -> Object:
        """Return the defaults of the parameters of a task; those that refer to others are composed from what it is given."""
        lazy = {key: each for key, each in declared.items() if key not in passed and params_read(each)}
        refused = refused_references({**declared, **passed}, lazy, task, "params")
        kept = {key: each for key, each in declared.items() if key not in refused}
        lazy = {key: each for key, each in lazy.items() if key not in refused}
        if not lazy:
            return kept
        known = {key: each for key, each in {**declared, **passed}.items() if each is not None and key not in refused}
        made = composed(known, lazy)
        return {
            **kept,
            **{key: self._value(made[key], task.at("params"), scope) for key in lazy},
        }

    def _reference(self, path: tuple[str, ...], task: Fields, scope: PipelineScope) -> Any:
        try:
            return "${" + scope.resolve(path) + "}"
        except UntranslatableError as error:
            task.gap("", str(error))
            return ""

    def _caught(self) -> str:
        name = self._names.of("caught")
        if not any(each["name"] == name for each in self.blocks):
            self.blocks.append(
                {"name": name, "steps": [{"name": "go-on", "return": {"output": {CAUGHT: "${params}"}}}]}
            )
        return name

    def _spec(self, task: Fields, context: TaskContext) -> Fields | None:
        """Take the spec of a task."""
        if "taskSpec" in task:
            spec = task.part("taskSpec")
            if "apiVersion" in spec:
                task.gap("taskSpec", "custom tasks have no counterpart; write the task as an activity")
                return None
            _propagate(spec, self._context.workspaces)
            return spec
        name = take_name(task.part("taskRef"), "task", found=lambda name: self._catalog.task(name) is not None)
        if name is None:
            return None
        found = self._catalog.task(name)
        if found is None:
            task.gap("taskRef.name", f"the task `{name}` is in none of the files; import the files together")
            return None
        context.task = name
        return Fields(found, f"Task/{name}: spec", self._report)

    def _workspaces(self, task: Fields) -> Object:
        bindings: Object = {}
        for each in task.parts("workspaces"):
            name, of = each.text("name") or "", each.text("workspace")
            if (of or name) not in {*self._workspace_names, *self._context.workspaces}:
                each.gap("", f"there is no workspace `{of or name}` in the pipeline; declare it")
            volume = self._context.workspaces.get(of or name)
            path = each.text("subPath") or ""
            each.done({})
            if volume is not None:
                sub_path = "/".join(part for part in (volume.sub_path, path) if part)
                if VARIABLE.search(sub_path) and not volume.workspace:
                    each.gap("subPath", "must be known before the run; write it here")
                bindings[name] = WorkspaceBinding(volume.source, sub_path, volume.workspace)
        embedded = "taskSpec" in task
        return {**self._context.workspaces, **bindings} if embedded else bindings

    def _value(self, value: Any, path: str, scope: PipelineScope) -> Any:
        if isinstance(value, list):
            if any(map(is_spread, value)):
                return self._spliced(value, path, scope)
            return [self._value(each, path, scope) for each in value]
        if isinstance(value, dict):
            return {key: self._value(each, path, scope) for key, each in value.items()}
        try:
            return translated(as_text(value), scope.resolve)
        except UntranslatableError as error:
            self._report.gap(path, str(error))
            return ""

    def _spliced(self, values: list[Any], path: str, scope: PipelineScope) -> Any:
        try:
            return "${" + list_of(values, scope.resolve) + "}"
        except UntranslatableError as error:
            self._report.gap(path, str(error))
            return []


def _keys(declared: list[Fields], known: Object) -> dict[str, frozenset[str]]:
    """Return the keys of the parameters that are objects."""
    found: dict[str, frozenset[str]] = {}
    for each in declared:
        name = str(each.data.get("name"))
        value = known.get(name)
        keys = [*(each.data.get("properties") or {}), *(value if isinstance(value, dict) else ())]
        found |= {name: frozenset(keys)} if keys else {}
    return found


def refused_references(values: Mapping[str, Any], lazy: Mapping[str, Any], of: Fields, field: str) -> list[str]:
    """Report parameters that refer to each other in a circle, or double each other, and return them.

    Args:
        values: All values.
        lazy: Those that refer to others.
        of: What has the parameters.
        field: Its field with them.
    """
    refers = {key: params_read(each) for key, each in lazy.items()}
    refused = cycle_of(refers)
    if refused:
        of.gap(field, f"{circle(refused)}; give one of them a value of its own")
    elif refused := too_long(values, refers):
        of.gap(field, f"`{refused[0]}` with what it refers to is too long; give it a value of its own")
    return refused


def workflow_of(catalog: Catalog, context: RunContext, spec: Fields, name: str) -> tuple[Object, Mapping[str, Object]]:
    """Return the spec of the Workflow of a pipeline, and those of the Workflows that it runs, by name."""
    declared = spec.data.get("params") or []
    lazy = {str(each.get("name")) for each in declared if VARIABLE.search(str(each.get("default")))}
    defaults = {
        str(each.get("name")): each["default"]
        for each in declared
        if "default" in each and str(each.get("name")) not in lazy
    }
    required = [str(each.get("name")) for each in declared if "default" not in each]
    properties = {
        str(each.get("name")): {
            **({"type": kind} if (kind := kind_of(each)) in {"array", "object"} else {}),  # texts may look like numbers
            **{key: each[key] for key in ("description", "enum") if each.get(key)},
        }
        for each in declared
    }
    schema: Object = {"type": "object", "properties": {key: value for key, value in properties.items() if value}}
    schema |= {"required": required} if required else {}
    schema = {key: value for key, value in schema.items() if value}
    declaration: Object = {"schema": schema} if len(schema) > 1 else {}
    declaration |= {"default": texts(defaults)} if defaults or lazy else {}
    pipeline = Pipeline(catalog, context, spec.report)
    definition = pipeline.build(spec, name, {})
    return {**({"input": declaration} if declaration else {}), **definition}, pipeline.children


def texts(value: Any) -> Any:
    """Convert parameters as in Tekton, to texts, and lists and maps of texts."""
    if isinstance(value, list):
        return [texts(each) for each in value]
    if isinstance(value, dict):
        return {key: texts(each) for key, each in value.items()}
    return as_text(value)


def _not_imported(name: str) -> Object:
    return {"fail": {"type": "NotImported", "message": f"the task `{name}` was not imported"}}


def _limits_of_child(retries: int, timeout: str | None) -> Object:
    """Return the fields of a call for the retries and the timeout of its task."""
    exponential = {"initialInterval": "1s", "maximumAttempts": retries + 1}
    fields: Object = {"retryPolicy": {"exponential": exponential}} if retries else {}
    return fields | ({"executionTimeout": timeout} if timeout and timeout != NO_LIMIT else {})


def _status(step: str) -> str:
    """Return the expression of the status of a task as Tekton has it: one that was stopped has failed."""
    status = f"{_optional(step)}.?status.orValue('None')"
    return f"{status} == 'Cancelled' ? 'Failed' : {status} == 'Skipped' ? 'None' : {status}"


def _optional(step: str) -> str:
    """Return the expression of a step that may not have run."""
    return f"steps.?{step}" if step.isidentifier() else f"steps[?'{step}']"


def _loop(task: Fields, scope: PipelineScope) -> tuple[Any, frozenset[str]]:
    """Take the matrix of a task: its items, and the parameters that they set."""
    if "matrix" not in task:
        return None, frozenset()
    matrix = task.part("matrix")
    try:
        return items(matrix, scope.resolve)
    except UntranslatableError as error:
        task.gap("matrix", str(error))
        return None, frozenset()
    finally:
        matrix.done({})


def _of_items(loop: Any, names: frozenset[str], defaults: Mapping[str, Any]) -> Object:
    """Return the parameters that a matrix sets; items without a parameter use its default."""
    always = frozenset.intersection(*map(frozenset, loop)) if isinstance(loop, list) and loop else names
    made: Object = {}
    for name in sorted(names):
        optional = f"item.?{name}.orValue({literal(defaults.get(name, ''))})" if name.isidentifier() else ""
        made[name] = "${" + (member("item", name) if name in always or not optional else optional) + "}"
    return made


def _with_propagated(name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """Return an object parameter with the additional fields of the parameter of the pipeline with the same name."""
    declared = known.get(name)
    if not isinstance(value, dict) or not isinstance(declared, dict):
        return value
    return {**{key: f"$(params.{name}.{key})" for key in declared if key not in value}, **value}


def _propagate(spec: Fields, workspaces: Mapping[str, WorkspaceBinding]) -> None:
    """Declare the workspaces of the run that an embedded task uses without a declaration."""
    declared = spec.data.get("workspaces") or []
    names = {str(each.get("name")) for each in declared}
    text = str(spec.data)
    missing = [{"name": name} for name in workspaces if name not in names and f"$(workspaces.{name}." in text]
    if missing:
        spec.data["workspaces"] = [*declared, *missing]


def _needs(task: Fields) -> set[str]:
    after = task.data.get("runAfter") or []
    return {*map(str, after), *results_read({key: each for key, each in task.data.items() if key != "runAfter"})}


def conditions(task: Fields, resolve: Resolve) -> list[str]:
    """Take the conditions of a task, which must all be true.

    Raises:
        UntranslatableError: A condition has no counterpart.
    """
    return [_one(each, resolve) for each in task.parts("when")]


_CEL_TEXT: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")


def _cel(text: str, resolve: Resolve) -> str:
    """Translate a condition in CEL: variables in its texts are replaced, as Tekton does before it evaluates the condition.

    Raises:
        UntranslatableError: A variable has no counterpart.
    """
    if VARIABLE.search(_CEL_TEXT.sub("", text)):
        return condition("{{=" + with_tags(text) + "}}", resolve)

    def joined(found: re.Match[str]) -> str:
        quote, inner = found[0][0], found[0][1:-1]
        parts, end = [], 0
        for variable in VARIABLE.finditer(inner):
            parts += [f"{quote}{inner[end : variable.start()]}{quote}", f"string({resolve(path_of(variable[1]))})"]
            end = variable.end()
        parts.append(f"{quote}{inner[end:]}{quote}")
        kept = [each for each in parts if each != quote * 2] or parts
        return kept[0] if len(kept) == 1 else f"({' + '.join(kept)})"

    return _CEL_TEXT.sub(joined, text)


def _one(when: Fields, resolve: Resolve) -> str:
    cel = when.text("cel")
    if cel is not None:
        return _cel(cel, resolve)
    value = text_of(when.take("input", ""), resolve)
    operator = when.text("operator")
    values = when.take("values", [])
    when.done({})
    if operator not in {"in", "notin"}:
        raise UntranslatableError(f"the operator `{operator}` is not `in` or `notin`")
    made = f"{value} in {list_of(values if isinstance(values, list) else [values], resolve)}"
    return made if operator == "in" else f"!({made})"


def items(matrix: Fields, resolve: Resolve) -> tuple[Any, frozenset[str]]:
    """Return the items of a matrix, and the parameters that they set.

    Raises:
        UntranslatableError: The matrix has no counterpart.
    """
    params = {each.text("name") or "": each.take("value", []) for each in matrix.parts("params")}
    included = [
        {param.text("name") or "": param.take("value", "") for param in each.parts("params")}
        for each in matrix.parts("include")
    ]
    names = frozenset({*params, *(name for each in included for name in each)})
    for name, value in params.items():
        if not isinstance(value, list | str):
            raise UntranslatableError(f"the values of `{name}` must be a list, not {format_value(value)}")
    if all(isinstance(value, list) and not VARIABLE.search(str(value)) for value in params.values()):
        if math.prod(map(len, params.values())) > MAX_ITEMS:
            raise UntranslatableError(f"a loop has at most {MAX_ITEMS} items; let each task do a part of the work")
        combined = _combined(params, included)
        return [{name: translated(as_text(value), resolve) for name, value in each.items()} for each in combined], names
    if included:
        raise UntranslatableError("`include` needs parameters whose values are written out")
    return "${" + _product(params, resolve) + "}", names


def _combined(params: Object, included: list[Object]) -> list[Object]:
    """Return all combinations. An `include` entry extends the matching ones, or becomes a separate one."""
    combined = (
        [dict(zip(params, values, strict=True)) for values in itertools.product(*params.values())] if params else []
    )
    for each in included:
        fixed = {name: value for name, value in each.items() if name in params}
        fitting = [one for one in combined if fixed and all(one[name] == value for name, value in fixed.items())]
        if fitting:
            for one in fitting:
                one.update({name: value for name, value in each.items() if name not in params})
        elif params and not fixed:
            for one in combined:
                one.update(each)
        else:
            combined.append(dict(each))
    return combined


def _product(params: Object, resolve: Resolve) -> str:
    fields = ", ".join(f"{literal(name)}: v{i}" for i, name in enumerate(params))
    made = f"{{{fields}}}"
    for i, value in reversed(list(enumerate(params.values()))):
        inner = f"{_array(value, resolve)}.map(v{i}, {made})"
        made = inner if i == len(params) - 1 else f"{inner}.flatten()"
    return made


def _array(value: Any, resolve: Resolve) -> str:
    """Return the expression of a list of values, or of a variable with a list."""
    if isinstance(value, str):
        found = VARIABLE.fullmatch(value)
        if found is None:
            raise UntranslatableError(f"`{value}` is not a list")
        return tag(".".join(path_of(found[1])), resolve)
    return list_of(value, resolve)
