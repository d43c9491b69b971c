"""The log that explains why an attempt failed."""

from typing import Final

from perdure.api.workflow import Activity
from perdure.runtime.attempts import KubeObject
from perdure.runtime.container_groups import ContainerGroup
from perdure.runtime.pods import main_container_name
from perdure.runtime.statuses import PodStatus

LOG_LIMIT: Final = 4096
"""Maximum bytes of the end of a failed container's log that are stored with the failure."""


def failed_container(definition: Activity, pod: KubeObject) -> str | None:
    """Return the name of the container whose log explains why an attempt failed.

    Args:
        definition: The activity's definition.
        pod: Its Pod.

    Returns:
        A container of the activity, or the init container that failed before it; None if none has run and failed.
    """
    status = PodStatus.of(pod)
    main = ContainerGroup.of(pod, main_container_name(definition)).ended(status)
    failed = main if main is not None and main.exit_code != 0 else status.failed_init_container()
    return failed.name if failed is not None and not failed.status_unknown else None


def tail(text: str) -> str:
    """Return the end of a log, at most `LOG_LIMIT` bytes, in whole lines if there are any."""
    raw = text.rstrip().encode()
    if len(raw) <= LOG_LIMIT:
        return raw.decode()
    end = raw[-LOG_LIMIT:]
    _, found, lines = end.partition(b"\n")
    return (lines if found and lines else end).decode(errors="ignore")
