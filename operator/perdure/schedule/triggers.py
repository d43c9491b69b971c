"""Triggers: requests to start one run now, and the answers to them."""

from perdure.api.reasons import ConditionReason
from perdure.engine.inputs import Answer
from perdure.schedule import inputs as inp
from perdure.schedule.draft import ScheduleDraft
from perdure.schedule.state import Start


def add_trigger(draft: ScheduleDraft, request: inp.Triggered) -> None:
    """Buffer the start of a trigger; `answer_triggers` answers it in the same step."""
    nominal = (request.scheduled_time or draft.now).replace(microsecond=0)
    start = Start(
        nominal=nominal, actual=draft.now, policy=request.overlap_policy, request=request.request_id, triggered=True
    )
    draft.change(buffer=(*draft.state.buffer, start))
    draft.triggered[request.request_id] = ""


def answer_triggers(draft: ScheduleDraft) -> None:
    """Answer the triggers of this step."""
    for request_id, name in draft.triggered.items():
        draft.answer(request_id, _answer(draft, request_id, name))


def _answer(draft: ScheduleDraft, request_id: str, name: str | None) -> Answer:
    if name is None:
        blocking = next(run.name for run in draft.state.running if not run.overlapping)
        message = f"No run started: `{blocking}` is open"
        return Answer(ok=False, reason=ConditionReason.OVERLAP_SKIPPED, message=message)
    if name:
        return Answer(ok=True, message=f"Run `{name}` starts", result={"workflowRun": name})
    if any(start.request == request_id for start in draft.state.buffer):
        return Answer(ok=True, message="The run starts after an earlier run has closed")
    message = "No run started: too many starts are already buffered"
    return Answer(ok=False, reason=ConditionReason.OVERLAP_SKIPPED, message=message)
