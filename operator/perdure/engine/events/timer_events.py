"""Events of timers."""

from datetime import timedelta

from perdure.engine.events.event import CommandEvent, Event


class TimerStarted(CommandEvent, frozen=True, kw_only=True):
    """A decider asked to be woken."""

    timer_id: str
    start_to_fire_timeout: timedelta


class TimerFired(Event, frozen=True, kw_only=True):
    """A timer's time has come."""

    timer_id: str
    started_event_id: int


class TimerCanceled(CommandEvent, frozen=True, kw_only=True):
    """A decider no longer wants to be woken."""

    timer_id: str
    started_event_id: int
    identity: str = ""
    """The worker that decided it."""
