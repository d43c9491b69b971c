"""A standalone activity that a test drives manually, and its worker."""

from itertools import count
from typing import Any

from perdure.engine import commands as cmd
from perdure.engine import inputs as inp
from perdure.engine.commands import StandaloneDecider
from perdure.engine.retry import RetryPolicy
from support.engine.script import Drive, seconds

_numbers = count(1)


def begin(**options: Any) -> Drive:
    """A standalone activity; each failed attempt is retried after a second."""
    options.setdefault("start_to_close_timeout", seconds(60))
    options.setdefault("retry_policy", RetryPolicy(backoff_coefficient=1.0))
    activity = cmd.ScheduleActivityTask(activity_id="a", activity_type="Do", task_queue="q", **options)
    return Drive.by(StandaloneDecider(activity), standalone=True)


def take(run: Drive, at: float) -> None:
    """Let a worker take the attempt that is due."""
    open_ = run.open
    request = inp.ActivityDispatched(
        request_id=f"r{next(_numbers)}",
        scheduled_event_id=open_.scheduled_event_id,
        attempt=open_.attempt,
        fence="f",
        identity="worker",
    )
    assert run.ask(at, request).ok


def worker(run: Drive, at: float, kind: Any = inp.ActivityReported, **said: Any) -> None:
    """Let the worker report something of the attempt that it has."""
    open_ = run.open
    request = kind(
        request_id=f"r{next(_numbers)}",
        scheduled_event_id=open_.scheduled_event_id,
        attempt=open_.attempt,
        fence="f",
        **said,
    )
    assert run.ask(at, request).ok
