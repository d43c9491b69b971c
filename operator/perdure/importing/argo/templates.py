"""Converts Argo's templates with work to activities.

Those with containers become pods. A daemon that starts before the other steps becomes a service of their list. Any other one
becomes an activity that creates a Pod and returns its address; another one deletes the Pod when the template that has started it
ends.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.api.times import parse_duration
from perdure.importing.argo.artifacts import (
    archives_log,
    artifact_paths,
    clone,
    copied,
    is_from_git,
    of_activity,
    of_log,
)
from perdure.importing.argo.containers import Containers, ContainerSet, container_set, escaped, separated, strategic
from perdure.importing.argo.images import EntryPoints
from perdure.importing.argo.library import Library
from perdure.importing.argo.limits import limits
from perdure.importing.argo.requests import http, kubectl, needs_kubectl, resource
from perdure.importing.argo.retries import NO_RETRY, attempt_limit, retries, timeout
from perdure.importing.argo.scope import OUTPUT_MISSING, PodScope, ServiceScope, Shape, WorkflowFacts
from perdure.importing.programs import MISSING_CODE, Output, Returns
from perdure.importing.reader import ConversionReport, Fields, Object, as_text

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
_OF_PODS: Final = frozenset(
    {*POD_FIELDS, "initContainers", "sidecars", "volumes", "metadata", "podSpecPatch", "podResources"}
)
"""Fields of a template that need a pod template."""
_CONTAINER: Final = "activity"
"""The name by which `podSpecPatch` refers to the container of an activity without a pod template."""
_INPUT: Final = re.compile(r"\{\{inputs\.parameters\.([-\w]+)\}\}")
_MOUNT: Final = ("name", "mountPath", "subPath", "readOnly")
_ADVICE: Final = {
    "metrics": "Perdure has its own metrics; see docs/reference/metrics.md",
    "plugin": "write the step as an activity",
    "archiveLocation": "only activities with a container can archive their logs",
}


@dataclass(slots=True)
class PodDefaults:
    """The common settings of the pods of a workflow."""

    path: str = "spec"
    """The path of the spec of the workflow."""
    fields: Object = field(default_factory=dict)
    """Fields of the pod spec."""
    volumes: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    patch: str | None = None
    retention: Object | None = None
    claims: frozenset[str] = frozenset()
    """The volumes that are workspaces."""
    archive_logs: bool = False
    """Whether the logs of all containers are archived."""

    @property
    def needs_templates(self) -> bool:
        """Whether every activity needs a pod template."""
        return bool(self.fields or self.labels or self.annotations or self.patch)


@dataclass(frozen=True, slots=True)
class ConvertedActivity:
    """An activity, with the data for calling it from steps."""

    definition: Object
    shape: Shape
    captured: Mapping[str, tuple[str, ...]]
    global_names: Mapping[str, str]
    deadline: str = ""
    """The input that limits an attempt."""
    deadline_in_seconds: bool = False
    limits: Sequence[tuple[str, Object]] = ()
    """The names and specs of its WorkflowLimits."""


class ActivityBuilder:
    """Makes an activity of one template."""

    def __init__(
        self,
        name: str,
        template: Fields,
        report: ConversionReport,
        workflow: WorkflowFacts,
        pods: PodDefaults,
        entry_points: EntryPoints,
    ) -> None:
        self._name = name
        self._template = template
        self._report = report
        self._pods = pods
        self._declared = dict(template.data)
        paths = artifact_paths(template.data)
        inputs = template.part("inputs")
        self._inputs = {each.text("name") or "": each for each in inputs.parts("parameters")}
        artifacts = inputs.parts("artifacts")
        self._artifacts = [each for each in artifacts if not is_from_git(each)]
        self._clones = [each for each in artifacts if is_from_git(each)]
        inputs.done({})
        outputs = template.part("outputs")
        self._global_names: dict[str, str] = {}
        self._parameters = outputs.parts("parameters")
        self._left = outputs.parts("artifacts")
        outputs.done({})
        for each in self._parameters:
            if each.data.get("globalName"):
                self._global_names[str(each.data.get("name"))] = str(each.data["globalName"])
            path = (each.data.get("valueFrom") or {}).get("path")
            paths[f"outputs.parameters.{each.data.get('name')}.path"] = str(path)
        self._scope = PodScope(workflow, self._inputs, paths)
        self._containers = Containers(self._scope, report, entry_points)

    def build(self, *, prints: bool, structured: frozenset[str], library: Library) -> ConvertedActivity:
        """Make the activity.

        Args:
            prints: Whether a step reads the stdout of the container, or the body of a response.
            structured: The output parameters that expressions need as lists or objects.
            library: The ConfigMaps of the files, with the sizes of semaphores.
        """
        template = self._template
        taken, limit_specs = limits(template, library, self._scope.resolve)
        in_seconds = bool(_INPUT.fullmatch(str(template.data.get("activeDeadlineSeconds"))))
        deadline = self._deadline()
        runs_container = not template.data.keys() & {"http", "resource"}
        required = runs_container and any(_is_required(each.data) for each in self._parameters)
        errs = runs_container and has_required_outputs(self._declared)
        repeated = retries(template, errs=errs)
        if repeated.timed and not runs_container:
            template.gap("retryStrategy.expression", "only the time of a container is measured")
        definition: Object = {
            "name": self._name,
            "startToCloseTimeout": _shorter(attempt_limit(template), repeated.fields.get("scheduleToCloseTimeout")),
            **repeated.fields,
            **({"limits": taken} if taken else {}),
            **cache(template, self._containers),
        }
        if required:
            missing = {"exitCodes": [MISSING_CODE], "type": OUTPUT_MISSING}
            definition["failureTypes"] = [*definition.get("failureTypes", []), missing]
        if self._pods.retention:
            definition["podRetention"] = self._pods.retention
        if not runs_container:
            for each in (*self._artifacts, *self._clones, *self._left):
                each.gap("", "only activities with a container have artifacts")
        if "http" in template:
            for each in self._parameters:
                each.gap("", "a request only returns the body of its response; read `outputs.result`")
            shape = Shape(result=prints)
            definition["http"] = http(template.part("http"), self._scope, prints=prints)
        elif "resource" in template and needs_kubectl(template.data["resource"]):
            for each in self._parameters:
                each.gap("", "kubectl in a container returns nothing; read the object in a step after it")
            container = Fields(kubectl(template.part("resource")), template.at("resource"), self._report)
            definition |= self._work(ContainerSet(self._containers.main(container, Returns())), token=True)
            shape = Shape()
        elif "resource" in template:
            account = template.text("serviceAccountName") or str(self._pods.fields.get("serviceAccountName", "default"))
            definition["resource"], shape = resource(template.part("resource"), self._scope, account, self._parameters)
        else:
            outputs = [output for each in self._parameters if (output := self._output(each, structured))]
            copies = copied(self._left)
            archives = archives_log(template, default=self._pods.archive_logs)
            if archives and "container" in template:
                container = template.part("container")
                self._containers.complete(container)
                template.data["container"] = container.data
            work = self._containered(Returns(tuple(outputs), prints, copies, repeated.timed))
            own = "archiveLogs" in (self._declared.get("archiveLocation") or {})
            path = template.at("archiveLocation") if own else self._pods.path
            log = of_log(template, work, f"{path}.archiveLogs") if archives else {}
            definition |= {**of_activity(self._artifacts, self._left, self._scope.resolve, log), **work}
            shape = Shape(tuple(each.name for each in outputs), result=prints, errs=errs)
        template.done(_ADVICE)
        return ConvertedActivity(
            definition, shape, self._scope.captured, self._global_names, deadline, in_seconds, limit_specs
        )

    def _deadline(self) -> str:
        """Take a deadline that is an input."""
        for name in ("activeDeadlineSeconds", "timeout"):
            found = _INPUT.fullmatch(str(self._template.data.get(name)))
            if found and found[1] in self._inputs:
                self._template.drop(name)
                return found[1]
        return ""

    def _containered(self, returns: Returns) -> Object:
        """Return the work of a template with containers."""
        template = self._template
        if "containerSet" in template:
            return self._work(container_set(template.part("containerSet"), self._containers, returns))
        if "container" in template:
            return self._work(ContainerSet(self._containers.main(template.part("container"), returns)))
        needs_pod = returns.outputs or returns.copies or returns.final or self._clones or self._pods.needs_templates
        if not needs_pod and not template.data.keys() & _OF_PODS:
            script = self._containers.as_script(template.part("script"), prints=returns.prints)
            user = script.pop("securityContext", None) or {}
            mounts = self._workspaces(script)
            script, patch = _in_container({**script, "securityContext": {"runAsNonRoot": False, **user}})
            return {**mounts, "script": script, **patch}
        return self._work(ContainerSet(self._containers.script(template.part("script"), returns)))

    def _output(self, parameter: Fields, structured: frozenset[str]) -> Output | None:
        name = parameter.text("name") or ""
        source = parameter.part("valueFrom")
        value = source.take("default")
        default = None if value is None else as_text(value)
        path = source.text("path")
        source.done({})
        parameter.drop("description", "globalName")
        parameter.done({})
        if path is None:
            parameter.gap("valueFrom", "only `path` and `default` have a counterpart in a container")
            return None
        return Output(name, path, default, name in structured)

    def _work(self, containers: ContainerSet, *, token: bool = False) -> Object:
        """Return `container`, or `podTemplate` if the pod needs more than a container.

        Args:
            containers: The containers.
            token: Whether they need the token of the ServiceAccount.
        """
        patch = self._template.text("podSpecPatch")
        main = containers.main
        pod = self._pod(containers)
        if token or "serviceAccountName" in pod:
            pod.setdefault("automountServiceAccountToken", True)  # as in every pod of Argo
        metadata = self._metadata()
        mounts = self._workspaces(main)
        user = main.pop("securityContext", None) or {}
        if not containers.others and not pod and not metadata and not patch and not self._pods.patch:
            main, of_pod = _in_container({**main, "securityContext": {"runAsNonRoot": False, **user}})
            return {**mounts, "container": main, **of_pod}
        context = {"runAsNonRoot": False, **(pod.pop("securityContext", None) or {})}
        if user:
            main["securityContext"] = user
        spec = {"securityContext": context, **pod, "containers": [{"name": "main", **main}, *containers.others]}
        spec = self._patched(spec, "spec.podSpecPatch", self._pods.patch)
        spec = self._patched(spec, self._template.at("podSpecPatch"), patch)
        spec, computed = separated(spec)
        template = {**({"metadata": metadata} if metadata else {}), "spec": spec}
        return {**mounts, "podTemplate": template, **({"podSpecPatch": computed} if computed else {})}

    def _workspaces(self, main: Object) -> Object:
        """Take the mounts of the workspaces that the main container uses."""
        mounts = main.get("volumeMounts", [])
        claimed = [each for each in mounts if each.get("name") in self._pods.claims]
        rest = [each for each in mounts if each not in claimed]
        if not claimed:
            return {}
        main.pop("volumeMounts")
        if rest:
            main["volumeMounts"] = rest
        return {"workspaces": [{key: each[key] for key in _MOUNT if key in each} for each in claimed]}

    def _patched(self, spec: Object, path: str, patch: str | None) -> Object:
        if patch is None:
            return spec
        try:
            return strategic(spec, self._containers.patch(patch, path))
        except ValueError as error:
            self._report.gap(path, f"cannot be applied: {error}; write its fields into `podTemplate`")
            return spec

    def _pod(self, containers: ContainerSet) -> Object:
        template, main = self._template, containers.main
        own = {name: template.take(name) for name in POD_FIELDS if name in template}
        common = {name: value for name, value in self._pods.fields.items() if name not in own}
        spec: Object = {
            name: self._containers.computed(value, f"{self._pods.path}.{name}") for name, value in common.items()
        }
        spec |= {name: self._containers.computed(value, template.at(name)) for name, value in own.items()}
        resources = template.take("podResources")
        if resources is not None:
            spec["resources"] = resources
        template.drop("failFast", "executor", "annotations")
        first = [self._helper(each, main) for each in template.parts("initContainers")]
        sidecars = [{**self._helper(each, main), "restartPolicy": "Always"} for each in template.parts("sidecars")]
        if sidecars:
            template.note("sidecars", "they start before the main container, and stop after it")
        declared = {each.get("name"): each for each in template.take("volumes", [])}
        fetching, fetched = self._fetched(main)
        declared |= fetched
        first = [*first, *fetching, *containers.before]
        others = [*first, *sidecars, *containers.others]
        used = self._mounted(main, *others)
        for mount in [mount for each in others for mount in each.get("volumeMounts", [])]:
            if mount.get("name") in self._pods.claims:
                mount["name"] = f"workspace-{mount['name']}"
        volumes = [
            {**self._pods.volumes, **declared}[name] for name in used if name in {**self._pods.volumes, **declared}
        ]
        if first or sidecars:
            spec["initContainers"] = [*sidecars, *first]
        if volumes:
            spec["volumes"] = self._containers.computed(volumes, template.at("volumes"))
        return spec

    def _helper(self, container: Fields, main: Object) -> Object:
        """Return an init container or a sidecar; with `mirrorVolumeMounts`, it has the mounts of the main container, too."""
        mirrors = container.take("mirrorVolumeMounts", False)
        made = self._containers.plain(container)
        if not mirrors:
            return made
        declared = made.get("volumeMounts", [])
        paths = {each.get("mountPath") for each in declared}
        mirrored = [dict(each) for each in main.get("volumeMounts", []) if each.get("mountPath") not in paths]
        return {**made, "volumeMounts": [*declared, *mirrored]} if declared or mirrored else made

    def _fetched(self, main: Object) -> tuple[list[Object], Object]:
        """Return the init containers that fetch artifacts from Git, and their volumes by name."""
        found = [clone(each, main.setdefault("volumeMounts", []), self._scope.resolve) for each in self._clones]
        volumes = {volume["name"]: volume for _, volume in found if volume is not None}
        return [container for container, _ in found], volumes

    def _mounted(self, *containers: Object) -> list[str]:
        mounts = [mount.get("name") for each in containers for mount in each.get("volumeMounts", [])]
        return list(dict.fromkeys(mounts))

    def _metadata(self) -> Object:
        own, common = self._template.part("metadata"), f"{self._pods.path}.podMetadata"
        found: Object = {}
        for key, values in (("labels", self._pods.labels), ("annotations", self._pods.annotations)):
            of_template = self._containers.fixed(own.take(key, {}), own.at(key))
            rest = {name: value for name, value in values.items() if name not in of_template}
            found[key] = {**self._containers.fixed(rest, f"{common}.{key}"), **of_template}
        own.done({})
        return {key: each for key, each in found.items() if each}


def _shorter(limit: str, total: str | None) -> str:
    """Return the limit of an attempt, which must not be longer than that of all attempts."""
    return min(limit, total or limit, key=parse_duration)


def _is_required(parameter: Object) -> bool:
    """Whether a container must write the file of an output parameter."""
    source = parameter.get("valueFrom") or {}
    return bool(source.get("path")) and source.get("default") is None


def has_required_outputs(template: Object) -> bool:
    """Whether the container of a template must write outputs; otherwise, it has the status Error."""
    outputs = template.get("outputs") or {}
    artifacts = outputs.get("artifacts") or []
    return any(map(_is_required, outputs.get("parameters") or [])) or any(
        not each.get("optional") for each in artifacts
    )


def _in_container(container: Object) -> tuple[Object, Object]:
    """Separate the container of an activity without a pod template into its constant fields, and the `podSpecPatch`."""
    spec, patch = separated({"containers": [{"name": _CONTAINER, **container}]})
    fields = {key: value for key, value in spec["containers"][0].items() if key != "name"}
    return fields, {"podSpecPatch": patch} if patch else {}


_MAX_AGE: Final = "30d"
"""Maximum age of a result whose template has none."""


def cache(template: Fields, containers: Containers) -> Object:
    """Return the field `cache` of an activity, if its template has a `memoize`.

    Args:
        template: The template; takes `memoize`.
        containers: Converts the tags of the template.
    """
    if "memoize" not in template:
        return {}
    memoize = template.part("memoize")
    key = memoize.text("key")
    max_age = timeout(memoize, "maxAge")
    if max_age is None:
        memoize.note("maxAge", f"a result is used for at most {_MAX_AGE}; set `maxAge` of the activity's `cache`")
    if memoize.take("cache"):
        memoize.note("cache", "results are CachedResults, and only activities with the same name and work share them")
    memoize.done({})
    if key is None:
        memoize.gap("key", "must be set")
        return {}
    return {"cache": {"key": containers.text(key, memoize.at("key")), "maxAge": max_age or _MAX_AGE}}


_READY: Final = "${object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')}"

_ENDED: Final = "${object.status.phase == 'Succeeded' || object.status.phase == 'Failed'}"

_SHAPE: Final = Shape(("ip", "name"), is_service=True)


_OF_GROUP: Final = frozenset(
    {
        *(
            "name",
            "daemon",
            "container",
            "script",
            "inputs",
            "volumes",
            "retryStrategy",
            "activeDeadlineSeconds",
            "timeout",
        ),
        *("failFast", "executor", "annotations", *POD_FIELDS),
    }
)
"""The fields of a daemon that a service of a list of steps has, too."""


def group_service(
    name: str, template: Fields, report: ConversionReport, scope: ServiceScope, pods: PodDefaults
) -> Object | None:
    """Return the service of a list of steps for a template with `daemon`; None if only a Pod of its own can be that.

    Args:
        name: The name of the service.
        template: The template.
        report: Collects what differs; it counts only if there is a service.
        scope: What its tags refer to.
        pods: The settings of all pods of the workflow.
    """
    data = template.data
    kind = "container" if "container" in data else "script"
    mounts = [each.get("name") for each in (data.get(kind) or {}).get("volumeMounts") or []]
    used = [each for each in data if data[each] not in (None, {}, [], "", False)]
    unfit = not _OF_GROUP.issuperset(used) or (data.get("inputs") or {}).get("artifacts")
    if unfit or pods.labels or pods.annotations or pods.patch or pods.claims.intersection(mounts):
        return None
    containers = Containers(scope, report, EntryPoints())
    limit = attempt_limit(template)
    if template.take("retryStrategy") is not None:
        template.note("retryStrategy", "a service that ends is not restarted: the steps fail")
    source = template.part(kind)
    container = containers.plain(source) if kind == "container" else containers.script(source, Returns())
    pod: Object = {**pods.fields, **{key: data[key] for key in POD_FIELDS if key in data}}
    if "serviceAccountName" in pod:
        pod.setdefault("automountServiceAccountToken", True)  # as in every pod of Argo
    volumes = {**pods.volumes, **{each.get("name"): each for each in template.take("volumes", [])}}
    used_volumes = [volumes[each] for each in dict.fromkeys(mounts) if each in volumes]
    pod |= {"volumes": used_volumes} if used_volumes else {}
    user = container.pop("securityContext", None) or {}
    spec, patch = separated({"containers": [{"name": name, **container}]})
    patch = {**escaped(containers.computed(pod, template.path)), **patch}
    return {
        **spec["containers"][0],
        "securityContext": {"runAsNonRoot": False, **user},
        "readyTimeout": limit,
        **({"podSpecPatch": patch} if patch else {}),
    }


def service(
    name: str, template: Fields, report: ConversionReport, workflow: WorkflowFacts, pods: PodDefaults
) -> ConvertedActivity:
    """Return the activity that creates the Pod of a template with `daemon`, and waits until it is ready."""
    template.drop("name", "daemon", "failFast", "executor", "annotations")
    inputs = template.part("inputs")
    scope = PodScope(workflow, {each.text("name") or "": each for each in inputs.parts("parameters")}, {})
    inputs.done({"artifacts": "a Pod that runs on its own has no artifacts; put the files into its image"})
    account = template.data.get("serviceAccountName") or pods.fields.get("serviceAccountName", "default")
    template.note("daemon", f"the ServiceAccount `{account}` must be allowed to create, get, and delete Pods")
    metadata = template.part("metadata")
    labels = {"labels": {**pods.labels, **metadata.take("labels", {})}}
    annotations = {"annotations": {**pods.annotations, **metadata.take("annotations", {})}}
    metadata.done({})
    containers = Containers(scope, report, EntryPoints())
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name.lower().replace('_', '-')}-",
            **{key: value for key, value in {**labels, **annotations}.items() if value},
        },
        "spec": _pod(template, pods),
    }
    definition: Object = {
        "name": name,
        "startToCloseTimeout": attempt_limit(template),
        "retryPolicy": NO_RETRY,
        "resource": {
            "action": "Create",
            "serviceAccountName": account,
            "owned": True,
            "manifest": escaped(containers.computed(manifest, template.path)),
            "successCondition": _READY,
            "failureCondition": _ENDED,
            "output": {"ip": "${object.status.podIP}", "name": "${object.metadata.name}"},
        },
    }
    template.done(
        {
            "outputs": "a Pod that runs on its own returns its address; let another step write the outputs",
            "archiveLocation": "the log of a Pod that runs on its own is not archived",
        }
    )
    return ConvertedActivity(definition, _SHAPE, scope.captured, {})


def _pod(template: Fields, pods: PodDefaults) -> Object:
    """Return the spec of the Pod, with the tags of Argo."""
    kind = "container" if "container" in template else "script"
    container = template.take(kind, {})
    if kind == "script":
        command = [*container.pop("command", ["sh"])]
        container |= {"command": command, "args": ["-c", container.pop("source", "")]}
    restarts = "retryStrategy" in template
    template.drop("retryStrategy")
    if restarts:
        template.note("retryStrategy", "the container restarts on failure (`restartPolicy`), without a limit")
    fields = {**pods.fields, **{name: template.take(name) for name in POD_FIELDS if name in template}}
    volumes = {**pods.volumes, **{each.get("name"): each for each in template.take("volumes", [])}}
    mounts: list[Any] = container.get("volumeMounts") or []
    used = [volumes[each.get("name")] for each in mounts if each.get("name") in volumes]
    if any(each.get("name") in pods.claims for each in mounts):
        template.gap("container.volumeMounts", "a daemon Pod cannot mount a workspace; use a separate claim")
    return {
        **fields,
        "restartPolicy": "OnFailure" if restarts else "Never",
        **({"volumes": used} if used else {}),
        "containers": [{"name": "main", **{key: each for key, each in container.items() if key != "name"}}],
    }


def deletion(name: str, service_: Object) -> Object:
    """Return the activity that deletes the Pod of a service, whose `name` is its input."""
    return {
        "name": name,
        "startToCloseTimeout": "10m",
        "resource": {
            "action": "Delete",
            "serviceAccountName": service_["resource"]["serviceAccountName"],
            "manifest": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "${input.name}"}},
        },
    }
