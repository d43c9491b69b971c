"""The manifests of an environment: the Workflow with its activities, and the worker of its flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.api.times import format_duration
from perdure.flow.definitions import duration

if TYPE_CHECKING:
    from perdure.flow.definitions import Activity, Environment, Retry

Object = dict[str, Any]

VERSION_LABEL: Final = "perdure.dev/flow-version"
ENVIRONMENT_LABEL: Final = "perdure.dev/flow-environment"
CLIENT_ROLE: Final = "perdure-temporal-worker"
_USER: Final = 65532


def manifests_of(environment: Environment, *, target: str, image: str, version: str, address: str) -> list[Object]:
    """Return the objects that run the flows of an environment.

    Args:
        environment: The environment.
        target: The module, as the image has it: a path, or a dotted name.
        image: The image of activities without one of their own, and of the worker.
        version: The version of the code, a DNS label. Open runs stay on the version on which they began.
        address: Address of the Temporal frontend.
    """
    name = f"{environment.name}-worker"
    suffix = f"-{version}"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CLIENT_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": name}],
    }
    workflow = workflow_of(environment, target=target, image=image, suffix=suffix)
    worker = _worker(environment, name, target=target, image=image, version=version, address=address)
    return [account, binding, workflow, worker]


def workflow_of(environment: Environment, *, target: str, image: str, suffix: str = "") -> Object:
    """Return the Workflow with the activities of an environment.

    Args:
        environment: The environment.
        target: The module, as the image has it.
        image: The image, if the environment has none.
        suffix: What follows the name of the environment in that of the Workflow.
    """
    activities = [_activity(each, target, environment.image or image) for each in environment.activities.values()]
    message = f"this Workflow has the activities of the flows in {environment.name}: start one of the flows"
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": f"{environment.name}{suffix}", "labels": {ENVIRONMENT_LABEL: environment.name}},
        "spec": {
            "activities": activities,
            "steps": [{"name": "start-a-flow", "fail": {"type": "NotAFlow", "message": message}}],
        },
    }


def _activity(activity: Activity[..., Any], target: str, image: str) -> Object:
    environment, options = activity.environment, activity.options
    resources: Object = {
        key: value
        for key, value in (("cpu", environment.resources.cpu), ("memory", environment.resources.memory))
        if value
    }
    container: Object = {"image": image, "command": ["python", "-m", "perdure.flow.pod", target]}
    if environment.env:
        container["env"] = [{"name": key, "value": value} for key, value in environment.env.items()]
    if resources or environment.resources.gpu:
        container["resources"] = {"requests": resources} if resources else {}
        if environment.resources.gpu:
            container["resources"]["limits"] = {"nvidia.com/gpu": str(environment.resources.gpu)}
    found: Object = {
        "name": activity.name,
        "startToCloseTimeout": format_duration(options.timeout),
        "retryPolicy": {"exponential": _policy(options.retry)},
        "container": container,
    }
    if options.total_timeout is not None:
        found["scheduleToCloseTimeout"] = format_duration(options.total_timeout)
    if options.heartbeat is not None:
        found["heartbeatTimeout"] = format_duration(options.heartbeat)
    if options.limits:
        found["limits"] = [{"name": name} for name in options.limits]
    if options.cache is not None:
        found["cache"] = {"key": "${input}", "maxAge": format_duration(options.cache)}
    if environment.service_account is not None:
        found["podTemplate"] = {"spec": {"serviceAccountName": environment.service_account}}
    return {**found, **options.definition}


def _policy(retry: Retry) -> Object:
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
    return found


def _worker(environment: Environment, name: str, *, target: str, image: str, version: str, address: str) -> Object:
    """Return the Deployment of one version of the worker."""
    labels = {ENVIRONMENT_LABEL: environment.name, VERSION_LABEL: version}
    variables: list[Object] = [
        {"name": "TEMPORAL_ADDRESS", "value": address},
        {"name": "TEMPORAL_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "TEMPORAL_DEPLOYMENT_NAME", "value": environment.name},
        {"name": "TEMPORAL_WORKER_BUILD_ID", "value": version},
        {"name": "PERDURE_FLOW_PODS", "value": f"-{version}"},
        *({"name": key, "value": value} for key, value in environment.env.items()),
    ]
    container = {
        "name": "worker",
        "image": image,
        "command": ["python", "-m", "perdure.flow.serve", target],
        "env": variables,
        "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "perdure", "mountPath": "/var/run/perdure", "readOnly": True}],
    }
    token = {"path": "token", "audience": "perdure.dev/temporal", "expirationSeconds": 3600}
    authority = {"name": "perdure-temporal-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{name}-{version}", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": name,
                    "automountServiceAccountToken": False,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": _USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "volumes": [
                        {
                            "name": "perdure",
                            "projected": {"sources": [{"serviceAccountToken": token}, {"configMap": authority}]},
                        }
                    ],
                },
            },
        },
    }
