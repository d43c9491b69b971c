"""Histories as data: encoding, checking, folding, replaying."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.decider import Decider
from perdure.engine.state import State, apply

COMMAND_EVENTS: dict[type[ev.Event], type[Any]] = {
    ev.ActivityTaskScheduled: cmd.ScheduleActivityTask,
    ev.TimerStarted: cmd.StartTimer,
    ev.WorkflowExecutionCompleted: cmd.CompleteWorkflowExecution,
    ev.WorkflowExecutionFailed: cmd.FailWorkflowExecution,
}
"""The events that come from a command, and from which."""

_NOT_FOR_THE_DECIDER: tuple[type[ev.Event], ...] = (
    *COMMAND_EVENTS,
    ev.ActivityTaskStarted,
    ev.WorkflowExecutionTerminated,
    ev.WorkflowExecutionTimedOut,
)


class NondeterminismError(Exception):
    """The decider does not decide as the history says it did. The message tells the first difference."""


def encode(value: State | Sequence[ev.AnyEvent]) -> Any:
    """Plain JSON data of a state or of events: what the API server would give back."""
    return msgspec.json.decode(msgspec.json.encode(value))


def decode_events(data: Any) -> tuple[ev.AnyEvent, ...]:
    """Events from plain JSON data.

    Raises:
        msgspec.ValidationError: the data is not a list of events.
    """
    return msgspec.convert(data, tuple[ev.AnyEvent, ...])


def decode_state(data: Any) -> State:
    """A state from plain JSON data.

    Raises:
        msgspec.ValidationError: the data is not a state.
    """
    return msgspec.convert(data, State)


def replay(history: Iterable[ev.AnyEvent], decider: Decider) -> State:
    """Fold a history from its beginning, and check that the decider still decides what it once did.

    Raises:
        NondeterminismError: it decides differently.
        ValueError: the history has gaps, or goes on after its closing event.
    """
    state: State | None = None
    memory: Any = None
    expected: list[cmd.Command] = []
    for event in history:
        state = apply(state, event)
        wanted = COMMAND_EVENTS.get(type(event))
        if wanted is not None:
            _check(event, wanted, expected)
        elif not isinstance(event, _NOT_FOR_THE_DECIDER):
            decision = decider.decide(memory, [event])
            memory = decision.memory
            expected += decision.commands
    if state is None:
        raise ValueError("the history is empty")
    if expected and not state.closed:
        raise NondeterminismError(f"the history ends, but the decider goes on with {expected[0]}")
    return msgspec.structs.replace(state, memory=memory)


def _check(event: ev.AnyEvent, wanted: type[Any], expected: list[cmd.Command]) -> None:
    if not expected:
        raise NondeterminismError(f"the history goes on with {event}, the decider does nothing")
    command = expected.pop(0)
    same = type(command) is wanted and all(
        getattr(command, name, None) == getattr(event, name, None)
        for name in (
            "activity_id",
            "activity_type",
            "input",
            "timer_id",
            "start_to_fire_timeout",
            "result",
            "failure",
        )
    )
    if not same:
        raise NondeterminismError(f"the history goes on with {event}, the decider with {command}")
