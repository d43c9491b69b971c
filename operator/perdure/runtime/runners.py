"""The pod of an HTTP request or an action on a Kubernetes object: the operator's image, with a file that describes the work."""

from typing import Any, Final

from perdure.api.reserved import WORK_PATH
from perdure.api.workflow import Activity
from perdure.runtime.attempts import KubeObject, PodSettings

_RESOURCES: Final = {"requests": {"cpu": "10m", "memory": "64Mi"}}


def work_of(definition: Activity) -> dict[str, Any]:
    """Return the work of the pod, for its file: the value of `http` or `resource`, whose expressions are evaluated.

    Args:
        definition: The activity.
    """
    if definition.http is not None:
        fields = definition.http.dump()
    else:
        assert definition.resource is not None, "the caller has checked it"
        fields = definition.resource.dump()
    fields.pop("resources", None)
    return {definition.work: fields}


def runner_pod(definition: Activity, settings: PodSettings) -> KubeObject:
    """Build the spec of the pod.

    Args:
        definition: The activity, with `http` or `resource`.
        settings: The operator's settings.
    """
    given = definition.http or definition.resource
    assert given is not None, "the caller has checked it"
    container: KubeObject = {
        "image": settings.sidecar_image,
        "command": ["python", "-m", "perdure.runner"],
        "env": [{"name": "PERDURE_WORK_FILE", "value": WORK_PATH}, *_secrets(definition)],
        "resources": given.resources or _RESOURCES,
    }
    if definition.resource is None:
        return {"containers": [container]}
    return {"serviceAccountName": definition.resource.service_account_name, "containers": [container]}


def _secrets(definition: Activity) -> list[KubeObject]:
    """Return variables with values from Secrets and ConfigMaps for the request; only the pod can read the values."""
    http = definition.http
    if http is None:
        return []
    variables: list[KubeObject] = [
        {"name": f"PERDURE_HEADER_{i}", "valueFrom": {"secretKeyRef": header.secret.dump()}}
        for i, header in enumerate(http.headers)
        if header.secret is not None
    ]
    if http.ca is not None:
        variables.append({"name": "PERDURE_CA", "valueFrom": {"configMapKeyRef": http.ca.dump()}})
    return variables
