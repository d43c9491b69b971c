"""Names in the pod of an activity that are reserved for Perdure."""

from typing import Final

VOLUME: Final = "perdure"
"""The volume with the input, and with the details of the last heartbeat."""

MOUNT_PATH: Final = "/perdure"
"""Where the container of the activity mounts it."""

SCRIPT_PATH: Final = f"{MOUNT_PATH}/script"
"""The file with the script of the activity."""

WORK_PATH: Final = f"{MOUNT_PATH}/work.json"
"""The file with the HTTP request or the action of the activity, JSON."""

DEFAULT_CONTAINER: Final = "activity"
"""Name of the container of the activity if the user does not set one."""

SIDECAR: Final = "perdure-sidecar"
"""The sidecar container, and the volume that it shares with the container of the activity."""

FILES_PATH: Final = "/perdure-files"
"""Where both containers mount the shared volume."""

ACCOUNT_VOLUME: Final = "perdure-account"
"""The volume with the token of the sidecar."""

WORKSPACE_VOLUME: Final = "workspace-"
"""The beginning of the names of the volumes that workspaces are."""

ARTIFACTS: Final = "perdure-artifacts"
"""The init container that prepares artifacts, and the volume that it fills."""

ARTIFACTS_PATH: Final = "/perdure-artifacts"
"""Where that container mounts the volume."""

OUTPUTS: Final = "perdure-outputs"
"""The sidecar that uploads output artifacts, and the volume that the container of the activity writes them to."""

LOG: Final = "perdure-log"
"""The volume with the copy of the activity's log that the sidecar stores."""

LOG_PATH: Final = "/perdure-log"
"""Where the container of the activity and that sidecar mount it."""

RESULT_PATH: Final = "/perdure-result"
"""The folder of a large result in the container of the activity."""

RESULT_FILE: Final = f"{RESULT_PATH}/result.json"
"""The file with a large result."""

OUTPUTS_PATH: Final = "/perdure-outputs"
"""Where that sidecar mounts the folders of output artifacts, each at the path that it has in the container."""

ORDER: Final = "perdure-order"
"""The volume in which the containers of an activity record that they have ended, if some wait for others."""

ORDER_PATH: Final = "/perdure-order"
"""Where these containers mount it."""
