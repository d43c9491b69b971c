"""The versions of workers in the Kubernetes API: build IDs, Deployments, and what Deployments and pods say about them. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from perdure.api.json_values import mapping
from perdure.api.kinds.workerdeployment import WorkerDeploymentSpec
from perdure.api.labels import (
    API_VERSION,
    REVISIONS_ANNOTATION,
    TEMPLATE_ANNOTATION,
    WORKER_DEPLOYMENT_LABEL,
    WORKER_VERSION_LABEL,
)
from perdure.api.names import worker_version_name
from perdure.api.times import parse_time
from perdure.runtime.attempts import PodSettings, add_pull_secrets
from perdure.runtime.pods.status import is_problem, waiting_reason
from perdure.runtime.workers import activities
from perdure.runtime.workers.plan import Deployed

KubeObject = Mapping[str, Any]

DEPLOYMENT_NAME: Final = "TEMPORAL_DEPLOYMENT_NAME"
BUILD_ID: Final = "TEMPORAL_WORKER_BUILD_ID"
"""Environment variables with the deployment and the version of a worker, as Temporal's Worker Controller sets them."""
_LONGEST: Final = 1000
"""Maximum length of a problem, in characters."""


def template_hash(spec: WorkerDeploymentSpec) -> str:
    """The hash of the pod template: ten hexadecimal digits, the same for the same template."""
    content = orjson.dumps(spec.pod_template.dump(), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()[:10]


def build_id(spec: WorkerDeploymentSpec) -> str:
    """The build ID of the version in a spec."""
    return spec.build_id or template_hash(spec)


def selector(name: str, build: str) -> dict[str, str]:
    """The labels that select the pods of a version.

    Args:
        name: Name of the WorkerDeployment.
        build: The build ID.
    """
    return {WORKER_DEPLOYMENT_LABEL: name, WORKER_VERSION_LABEL: build}


def deployment(
    owner: KubeObject,
    spec: WorkerDeploymentSpec,
    replicas: int,
    settings: PodSettings,
    revisions: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The Deployment of the version in a spec.

    Args:
        owner: The WorkerDeployment.
        spec: Its spec.
        replicas: The number of pods.
        settings: The operator's settings.
        revisions: The revisions with the activities of the version, by Workflow; None if it names none.
    """
    named = {REVISIONS_ANNOTATION: activities.written(revisions)} if revisions else {}
    meta, build = owner["metadata"], build_id(spec)
    labels = selector(meta["name"], build)
    reference = {"apiVersion": API_VERSION, "kind": "WorkerDeployment", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": worker_version_name(meta["name"], build),
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {TEMPLATE_ANNOTATION: template_hash(spec), **named},
            "ownerReferences": [{**reference, "controller": True}],
        },
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": labels},
            "template": pod_template(meta["name"], spec, settings),
        },
    }


def pod_template(name: str, spec: WorkerDeploymentSpec, settings: PodSettings) -> dict[str, Any]:
    """The pod template of the Deployment of the version in a spec: with its labels, and the variables for the SDK.

    Args:
        name: Name of the WorkerDeployment.
        spec: Its spec.
        settings: The operator's settings. Workers of flows can have its image, which may need pull secrets.
    """
    build, template = build_id(spec), spec.pod_template.dump()
    meta = template.get("metadata") or {}
    variables = [{"name": DEPLOYMENT_NAME, "value": name}, {"name": BUILD_ID, "value": build}]
    containers = [_with_variables(each, variables) for each in template["spec"].get("containers") or ()]
    pods = {**template["spec"], "containers": containers}
    add_pull_secrets(pods, settings)
    return {"metadata": {**meta, "labels": {**(meta.get("labels") or {}), **selector(name, build)}}, "spec": pods}


def _with_variables(container: Any, variables: list[dict[str, str]]) -> Any:
    if not isinstance(container, Mapping):
        return container
    ours = {each["name"] for each in variables}
    kept = [each for each in container.get("env") or () if mapping(each).get("name") not in ours]
    return {**container, "env": [*variables, *kept]}  # first: values of later variables may refer to them


def deployed(found: KubeObject, pods: Iterable[KubeObject], now: datetime) -> Deployed:
    """What a Deployment and its pods say about a version.

    Args:
        found: The Deployment.
        pods: Its pods, or none if they are all ready.
        now: The time, if the Deployment has no time of its creation.
    """
    meta, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    created = meta.get("creationTimestamp")
    return Deployed(
        replicas=int(spec.get("replicas", 1)),
        ready=int(status.get("readyReplicas") or 0),
        template=str((meta.get("annotations") or {}).get(TEMPLATE_ANNOTATION, "")),
        created=parse_time(created) if created else now,
        problem=_problem(found, pods),
    )


def build_of(found: KubeObject) -> str:
    """The build ID of a Deployment of the operator; empty if it is not one."""
    return str((found["metadata"].get("labels") or {}).get(WORKER_VERSION_LABEL, ""))


def is_owned(found: KubeObject, uid: str) -> bool:
    """Whether a WorkerDeployment, by UID, owns a Deployment."""
    return any(each.get("uid") == uid for each in found["metadata"].get("ownerReferences") or ())


def is_unsettled(found: KubeObject) -> bool:
    """Whether a Deployment has pods that are not ready, or could not create some."""
    wanted = int((found.get("spec") or {}).get("replicas", 1))
    return wanted > int((found.get("status") or {}).get("readyReplicas") or 0)


def _problem(found: KubeObject, pods: Iterable[KubeObject]) -> str:
    for condition in (found.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return f"{condition.get('reason')}: {condition.get('message')}"[:_LONGEST]
    return next((text for pod in pods if (text := _problem_of(pod))), "")[:_LONGEST]


def _problem_of(pod: KubeObject) -> str:
    """Why a pod does not start, or restarts; empty if it is well, or about to start or to be deleted."""
    name, meta = str(pod["metadata"].get("name")), pod["metadata"]
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    if meta.get("deletionTimestamp"):
        return ""
    reason = waiting_reason(dict(pod), str(containers[0].get("name")))
    if reason is not None and is_problem(reason):
        return f"pod `{name}`: {reason}{_last_exit(pod)}"
    restarted = [each for each in (pod.get("status") or {}).get("containerStatuses") or () if not each.get("ready")]
    if any(int(each.get("restartCount") or 0) for each in restarted):
        return f"pod `{name}` was restarted{_last_exit(pod)}"
    return ""


def _last_exit(pod: KubeObject) -> str:
    """How the last container of a pod that was restarted ended; empty if none was."""
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = mapping(mapping(each.get("lastState")).get("terminated"))
        if ended:
            text = f"; container {each.get('name')} ended with exit code {ended.get('exitCode')}"
            message = str(ended.get("message") or "").strip()
            return f"{text}: {message}" if message else text
    return ""
