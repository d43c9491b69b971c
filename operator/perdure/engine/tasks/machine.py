"""The workflow task machine: one object per step, with a part for each concern."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import assert_never

import msgspec

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.inputs import Answer
from perdure.engine.ledger import Due, Ledger
from perdure.engine.tasks.event_buffer import EventBuffer
from perdure.engine.tasks.task_completion import TaskCompletion
from perdure.engine.tasks.task_deadlines import deadline
from perdure.engine.tasks.task_delivery import TASK_NOT_FOUND, TaskDelivery
from perdure.engine.tasks.task_failures import TaskFailures
from perdure.engine.tasks.task_record import TaskRecord

_TOO_LARGE_TO_SEND = "GrpcMessageTooLarge"
"""The worker could not send its decision. It would decide the same again, so Temporal's server terminates the run."""


class WorkflowTaskMachine:
    """The workflow task of a run during a step."""

    def __init__(self, ledger: Ledger, record_command: Callable[[cmd.Command], None]) -> None:
        """`ledger`: collects the output of the step. `record_command`: appends the event of a command."""
        self._record = TaskRecord(ledger)
        self._buffer = EventBuffer(self._record)
        self._failures = TaskFailures(self._record, self._buffer)
        self._delivery = TaskDelivery(self._record, self._buffer, self._failures)
        self._completion = TaskCompletion(self._record, self._buffer, self._failures, self._delivery, record_command)

    @property
    def identity(self) -> str:
        """The worker that made the decision, while the decision is recorded."""
        return self._record.identity

    def buffers(self, event: ev.AnyEvent) -> bool:
        """Buffer an event if it must wait for the end of a decision; return whether it was buffered."""
        return self._buffer.keeps(event)

    def convert_speculative(self) -> None:
        """Convert a speculative task to a normal one, because something else happens before a worker takes it."""
        self._record.convert_speculative()

    def schedule_if_needed(self) -> None:
        """Schedule a task if there are events that a worker must decide about."""
        self._delivery.schedule_if_needed()

    def close(self) -> None:
        """End the task because the run closes without a decision."""
        self._failures.close()

    def attributed(self, event: ev.AnyEvent) -> ev.AnyEvent:
        """Add the completed task to the event of a command."""
        if isinstance(event, ev.TimerCanceled):
            event = msgspec.structs.replace(event, identity=self._record.identity)
        if isinstance(event, ev.CommandEvent):
            return msgspec.structs.replace(event, workflow_task_completed_event_id=self._record.completed_event_id)
        return event

    def buffered(self) -> tuple[ev.AnyEvent, ...]:
        """The events that wait for the end of a decision."""
        return self._buffer.events

    def cancel_is_buffered(self) -> bool:
        """Whether a cancellation request waits for the end of a decision."""
        return any(isinstance(event, ev.WorkflowExecutionCancelRequested) for event in self._buffer.events)

    def refuses_signals(self) -> bool:
        """Whether signals are rejected: the workflow closes once a worker has decided about the buffered events."""
        return self._record.code.closing and self._record.code.deciding

    def handle(self, item: inp.TaskInput) -> Answer:
        """Process a report of a worker, or a request for a task."""
        match item:
            case inp.TaskWanted():
                return self._delivery.request()
            case inp.TaskTaken():
                return self._delivery.start(item)
            case inp.TaskReturned():
                return self._delivery.requeue(item)
            case inp.TaskCompleted():
                return self._completion.complete(item)
            case inp.TaskFailed():
                return self._fail(item)
            case inp.StickinessReset():
                return self._delivery.reset_stickiness()
            case _:
                assert_never(item)

    @property
    def wants_next(self) -> bool:
        """Whether the worker that completed a task wants the next one with the answer."""
        return self._record.following is not None

    def start_next(self) -> None:
        """Give the worker that completed a task the next one, if there is one."""
        taken, self._record.following = self._record.following, None
        if taken is not None:
            self._delivery.schedule_if_needed()
            self._delivery.start(taken)

    def _fail(self, item: inp.TaskFailed) -> Answer:
        task = self._record.held_by(item.token)
        if task is None:
            return TASK_NOT_FOUND
        if item.cause == _TOO_LARGE_TO_SEND:
            ledger = self._record.ledger
            ledger.close(ev.WorkflowExecutionTerminated(reason=item.cause, identity=inp.OPERATOR, **ledger.here))
            return Answer(ok=True)
        self._failures.fail(task, item.cause, item.failure, item)
        return Answer(ok=True)

    def due(self) -> Iterator[Due]:
        """Yield the timeout of the task, if it has passed."""
        task = self._record.task
        found = deadline(task, self._record.code) if task is not None else None
        if found is not None and found[0] <= self._record.ledger.now:
            yield found[0], 1, "task", partial(self._failures.time_out, found[1])
