"""Converts Workflow, WorkflowTemplate, ClusterWorkflowTemplate, and CronWorkflow of Argo to manifests of Perdure."""

import json
import re
from typing import Any, Final

from perdure.api.labels import API_VERSION
from perdure.importing.argo.artifacts import argument
from perdure.importing.argo.cron import cron_workflow
from perdure.importing.argo.definition import DefinitionBuilder
from perdure.importing.argo.library import Library, as_blocks, default_of, reads_json, structured
from perdure.importing.argo.limits import limits
from perdure.importing.argo.mistakes import report_mistakes
from perdure.importing.argo.retries import timeout
from perdure.importing.argo.scope import Scope, WorkflowFacts, artifact_field, is_tag
from perdure.importing.argo.templates import POD_FIELDS, PodDefaults
from perdure.importing.cron import checked
from perdure.importing.expressions import TAG, UntranslatableError, expression
from perdure.importing.mistakes import too_long
from perdure.importing.reader import (
    ConvertedObject,
    Fields,
    Object,
    Source,
    UnsupportedScheduleError,
    as_text,
    circle,
    cycle_of,
    namespace_of,
    walk,
)
from perdure.importing.schemas import Schema
from perdure.language.expressions import ExpressionError, compile_template

KINDS: Final = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
TEMPLATES: Final = frozenset({"WorkflowTemplate", "ClusterWorkflowTemplate"})
"""The kinds whose templates others use."""
_OF_EVENTS: Final = dict.fromkeys(
    ("EventSource", "Sensor", "WorkflowEventBinding"), "events are not imported; write a Webhook: see docs/webhooks.md"
)
"""The kinds of objects that start workflows, and what to do instead."""
_SCHEMA: Final = Schema("argo")
_RESERVED: Final = "workflows.argoproj.io/"
_OF_RUN: Final = frozenset(
    {
        "workflowTemplateRef",
        "arguments",
        "activeDeadlineSeconds",
        "ttlStrategy",
        "priority",
        "suspend",
        "workflowMetadata",
    }
)
"""The fields of a workflow that become fields of its run. A workflow with any other one has a definition of its own."""
_ONLY_OF_RUNS: Final = {
    "ttlSecondsAfterFinished": "ttlStrategy",
    "ttlSecondsAfterFailure": "ttlStrategy",
    "priority": "priority",
    "startPaused": "suspend",
}
"""The options that a run has, but not a Workflow, with the fields of Argo from which they follow."""
_FAILURES: Final = "workflow.failures"
_MAX_PRIORITY: Final = 1000
_PARAMETER: Final = re.compile(r"workflow\.parameters(?:\.([-\w]+)|\[['\"]([^'\"\]]+)['\"]\])")
_ADVICE: Final = {
    "metrics": "Perdure has its own metrics; see docs/reference/metrics.md",
    "workflowMetadata": "set the labels on the WorkflowRun",
    "plugin": "write the step as an activity",
    "workflowTemplateRef": "a template cannot be another one; copy its fields",
}

_HOOKS: Final = re.compile('"(hooks|onExit)": ')
"""Handlers of steps, in templates."""
_STORED: Final = {
    "artifactRepositoryRef": "create the Secret `perdure-artifacts` for the bucket; see docs/artifacts.md",
    "artifactGC": "artifacts are deleted with their run; to keep them, set `artifacts.retention: Keep` in the activity",
}
"""Fields about the storage and the retention of artifacts."""


def convert(documents: list[Object]) -> list[ConvertedObject]:
    """Convert all objects of Argo in some documents. Objects that refer to each other must be converted together.

    Args:
        documents: Manifests; objects of other kinds are only used for lookups.
    """
    read = _SCHEMA.read(documents)
    found = [each for each, _ in read]
    libraries = {namespace: Library(found, namespace) for namespace in set(map(namespace_of, found))}
    for each, of in read:
        if each.get("kind") in KINDS:
            with of.conversion():
                _Conversion(each, libraries[namespace_of(each)], of)
            of.report_rest(TAG.finditer, is_tag)
        elif each.get("kind") in _OF_EVENTS:
            of.report.gap("kind", _OF_EVENTS[each["kind"]])
    return [of for each, of in read if each.get("kind") in KINDS or of.report]


