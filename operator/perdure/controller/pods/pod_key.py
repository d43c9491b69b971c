"""Which attempt a pod belongs to."""

from dataclasses import dataclass

from perdure.api import labels
from perdure.engine.state import PendingActivity, RunState
from perdure.kube import client as kube


@dataclass(frozen=True, slots=True, order=True)
class PodKey:
    """Which attempt a pod belongs to."""

    scheduled_event_id: int
    attempt: int

    @classmethod
    def of(cls, activity: PendingActivity) -> "PodKey":
        """The attempt of an open activity that is due."""
        return cls(activity.scheduled_event_id, activity.attempt)

    def due(self, state: RunState) -> PendingActivity | None:
        """The open activity whose attempt that is; None if nothing waits for the attempt."""
        activity = state.activity(self.scheduled_event_id)
        return activity if activity is not None and activity.attempt == self.attempt else None


def key_of(pod: kube.Object) -> PodKey | None:
    """The attempt that a pod names; None if it names none."""
    notes = pod["metadata"].get("annotations") or {}
    try:
        return PodKey(int(notes[labels.SCHEDULED_EVENT_ANNOTATION]), int(notes[labels.ATTEMPT_ANNOTATION]))
    except (KeyError, ValueError):
        return None
