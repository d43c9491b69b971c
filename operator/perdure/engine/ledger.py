"""The ledger: what a step adds to a history.

It collects the output of a step. `event_of` converts a command to the event that records it: a step appends the event to
the history, and a replay compares it with the history.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol, assert_never

import msgspec

from perdure.api.names import child_workflow_id
from perdure.api.policies import ANY_TYPE
from perdure.api.reasons import ConditionReason
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.commands import UndecidableError
from perdure.engine.cron import next_due
from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType, bounded
from perdure.engine.fold import apply
from perdure.engine.inputs import Answer
from perdure.engine.retry import (
    PolicyChoice,
    PolicyReference,
    RetryPolicy,
    decide_retry_of,
    decide_run_retry,
    is_retryable,
)
from perdure.engine.starts import SHORTEST_RUN, CarriedSignal
from perdure.engine.state import CircuitReport, CircuitResult, PendingActivity, RunState

# The output of a step


class AttemptOutcome(StrEnum):
    """The outcome of an attempt."""

    COMPLETED = "Completed"
    CACHED = "Cached"
    """It did not run: an earlier result was used."""
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    LOST = "Lost"
    CANCELED = "Canceled"
    STOPPED = "Stopped"
    """Its run has closed."""


@dataclass(frozen=True, slots=True)
class Retired:
    """An attempt whose end this step has recorded. Its pod is no longer needed, and is stopped if it still runs."""

    scheduled_event_id: int
    attempt: int
    outcome: AttemptOutcome
    by_worker: bool = False
    """Whether it belonged to a worker, not to a pod."""
    waited: timedelta | None = None
    """How long it waited after the time when it could start; None if it has not started."""
    ran: timedelta | None = None
    """How long it ran; None if it has not started."""


OK = Answer(ok=True)
"""The answer to a successful request."""
Due = tuple[datetime, int, str, Callable[[], None]]
"""A due action: its deadline, a rank and a key that order equal deadlines, and the function to call."""


class TaskRecorder(Protocol):
    """The interface of the workflow task that the ledger needs."""

    @property
    def identity(self) -> str:
        """The worker that made the decision, while the decision is recorded."""
        ...

    def buffers(self, event: ev.AnyEvent) -> bool:
        """Buffer an event if it must wait until the worker has decided; return whether it was buffered."""
        ...

    def convert_speculative(self) -> None:
        """Write a speculative task, before an event that must follow it."""
        ...

    def close(self) -> None:
        """End the task with the run."""
        ...


class Ledger:
    """Collects the output of the parts of a step."""

    def __init__(self, state: RunState, now: datetime) -> None:
        self.state = state
        self.now = now
        self.events: list[ev.AnyEvent] = []
        self.queue = deque(state.undecided)
        self.retired: list[Retired] = []
        self.durable = False
        """Whether the step must be committed even without events."""
        self.has_new_events = False
        """Whether something has happened that needs a decision."""
        self.tasks: TaskRecorder | None = None
        """The workflow task, if workers decide the run."""

    def open(self) -> bool:
        """Whether the run is open."""
        return not self.state.closed

    def processes_deferrable(self) -> bool:
        """Whether to process deferrable inputs now, which leave events but have no waiting client: not while a worker decides."""
        return self.state.code is None or not self.state.code.task_started

    def change(self, **attributes: Any) -> None:
        """Change the state."""
        self.state = msgspec.structs.replace(self.state, **attributes)

    def emit(self, event: ev.AnyEvent, *, decide: bool) -> None:
        """Append an event. `decide`: whether the decider must decide about it, because it records no command."""
        failure: Failure | None = getattr(event, "failure", None)
        if failure is not None:
            event = msgspec.structs.replace(event, failure=bounded(failure))
        if self.tasks is not None:
            if self.tasks.buffers(event):
                return
            event = msgspec.structs.replace(event, event_id=self.state.next_event_id)
        self.state = apply(self.state, event)
        self.events.append(event)
        if decide and self.tasks is None:
            self.queue.append(event)
        self.has_new_events |= decide

    def close(self, event: ev.AnyEvent) -> None:
        """Append the closing event, and stop everything that is still open."""
        still_open = sorted(self.state.open_activities(), key=lambda a: a.scheduled_event_id)
        if self.tasks is not None:
            self.tasks.close()
            event = msgspec.structs.replace(event, event_id=self.state.next_event_id)
        timed_out = isinstance(event, ev.WorkflowExecutionTimedOut)
        for activity in still_open:
            self.retire(activity, AttemptOutcome.TIMED_OUT if timed_out else AttemptOutcome.STOPPED)
        self.emit(event, decide=False)

    def retire(self, activity: PendingActivity, outcome: AttemptOutcome, failure: Failure | None = None) -> None:
        """Record that an attempt is over: its pod is no longer needed, and its circuit breaker gets a report."""
        if activity.runs_nothing:
            return  # it has neither
        started = activity.started_time
        self.retired.append(
            Retired(
                activity.scheduled_event_id,
                activity.attempt,
                outcome,
                by_worker=activity.by_worker,
                waited=None if started is None else started - activity.scheduled_time,
                ran=None if started is None else self.now - started,
            )
        )
        policy = activity.retry_policy
        if not policy.circuit_breaker:
            return
        result = CircuitResult.RELEASED
        if outcome is AttemptOutcome.COMPLETED:
            result = CircuitResult.SUCCEEDED
        elif failure is not None and outcome is not AttemptOutcome.LOST and _counts(activity, failure):
            result = CircuitResult.FAILED
        report = CircuitReport(policy=policy.name, result=result, time=self.now)
        key = f"{activity.scheduled_event_id}/{activity.attempt}"
        self.change(reports={**self.state.reports, key: report})

    @property
    def position(self) -> dict[str, Any]:
        """ID and time of the next event."""
        return {"event_id": self.state.next_event_id, "event_time": self.now}


def _counts(activity: PendingActivity, failure: Failure) -> bool:
    """Whether a circuit breaker counts a failure: a retryable one, or the timeout of an attempt that ran."""
    if failure.timeout_type is TimeoutType.SCHEDULE_TO_CLOSE and activity.started_time is not None:
        return failure.type_names().isdisjoint(activity.retry_policy.non_retryable_error_types)
    return is_retryable(failure, activity.retry_policy)


# The events of commands

POLICY_NOT_FOUND = ConditionReason.RETRY_POLICY_NOT_FOUND
"""The reason while a named RetryPolicy does not exist, which prevents decisions."""

MAX_PENDING = 2_000
"""Maximum number of open activities, timers, children, and requests to other runs, each counted separately."""

MAX_OPERATIONS = 30
"""Maximum number of open Nexus operations of a run, as on Temporal's server."""