class _Conversion:
    """Converts one object."""

    def __init__(self, document: Object, library: Library, done: ConvertedObject) -> None:
        self._kind = str(document["kind"])
        self._library = library
        self._metadata: Object = document.get("metadata") or {}
        self.done = done
        self._composed: Object = {}
        """The values of parameters that refer to others."""
        self._report = self.done.report
        spec: Object = document.get("spec") or {}
        is_scheduled = self._kind == "CronWorkflow"
        own, path = (spec.get("workflowSpec") or {}, "spec.workflowSpec") if is_scheduled else (spec, "spec")
        report_mistakes(own, path, self._report)
        for path, text in walk(spec, "spec"):
            if _FAILURES in text:
                message = f"`{_FAILURES}` only has the failure that ended the workflow, with its message and phase"
                self._report.note(path, message)
        if is_scheduled:
            self._cron(document, spec)
        elif self._kind == "Workflow":
            self._workflow(spec, "spec")
        else:
            self._template(spec)

    def _workflow(self, spec: Object, path: str) -> None:
        name = self._workflow_of(spec)
        if name is not None:
            made, metadata = self._run_of(spec, path, name)
        else:
            inline = self._resolved(spec)
            fields = Fields(inline, path, self._report)
            parameters = self._parameters(fields, needs_values=True)
            options = self._options(fields)
            metadata = run_metadata(fields.part("workflowMetadata"), parameters)
            definition = self._definition(fields, inline, path)
            made = {**({"input": parameters} if parameters or self._composed else {}), **options, "inline": definition}
        self._add("WorkflowRun", _labeled(self._meta(), metadata), made)

    def _workflow_of(self, spec: Object) -> str | None:
        """Return the name of the Workflow that a workflow runs; None if it needs a definition of its own."""
        reference = spec.get("workflowTemplateRef")
        if not reference:
            return None
        name, cluster = str(reference.get("name")), bool(reference.get("clusterScope"))
        changes = cluster or spec.keys() - _OF_RUN or references(spec.get("arguments"))
        return None if changes and self._library.spec(name, cluster=cluster) is not None else name

    def _run_of(self, spec: Object, path: str, name: str) -> tuple[Object, Object]:
        """Return the spec and the labels of a run of the Workflow that a template becomes.

        Args:
            spec: The spec of the workflow, which refers to the template.
            path: Its path.
            name: The name of the template. If none of the files has it, the changes of the workflow to it are reported.
        """
        cluster = bool(spec["workflowTemplateRef"].get("clusterScope"))
        known = self._library.spec(name, cluster=cluster) is not None
        fields = Fields(self._resolved(spec), path, self._report)
        advice = f"the template `{name}` is in none of the files; import the files together"
        for field in sorted(spec.keys() - _OF_RUN):
            if fields.take(field) not in (None, {}, [], "", False):
                fields.gap(field, advice)
        if cluster:
            fields.gap("workflowTemplateRef.clusterScope", advice)
        if references(spec.get("arguments")):
            fields.gap("arguments", advice)
        parameters = self._parameters(fields, needs_values=True)
        options = self._options(fields, may_be_handled=not known)
        metadata = run_metadata(fields.part("workflowMetadata"), parameters)
        return {**({"input": parameters} if parameters else {}), **options, "workflow": {"name": name}}, metadata

    def _resolved(self, spec: Object) -> Object:
        """Merge a spec over the spec of its referenced template, if the files have it."""
        reference = spec.get("workflowTemplateRef")
        if not reference:
            return spec
        base = self._library.spec(str(reference.get("name")), cluster=bool(reference.get("clusterScope"))) or {}
        merged = {**base, **{key: value for key, value in spec.items() if key != "workflowTemplateRef"}}
        parameters: Object = {}
        for each in (base, spec):
            for one in (each.get("arguments") or {}).get("parameters") or []:
                parameters[str(one.get("name"))] = {**parameters.get(str(one.get("name")), {}), **one}
        merged["templates"] = [*(base.get("templates") or []), *(spec.get("templates") or [])]
        merged["arguments"] = {**(spec.get("arguments") or {}), "parameters": list(parameters.values())}
        return merged

    def _template(self, spec: Object) -> None:
        wrapped = not spec.get("entrypoint")
        if wrapped:
            message = "has no entrypoint: other Workflows copy its templates (`from`), also those that are imported separately"
            self._report.note("spec", message)
            spec = as_blocks(spec)
        if self._kind == "ClusterWorkflowTemplate":
            message = "apply it in one namespace: all others can copy from it (`from`) and run it, as `NAMESPACE/NAME`"
            self._report.note("spec", message)
        options = self._definition_of(self._meta(), spec, "spec")
        for i in range(len(spec.get("templates") or [])) if wrapped else ():
            self._report.move(f"spec.templates[{i}].steps[0][0].inline", f"spec.templates[{i}]")
        for option in options:
            message = f"a Workflow has no such field: set `{option}` in each WorkflowRun"
            self._report.gap(f"spec.{_ONLY_OF_RUNS[option]}", message)

    def _definition_of(self, metadata: Object, spec: Object, path: str) -> Object:
        """Add a Workflow, and return the options that its runs need."""
        spec = _with_parameters(spec)
        fields = Fields(spec, path, self._report)
        declared = [dict(each) for each in (spec.get("arguments") or {}).get("parameters") or []]
        parameters = self._parameters(fields, needs_values=False)
        options = self._options(fields, may_be_handled=True)
        limit = {"stepsTimeout": options.pop("stepsTimeout")} if "stepsTimeout" in options else {}
        definition = {**limit, **self._definition(fields, spec, path)}
        input_spec = _input(declared, parameters, self._composed)
        shared: Object = {"allowedNamespaces": ["*"]} if self._kind == "ClusterWorkflowTemplate" else {}
        self._add("Workflow", metadata, {**shared, **({"input": input_spec} if input_spec else {}), **definition})
        return options

    def _cron(self, document: Object, spec: Object) -> None:
        workflow, path = spec.get("workflowSpec") or {}, "spec.workflowSpec"
        name = self._workflow_of(workflow)
        if name is not None:
            run, metadata = self._run_of(workflow, path, name)
        else:
            resolved = self._resolved(workflow)
            metadata = run_metadata(
                Fields(resolved.get("workflowMetadata"), f"{path}.workflowMetadata", self._report), {}
            )
            rest = {key: value for key, value in resolved.items() if key != "workflowMetadata"}
            options = self._definition_of(self._meta(), rest, path)
            run = {"workflow": {"name": str(self._metadata.get("name"))}, **options}
        own = run_metadata(Fields(spec.get("workflowMetadata"), "spec.workflowMetadata", self._report), {})
        metadata = _labeled(metadata, own)
        template = {**({"metadata": metadata} if metadata else {}), "spec": run}
        fields = {key: value for key, value in spec.items() if key not in {"workflowSpec", "workflowMetadata", "when"}}
        if spec.get("when"):
            self._report.gap(
                "spec.when", "has no counterpart; put the condition into the workflow, as `when` of its first step"
            )
        try:
            source = Source({**document, "metadata": self._meta(), "spec": fields}, "spec")
            self.done.manifests += checked(cron_workflow(source, None, template), "spec")
        except UnsupportedScheduleError as error:
            where, message = str(error).removeprefix("spec: ").split(": ", 1)
            self._report.gap(where, message)

    def _parameters(self, spec: Fields, *, needs_values: bool) -> Object:
        """Take the arguments of a workflow."""
        arguments = spec.part("arguments")
        parses = reads_json(spec.data, self._library)
        parameters: Object = {}
        for each in arguments.parts("parameters"):
            value = default_of(each.data, self._library)
            name = each.text("name") or ""
            if "valueFrom" in each and value is None:
                each.gap(
                    "valueFrom", "the ConfigMap is in none of the files; import it together, or pass the value as input"
                )
            elif value is None and needs_values:
                each.gap("value", "must be set; write it into `input`")
            if value is not None:
                parameters[name] = structured(as_text(value), parses)
        for each in arguments.parts("artifacts"):
            name = str(each.data.get("name"))
            value = argument(each, _nothing)
            each.done({})
            if value is not None:
                parameters[artifact_field(name)] = value
        composed = {name: each for name, each in parameters.items() if references(each)}
        refers = {name: references(each) for name, each in composed.items()}
        refused = cycle_of(refers)
        if refused:
            message = f"{circle(refused)}; give one of them a value of its own"
            spec.report.gap(spec.at("arguments.parameters"), message)
        elif refused := too_long(parameters, refers):
            message = f"`{refused[0]}` with what it refers to is too long; give it a value of its own"
            spec.report.gap(spec.at("arguments.parameters"), message)
        self._composed = {name: each for name, each in composed.items() if name not in refused}
        return {name: each for name, each in parameters.items() if name not in {*refused, *composed}}

    def _options(self, spec: Fields, *, may_be_handled: bool = False) -> Object:
        """Take the options of a run.

        Args:
            spec: The spec of the workflow.
            may_be_handled: Whether its handlers are not known, which the deadline does not limit.
        """
        options: Object = {}
        is_limited = "activeDeadlineSeconds" in spec
        deadline = timeout(spec, "activeDeadlineSeconds")
        if is_limited and not deadline:
            spec.note(
                "activeDeadlineSeconds", "zero is no limit; Argo's controller ends such a workflow when it starts"
            )
        if deadline:
            handled = (
                may_be_handled
                or spec.data.keys() & {"onExit", "hooks"}
                or _HOOKS.search(json.dumps(spec.data.get("templates")))
            )
            options["stepsTimeout" if handled else "runTimeout"] = deadline
        ttl = spec.part("ttlStrategy")
        either, success, failure = (ttl.take(f"secondsAfter{each}") for each in ("Completion", "Success", "Failure"))
        finished = success if isinstance(success, int) else either
        if isinstance(finished, int):
            options["ttlSecondsAfterFinished"] = finished
        failed = failure if isinstance(failure, int) else either
        if isinstance(failed, int) and failed != finished:
            options["ttlSecondsAfterFailure"] = failed
        priority = spec.take("priority")
        if isinstance(priority, int):
            options["priority"] = max(-_MAX_PRIORITY, min(_MAX_PRIORITY, priority))
            if options["priority"] != priority:
                spec.note(
                    "priority",
                    f"priorities are from {-_MAX_PRIORITY} to {_MAX_PRIORITY}: it becomes {options['priority']}",
                )
        if spec.take("suspend", False):
            options["startPaused"] = True
        return options

    def _definition(self, fields: Fields, spec: Object, path: str) -> Object:
        pods = self._pods(fields, path)
        workflow = WorkflowFacts(
            labels=self._metadata.get("labels") or {},
            annotations=self._metadata.get("annotations") or {},
            constants={
                "serviceAccountName": str(spec.get("serviceAccountName") or "default"),
                "mainEntrypoint": str(spec.get("entrypoint") or ""),
                "priority": str(spec.get("priority") or 0),
            },
            name=str(self._metadata.get("name") or self._metadata.get("generateName") or "imported").rstrip("-"),
            parameters=frozenset(
                str(each.get("name")) for each in (spec.get("arguments") or {}).get("parameters") or []
            ),
            artifacts=frozenset(str(each.get("name")) for each in (spec.get("arguments") or {}).get("artifacts") or []),
            composed=self._composed,
            is_closed=self._kind not in TEMPLATES,
        )
        taken, made_limits = limits(fields, self._library, Scope("input", workflow).resolve)
        for name, limit in made_limits:
            self._add("WorkflowLimit", {"name": name, **self._namespace()}, limit)
        made = DefinitionBuilder(spec, path, workflow=workflow, pods=pods, library=self._library, report=self._report)
        is_library = self._kind in TEMPLATES and not spec.get("entrypoint")
        definition = made.library(fields) if is_library else made.build(fields)
        for kind, name, child in made.children:
            self._add(kind, {"name": name, **self._namespace()}, child)
        workspaces = _workspaces(fields)
        fields.drop("templates", "templateDefaults", "volumeClaimGC", "executor", "podGC")
        for name, advice in _STORED.items():
            if fields.take(name) is not None:
                fields.note(name, advice)
        fields.done(_ADVICE)
        first: Object = {"limits": taken} if taken else {}
        return {**first, **({"workspaces": workspaces} if workspaces else {}), **definition}

    def _pods(self, spec: Fields, path: str) -> PodDefaults:
        fields = {name: spec.take(name) for name in POD_FIELDS if name in spec}
        priority_class = spec.text("podPriorityClassName")
        if priority_class:
            fields["priorityClassName"] = priority_class
        resources = spec.take("podResources")
        if resources is not None:
            fields["resources"] = resources
        metadata = spec.part("podMetadata")
        strategy = str((spec.data.get("podGC") or {}).get("strategy") or "")
        retention = {
            "OnPodCompletion": {"onSuccess": "Delete", "onFailure": "Delete"},
            "OnPodSuccess": {"onSuccess": "Delete"},
            "OnWorkflowSuccess": {"onSuccess": "Keep", "onFailure": "Keep"},
            "OnWorkflowCompletion": {"onSuccess": "Keep", "onFailure": "Keep"},
        }.get(strategy)
        if strategy.startswith("OnWorkflow"):
            spec.note("podGC", "pods are deleted with their run: see `ttlSecondsAfterFinished`")
        if (spec.data.get("podGC") or {}).get("labelSelector"):
            spec.note("podGC", "applies to all pods of the run; set `podRetention` on single activities")
        if strategy and retention is None:
            spec.gap("podGC.strategy", f"`{strategy}` is not known; see `podRetention` of an activity")
        if (spec.data.get("podGC") or {}).get("deleteDelayDuration"):
            spec.note("podGC.deleteDelayDuration", "pods are deleted without a delay")
        volumes = {str(each.get("name")): each for each in spec.take("volumes", [])}
        claims = [str((each.get("metadata") or {}).get("name")) for each in spec.data.get("volumeClaimTemplates") or []]
        return PodDefaults(
            path=path,
            fields=fields,
            volumes=volumes,
            labels=metadata.take("labels", {}),
            annotations=metadata.take("annotations", {}),
            patch=spec.text("podSpecPatch"),
            retention=retention,
            claims=frozenset(claims),
            archive_logs=spec.take("archiveLogs", False) is True,
        )

    def _meta(self) -> Object:
        """Return the name and the labels of the original, without labels that Argo uses."""
        metadata = {
            key: self._metadata[key] for key in ("name", "generateName", "namespace") if self._metadata.get(key)
        }
        for key in ("labels", "annotations"):
            kept = {
                name: as_text(value)
                for name, value in (self._metadata.get(key) or {}).items()
                if not name.startswith(_RESERVED)
            }
            if kept:
                metadata[key] = kept
        if self._kind != "Workflow" and "name" not in metadata:
            self._report.gap("metadata.name", "must be set")
        return metadata if metadata.keys() & {"name", "generateName"} else {"generateName": "imported-", **metadata}

    def _namespace(self) -> Object:
        return {"namespace": self._metadata["namespace"]} if self._metadata.get("namespace") else {}

    def _add(self, kind: str, metadata: Object, spec: Object) -> None:
        manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        if manifest in self.done.manifests:  # several templates can share a lock
            return
        if any(each["kind"] == kind and each["metadata"] == metadata for each in self.done.manifests):
            self._report.gap("spec", f"several objects become the {kind} `{metadata['name']}`; rename one of them")
        self.done.manifests.append(manifest)


