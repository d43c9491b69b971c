"""Requests to a run: signals, cancellation, termination, pauses, and requests about its activities."""

from typing import assert_never

from perdure.api.reasons import ConditionReason
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.activities import Activities
from perdure.engine.inputs import Answer
from perdure.engine.ledger import OK, Ledger
from perdure.engine.nexus import NexusOperations
from perdure.engine.payloads import plain
from perdure.engine.tasks import WorkflowTaskMachine

MAX_SIGNALS = 10_000
"""Number of signals that one run can receive."""
MAX_REQUESTS = 10_000
"""Number of request IDs that the state keeps; the oldest are dropped first."""


class RunRequests:
    """Processes requests. The state keeps the IDs of applied requests, so that sending one again changes nothing."""

    def __init__(
        self,
        ledger: Ledger,
        tasks: WorkflowTaskMachine | None,
        activities: Activities,
        operations: NexusOperations,
    ) -> None:
        """Take the parts of the step.

        Args:
            ledger: Collects the output of the step.
            tasks: The workflow task; None if the decider runs in this process.
            activities: Processes requests about activities.
            operations: Attaches the callbacks of Nexus operations.
        """
        self._ledger = ledger
        self._tasks = tasks
        self._activities = activities
        self._operations = operations

    def handle(self, request: inp.ClientRequest) -> Answer:
        """Process a request."""
        state = self._ledger.state
        if request.request_id in state.requests:
            return OK
        if not self._ledger.open():
            done = isinstance(request, inp.CancelRequested)  # its goal, the end of the run, is reached
            return Answer(ok=done, reason=inp.CLOSED, message=f"the run has closed: {state.status}")
        answer = self._apply(request)
        if answer.ok:
            self._ledger.change(requests=(*self._ledger.state.requests, request.request_id)[-MAX_REQUESTS:])
        return answer

    def _apply(self, request: inp.ClientRequest) -> Answer:  # noqa: PLR0911 (one case for each request)
        match request:
            case inp.SignalRequested():
                return self._signal(request)
            case inp.CancelRequested():
                return self._cancel(request)
            case inp.TerminateRequested():
                return self._terminate(request)
            case inp.PauseRequested() | inp.UnpauseRequested():
                return self._pause(request)
            case inp.CallbacksAttached():
                return self._operations.attach_callbacks(request)
            case inp.OverrideChanged():
                return self._change_override(request)
            case inp.ActivityAnswered():
                return self._activities.complete(request)
            case inp.ActivityReset() | inp.OptionsChanged():
                return self._activities.change(request)
            case _:
                assert_never(request)

    def _signal(self, request: inp.SignalRequested) -> Answer:
        state = self._ledger.state
        if self._tasks is not None and self._tasks.refuses_signals():
            return Answer(ok=False, reason=inp.CLOSING, message="workflow is closing")
        if state.standalone:
            message = "a standalone activity or Nexus operation does not accept signals"
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        if state.signals >= MAX_SIGNALS:
            message = (
                f"the run has received {MAX_SIGNALS:,} signals and accepts no more; the workflow must continue as new"
            )
            return Answer(ok=False, reason=ConditionReason.SIGNAL_LIMIT_EXCEEDED, message=message)
        event = ev.WorkflowExecutionSignaled(
            signal_name=request.signal_name,
            input=request.input if state.code is not None else plain(request.input),
            identity=request.identity,
            principal=request.principal,
            header=request.header,
            external=request.external,
            request_id=request.client_request_id,
            links=request.links,
            **self._ledger.position,
        )
        self._ledger.emit(event, decide=True)
        return OK

    def _cancel(self, request: inp.CancelRequested) -> Answer:
        if request.stop and self._tasks is not None:
            message = "SDK workers run the workflow, so it has no `finally`; cancel or terminate it instead"
            return Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message)
        if self._ledger.state.cancel_requested or (self._tasks is not None and self._tasks.cancel_is_buffered()):
            return OK
        event = ev.WorkflowExecutionCancelRequested(
            cause=request.reason,
            identity=request.identity,
            principal=request.principal,
            external=request.external,
            stop=request.stop,
            links=request.links,
            **self._ledger.position,
        )
        self._ledger.emit(event, decide=True)
        return OK

    def _terminate(self, request: inp.TerminateRequested) -> Answer:
        self._ledger.close(
            ev.WorkflowExecutionTerminated(
                reason=request.reason,
                details=request.details,
                identity=request.identity,
                principal=request.principal,
                reset_run=request.reset_run,
                reset_event_id=request.reset_event_id,
                links=request.links,
                **self._ledger.position,
            )
        )
        return OK

    def _pause(self, request: inp.PauseRequested | inp.UnpauseRequested) -> Answer:
        """Pause or unpause the run or an activity. The history records only pauses of the run.

        Pausing the run of a standalone activity pauses the activity. A running attempt can still complete it.
        """
        state = self._ledger.state
        activity_id = request.activity_id
        if state.standalone and activity_id is None:  # no activity is scheduled yet if the run starts paused
            activity_id = next((each.activity_id for each in state.open_activities()), None)
        if activity_id is not None:
            return self._activities.pause(activity_id, request)
        pause = isinstance(request, inp.PauseRequested)
        if pause is (state.paused is None):
            event = ev.WorkflowExecutionPaused if pause else ev.WorkflowExecutionUnpaused
            recorded = event(
                reason=request.reason, identity=request.identity, principal=request.principal, **self._ledger.position
            )
            self._ledger.emit(recorded, decide=False)
        return OK

    def _change_override(self, request: inp.OverrideChanged) -> Answer:
        """Set or remove the versioning override."""
        code = self._ledger.state.code
        if code is None:
            message = "only workflows of Temporal SDK workers have a versioning override"
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        if code.versioning.override != request.override:
            event = ev.WorkflowExecutionOptionsUpdated(
                versioning_override=request.override,
                unset_versioning_override=request.override is None,
                identity=request.identity,
                principal=request.principal,
                **self._ledger.position,
            )
            self._ledger.emit(event, decide=False)
        return OK
