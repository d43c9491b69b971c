"""The manifests of an environment: the Workflow with its activities, and the worker of its flows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perdure.api.kinds.artifact import MAX_OUTPUTS
from perdure.api.labels import ACTIVITIES_ANNOTATION
from perdure.api.times import format_duration
from perdure.flow.definitions import Secret, duration
from perdure.flow.files import artifacts_of
from perdure.flow.workspaces import mounts_of, workspaces_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.flow.definitions import Activity, Environment, Retry

Object = dict[str, Any]

ENVIRONMENT_LABEL: Final = "perdure.dev/flow-environment"
_WORKER_ROLE: Final = "perdure-temporal-worker"
_CODE: Final = "/flow"
"""Where a module from a ConfigMap is mounted."""
_USER: Final = 65532


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the code of an environment is, and what it connects to."""

    image: str
    """The image of the worker, and of activities without one of their own."""
    module: str
    """The module in the image: a path, or a dotted name. With `source`, its file name."""
    source: str | None = None
    """The text of the module, if a ConfigMap brings it into the pods."""
    address: str = "perdure-temporal.perdure-system:7233"
    """Address of the Temporal frontend."""

    @property
    def target(self) -> str:
        """The module, as the containers load it."""
        return self.module if self.source is None else f"{_CODE}/{self.module}"


def manifests_of(environment: Environment, placement: Placement, others: Iterable[Environment] = ()) -> list[Object]:
    """Return the objects that run the flows and the activities of an environment. One without flows needs no worker.

    Args:
        environment: The environment.
        placement: Where its code is.
        others: The other environments of the module, whose activities the flows may call. Runs keep those of their version.
    """
    name = f"{environment.name}-worker"
    account: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    binding: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _WORKER_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": name}],
    }
    found = [workflow_of(environment, placement)]
    if environment.flows:
        worker = _worker(environment, name, placement)
        called = [*found, *(workflow_of(each, placement) for each in others if each is not environment)]
        hashes = {each["metadata"]["name"]: each["metadata"]["annotations"][ACTIVITIES_ANNOTATION] for each in called}
        pods = worker["spec"]["podTemplate"]["metadata"]
        pods["annotations"] = {
            ACTIVITIES_ANNOTATION: ",".join(f"{key}={value}" for key, value in sorted(hashes.items()))
        }
        found = [account, binding, *found, worker]
    if placement.source is not None:
        code = {placement.module: placement.source}
        metadata = {"name": _code_name(environment, placement.source)}
        found.insert(
            0, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": code, "immutable": True}
        )
    for each in found:
        each["metadata"].setdefault("labels", {})[ENVIRONMENT_LABEL] = environment.name
    return found


def workflow_of(environment: Environment, placement: Placement) -> Object:
    """Return the Workflow with the activities of an environment."""
    message = f"this Workflow has the activities of the flows in {environment.name}: start one of the flows"
    mounted = [(each.name, each.options.workspaces) for each in environment.activities.values()]
    workspaces = workspaces_of(mounted)
    spec: Object = {
        **({"workspaces": workspaces} if workspaces else {}),
        "activities": [_activity(each, placement) for each in environment.activities.values()],
        "steps": [{"name": "start-a-flow", "fail": {"type": "NotAFlow", "message": message}}],
    }
    hashed = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:10]
    metadata: Object = {"name": environment.name, "annotations": {ACTIVITIES_ANNOTATION: hashed}}
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}


def _activity(activity: Activity[..., Any], placement: Placement) -> Object:
    environment, options = activity.environment, activity.options
    container: Object = {
        "name": "main",
        "image": environment.image or placement.image,
        "command": ["python", "-m", "perdure.flow.pod", placement.target, environment.name],
        "env": [*_variables(environment), *_secrets(environment)],
    }
    asked = environment.resources
    requests = {"cpu": asked.cpu, "memory": asked.memory}
    # Memory cannot be taken back, so that a node with more of it in use than requested kills containers; CPU can.
    limits = {"memory": asked.memory, "nvidia.com/gpu": str(asked.gpu) if asked.gpu else None}
    resources: Object = {"requests": _set(requests)} | ({"limits": _set(limits)} if _set(limits) else {})
    spec: Object = {"containers": [container | {"resources": resources}]}
    if environment.service_account is not None:
        spec["serviceAccountName"] = environment.service_account
    _mount_code(spec, environment, placement)
    template: Object = {"metadata": {"labels": environment.labels}} if environment.labels else {}
    found: Object = {
        "name": activity.name,
        "startToCloseTimeout": format_duration(options.timeout),
        "retryPolicy": retry_policy(options.retry),
        "podTemplate": {**template, "spec": spec},
    }
    if options.total_timeout is not None:
        found["scheduleToCloseTimeout"] = format_duration(options.total_timeout)
    if options.heartbeat is not None:
        found["heartbeatTimeout"] = format_duration(options.heartbeat)
    if options.limits:
        found["limits"] = [{"name": name} for name in options.limits]
    if options.cache is not None:
        found["cache"] = {"key": "${input}", "maxAge": format_duration(options.cache)}
    if options.workspaces:
        found["workspaces"] = mounts_of(options.workspaces)
    return {**found, **options.definition, **_artifacts(activity)}


