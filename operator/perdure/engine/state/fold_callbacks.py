"""How an event changes the callbacks of a run: Nexus operations that its end, or the end of one of its updates, completes."""

from perdure.engine import events as ev
from perdure.engine.state.pending import PendingCallback
from perdure.engine.state.run_state import RunState


def callbacks_after(state: RunState, event: ev.AnyEvent) -> dict[str, PendingCallback]:
    """The callbacks of a run after an event that is not its first or its last."""
    match event:
        case ev.WorkflowExecutionOptionsUpdated():
            found, request_id = event.attached_completion_callbacks, event.attached_request_id
        case ev.WorkflowExecutionUpdateAdmitted() | ev.WorkflowExecutionUpdateAccepted():
            found, request_id = event.completion_callbacks, event.request_id
        case _:
            return state.callbacks
    of_run = sum(not each.update_id for each in state.callbacks.values())
    attached = {
        f"{event.event_id}/{number}" if event.update_id else str(of_run + number): PendingCallback(
            callback=callback,
            update_id=event.update_id,
            registration_time=event.event_time,
            request_id=request_id,
            event_id=event.event_id,
        )
        for number, callback in enumerate(found, 1)
    }
    return {**state.callbacks, **attached} if attached else state.callbacks
