"""Converts a workflow of Argo to a definition: activities, blocks, and main steps.

A list of steps with retries, and a daemon with locks, become separate Workflows: a child workflow can be retried, and holds its
locks until it has ended. Hooks of the workflow become steps that run when a run starts, and the handler of its end.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from perdure.api.kinds.workflowlimit import MAX_STEP_LIMITS
from perdure.api.labels import RUN_LABEL
from perdure.importing.argo.artifacts import (
    global_outputs,
    of_block,
    optional_outputs,
    passed_artifacts,
    without_source,
)
from perdure.importing.argo.containers import escaped
from perdure.importing.argo.images import EntryPoints
from perdure.importing.argo.library import LIBRARY, Library, Templates, default_of, reads_json, structured
from perdure.importing.argo.limits import limits
from perdure.importing.argo.retries import repeats_only_errors, retries_of_child, timeout
from perdure.importing.argo.scope import Scope, ServiceScope, Shape, WorkflowFacts, artifact_field
from perdure.importing.argo.steps import Blocks, CallTarget, Definition, FlowBuilder, output_of
from perdure.importing.argo.templates import (
    ActivityBuilder,
    PodDefaults,
    deletion,
    group_service,
    has_required_outputs,
    service,
)
from perdure.importing.expressions import TAG
from perdure.importing.reader import ConversionReport, Fields, Object, as_text, walk
from perdure.importing.writer import Names, valid_name

if TYPE_CHECKING:
    from collections.abc import Callable

_UNSERVED: Final = {
    "data": "list the files in an activity that returns them, and use `forEach`",
    "plugin": "write the step as an activity",
}
_ADVICE: Final = {
    "memoize": "only activities are cached; set it on the templates with containers",
    "metrics": "Perdure has its own metrics; see docs/reference/metrics.md",
    "metadata": "only pods have labels; set it on the templates with containers",
}
_STEP_FIELDS: Final = ("timeout", "activeDeadlineSeconds", "retryStrategy", "synchronization")
"""The fields of a list of steps that become fields of the step that calls it."""
_RESULT: Final = re.compile(r"""(?:steps|tasks)(?:\.([-\w]+)|\[\\?['"]([-\w]+)\\?['"]\])\.outputs\.result""")
_PARSED: Final = re.compile(
    r"""(?:from[jJ](?:SON|son)|jsonpath)\(\s*[\w.'"\[\]-]*?parameters(?:\.|\[\\?['"])([-\w]+)"""
)
_LOOPED: Final = re.compile(r"parameters(?:\.|\[\\?['\"])([-\w]+)")


class DefinitionBuilder:
    """Converts the spec of a workflow."""

    def __init__(
        self,
        spec: Object,
        path: str,
        *,
        workflow: WorkflowFacts,
        pods: PodDefaults,
        library: Library,
        report: ConversionReport,
        tells_errors_apart: bool = False,
    ) -> None:
        """`tells_errors_apart`: whether the type of its failure tells whether its status in Argo is Error."""
        self._spec = spec
        self._path = path
        self._workflow = workflow
        self._pods = pods
        self.children: list[tuple[str, str, Object]] = []
        """The kinds, names, and specs of the objects that the definition needs."""
        self._library = library
        self._report = report
        self._templates = Templates(spec, path, library, report)
        self._targets: dict[tuple[str, str], CallTarget] = {}
        self._pending: list[Callable[[], None]] = []
        self._activities: list[Object] = []
        self.blocks = Blocks()
        self._activity_names = Names()
        self._signals = Names()
        text = json.dumps([spec, list(library.texts())])
        self._printed = {found[1] or found[2] for found in _RESULT.finditer(text)}
        looped = [value for where, value in walk([spec, *library.texts()], "") if where.endswith(".withParam")]
        self._structured = frozenset(
            {found[1] for found in _PARSED.finditer(text)}
            | {each for value in looped for each in _LOOPED.findall(value)}
        )
        self._parses = reads_json(spec, library)
        self._limit: int | None = None
        self._apart = tells_errors_apart

    def build(self, spec: Fields) -> Object:
        """Make the definition.

        Args:
            spec: The spec; takes `entrypoint`, `onExit`, `hooks`, and the limits of the run.
        """
        limit = spec.take("parallelism")
        self._limit = limit if isinstance(limit, int) else None
        entry = self._reference(spec, spec.text("entrypoint") or "", "entrypoint")
        if entry is not None:
            self._workflow = replace(self._workflow, errs=self._may_err(entry, frozenset()))
        definition: Object = {}
        main = self._main(entry)
        hooks = spec.part("hooks")
        main["steps"] += starting_steps(self, hooks, self._workflow)
        main["steps"] += self._budget(spec)
        handler = exit_handler(self, spec, hooks, self._workflow)
        while self._pending:
            self._pending.pop(0)()
        if self._activities:
            definition["activities"] = self._activities
        definition |= main
        if self.blocks.entries:
            definition["blocks"] = self.blocks.entries
        return definition | handler

    def _budget(self, spec: Fields) -> list[Object]:
        """Return the step that creates the PodDisruptionBudget of a workflow, which its end deletes."""
        if "podDisruptionBudget" not in spec:
            return []
        budget, account = spec.take("podDisruptionBudget"), self._workflow.constants["serviceAccountName"]
        spec.note(
            "podDisruptionBudget",
            f"a step creates it: the ServiceAccount `{account}` must be allowed to; it is deleted with the run",
        )
        selector = {"selector": {"matchLabels": {RUN_LABEL: "${run.name}"}}}
        name = self._activity_names.fresh("pod-disruption-budget")
        manifest = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "${run.name}"},
            "spec": {**selector, **escaped(budget)},
        }
        work = {"action": "Create", "serviceAccountName": account, "owned": True, "manifest": manifest}
        self._activities.append({"name": name, "startToCloseTimeout": "5m", "resource": work})
        return [{"name": name, "needs": [], "activity": {"name": name}}]

    def _reference(self, spec: Fields, name: str, field: str) -> tuple[str, str] | None:
        key = self._templates.peek("", {"template": name})
        if key is None:
            spec.gap(field, f"there is no template `{name}`; define it" if name else "must be set: the first template")
        return key

    def _main(self, key: tuple[str, str] | None) -> Object:
        if key is None:
            return {"steps": []}
        data = self._templates.fields(*key).data
        inputs = (data.get("inputs") or {}).get("parameters") or []
        values = {str(each.get("name")): default_of(each, self._library) for each in inputs}
        simple = all(name in self._workflow.parameters for name in values)
        simple = simple and not any(data.get(name) for name in _STEP_FIELDS) and not self._apart
        if simple and ("steps" in data or "dag" in data) and not self._templates.is_called(key[1]):
            return self._flow(key, self._templates.fields(*key), "input")
        source = Fields(
            {"name": key[1], "template": key[1], **_entry_arguments(values, passed_artifacts(data), self._workflow)},
            "entrypoint",
            self._report,
        )
        flow = FlowBuilder(self, key[0], _outermost(self._workflow), self._limit)
        flow.steps(Fields({"steps": [[source.data]]}, "entrypoint", self._report))
        if self._apart:
            flow.converted[0]["catch"] = self.blocks.errors_apart()
        return {"steps": flow.converted}

    def target(self, home: str, step: Fields) -> CallTarget:
        """Return the target of a step."""
        key = self._templates.key(home, step)
        if key is None:
            return self.blocks.missing("missing")
        if key not in self._targets:
            self._targets[key] = self._foreign(key, step) if key[0].startswith(LIBRARY) else self._convert(key)
        return self._targets[key]

    def starts_daemon(self, home: str, step: Object) -> bool:
        """Whether a step starts a daemon with a container."""
        key = self._templates.key(home, Fields(dict(step), "", ConversionReport()))
        data = {} if key is None or key[0].startswith(LIBRARY) else self._templates.fields(*key).data
        return bool(data.get("daemon") and data.keys() & {"container", "script"} and not data.get("synchronization"))

    def repeats(self, home: str, step: Object) -> bool:
        """Whether the template of a step has a `retryStrategy`."""
        key = self._templates.key(home, Fields(dict(step), "", ConversionReport()))
        return key is not None and not key[0].startswith(LIBRARY) and "retryStrategy" in self._templates.fields(*key)

    def service(self, home: str, step: Fields, scope: Scope, name: str) -> Object | None:
        """Return the service of the list of steps for a step that starts a daemon; None if it needs a Pod of its own."""
        found = ConversionReport()
        key = self._templates.key(home, Fields(dict(step.data), step.path, found))
        if key is None:
            return None
        template = self._templates.fields(*key)
        inputs = (template.data.get("inputs") or {}).get("parameters") or []
        values = {str(each.get("name")): default_of(each, self._library) for each in inputs}
        passed = (step.data.get("arguments") or {}).get("parameters") or []
        values |= {str(each.get("name")): each.get("value") for each in passed if str(each.get("name")) in values}
        if any(each is None for each in values.values()) or (step.data.get("arguments") or {}).get("artifacts"):
            return None
        texts = {key_: as_text(value) for key_, value in values.items()}
        source = Fields(template.data, template.path, found)
        made = group_service(name, source, found, ServiceScope(scope, texts), self._pods)
        if made is None or found.gaps:
            return None
        for note in found.notes:
            self._report.note(note.path, note.message)
        return made

    def _foreign(self, key: tuple[str, str], step: Fields) -> CallTarget:
        """Return the target of a template that is in none of the files: a block of the Workflow that its file becomes."""
        workflow, wanted = key[0].removeprefix(LIBRARY), valid_name(key[1])
        name = self.blocks.names.of(*key)
        step.note(
            "templateRef",
            f"is copied from the Workflow `{workflow}`, which is in none of the files, when a run starts: import its file, too",
        )
        self.blocks.entries.append({"name": name, "from": {"workflow": workflow, "block": wanted}})
        return CallTarget(name, "block", Shape(is_block=True, is_foreign=True))

    def library(self, fields: Fields) -> Object:
        """Make a definition without steps: a block for each template, which other definitions copy.

        Args:
            fields: The spec; takes what cannot be copied.
        """
        for name in ("parallelism", "onExit", "hooks"):
            if fields.take(name) is not None:
                fields.gap(name, "is not copied with a template; set it on the workflows that use it")
        for i, each in enumerate(self._spec.get("templates") or []):
            name, path = str(each.get("name")), f"{self._path}.templates[{i}]"
            target = self.target("", Fields({"template": name, "name": name}, path, self._report))
            if (target.kind, target.name) != ("block", valid_name(name)):
                self._report.gap(
                    path, "cannot be copied by itself; import its file together with the workflows that use it"
                )
                continue
            entry = next(block for block in self.blocks.entries if block["name"] == target.name)
            computed = [
                key for key, default in target.inputs.items() if default is not None and TAG.search(as_text(default))
            ]
            if computed:
                self._report.gap(f"{path}.inputs", f"a default with tags is not copied; pass `{'`, `'.join(computed)}`")
            defaults: Object = {
                key: structured(as_text(value), self._parses)
                for key, value in target.inputs.items()
                if value is not None and key not in computed
            }
            defaults |= {artifact_field(key): None for key, optional in target.artifacts.items() if optional}
            if defaults:
                entry["params"] = {"default": defaults}
        while self._pending:
            self._pending.pop(0)()
        activities: Object = {"activities": self._activities} if self._activities else {}
        return {**activities, "blocks": self.blocks.entries}

    def constant(self, value: Any) -> Any:
        """Return the value of a constant parameter; JSON lists and objects are parsed if the workflow reads them as such."""
        return escaped(structured(as_text(value), self._parses))

    # Templates

    def _convert(self, key: tuple[str, str]) -> CallTarget:
        data = self._templates.data(*key)
        inputs = (data.get("inputs") or {}).get("parameters") or []
        defaults = {str(each.get("name")): default_of(each, self._library) for each in inputs}
        for i, each in enumerate(inputs):
            reference = each.get("valueFrom") or {}
            where = f"{self._templates.fields(*key).path}.inputs.parameters[{i}]"
            for name in reference.keys() - {"configMapKeyRef", "default"}:
                self._report.gap(
                    f"{where}.valueFrom.{name}", "has no counterpart in an input; pass the value as an argument"
                )
            if each.get("enum"):
                self._report.note(
                    f"{where}.enum", "is not kept: Argo only offers these values, and does not check them"
                )
            if defaults[str(each.get("name"))] is None and "configMapKeyRef" in reference:
                path = f"{self._templates.fields(*key).path}.inputs.parameters"
                self._report.gap(
                    path, "the ConfigMap is in none of the files; import it together, or pass the value as an input"
                )
                defaults[str(each.get("name"))] = ""
        if key[0] == "" and needs_child(self._templates.fields(*key).data):
            return self._child(key, defaults)
        if data.get("daemon") and data.keys() & {"container", "script"}:
            return self._service(key, defaults)
        if data.keys() & ACTIVITY_KINDS:
            return self._activity(key, defaults)
        if "steps" in data or "dag" in data:
            return self._block(key, defaults)
        if "suspend" in data:
            source = self._templates.fields(*key)
            locks = self._locks(key, source)
            wait = suspended_target(source, self._signals.of(*key))
            return self.blocks.with_limits(locks, replace(wait, inputs=defaults if locks else {}))
        return self._unserved(key)

    def _activity(self, key: tuple[str, str], defaults: Object) -> CallTarget:
        source, data = self._templates.fields(*key), self._templates.data(*key)
        name = self._activity_names.of(*key)
        builder = ActivityBuilder(
            name, source, self._report, self._workflow, self._pods, EntryPoints(self._library.images())
        )
        source.drop("name", "parallelism")
        prints = bool(self._templates.callers(key[1]) & self._printed)
        activity = builder.build(prints=prints, structured=self._structured, library=self._library)
        self.children += [("WorkflowLimit", limit, spec) for limit, spec in activity.limits]
        self._activities.append({"#": f"template {key[1]}", **activity.definition})
        return CallTarget(
            name,
            "activity",
            replace(activity.shape, optional=optional_outputs(data), defaults=self._output_defaults(data)),
            defaults,
            passed_artifacts(data),
            activity.captured,
            activity.global_names,
            global_outputs(data),
            deadline=activity.deadline,
            deadline_in_seconds=activity.deadline_in_seconds,
        )

    def _output_defaults(self, data: Object) -> Object:
        """Return the defaults of the output parameters of a template."""
        found: Object = {}
        for each in (data.get("outputs") or {}).get("parameters") or []:
            name, default = str(each.get("name")), (each.get("valueFrom") or {}).get("default")
            if default is not None:
                found[name] = structured(as_text(default), name in self._structured)
        return found

    def _service(self, key: tuple[str, str], defaults: Object) -> CallTarget:
        """Return the target for a daemon: an activity that creates a Pod."""
        source = self._templates.fields(*key)
        activity = service(self._activity_names.of(*key), source, self._report, self._workflow, self._pods)
        name = activity.definition["name"]
        delete = deletion(self._activity_names.fresh(f"delete-{name}"), activity.definition)
        self._activities += [{"#": f"template {key[1]}", **activity.definition}, delete]
        return CallTarget(
            name, "activity", activity.shape, defaults, captured=activity.captured, deletion=delete["name"]
        )

    def _child(self, key: tuple[str, str], defaults: Object) -> CallTarget:
        """Return the target for a template with retries, or a daemon with locks: a separate Workflow."""
        spec = child_spec(self._spec, key[1])
        source = self._templates.fields(*key)
        errs = self._may_err(key, frozenset())
        child = DefinitionBuilder(
            spec,
            self._path,
            workflow=child_workflow(self._workflow, defaults),
            pods=self._pods,
            library=self._library,
            report=self._report,
            tells_errors_apart=is_list_of_steps(source.data) and repeats_only_errors(source, errs=errs),
        )
        fields = Fields({"entrypoint": key[1]}, self._path, self._report)
        definition = child.build(fields)
        target = child_target(
            self._workflow, key[1], defaults, child.target("", Fields({"template": key[1]}, "", self._report))
        )
        manifests = child_manifests(
            target.name, source, definition, self._library, child_workflow(self._workflow, defaults)
        )
        self.children += [*manifests, *child.children]
        if is_list_of_steps(source.data) and source.data.get("retryStrategy"):
            return replace(target, child=retries_of_child(source, errs=errs))
        return target

    def _block(self, key: tuple[str, str], defaults: Object) -> CallTarget:
        name = self.blocks.names.of(*key)
        source = self._templates.fields(*key)
        outputs = (source.data.get("outputs") or {}).get("parameters") or []
        names = tuple(str(each.get("name")) for each in outputs)
        errs = self._may_err(key, frozenset())
        shape = Shape(names, is_block=True, defaults=self._output_defaults(source.data), errs=errs)
        limit = timeout(source, "activeDeadlineSeconds", "timeout")
        global_names = {str(each.get("name")): str(each["globalName"]) for each in outputs if each.get("globalName")}
        entry: Object = {"#": f"template {key[1]}", "name": name}
        self.blocks.entries.append(entry)
        self._pending.append(lambda: entry.update(self._flow(key, source, "params")))
        artifacts = passed_artifacts(self._templates.data(*key))
        global_artifacts = global_outputs(source.data)
        target = CallTarget(
            name,
            "block",
            shape,
            defaults,
            artifacts,
            global_names=global_names,
            global_artifacts=global_artifacts,
            timeout=limit,
        )
        return self.blocks.with_limits(self._locks(key, source), target)

    def _may_err(self, key: tuple[str, str], above: frozenset[tuple[str, str]]) -> bool:
        """Whether a template can end with the status Error: that of a container, which a DAG passes on, but steps do not."""
        data = self._templates.data(*key)
        tasks = (data.get("dag") or {}).get("tasks") or []
        if key in above or not tasks:
            return bool(data.keys() & {"container", "script", "containerSet"}) and has_required_outputs(data)
        called = (self._templates.peek(key[0], each) for each in tasks)
        return any(each is not None and self._may_err(each, above | {key}) for each in called)

    def _locks(self, key: tuple[str, str], source: Fields) -> list[Object]:
        """Return the `limits` of the step that runs a template, and add the WorkflowLimits."""
        taken, limit_specs = limits(source, self._library, Scope("params", self._workflow, template=key[1]).resolve)
        self.children += [("WorkflowLimit", limit, spec) for limit, spec in limit_specs]
        if len(taken) > MAX_STEP_LIMITS:
            source.gap("synchronization", f"a step can take {MAX_STEP_LIMITS} limits; nest templates for more")
        return taken[:MAX_STEP_LIMITS]

    def _flow(self, key: tuple[str, str], source: Fields, params: str) -> Object:
        """Return the steps and the output of a block or of the main steps."""
        source.drop("name")
        inputs = source.part("inputs")
        declared = frozenset(str(each.get("name")) for each in inputs.data.get("parameters") or [])
        without_source(inputs)
        limit = source.take("parallelism")
        scope = Scope(params, self._workflow, template=key[1], inputs=declared)
        stops_early = source.take("failFast", False) is True
        flow = FlowBuilder(self, key[0], scope, limit or self._limit, stops_early=stops_early)
        if "steps" in source:
            flow.steps(source)
        else:
            flow.dag(source)
        source.drop("annotations")
        concurrency = {"maxConcurrency": limit or self._limit} if flow.is_parallel and (limit or self._limit) else {}
        policy = {"failurePolicy": flow.failure_policy} if flow.is_parallel else {}
        services: Object = {"services": flow.services} if flow.services else {}
        block: Object = {**concurrency, **policy, **services, "steps": flow.converted}
        source_outputs = [
            each for kind in ("parameters", "artifacts") for each in (source.data.get("outputs") or {}).get(kind) or []
        ]
        outputs = source.part("outputs")
        values = {each.text("name") or "": output_of(each, flow.scope) for each in outputs.parts("parameters")}
        values |= of_block(outputs, flow.scope.resolve)
        if params == "input" and any(each.get("globalName") for each in source_outputs):
            source.note("outputs", "a `globalName` of the entrypoint is the output of the run; handlers cannot read it")
        outputs.done({})
        source.drop("nodeSelector", "tolerations", "affinity", "serviceAccountName")  # only pods have them
        source.done(_ADVICE)
        caught = any(
            "catch" in each for each in flow.converted
        )  # the output of the last step would be that of the block
        return {**block, "output": values} if values or caught else block

    def _unserved(self, key: tuple[str, str]) -> CallTarget:
        source = self._templates.fields(*key)
        kind = next((each for each in _UNSERVED if each in source), None)
        if kind is None:
            source.gap("", "has no container, script, steps, dag, or suspend; define what it runs")
            return self.blocks.missing(key[1])
        source.gap(kind, f"is not imported; {_UNSERVED[kind]}")
        outputs = (source.data.get("outputs") or {}).get("parameters") or []
        return self.blocks.missing(key[1], tuple(str(each.get("name")) for each in outputs))


