"""The workflow task machine: when a worker is asked, and what becomes of its answer.

The rules are those of Temporal's server (service/history/workflow/workflow_task_state_machine.go, historybuilder/event_store.go):

* One task at a time. It is scheduled when something has happened; what happens before a worker takes it is recorded at once.
* While a worker decides, what happens is buffered and recorded behind the events of its commands, the ends of activities and
  Nexus operations last.
  What nobody waits to be acknowledged (timers, children) is not even looked at until then.
* A task that failed, or was not answered in time, leaves events the first time. Further attempts leave none until one succeeds.
* A task that only an update has asked for leaves nothing if the update is rejected (speculative).

What differs: that a worker has taken a task is not written. What another process has handed out is handed out anew.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.code import ACTIVITY_CLOSED, OPERATION_CLOSED, Code, WorkflowTask
from perdure.engine.decider import UndecidableError
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.inputs import Answer
from perdure.engine.ledger import Ledger
from perdure.engine.recording import FROM_COMMANDS
from perdure.engine.state import RunState

MAX_BUFFERED = 100
"""Events that may wait for a worker's decision; one more, and the task has failed."""
MAX_BUFFERED_BYTES = 2 * 1024 * 1024
LONGEST_ROW = timedelta(minutes=30)
"""How long a worker may prolong a task in all."""
SPECULATIVE_START_TIMEOUT = timedelta(seconds=5)
"""How long a task that only an update has asked for waits for a worker."""
_FIRST_MORE, _LONGEST_MORE = timedelta(seconds=5), timedelta(minutes=10)
_FREE_ATTEMPTS = 3
"""From the next attempt on, a worker gets ever more time: by that much fewer attempts fail in vain."""
_TASK_EVENTS = (
    ev.WorkflowTaskScheduled,
    ev.WorkflowTaskStarted,
    ev.WorkflowTaskCompleted,
    ev.WorkflowTaskFailed,
    ev.WorkflowTaskTimedOut,
)
_CLOSING_COMMANDS = (
    cmd.CompleteWorkflowExecution,
    cmd.FailWorkflowExecution,
    cmd.CancelWorkflowExecution,
    cmd.ContinueAsNewWorkflowExecution,
)
_LONGEST_FAILURE = 1_024
_MAX_SENT_AGAIN = 10
"""Events that a task which leaves none may have sent (history.discardSpeculativeWorkflowTaskMaximumEventsCount)."""
SUGGEST_BYTES = 4 * 1024 * 1024
"""Bytes of history from which on a worker is told to continue as new."""


def moments(state: RunState) -> Iterator[datetime]:
    """When the workflow task of a run needs to be looked at."""
    code = state.code
    if code is None:
        return
    if code.task is not None:
        deadline = _deadline(code.task, code)
        if deadline is not None:
            yield deadline[0]
    elif code.wanted and state.first_decision_time:
        yield state.first_decision_time


def reclaim(state: RunState, epoch: str) -> RunState:
    """A run's state as another process has left it: a task that it has handed out is there to be taken again."""
    code = state.code
    if code is None or code.task is None or code.task.started_time is None or code.task.epoch == epoch:
        return state
    task = None if code.task.speculative else _untaken(code.task)
    return msgspec.structs.replace(state, code=msgspec.structs.replace(code, task=task))


def _untaken(task: WorkflowTask) -> WorkflowTask:
    return msgspec.structs.replace(
        task, started_time=None, started_event_id=0, epoch="", identity="", request_id="", sticky_queue=""
    )


def _deadline(task: WorkflowTask, code: Code) -> tuple[datetime, TimeoutType] | None:
    if task.started_time is not None:
        return task.started_time + _time_for(task), TimeoutType.START_TO_CLOSE
    if task.sticky_queue:
        return task.scheduled_time + code.sticky_timeout, TimeoutType.SCHEDULE_TO_START
    if task.speculative:
        return task.scheduled_time + SPECULATIVE_START_TIMEOUT, TimeoutType.SCHEDULE_TO_START
    return None


