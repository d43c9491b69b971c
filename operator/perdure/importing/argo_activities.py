"""Argo's templates with containers, as activities."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.importing.argo_pods import Containers
from perdure.importing.argo_retry import retries, timeout
from perdure.importing.argo_scope import PodScope, Shape, Workflow
from perdure.importing.fields import Fields, Object, Report
from perdure.importing.patching import strategic
from perdure.importing.programs import Output

LONGEST: Final = "1d"
"""Maximum time of an attempt whose template has no deadline: Perdure needs one, to notice attempts that are lost."""

POD_FIELDS: Final = (
    *(
        "nodeSelector",
        "tolerations",
        "affinity",
        "imagePullSecrets",
        "hostNetwork",
        "dnsPolicy",
        "dnsConfig",
        "hostAliases",
    ),
    *("schedulerName", "securityContext", "serviceAccountName", "automountServiceAccountToken", "priorityClassName"),
    "resourceClaims",
)
"""Fields of a pod that workflows and templates have under the same name."""

_ADVICE: Final = {
    "memoize": "an activity that finds its result itself can return it; steps are not memoized yet",
    "synchronization": "limit whole runs: run the template as a child workflow with `limits`",
    "metrics": "Perdure has metrics of its own; see docs/reference/metrics.md",
    "daemon": "run the service as a Deployment, or as a sidecar of the activity that uses it",
    "plugin": "write the step as an activity",
    "archiveLocation": "logs are not archived; use the log collection of your cluster",
}
ARTIFACT: Final = "artifacts are not imported; pass the file on a volume or in a bucket, see docs/data.md"


@dataclass(slots=True)
class Pods:
    """What the pods of a workflow have in common."""

    fields: Object = field(default_factory=dict)
    """Fields of the pod spec."""
    volumes: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    patch: str | None = None
    retention: Object | None = None


@dataclass(frozen=True, slots=True)
class MadeActivity:
    """An activity, and how steps call it."""

    definition: Object
    shape: Shape
    captured: Mapping[str, tuple[str, ...]]
    global_names: Mapping[str, str]


class ActivityBuilder:
    """Makes an activity of one template."""

    def __init__(self, name: str, template: Fields, report: Report, workflow: Workflow, pods: Pods) -> None:
        self._name = name
        self._template = template
        self._report = report
        self._pods = pods
        inputs = template.part("inputs")
        self._inputs = {each.text("name") or "": each for each in inputs.parts("parameters")}
        artifacts(inputs)
        outputs = template.part("outputs")
        self._global_names: dict[str, str] = {}
        self._parameters = outputs.parts("parameters")
        artifacts(outputs)
        paths = {}
        for each in self._parameters:
            path = (each.data.get("valueFrom") or {}).get("path")
            paths[f"outputs.parameters.{each.data.get('name')}.path"] = str(path)
        self._scope = PodScope(workflow, self._inputs, paths)
        self._containers = Containers(self._scope, report)

    def build(self, *, prints: bool, structured: frozenset[str]) -> MadeActivity:
        """Make the activity.

        Args:
            prints: Whether a step reads what the container prints.
            structured: The output parameters that expressions need as lists or objects.
        """
        outputs = [output for each in self._parameters if (output := self._output(each, structured))]
        template = self._template
        kind = "script" if "script" in template else "container"
        source = template.part(kind)
        read = self._containers.script if kind == "script" else self._containers.main
        main = read(source, outputs, prints=prints)
        definition: Object = {
            "name": self._name,
            "startToCloseTimeout": timeout(template, "activeDeadlineSeconds", "timeout") or LONGEST,
            **retries(template, self._scope),
        }
        if self._pods.retention:
            definition["podRetention"] = self._pods.retention
        definition |= self._work(main)
        template.done(_ADVICE)
        shape = Shape(tuple(each.name for each in outputs), result=prints)
        return MadeActivity(definition, shape, self._scope.captured, self._global_names)

    def _output(self, parameter: Fields, structured: frozenset[str]) -> Output | None:
        name = parameter.text("name") or ""
        source = parameter.part("valueFrom")
        default = source.text("default") if "default" in source else ("" if source.data.get("default") == "" else None)
        source.drop("default")
        path = source.text("path")
        global_name = parameter.text("globalName")
        if global_name:
            self._global_names[name] = global_name
        source.done({})
        parameter.drop("description")
        parameter.done({})
        if path is None:
            parameter.gap("valueFrom", "only `path` and `default` have a counterpart in a container")
            return None
        return Output(name, path, default, name in structured)

    def _work(self, main: Object) -> Object:
        """`container`, or `podTemplate` for a pod with more than that."""
        pod = self._pod(main)
        metadata = self._metadata()
        user = main.pop("securityContext", None) or {}
        if pod or metadata:
            context = {"runAsNonRoot": False, **(pod.pop("securityContext", None) or {})}
            if user:
                main["securityContext"] = user
            spec = {"securityContext": context, **pod, "containers": [{"name": "main", **main}]}
            spec = self._patched(spec)
            return {"podTemplate": {**({"metadata": metadata} if metadata else {}), "spec": spec}}
        return {"container": {**main, "securityContext": {"runAsNonRoot": False, **user}}}

    def _patched(self, spec: Object) -> Object:
        for where, patch in (("", self._pods.patch), ("podSpecPatch", self._template.text("podSpecPatch"))):
            if patch is None:
                continue
            path = self._template.at(where) if where else "spec.podSpecPatch"
            text = self._containers.fixed(patch, path)
            try:
                spec = strategic(spec, text)
            except ValueError as error:
                self._report.gap(path, f"cannot be applied: {error}; write its fields into `podTemplate`")
        return spec

    def _pod(self, main: Object) -> Object:
        template = self._template
        made: Object = dict(self._pods.fields)
        for name in POD_FIELDS:
            value = template.take(name)
            if value is not None:
                made[name] = self._containers.fixed(value, template.at(name))
        resources = template.take("podResources")
        if resources is not None:
            made["resources"] = resources
        template.drop("failFast", "executor")
        first = [self._containers.plain(each) for each in template.parts("initContainers")]
        beside = [{**self._containers.plain(each), "restartPolicy": "Always"} for each in template.parts("sidecars")]
        if beside:
            template.note("sidecars", "they start before the main container, and stop after it")
        own = {each.get("name"): each for each in template.take("volumes", [])}
        used = self._mounted(main, *first, *beside)
        volumes = [{**self._pods.volumes, **own}[name] for name in used if name in {**self._pods.volumes, **own}]
        if first or beside:
            made["initContainers"] = [*beside, *first]
        if volumes:
            made["volumes"] = self._containers.fixed(volumes, template.at("volumes"))
        patched = self._pods.patch or template.data.get("podSpecPatch")
        return made or ({"restartPolicy": "Never"} if patched else {})

    def _mounted(self, *containers: Object) -> list[str]:
        mounts = [mount.get("name") for each in containers for mount in each.get("volumeMounts", [])]
        return list(dict.fromkeys(mounts))

    def _metadata(self) -> Object:
        given = self._template.part("metadata")
        labels = {**self._pods.labels, **given.take("labels", {})}
        annotations = {**self._pods.annotations, **given.take("annotations", {})}
        made = {"labels": labels, "annotations": annotations}
        path = given.path
        return {key: self._containers.fixed(value, f"{path}.{key}") for key, value in made.items() if value}


def artifacts(of: Fields) -> None:
    """Report artifacts."""
    for each in of.parts("artifacts"):
        of.report.gap(each.path, ARTIFACT)
    of.drop("parameters", "artifacts")
    of.done({})
