"""Workflow tasks: workers outside of this process decide a run. Pure, with time as an argument.

The rules are those of Temporal's server (service/history/workflow/workflow_task_state_machine.go, historybuilder/event_store.go):

* A run has one workflow task at a time. It is scheduled when something has happened; events before a worker takes it are
  recorded immediately.
* While a worker decides, events are buffered. They are recorded after the events of its commands, with the ends of activities
  and Nexus operations last. Timers and children, which need no acknowledgment, are not processed until then.
* The first attempt of a task that fails or times out leaves events. Further attempts leave none until one succeeds.
* A task that only an update has requested (speculative) leaves no events if the worker rejects the update.

One thing differs: the delivery of a task is not written, so a task that another process has delivered is delivered again.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, assert_never

import msgspec

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.commands import UndecidableError
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.inputs import Answer
from perdure.engine.ledger import FROM_COMMANDS, OK, Due, Ledger
from perdure.engine.state import ACTIVITY_CLOSED, OPERATION_CLOSED, Code, RunState, WorkflowTask

SPECULATIVE_START_TIMEOUT = timedelta(seconds=5)
"""How long a speculative task waits for a worker."""
_FIRST_EXTENSION, _LONGEST_EXTENSION = timedelta(seconds=5), timedelta(minutes=10)
_ATTEMPTS_WITHOUT_EXTENSION = 3
MAX_BUFFERED = 100
"""Maximum number of events that may wait for a worker's decision; with one more, the task fails."""
MAX_BUFFERED_BYTES = 2 * 1024 * 1024
_TASK_EVENTS = (
    ev.WorkflowTaskScheduled,
    ev.WorkflowTaskStarted,
    ev.WorkflowTaskCompleted,
    ev.WorkflowTaskFailed,
    ev.WorkflowTaskTimedOut,
)
_MAX_FAILURE = 1_024
TASK_NOT_FOUND = Answer(ok=False, reason="TaskNotFound", message="Workflow task not found.")
"""The answer to a worker whose task has ended or belongs to another worker."""
SUGGEST_BYTES = 4 * 1024 * 1024
"""The size of a history above which continue-as-new is suggested to a worker, in bytes."""
MAX_PROLONGED = timedelta(minutes=30)
"""The limit for the total time of a prolonged task."""
_MAX_RESENT_EVENTS = 10
"""Maximum number of events to send again after a discarded task (history.discardSpeculativeWorkflowTaskMaximumEventsCount)."""
_UNHANDLED_COMMAND = "UnhandledCommand"
"""The cause and reason if the workflow tries to close without deciding about new events."""
_BAD_COMMAND = "BadCommand"
"""The reason in the answer to a decision with an invalid command."""
_CLOSING_COMMANDS = (
    cmd.CompleteWorkflowExecution,
    cmd.FailWorkflowExecution,
    cmd.CancelWorkflowExecution,
    cmd.ContinueAsNewWorkflowExecution,
)
_TOO_LARGE_TO_SEND = "GrpcMessageTooLarge"
"""The worker could not send its decision. It would decide the same again, so Temporal's server terminates the run."""