def _time_for(task: WorkflowTask) -> timedelta:
    """How long a worker has: from the fourth attempt on ever longer, so that a task that always fails keeps nobody busy.

    As on Temporal's server (service/history/workflow/workflow_task_state_machine.go: getStartToCloseTimeout).
    """
    if task.attempt <= _FREE_ATTEMPTS:
        return task.start_to_close_timeout
    more = _FIRST_MORE * (1 << min(task.attempt - _FREE_ATTEMPTS - 1, 16))
    return task.start_to_close_timeout + min(more, _LONGEST_MORE)


class Tasks:
    """The workflow task of a run, for the time of one pass."""

    def __init__(self, ledger: Ledger, record: Callable[[cmd.Command], None]) -> None:
        """`ledger`: what the pass writes in. `record`: records a command."""
        self._ledger = ledger
        self._record = record
        self._flushing = False
        self._completed_event_id = 0
        """In the middle of a decision: its WorkflowTaskCompleted."""
        self.identity = ""
        """In the middle of a decision: the worker that decides."""

    # State

    @property
    def code(self) -> Code:
        """What the run has because workers decide it."""
        code = self._ledger.state.code
        assert code is not None
        return code

    def _change(self, **attributes: Any) -> None:
        self._ledger.change(code=msgspec.structs.replace(self.code, **attributes))

    def _set_task(self, **attributes: Any) -> None:
        assert self.code.task is not None
        self._change(task=msgspec.structs.replace(self.code.task, **attributes))

    # Events

    def holds_back(self, event: ev.AnyEvent) -> bool:
        """Whether an event waits for the end of a decision; then it is kept here."""
        if self._flushing or isinstance(event, (*_TASK_EVENTS, *FROM_COMMANDS, *ev.CLOSING)):
            return False
        if not self.code.deciding and not self._completed_event_id:
            self.make_normal()
            return False
        self._change(buffered=(*self.code.buffered, msgspec.structs.replace(event, event_id=0)))
        self._ledger.durable = True
        return True

    def credited(self, event: ev.AnyEvent) -> ev.AnyEvent:
        """An event that records a command, with the task that has given it."""
        if isinstance(event, ev.TimerCanceled):
            event = msgspec.structs.replace(event, identity=self.identity)
        if isinstance(event, ev.CommandEvent):
            return msgspec.structs.replace(event, workflow_task_completed_event_id=self._completed_event_id)
        return event

    def buffered(self) -> tuple[ev.AnyEvent, ...]:
        """What waits for the end of a decision."""
        return self.code.buffered

    def cancel_is_buffered(self) -> bool:
        """Whether a request to cancel waits for the end of a decision."""
        return any(isinstance(event, ev.WorkflowExecutionCancelRequested) for event in self.code.buffered)

    def refuses(self) -> bool:
        """Whether signals are refused: the workflow is about to close, and has had to be told of something first."""
        return self.code.closing and self.code.deciding

    def _flush(self) -> None:
        """Record what was buffered; the ends of activities and Nexus operations last."""
        buffered = self.code.buffered
        if not buffered:
            return
        self._change(buffered=())
        self._flushing = True
        started: dict[int, int] = {}
        ends = (*ACTIVITY_CLOSED, *OPERATION_CLOSED)
        last = [event for event in buffered if isinstance(event, ends)]
        for event in [event for event in buffered if not isinstance(event, ends)] + last:
            number = self._ledger.state.next_event_id
            placed = msgspec.structs.replace(event, event_id=number)
            if isinstance(placed, ev.ActivityTaskStarted):
                started[placed.scheduled_event_id] = number
            elif isinstance(placed, ACTIVITY_CLOSED):
                if self._ledger.state.activity(placed.scheduled_event_id) is None:
                    continue
                placed = msgspec.structs.replace(placed, started_event_id=started.get(placed.scheduled_event_id, 0))
            self._ledger.emit(placed, decide=not isinstance(placed, ev.ActivityTaskStarted))
        self._flushing = False
        self._ledger.news = True

    # Scheduling

    def settle(self) -> None:
        """Schedule a task if something has happened that a worker has to decide about."""
        state, code = self._ledger.state, self.code
        if not self._ledger.open() or code.deciding:
            if self._ledger.open() and self._too_much_buffered():
                self._force_fail("ForceCloseCommand")
            return
        self._flush()
        if self._ledger.news and not self.code.wanted and self.code.task is None:
            self._change(wanted=True)
        self._ledger.news = False
        first = state.first_decision_time
        waits = state.paused is not None or (first is not None and first > self._ledger.now)
        if self.code.wanted and self.code.task is None and not waits:
            self._schedule(attempt=1)

    def _too_much_buffered(self) -> bool:
        buffered = self.code.buffered
        if len(buffered) <= MAX_BUFFERED // 4:
            return False
        return len(buffered) > MAX_BUFFERED or len(msgspec.json.encode(buffered)) > MAX_BUFFERED_BYTES

    def _schedule(self, attempt: int, *, original: datetime | None = None) -> None:
        """Schedule a task. The first attempt is written, others are not until one succeeds."""
        code, now = self.code, self._ledger.now
        if attempt == 1:
            self._ledger.emit(
                ev.WorkflowTaskScheduled(
                    task_queue=code.sticky_queue or code.task_queue,
                    sticky=bool(code.sticky_queue),
                    normal_name=code.task_queue if code.sticky_queue else "",
                    start_to_close_timeout=code.task_timeout,
                    **self._ledger.here,
                ),
                decide=False,
            )
            if original is not None:
                self._set_task(original_scheduled_time=original)
            return
        task = WorkflowTask(
            attempt=attempt,
            scheduled_time=now,
            original_scheduled_time=now,
            start_to_close_timeout=code.task_timeout,
            seen_event_id=self._ledger.state.next_event_id,
        )
        self._change(task=task, wanted=False)
        self._ledger.durable = True

    def make_normal(self) -> None:
        """Something happens while a task waits that only an update has asked for: it is a task like others now."""
        task = self.code.task
        if task is not None and task.speculative and task.started_time is None:
            self._change(task=None)
            self._schedule(attempt=1)

    # Inputs

    def take(self, item: inp.TaskInput) -> Answer:
        """What somebody asks for, or answers."""
        match item:
            case inp.TaskWanted():
                return self._want()
            case inp.TaskTaken():
                return self._hand_out(item)
            case inp.TaskReturned():
                return self._returned(item)
            case inp.TaskCompleted():
                return self._completed(item)
            case inp.TaskFailed():
                return self._failed(item)
            case inp.StickinessReset():
                return self._reset_stickiness()

    def _want(self) -> Answer:
        state, code, now = self._ledger.state, self.code, self._ledger.now
        if not self._ledger.open():
            return _no(inp.CLOSED, "workflow execution already completed")
        if code.task is None:  # also during a start delay: the first task does not wait for its end then
            task = WorkflowTask(
                scheduled_time=now,
                original_scheduled_time=now,
                start_to_close_timeout=code.task_timeout,
                speculative=True,
                sticky_queue=code.sticky_queue,
                seen_event_id=state.next_event_id,
            )
            self._change(task=task)
        return _yes()

    def _hand_out(self, item: inp.TaskTaken) -> Answer:
        task, state = self.code.task, self._ledger.state
        if not self._ledger.open() or task is None or task.started_time is not None or state.paused is not None:
            return _no("TaskNotFound", "there is no workflow task to be taken")
        attempt = task.attempt
        if not task.scheduled_event_id and not task.speculative and task.seen_event_id != state.next_event_id:
            attempt = 1  # something has happened since it failed: a task like the first
        number = state.next_event_id + (0 if task.scheduled_event_id else 1)
        events, size = state.next_event_id, state.history_size
        self._set_task(
            attempt=attempt,
            started_time=self._ledger.now,
            started_event_id=number,
            epoch=item.epoch,
            identity=item.identity,
            request_id=item.request_id,
            suggest_continue_as_new=events > item.suggest_events or size > SUGGEST_BYTES,
            history_size_bytes=size,
            target_version_changed=item.target_version_changed,
        )
        return _yes()

    def _returned(self, item: inp.TaskReturned) -> Answer:
        task = self._holds(item.token)
        if task is None:
            return _no("TaskNotFound", "Workflow task not found.")
        self._change(task=_untaken(task))
        self._flush()
        return _yes()

    def _holds(self, token: inp.TaskToken) -> WorkflowTask | None:
        """The task that is being decided, if that is the one that the token names."""
        task = self.code.task
        if task is None or task.started_time is None or not self._ledger.open():
            return None
        held = inp.TaskToken(
            scheduled_event_id=task.number,
            started_event_id=task.started_event_id,
            attempt=task.attempt,
            epoch=task.epoch,
        )
        return task if held == token else None

    def _reset_stickiness(self) -> Answer:
        task = self.code.task
        self._change(sticky_queue="")
        if task is not None and task.started_time is None and task.sticky_queue:
            self._set_task(sticky_queue="")
        return _yes()

    # The worker's answer

    def _completed(self, item: inp.TaskCompleted) -> Answer:
        task = self._holds(item.token)
        if task is None:
            if self.code.completed == item.token.text():
                return _yes()
            return _no("TaskNotFound", "Workflow task not found.")
        if self._is_dropped(task, item):
            self._change(task=None, failure="", completed=item.token.text(), sticky_queue=item.sticky_queue)
            self._keep_stickiness(item)
            self._forget_rejected(item)
            return _yes(str(self.code.previous_started_event_id))
        closes = any(isinstance(command, _CLOSING_COMMANDS) for command in item.commands)
        if closes and self.code.buffered:
            self._fail(task, "UnhandledCommand", None, item, closing=True)
            return _no("UnhandledCommand", "UnhandledCommand")
        prolongs = item.force_new_task and not item.commands
        if prolongs and self._ledger.now - task.original_scheduled_time > LONGEST_ROW:
            self._time_out(TimeoutType.START_TO_CLOSE)
            return _no("TaskNotFound", "the workflow task was prolonged for too long")
        return self._decided(task, item, prolongs=prolongs)

    def _is_dropped(self, task: WorkflowTask, item: inp.TaskCompleted) -> bool:
        """Whether a task leaves no events: only an update asked for it, and the worker rejected that.

        The next task sends its events again, which older workers do not expect (skipWorkflowTaskCompletedEvent).
        """
        if not task.speculative or not item.rejects_only or item.commands or item.force_new_task or self.code.buffered:
            return False
        sent = self._ledger.state.next_event_id - self.code.previous_started_event_id - 2
        return sent <= (_MAX_SENT_AGAIN if item.receives_again else 0)

    def _decided(self, task: WorkflowTask, item: inp.TaskCompleted, *, prolongs: bool) -> Answer:
        ledger = self._ledger
        before, events, retired, durable = ledger.state, len(ledger.events), len(ledger.retired), ledger.durable
        try:
            self._write_started(task)
            self._completed_event_id, self.identity = ledger.state.next_event_id, item.identity
            ledger.emit(
                ev.WorkflowTaskCompleted(
                    scheduled_event_id=task.number,
                    started_event_id=task.started_event_id,
                    identity=item.identity,
                    principal=item.principal,
                    sdk_metadata=item.sdk_metadata,
                    metering_metadata=item.metering_metadata,
                    worker_version=item.worker_version,
                    binary_checksum=item.binary_checksum,
                    worker_deployment_name=item.worker_deployment_name,
                    deployment_version=item.deployment_version,
                    versioning_behavior=item.versioning_behavior,
                    **ledger.here,
                ),
                decide=False,
            )
            for command in item.commands:
                self._record(command)
        except UndecidableError as error:
            ledger.state, ledger.durable = before, durable
            del ledger.events[events:]
            del ledger.retired[retired:]
            self._completed_event_id = 0
            if task.attempt == 1:
                failure = Failure(kind=FailureKind.APPLICATION, message=str(error), type=error.cause)
                self._fail(task, error.cause, failure, item)
            # A further attempt is left to run out, each after a longer time: the worker would answer the same at once, for ever
            # (respondworkflowtaskcompleted/api.go).
            return _no("BadCommand", f"{error.cause}: {error}")
        self._completed_event_id = 0
        if not ledger.open():
            return _yes()
        self._keep_stickiness(item)
        self._forget_rejected(item)
        self._change(failure="", completed=item.token.text())
        self._flush()
        if item.force_new_task and self.code.task is None:
            self._schedule(attempt=1, original=task.original_scheduled_time if prolongs else None)
        self._start_eagerly(item)
        if item.following is not None:
            self.settle()
            self._hand_out(item.following)
        return _yes()

    def _forget_rejected(self, item: inp.TaskCompleted) -> None:
        """An update that a reset has brought is not asked about again. A rejection leaves no event."""
        kept = {name: event_id for name, event_id in self.code.admitted.items() if name not in item.rejected}
        if kept != self.code.admitted:
            self._change(admitted=kept)
            self._ledger.durable = True

    def _start_eagerly(self, item: inp.TaskCompleted) -> None:
        """Give the worker the activities that it does itself. The commit records that it has them."""
        ledger, eager = self._ledger, set(item.eager)
        for activity in ledger.state.activities.values() if eager else ():
            waits = (
                activity.by_worker and activity.started_time is None and ledger.state.may_start(activity, ledger.now)
            )
            if activity.activity_id in eager and waits:
                started = msgspec.structs.replace(
                    activity,
                    started_time=ledger.now,
                    fence=item.fence(activity.activity_id),
                    identity=item.identity,
                    start_recorded=True,
                )
                ledger.state = ledger.state.with_activity(started)

    def _keep_stickiness(self, item: inp.TaskCompleted) -> None:
        timeout = item.sticky_timeout or self.code.sticky_timeout
        self._change(sticky_queue=item.sticky_queue, sticky_timeout=timeout)

    def _write_scheduled(self, task: WorkflowTask) -> None:
        """Write that there was a task which is not written yet."""
        self._ledger.emit(
            ev.WorkflowTaskScheduled(
                task_queue=self.code.task_queue,
                start_to_close_timeout=task.start_to_close_timeout,
                attempt=task.attempt,
                event_id=self._ledger.state.next_event_id,
                event_time=task.scheduled_time,
            ),
            decide=False,
        )

    def _write_started(self, task: WorkflowTask) -> None:
        """Write that a worker has taken the task, and that there was one if that is not written yet."""
        ledger = self._ledger
        if not task.scheduled_event_id:
            self._write_scheduled(task)
        ledger.emit(
            ev.WorkflowTaskStarted(
                event_id=ledger.state.next_event_id,
                event_time=task.started_time or ledger.now,
                scheduled_event_id=task.number,
                identity=task.identity,
                request_id=task.request_id,
                suggest_continue_as_new=task.suggest_continue_as_new,
                history_size_bytes=task.history_size_bytes,
                target_worker_deployment_version_changed=task.target_version_changed,
            ),
            decide=False,
        )

    # Failures

    def _failed(self, item: inp.TaskFailed) -> Answer:
        task = self._holds(item.token)
        if task is None:
            return _no("TaskNotFound", "Workflow task not found.")
        self._fail(task, item.cause, item.failure, item)
        return _yes()

    def _fail(
        self,
        task: WorkflowTask,
        cause: str,
        failure: Failure | None,
        answer: inp.TaskCompleted | inp.TaskFailed | None = None,
        *,
        closing: bool = False,
    ) -> None:
        """End a task that came to nothing, by a worker's answer or without one, and schedule the next attempt."""
        if task.attempt == 1 or closing:
            self._write_started(task)
            self._ledger.emit(
                ev.WorkflowTaskFailed(
                    scheduled_event_id=task.number,
                    started_event_id=task.started_event_id,
                    cause=cause,
                    failure=failure,
                    identity=answer.identity if answer is not None else "",
                    principal=answer.principal if answer is not None else "",
                    **self._ledger.here,
                ),
                decide=False,
            )
        why = self.code.failure
        if failure is not None:  # that of a bad command has the cause for its type: it is said once
            why = ": ".join(dict.fromkeys(filter(None, (cause, failure.type, failure.message))))
        self._again(task, why)
        self._change(closing=closing)

    def _again(self, task: WorkflowTask, why: str, *, count: bool = True) -> None:
        """Schedule the next attempt. One that failed with the worker that had the workflow in memory is not counted."""
        count = count and not self.code.sticky_queue
        had = bool(self.code.buffered)
        self._change(task=None, sticky_queue="", failure=why[:_LONGEST_FAILURE])
        self._ledger.durable = True
        self._flush()
        self._schedule(attempt=1 if had or not count else task.attempt + 1)

    def _force_fail(self, cause: str) -> None:
        task = self.code.task
        if task is not None and task.started_time is not None:
            self._fail(task, cause, None)

    def close(self) -> None:
        """The run is closed by something else than a decision: what a worker decides meanwhile is of no use any more."""
        task = self.code.task
        if self._completed_event_id or task is None:
            return
        if task.started_time is None:
            self._flush()
            return
        if task.attempt == 1:
            self._write_started(task)
            self._ledger.emit(
                ev.WorkflowTaskFailed(
                    scheduled_event_id=task.number,
                    started_event_id=task.started_event_id,
                    cause="ForceCloseCommand",
                    **self._ledger.here,
                ),
                decide=False,
            )
        self._change(task=None)
        self._flush()

    # Deadlines

    def due(self) -> Iterator[tuple[datetime, int, str, Callable[[], None]]]:
        """The deadline of the task, if that has passed."""
        task = self.code.task
        deadline = _deadline(task, self.code) if task is not None else None
        if deadline is not None and deadline[0] <= self._ledger.now:
            yield deadline[0], 1, "task", partial(self._time_out, deadline[1])

    def _time_out(self, kind: TimeoutType) -> None:
        task = self.code.task
        if task is None:
            return
        ledger = self._ledger
        if kind is TimeoutType.SCHEDULE_TO_START:
            if task.speculative:
                self._write_scheduled(task)
            scheduled = task.scheduled_event_id or ledger.state.next_event_id - 1
            ledger.emit(
                ev.WorkflowTaskTimedOut(scheduled_event_id=scheduled, timeout_type=kind, **ledger.here),
                decide=False,
            )
            self._again(task, self.code.failure, count=False)
            return
        if task.attempt == 1:
            self._write_started(task)
            ledger.emit(
                ev.WorkflowTaskTimedOut(
                    scheduled_event_id=task.number,
                    started_event_id=task.started_event_id,
                    timeout_type=kind,
                    **ledger.here,
                ),
                decide=False,
            )
        seconds = task.start_to_close_timeout.total_seconds()
        who = task.identity or "the worker"
        self._again(task, self.code.failure or f"{who} has not answered within {seconds:g} s")


def _yes(message: str = "") -> Answer:
    return Answer(ok=True, message=message)


def _no(reason: str, message: str) -> Answer:
    return Answer(ok=False, reason=reason, message=message)
