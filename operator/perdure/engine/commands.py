"""Commands: what a decider asks the engine to do, under Temporal's names. Each becomes exactly one event."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from perdure.engine.failures import Failure
from perdure.engine.retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteWorkflowExecution:
    """End the run well."""

    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailWorkflowExecution:
    """End the run with a failure."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleActivityTask:
    """Have an activity done. `activity_id` is unique among the run's open activities."""

    activity_id: str
    activity_type: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimer:
    """Wake the decider after a while. `timer_id` is unique among the run's open timers."""

    timer_id: str
    start_to_fire_timeout: timedelta


Command: TypeAlias = CompleteWorkflowExecution | FailWorkflowExecution | ScheduleActivityTask | StartTimer
