"""Changes of open activities by clients: resets of attempts, and options."""

from typing import Any

from msgspec.structs import replace

from perdure.engine import activities
from perdure.engine import inputs as inp
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import PendingActivity
from perdure.engine.step import step
from support.engine.coded import Coded, NoDecider, activity
from support.engine.script import application, seconds

THRICE = RetryPolicy(initial_interval=seconds(10), maximum_attempts=3)


class Changed(Coded):
    """A run with one open activity."""

    @property
    def open(self) -> PendingActivity:
        [found] = self.state.activities.values()
        return found

    def attempt(self, seconds: float, **fields: Any) -> None:
        """A worker takes the attempt, and it fails."""
        at = {"scheduled_event_id": self.open.scheduled_event_id, "attempt": self.open.attempt, "fence": "f"}
        assert self.ask(inp.ActivityDispatched, seconds, identity="w", **at).ok
        if fields:
            assert self.ask(inp.ActivityReported, seconds, identity="w", **at, **fields).ok

    def reset(self, seconds: float, **fields: Any) -> None:
        assert self.ask(inp.ActivityReset, seconds, activity_id="a", **fields).ok


def begin(policy: RetryPolicy = THRICE) -> Changed:
    coded = Changed.begin()
    assert isinstance(coded, Changed)
    coded.decide(activity("a", retry_policy=policy))
    return coded


def test_a_reset_starts_the_first_attempt_of_a_waiting_activity_immediately() -> None:
    coded = begin()
    coded.attempt(1, failure=application("no"), heartbeat_details="half")
    assert (coded.open.tries, coded.open.scheduled_time) == (2, coded.now + seconds(10))
    coded.reset(2)
    assert (coded.open.tries, coded.open.scheduled_time, coded.open.heartbeat_details) == (1, coded.now, "half")
    for number in range(2):
        coded.attempt(100 + 100 * number, failure=application("no"))
    assert coded.open.tries == 3
    coded.attempt(400, failure=application("no"))
    assert "ActivityTaskFailed" in coded.names


def test_a_reset_counts_a_running_attempt_as_the_first() -> None:
    coded = begin()
    for number in range(2):
        coded.attempt(1 + 20 * number, failure=application("no"))
    coded.attempt(50)
    assert coded.open.tries == 3
    coded.reset(51, heartbeat=True)
    assert (coded.open.reset, coded.open.tries) == (True, 1)
    at = {"scheduled_event_id": coded.open.scheduled_event_id, "attempt": 3, "fence": "f"}
    coded.ask(inp.ActivityReported, 52, identity="w", failure=application("no"), heartbeat_details="half", **at)
    assert (coded.open.reset, coded.open.tries, coded.open.heartbeat_details) == (False, 2, None)
    assert coded.open.scheduled_time == coded.now + seconds(10)


def test_a_reset_does_not_allow_an_attempt_after_a_running_last_one() -> None:
    coded = begin(RetryPolicy(maximum_attempts=1))
    coded.attempt(1)
    coded.reset(2)
    at = {"scheduled_event_id": coded.open.scheduled_event_id, "attempt": 1, "fence": "f"}
    coded.ask(inp.ActivityReported, 3, identity="w", failure=application("no"), **at)
    assert not coded.state.activities


def test_a_reset_ends_a_pause_unless_the_request_keeps_it() -> None:
    coded = begin()
    for keep in (True, False):
        assert coded.ask(inp.PauseRequested, activity_id="a").ok
        coded.reset(1, keep_paused=keep)
        assert coded.open.paused is keep


def test_changing_and_restoring_options_leaves_no_event() -> None:
    coded = begin()
    before, events = coded.open, len(coded.events)
    wanted = activities.with_options(before, None)
    assert wanted == before
    options = activities.options_of(before)
    other = type(options)(task_queue="other", start_to_close_timeout=seconds(7))
    assert coded.ask(inp.OptionsChanged, activity_id="a", options=other).ok
    assert (coded.open.task_queue, coded.open.start_to_close_timeout) == ("other", seconds(7))
    assert coded.open.original == options
    coded.restart("two")
    assert coded.ask(inp.OptionsChanged, activity_id="a", options=None).ok
    assert coded.open == before
    assert len(coded.events) == events


def test_options_of_closed_activities_and_of_activities_in_pods_cannot_change() -> None:
    coded = Changed.begin()
    coded.decide(activity("a"), activity("p"))
    assert coded.ask(inp.ActivityReset, activity_id="none").reason == "ActivityNotFound"
    [first, second] = coded.state.activities.values()
    coded.state = coded.state.with_activity(replace(second, task_queue="pods/tool"))
    asked = inp.OptionsChanged(request_id="x", activity_id="p", options=activities.options_of(first))
    assert step(coded.state, [asked], coded.now, NoDecider()).answers["x"].reason == "NotSupported"


def test_a_worker_cannot_report_for_an_activity_that_runs_in_a_pod() -> None:
    coded = Changed.begin()
    coded.decide(activity("p"))
    [pending] = coded.state.activities.values()
    for queue in ("pods/tool", ""):  # of code, and of a Workflow
        state = coded.state.with_activity(replace(pending, task_queue=queue))
        for fence in ("", "forged"):
            at = {"request_id": "x", "scheduled_event_id": pending.scheduled_event_id, "attempt": 1, "fence": fence}
            forged: list[inp.ActivityInput] = [
                inp.ActivityDispatched(**at, identity="w"),
                inp.ActivityReported(**at, result="forged"),
                inp.ActivityReported(**at, failure=application("forged")),
                inp.ActivityReported(**at, cancelled=True),
                inp.ActivityReported(**at, result="forged", heartbeat_details="forged"),
                inp.ActivityHeartbeat(**at, details="forged"),
                inp.ActivityReturned(**at),
            ]
            for report in forged:
                after = step(state, [report], coded.now, NoDecider())
                assert after.answers["x"].reason == "NotSupported", report
                assert "runs in a pod" in after.answers["x"].message
                assert after.state.activities == state.activities
                assert after.events == ()