def _outermost(workflow: WorkflowFacts) -> Scope:
    """Return the scope of references outside of all templates."""
    return Scope("input", workflow, inputs=frozenset())


def _entry_arguments(values: Object, artifacts: Iterable[str], workflow: WorkflowFacts) -> Object:
    """Return the arguments of the entrypoint: the parameters and artifacts of the workflow with the same names."""
    parameters = [
        {"name": name, "value": "{{workflow.parameters." + name + "}}"}
        for name in values
        if name in workflow.parameters
    ]
    files = [
        {"name": name, "from": "{{workflow.artifacts." + name + "}}"}
        for name in artifacts
        if name in workflow.artifacts
    ]
    arguments = {key: value for key, value in (("parameters", parameters), ("artifacts", files)) if value}
    return {"arguments": arguments} if arguments else {}


_IMMEDIATELY: Final = "1ms"
"""The duration of a wait of zero seconds, which ends immediately."""


def suspended_target(source: Fields, name: str) -> CallTarget:
    """Convert a template that suspends: steps that call it wait for a signal or a time."""
    source.drop("name")
    for each in source.part("inputs").parts("artifacts"):
        each.gap("", "a step that waits has no artifacts")
    suspend = source.part("suspend")
    limited = "duration" in suspend and not TAG.search(str(suspend.data["duration"]))
    length = timeout(suspend, "duration") or (_IMMEDIATELY if limited else None)
    results = source.part("outputs")
    outputs = results.parts("parameters")
    shape = Shape(tuple(each.text("name") or "" for each in outputs), is_block=True)
    signal = {"name": name, **({"timeout": length} if length else {})}
    wait: Object = {"sleep": {"duration": length}} if length and not outputs else {"waitForSignal": signal}
    if "waitForSignal" in wait:
        source.note("suspend", f"`argo resume` is `perdure signal RUN --name {name}`, with the outputs as input")
    suspend.done({})
    for each in outputs:
        if (each.data.get("valueFrom") or {}).get("default") is not None:
            each.gap("valueFrom.default", "a signal that does not arrive fails the step; send it, or set no `duration`")
        each.drop("description", "enum")
        source_of = each.part("valueFrom")
        source_of.drop("supplied", "default")
        source_of.done({})
        each.done({"globalName": "set the variable in a step after it"})
    for each in results.parts("artifacts"):
        each.gap("", "a step that waits has no artifacts")
    results.done({})
    source.done({})
    return CallTarget(name, "wait", shape, wait=wait)


