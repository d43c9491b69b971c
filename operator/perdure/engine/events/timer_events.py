"""Events of timers."""

from datetime import timedelta

from perdure.engine.events.event import CommandEvent, Event


class TimerStarted(CommandEvent, frozen=True, kw_only=True):
    """A decider started a timer."""

    timer_id: str
    start_to_fire_timeout: timedelta


class TimerFired(Event, frozen=True, kw_only=True):
    """A timer fired."""

    timer_id: str
    started_event_id: int


class TimerCanceled(CommandEvent, frozen=True, kw_only=True):
    """A decider canceled a timer."""

    timer_id: str
    started_event_id: int
    identity: str = ""
    """The worker that decided it."""
