"""The attempt to which a pod belongs."""

from dataclasses import dataclass

from perdure.api import labels
from perdure.engine.state import PendingActivity, RunState
from perdure.kube import client as kube


@dataclass(frozen=True, slots=True, order=True)
class PodKey:
    """The attempt to which a pod belongs."""

    scheduled_event_id: int
    attempt: int

    @classmethod
    def of(cls, activity: PendingActivity) -> "PodKey":
        """The key of the current attempt of an open activity."""
        return cls(activity.scheduled_event_id, activity.attempt)

    def due(self, state: RunState) -> PendingActivity | None:
        """The open activity with this current attempt; None if no activity waits for the attempt."""
        activity = state.activity(self.scheduled_event_id)
        return activity if activity is not None and activity.attempt == self.attempt else None


def key_of(pod: kube.Object) -> PodKey | None:
    """Read the attempt from the labels of a pod; None if it has none."""
    notes = pod["metadata"].get("annotations") or {}
    try:
        return PodKey(int(notes[labels.SCHEDULED_EVENT_ANNOTATION]), int(notes[labels.ATTEMPT_ANNOTATION]))
    except (KeyError, ValueError):
        return None