_CALLER_FIELDS: Final = {False: ("synchronization",), True: ("synchronization", "retryStrategy")}
"""The fields of a template that the call of a child has, by whether the template is a list of steps."""

ACTIVITY_KINDS: Final = frozenset({"container", "script", "containerSet", "http", "resource"})
"""The fields of templates that become activities."""


def is_list_of_steps(template: Object) -> bool:
    """Whether a template runs steps, not a container."""
    return "steps" in template or "dag" in template


def _repeats(template: Object) -> bool:
    """Whether a template runs a list of steps again if one of them fails."""
    return bool(is_list_of_steps(template) and template.get("retryStrategy"))


def needs_child(template: Object) -> bool:
    """Whether a template becomes a Workflow of its own."""
    return bool((template.get("synchronization") and template.get("daemon")) or _repeats(template))


def child_spec(spec: Object, name: str) -> Object:
    """Return the spec of a workflow that runs only one of its templates, without what its caller does."""
    templates = [
        {**each, **dict.fromkeys(_CALLER_FIELDS[is_list_of_steps(each)])} if each.get("name") == name else each
        for each in spec.get("templates") or []
    ]
    rest = {key: value for key, value in spec.items() if key not in {"onExit", "hooks", "arguments"}}
    return {**rest, "templates": templates, "entrypoint": name}


