"""Checks an activity without the API server: its pod, artifacts, HTTP request or action on an object, limits, and cache.

In a pod, it finds names that Perdure reserves, and values that are not text.
"""

import posixpath
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

from perdure.api import pods
from perdure.api.kinds.artifact import Artifacts
from perdure.api.kinds.workflow import Activity, GroupService, Http, KubernetesResource, ResourceAction
from perdure.api.pod_fields import CONTAINER, POD_SPEC, VERSION, unknown_fields
from perdure.api.pods import NEEDS, ContainerOrderError, needs_of
from perdure.language.cel import compile_source
from perdure.language.coercion import format_value
from perdure.language.containers import NAMES, places
from perdure.language.expressions import ExpressionError, Template, compile_condition, compile_template
from perdure.language.keys import LIMIT_NAMES
from perdure.language.program import Finding, Severity

# The pod


def of_pod(path: str, activity: Activity) -> Iterator[Finding]:
    """Check an activity's pod; `path` is the path of the activity."""
    has_sidecar, has_artifacts = activity.sidecar is not None, activity.artifacts is not None
    yield from _mounts(path, activity)
    yield from _patch(f"{path}.podSpecPatch", activity.pod_spec_patch or {})
    yield from _unknown(f"{path}.podSpecPatch", POD_SPEC, activity.pod_spec_patch)
    volumes = {pods.VOLUME, pods.ORDER, *((pods.SIDECAR, pods.ACCOUNT_VOLUME) if has_sidecar else ())}
    volumes |= {pods.ARTIFACTS, pods.OUTPUTS, pods.LOG} if has_artifacts else set()
    services = [(f"{path}.services[{i}]", each.dump()) for i, each in enumerate(activity.services)]
    yield from _services(services)
    if activity.pod_template is not None:
        path, spec = f"{path}.podTemplate.spec", activity.pod_template.spec.dump()
        yield from _order(path, spec)
        yield from _unknown(path, POD_SPEC, spec)
        for i, volume in enumerate(_objects(spec, "volumes")):
            if volume.get("name") in volumes or str(volume.get("name") or "").startswith(pods.WORKSPACE_VOLUME):
                yield _reserved(f"{path}.volumes[{i}].name", f"a volume named `{volume['name']}`")
        containers = [
            (f"{path}.{key}[{i}]", container)
            for key in ("containers", "initContainers")
            for i, container in enumerate(_objects(spec, key))
        ]
    elif activity.container is not None:
        containers = [(f"{path}.container", activity.container.dump())]
        yield from _unknown(f"{path}.container", CONTAINER, activity.container.dump())
    elif activity.script is not None:
        containers = [(f"{path}.script", activity.script.dump())]
        fields = {key: each for key, each in containers[0][1].items() if key not in {"source", "result"}}
        yield from _unknown(f"{path}.script", CONTAINER, fields)
    else:
        containers = []
    for where, container in (*containers, *services):
        yield from _not_text(where, container)
        names = {*((pods.SIDECAR,) if has_sidecar else ())}
        names |= {pods.ARTIFACTS, pods.OUTPUTS} if has_artifacts else set()
        if container.get("name") in names:
            yield _reserved(f"{where}.name", f"a container named `{container['name']}`")
    if containers:
        yield from _main(*containers[0], activity)


def _services(services: list[tuple[str, dict[str, Any]]]) -> Iterator[Finding]:
    """Check the services of an activity, each with its path."""
    for path, service in services:
        yield from _unknown(path, CONTAINER, service)
        if "restartPolicy" in service:
            yield Finding(f"{path}.restartPolicy", "must not be used: Kubernetes restarts a service that ends")
        if not service.keys() & {"readinessProbe", "startupProbe"}:
            message = "is not set, so the activity does not wait until the service is ready"
            yield Finding(f"{path}.readinessProbe", message, Severity.WARNING)


def of_service(path: str, service: GroupService) -> Iterator[Finding]:
    """Check what is special about a service of steps; `path` is its path."""
    fields = service.dump()
    if "restartPolicy" in fields:
        message = "must not be used: steps whose service ends fail, because what they stored in it may be lost"
        yield Finding(f"{path}.restartPolicy", message)
    if not service.ready_timeout:
        yield Finding(f"{path}.readyTimeout", "must be longer than `0s`, or left out")
    if "readinessProbe" not in fields:
        message = "is not set, so the steps start as soon as the container of the service runs"
        yield Finding(f"{path}.readinessProbe", message, Severity.WARNING)


