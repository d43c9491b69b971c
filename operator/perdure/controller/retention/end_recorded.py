"""Check that all objects that wait for the end of a run have recorded it, before the run is removed."""

from collections.abc import Iterator

from perdure.api import labels
from perdure.controller.recorded_state import distrust
from perdure.kube import client as kube
from perdure.runtime.chains import first_run_id, is_open, parent_of
from perdure.runtime.commits import OF_SCHEDULES, edited
from perdure.runtime.deadletters import dead_letter_of, waits_for
from perdure.schedule.run_manifests import owner_of, scheduled_by
from perdure.schedule.state import newer_state


class EndRecorded:
    """Reads the objects that wait for the end of runs from the API server, each once. So use an instance only briefly."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._read: dict[tuple[str, str, str], kube.Object | None] = {}

    async def everywhere(self, run: kube.Object) -> bool:
        """Whether a finished run's parent, Schedule, and re-driven DeadLetter have recorded its end.

        A parent or Schedule whose status was edited, or written by a newer version, may not have.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        for plural, name, uid in _waiting(run):
            found = await self._get(plural, run["metadata"]["namespace"], name)
            if found is not None and found["metadata"]["uid"] == uid and _waits(plural, found, run):
                return False
        return True

    async def _get(self, plural: str, namespace: str, name: str) -> kube.Object | None:
        key = plural, namespace, name
        if key not in self._read:
            try:
                self._read[key] = await self._client.get(kube.path(kube.PERDURE, namespace, plural, name))
            except kube.NotFoundError:
                self._read[key] = None
        return self._read[key]


def _waiting(run: kube.Object) -> Iterator[tuple[str, str, str]]:
    """The objects that may wait for the end of a run: plural, name, and UID."""
    if (parent := parent_of(run)) is not None:
        yield "workflowruns", parent.name, parent.run_id
    if (schedule := owner_of(run)) and (tie := scheduled_by(run)) is not None:
        yield "schedules", tie.name, schedule
    if (letter := dead_letter_of(run)) is not None:
        yield "deadletters", letter, run["metadata"]["labels"][labels.DEAD_LETTER_LABEL]


def _waits(plural: str, owner: kube.Object, run: kube.Object) -> bool:
    """Whether an owner of a run has not recorded its end yet."""
    match plural:
        case "workflowruns":
            return _waits_for_child(owner, run)
        case "schedules":
            return _follows(owner, run)
        case _:
            return waits_for(owner, run)


def _waits_for_child(parent: kube.Object, run: kube.Object) -> bool:
    status = parent.get("status") or {}
    if distrust(parent):
        return True
    tie = parent_of(run)
    children = (status.get("state") or {}).get("children") or {}
    return is_open(status) and tie is not None and str(tie.initiated_event_id) in children


def _follows(schedule: kube.Object, run: kube.Object) -> bool:
    status = schedule.get("status") or {}
    if edited(status, OF_SCHEDULES) or newer_state(status):
        return True
    running = (status.get("state") or {}).get("running") or ()
    return any(each["name"] == run["metadata"]["name"] or each.get("runId") == first_run_id(run) for each in running)