def child_workflow(workflow: WorkflowFacts, inputs: Object) -> WorkflowFacts:
    """Return the facts about a child. Its input has the inputs of its template and the parameters of the workflow."""
    return replace(workflow, parameters=workflow.parameters | frozenset(inputs), composed={})


def child_target(workflow: WorkflowFacts, template: str, inputs: Object, inner: CallTarget) -> CallTarget:
    """Return the call target for a child."""
    passed = {name: ("workflow", "parameters", name) for name in sorted(workflow.parameters - frozenset(inputs))}
    name = f"{workflow.name}-{valid_name(template)}".lower().replace("_", "-").strip("-")
    return CallTarget(name, "child", inner.shape, inputs, captured=passed)


def child_manifests(
    name: str, source: Fields, definition: Object, library: Library, workflow: WorkflowFacts
) -> list[tuple[str, str, Object]]:
    """Yield the kind, name, and spec of the objects of a child: its limits and its Workflow.

    Args:
        name: The name of the child.
        source: The template; takes `synchronization`.
        definition: The definition of the child.
        library: The files.
        workflow: The facts about the child.
    """
    taken, limit_specs = limits(source, library, Scope("input", workflow).resolve)
    found = [("WorkflowLimit", limit, spec) for limit, spec in limit_specs]
    return [*found, ("Workflow", name, {**({"limits": taken} if taken else {}), **definition})]


