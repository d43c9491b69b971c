"""Converts the schedule of another system: a CronJob, a CronWorkflow of Argo, or a schedule of Temporal as JSON.

Fields without an equivalent are rejected by name, so that no schedule silently behaves differently.
"""

from typing import TYPE_CHECKING

from perdure.importing.argo.cron import cron_workflow
from perdure.importing.cron import checked, cron_job
from perdure.importing.reader import Object, Source, UnsupportedScheduleError, shorten
from perdure.importing.temporal import temporal_schedule

if TYPE_CHECKING:
    from collections.abc import Callable


def convert(manifest: Object, source: str, name: str | None = None) -> list[Object]:
    """Convert a manifest of another system.

    Args:
        manifest: A CronJob, a CronWorkflow, or the output of `temporal schedule describe --output json`.
        source: The source of the manifest, for messages.
        name: Name of the Schedule; None for the name of the original.

    Returns:
        The Schedule, after its Workflow if it needs one.

    Raises:
        UnsupportedScheduleError: The manifest is of another kind, or has a field without an equivalent.
    """
    kind = manifest.get("kind")
    readers: dict[str, Callable[[Source, str | None], list[Object]]] = {
        "CronJob": cron_job,
        "CronWorkflow": cron_workflow,
    }
    read = readers.get(str(kind)) or (temporal_schedule if "schedule" in manifest else None)
    if read is None:
        raise UnsupportedScheduleError(
            f"{source}: must be a CronJob, a CronWorkflow, or the JSON of `temporal schedule describe`, not "
            f"{shorten(kind)}"
        )
    return checked(read(Source(manifest, source), name), source)
