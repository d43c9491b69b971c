"""The state of a run."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from perdure.api.durations import show_duration
from perdure.api.stored_struct import StoredStruct
from perdure.engine import events as ev
from perdure.engine.code import Code, WorkflowTask
from perdure.engine.failures import Failure
from perdure.engine.retry import RetryPolicy
from perdure.engine.state.nexus_operation import HandlerCalls, PendingOperation
from perdure.engine.state.pending import HeldLimits, PendingCallback, PendingChild, PendingExternal, PendingTimer
from perdure.engine.state.pending_activity import PauseInfo, PendingActivity

WORKFLOWS_QUEUE = "workflows"
"""The task queue of the workflows in YAML: each workflow type is the name of a Workflow."""


class RunStatus(StrEnum):
    """The status of a run (temporal.api.enums.v1.WorkflowExecutionStatus)."""

    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    CONTINUED_AS_NEW = "ContinuedAsNew"
    TERMINATED = "Terminated"
    TIMED_OUT = "TimedOut"


class TaskFailure(StoredStruct, frozen=True, kw_only=True):
    """The decider could not decide about the first undecided event. It is retried at `next_attempt_time`."""

    attempt: int
    message: str
    reason: str = ""
    """A specific reason as one CamelCase word, if there is one."""
    next_attempt_time: datetime


class CircuitResult(StrEnum):
    """The meaning of the end of an attempt for a circuit breaker."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    RELEASED = "Released"
    """It ended for a reason unrelated to the called service: lost, canceled, or a failure that is not retried."""


class CircuitReport(StoredStruct, frozen=True, kw_only=True):
    """The end of an attempt, to report to a circuit breaker."""

    policy: str
    """Name of the RetryPolicy that has the circuit breaker."""
    result: CircuitResult
    time: datetime


