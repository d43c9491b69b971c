"""Workflow tasks that end without a decision: they failed, timed out, or the run closed."""

from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.code import WorkflowTask
from perdure.engine.failures import Failure, TimeoutType
from perdure.engine.tasks.event_buffer import EventBuffer
from perdure.engine.tasks.task_record import TaskRecord

_MAX_FAILURE = 1_024


class TaskFailures:
    """Ends the workflow task of a run without a decision."""

    def __init__(self, record: TaskRecord, buffer: EventBuffer) -> None:
        """`record`: the workflow task. `buffer`: the events that wait for its end."""
        self._record = record
        self._buffer = buffer

    def fail(
        self,
        task: WorkflowTask,
        cause: str,
        failure: Failure | None,
        answer: inp.TaskCompleted | inp.TaskFailed | None = None,
        *,
        closing: bool = False,
    ) -> None:
        """End a failed task, with or without a response of its worker, and schedule the next attempt."""
        record = self._record
        if task.attempt == 1 or closing:
            record.write_started(task)
            record.ledger.emit(
                ev.WorkflowTaskFailed(
                    scheduled_event_id=task.number,
                    started_event_id=task.started_event_id,
                    cause=cause,
                    failure=failure,
                    identity=answer.identity if answer is not None else "",
                    principal=answer.principal if answer is not None else "",
                    **record.ledger.here,
                ),
                decide=False,
            )
        why = record.code.failure
        if failure is not None:  # the failure type of a bad command equals the cause: include it only once
            why = ": ".join(dict.fromkeys(filter(None, (cause, failure.type, failure.message))))
        self._retry(task, why)
        record.change(closing=closing)

    def force_fail(self, cause: str) -> None:
        """Fail the task, if a worker has it."""
        task = self._record.task
        if task is not None and task.started_time is not None:
            self.fail(task, cause, None)

    def time_out(self, kind: TimeoutType) -> None:
        """End a task whose timeout has passed, and schedule the next attempt."""
        record, ledger = self._record, self._record.ledger
        task = record.task
        if task is None:
            return
        if kind is TimeoutType.SCHEDULE_TO_START:
            if task.speculative:
                record.write_scheduled(task)
            scheduled = task.scheduled_event_id or ledger.state.next_event_id - 1
            ledger.emit(
                ev.WorkflowTaskTimedOut(scheduled_event_id=scheduled, timeout_type=kind, **ledger.here),
                decide=False,
            )
            self._retry(task, record.code.failure, count=False)
            return
        if task.attempt == 1:
            record.write_started(task)
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
        self._retry(task, record.code.failure or f"{who} has not answered within {seconds:g} s")

    def close(self) -> None:
        """End the task because the run closes without a decision."""
        record = self._record
        task = record.task
        if record.completed_event_id or task is None:
            return
        if task.started_time is None:
            self._buffer.flush()
            return
        if task.attempt == 1:
            record.write_started(task)
            record.ledger.emit(
                ev.WorkflowTaskFailed(
                    scheduled_event_id=task.number,
                    started_event_id=task.started_event_id,
                    cause="ForceCloseCommand",
                    **record.ledger.here,
                ),
                decide=False,
            )
        record.change(task=None)
        self._buffer.flush()

    def _retry(self, task: WorkflowTask, why: str, *, count: bool = True) -> None:
        """Schedule the next attempt. A failure on the sticky queue does not count as an attempt."""
        record = self._record
        count = count and not record.code.sticky_queue
        had_events = bool(self._buffer.events)
        record.change(task=None, sticky_queue="", failure=why[:_MAX_FAILURE])
        record.ledger.durable = True
        self._buffer.flush()
        record.schedule(attempt=1 if had_events or not count else task.attempt + 1)