def _artifacts(activity: Activity[..., Any]) -> Object:
    """Return the field with the artifacts of an activity: its own, and those for the files of its signature."""
    signature = activity.signature
    files = artifacts_of(reads=signature.reads_files, returns=signature.returns_files)
    theirs = activity.options.definition.get("artifacts") or {}
    if not files:
        return {"artifacts": theirs} if theirs else {}
    lists = {key: [*theirs.get(key, []), *value] for key, value in files.items()}
    del lists.get("outputs", [])[MAX_OUTPUTS:]  # its own take the places of files
    return {"artifacts": {**theirs, **lists}}


def retry_policy(retry: Retry | str) -> Object:
    """Return the field with the retry policy of an activity."""
    if isinstance(retry, str):
        return {"name": retry}
    found: Object = {
        "initialInterval": format_duration(duration(retry.initial)),
        "backoffCoefficient": str(retry.backoff),
    }
    if retry.maximum is not None:
        found["maximumInterval"] = format_duration(duration(retry.maximum))
    if retry.attempts:
        found["maximumAttempts"] = retry.attempts
    if retry.not_for:
        found["nonRetryableErrorTypes"] = retry.non_retryable
    return {"exponential": found}


def _worker(environment: Environment, account: str, placement: Placement) -> Object:
    container: Object = {
        "name": "worker",
        "image": placement.image,
        "command": ["python", "-m", "perdure.flow.serve", placement.target],
        "env": [
            {"name": "TEMPORAL_ADDRESS", "value": placement.address},
            {"name": "TEMPORAL_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            *_variables(environment),
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "perdure", "mountPath": "/var/run/perdure", "readOnly": True}],
    }
    token = {"path": "token", "audience": "perdure.dev/temporal", "expirationSeconds": 3600}
    authority = {"name": "perdure-temporal-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [{"serviceAccountToken": token}, {"configMap": authority}]
    profile = {"type": "RuntimeDefault"}
    spec: Object = {
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "seccompProfile": profile},
        "containers": [container],
        "volumes": [{"name": "perdure", "projected": {"sources": sources}}],
    }
    _mount_code(spec, environment, placement)
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkerDeployment",
        "metadata": {"name": environment.name},
        "spec": {
            "taskQueues": [environment.name],
            "podTemplate": {"metadata": {"labels": {ENVIRONMENT_LABEL: environment.name}}, "spec": spec},
        },
    }


def _set(amounts: dict[str, str | None]) -> dict[str, str]:
    return {name: amount for name, amount in amounts.items() if amount}


def _variables(environment: Environment) -> list[Object]:
    return [{"name": key, "value": value} for key, value in environment.env.items() if isinstance(value, str)]


def _secrets(environment: Environment) -> list[Object]:
    return [
        {"name": key, "valueFrom": {"secretKeyRef": _secret_key(value)}}
        for key, value in environment.env.items()
        if isinstance(value, Secret)
    ]


def _secret_key(secret: Secret) -> Object:
    optional: Object = {"optional": True} if secret.optional else {}
    return {"name": secret.name, "key": secret.key, **optional}


def _mount_code(spec: Object, environment: Environment, placement: Placement) -> None:
    """Mount the ConfigMap with the module into the first container of a pod."""
    if placement.source is None:
        return
    spec.setdefault("volumes", []).append(
        {"name": "code", "configMap": {"name": _code_name(environment, placement.source)}}
    )
    mounts = spec["containers"][0].setdefault("volumeMounts", [])
    mounts.append({"name": "code", "mountPath": _CODE, "readOnly": True})


def _code_name(environment: Environment, source: str) -> str:
    """The name of the ConfigMap with a module: each content has its own, because open runs keep the code they started with."""
    return f"{environment.name}-code-{hashlib.sha256(source.encode()).hexdigest()[:10]}"
