"""Complete a workflow task: record the commands of a worker as events."""

from collections.abc import Callable
from datetime import timedelta

import msgspec

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.code import WorkflowTask
from perdure.engine.decider import UndecidableError
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.inputs import Answer
from perdure.engine.ledger import OK
from perdure.engine.tasks.event_buffer import EventBuffer
from perdure.engine.tasks.task_delivery import TASK_NOT_FOUND, TaskDelivery
from perdure.engine.tasks.task_failures import TaskFailures
from perdure.engine.tasks.task_record import TaskRecord

MAX_PROLONGED = timedelta(minutes=30)
"""The limit for the total time of a prolonged task."""
_MAX_RESENT_EVENTS = 10
"""The most events that are sent again after a discarded task (history.discardSpeculativeWorkflowTaskMaximumEventsCount)."""
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


class TaskCompletion:
    """Completes the workflow task of a run."""

    def __init__(
        self,
        record: TaskRecord,
        buffer: EventBuffer,
        failures: TaskFailures,
        delivery: TaskDelivery,
        record_command: Callable[[cmd.Command], None],
    ) -> None:
        """The parts of the machine; `record_command` appends the event of a command.

        Args:
            record: The workflow task.
            buffer: The events that wait for its end.
            failures: Ends a task without a decision.
            delivery: Schedules the next task.
            record_command: Appends the event of a command; raises UndecidableError for an invalid one.
        """
        self._record = record
        self._buffer = buffer
        self._failures = failures
        self._delivery = delivery
        self._record_command = record_command

    def complete(self, item: inp.TaskCompleted) -> Answer:
        """Record the decision of a worker."""
        record = self._record
        task = record.held_by(item.token)
        if task is None:
            return self._repeated(item)
        if self._leaves_no_events(task, item):
            record.change(task=None, failure="", completed=item.text(), sticky_queue=item.sticky_queue)
            self._keep_stickiness(item)
            self._forget_rejected(item)
            return self._repeated(item)
        closes = any(isinstance(command, _CLOSING_COMMANDS) for command in item.commands)
        if closes and self._buffer.events:
            self._failures.fail(task, _UNHANDLED_COMMAND, None, item, closing=True)
            return Answer(ok=False, reason=_UNHANDLED_COMMAND, message=_UNHANDLED_COMMAND)
        prolongs = item.force_new_task and not item.commands
        if prolongs and record.ledger.now - task.original_scheduled_time > MAX_PROLONGED:
            self._failures.time_out(TimeoutType.START_TO_CLOSE)
            return Answer(ok=False, reason="TaskNotFound", message="the workflow task was prolonged for too long")
        return self._decide(task, item, prolongs=prolongs)

    def _repeated(self, item: inp.TaskCompleted) -> Answer:
        """The answer to a response that was processed: the event to go back to, if the task has left no events."""
        code = self._record.code
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
        if self._buffer.events:
            return False
        sent = self._record.ledger.state.next_event_id - self._record.code.previous_started_event_id - 2
        return sent <= (_MAX_RESENT_EVENTS if item.receives_again else 0)

    def _decide(self, task: WorkflowTask, item: inp.TaskCompleted, *, prolongs: bool) -> Answer:
        record, ledger = self._record, self._record.ledger
        before, events, retired, durable = ledger.state, len(ledger.events), len(ledger.retired), ledger.durable
        try:
            self._write_decision(task, item)
        except UndecidableError as error:
            ledger.state, ledger.durable = before, durable
            del ledger.events[events:]
            del ledger.retired[retired:]
            record.completed_event_id = 0
            if task.attempt == 1:
                failure = Failure(kind=FailureKind.APPLICATION, message=str(error), type=error.cause)
                self._failures.fail(task, error.cause, failure, item)
            # A further attempt must time out, with increasing timeouts; otherwise the worker would repeat this answer forever
            # (respondworkflowtaskcompleted/api.go).
            return Answer(ok=False, reason=_BAD_COMMAND, message=f"{error.cause}: {error}")
        record.completed_event_id = 0
        if not ledger.open():
            return OK
        self._keep_stickiness(item)
        self._forget_rejected(item)
        record.change(failure="", completed=item.text())
        self._buffer.flush()
        if item.force_new_task and record.task is None:
            record.schedule(attempt=1, original=task.original_scheduled_time if prolongs else None)
        self._start_eagerly(item)
        record.following = item.following
        return OK

    def _write_decision(self, task: WorkflowTask, item: inp.TaskCompleted) -> None:
        """Write the events of a decision: the completion of the task, and the events of the commands."""
        record, ledger = self._record, self._record.ledger
        record.write_started(task)
        record.completed_event_id, record.identity = ledger.state.next_event_id, item.identity
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
            self._record_command(command)

    def _forget_rejected(self, item: inp.TaskCompleted) -> None:
        """Drop updates from a reset that the worker has rejected. A rejection leaves no event."""
        code = self._record.code
        kept = {name: event_id for name, event_id in code.admitted.items() if name not in item.rejected}
        if kept == code.admitted:
            return
        self._record.change(admitted=kept)
        ledger, rejected = self._record.ledger, code.admitted.keys() - kept.keys()
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
        ledger, eager = self._record.ledger, set(item.eager)
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
        timeout = item.sticky_timeout or self._record.code.sticky_timeout
        self._record.change(sticky_queue=item.sticky_queue, sticky_timeout=timeout)