def _nothing(path: tuple[str, ...]) -> str:
    """Arguments of a workflow refer to nothing."""
    raise UntranslatableError(f"`{'.'.join(path)}` is not known before the run")


def _with_parameters(spec: Object) -> Object:
    """Return a spec with parameters for the inputs of its entrypoint that have no value, which the starter of a run passes."""
    arguments = spec.get("arguments") or {}
    declared = list(arguments.get("parameters") or [])
    entry: Object = next(
        (each for each in spec.get("templates") or [] if each.get("name") == spec.get("entrypoint")), {}
    )
    inputs = (entry.get("inputs") or {}).get("parameters") or []
    missing = [
        {key: each[key] for key in ("name", "description", "enum") if key in each}
        for each in inputs
        if not each.keys() & {"value", "default", "valueFrom"}
        and each.get("name") not in {one.get("name") for one in declared}
    ]
    return {**spec, "arguments": {**arguments, "parameters": [*declared, *missing]}} if missing else spec


def _labeled(metadata: Object, more: Object) -> Object:
    """Merge labels and annotations into the metadata of an object."""
    return {**metadata, **{key: {**metadata.get(key, {}), **values} for key, values in more.items()}}


def _workspaces(spec: Fields) -> list[Object]:
    """Take the `volumeClaimTemplates` of a workflow, as workspaces."""
    strategy = str((spec.data.get("volumeClaimGC") or {}).get("strategy") or "OnWorkflowSuccess")
    retention = {"retention": {"onFailure": "Delete"}} if strategy == "OnWorkflowCompletion" else {}
    workspaces = []
    for each in spec.parts("volumeClaimTemplates"):
        metadata = each.part("metadata")
        name = metadata.text("name") or "work"
        rest = {key: metadata.take(key) for key in ("labels", "annotations") if key in metadata}
        metadata.drop("creationTimestamp")
        metadata.done({})
        template = {**({"metadata": rest} if rest else {}), "spec": each.take("spec", {})}
        each.drop("status", "apiVersion", "kind")
        each.done({})
        workspaces.append({"name": name, "volumeClaimTemplate": template, **retention})
    return workspaces


