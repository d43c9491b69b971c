"""The native sidecar (an init container that keeps running). It offers through files the functions of `perdure.activity`.

    activity's container                          sidecar                                    API server
    writes $PERDURE_FILES/heartbeat        ──▶    heartbeats with its contents         ──▶   Lease
    reads  $PERDURE_FILES/cancelled        ◀──    the response requests a stop         ◀──
    writes $PERDURE_FILES/result, exits 0  ──▶    is stopped, then delivers it         ──▶   its termination message, or the Lease

Kubernetes stops native sidecars once the other containers have ended; an attempt has succeeded when both have.
"""

from typing import Any, Final

from perdure.api.kinds.workflow import Sidecar
from perdure.api.pods import ACCOUNT_VOLUME, FILES_PATH, MOUNT_PATH, SIDECAR, VOLUME
from perdure.runtime.attempts import KubeObject, PodSettings

BLOCKING_SIGTERM: Final = ("env", "--block-signal=TERM")
"""The beginning of the command of a sidecar in the image of the operator. Kubernetes sends SIGTERM when the other containers have
ended. The kernel drops one that comes before the first process of a container handles signals, but keeps one that is blocked."""

_ACCOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

_ACCOUNT_SECONDS: Final = 3607
"""The path and the lifetime of tokens that Kubernetes itself mounts."""

_FILES_SIZE: Final = "8Mi"


def sidecar_container(definition: Sidecar, settings: PodSettings) -> KubeObject:
    """Build the container, without the parts that `mount_files` adds.

    Args:
        definition: The definition of the sidecar in the activity.
        settings: The operator's settings.
    """
    return {
        "name": SIDECAR,
        "image": definition.image or settings.sidecar_image,
        # Another image may have no `env` of GNU.
        "command": [*(() if definition.image else BLOCKING_SIGTERM), "python", "-m", "perdure.activity.sidecar"],
        "restartPolicy": "Always",
        "resources": definition.resources or {"requests": {"cpu": "5m", "memory": "24Mi"}},
    }


def mount_files(
    spec: KubeObject, main: KubeObject, sidecar: KubeObject, environment: list[KubeObject], definition: Sidecar
) -> None:
    """Give both containers their shared folder, and the sidecar its settings and a token.

    Only the sidecar gets the token: the activity's container cannot use it to reach the API server.

    Args:
        spec: The pod's spec, modified in place.
        main: The activity's container, modified in place.
        sidecar: The sidecar, modified in place.
        environment: The variables of the activity's container.
        definition: The definition of the sidecar in the activity.
    """
    token: list[dict[str, Any]] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _ACCOUNT_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    spec["volumes"] = [
        *(spec.get("volumes") or []),
        {"name": SIDECAR, "emptyDir": {"sizeLimit": _FILES_SIZE}},
        {"name": ACCOUNT_VOLUME, "projected": {"sources": token, "defaultMode": 0o444}},
    ]
    shared = {"name": SIDECAR, "mountPath": FILES_PATH}
    main["volumeMounts"] = [*(main.get("volumeMounts") or []), shared]
    sidecar["volumeMounts"] = [
        shared,
        {"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": True},
        {"name": ACCOUNT_VOLUME, "mountPath": _ACCOUNT_PATH, "readOnly": True},
    ]
    users = [(part.get("securityContext") or {}).get("runAsUser") for part in (main, spec)]
    user = next((one for one in users if one is not None), None)
    if user is not None:
        sidecar["securityContext"] = {"runAsUser": user}  # so that each can read what the other has written
    replaced = {"PERDURE_TERMINATION_LOG", "PERDURE_RESULT_SIZE", "PERDURE_RESULT_LIMIT", "PERDURE_INPUT"}
    sidecar["env"] = [
        *(variable for variable in environment if variable["name"] not in replaced),
        {"name": "PERDURE_TERMINATION_LOG", "value": "/dev/termination-log"},
        {"name": "PERDURE_FILES", "value": FILES_PATH},
        {"name": "PERDURE_AUTO_HEARTBEAT", "value": "true" if definition.auto_heartbeat else "false"},
    ]