MAX_CARRIED = 96 * 1024
"""Size limit of the signals or the result that a run passes to the next one in an annotation, in bytes of JSON."""

FROM_COMMANDS: tuple[type[ev.Event], ...] = (
    ev.ActivityTaskCancelRequested,
    ev.ActivityTaskScheduled,
    ev.MarkerRecorded,
    ev.NexusOperationCancelRequested,
    ev.NexusOperationScheduled,
    ev.RequestCancelExternalWorkflowExecutionInitiated,
    ev.SignalExternalWorkflowExecutionInitiated,
    ev.StartChildWorkflowExecutionInitiated,
    ev.TimerCanceled,
    ev.TimerStarted,
    ev.UpsertWorkflowSearchAttributes,
    ev.WorkflowExecutionCanceled,
    ev.WorkflowExecutionCompleted,
    ev.WorkflowExecutionContinuedAsNew,
    ev.WorkflowExecutionFailed,
    ev.WorkflowExecutionUpdateAccepted,
    ev.WorkflowExecutionUpdateCompleted,
    ev.WorkflowPropertiesModified,
)
"""The events that record a command."""

UNHEARD: tuple[type[ev.Event], ...] = (
    *FROM_COMMANDS,
    ev.ActivityTaskStarted,
    ev.WorkflowExecutionPaused,
    ev.WorkflowExecutionTerminated,
    ev.WorkflowExecutionTimedOut,
    ev.WorkflowExecutionUnpaused,
    ev.WorkflowTaskFailed,
)
"""The events that need no decision."""