class RunState(StoredStruct, frozen=True, kw_only=True):
    """A run between two steps."""

    workflow_id: str = ""
    run_id: str = ""
    """Run ID. After a reset, it is the ID of the new run, so that derived names differ from those of the other run."""
    status: RunStatus = RunStatus.RUNNING
    next_event_id: int = 1
    history_size: int = 0
    """Bytes of all events so far, as JSON."""
    suggested_event_id: int = 0
    """The first event at which continue-as-new is suggested; 0: not yet."""
    start_time: datetime
    """When its history begins; after a reset, when the history of the other run begins."""
    reset_time: datetime | None = None
    """When the run began, if a reset created it."""
    close_time: datetime | None = None
    run_deadline: datetime | None = None
    """When the run timeout or the execution timeout ends, whichever is first."""
    run_timeout: timedelta | None = None
    """The run timeout; None also if an older version recorded the start."""
    expiration: datetime | None = None
    """When the execution timeout of the whole chain ends."""
    first_decision_time: datetime | None = None
    """The earliest time of the first decision: the end of a start delay or retry backoff, or earlier if an update arrived."""
    attempt: int = 1
    retries_since: datetime | None = None
    """When the first run in a series of retries started; None: this is the first."""
    retry_policy: RetryPolicy | None = None
    successor: str = ""
    """Name of the WorkflowRun that would continue or retry this one."""
    cancel_requested: bool = False
    signals: int = 0
    """Number of received signals."""
    paused: PauseInfo | None = None
    activities: dict[str, PendingActivity] = {}
    """Open activities by scheduled event ID (decimal, because the keys of a JSON object are strings)."""
    left_activities: dict[str, PendingActivity] = {}
    """Activities that were open when a worker-decided run closed, and a closed standalone activity, without their inputs. Clients
    can still describe them."""
    holds: dict[str, HeldLimits] = {}
    """The WorkflowLimits that steps hold, by scheduled event ID."""
    timers: dict[str, PendingTimer] = {}
    """Open timers by timer ID."""
    children: dict[str, PendingChild] = {}
    """By initiated event ID."""
    externals: dict[str, PendingExternal] = {}
    """By initiated event ID."""
    operations: dict[str, PendingOperation] = {}
    """Nexus operations, by scheduled event ID."""
    left_operations: dict[str, PendingOperation] = {}
    """A closed standalone Nexus operation, without its input. Clients can still describe it."""
    callbacks: dict[str, PendingCallback] = {}
    """Nexus operations of other runs: by number if the end of this run completes them, and by ``<event ID>/<number>`` if the end
    of an update does."""
    markers: dict[str, ev.MarkerRecorded] = {}
    """Markers whose dead letters are not created yet, by event ID."""
    start_successor: bool = False
    """In a closed run: whether the next run of the chain must still be created."""
    successor_refused: str = ""
    """In a closed run: why the next run of the chain cannot be created."""
    memory: Any = None
    """The decider's own state, opaque to the engine."""
    code: Code | None = None
    """The state for Temporal SDK workers that decide the run; None if the decider runs in this process."""
    standalone: bool = False
    """Whether the run is a standalone activity or a standalone Nexus operation."""

    # Not recorded by events:
    reports: dict[str, CircuitReport] = {}
    """Undelivered reports to circuit breakers, by ``<scheduled event ID>/<attempt>``."""
    undecided: tuple[ev.AnyEvent, ...] = ()
    """Events without a decision, because the run is paused or the decider could not decide."""
    unfinished: bool = False
    """Whether the decider has stopped in the middle of a decision and must continue."""
    task: TaskFailure | None = None
    """The failure of the last attempt to decide; None if it succeeded."""
    requests: tuple[str, ...] = ()
    """IDs of applied requests whose clients may not have the answer yet."""

    @property
    def began(self) -> datetime:
        """When the run itself began: its timeouts count from here."""
        return self.reset_time or self.start_time

    @property
    def pause(self) -> PauseInfo | None:
        """Who paused the run or its standalone activity; None if it is not paused."""
        if self.paused is not None or not self.standalone:
            return self.paused
        return next((each.pause for each in self.open_activities() if each.paused), None)

    @property
    def for_clients(self) -> bool:
        """Whether Temporal's clients get the payloads of the run, because workers decide it or it is standalone."""
        return self.code is not None or self.standalone

    @property
    def closed(self) -> bool:
        """Whether the run has ended."""
        return self.status is not RunStatus.RUNNING

    @property
    def has_chores(self) -> bool:
        """Whether a closed run still has effects."""
        left = self.children or self.externals or self.markers or self.start_successor or self.reports
        return self.closed and (bool(left) or any(not callback.state for callback in self.callbacks.values()))

    def is_due(self, callback: PendingCallback) -> bool:
        """Whether the operation of a callback can be completed now, and is not yet."""
        if callback.state:
            return False
        if not callback.update_id:
            return self.closed and not self.start_successor
        return self.closed or callback.rejection is not None or self.has_completed(callback.update_id)

    def has_completed(self, update_id: str) -> bool:
        """Whether an update has completed."""
        record = self.code.updates.get(update_id) if self.code is not None else None
        return record is not None and bool(record.completed_event_id)

    def open_activities(self) -> Iterable[PendingActivity]:
        """The activities that have not ended. One whose end is buffered has, although no event records it yet."""
        ended = self.code.ended_activities() if self.code is not None else ()
        return (each for each in self.activities.values() if each.scheduled_event_id not in ended)

    def activity(self, scheduled_event_id: int) -> PendingActivity | None:
        """The open activity that an event scheduled; None if there is none, or if its end is buffered."""
        if self.code is not None and scheduled_event_id in self.code.ended_activities():
            return None
        return self.activities.get(str(scheduled_event_id))

    def may_start(self, activity: PendingActivity, now: datetime) -> bool:
        """Whether the attempt of an open activity may have a pod: it is due or runs, and is not paused."""
        if activity.started_time is not None:
            return not self.closed
        return not self.closed and not self.holds_back(activity) and activity.scheduled_time <= now

    def holds_back(self, activity: PendingActivity) -> bool:
        """Whether no attempt of an activity may start, because the activity or the whole run is paused."""
        return activity.paused or self.paused is not None

    def stuck(self) -> Iterator[PendingActivity]:
        """The open activities whose attempts are blocked."""
        return (activity for activity in self.open_activities() if activity.stuck)

    def queued(self) -> Iterator[PendingActivity]:
        """The open activities whose attempts wait for their turn in a WorkflowLimit."""
        return (activity for activity in self.open_activities() if activity.queued)

    def offered_task(self) -> WorkflowTask | None:
        """The workflow task, if it waits for a worker."""
        task = self.code.task if self.code is not None and self.paused is None else None
        return task if task is not None and task.started_time is None else None

    def offered_activities(self, now: datetime) -> Iterator[PendingActivity]:
        """The open activities whose attempts wait for a worker."""
        for activity in self.open_activities():
            if activity.by_worker and activity.started_time is None and self.may_start(activity, now):
                yield activity

    def offered_calls(self, now: datetime) -> Iterator[tuple[PendingOperation, HandlerCalls]]:
        """The Nexus operations whose handlers must be called, to start or to cancel them."""
        known = self.code.operations_buffered() if self.code is not None else frozenset()
        for operation in () if self.closed else self.operations.values():
            calls = operation.open_call
            if calls is None or calls.due > now or operation.scheduled_event_id in known:
                continue
            if operation.too_late_for(calls) is None and now < operation.call_deadline(calls):
                yield operation, calls

    def suggests_continuing(self, event: ev.AnyEvent) -> bool:
        """Whether the history was long enough at `event` to suggest continue-as-new."""
        return 0 < self.suggested_event_id <= event.event_id

    def with_activity(self, activity: PendingActivity) -> "RunState":
        """This state with `activity` added or replaced."""
        return msgspec.structs.replace(self, activities={**self.activities, str(activity.scheduled_event_id): activity})


def closing_failure(state: RunState, event: ev.Event) -> Failure | None:
    """Why a run closed, like `perdure.engine.events.failure_of`; for a timeout of the run, with its kind and length."""
    failure = ev.failure_of(event)
    if failure is None or not isinstance(event, ev.WorkflowExecutionTimedOut) or state.run_deadline is None:
        return failure
    if state.expiration is not None and state.expiration <= state.run_deadline:
        reason = "the executionTimeout of the workflow has passed"
    else:
        limit = state.run_timeout or state.run_deadline - (state.first_decision_time or state.began)
        reason = f"the runTimeout of {show_duration(limit)} has passed"
    return msgspec.structs.replace(failure, message=f"{failure.message}: {reason}")
