"""How a reset and the closing event change the state of a run."""

from datetime import datetime

import msgspec

from perdure.api.parent_close_policy import ParentClosePolicy
from perdure.engine import events as ev
from perdure.engine.state.nexus_operation import HandlerCalls, PendingOperation
from perdure.engine.state.pending_activity import PendingActivity
from perdure.engine.state.run_state import RunState, RunStatus

_CLOSED_AS: dict[type[ev.Event], RunStatus] = {
    ev.WorkflowExecutionCanceled: RunStatus.CANCELLED,
    ev.WorkflowExecutionCompleted: RunStatus.COMPLETED,
    ev.WorkflowExecutionContinuedAsNew: RunStatus.CONTINUED_AS_NEW,
    ev.WorkflowExecutionFailed: RunStatus.FAILED,
    ev.WorkflowExecutionTerminated: RunStatus.TERMINATED,
    ev.WorkflowExecutionTimedOut: RunStatus.TIMED_OUT,
}


def reset_state(state: RunState, event: ev.WorkflowTaskFailed) -> RunState:
    """The state after a reset. The run continues the history of another one, which has created all dead letters so far."""
    restarted = {"first_scheduled_time": event.event_time, "scheduled_time": event.event_time}
    return msgspec.structs.replace(
        state,
        reset_time=event.event_time,
        first_decision_time=None,
        run_deadline=event.workflow_run_expiration_time,
        expiration=event.workflow_execution_expiration_time,
        run_id=event.new_run_id,
        successor=event.successor,
        activities={key: msgspec.structs.replace(each, **restarted) for key, each in state.activities.items()},
        operations={key: _with_new_call(each, event.event_time) for key, each in state.operations.items()},
        markers={},
        code=msgspec.structs.replace(state.code, task=None, wanted=True) if state.code is not None else None,
    )


def _with_new_call(operation: PendingOperation, time: datetime) -> PendingOperation:
    """An operation of a reset run. Its request ID stays the same, so that the handler finds the operation that it has started."""
    if operation.started_time is not None:
        return operation
    return msgspec.structs.replace(operation, calls=HandlerCalls(due=time))


def closed_state(state: RunState, event: ev.ClosingEvent) -> RunState:
    """The state after the closing event. Open entries end with the run; undelivered requests to others stay."""
    kept = event.reset_event_id if isinstance(event, ev.WorkflowExecutionTerminated) else 0
    return msgspec.structs.replace(
        state,
        status=_CLOSED_AS[type(event)],
        close_time=event.event_time,
        activities={},
        left_activities=state.left_activities | (without_payloads(state.activities) if state.for_clients else {}),
        holds={},
        timers={},
        operations={},
        left_operations=state.left_operations | (without_input(state.operations) if state.standalone else {}),
        callbacks={} if kept else state.callbacks,
        children={
            key: child
            for key, child in state.children.items()
            if child.initiated_event_id > kept
            and (child.parent_close_policy is not ParentClosePolicy.ABANDON or child.start is not None)
        },
        externals={key: each for key, each in state.externals.items() if each.initiated_event_id > kept},
        start_successor=bool(getattr(event, "new_workflow_run", "")),
        paused=None,
        undecided=(),
        unfinished=False,
        task=None,
        code=state.code
        and msgspec.structs.replace(state.code, admitted={}, task=None, wanted=False, buffered=(), closing=False),
    )


def without_payloads(activities: dict[str, PendingActivity]) -> dict[str, PendingActivity]:
    """Return activities without their scheduled payloads."""
    return {key: msgspec.structs.replace(each, input=None, header=None) for key, each in activities.items()}


def without_input(operations: dict[str, PendingOperation]) -> dict[str, PendingOperation]:
    """Return Nexus operations without their scheduled input."""
    return {key: msgspec.structs.replace(each, input=None) for key, each in operations.items()}
