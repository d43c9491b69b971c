"""Kubernetes Events and metrics about the commits of a Schedule. They are best effort and follow the commit."""

from typing import Final

from perdure.api.labels import API_VERSION
from perdure.api.reasons import EventReason
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.schedule.state import ScheduleState
from perdure.schedule.step import ScheduleTransition

_COUNTED: Final = {
    "actions": "Started",
    "missed_catchup_window": "MissedCatchupWindow",
    "overlap_skipped": "OverlapSkipped",
    "buffer_dropped": "BufferDropped",
}


class ScheduleEventRecorder:
    """Records the Events of one Schedule."""

    def __init__(self, recorder: Recorder, namespace: str, name: str, uid: str) -> None:
        self._recorder = recorder
        self._namespace = namespace
        self._about = {
            "apiVersion": API_VERSION,
            "kind": "Schedule",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
        }

    def warn(self, reason: EventReason, note: str, action: str) -> None:
        """Record a warning."""
        self._recorder.record(self._about, kind="Warning", reason=reason, note=note, action=action)

    def committed(self, before: ScheduleState | None, transition: ScheduleTransition) -> None:
        """Record the changes of a commit.

        Args:
            before: The previous state; None for a new Schedule.
            transition: The committed transition.
        """
        for name, outcome in _COUNTED.items():
            more = getattr(transition.state.counts, name) - (getattr(before.counts, name) if before else 0)
            if more > 0:
                metrics.SCHEDULE_ACTIONS.labels(self._namespace, outcome).inc(more)
        for note in transition.notes:
            kind = "Warning" if note.warning else "Normal"
            self._recorder.record(self._about, kind=kind, reason=note.reason, note=note.text, action="Schedule")
