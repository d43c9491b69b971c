"""The activities of one run that took the WorkflowLimits of their steps."""

from perdure.controller.pods.attempt_pods import PodKey
from perdure.engine.inputs import AttemptCompleted
from perdure.engine.state import PendingActivity


class LimitGrants:
    """Activities that hold all their limits, and complete with that."""

    def __init__(self) -> None:
        self._new: list[AttemptCompleted] = []

    def add(self, activity: PendingActivity) -> None:
        """Add an activity."""
        key = PodKey.of(activity)
        self._new.append(AttemptCompleted(scheduled_event_id=key.scheduled_event_id, attempt=key.attempt))

    @property
    def any_new(self) -> bool:
        """Whether there are activities that were not reported to the engine yet."""
        return bool(self._new)

    def new(self) -> list[AttemptCompleted]:
        """The activities, as inputs of the engine; each is reported once."""
        new, self._new = self._new, []
        return new
