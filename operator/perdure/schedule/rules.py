"""The definition of a schedule, which a step reads and never changes."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.api.policies import OverlapPolicy
from perdure.engine.retry import RetryPolicy
from perdure.schedule.state import Start
from perdure.schedule.times import Times

_TIMES_FIELDS = {
    "cron",
    "intervals",
    "calendars",
    "exclude",
    "start_time",
    "end_time",
    "jitter",
    "time_zone",
    "time_zone_data",
    "daylight_saving",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A Schedule's spec, with the objects that it refers to."""

    name: str
    seed: str
    """The seed of jitter: jitter is a function of the seed and the time."""
    spec: ScheduleSpec
    times_hash: str
    """Hash of the fields of the spec that determine the times (see the function `times_hash`)."""
    times: Times | None
    """None if the times in the spec are invalid."""
    retry_policy: RetryPolicy | None = None
    """The policy that `spec.retryPolicy` names or contains."""
    created: datetime

    def overlap_policy(self, start: Start) -> OverlapPolicy:
        """The overlap policy of a start: its own, or the schedule's."""
        return start.policy or self.spec.overlap_policy

    def overlaps(self, start: Start) -> bool:
        """Whether a start ignores open runs, and later starts ignore its run (AllowAll)."""
        return self.overlap_policy(start) is OverlapPolicy.ALLOW_ALL


def times_hash(spec: ScheduleSpec) -> str:
    """A hash of the fields of a spec that determine the times: if it changes, the schedule starts over from now."""
    when = spec.model_dump(mode="json", include=_TIMES_FIELDS)
    return hashlib.sha256(json.dumps(when, sort_keys=True).encode()).hexdigest()[:16]