def event_of(
    command: cmd.Command,
    state: RunState,
    now: datetime,
    undecided: Iterable[ev.AnyEvent] = (),
    policies: Mapping[str, RetryPolicy] | None = None,
) -> ev.AnyEvent | None:
    """Return the event that records a command.

    Args:
        command: The command.
        state: The state of the run at that point.
        now: The time.
        undecided: Events that the decider has not decided about. The next run of the chain gets their signals.
        policies: The existing RetryPolicies by name. The event records the current spec of the named one.

    Returns:
        The next event; None if the target of the command no longer exists.

    Raises:
        UndecidableError: The command is not valid.
    """
    position: dict[str, Any] = {"event_id": state.next_event_id, "event_time": now}
    attributes = {field.name: getattr(command, field.name) for field in fields(command)}
    if attributes.get("failure") is not None:
        attributes["failure"] = bounded(attributes["failure"])
    match command:
        case cmd.ScheduleActivityTask():
            _admit("activity", command.activity_id, [a.activity_id for a in state.activities.values()])
            attributes |= _completed_timeouts(command, state, now)
            attributes["retry_policy"] = resolved(command.retry_policy or RetryPolicy(), policies)
            return ev.ActivityTaskScheduled(**attributes, **position)
        case cmd.RequestCancelActivityTask():
            activity = state.activities.get(str(command.scheduled_event_id)) or activity_named(
                state, command.activity_id
            )
            if activity is None or activity.cancel_requested:
                _refuse_code(state, f"activity {command.scheduled_event_id}", "RequestCancelActivity")
                return None
            return ev.ActivityTaskCancelRequested(
                scheduled_event_id=activity.scheduled_event_id, activity_id=activity.activity_id, **position
            )
        case cmd.StartTimer():
            _admit("timer", command.timer_id, state.timers)
            return ev.TimerStarted(**attributes, **position)
        case cmd.CancelTimer():
            timer = state.timers.get(command.timer_id)
            if timer is None:
                _refuse_code(state, f"timer {command.timer_id!r}", "CancelTimer")
                return None
            return ev.TimerCanceled(started_event_id=timer.started_event_id, **attributes, **position)
        case cmd.StartChildWorkflowExecution():
            _admit("child", command.child_id, [child.child_id for child in state.children.values()])
            chosen = attributes.pop("retry_policy")
            if chosen is not None:
                attributes["start"] = msgspec.structs.replace(command.start, retry_policy=resolved(chosen, policies))
            if not command.start.workflow_id:
                named = child_workflow_id(state.workflow_id, state.run_id, command.child_id)
                attributes["start"] = msgspec.structs.replace(attributes["start"], workflow_id=named)
            return ev.StartChildWorkflowExecutionInitiated(**attributes, **position)
        case cmd.SignalExternalWorkflowExecution():
            _admit("request to another run", "", state.externals)
            return ev.SignalExternalWorkflowExecutionInitiated(**attributes, **position)
        case cmd.RequestCancelExternalWorkflowExecution():
            return _cancel_external(command, state, position)
        case cmd.ScheduleNexusOperation():
            _admit("Nexus operation", "", state.operations, MAX_OPERATIONS)
            return ev.NexusOperationScheduled(**{**attributes, **_operation_timeouts(command, state)}, **position)
        case cmd.RequestCancelNexusOperation():
            return ev.NexusOperationCancelRequested(**_cancellable(command, state), **position)
        case cmd.RecordMarker():
            return ev.MarkerRecorded(**attributes, **position)
        case cmd.UpsertWorkflowSearchAttributes():
            return ev.UpsertWorkflowSearchAttributes(**attributes, **position)
        case cmd.ModifyWorkflowProperties():
            return ev.WorkflowPropertiesModified(**attributes, **position)
        case cmd.AcceptUpdate():
            if state.code is not None and command.update_id in state.code.admitted:
                attributes |= {
                    "name": "",
                    "input": None,
                    "header": None,
                    "identity": "",
                    "request_id": "",
                    "completion_callbacks": (),
                }  # the event that admitted the update has it
            return ev.WorkflowExecutionUpdateAccepted(**attributes, **position)
        case cmd.CompleteUpdate():
            return _update_completed(command, state, attributes | position)
        case cmd.CompleteWorkflowExecution():
            return _completed(command, state, attributes | position)
        case cmd.FailWorkflowExecution():
            return ev.WorkflowExecutionFailed(**attributes, **next_run(state, command.failure, now), **position)
        case cmd.CancelWorkflowExecution():
            return ev.WorkflowExecutionCanceled(**attributes, **position)
        case cmd.TimeOutWorkflowExecution():
            return ev.WorkflowExecutionTimedOut(**attributes, **position)
        case cmd.ContinueAsNewWorkflowExecution():
            if not state.successor:
                raise UndecidableError("the run cannot continue as new: the next one has no name")
            carried = (*command.signals, *_signals(undecided))
            size = len(msgspec.json.encode(carried))
            if size > MAX_CARRIED:
                message = (
                    f"{len(carried)} signals that no step has taken have {size:,} bytes of JSON; a run that continues as new "
                    f"may carry {MAX_CARRIED:,}: take them before"
                )
                return ev.WorkflowExecutionFailed(
                    failure=_too_large(message), retry_state=RetryState.NON_RETRYABLE_FAILURE, **position
                )
            attributes |= _inherited(command, state) | {"signals": carried}
            return ev.WorkflowExecutionContinuedAsNew(**attributes, new_workflow_run=state.successor, **position)
        case _:
            assert_never(command)