class WorkflowTaskMachine:
    """The workflow task of a run during a step."""

    def __init__(self, ledger: Ledger, record_command: Callable[[cmd.Command], None]) -> None:
        """Work on the run of a step.

        Args:
            ledger: Collects the output of the step.
            record_command: Appends the event of a command; raises UndecidableError for an invalid one.
        """
        self._ledger = ledger
        self._record_command = record_command
        self._completed_event_id = 0
        """ID of the WorkflowTaskCompleted of the decision, while the decision is recorded."""
        self.identity = ""
        """The worker that made the decision, while the decision is recorded."""
        self._following: inp.TaskDispatched | None = None
        """How the worker takes the next task after its decision is recorded; None if it does not want one with the answer."""
        self._flushing = False
        """Whether buffered events are being recorded."""

    def handle(self, item: inp.TaskInput) -> Answer:
        """Process a report of a worker, or a request for a task."""
        match item:
            case inp.TaskRequested():
                return self._request()
            case inp.TaskDispatched():
                return self._start(item)
            case inp.TaskReturned():
                return self._requeue(item)
            case inp.TaskCompleted():
                return self._complete(item)
            case inp.TaskFailed():
                return self._fail_by_worker(item)
            case inp.StickinessReset():
                return self._reset_stickiness()
            case _:
                assert_never(item)

    # Schedule tasks, give them to workers, and take them back

    def schedule_if_needed(self) -> None:
        """Schedule a task if there are events that a worker must decide about."""
        ledger = self._ledger
        state = ledger.state
        if not ledger.open() or self._code.task_started:
            if ledger.open() and self._overflows():
                self._force_fail("ForceCloseCommand")
            return
        self._flush()
        if ledger.has_new_events and not self._code.wanted and self._task is None:
            self._change(wanted=True)
        ledger.has_new_events = False
        if self._code.wanted and self._task is None and not state.is_held(ledger.now):
            self._schedule(attempt=1)

    def _request(self) -> Answer:
        """Schedule a speculative task for an update or a query, unless there is a task already."""
        ledger = self._ledger
        if not ledger.open():
            return Answer(ok=False, reason=inp.CLOSED, message="workflow execution already completed")
        if self._task is None:  # also during a start delay, for which the first task then does not wait
            task = WorkflowTask(
                scheduled_time=ledger.now,
                original_scheduled_time=ledger.now,
                start_to_close_timeout=self._code.task_timeout,
                speculative=True,
                sticky_queue=self._code.sticky_queue,
                seen_event_id=ledger.state.next_event_id,
            )
            self._change(task=task)
        return OK

    def _start(self, item: inp.TaskDispatched) -> Answer:
        """Give the task to a worker."""
        state = self._ledger.state
        task = self._task
        if not self._ledger.open() or task is None or task.started_time is not None or state.paused is not None:
            return Answer(ok=False, reason="TaskNotFound", message="no workflow task is pending")
        attempt = task.attempt
        if not task.scheduled_event_id and not task.speculative and task.seen_event_id != state.next_event_id:
            attempt = 1  # something has happened since the failure, so this counts as a new task
        number = state.next_event_id + (0 if task.scheduled_event_id else 1)
        events, size = state.next_event_id, state.history_size
        self._change_task(
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
        return OK

    def _requeue(self, item: inp.TaskReturned) -> Answer:
        """Make a task available again because its worker did not receive it."""
        task = self._held_by(item.token)
        if task is None:
            return TASK_NOT_FOUND
        self._change(task=not_started(task))
        self._flush()
        return OK

    def release(self) -> None:
        """Take a task that has failed before from its worker, because workers of another version decide the run from now on.

        SDKs report only the first failure of a task, and keep further attempts until these time out, after up to ten minutes.
        """
        task = self._task
        if task is not None and task.started_time is not None and task.attempt > 1:
            self._change(task=not_started(task))
            self._flush()

    def _reset_stickiness(self) -> Answer:
        """Offer the task to all workers of the task queue."""
        task = self._task
        self._change(sticky_queue="")
        if task is not None and task.started_time is None and task.sticky_queue:
            self._change_task(sticky_queue="")
        return OK

    # Complete a task: record the commands of a worker as events

    def _complete(self, item: inp.TaskCompleted) -> Answer:
        """Record the decision of a worker."""
        task = self._held_by(item.token)
        if task is None:
            return self._repeated(item)
        if self._leaves_no_events(task, item):
            self._change(task=None, failure="", completed=item.text(), sticky_queue=item.sticky_queue)
            self._keep_stickiness(item)
            self._forget_rejected(item)
            return self._repeated(item)
        closes = any(isinstance(command, _CLOSING_COMMANDS) for command in item.commands)
        if closes and self.buffered:
            self._fail(task, _UNHANDLED_COMMAND, None, item, closing=True)
            return Answer(ok=False, reason=_UNHANDLED_COMMAND, message=_UNHANDLED_COMMAND)
        prolongs = item.force_new_task and not item.commands
        if prolongs and self._ledger.now - task.original_scheduled_time > MAX_PROLONGED:
            self._time_out(TimeoutType.START_TO_CLOSE)
            return Answer(ok=False, reason="TaskNotFound", message="the workflow task was prolonged for too long")
        return self._decide(task, item, prolongs=prolongs)

    def _repeated(self, item: inp.TaskCompleted) -> Answer:
        """The answer to a response that was processed: the event to go back to, if the task has left no events."""
        code = self._code
        if code.completed != item.text():
            return TASK_NOT_FOUND
        started = code.previous_started_event_id
        return OK if started == item.token.started_event_id else Answer(ok=True, message=str(started))

    def _leaves_no_events(self, task: WorkflowTask, item: inp.TaskCompleted) -> bool:
        """Whether only an update has requested the task, and the worker has rejected the update.

        The next task sends its events again, which older workers do not expect (skipWorkflowTaskCompletedEvent).
        """
        if not task.speculative or not item.rejects_only or item.commands or item.force_new_task:
            return False
        if self.buffered:
            return False
        sent = self._ledger.state.next_event_id - self._code.previous_started_event_id - 2
        return sent <= (_MAX_RESENT_EVENTS if item.receives_again else 0)

    def _decide(self, task: WorkflowTask, item: inp.TaskCompleted, *, prolongs: bool) -> Answer:
        ledger = self._ledger
        before, events, retired, durable = ledger.state, len(ledger.events), len(ledger.retired), ledger.durable
        try:
            self._write_decision(task, item)
        except UndecidableError as error:
            ledger.state, ledger.durable = before, durable
            del ledger.events[events:]
            del ledger.retired[retired:]
            self._completed_event_id = 0
            if task.attempt == 1:
                failure = Failure(kind=FailureKind.APPLICATION, message=str(error), type=error.cause)
                self._fail(task, error.cause, failure, item)
            # A further attempt must time out, with increasing timeouts; otherwise the worker would repeat this answer forever
            # (respondworkflowtaskcompleted/api.go).
            return Answer(ok=False, reason=_BAD_COMMAND, message=f"{error.cause}: {error}")
        self._completed_event_id = 0
        if not ledger.open():
            return OK
        self._keep_stickiness(item)
        self._forget_rejected(item)
        self._change(failure="", completed=item.text())
        self._flush()
        if item.force_new_task and self._task is None:
            self._schedule(attempt=1, original=task.original_scheduled_time if prolongs else None)
        self._start_eagerly(item)
        self._following = item.following
        return OK

    def _write_decision(self, task: WorkflowTask, item: inp.TaskCompleted) -> None:
        """Write the events of a decision: the completion of the task, and the events of the commands."""
        ledger = self._ledger
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
                **ledger.position,
            ),
            decide=False,
        )
        for command in item.commands:
            self._record_command(command)

    def _forget_rejected(self, item: inp.TaskCompleted) -> None:
        """Drop updates from a reset that the worker has rejected. A rejection leaves no event."""
        code = self._code
        kept = {name: event_id for name, event_id in code.admitted.items() if name not in item.rejected}
        if kept == code.admitted:
            return
        self._change(admitted=kept)
        ledger, rejected = self._ledger, code.admitted.keys() - kept.keys()
        callbacks = {
            key: msgspec.structs.replace(each, rejection=item.rejected[each.update_id])
            if each.update_id in rejected
            else each
            for key, each in ledger.state.callbacks.items()
        }
        ledger.change(callbacks=callbacks)
        ledger.durable = True

    def _start_eagerly(self, item: inp.TaskCompleted) -> None:
        """Give the worker the activities that it runs itself. The commit records this."""
        ledger, eager = self._ledger, set(item.eager)
        for activity in ledger.state.open_activities() if eager else ():
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
        timeout = item.sticky_timeout or self._code.sticky_timeout
        self._change(sticky_queue=item.sticky_queue, sticky_timeout=timeout)

    def attributed(self, event: ev.AnyEvent) -> ev.AnyEvent:
        """Add the completed task to the event of a command."""
        if isinstance(event, ev.TimerCanceled):
            event = msgspec.structs.replace(event, identity=self.identity)
        if isinstance(event, ev.CommandEvent):
            return msgspec.structs.replace(event, workflow_task_completed_event_id=self._completed_event_id)
        return event

    @property
    def next_is_requested(self) -> bool:
        """Whether the worker that completed a task has requested the next one with the answer."""
        return self._following is not None

    def start_next(self) -> None:
        """Give the worker that completed a task the next one, if there is one."""
        request, self._following = self._following, None
        if request is not None:
            self.schedule_if_needed()
            self._start(request)

    # Tasks that end without a decision: they failed, timed out, or the run closed

    def _fail_by_worker(self, item: inp.TaskFailed) -> Answer:
        task = self._held_by(item.token)
        if task is None:
            return TASK_NOT_FOUND
        if item.cause == _TOO_LARGE_TO_SEND:
            ledger = self._ledger
            ledger.close(ev.WorkflowExecutionTerminated(reason=item.cause, identity=inp.OPERATOR, **ledger.position))
            return Answer(ok=True)
        self._fail(task, item.cause, item.failure, item)
        return Answer(ok=True)

    def due(self) -> Iterator[Due]:
        """Yield the timeout of the task, if it has passed."""
        task = self._task
        found = deadline(task, self._code) if task is not None else None
        if found is not None and found[0] <= self._ledger.now:
            yield found[0], 1, "task", partial(self._time_out, found[1])

    def _fail(
        self,
        task: WorkflowTask,
        cause: str,
        failure: Failure | None,
        answer: inp.TaskCompleted | inp.TaskFailed | None = None,
        *,
        closing: bool = False,
    ) -> None:
        """End a failed task, with or without a response of its worker, and schedule the next attempt."""
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
                    **self._ledger.position,
                ),
                decide=False,
            )
        why = self._code.failure
        if failure is not None:  # the failure type of a bad command equals the cause: include it only once
            why = ": ".join(dict.fromkeys(filter(None, (cause, failure.type, failure.message))))
        self._retry(task, why)
        self._change(closing=closing)

    def _force_fail(self, cause: str) -> None:
        """Fail the task, if a worker has it."""
        task = self._task
        if task is not None and task.started_time is not None:
            self._fail(task, cause, None)

    def _time_out(self, kind: TimeoutType) -> None:
        """End a task whose timeout has passed, and schedule the next attempt."""
        ledger = self._ledger
        task = self._task
        if task is None:
            return
        if kind is TimeoutType.SCHEDULE_TO_START:
            if task.speculative:
                self._write_scheduled(task)
            scheduled = task.scheduled_event_id or ledger.state.next_event_id - 1
            ledger.emit(
                ev.WorkflowTaskTimedOut(scheduled_event_id=scheduled, timeout_type=kind, **ledger.position),
                decide=False,
            )
            self._retry(task, self._code.failure, count=False)
            return
        if task.attempt == 1:
            self._write_started(task)
            ledger.emit(
                ev.WorkflowTaskTimedOut(
                    scheduled_event_id=task.number,
                    started_event_id=task.started_event_id,
                    timeout_type=kind,
                    **ledger.position,
                ),
                decide=False,
            )
        seconds = task.start_to_close_timeout.total_seconds()
        who = task.identity or "the worker"
        self._retry(task, self._code.failure or f"{who} has not answered within {seconds:g} s")

    def close(self) -> None:
        """End the task because the run closes without a decision."""
        task = self._task
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
                    **self._ledger.position,
                ),
                decide=False,
            )
        self._change(task=None)
        self._flush()

    def _retry(self, task: WorkflowTask, why: str, *, count: bool = True) -> None:
        """Schedule the next attempt. A failure on the sticky queue does not count as an attempt."""
        count = count and not self._code.sticky_queue
        had_events = bool(self.buffered)
        self._change(task=None, sticky_queue="", failure=why[:_MAX_FAILURE])
        self._ledger.durable = True
        self._flush()
        self._schedule(attempt=1 if had_events or not count else task.attempt + 1)

    # Events that occur while a worker decides: they wait until its task ends

    @property
    def buffered(self) -> tuple[ev.AnyEvent, ...]:
        """The buffered events, in the order in which they occurred."""
        return self._code.buffered

    def buffers(self, event: ev.AnyEvent) -> bool:
        """Buffer an event if it must wait for the end of a decision; return whether it was buffered."""
        if self._flushing or isinstance(event, (*_TASK_EVENTS, *FROM_COMMANDS, *ev.CLOSING)):
            return False
        if not self._code.task_started and not self._completed_event_id:
            self.convert_speculative()
            return False
        self._change(buffered=(*self.buffered, msgspec.structs.replace(event, event_id=0)))
        self._ledger.durable = True
        return True

    def _overflows(self) -> bool:
        """Whether more events wait than allowed."""
        buffered = self.buffered
        if len(buffered) <= MAX_BUFFERED // 4:
            return False
        return len(buffered) > MAX_BUFFERED or len(msgspec.json.encode(buffered)) > MAX_BUFFERED_BYTES

    def _flush(self) -> None:
        """Record the buffered events, with the ends of activities and Nexus operations last."""
        buffered, ledger = self.buffered, self._ledger
        if not buffered:
            return
        self._change(buffered=())
        self._flushing = True
        started: dict[int, int] = {}
        ends = (*ACTIVITY_CLOSED, *OPERATION_CLOSED)
        last = [event for event in buffered if isinstance(event, ends)]
        for event in [event for event in buffered if not isinstance(event, ends)] + last:
            number = ledger.state.next_event_id
            placed = msgspec.structs.replace(event, event_id=number)
            if isinstance(placed, ev.ActivityTaskStarted):
                started[placed.scheduled_event_id] = number
            elif isinstance(placed, ACTIVITY_CLOSED):
                if ledger.state.activity(placed.scheduled_event_id) is None:
                    continue
                placed = msgspec.structs.replace(placed, started_event_id=started.get(placed.scheduled_event_id, 0))
            ledger.emit(placed, decide=not isinstance(placed, ev.ActivityTaskStarted))
        self._flushing = False
        ledger.has_new_events = True

    def cancel_is_buffered(self) -> bool:
        """Whether a cancellation request waits for the end of a decision."""
        return any(isinstance(event, ev.WorkflowExecutionCancelRequested) for event in self.buffered)

    def refuses_signals(self) -> bool:
        """Whether signals are rejected: the workflow closes once a worker has decided about the buffered events."""
        return self._code.closing and self._code.task_started

    # The task in the state, and the events that record it

    @property
    def _code(self) -> Code:
        """The state for the workers."""
        code = self._ledger.state.code
        assert code is not None
        return code

    @property
    def _task(self) -> WorkflowTask | None:
        """The task; None if none is scheduled."""
        return self._code.task

    def _change(self, **attributes: Any) -> None:
        """Change the state for the workers."""
        self._ledger.change(code=msgspec.structs.replace(self._code, **attributes))

    def _change_task(self, **attributes: Any) -> None:
        """Change the task."""
        assert self._code.task is not None
        self._change(task=msgspec.structs.replace(self._code.task, **attributes))

    def _held_by(self, token: inp.TaskToken) -> WorkflowTask | None:
        """The task, if the worker with this token is deciding it."""
        task = self._code.task
        if task is None or task.started_time is None or not self._ledger.open():
            return None
        held = inp.TaskToken(
            scheduled_event_id=task.number,
            started_event_id=task.started_event_id,
            attempt=task.attempt,
            epoch=task.epoch,
        )
        return task if held == token else None

    def _schedule(self, attempt: int, *, original: datetime | None = None) -> None:
        """Schedule a task. Only the first attempt is written immediately; others are written when one succeeds."""
        code, now = self._code, self._ledger.now
        if attempt == 1:
            self._ledger.emit(
                ev.WorkflowTaskScheduled(
                    task_queue=code.sticky_queue or code.task_queue,
                    sticky=bool(code.sticky_queue),
                    normal_name=code.task_queue if code.sticky_queue else "",
                    start_to_close_timeout=code.task_timeout,
                    **self._ledger.position,
                ),
                decide=False,
            )
            if original is not None:
                self._change_task(original_scheduled_time=original)
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

    def convert_speculative(self) -> None:
        """Convert a speculative task to a normal one, because something else happens before a worker takes it."""
        task = self._code.task
        if task is not None and task.speculative and task.started_time is None:
            self._change(task=None)
            self._schedule(attempt=1)

    def _write_scheduled(self, task: WorkflowTask) -> None:
        """Write the WorkflowTaskScheduled of a task that has none yet."""
        self._ledger.emit(
            ev.WorkflowTaskScheduled(
                task_queue=self._code.task_queue,
                start_to_close_timeout=task.start_to_close_timeout,
                attempt=task.attempt,
                event_id=self._ledger.state.next_event_id,
                event_time=task.scheduled_time,
            ),
            decide=False,
        )

    def _write_started(self, task: WorkflowTask) -> None:
        """Write the WorkflowTaskStarted of the task, and its WorkflowTaskScheduled if it has none yet."""
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


