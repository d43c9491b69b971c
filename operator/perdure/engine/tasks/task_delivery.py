"""Schedule workflow tasks, give them to workers, and take them back."""

from perdure.engine import inputs as inp
from perdure.engine.code import WorkflowTask
from perdure.engine.inputs import Answer
from perdure.engine.ledger import OK
from perdure.engine.tasks.event_buffer import EventBuffer
from perdure.engine.tasks.task_deadlines import not_started
from perdure.engine.tasks.task_failures import TaskFailures
from perdure.engine.tasks.task_record import TaskRecord

TASK_NOT_FOUND = Answer(ok=False, reason="TaskNotFound", message="Workflow task not found.")
"""The answer to a worker whose task has ended or belongs to another worker."""
SUGGEST_BYTES = 4 * 1024 * 1024
"""The size of a history above which continue-as-new is suggested to a worker, in bytes."""


class TaskDelivery:
    """Schedules the workflow task of a run, and gives it to workers."""

    def __init__(self, record: TaskRecord, buffer: EventBuffer, failures: TaskFailures) -> None:
        """`record`: the workflow task. `buffer`: the events that wait for its end. `failures`: ends it."""
        self._record = record
        self._buffer = buffer
        self._failures = failures

    def schedule_if_needed(self) -> None:
        """Schedule a task if there are events that a worker must decide about."""
        record, ledger = self._record, self._record.ledger
        state = ledger.state
        if not ledger.open() or record.code.deciding:
            if ledger.open() and self._buffer.overflows():
                self._failures.force_fail("ForceCloseCommand")
            return
        self._buffer.flush()
        if ledger.has_new_events and not record.code.wanted and record.task is None:
            record.change(wanted=True)
        ledger.has_new_events = False
        first = state.first_decision_time
        waits = state.paused is not None or (first is not None and first > ledger.now)
        if record.code.wanted and record.task is None and not waits:
            record.schedule(attempt=1)

    def request(self) -> Answer:
        """Schedule a speculative task for an update or a query, unless there is a task already."""
        record, ledger = self._record, self._record.ledger
        if not ledger.open():
            return Answer(ok=False, reason=inp.CLOSED, message="workflow execution already completed")
        if record.task is None:  # also during a start delay, for which the first task then does not wait
            task = WorkflowTask(
                scheduled_time=ledger.now,
                original_scheduled_time=ledger.now,
                start_to_close_timeout=record.code.task_timeout,
                speculative=True,
                sticky_queue=record.code.sticky_queue,
                seen_event_id=ledger.state.next_event_id,
            )
            record.change(task=task)
        return OK

    def start(self, item: inp.TaskTaken) -> Answer:
        """Give the task to a worker."""
        record, state = self._record, self._record.ledger.state
        task = record.task
        if not record.ledger.open() or task is None or task.started_time is not None or state.paused is not None:
            return Answer(ok=False, reason="TaskNotFound", message="no workflow task is pending")
        attempt = task.attempt
        if not task.scheduled_event_id and not task.speculative and task.seen_event_id != state.next_event_id:
            attempt = 1  # something has happened since the failure, so this counts as a new task
        number = state.next_event_id + (0 if task.scheduled_event_id else 1)
        events, size = state.next_event_id, state.history_size
        record.change_task(
            attempt=attempt,
            started_time=record.ledger.now,
            started_event_id=number,
            epoch=item.epoch,
            identity=item.identity,
            request_id=item.request_id,
            suggest_continue_as_new=events > item.suggest_events or size > SUGGEST_BYTES,
            history_size_bytes=size,
            target_version_changed=item.target_version_changed,
        )
        return OK

    def requeue(self, item: inp.TaskReturned) -> Answer:
        """Make a task available again because its worker did not receive it."""
        task = self._record.held_by(item.token)
        if task is None:
            return TASK_NOT_FOUND
        self._record.change(task=not_started(task))
        self._buffer.flush()
        return OK

    def reset_stickiness(self) -> Answer:
        """Offer the task to all workers of the task queue."""
        task = self._record.task
        self._record.change(sticky_queue="")
        if task is not None and task.started_time is None and task.sticky_queue:
            self._record.change_task(sticky_queue="")
        return OK