def references(value: Any) -> list[str]:
    """Return what the tags in a value refer to: the names of parameters of the workflow, and other tags."""
    tags = [found for _, text in walk(value, "") for found in TAG.findall(text) if is_tag(found.strip())]
    return [name for each in tags for name in ([one or other for one, other in _PARAMETER.findall(each)] or [each])]


def _input(declared: list[Object], defaults: Object, composed: Object) -> Object:
    """The schema and the defaults of an input. Composed values are computed by the steps that read them."""
    properties: Object = {}
    for each in declared:
        shape: Any = {key: each[key] for key in ("description", "enum") if each.get(key)}
        if shape:
            properties[str(each.get("name"))] = shape
    required = [str(each.get("name")) for each in declared if str(each.get("name")) not in {*defaults, *composed}]
    schema: Object = {"type": "object"}
    if properties:
        schema["properties"] = properties
    if required:
        schema["required"] = required
    input_spec: Object = {"schema": schema} if len(schema) > 1 else {}
    return {**input_spec, "default": defaults} if defaults or composed else input_spec


def run_metadata(metadata: Fields, input_: Object) -> Object:
    """Take the labels and annotations of a run.

    Args:
        metadata: The `workflowMetadata`.
        input_: The input of the run, from which expressions are evaluated.
    """
    labels = {name: as_text(value) for name, value in metadata.take("labels", {}).items()}
    annotations = {name: as_text(value) for name, value in metadata.take("annotations", {}).items()}
    computed = metadata.part("labelsFrom")
    for name in list(computed.data):
        source = computed.part(name)
        try:
            labels[name] = as_text(_value(source.text("expression") or "", input_))
        except (UntranslatableError, ExpressionError) as error:
            source.gap("expression", f"{error}; set the label on the WorkflowRun")
    metadata.done({})
    return {key: value for key, value in (("labels", labels), ("annotations", annotations)) if value}


def _value(text: str, input_: Object) -> object:
    facts = WorkflowFacts(labels={}, annotations={}, constants={}, parameters=frozenset(input_))
    made = expression(text, Scope("input", facts).resolve)
    return compile_template("${" + made + "}", names=frozenset({"input"})).evaluate({"input": input_})
