"""Other runs during a step: children, and targets of signals and cancellation requests."""

from typing import Any, assert_never

import msgspec

from perdure.api.policies import ParentClosePolicy
from perdure.api.reasons import ConditionReason
from perdure.engine import effects as fx
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.ledger import Ledger
from perdure.engine.state import PendingChild


class RelatedRuns:
    """The children of a run and the targets of its requests during a step."""

    def __init__(self, ledger: Ledger) -> None:
        """`ledger`: collects the output of the step."""
        self._ledger = ledger

    def handle_child(self, item: inp.ChildStarted | inp.ChildStartFailed | inp.ChildClosed) -> None:
        """Process an input about a child."""
        child = self._ledger.state.children.get(str(item.initiated_event_id))
        if child is None:
            return  # stale
        if not self._ledger.open():
            self.drop_child(child, item)
            return
        if isinstance(item, inp.ChildStartFailed):
            if child.start is None:
                return  # stale
            if not self._as_if_started(child, item):
                self._ledger.emit(
                    ev.StartChildWorkflowExecutionFailed(
                        failure=item.failure, **_identity(child), **self._ledger.position
                    ),
                    decide=True,
                )
                return
            number, failed = item.initiated_event_id, inp.ChildOutcome.FAILED
            item = inp.ChildClosed(initiated_event_id=number, run_id="", outcome=failed, failure=item.failure)
        if child.start is not None and child.restarted:
            child = msgspec.structs.replace(child, start=None, run_id=item.run_id)
            children = {**self._ledger.state.children, str(child.initiated_event_id): child}
            self._ledger.change(children=children)
            self._ledger.durable = True
        elif child.start is not None:
            extras = child.start.extras
            header = extras.header if extras is not None else None
            started = ev.ChildWorkflowExecutionStarted(
                run_id=item.run_id, header=header, **_identity(child), **self._ledger.position
            )
            self._ledger.emit(started, decide=True)
            child = self._ledger.state.children[str(child.initiated_event_id)]
        if isinstance(item, inp.ChildClosed):
            self.child_closed(child, item)

    def _as_if_started(self, child: PendingChild, item: inp.ChildStartFailed) -> bool:
        """Whether a child that could not start counts as started and failed, for an SDK workflow.

        One that starts again after a reset has its start event already. For the others, the SDKs know one cause of a failed
        start: that the workflow ID is in use (temporal.api.enums.v1.StartChildWorkflowExecutionFailedCause). Code can catch the
        failure of a child.
        """
        return self._ledger.state.code is not None and (
            child.restarted or item.failure.type != ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED
        )

    def child_closed(self, child: PendingChild, item: inp.ChildClosed) -> None:
        """Record that a child has closed."""
        attributes: dict[str, Any] = {
            "started_event_id": child.started_event_id,
            "run_id": item.run_id,
            **_identity(child),
            **self._ledger.position,
        }
        retry: dict[str, Any] = {"retry_state": item.retry_state} if item.retry_state is not None else {}
        closing: ev.AnyEvent
        match item.outcome:
            case inp.ChildOutcome.COMPLETED:
                closing = ev.ChildWorkflowExecutionCompleted(result=item.result, **attributes)
            case inp.ChildOutcome.FAILED:
                failure = item.failure or Failure(kind=FailureKind.SERVER, message="the child failed")
                closing = ev.ChildWorkflowExecutionFailed(failure=failure, **retry, **attributes)
            case inp.ChildOutcome.CANCELLED:
                closing = ev.ChildWorkflowExecutionCanceled(details=item.result, **attributes)
            case inp.ChildOutcome.TIMED_OUT:
                closing = ev.ChildWorkflowExecutionTimedOut(**retry, **attributes)
            case inp.ChildOutcome.TERMINATED:
                reason = item.failure.message if item.failure else ""
                closing = ev.ChildWorkflowExecutionTerminated(reason=reason, **attributes)
            case _:
                assert_never(item.outcome)
        self._ledger.emit(closing, decide=True)

    def drop_child(self, child: PendingChild, item: inp.ChildStarted | inp.ChildStartFailed | inp.ChildClosed) -> None:
        """Drop a child of a closed run that has ended or, if it is abandoned, has started."""
        abandoned = child.parent_close_policy is ParentClosePolicy.ABANDON
        if not isinstance(item, inp.ChildStarted) or abandoned:
            self.effect_done(fx.CloseChild(child.initiated_event_id))

    def external_done(self, item: inp.ExternalDone) -> None:
        """Record the result of a request to another run."""
        external = self._ledger.state.externals.get(str(item.initiated_event_id))
        if external is None:
            return  # stale
        if not self._ledger.open():
            self.effect_done(fx.RequestExternal(item.initiated_event_id))
            return
        attributes: dict[str, Any] = {
            "initiated_event_id": external.initiated_event_id,
            "workflow_id": external.workflow_id,
            "run_id": external.run_id,
            "control": external.control,
            **self._ledger.position,
        }
        signal = external.signal_id is not None
        done: ev.AnyEvent
        if signal:
            attributes["signal_id"] = external.signal_id
        if item.failure is None:
            event = ev.ExternalWorkflowExecutionSignaled if signal else ev.ExternalWorkflowExecutionCancelRequested
            done = event(**attributes)
        else:
            failed = (
                ev.SignalExternalWorkflowExecutionFailed if signal else ev.RequestCancelExternalWorkflowExecutionFailed
            )
            done = failed(failure=item.failure, **attributes)
        self._ledger.emit(done, decide=True)

    def effect_done(self, effect: fx.Effect, refused: str = "") -> None:
        """Drop an effect that is done. An open run drops it with its next commit."""
        before = self._ledger.state
        match effect:
            case fx.WriteDeadLetter(number):
                self._ledger.change(markers=_without(before.markers, number))
            case fx.CloseChild(number) if before.closed:
                self._ledger.change(children=_without(before.children, number))
            case fx.RequestExternal(number) if before.closed:
                self._ledger.change(externals=_without(before.externals, number))
            case fx.CompleteOperation(key) if before.closed:
                self._callback_done(key, refused)
            case fx.CompleteOperation(key):  # of an update, of which there can be many
                self._ledger.change(callbacks=_without(before.callbacks, key))
            case fx.StartSuccessor() if before.closed:
                of_updates = {key: each for key, each in before.callbacks.items() if each.update_id}
                kept = before.callbacks if refused else of_updates  # the next run has the others
                self._ledger.change(start_successor=False, successor_refused=refused, callbacks=kept)
            case fx.ReportAttempt():
                self._ledger.change(reports=_without(before.reports, effect.key))
                self._ledger.durable = True  # in an open run too: a breaker must not get a report twice
            case _:  # in an open run, an event records the result
                pass
        self._ledger.durable |= before.closed and self._ledger.state != before

    def _callback_done(self, key: str, refused: str) -> None:
        callback = self._ledger.state.callbacks.get(key)
        if callback is None or callback.state:
            return
        failure = Failure(kind=FailureKind.APPLICATION, message=refused, non_retryable=True) if refused else None
        done = msgspec.structs.replace(
            callback, state="Failed" if refused else "Succeeded", failure=failure, complete_time=self._ledger.now
        )
        self._ledger.change(callbacks={**self._ledger.state.callbacks, key: done})


def _identity(child: PendingChild) -> dict[str, Any]:
    """The attributes that identify a child in events."""
    return {
        "initiated_event_id": child.initiated_event_id,
        "child_id": child.child_id,
        "workflow_id": child.workflow_id,
        "workflow_type": child.workflow_type,
    }


def _without(entries: dict[str, Any], key: int | str) -> dict[str, Any]:
    return {name: entry for name, entry in entries.items() if name != str(key)}