def _refuse_code(state: RunState, target: str, command: str) -> None:
    """Reject the cancellation of something that does not exist or is being canceled already, if code requests it.

    Raises:
        UndecidableError: Code requested it, which is a defect, because code knows what exists.
    """
    if state.code is not None:
        raise UndecidableError(f"there is no {target} to be canceled", cause=f"Bad{command}Attributes")


def _inherited(command: cmd.ContinueAsNewWorkflowExecution, state: RunState) -> dict[str, Any]:
    """The values that code omits when it continues as new, so that the next run inherits them (AddContinueAsNewEvent)."""
    code = state.code
    if code is None:
        return {}
    return {
        "workflow_type": command.workflow_type or code.workflow_type,
        "task_queue": command.task_queue or code.task_queue,
        "workflow_run_timeout": command.workflow_run_timeout or state.run_timeout,
        "workflow_task_timeout": command.workflow_task_timeout or code.task_timeout,
    }


def _completed(command: cmd.CompleteWorkflowExecution, state: RunState, attributes: dict[str, Any]) -> ev.AnyEvent:
    """The closing event of a completed run. With a cron schedule, the next run gets its result."""
    now = attributes["event_time"]
    follows = run_by_cron(state, now)
    if follows and (size := len(msgspec.json.encode(command.result))) > MAX_CARRIED:
        failure = _too_large(
            f"the result has {size:,} bytes of JSON; the next run of the cron schedule receives it, and may be handed "
            f"{MAX_CARRIED:,}: return less, or nothing"
        )
        return ev.WorkflowExecutionFailed(
            failure=failure,
            retry_state=RetryState.NON_RETRYABLE_FAILURE,
            event_id=attributes["event_id"],
            event_time=now,
            **follows,
        )
    return ev.WorkflowExecutionCompleted(**attributes, **follows)


