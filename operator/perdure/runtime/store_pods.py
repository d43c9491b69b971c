"""Pods of Perdure that use an artifact store, and belong to no attempt. Only they get the credentials, from the Secret."""

from collections.abc import Mapping
from typing import Final

from perdure.runtime.artifacts import store_settings
from perdure.runtime.attempts import KubeObject

LOG_FILE: Final = "/dev/termination-log"
"""The file for the termination message."""
_RESOURCES: Final = {"requests": {"cpu": "5m", "memory": "64Mi"}}


def build_store_pod(
    metadata: KubeObject,
    program: str,
    store: str,
    variables: Mapping[str, str],
    *,
    image: str,
    user: int | None,
    seconds: int,
) -> KubeObject:
    """Build a pod that runs a program once.

    Args:
        metadata: Name, namespace and so on.
        program: The module of the program in `perdure.runner.artifacts`.
        store: The Secret of the artifact store.
        variables: More variables of the program.
        image: An image with `perdure.runner`.
        user: The user ID; None leaves it to the image.
        seconds: After this time, Kubernetes stops the pod.
    """
    container = {
        "name": program.replace("_", "-"),
        "image": image,
        "command": ["python", "-m", f"perdure.runner.artifacts.{program}"],
        "env": [
            *({"name": name, "value": value.replace("$", "$$")} for name, value in variables.items()),
            {"name": "PERDURE_TERMINATION_LOG", "value": LOG_FILE},
            *store_settings(store),
        ],
        "resources": _RESOURCES,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    who = {} if user is None else {"runAsUser": user}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": seconds,
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, **who, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }
