"""Names in an activity's pod that are Perdure's own."""

from typing import Final

VOLUME: Final = "perdure"
"""The volume with the input, and with the details of the last heartbeat."""

MOUNT_PATH: Final = "/perdure"
"""Where the activity's container finds it."""

SIDECAR: Final = "perdure-sidecar"
"""The sidecar's container, and the volume that it shares with the activity's."""

FILES_PATH: Final = "/perdure-files"
"""Where both containers find that one."""

ACCOUNT_VOLUME: Final = "perdure-account"
"""The volume with the sidecar's token."""