def _main(path: str, container: dict[str, Any], activity: Activity) -> Iterator[Finding]:
    """Check the activity's own container; `path` is the path of the container."""
    mounts = {pods.MOUNT_PATH, pods.ORDER_PATH}
    mounts |= {pods.FILES_PATH} if activity.sidecar is not None else set()
    mounts |= {mount.target.rstrip("/") for mount in activity.workspaces}
    if activity.artifacts is not None:
        mounts |= {each.path.rstrip("/") for each in activity.artifacts.inputs}
        mounts |= {pods.RESULT_PATH} if activity.artifacts.large_results else set()
        if activity.artifacts.archive_logs:
            mounts.add(pods.LOG_PATH)
            if activity.script is None and not _list(container, "command"):
                yield Finding(f"{path}.command", "must be set to archive the log: use the entrypoint of the image")
    for i, mount in enumerate(_objects(container, "volumeMounts")):
        target = str(mount.get("mountPath") or "").rstrip("/")
        if target in mounts:
            yield _reserved(f"{path}.volumeMounts[{i}].mountPath", f"a mount at `{target}`")


def _order(path: str, spec: dict[str, Any]) -> Iterator[Finding]:
    """Check the order of the containers in a pod template."""
    containers = [
        {"name": pods.DEFAULT_CONTAINER if i == 0 else "", **each}
        for i, each in enumerate(_objects(spec, "containers"))
    ]
    try:
        needs_of(containers)
    except ContainerOrderError as error:
        yield Finding(f"{path}.{error.field}", error.message)
    for i, container in enumerate(_objects(spec, "initContainers")):
        if NEEDS in container:
            message = "must not be used: init containers run in the order of the list, before the containers"
            yield Finding(f"{path}.initContainers[{i}].{NEEDS}", message)


def _patch(path: str, patch: dict[str, Any]) -> Iterator[Finding]:
    """Check that a patch of the pod does not change Perdure's own volumes and containers."""
    reserved = {pods.VOLUME, pods.SIDECAR, pods.ACCOUNT_VOLUME}
    for i, volume in enumerate(_objects(patch, "volumes")):
        if volume.get("name") in reserved or str(volume.get("name") or "").startswith(pods.WORKSPACE_VOLUME):
            yield _reserved(f"{path}.volumes[{i}].name", f"a volume named `{volume['name']}`")
    for key in ("containers", "initContainers"):
        for i, container in enumerate(_objects(patch, key)):
            if container.get("name") == pods.SIDECAR:
                yield _reserved(f"{path}.{key}[{i}].name", f"a container named `{pods.SIDECAR}`")
            elif not isinstance(container.get("name"), str):
                yield Finding(f"{path}.{key}[{i}].name", "must be set: containers are merged by their names")


def _mounts(path: str, activity: Activity) -> Iterator[Finding]:
    """Check the workspaces and artifacts of an activity."""
    targets: set[str] = set()
    for i, mount in enumerate(activity.workspaces):
        where, target = f"{path}.workspaces[{i}]", mount.target.rstrip("/")
        if target in {pods.MOUNT_PATH, pods.FILES_PATH}:
            yield _reserved(f"{where}.mountPath", f"a mount at `{target}`")
        elif target in targets:
            yield Finding(f"{where}.mountPath", f"another workspace or artifact is already mounted at `{target}`")
        targets.add(target)
        if mount.sub_path.startswith("/") or ".." in mount.sub_path.split("/"):
            yield Finding(f"{where}.subPath", "must be a relative path without `..`")
    for i, artifact in enumerate(activity.artifacts.inputs if activity.artifacts is not None else ()):
        where, target = f"{path}.artifacts.inputs[{i}]", artifact.path.rstrip("/")
        if target in {pods.MOUNT_PATH, pods.FILES_PATH}:
            yield _reserved(f"{where}.path", f"a mount at `{target}`")
        elif target in targets:
            yield Finding(f"{where}.path", f"another workspace or artifact is already mounted at `{target}`")
        targets.add(target)


