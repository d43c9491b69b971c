"""The Kubernetes Service of a service of steps: a name for the address of its pod.

It is headless, because it has one pod, and publishes the address before the pod is ready, so that no resolver remembers that the
name does not exist. It belongs to the pod: when the pod is deleted, so is the Service.
"""

from typing import Any

from perdure.api import labels
from perdure.api.names import service_name
from perdure.runtime.attempts import Attempt, KubeObject, RunRef
from perdure.runtime.pods.status import PodStatus, waiting_reason


def build_service(pod: KubeObject) -> KubeObject:
    """Build the Service of a pod that the API server has created.

    Args:
        pod: The pod of a service.
    """
    meta = pod["metadata"]
    of_run = {name: meta["labels"][name] for name in (labels.RUN_LABEL, labels.RUN_ID_LABEL)}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    name = meta["labels"][labels.SERVICE_LABEL]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {**of_run, labels.SERVICE_LABEL: name},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {labels.RUN_ID_LABEL: meta["labels"][labels.RUN_ID_LABEL], labels.SERVICE_LABEL: name},
        },
    }


def service_label(run: RunRef, attempt: Attempt) -> dict[str, str]:
    """The label by which a Service selects the pod of an attempt; none if it is not that of a service."""
    if not attempt.service:
        return {}
    return {labels.SERVICE_LABEL: service_name(run.name, attempt.service, attempt.scheduled_event_id)}


def service_of(pod: KubeObject) -> str:
    """The name of the Service of a pod; empty if it has none."""
    return str((pod["metadata"].get("labels") or {}).get(labels.SERVICE_LABEL) or "")


def belongs_to_pod(service: KubeObject, pod: KubeObject) -> bool:
    """Whether a Service is that of a pod."""
    owners = service["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == pod["metadata"]["uid"] for owner in owners)


def address_of(pod: KubeObject) -> dict[str, Any]:
    """The address of a service, as expressions read it.

    Args:
        pod: Its pod, which is ready.
    """
    host = f"{service_of(pod)}.{pod['metadata']['namespace']}.svc"
    return {"host": host, "ip": (pod.get("status") or {}).get("podIP") or "", "pod": pod["metadata"]["name"]}


def is_ready(pod: KubeObject) -> bool:
    """Whether a pod is ready, and is not being stopped."""
    status = PodStatus.of(pod)
    ready = (status.condition("Ready") or {}).get("status") == "True"
    return ready and status.phase == "Running" and "deletionTimestamp" not in pod["metadata"]


def why_not_ready(pod: KubeObject | None, main: str) -> str:
    """Say why a service is not ready.

    Args:
        pod: Its pod; None if it does not exist yet.
        main: The name of its container.
    """
    if pod is None:
        return "its pod does not exist yet"
    return waiting_reason(pod, main) or f"pod {pod['metadata']['name']} runs, and is not ready"
