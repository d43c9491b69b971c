"""The services of a running list of steps: started with its frame, awaited before its steps start, and stopped when it closes.

A service is two activities (`perdure.language.services`): one has the pod, the other completes when that pod is ready.
"""

from collections.abc import Sequence
from typing import Final

from perdure.api.times import show_duration
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.activities import TOO_MANY_LOSSES
from perdure.engine.failures import Failure, shorten
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import AWAIT_SERVICE
from perdure.language.execution.context import DecisionContext, replace
from perdure.language.program import CompiledService
from perdure.language.services import ENDED, LIFETIME, MAX_LOST, NOT_READY
from perdure.language.step_failures import application, steps_of
from perdure.language.step_paths import Path

_ONCE: Final = RetryPolicy(maximum_attempts=1)
_NEVER_AGAIN: Final = RetryPolicy(maximum_attempts=1, maximum_losses=0)

ServiceEvent = ev.ActivityTaskCompleted | ev.ActivityTaskFailed | ev.ActivityTaskTimedOut | ev.ActivityTaskCanceled
"""The end of the activity that is a service, or that waits for one."""


def start(context: DecisionContext, path: Path) -> None:
    """Start the services of a frame; its steps start when all are ready."""
    context.put_frame(path, replace(context.memory.frames[path.text], services={}))
    for service in _of(context, path):
        _run(context, path, service)
        _await(context, path, service)


def are_ready(context: DecisionContext, path: Path) -> bool:
    """Whether all services of a frame are ready."""
    return len(context.memory.frames[path.text].services or ()) == len(_of(context, path))


def update(context: DecisionContext, path: Path, event: ServiceEvent) -> Failure | None:
    """Record that a service of a frame is ready, or run one again that was lost early.

    Returns:
        The failure that stops the steps: a service is not ready in time, or has ended before them.
    """
    frame, activity = context.memory.frames[path.text], Path.parse(event.activity_id)
    assert frame.services is not None
    name = activity.service or activity.awaited
    service = next(each for each in _of(context, path) if each.name == name)
    if activity.awaited:
        if not isinstance(event, ev.ActivityTaskCompleted):
            return _not_ready(path, service, event)
        context.put_frame(path, replace(frame, services={**frame.services, name: event.result}))
        return None
    if name in frame.services or not _was_lost(event) or frame.lost_services >= MAX_LOST:
        return _ended(path, service, event)
    context.put_frame(path, replace(frame, lost_services=frame.lost_services + 1))
    _run(context, path, service)
    return None


def stop(context: DecisionContext, path: Path) -> None:
    """Stop the services of a frame that closes, and the waits for those that are not ready."""
    frame = context.memory.frames[path.text]
    if frame.services is None:
        return
    for service in _of(context, path):
        if service.name not in frame.services:
            context.commands.append(cmd.RequestCancelActivityTask(activity_id=path.await_service(service.name).text))
        context.commands.append(cmd.RequestCancelActivityTask(activity_id=path.run_service(service.name).text))
    context.put_frame(path, replace(frame, services=None))


def _of(context: DecisionContext, path: Path) -> Sequence[CompiledService]:
    return context.program.flows[context.memory.frames[path.text].block].services


def _run(context: DecisionContext, path: Path, service: CompiledService) -> None:
    """Start the pod of a service. It is not retried: what the steps have stored in it would be lost without notice."""
    frame = context.memory.frames[path.text]
    context.commands.append(
        cmd.ScheduleActivityTask(
            activity_id=path.run_service(service.name).text,
            activity_type=service.activity,
            input=frame.params if frame.block else context.scope["input"],
            start_to_close_timeout=LIFETIME,
            retry_policy=_NEVER_AGAIN,
        )
    )


def _await(context: DecisionContext, path: Path, service: CompiledService) -> None:
    """Wait until a service is ready."""
    context.commands.append(
        cmd.ScheduleActivityTask(
            activity_id=path.await_service(service.name).text,
            activity_type=AWAIT_SERVICE,
            schedule_to_close_timeout=service.ready_timeout,
            retry_policy=_ONCE,
        )
    )


def _was_lost(event: ServiceEvent) -> bool:
    """Whether the infrastructure has ended the pod of a service."""
    return isinstance(event, ev.ActivityTaskFailed) and event.failure.type == TOO_MANY_LOSSES


def _not_ready(path: Path, service: CompiledService, event: ServiceEvent) -> Failure:
    """The failure of steps whose service is not ready in time."""
    failure = _failure_of(event)
    waited = failure.message.partition("the attempt has not started: ")[2] if failure is not None else ""
    message = (
        f"service `{service.name}` of {steps_of(path)} was not ready within {show_duration(service.ready_timeout)}"
    )
    return application(NOT_READY, shorten(f"{message}: {waited}" if waited else message))


def _ended(path: Path, service: CompiledService, event: ServiceEvent) -> Failure:
    """The failure of steps whose service has ended before them. Its cause is how the service has ended."""
    cause = _failure_of(event)
    if cause is not None and cause.type == TOO_MANY_LOSSES:
        cause = cause.cause
    how = cause.message if cause is not None else "its container has ended with exit code 0"
    message = f"service `{service.name}` ended before {steps_of(path)} had ended: {how}"
    return replace(application(ENDED, shorten(message)), cause=cause)


def _failure_of(event: ServiceEvent) -> Failure | None:
    return event.failure if isinstance(event, ev.ActivityTaskFailed | ev.ActivityTaskTimedOut) else None