def run_by_cron(state: RunState, now: datetime) -> dict[str, Any]:
    """The fields of a run's closing event for the next run of its cron schedule; empty if there is no next run."""
    if state.code is None or not state.successor:
        return {}
    began = state.first_decision_time or state.began
    due = next_due(state.code.cron_schedule, began, now)
    if due is None:
        return {}
    due = max(due, min(began, now) + SHORTEST_RUN)
    return {"new_workflow_run": state.successor, "new_run_backoff": due - now}


def _too_large(message: str) -> Failure:
    return Failure(kind=FailureKind.APPLICATION, type="PayloadTooLarge", message=message, non_retryable=True)


def _update_completed(command: cmd.CompleteUpdate, state: RunState, attributes: dict[str, Any]) -> ev.AnyEvent:
    record = state.code.updates.get(command.update_id) if state.code else None
    if record is None or record.completed_event_id:
        raise UndecidableError(f"update {command.update_id!r} is not open", cause="BadUpdateWorkflowExecutionMessage")
    return ev.WorkflowExecutionUpdateCompleted(accepted_event_id=record.accepted_event_id, **attributes)


def resolved(choice: PolicyChoice, policies: Mapping[str, RetryPolicy] | None) -> RetryPolicy:
    """Return the retry policy of a command, looking it up if it is a RetryPolicy by name.

    Raises:
        UndecidableError: The RetryPolicy does not exist, or cannot be used.
    """
    if isinstance(choice, RetryPolicy):
        return choice
    found = (policies or {}).get(choice.name)
    if found is None:
        message = f"there is no valid RetryPolicy `{choice.name}`; the run continues once there is one"
        raise UndecidableError(message, POLICY_NOT_FOUND, cause="BadScheduleActivityAttributes")
    return found


def policy_named(command: cmd.Command) -> str | None:
    """The name of the RetryPolicy of a command; None if it names none."""
    choice = getattr(command, "retry_policy", None)
    return choice.name if isinstance(choice, PolicyReference) else None


def activity_named(state: RunState, activity_id: str) -> PendingActivity | None:
    """The open activity with an ID."""
    return next((a for a in state.open_activities() if a.activity_id == activity_id), None)


def activities_of(state: RunState, activity_id: str | None, activity_type: str | None) -> list[PendingActivity]:
    """The open activities that a request names: one by its ID, or all of a type, or all."""
    if activity_id is not None:
        return [each for each in state.open_activities() if each.activity_id == activity_id]
    return [each for each in state.open_activities() if activity_type in {ANY_TYPE, each.activity_type}]


def next_run(state: RunState, failure: Failure, now: datetime) -> dict[str, Any]:
    """The fields of the closing event of a failed or timed out run for its retry, or for its next run by cron."""
    if state.code is not None:
        decision = decide_retry_of(
            state.retry_policy, failure, attempt=state.attempt, now=now, expiration=state.expiration
        )
    else:
        decision = decide_run_retry(
            state.retry_policy,
            failure,
            attempt=state.attempt,
            now=now,
            expiration=state.expiration,
            since=state.retries_since or state.start_time,
        )
    if decision.delay is None:
        return {"retry_state": decision.state, **run_by_cron(state, now)}
    if not state.successor:
        return {"retry_state": RetryState.RETRY_POLICY_NOT_SET}
    return {
        "retry_state": decision.state,
        "new_workflow_run": state.successor,
        "new_run_backoff": decision.delay,
    }


_IN_USE = {"activity": "ScheduleActivityDuplicateId", "timer": "StartTimerDuplicateId"}
_TOO_MANY = {
    "activity": "PendingActivitiesLimitExceeded",
    "child": "PendingChildWorkflowsLimitExceeded",
    "request to another run": "PendingSignalsLimitExceeded",
    "Nexus operation": "PendingNexusOperationsLimitExceeded",
}


def _admit(kind: str, name: str, existing: Collection[str], limit: int = 0) -> None:
    """Raise if the limit is reached, or if the name is in use."""
    if name in existing:
        raise UndecidableError(f"{kind} id {name!r} is in use", cause=_IN_USE.get(kind, "Unspecified"))
    limit = limit or MAX_PENDING
    if len(existing) >= limit:
        message = f"cannot start another {kind}: a run can have at most {limit:,} of each kind open"
        raise UndecidableError(message, cause=_TOO_MANY.get(kind, "Unspecified"))