def _not_text(path: str, container: dict[str, Any]) -> Iterator[Finding]:
    """Find numbers, booleans, and the like where Kubernetes only accepts text: YAML reads `3` and `yes` as such."""
    values = [(f"{key}[{i}]", value) for key in ("command", "args") for i, value in enumerate(_list(container, key))]
    values += [(f"env[{i}].value", one["value"]) for i, one in enumerate(_objects(container, "env")) if "value" in one]
    for where, value in values:
        if value is not None and not isinstance(value, str):
            yield Finding(f"{path}.{where}", f"must be a string, not {format_value(value)}; put it in quotes")


def _unknown(path: str, of_type: str, value: Any) -> Iterator[Finding]:
    """Find fields of a pod or a container that Kubernetes does not know, and for which the API server rejects the pod."""
    for where, name, known in unknown_fields(of_type, value):
        if name == NEEDS:
            continue  # a field of Perdure, in containers
        near = get_close_matches(name, known, 1)
        hint = f"did you mean `{near[0]}`?" if near else "remove it"
        message = f"Kubernetes {VERSION} has no such field, and rejects pods with unknown ones; {hint}"
        yield Finding(f"{path}.{where}{name}", message, Severity.WARNING, local=True)


def _reserved(path: str, what: str) -> Finding:
    return Finding(path, f"Perdure reserves {what} in the activity's pod; choose another one")


