"""Converts Pipeline, Task, PipelineRun, and TaskRun of Tekton to manifests of Perdure."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from perdure.api.labels import API_VERSION
from perdure.api.times import format_duration, parse_duration
from perdure.importing.durations import NO_LIMIT
from perdure.importing.expressions import literal
from perdure.importing.mistakes import too_long
from perdure.importing.reader import ConversionReport, ConvertedObject, Fields, Object, as_text, cycle_of, namespace_of
from perdure.importing.schemas import Schema
from perdure.importing.tekton.mistakes import report_mistakes
from perdure.importing.tekton.pipeline import Catalog, Pipeline, RunContext, limit, take_name, texts, workflow_of
from perdure.importing.tekton.task import WorkspaceBinding
from perdure.importing.tekton.variables import VARIABLE, composed, mistake_of_type, params_read
from perdure.importing.writer import valid_name

KINDS: Final = ("Pipeline", "Task", "PipelineRun", "TaskRun")
_OF_TRIGGERS: Final = dict.fromkeys(
    ("EventListener", "Trigger", "TriggerBinding", "TriggerTemplate", "ClusterTriggerBinding"),
    "triggers are not imported; write a Webhook: see docs/webhooks.md",
)
"""The kinds of objects that start runs, and what to do instead."""
_SCHEMA: Final = Schema("tekton")
_REST: Final = re.compile(rf"(?<!\$){VARIABLE.pattern}")
"""A variable that Kubernetes does not escape."""
_CONTEXT: Final = re.compile(r"\$\((?!params\b)")
"""A variable that is not a parameter."""
_VOLUMES: Final[tuple[str, ...]] = ("emptyDir", "persistentVolumeClaim", "configMap", "secret", "projected", "csi")
_DEFAULT_LIMIT: Final = "1h"
"""The limit of a run that has none, by the `default-timeout-minutes` of Tekton."""
_POD: Final = frozenset(
    {"nodeSelector", "tolerations", "affinity", "securityContext", "volumes", "runtimeClassName", "dnsPolicy"}
) | {
    *("automountServiceAccountToken", "dnsConfig", "enableServiceLinks", "priorityClassName", "schedulerName"),
    *("imagePullSecrets", "hostAliases", "hostNetwork", "topologySpreadConstraints"),
}
_ADVICE: Final = {
    "debug": "use `kubectl debug`",
    "status": "use `perdure cancel` and `perdure stop`",
    "computeResources": "set `resources` of the containers",
    "resources": "PipelineResources were removed from Tekton; use parameters and workspaces",
    "sidecarSpecs": "set the resources in the sidecars",
    "stepSpecs": "set the resources in the steps",
}


def _renewed(value: Any) -> Any:
    """Replace the old form `$(inputs.params.x)` of references to parameters."""
    if isinstance(value, str):
        return value.replace("$(inputs.params.", "$(params.").replace("$(inputs.params[", "$(params[")
    if isinstance(value, list):
        return [_renewed(each) for each in value]
    return {key: _renewed(each) for key, each in value.items()} if isinstance(value, dict) else value


def convert(documents: list[Object]) -> list[ConvertedObject]:
    """Convert all objects of Tekton in some documents. Objects that refer to each other must be converted together.

    Args:
        documents: Manifests. A Pipeline or a Task of one of the runs becomes a part of that run instead of a Workflow.
    """
    read = _SCHEMA.read(map(_renewed, documents))
    found = [each for each, _ in read]
    catalogs = {namespace: Catalog(found, namespace) for namespace in set(map(namespace_of, found))}
    parts = _parts_of_others(found, catalogs)
    made = []
    for each, of in read:
        if each.get("kind") in KINDS and id(each) not in parts:
            with of.conversion():
                _Conversion(each, catalogs[namespace_of(each)], of)
            of.report_rest(_REST.finditer, lambda _: True)
            made.append(of)
        elif each.get("kind") in _OF_TRIGGERS:
            of.report.gap("kind", _OF_TRIGGERS[each["kind"]])
        if of.report and of not in made:
            made.append(of)
    return made


def _parts_of_others(documents: list[Object], catalogs: Mapping[str, Catalog]) -> set[int]:
    """Return the identities of the definitions that become parts of others.

    Pipelines that only contain each other are none: they are converted, which reports them.
    """
    of = [
        (each, catalogs[namespace_of(each)].parts(each))
        for each in documents
        if each.get("kind") in {"PipelineRun", "TaskRun", "Pipeline"}
    ]
    used = {id(part) for _, parts in of for part in parts}
    return {id(part) for each, parts in of if id(each) not in used for part in parts}


class _Conversion:
    """Converts one object."""

    def __init__(self, document: Object, catalog: Catalog, done: ConvertedObject) -> None:
        self._catalog = catalog
        self._report: ConversionReport = done.report
        self._metadata: Object = document.get("metadata") or {}
        self._done = done
        spec = Fields(document.get("spec"), "spec", self._report)
        report_mistakes(document.get("spec") or {}, "spec", self._report)
        match document["kind"]:
            case "PipelineRun":
                self._pipeline_run(spec)
            case "TaskRun":
                self._task_run(spec)
            case "Pipeline":
                self._definition(spec, str(self._metadata.get("name") or "pipeline"), RunContext())
            case _:
                name = str(self._metadata.get("name"))
                declared = [{"name": each.get("name")} for each in spec.data.get("workspaces") or []]
                pipeline = _of_task(spec.data, name, declared)
                self._definition(Fields(pipeline, "spec", self._report), name, RunContext())
                self._report.move("spec.tasks[0].taskSpec", "spec")

    def _definition(self, spec: Fields, name: str, context: RunContext) -> None:
        context.name = name
        made, children = workflow_of(self._catalog, context, spec, name)
        self._children(children)
        self._add("Workflow", made)

    def _children(self, children: Mapping[str, Object]) -> None:
        """Add the Workflows of the pipelines in a pipeline."""
        namespace = {"namespace": self._metadata["namespace"]} if self._metadata.get("namespace") else {}
        for name, spec in children.items():
            manifest = {"apiVersion": API_VERSION, "kind": "Workflow", "metadata": {"name": name, **namespace}}
            self._done.manifests.append({**manifest, "spec": spec})

    def _pipeline_run(self, run: Fields) -> None:
        values = {each.text("name") or "": each.take("value", "") for each in run.parts("params")}
        template = run.part("taskRunTemplate")
        timeouts = run.part("timeouts")
        context = self._context(run.parts("workspaces"), self._pod(template))
        field = "pipeline" if "pipeline" in timeouts else "timeout"
        written = limit(timeouts if field == "pipeline" else run, field)
        total = written or _DEFAULT_LIMIT
        parts = {name: limit(timeouts, name) for name in ("tasks", "finally")}
        _check_parts(timeouts, total, parts)
        tasks, final = _parts(total, parts["tasks"], parts["finally"])
        context.timeouts = {"finally": final} if final else {}
        template.done(_ADVICE)
        named = self._specs(run, context)
        options: Object = {}
        if total and total != NO_LIMIT:
            options["runTimeout"] = total
            if written and tasks in {None, NO_LIMIT} and "finally" in (run.data.get("pipelineSpec") or {}):
                run.note("timeouts.pipeline", "the tasks in `finally` do not run after the timeout of a run")
        if tasks and tasks != NO_LIMIT:
            options["stepsTimeout"] = tasks
        timeouts.done({})
        found = self._spec(run)
        if found is None:
            return
        spec, name = found
        declared = [each for field in ("tasks", "finally") for each in spec.data.get(field) or []]
        for i, each in enumerate(named):
            if each not in {str(task.get("name")) for task in declared}:
                run.gap(
                    f"taskRunSpecs[{i}].pipelineTaskName", f"there is no task `{each}`, which Tekton rejects; remove it"
                )
        parameters = _parameters(spec.data, values)
        _check_values(spec, parameters)
        context.name = str(self._metadata.get("name") or self._metadata.get("generateName") or name).rstrip("-")
        pipeline = Pipeline(self._catalog, context, self._report)
        inline = pipeline.build(spec, name, parameters)
        self._children(pipeline.children)
        run.done(_ADVICE)
        self._add("WorkflowRun", {**_input(parameters), **options, "inline": inline})

    def _task_run(self, run: Fields) -> None:
        values = {each.text("name") or "": each.take("value", "") for each in run.parts("params")}
        context = self._context(run.parts("workspaces"), self._pod(run))
        timeout = limit(run, "timeout")
        retries = run.take("retries", 0)
        found = self._task(run)
        if found is None:
            return
        spec, name = found
        declared = spec.get("workspaces") or []
        pipeline = _of_task(spec, name, [{"name": each.get("name")} for each in declared])
        pipeline["tasks"][0] |= {"retries": retries}
        context.timeouts = {name: timeout} if timeout else {}
        parameters = _parameters(spec, values)
        _check_values(Fields(spec, "spec.taskSpec", self._report), parameters)
        inline = Pipeline(self._catalog, context, self._report).build(
            Fields(pipeline, "spec", self._report), name, parameters
        )
        run.done(_ADVICE)
        self._report.move("spec.tasks[0].taskSpec", "spec.taskSpec")
        self._add("WorkflowRun", {**_input(parameters), "inline": inline})

    def _task(self, run: Fields) -> tuple[Object, str] | None:
        if "taskSpec" in run:
            return run.take("taskSpec"), str(self._metadata.get("name") or "task")
        name = take_name(run.part("taskRef"), "task", found=lambda name: self._catalog.task(name) is not None)
        if name is None:
            return None
        found = self._catalog.task(name)
        if found is None:
            run.gap("taskRef.name", f"the task `{name}` is in none of the files; import the files together")
            return None
        return found, name

    def _spec(self, run: Fields) -> tuple[Fields, str] | None:
        """Take the pipeline of a run."""
        if "pipelineSpec" in run:
            return run.part("pipelineSpec"), str(self._metadata.get("name") or "pipeline")
        catalog = self._catalog
        name = take_name(run.part("pipelineRef"), "pipeline", found=lambda name: catalog.pipeline(name) is not None)
        if name is None:
            return None
        found = self._catalog.pipeline(name)
        if found is None:
            run.gap("pipelineRef.name", f"the pipeline `{name}` is in none of the files; import the files together")
            return None
        return Fields(found, f"Pipeline/{name}: spec", self._report), name

    def _specs(self, run: Fields, context: RunContext) -> list[str]:
        """Take the settings of single tasks; return the names of those."""
        names = []
        pods: dict[str, Object] = {}
        timeouts = dict(context.timeouts)
        for each in run.parts("taskRunSpecs"):
            name = each.text("pipelineTaskName") or ""
            names.append(name)
            pods[name] = self._pod(each)
            timeout = limit(each, "timeout")
            if timeout:
                timeouts[name] = timeout
            each.done(_ADVICE)
        context.pods, context.timeouts = pods, timeouts
        return names

    def _pod(self, of: Fields) -> Object:
        template = of.part("podTemplate")
        fields = {key: template.take(key) for key in sorted(_POD) if key in template}
        template.drop("env") if not template.data.get("env") else None
        template.done({"env": "set it in the steps"})
        account = of.text("serviceAccountName")
        if account:  # its token is in every pod of Tekton
            fields = {"automountServiceAccountToken": True, **fields, "serviceAccountName": account}
        return fields

    def _context(self, bound: list[Fields], pod: Object) -> RunContext:
        """Convert the workspaces of a run: claim templates to workspaces of Perdure, everything else to volumes of the pods."""
        bindings: dict[str, WorkspaceBinding] = {}
        claims: list[Object] = []
        for each in bound:
            name, path = each.text("name") or "", each.text("subPath") or ""
            template = each.part("volumeClaimTemplate")
            source: Object = {kind: each.take(kind, {}) for kind in _VOLUMES if kind in each.data}
            workspace = valid_name(name).lower().replace("_", "-") if template.data else ""
            if template.data:
                claims.append({"name": workspace, "volumeClaimTemplate": _claim(template)})
            each.done({})
            bindings[name] = WorkspaceBinding(source, path, workspace)
        return RunContext(workspaces=bindings, pod=pod, claims=claims)

    def _add(self, kind: str, spec: Object) -> None:
        meta = {key: self._metadata[key] for key in ("name", "generateName", "namespace") if self._metadata.get(key)}
        for key in ("labels", "annotations"):
            kept = {
                name: as_text(value)
                for name, value in (self._metadata.get(key) or {}).items()
                if "tekton.dev/" not in name
            }
            meta |= {key: kept} if kept else {}
        if kind == "Workflow" and "name" not in meta:
            self._report.gap("metadata.name", "must be set")
        if not meta.keys() & {"name", "generateName"}:
            meta = {"generateName": "imported-", **meta}
        self._done.manifests.append({"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": spec})


def _parameters(spec: Object, values: Mapping[str, Any]) -> Object:
    """Return the parameters of a run: its values over the defaults, field by field for objects."""
    declared = spec.get("params") or []
    defaults: Object = {str(each.get("name")): each["default"] for each in declared if "default" in each}
    merged = {**defaults, **values}
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(defaults.get(name), dict):
            merged[name] = {**defaults[name], **value}
    known = {name: value for name, value in merged.items() if not _CONTEXT.search(str(value))}
    lazy = {name: value for name, value in known.items() if VARIABLE.search(str(value))}
    refers = {name: params_read(value) for name, value in lazy.items()}
    if not lazy or cycle_of(refers) or too_long(known, refers):
        return merged
    return {**merged, **composed(known, lazy)}


def _claim(template: Fields) -> Object:
    """Return the template of a claim. Its name is that of the workspace."""
    metadata = template.part("metadata")
    labels = {key: metadata.take(key) for key in ("labels", "annotations") if key in metadata}
    metadata.drop("name", "generateName", "namespace", "creationTimestamp")
    metadata.done({})
    template.drop("apiVersion", "kind", "status")
    made = {**({"metadata": labels} if labels else {}), "spec": template.take("spec", {})}
    template.done({})
    return made


def _check_values(spec: Fields, parameters: Object) -> None:
    """Report the parameters of a run that have no value, or none that their declarations allow."""
    for each in Fields(spec.data, spec.path, spec.report).parts("params"):
        value = parameters.get(str(each.data.get("name")))
        if value is None:
            each.gap("", "has no value; give one in the `params` of the run, or a default")
        elif mistake := mistake_of_type(each.data, value):
            each.gap("", f"its value {mistake}")
        allowed = each.take("enum", [])
        if allowed and isinstance(value, str) and value not in allowed:
            each.gap("enum", f"does not have the value `{value}` of the run")


def _input(parameters: Object) -> Object:
    """Return the input of a run; the steps compute the parameters that refer to what only the run knows."""
    known = {name: value for name, value in parameters.items() if not VARIABLE.search(str(value))}
    return {"input": texts(known)} if parameters else {}


def _of_task(spec: Object, name: str, workspaces: list[Object]) -> Object:
    """Build a pipeline with a single task."""
    params = spec.get("params") or []
    return {
        "params": [dict(each) for each in params],
        "workspaces": workspaces,
        "tasks": [
            {
                "name": name,
                "taskSpec": spec,
                "params": [{"name": each.get("name"), "value": _passed(each)} for each in params],
            }
        ],
    }


def _passed(param: Object) -> Any:
    name = str(param.get("name"))
    suffix = "[*]" if param.get("type") in {"array", "object"} or isinstance(param.get("default"), list | dict) else ""
    return f"$(params[{literal(name)}]{suffix})"


def _check_parts(timeouts: Fields, total: str, parts: Mapping[str, str | None]) -> None:
    """Report limits of the parts of a run that are longer than that of the run, alone or together."""
    known = {name: part for name, part in parts.items() if part not in {None, NO_LIMIT}}
    if total == NO_LIMIT:
        return
    for name, part in known.items():
        if parse_duration(part) > parse_duration(total):
            timeouts.gap(name, f"must not be longer than the limit of the pipeline, `{total}`, which Tekton rejects")
            return
    if sum(map(parse_duration, known.values()), timedelta(0)) > parse_duration(total):
        timeouts.gap(
            "", f"`tasks` and `finally` are longer than the limit of the pipeline, `{total}`, which Tekton rejects"
        )


def _parts(total: str | None, tasks: str | None, final: str | None) -> tuple[str | None, str | None]:
    """Return the limits of the tasks and of those in `finally`. One that is not set has the rest of the limit of the pipeline.

    That is how Tekton completes them (pkg/apis/pipeline/v1/pipelinerun_types.go).
    """
    return tasks or _rest(total, final), final or (total if tasks is None else _rest(total, tasks))


def _rest(total: str | None, part: str | None) -> str | None:
    """Return what is left of a limit; None if nothing is known to be left."""
    if total is None or part is None:
        return None
    if NO_LIMIT in {total, part}:
        return NO_LIMIT if total == NO_LIMIT else None
    left = parse_duration(total) - parse_duration(part)
    return format_duration(left) if left > timedelta(0) else None
