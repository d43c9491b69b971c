"""Pauses: by the spec, by an Operation, or after a failure. A pause drops waiting scheduled starts and a pending retry."""

from perdure.api.reasons import ConditionReason, EventReason
from perdure.api.schedule import PausedBy
from perdure.engine.inputs import Answer
from perdure.schedule import inputs as inp
from perdure.schedule.cursor import skip_to_now
from perdure.schedule.draft import ScheduleDraft
from perdure.schedule.state import Paused

_MAX_REASON = 1024
"""Length to which the reason of a pause is truncated, in characters."""


def pause(draft: ScheduleDraft, request: inp.SchedulePauseRequested) -> None:
    """Pause the schedule, unless it is already paused."""
    if draft.state.paused is None:
        draft.change(paused=Paused(by=PausedBy.OPERATION, reason=request.reason, time=draft.now))
        _drop_waiting(draft)
        draft.note(EventReason.PAUSED, f"Paused by an Operation{_suffix(request.reason)}")
    draft.answer(request.request_id, Answer(ok=True, message="No scheduled runs start until the Schedule is unpaused"))


def unpause(draft: ScheduleDraft, request: inp.ScheduleUnpauseRequested) -> None:
    """End a pause that an Operation or a failure began; one in the spec remains."""
    if draft.state.paused is not None:
        draft.change(paused=None)
        draft.note(EventReason.UNPAUSED, f"Unpaused by an Operation{_suffix(request.reason)}")
        if not draft.blocked:
            skip_to_now(draft)
    if draft.rules.spec.paused:
        message = "The Schedule is still paused by `spec.paused`: set it to false"
        answer = Answer(ok=False, reason=ConditionReason.PAUSED_BY_SPEC, message=message)
    else:
        answer = Answer(ok=True, message="Scheduled runs start again; the times during the pause are skipped")
    draft.answer(request.request_id, answer)


def pause_on_failure(draft: ScheduleDraft, closed: inp.RunClosed) -> None:
    """Pause the schedule because a run failed, if the spec says so."""
    if not draft.rules.spec.pause_on_failure or draft.state.paused is not None:
        return
    message = closed.failure.full_message if closed.failure else ""
    reason = f"run `{closed.name}` is {closed.outcome}{_suffix(message)}"
    draft.change(paused=Paused(by=PausedBy.FAILURE, reason=reason[:_MAX_REASON], time=draft.now))
    draft.note(EventReason.PAUSED_BY_FAILURE, f"Paused because {reason}", warning=True)


def update_blocked(draft: ScheduleDraft) -> None:
    """Record whether scheduled runs start. If they no longer do, drop the waiting scheduled starts."""
    blocked = draft.blocked
    if blocked and not draft.state.blocked:
        _drop_waiting(draft)
    if blocked != draft.state.blocked:
        draft.change(blocked=blocked)


def _drop_waiting(draft: ScheduleDraft) -> None:
    draft.change(buffer=tuple(start for start in draft.state.buffer if not start.by_time), retry=None)


def _suffix(text: str) -> str:
    return f": {text}" if text else ""