def _objects(parent: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [one if isinstance(one, dict) else {} for one in _list(parent, key)]


def _list(parent: dict[str, Any], key: str) -> list[Any]:
    value = parent.get(key)
    return value if isinstance(value, list) else []


# Artifacts


_RESERVED_FOLDERS: Final = (pods.MOUNT_PATH, pods.FILES_PATH, pods.LOG_PATH, pods.RESULT_PATH)


def of_artifacts(path: str, artifacts: Artifacts) -> Iterator[Finding]:
    """Find the mistakes in the artifacts of an activity.

    Args:
        path: The path of the artifacts.
        artifacts: The artifacts.
    """
    for i, artifact in enumerate(artifacts.inputs):
        where = f"{path}.inputs[{i}]"
        url = artifact.http.url if artifact.http is not None else ""
        if url and not url.startswith(("http://", "https://", "${")):
            yield Finding(f"{where}.http.url", "must begin with `http://` or `https://`")
        if artifact.from_ is not None and not _is_expression(artifact.from_):
            yield Finding(f"{where}.from", "must be one expression, such as `${input.report}`")
    for i, output in enumerate(artifacts.outputs):
        message = _misplaced(output.path.rstrip("/"), artifacts)
        if message is not None:
            yield Finding(f"{path}.outputs[{i}].path", message)


def _misplaced(target: str, artifacts: Artifacts) -> str | None:
    """Return the mistake in the path of an output; None if it is valid."""
    parent = posixpath.dirname(target)
    if ".." in target.split("/"):
        return "must not contain `..`"
    if any(_within(target, folder) for folder in _RESERVED_FOLDERS):
        return f"must not be in `{target if parent == '/' else parent}`, which is a folder of Perdure"
    if any(_within(target, each.path.rstrip("/")) for each in artifacts.inputs):
        return "must not be in an input artifact, which is read-only"
    return None


def _within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def _is_expression(text: str) -> bool:
    try:
        return compile_template(text).is_expression
    except ExpressionError:
        return True  # where expressions are checked, it is reported


# The HTTP request, or the action on a Kubernetes object


RESPONSE: Final = "response"
"""The name of the response in conditions and the output."""
OBJECT: Final = "object"
"""The name of the object from the API server in conditions and the output."""


def later_templates(path: str, activity: Activity) -> tuple[list[tuple[str, Template, bool]], list[Finding]]:
    """Return the expressions that the pod evaluates after its work, and the errors of those that do not compile.

    Args:
        path: The path of the activity.
        activity: The definition of the activity.

    Returns:
        The path, the template, and whether it is a condition, for each expression.
    """
    request = activity.http or activity.resource
    if request is None:
        return [], []
    names = NAMES | {RESPONSE if activity.http is not None else OBJECT}
    texts = [("successCondition", request.success_condition, True), ("output", request.output, False)]
    if activity.resource is not None:
        texts.append(("failureCondition", activity.resource.failure_condition, True))
    templates, findings = [], []
    for field, text, condition in texts:
        if text is None:
            continue
        place = f"{path}.{activity.work}.{field}"
        try:
            compile_one = compile_condition if condition else compile_template
            templates.append((place, compile_one(text, path=place, names=names), condition))
        except ExpressionError as error:
            what = f"`{error.expression}`: " if error.expression else ""
            findings.append(Finding(error.path or place, f"{what}{error.message}"))
    return templates, findings


def of_work(path: str, activity: Activity) -> Iterator[Finding]:
    """Check the HTTP request or the action of an activity.

    Args:
        path: The path of the activity.
        activity: The definition of the activity.
    """
    if activity.http is not None:
        yield from _of_http(f"{path}.http", activity.http)
    if activity.resource is not None:
        yield from _of_resource(f"{path}.resource", activity.resource)


def _of_http(path: str, http: Http) -> Iterator[Finding]:
    if not http.url.startswith(("http://", "https://", "${")):
        yield Finding(f"{path}.url", "must start with `https://` or `http://`")
    if http.body is not None and http.method in {"GET", "HEAD"}:
        yield Finding(f"{path}.body", f"must not be used with `method: {http.method}`; use POST or PUT")


def _of_resource(path: str, resource: KubernetesResource) -> Iterator[Finding]:
    manifest, action = resource.manifest, resource.action
    metadata = manifest.get("metadata")
    names: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    for field in ("apiVersion", "kind"):
        if not isinstance(manifest.get(field), str):
            yield Finding(f"{path}.manifest.{field}", f"must be set, such as `{field}: {_EXAMPLES[field]}`")
    generated = action is ResourceAction.CREATE and isinstance(names.get("generateName"), str)
    if not isinstance(names.get("name"), str) and not generated:
        also = ", or `generateName`" if action is ResourceAction.CREATE else ""
        yield Finding(f"{path}.manifest.metadata.name", f"must be set{also}")
    if (resource.patch is not None) != (action is ResourceAction.PATCH):
        yield Finding(f"{path}.patch", "must be used with `action: Patch`, and only with it")
    if resource.owned and action not in {ResourceAction.CREATE, ResourceAction.APPLY}:
        yield Finding(f"{path}.owned", "must be used with `action: Create` or `action: Apply`")


_EXAMPLES: Final = {"apiVersion": "batch/v1", "kind": "Job"}


# WorkflowLimits


def key_templates(path: str, activity: Activity) -> tuple[list[tuple[str, Template]], list[Finding]]:
    """Return the templates of the keys of an activity's limits, and the errors of those that do not compile.

    Args:
        path: The path of the activity.
        activity: The definition of the activity.
    """
    templates, findings = [], []
    for i, use in enumerate(activity.limits):
        place = f"{path}.limits[{i}].key"
        try:
            templates.append((place, compile_template(use.key, path=place, names=LIMIT_NAMES)))
        except ExpressionError as error:
            findings.append(Finding(place, f"`{error.expression}`: {error.message}"))
    return templates, findings


# The cache


def of_cache(path: str, activity: Activity) -> Iterator[Finding]:
    """Warn about the cache of an activity.

    Args:
        path: The path of the activity.
        activity: The definition of the activity.
    """
    if activity.cache is None:
        return
    readers = [where for where, text in places(activity) if _reads_input(text)]
    if readers and "cache.key" not in readers:
        message = f"the result is the same for every input, but `{readers[0]}` reads `input`; use it in the key, too"
        yield Finding(f"{path}.cache.key", message, Severity.WARNING, local=True)
    if any(not mount.read_only for mount in activity.workspaces):
        message = (
            "an activity that uses a cached result does not write files to its workspaces; mount them `readOnly`, or pass files "
            "as `artifacts`"
        )
        yield Finding(f"{path}.cache", message, Severity.WARNING, local=True)


def _reads_input(text: str) -> bool:
    try:
        sources = compile_template(text, names=NAMES).sources
    except ExpressionError:
        return True  # it is an error anyway
    return any("input" in compile_source(source, NAMES).names for source in sources)
