"""Histories as data: encode, check, fold, replay, and fork them."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.commands import Decider, UndecidableError
from perdure.engine.fold import apply
from perdure.engine.ledger import FROM_COMMANDS, UNHEARD, event_of, policy_named
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import RunState

_IDENTIFIERS: Final = {
    "activities": "scheduled_event_id",
    "left_activities": "scheduled_event_id",
    "holds": "scheduled_event_id",
    "timers": "timer_id",
    "children": "initiated_event_id",
    "externals": "initiated_event_id",
    "operations": "scheduled_event_id",
    "left_operations": "scheduled_event_id",
    "markers": "event_id",
}
"""The fields of a state with entries by ID, and where an entry has its ID."""


class NondeterminismError(Exception):
    """The decider's decisions differ from the history. The message and the attributes show the first difference."""

    def __init__(self, message: str, number: int, event: ev.AnyEvent | None, command: cmd.Command | None) -> None:
        """`number` is the ID of the event that differs or is missing."""
        super().__init__(message)
        self.number = number
        self.event = event
        """The event of the history; None if the history has ended."""
        self.command = command
        """The command of the decider; None if there is none."""


def encode(value: RunState | Sequence[ev.AnyEvent]) -> Any:
    """Encode a state or events as plain JSON data, as the API server returns it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def decode_events(data: Any) -> tuple[ev.AnyEvent, ...]:
    """Decode events from plain JSON data.

    Raises:
        msgspec.ValidationError: The data is not a list of events.
    """
    return msgspec.convert(data, tuple[ev.AnyEvent, ...])


def decode_state(data: Any) -> RunState:
    """Decode a state from plain JSON data.

    Raises:
        msgspec.ValidationError: The data is not a state, or an entry of it has another ID than its key. The engine could not end
            what such an entry stands for.
    """
    state = msgspec.convert(data, RunState)
    for field, identifier in _IDENTIFIERS.items():
        for key, entry in getattr(state, field).items():
            if str(getattr(entry, identifier)) != key:
                raise msgspec.ValidationError(f"`{field}.{key}` has the ID {getattr(entry, identifier)!r}")
    return state


def replay(
    history: Iterable[ev.AnyEvent], decider: Decider, *, undecided: int = 0, unfinished: bool = False
) -> RunState:
    """Fold a history from its beginning, and check that the decider still makes the same decisions.

    Args:
        history: All events.
        decider: Decides about the same events in the same order.
        undecided: How many of the last events the decider has not decided about, from the state. Not needed for a paused run
            or a run that waits for its first decision.
        unfinished: Whether the decider had stopped in the middle of a decision, from the state.

    Returns:
        The state after the last event, without the data that no event records. Events that the decider had not decided about
        are still undecided.

    Raises:
        NondeterminismError: The decider decides differently.
        UndecidableError: The decider cannot decide.
        ValueError: The history has gaps, or continues after its closing event.
    """
    replayed = _Replay(decider)
    for event in history:
        replayed.add(event)
    replayed.finish(undecided, unfinished=unfinished)
    return replayed.result()


def retrace(events: Iterable[ev.AnyEvent], decider: Decider) -> None:
    """Check that a decider makes the same decisions as a history, as far as that is known without the state.

    In an open run, the decisions after its last command are left out.

    Args:
        events: The whole history of a run, open or closed.
        decider: Decides about the same events in the same order.

    Raises:
        NondeterminismError, UndecidableError: As for `replay`.
    """
    replayed = _Replay(decider)
    for event in events:
        replayed.add(event)
    replayed.settle()


def fork(events: Sequence[ev.AnyEvent], upto_event_id: int, decider: Decider) -> RunState:
    """Return the state of a run that has the first events of a history and decides again from there.

    Args:
        events: The history.
        upto_event_id: The last event to keep, one of `decision_points`.
        decider: Must make the same decisions up to that event.

    Returns:
        The state. Events that the decider must decide about are undecided, including the last one.

    Raises:
        NondeterminismError, UndecidableError: As for `replay`.
        ValueError: The event is not a decision point; the message names the nearest ones.
    """
    _check_point(decision_points(events), upto_event_id)
    replayed = _Replay(decider)
    for event in events[:upto_event_id]:
        replayed.add(event)
    replayed.refuse_more(replayed.recorded(events[upto_event_id - 1].event_time))
    return replayed.result()


def fork_of_code(events: Sequence[ev.AnyEvent], upto_event_id: int) -> RunState:
    """Return such a state for a run that workers decide. It depends only on the history.

    Args:
        events: The history.
        upto_event_id: The last event to keep, one of `task_starts`.

    Raises:
        ValueError: The event does not start a workflow task; the message names the nearest ones that do.
    """
    _check_point(task_starts(events), upto_event_id)
    state: RunState | None = None
    for event in events[:upto_event_id]:
        state = apply(state, event)
    assert state is not None
    return state


def task_starts(events: Sequence[ev.AnyEvent]) -> list[int]:
    """IDs of the events at which a worker started a workflow task."""
    return [event.event_id for event in events if isinstance(event, ev.WorkflowTaskStarted)]


def _check_point(points: list[int], event_id: int) -> None:
    if event_id not in points:
        at = bisect_left(points, event_id)
        near = " or ".join(str(point) for point in points[max(at - 1, 0) : at + 1])
        raise ValueError(
            f"the run cannot be reset to event {event_id}, where no decision was made; choose event {near}"
        )


def decision_points(events: Sequence[ev.AnyEvent]) -> list[int]:
    """IDs of the events that the decider decided about, except for events in the middle of a decision.

    Such events are the cancellations of activities that had not started when the decider requested them: they follow immediately.
    """
    return [
        event.event_id
        for event in events
        if not isinstance(event, UNHEARD)
        and not (isinstance(event, ev.ActivityTaskCanceled) and event.started_event_id == 0)
    ]


class _Replay:
    """The replay of a history.

    The decider decides as late as possible: when the history records a command, and no earlier command is left. So it decides
    only about events that it decided about when the history was written, which excludes, for example, a signal just before a
    termination. And a command whose target no longer exists sees the same state.
    """

    def __init__(self, decider: Decider) -> None:
        self.decider = decider
        self.state: RunState | None = None
        self.memory: Any = None
        self.queue: deque[ev.AnyEvent] = deque()
        self.unfinished = False
        self.commands: deque[cmd.Command] = deque()
        self.has_commands = False
        """Whether any command was recorded."""
        self.before_end: RunState | None = None
        """The state before the end of the run, if no command ended it and it may have decided."""
        self.deferred = 0
        """How many of the last events were recorded while the run was paused or its start delayed, so that it did not decide."""

    def add(self, event: ev.AnyEvent) -> None:
        after = apply(self.state, event)
        if isinstance(event, FROM_COMMANDS) and not self.ends_before_it_began(event):
            self.check(event)
        elif (
            after.closed and self.state is not None and (self.has_commands or not self.state.is_held(event.event_time))
        ):
            self.before_end = self.state
        self.state = after
        if not after.closed and not after.is_held(event.event_time):
            self.deferred = 0
        elif not isinstance(event, UNHEARD):
            self.deferred += 1
        if not isinstance(event, UNHEARD):
            self.queue.append(event)

    def ends_before_it_began(self, event: ev.AnyEvent) -> bool:
        """Whether an event is the cancellation of a run that was paused or delayed from its start, which no command requests."""
        held = self.state is not None and self.state.is_held(event.event_time)
        return held and isinstance(event, ev.WorkflowExecutionCanceled)

    def result(self) -> RunState:
        if self.state is None:
            raise ValueError("the history is empty")
        if self.state.closed:
            return msgspec.structs.replace(self.state, memory=self.memory)
        return msgspec.structs.replace(
            self.state, memory=self.memory, undecided=tuple(self.queue), unfinished=self.unfinished
        )

    def check(self, event: ev.AnyEvent) -> None:
        """Compare an event with the command that it should record."""
        policies = _policies_of(event)
        found = self.recorded(event.event_time, policies)
        while found is None and (self.unfinished or self.queue):
            self.decide()
            found = self.recorded(event.event_time, policies)
        if found is None:
            message = f"the history continues with {event}, but the workflow does nothing"
            raise NondeterminismError(message, event.event_id, event, None)
        command, made = found
        if made != event and encode([made]) != encode([event]):
            message = f"the history continues with {event}, but the workflow with {command}"
            raise NondeterminismError(message, event.event_id, event, command)
        self.has_commands = True

    def recorded(
        self, now: datetime, policies: Mapping[str, RetryPolicy] | None = None
    ) -> tuple[cmd.Command, ev.AnyEvent] | None:
        """The next command that leaves an event, with that event; None if no such command is left.

        The spec of a RetryPolicy at the time of scheduling is stored only in the event.
        """
        while self.commands and self.state is not None:
            command = self.commands.popleft()
            named = policy_named(command)
            if named is not None and named not in (policies or {}):
                policies = {named: RetryPolicy(name=named)}  # its name makes it differ from the event
            made = event_of(command, self.state, now, self.queue, policies)
            if made is not None:
                return command, made
        return None

    def decide(self) -> None:
        """Let the decider continue, or decide about the next event."""
        event = None if self.unfinished else self.queue.popleft()
        suggested = event is not None and self.state is not None and self.state.suggests_continue_as_new(event)
        try:
            decision = self.decider.decide(self.memory, event, continue_as_new_suggested=suggested)
        except UndecidableError as error:
            what = f"event {event.event_id}" if event else "what follows the last decision"
            raise UndecidableError(f"{what} cannot be decided: {error}") from error
        self.memory, self.unfinished = decision.memory, decision.more
        self.commands.extend(decision.commands)

    def finish(self, undecided: int, *, unfinished: bool) -> None:
        """Check the end of the history: in an open run, only undecided events may be left."""
        state = self.state
        if state is None or state.closed:
            self.settle()
            return
        now = state.start_time
        self.refuse_more(self.recorded(now))
        waits = state.paused is not None or (state.first_decision_time is not None and not self.has_commands)
        while not unfinished and (self.unfinished or len(self.queue) > undecided):
            before = self.memory, self.unfinished, self.queue.copy()
            self.decide()
            found = self.recorded(now)
            if found is not None and waits:
                self.memory, self.unfinished, self.queue = before
                self.commands.clear()
                return
            self.refuse_more(found)

    def settle(self) -> None:
        """Decide about the last events of a run that something other than a command has closed, such as a termination.

        The decider had decided about them when the run closed, except about those that were deferred, and those that came with
        the end: the decision about them makes a command that the history does not record.
        """
        closed, self.state = self.state, self.before_end
        try:
            while self.state is not None and (self.unfinished or len(self.queue) > self.deferred):
                self.decide()
                if self.recorded(self.state.start_time) is not None:
                    break
        except UndecidableError:  # the run could not be decided when it was closed
            pass
        self.state = closed

    def refuse_more(self, found: tuple[cmd.Command, ev.AnyEvent] | None) -> None:
        if found is not None:
            command, made = found
            message = f"the history ends, but the workflow continues with {command}"
            raise NondeterminismError(message, made.event_id, None, command)


def _policies_of(event: ev.AnyEvent) -> Mapping[str, RetryPolicy]:
    """The RetryPolicy that an event has recorded, by name."""
    policy = None
    if isinstance(event, ev.ActivityTaskScheduled):
        policy = event.retry_policy
    elif isinstance(event, ev.StartChildWorkflowExecutionInitiated):
        policy = event.start.retry_policy
    return {policy.name: policy} if policy is not None and policy.name else {}
