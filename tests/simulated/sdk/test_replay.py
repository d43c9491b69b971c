"""A replay of a workflow reports events that its code would not cause."""

from collections.abc import Iterable
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.protocol.v1 import Message
from temporalio.api.update.v1 import Acceptance, Request

from simulated.sdk.decisions import Decision, payloads
from simulated.sdk.replay import Decided, NondeterminismError, Replay

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


def update(how: str) -> Message:
    """The message that brings an update to a worker."""
    request = Request()
    request.meta.update_id, request.input.name = how, "change"
    request.input.args.CopyFrom(payloads(how))
    message = Message(id=f"{how}/request", protocol_instance_id=how, event_id=2)
    message.body.Pack(request)
    return message


def decided(*messages: Message) -> Decided:
    """The decision of the code in the first task."""
    replay = Replay()
    replay.feed(beginning())
    return replay.decide(messages)


def recorded(decisions: Iterable[Decision], first: int = 5) -> list[HistoryEvent]:
    """The events that record decisions."""
    made = []
    for number, decision in enumerate(decisions, start=first):
        name = EventType.Name(decision.event).removeprefix("EVENT_TYPE_")  # type: ignore[arg-type]
        made.append(event(number, name))
        said = getattr(made[-1], f"{name.lower()}_event_attributes")
        match name:
            case "ACTIVITY_TASK_SCHEDULED":
                said.activity_id = decision.about
            case "TIMER_STARTED" | "TIMER_CANCELED":
                said.timer_id = decision.about
            case "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
                acceptance = Acceptance()
                assert decision.message is not None
                decision.message.body.Unpack(acceptance)
                said.protocol_instance_id = decision.about
                said.accepted_request.CopyFrom(acceptance.accepted_request)
            case "WORKFLOW_EXECUTION_UPDATE_COMPLETED":
                said.meta.update_id = decision.about
    return made


COMPLETED = event(4, "WORKFLOW_TASK_COMPLETED", scheduled_event_id=2, started_event_id=3)


def test_a_history_that_records_all_decisions_replays() -> None:
    replay = Replay()
    replay.feed([*beginning(), COMPLETED, *recorded(decided().decisions)])
    replay.finish()


def test_a_worker_does_not_repeat_its_decision_when_it_gets_the_recorded_events() -> None:
    replay = Replay()
    replay.feed(beginning())
    made = replay.decide()
    replay.feed([COMPLETED, *recorded(made.decisions)])
    replay.finish()


def test_an_unrecorded_decision_is_an_error() -> None:
    replay = Replay()
    replay.feed([*beginning(), COMPLETED, *recorded(decided().decisions[:-1])])
    with pytest.raises(NondeterminismError, match="no event records"):
        replay.finish()


def test_an_event_without_a_decision_is_an_error() -> None:
    made = decided().decisions
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


def test_accepted_updates_replay_and_rejected_ones_leave_no_event() -> None:
    made = decided(update("now"), update("reject"), update("later"))
    assert [message.protocol_instance_id for message in made.rejections] == ["reject"]
    replay = Replay()
    replay.feed([*beginning(), COMPLETED, *recorded(made.decisions)])
    replay.finish()


@pytest.mark.parametrize("lost", ["ACCEPTED", "COMPLETED"])
def test_a_lost_event_of_an_update_is_an_error(lost: str) -> None:
    events = recorded(decided(update("now")).decisions)
    kept = [each for each in events if not EventType.Name(each.event_type).endswith(f"UPDATE_{lost}")]
    for number, each in enumerate(kept, start=5):
        each.event_id = number
    with pytest.raises(NondeterminismError):
        Replay().feed([*beginning(), COMPLETED, *kept])
