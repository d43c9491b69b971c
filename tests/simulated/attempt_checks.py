"""Invariants of attempts and their pods: an activity completes only with proof."""

from collections.abc import Callable, Iterable

from perdure.api import labels
from perdure.simulation.cluster.store import Object, Write

AttemptId = tuple[str, str, int]
"""The UID of the run, the event that scheduled the activity, and the number of the attempt."""


class AttemptChecks:
    """Follows the pods of all attempts."""

    def __init__(self, report: Callable[[Write, str], None]) -> None:
        """`report` takes a write and what is wrong with it."""
        self._report = report
        self._unproven: set[AttemptId] = set()
        """Attempts whose container ended with 0 after its pod was deleted, and left nothing."""

    def observe_pod(self, write: Write) -> None:
        """Process the creation, change, or deletion of a pod."""
        pod, before = write.after, write.before
        if before is None or "deletionTimestamp" not in before["metadata"]:
            return
        if before["status"]["phase"] == "Running" and pod["status"]["phase"] == "Succeeded" and not _left_anything(pod):
            self._unproven.add(_id_of(pod))

    def check_completed(self, write: Write, uid: str, event: Object, history: Iterable[Object]) -> None:
        """An activity whose pod was stopped has completed only if the pod left a result, or was told to stop by its run."""
        scheduled = event["scheduledEventId"]
        if (uid, str(scheduled), event.get("attempt", 1)) not in self._unproven:
            return
        if not any(
            each["eventType"] == "ActivityTaskCancelRequested" and each["scheduledEventId"] == scheduled
            for each in history
        ):
            self._report(
                write, f"records that {event['activityId']} has completed, whose pod was stopped and left no result"
            )


def _id_of(pod: Object) -> AttemptId:
    meta = pod["metadata"]
    notes = meta["annotations"]
    return (
        meta["labels"][labels.RUN_ID_LABEL],
        notes[labels.SCHEDULED_EVENT_ANNOTATION],
        int(notes[labels.ATTEMPT_ANNOTATION]),
    )


def _left_anything(pod: Object) -> bool:
    """Whether a pod that has ended left a result or artifacts."""
    status = pod["status"]
    ends = [each["state"]["terminated"]["message"] for each in status["containerStatuses"]]
    return any(ends) or bool(status.get("initContainerStatuses"))
