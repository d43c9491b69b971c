"""Changes of open activities by clients: their options, and the count of their attempts. Pure.

As on Temporal's server (service/history/workflow/activity.go), no event records them.
"""

from datetime import datetime

from msgspec.structs import asdict, replace

from perdure.engine import inputs as inp
from perdure.engine.state import OpenActivityOptions, PendingActivity


def options_of(activity: PendingActivity) -> OpenActivityOptions:
    """The current options of an activity."""
    return OpenActivityOptions(**{name: getattr(activity, name) for name in OpenActivityOptions.__struct_fields__})


def with_options(activity: PendingActivity, options: OpenActivityOptions | None) -> PendingActivity:
    """Return an activity with other options; None: with the options of its ActivityTaskScheduled."""
    original = activity.original or options_of(activity)
    if options is None or options == original:
        return replace(activity, **asdict(original), original=None)
    return replace(activity, **asdict(options), original=original)


def reset(activity: PendingActivity, request: inp.ActivityReset, now: datetime) -> PendingActivity:
    """Return an activity whose attempts are counted from scratch: the current attempt becomes the first."""
    if request.restore:
        activity = with_options(activity, None)
    if not request.keep_paused:
        activity = replace(activity, paused=False, pause=None)
    activity = replace(activity, uncounted=activity.attempt - 1, losses=0)
    if activity.started_time is not None:
        return replace(activity, reset=True, forgets_heartbeat=request.heartbeat)
    kept = None if request.heartbeat else activity.heartbeat_details
    return replace(activity, heartbeat_details=kept, scheduled_time=min(activity.scheduled_time, now))


def after_reset(activity: PendingActivity) -> PendingActivity:
    """Return the state for the next attempt of an activity that was reset while an attempt ran."""
    kept = None if activity.forgets_heartbeat else activity.heartbeat_details
    return replace(activity, reset=False, forgets_heartbeat=False, heartbeat_details=kept)
