"""Events that occur while a worker decides. They wait until its workflow task ends."""

import msgspec

from perdure.engine import events as ev
from perdure.engine.code import ACTIVITY_CLOSED, OPERATION_CLOSED
from perdure.engine.recording import FROM_COMMANDS
from perdure.engine.tasks.task_record import TaskRecord

MAX_BUFFERED = 100
"""The most events that may wait for a worker's decision; with one more, the task fails."""
MAX_BUFFERED_BYTES = 2 * 1024 * 1024
_TASK_EVENTS = (
    ev.WorkflowTaskScheduled,
    ev.WorkflowTaskStarted,
    ev.WorkflowTaskCompleted,
    ev.WorkflowTaskFailed,
    ev.WorkflowTaskTimedOut,
)


class EventBuffer:
    """The buffered events of a run."""

    def __init__(self, record: TaskRecord) -> None:
        """`record`: the workflow task."""
        self._record = record
        self._flushing = False

    @property
    def events(self) -> tuple[ev.AnyEvent, ...]:
        """The buffered events, in the order in which they occurred."""
        return self._record.code.buffered

    def keeps(self, event: ev.AnyEvent) -> bool:
        """Buffer an event if it must wait for the end of a decision; return whether it was buffered."""
        if self._flushing or isinstance(event, (*_TASK_EVENTS, *FROM_COMMANDS, *ev.CLOSING)):
            return False
        if not self._record.code.deciding and not self._record.completed_event_id:
            self._record.convert_speculative()
            return False
        self._record.change(buffered=(*self.events, msgspec.structs.replace(event, event_id=0)))
        self._record.ledger.durable = True
        return True

    def overflows(self) -> bool:
        """Whether more events wait than allowed."""
        buffered = self.events
        if len(buffered) <= MAX_BUFFERED // 4:
            return False
        return len(buffered) > MAX_BUFFERED or len(msgspec.json.encode(buffered)) > MAX_BUFFERED_BYTES

    def flush(self) -> None:
        """Record the buffered events, with the ends of activities and Nexus operations last."""
        buffered, ledger = self.events, self._record.ledger
        if not buffered:
            return
        self._record.change(buffered=())
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
