"""Converts Argo's daemons: activities that create a Pod and return its address, and delete it when its template ends."""

from typing import Any, Final

from perdure.importing.argo_activities import LONGEST, POD_FIELDS, MadeActivity, PodDefaults
from perdure.importing.argo_pods import Containers
from perdure.importing.argo_retry import NO_RETRY, timeout
from perdure.importing.argo_scope import PodScope, Shape, WorkflowFacts
from perdure.importing.computed import escaped
from perdure.importing.field_reader import ConversionReport, Fields, Object

_READY: Final = "${object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')}"
_ENDED: Final = "${object.status.phase == 'Succeeded' || object.status.phase == 'Failed'}"
_SHAPE: Final = Shape(("ip", "name"), is_service=True)


def service(
    name: str, template: Fields, report: ConversionReport, workflow: WorkflowFacts, pods: PodDefaults
) -> MadeActivity:
    """Return the activity that creates the Pod of a template with `daemon`, and waits until it is ready."""
    template.drop("name", "daemon", "outputs", "failFast", "executor", "annotations", "archiveLocation")
    inputs = template.part("inputs")
    scope = PodScope(workflow, {each.text("name") or "": each for each in inputs.parts("parameters")}, {})
    inputs.done({"artifacts": "a Pod that runs on its own has no artifacts; put the files into its image"})
    account = template.data.get("serviceAccountName") or pods.fields.get("serviceAccountName", "default")
    template.note("daemon", f"the ServiceAccount `{account}` must be allowed to create, get, and delete Pods")
    metadata = template.part("metadata")
    labels = {"labels": {**pods.labels, **metadata.take("labels", {})}}
    annotations = {"annotations": {**pods.annotations, **metadata.take("annotations", {})}}
    metadata.done({})
    containers = Containers(scope, report)
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
        "startToCloseTimeout": timeout(template, "activeDeadlineSeconds", "timeout") or LONGEST,
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
    template.done({})
    return MadeActivity(definition, _SHAPE, scope.captured, {})


def _pod(template: Fields, pods: PodDefaults) -> Object:
    """Return the spec of the Pod, with the tags of Argo."""
    kind = "container" if "container" in template else "script"
    container = template.take(kind, {})
    if kind == "script":
        command = [*container.pop("command", ["sh"])]
        container |= {"command": command, "args": ["-c", container.pop("source", "")]}
    restarts = template.take("retryStrategy") is not None
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