def _completed_timeouts(
    command: cmd.ScheduleActivityTask, state: RunState, now: datetime
) -> dict[str, timedelta | None]:
    """Complete an activity's timeouts with defaults, like Temporal's server (chasm/lib/activity/validator.go)."""
    total = command.schedule_to_close_timeout
    close = command.start_to_close_timeout or total
    if close is None:
        raise UndecidableError(
            f"activity {command.activity_id!r}: `startToCloseTimeout` or `scheduleToCloseTimeout` must be set",
            cause="BadScheduleActivityAttributes",
        )
    start, beat = command.schedule_to_start_timeout or total, command.heartbeat_timeout
    if state.for_clients:
        total = min(filter(None, (total, state.run_timeout)), default=None)
        start, close = min(filter(None, (start, total)), default=None), min(close, total or close)
    else:  # a YAML run must replay as it was recorded
        left = state.run_deadline - now if state.run_deadline else timedelta.max
        total, start = (min(length, left) if length else None for length in (total, start))
        close = min(close, left)
    return {
        "schedule_to_close_timeout": total,
        "schedule_to_start_timeout": start,
        "start_to_close_timeout": close,
        "heartbeat_timeout": min(beat, close) if beat else None,
    }


def _operation_timeouts(command: cmd.ScheduleNexusOperation, state: RunState) -> dict[str, timedelta | None]:
    """The timeouts of a Nexus operation, limited to those of the run (nexusoperations/workflow/commands.go)."""
    total = min(filter(None, (command.schedule_to_close_timeout, state.run_timeout)), default=None)
    others = (command.schedule_to_start_timeout, command.start_to_close_timeout)
    start, close = (min(filter(None, (length, total))) if length else None for length in others)
    return {
        "schedule_to_close_timeout": total,
        "schedule_to_start_timeout": start,
        "start_to_close_timeout": close,
    }


def _cancellable(command: cmd.RequestCancelNexusOperation, state: RunState) -> dict[str, Any]:
    """The operation to cancel, which must be open and not cancelled yet."""
    number = command.scheduled_event_id or next(map(int, state.operations), 0)
    operation = state.operations.get(str(number))
    wrong = ""
    if operation is None:
        wrong = (
            "requested cancelation for a non-existing or already completed operation with scheduled event ID of "
            f"{number}"
        )
    elif operation.cancellation is not None:
        wrong = f"cancelation was already requested for an operation with scheduled event ID {number}"
    if wrong:
        raise UndecidableError(wrong, cause="BadRequestCancelNexusOperationAttributes")
    return {"scheduled_event_id": number, "user_metadata": command.user_metadata}


def _cancel_external(
    command: cmd.RequestCancelExternalWorkflowExecution, state: RunState, position: dict[str, Any]
) -> ev.AnyEvent | None:
    """Request the cancellation of another run. For an open child, fill in its workflow ID; for a closed child, return None."""
    workflow_id, child_only = command.workflow_id, command.child_workflow_only
    if command.child_id:
        child = next((child for child in state.children.values() if child.child_id == command.child_id), None)
        if child is None:
            return None
        workflow_id, child_only = child.workflow_id, True
    _admit("request to another run", "", state.externals)
    return ev.RequestCancelExternalWorkflowExecutionInitiated(
        workflow_id=workflow_id,
        run_id=command.run_id,
        child_workflow_only=child_only,
        reason=command.reason,
        control=command.control,
        **position,
    )


def _signals(undecided: Iterable[ev.AnyEvent]) -> Iterable[CarriedSignal]:
    for event in undecided:
        if isinstance(event, ev.WorkflowExecutionSignaled):
            yield CarriedSignal(
                signal_name=event.signal_name,
                input=event.input,
                identity=event.identity,
                principal=event.principal,
                header=event.header,
                external=event.external,
            )
