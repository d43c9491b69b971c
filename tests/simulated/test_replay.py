"""A replay of a workflow reports events that its code would not cause."""

from collections.abc import Iterable
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from simulated.sdk.decisions import Decision, payloads
from simulated.sdk.replay import NondeterminismError, Replay

LEAF = {"leaf": True, "left": 0}


def event(number: int, name: str, **attributes: Any) -> HistoryEvent:
    made = HistoryEvent(event_id=number, event_type=EventType.Value(f"EVENT_TYPE_{name}"))
    said = getattr(made, f"{name.lower()}_event_attributes")
    said.SetInParent()
    for field, value in attributes.items():
        setattr(said, field, value)
    return made


def beginning() -> list[HistoryEvent]:
    """The history of a workflow up to its first task."""
    first = event(1, "WORKFLOW_EXECUTION_STARTED", workflow_id="leaf")
    first.workflow_execution_started_event_attributes.input.CopyFrom(payloads(LEAF))
    return [
        first,
        event(2, "WORKFLOW_TASK_SCHEDULED"),
        event(3, "WORKFLOW_TASK_STARTED", scheduled_event_id=2),
    ]


def decided() -> list[Decision]:
    """The decision of the code in the first task."""
    replay = Replay()
    replay.feed(beginning())
    return replay.decide()


def recorded(decisions: Iterable[Decision], first: int = 5) -> list[HistoryEvent]:
    """The events that record decisions."""
    made = []
    for number, decision in enumerate(decisions, start=first):
        name = EventType.Name(decision.event).removeprefix("EVENT_TYPE_")  # type: ignore[arg-type]
        field = {"ACTIVITY_TASK_SCHEDULED": "activity_id", "TIMER_STARTED": "timer_id"}[name]
        made.append(event(number, name, **{field: decision.about}))
    return made


COMPLETED = event(4, "WORKFLOW_TASK_COMPLETED", scheduled_event_id=2, started_event_id=3)


def test_a_history_that_records_all_decisions_replays() -> None:
    replay = Replay()
    replay.feed([*beginning(), COMPLETED, *recorded(decided())])
    replay.finish()


def test_a_worker_does_not_repeat_its_decision_when_it_gets_the_recorded_events() -> None:
    replay = Replay()
    replay.feed(beginning())
    made = replay.decide()
    replay.feed([COMPLETED, *recorded(made)])
    replay.finish()


def test_an_unrecorded_decision_is_an_error() -> None:
    replay = Replay()
    replay.feed([*beginning(), COMPLETED, *recorded(decided()[:-1])])
    with pytest.raises(NondeterminismError, match="no event records"):
        replay.finish()


def test_an_event_without_a_decision_is_an_error() -> None:
    made = decided()
    events = [*beginning(), COMPLETED, *recorded([*made, made[0]])]
    with pytest.raises(NondeterminismError, match="the code decides None"):
        Replay().feed(events)


def test_a_gap_is_an_error() -> None:
    with pytest.raises(NondeterminismError, match="event 3 follows event 1"):
        Replay().feed([beginning()[0], beginning()[2]])


def test_an_event_within_a_task_is_an_error() -> None:
    with pytest.raises(NondeterminismError, match="event 4 is within task 3"):
        Replay().feed([*beginning(), event(4, "WORKFLOW_EXECUTION_SIGNALED")])


def test_a_failure_of_a_completed_task_is_an_error() -> None:
    replay = Replay()
    replay.feed(beginning())
    replay.decide()
    with pytest.raises(NondeterminismError, match="the task that ended with event 4 was completed"):
        replay.feed([event(4, "WORKFLOW_TASK_TIMED_OUT", scheduled_event_id=2, started_event_id=3)])
