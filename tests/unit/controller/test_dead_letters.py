"""What is written of an activity that has failed for good."""

import histories
from perdure.api.deadletter import DeadLetter
from perdure.engine import events as ev
from perdure.engine import history
from perdure.runtime.attempts import RunRef
from perdure.runtime.deadletters import dead_letter


def test_a_dead_letter_has_the_input_that_a_redrive_needs() -> None:
    kept = histories.GOLDEN / "simulated" / "examples" / "circuit-breaker" / "gateway-down.json"
    (run,) = histories.read(kept)
    events = history.decode_events(run.events)
    markers = [event for event in events if isinstance(event, ev.MarkerRecorded)]
    scheduled = {e.event_id: e for e in events if isinstance(e, ev.ActivityTaskScheduled)}
    assert len(markers) == 4
    for marker in markers:
        ref = RunRef(name=run.name, namespace="shop", uid="uid-1", workflow_id="orders")
        event = scheduled[marker.details["scheduledEventId"]]
        written = dead_letter(ref, marker, event, [])
        letter = DeadLetter.parse(written).spec
        assert (letter.input, letter.scheduled_time) == (event.input, event.event_time)
        assert letter.failed_time == marker.event_time
        assert letter.activity == "charge"