# The timeouts of tasks, and the recovery of tasks that another process has delivered


def wake_times(state: RunState) -> Iterator[datetime]:
    """Yield when the workflow task of a run needs its next step."""
    code = state.code
    if code is None:
        return
    if code.task is not None:
        found = deadline(code.task, code)
        if found is not None:
            yield found[0]
    elif code.wanted and state.first_decision_time:
        yield state.first_decision_time


def deadline(task: WorkflowTask, code: Code) -> tuple[datetime, TimeoutType] | None:
    """The next timeout of a task and its end; None if the task waits for a worker without a limit."""
    if task.started_time is not None:
        return task.started_time + _start_to_close(task), TimeoutType.START_TO_CLOSE
    if task.sticky_queue:
        return task.scheduled_time + code.sticky_timeout, TimeoutType.SCHEDULE_TO_START
    if task.speculative:
        return task.scheduled_time + SPECULATIVE_START_TIMEOUT, TimeoutType.SCHEDULE_TO_START
    return None


def _start_to_close(task: WorkflowTask) -> timedelta:
    """The time limit of a worker. It grows from the fourth attempt, so that a task that always fails keeps no worker busy.

    As on Temporal's server (service/history/workflow/workflow_task_state_machine.go: getStartToCloseTimeout).
    """
    if task.attempt <= _ATTEMPTS_WITHOUT_EXTENSION:
        return task.start_to_close_timeout
    extension = _FIRST_EXTENSION * (1 << min(task.attempt - _ATTEMPTS_WITHOUT_EXTENSION - 1, 16))
    return task.start_to_close_timeout + min(extension, _LONGEST_EXTENSION)


def reclaim(state: RunState, epoch: str) -> RunState:
    """Return a state in which workers can take a task that another process has delivered."""
    code = state.code
    if code is None or code.task is None or code.task.started_time is None or code.task.epoch == epoch:
        return state
    task = None if code.task.speculative else not_started(code.task)
    return msgspec.structs.replace(state, code=msgspec.structs.replace(code, task=task))


def not_started(task: WorkflowTask) -> WorkflowTask:
    """Return the task as it was before a worker took it."""
    return msgspec.structs.replace(
        task, started_time=None, started_event_id=0, epoch="", identity="", request_id="", sticky_queue=""
    )
