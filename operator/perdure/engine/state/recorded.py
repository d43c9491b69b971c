"""The state that the history alone determines."""

import msgspec

from perdure.engine.code import DEFAULT_TIMEOUT
from perdure.engine.state.nexus_operation import HandlerCalls, PendingOperation
from perdure.engine.state.pending import PendingCallback
from perdure.engine.state.pending_activity import PendingActivity, ScheduledActivity
from perdure.engine.state.run_state import RunState


def as_recorded(state: RunState) -> RunState:
    """Return the state without the data that no event records, which equals a fold over all events."""
    code = state.code
    if code is not None:
        code = msgspec.structs.replace(
            code,
            admitted={},
            task=None,
            wanted=False,
            buffered=(),
            sticky_queue="",
            sticky_timeout=DEFAULT_TIMEOUT,
            failure="",
            closing=False,
            completed="",
        )
    delivered = {"children": {}, "externals": {}, "start_successor": False} if state.closed else {}
    return msgspec.structs.replace(
        state,
        undecided=(),
        unfinished=False,
        task=None,
        requests=(),
        code=code,
        reports={},
        successor_refused="",
        callbacks={} if state.closed else _callbacks(state),
        **delivered,
        markers={},
        operations={key: _operation(each) for key, each in state.operations.items()},
        activities={key: _activity(each) for key, each in state.activities.items()},
        left_activities={key: _activity(each) for key, each in state.left_activities.items()},
    )


def _callbacks(state: RunState) -> dict[str, PendingCallback]:
    """The pending callbacks. No event records the call of an update's callback, or the rejection of an update."""
    accepted = state.code.updates if state.code is not None else {}
    return {
        key: each
        for key, each in state.callbacks.items()
        if not each.update_id or (each.update_id in accepted and not state.has_completed(each.update_id))
    }


def _operation(operation: PendingOperation) -> PendingOperation:
    """An operation without the failed calls of its handler, which no event records."""
    calls, cancellation = HandlerCalls(due=operation.scheduled_time), operation.cancellation
    if cancellation is not None:
        cancellation = msgspec.structs.replace(cancellation, calls=None)
    return msgspec.structs.replace(operation, calls=calls, cancellation=cancellation)


def _activity(activity: PendingActivity) -> PendingActivity:
    """An activity before its first attempt, with the options that it was scheduled with."""
    scheduled = {name: getattr(activity, name) for name in ScheduledActivity.__struct_fields__}
    options = msgspec.structs.asdict(activity.original) if activity.original is not None else {}
    return PendingActivity(**{**scheduled, **options}, scheduled_time=activity.first_scheduled_time)
