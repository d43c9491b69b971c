"""Invariants of attempts and their pods: an activity completes only with proof, and its attempts do not overlap."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from perdure.api import labels
from perdure.runtime.attempt_outcomes import NODE_SILENCE
from perdure.simulation.cluster.kubelet import grace_seconds
from perdure.simulation.cluster.store import Object, Write

AttemptId = tuple[str, str, int]
"""The UID of the run, the event that scheduled the activity, and the number of the attempt."""

_SKEW = 2
"""By how many seconds the clock of an operator may differ, and a time in whole seconds is too early."""


class AttemptChecks:
    """Follows the pods of all attempts."""

    def __init__(self, report: Callable[[Write, str], None]) -> None:
        """`report` takes a write and what is wrong with it."""
        self._report = report
        self.may_overlap: set[str] = set()
        """The types of activities with the policy TerminatingOrFailed."""
        self.exclusive: set[str] = set()
        """The types of activities that hold a WorkflowLimit: not even a lost node lets their attempts overlap."""
        self._unproven: set[AttemptId] = set()
        """Attempts whose container ended with 0 after its pod was deleted, and left nothing."""
        self._pods: defaultdict[tuple[str, str], dict[int, Object]] = defaultdict(dict)
        """The pods that have not ended, by number of the attempt, of each activity."""
        self._silent: dict[str, float] = {}
        """By UID, the time by which the node of a pod should have reported its end, because it was told to stop it."""

    def observe_pod(self, write: Write) -> None:
        """Process the creation, change, or deletion of a pod."""
        self._check_overlap(write)
        pod, before = write.after, write.before
        if before is None or "deletionTimestamp" not in before["metadata"]:
            return
        if before["status"]["phase"] == "Running" and pod["status"]["phase"] == "Succeeded" and not _left_anything(pod):
            self._unproven.add(_id_of(pod))

    def _check_overlap(self, write: Write) -> None:
        """No container of an earlier attempt runs when a pod is created, unless its node is lost.

        The request to create the pod of an earlier attempt may arrive late, when a newer attempt has its pod already.
        """
        pod = write.after
        self._note_stop(write)
        run_id, event, attempt = _id_of(pod)
        pods, kind = self._pods[run_id, event], pod["metadata"]["labels"][labels.ACTIVITY_LABEL]
        if write.type == "ADDED":
            for number, earlier in pods.items():
                lost = kind not in self.exclusive and self._is_on_lost_node(earlier, write.time)
                if number < attempt and kind not in self.may_overlap and not lost:
                    self._report(write, f"is created while the container of attempt {number} runs")
        if write.type == "DELETED" or pod["status"]["phase"] in {"Succeeded", "Failed"}:
            pods.pop(attempt, None)
        else:
            pods[attempt] = pod

    def _note_stop(self, write: Write) -> None:
        """Note the first deletion of a pod, or the first deadline that it was given."""
        pod = write.after
        deleted = "deletionTimestamp" in pod["metadata"]
        if deleted or pod["spec"].get("activeDeadlineSeconds") == 1:
            silent = write.time + grace_seconds(pod) + NODE_SILENCE.total_seconds()
            self._silent.setdefault(pod["metadata"]["uid"], silent)

    def _is_on_lost_node(self, pod: Object, time: float) -> bool:
        """Whether the node of a pod should have reported its end long ago."""
        silent = self._silent.get(pod["metadata"]["uid"])
        return silent is not None and time + _SKEW >= silent

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
