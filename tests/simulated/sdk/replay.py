"""A run in the memory of a worker: its code, and the events that it has seen."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.protocol.v1 import Message

from simulated.sdk import updates
from simulated.sdk.decisions import Decision, about
from simulated.sdk.script import Script
from simulated.sdk.updates import Update

_TASK_FAILED = frozenset({EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT})
_FROM_OUTSIDE = frozenset(
    {EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT}
)


class NondeterminismError(Exception):
    """The history is not what the code decides, so that an SDK would fail the workflow task, again and again."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What the code has decided in a task."""

    decisions: list[Decision]
    rejections: list[Message]


class Replay:
    """Replays a history event by event, as an SDK does."""

    def __init__(self) -> None:
        """Start before the first event."""
        self.last = 0
        """The ID of the last event."""
        self._script: Script | None = None
        self._unseen: list[tuple[int, Any]] = []
        """Events that the code has not seen."""
        self._admitted: dict[str, Update] = {}
        """Updates from a reset that the code has not seen, by ID."""
        self._expected: deque[Decision] = deque()
        """Commands that no event has recorded yet."""
        self._offered = False
        """Whether workers were to decide: a task was scheduled. A run that is cancelled before it can begin ends without one."""
        self._task: int | None = None
        """The event that has started the open task."""
        self._decided = False
        """Whether the code has decided in the open task."""

    def feed(self, events: Iterable[HistoryEvent]) -> None:
        """Take the next events.

        Raises:
            NondeterminismError: An SDK would reject the history.
        """
        fed = list(events)
        for number, event in enumerate(fed, start=1):
            if event.event_id != self.last + 1:
                raise NondeterminismError(f"event {event.event_id} follows event {self.last}")
            self.last = event.event_id
            self._take(event, islice(fed, number, None))

    def _take(self, event: HistoryEvent, following: Iterable[HistoryEvent]) -> None:
        type_, attributes = event.event_type, getattr(event, str(event.WhichOneof("attributes")))
        if type_ == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            self._complete(attributes.started_event_id, following)
        elif type_ in _TASK_FAILED:
            if self._decided:
                raise NondeterminismError(f"the task that ended with event {event.event_id} was completed")
            self._task = None
        elif type_ not in _FROM_OUTSIDE and (
            self._offered or type_ != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED
        ):
            self._offered |= type_ == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
            if self._task is not None:
                raise NondeterminismError(f"event {event.event_id} is within task {self._task}")
            self._apply(event.event_id, type_, attributes)

    def _apply(self, event_id: int, type_: int, attributes: Any) -> None:
        if (named := about(type_, attributes)) is not None:
            self._record(event_id, type_, named)
        elif type_ == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            if self._expected:
                raise NondeterminismError(f"no event before event {event_id} records {self._expected[0]}")
            self._task = event_id
        elif type_ == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            self._script = Script(attributes)
        elif type_ == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED:
            update = Update.admitted(event_id, attributes)
            self._admitted[update.update_id] = update
        else:
            self._unseen.append((type_, attributes))

    def _complete(self, started_event_id: int, following: Iterable[HistoryEvent]) -> None:
        if self._task != started_event_id:
            raise NondeterminismError(f"task {started_event_id} is completed, and {self._task} is open")
        if not self._decided:
            self._decide([self._admitted.get(each.update_id, each) for each in updates.accepted_in(following)])
        self._task, self._decided = None, False

    def _record(self, event_id: int, type_: int, named: str) -> None:
        wanted = self._expected.popleft() if self._expected else None
        if wanted is None or (wanted.event, wanted.about) != (type_, named):
            found = EventType.Name(type_)
            raise NondeterminismError(f"event {event_id} is {found} of {named!r}, and the code decides {wanted}")
        assert self._script is not None
        self._script.recorded(named, event_id)

    def decide(self, messages: Sequence[Message] = ()) -> Decided:
        """Have the code decide in the open task, whose messages are updates.

        Raises:
            NondeterminismError: There is no open task.
        """
        asked = [*self._admitted.values(), *map(Update.sent, messages)]
        accepted = [update for update in asked if Script.accepts(update)]
        rejections = [updates.reject(update) for update in asked if not Script.accepts(update)]
        return Decided(self._decide(accepted), rejections)

    def _decide(self, accepted: list[Update]) -> list[Decision]:
        """Decide without validators, which only run when an update arrives."""
        if self._task is None or self._script is None:
            raise NondeterminismError(f"there is no task after event {self.last}")
        unseen, self._unseen, self._decided = self._unseen, [], True
        self._admitted.clear()
        made = self._script.decide(unseen, accepted)
        self._expected.extend(made)
        return made

    def finish(self) -> None:
        """Check that a closed history records all that the code has decided.

        Raises:
            NondeterminismError: It does not.
        """
        if self._expected:
            raise NondeterminismError(f"no event records {self._expected[0]}")