_MAX_HANDLER: Final = "1d"
_RUNNING: Final = re.compile(r"\s*workflow\.status\s*==\s*['\"]Running['\"]\s*")
"""The condition of a hook that runs when the workflow starts."""


def starting_steps(definition: Definition, hooks: Fields, workflow: WorkflowFacts) -> list[Object]:
    """Return the steps for the hooks that run when the workflow starts. Their failures have no effect."""
    flow = FlowBuilder(definition, "", _outermost(workflow))
    for name in [each for each in hooks.data if each != "exit"]:
        hook = hooks.part(name)
        if not _RUNNING.fullmatch(hook.text("expression") or ""):
            hook.gap("expression", "only hooks of the status `Running`, and `exit`, have a counterpart; add steps")
            continue
        step = {"name": f"hook-{name}", **hook.data, "continueOn": {"failed": True}}
        flow.steps(Fields({"steps": [[step]]}, hook.path, hook.report))
    return [{**step, "needs": []} for step in flow.converted]


def exit_handler(definition: Definition, spec: Fields, hooks: Fields, workflow: WorkflowFacts) -> Object:
    """Return the `finally` for `hooks.exit` or `onExit`, if the workflow has one."""
    hook = hooks.take("exit")
    old = spec.text("onExit")
    data = hook if isinstance(hook, dict) else {"template": old} if old else None
    if data is None:
        return {}
    flow = FlowBuilder(definition, "", _outermost(workflow))
    flow.steps(Fields({"steps": [[{"name": "on-exit", **data}]]}, spec.at("onExit"), spec.report))
    return {"finally": {"block": definition.blocks.add("on-exit", flow.converted), "timeout": _MAX_HANDLER}}
