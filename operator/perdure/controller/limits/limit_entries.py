"""How the activities and steps of a run are listed in the status of a WorkflowLimit."""

from datetime import datetime

from perdure.api.kinds.workflowlimit import MAX_STEP, LimitEntry
from perdure.engine.state import HeldLimits, PendingActivity
from perdure.language.step_paths import Path
from perdure.runtime.attempts import RunRef


def limit_entry(  # noqa: PLR0917 (the fields of the entry)
    run: RunRef, taker: PendingActivity | HeldLimits, key: str, priority: int, created: datetime, now: datetime
) -> LimitEntry:
    """Return the entry of an activity, or of a step with everything in its block.

    Args:
        run: The run.
        taker: The activity, the activity that takes the limits of a step, or what the step holds.
        key: The key of the limit.
        priority: The priority of the run.
        created: When it asked for the limit, for the order.
        now: The time.
    """
    whole = isinstance(taker, HeldLimits) or taker.takes_limits
    step = Path.parse(taker.activity_id).owner.text if whole else taker.activity_id
    return LimitEntry(
        run=run.name,
        run_id=run.uid,
        event_id=taker.scheduled_event_id,
        step=step[:MAX_STEP],
        whole_step=whole,
        key=key,
        priority=priority,
        created=created,
        since=now,
    )
