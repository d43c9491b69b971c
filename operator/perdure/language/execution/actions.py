"""Actions that open no frames: how activities, children, signals, waits, and the others start and are canceled.

`start` returns the outcome of an action that closes as it starts; None if it is running. `cancel` returns the outcome of an
action that closes immediately; None if it closes later. The events of activities, children, and signals to other runs close
their tasks directly. Waits end here: by their timer, by a signal, or when their condition holds.

A step can take WorkflowLimits before its action, and releases them when that has ended. An activity without a pod takes them:
it completes when the step holds all of them. A marker records the release.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

import msgspec

from perdure.api.kinds.steps import ActivityCall, CancellationType
from perdure.api.kinds.workflow import Activity
from perdure.api.kinds.workflowlimit import MAX_KEY, StepLimit
from perdure.api.names import MAX_WORKFLOW_ID
from perdure.api.times import show_duration
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind, shorten
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import CarriedSignal, WorkflowStart
from perdure.engine.state import LIMITS_RELEASED, TAKE_LIMITS
from perdure.language import coercion
from perdure.language.coercion import as_duration, as_text, as_time
from perdure.language.execution.context import DecisionContext, Location
from perdure.language.expressions import Template
from perdure.language.keys import requested_limit
from perdure.language.memory import CANCELLED, BufferedSignal, Outcome, Stage, failed, succeeded
from perdure.language.program import (
    ContinueAsNew,
    Fail,
    RunActivity,
    RunChild,
    SetVariables,
    SignalRun,
    Sleep,
    Timeout,
    WaitForSignal,
    WaitUntil,
    retry_policy,
)
from perdure.language.step_failures import (
    EXPRESSION_ERROR,
    STEPS_FAILED,
    StepError,
    application,
    combined,
    timeout,
)
from perdure.language.step_paths import Path

LeafAction = (
    RunActivity | RunChild | SignalRun | Sleep | WaitForSignal | WaitUntil | SetVariables | ContinueAsNew | Fail
)
"""The actions of this module."""
_WAIT_TIMEOUT: Final = "waitTimeout"
"""Key under which a task records the timeout of its wait."""
_ONCE: Final = RetryPolicy(maximum_attempts=1)
_START_TO_CLOSE: Final = timedelta(seconds=10)
"""The time that the engine demands for an attempt. That of an activity that takes limits ends as it starts."""


def start(context: DecisionContext, at: Location, action: LeafAction) -> Outcome | None:
    """Start the action of a task. Raises StepError."""
    match action:
        case RunActivity():
            _run_activity(context, at, action)
        case RunChild():
            _start_child(context, at, action)
        case SignalRun():
            _signal_run(context, at, action)
        case Sleep():
            _sleep(context, at, action)
        case WaitForSignal():
            return _wait_for_signal(context, at, action)
        case WaitUntil():
            return _wait_until(context, at, action)
        case SetVariables():
            return _set_variables(context, at, action)
        case ContinueAsNew():
            _continue_as_new(context, at, action)
        case Fail():
            return _fail(context, at, action)
        case other:
            assert_never(other)
    return None


def cancel(context: DecisionContext, at: Location, action: LeafAction) -> Outcome | None:
    """Cancel the action of a task."""
    match action:
        case RunActivity():
            if action.call.cancellation_type is not CancellationType.ABANDON:
                context.commands.append(cmd.RequestCancelActivityTask(activity_id=at.path.text))
            return _canceled(action.call.cancellation_type)
        case RunChild():
            if action.call.cancellation_type is not CancellationType.ABANDON:
                context.commands.append(
                    cmd.RequestCancelExternalWorkflowExecution(child_id=at.path.text, reason="the step was cancelled")
                )
            return _canceled(action.call.cancellation_type)
        case Sleep():
            context.cancel_timer(at.path)
            return CANCELLED
        case WaitForSignal() | WaitUntil():
            _stop_waiting(context, at, action)
            return CANCELLED
        case SignalRun() | SetVariables() | ContinueAsNew() | Fail():
            return CANCELLED
        case other:
            assert_never(other)


def _canceled(kind: CancellationType) -> Outcome | None:
    return None if kind is CancellationType.WAIT_CANCELLATION_COMPLETED else CANCELLED


# Activities, child workflows, and signals to other runs


def schedule_activity(
    context: DecisionContext, call: ActivityCall, path: Path, value: object, evaluated: Mapping[str, timedelta]
) -> None:
    """Schedule an activity, with the overrides of the call.

    Args:
        context: The decision.
        call: The call of a step or of its compensation.
        path: Path of the task or compensation: it becomes the ID of the activity.
        value: The input.
        evaluated: The values of timeouts that are expressions, by Python field name.
    """
    definition = context.program.activities[call.name]
    limits = {
        name: evaluated.get(name) or _literal(call, name) or _literal(definition, name) for name in coercion.OF_ACTIVITY
    }
    context.commands.append(
        cmd.ScheduleActivityTask(
            activity_id=path.text,
            activity_type=(definition.worker.type if definition.worker else None) or call.name,
            task_queue=definition.worker.task_queue if definition.worker else "",
            input=value,
            schedule_to_close_timeout=limits["schedule_to_close_timeout"],
            schedule_to_start_timeout=limits["schedule_to_start_timeout"],
            start_to_close_timeout=limits["start_to_close_timeout"],
            heartbeat_timeout=limits["heartbeat_timeout"],
            retry_policy=retry_policy(call.retry_policy or definition.retry_policy),
        )
    )


def _literal(call: ActivityCall | Activity, name: str) -> timedelta | None:
    value = getattr(call, name)
    return value if isinstance(value, timedelta) else None


def _run_activity(context: DecisionContext, at: Location, action: RunActivity) -> None:
    value = _input(context, at, action.input)
    timeouts = coercion.of_activity(at.where, action.timeouts, lambda template: context.evaluate(at, template))
    schedule_activity(context, action.call, at.path, value, timeouts)


def _start_child(context: DecisionContext, at: Location, action: RunChild) -> None:
    child = action.call
    value = _input(context, at, action.input)
    workflow_id = as_text(context.evaluate(at, action.workflow_id))
    if len(workflow_id) > MAX_WORKFLOW_ID:
        message = f"{at.where}: `workflowId` has {len(workflow_id)} characters; it may have {MAX_WORKFLOW_ID}"
        raise StepError(application(EXPRESSION_ERROR, message))
    attributes = context.evaluate(at, action.search_attributes) or {}
    execution_timeout = _child_timeout(context, at, "executionTimeout", action.execution_timeout)
    run_timeout = _child_timeout(context, at, "runTimeout", action.run_timeout)
    context.commands.append(
        cmd.StartChildWorkflowExecution(
            child_id=at.path.text,
            start=WorkflowStart(
                workflow_type=child.workflow.name or child.workflow.type or "",
                task_queue=child.workflow.task_queue or "",
                workflow_id=workflow_id,
                workflow_id_reuse_policy=child.workflow_id_reuse_policy.value,
                input=value,
                workflow_execution_timeout=execution_timeout or None,
                workflow_run_timeout=run_timeout or None,
                workflow_task_timeout=child.task_timeout,
                search_attributes=attributes,
            ),
            retry_policy=retry_policy(child.retry_policy) if child.retry_policy else None,
            parent_close_policy=child.parent_close_policy,
        )
    )


def _child_timeout(context: DecisionContext, at: Location, name: str, timeout: Timeout) -> timedelta | None:
    if isinstance(timeout, Template):
        return coercion.positive(at.where, name, context.evaluate(at, timeout))
    return timeout


def _input(context: DecisionContext, at: Location, template: Template | None) -> object:
    """Return the input of an activity or child, and record its size, because the input is kept while the task runs."""
    value = context.evaluate(at, template)
    size = len(msgspec.json.encode(value))
    context.work += size >> 3
    context.change_task(at.path, size=size)
    return value


def _signal_run(context: DecisionContext, at: Location, action: SignalRun) -> None:
    context.commands.append(
        cmd.SignalExternalWorkflowExecution(
            signal_id=at.path.text,
            workflow_id=as_text(context.evaluate(at, action.workflow_id)),
            signal_name=as_text(context.evaluate(at, action.name)),
            input=context.evaluate(at, action.input),
        )
    )


# Variables, failures, and the end of the run


def _set_variables(context: DecisionContext, at: Location, action: SetVariables) -> Outcome:
    values = context.evaluate(at, action.values)
    context.update(vars={**context.memory.vars, **values})
    context.conditions_stale = True
    return succeeded(values)


def _continue_as_new(context: DecisionContext, at: Location, action: ContinueAsNew) -> None:
    """Close the run; the next run gets the unconsumed signals. Raises StepError if the step runs in something that fails."""
    around = [
        known
        for path in ("", *at.path.enclosing())
        for known in (context.memory.frames.get(path), context.memory.loops.get(path))
    ]
    failures = next((known.failures for known in around if known is not None and known.failures is not None), None)
    if failures is not None:
        message = (
            f"{at.where}: the run does not continue as new, because steps have failed: {combined(failures).message}"
        )
        raise StepError(application(STEPS_FAILED, shorten(message)))
    value = context.scope["input"] if action.input is None else context.evaluate(at, action.input)
    carried = tuple(
        CarriedSignal(signal_name=signal.name, input=signal.input, identity=signal.identity, principal=signal.principal)
        for signal in context.memory.signals
    )
    context.finish(cmd.ContinueAsNewWorkflowExecution(input=value, signals=carried))


def _fail(context: DecisionContext, at: Location, action: Fail) -> Outcome:
    """Fail; within the block of a `catch`, with the caught failure as the cause."""
    return failed(
        Failure(
            kind=FailureKind.APPLICATION,
            type=action.type,
            message=as_text(context.evaluate(at, action.message)),
            details=context.evaluate(at, action.details),
            non_retryable=action.non_retryable,
            cause=_caught(context, at.path.parent),
        )
    )


def _caught(context: DecisionContext, frame: Path) -> Failure | None:
    """Return the failure that the block of a frame handles, or a block that directly or indirectly called it."""
    while (running := context.frame(frame)) is not None:
        if running.caught is not None or not frame.text:
            return running.caught
        frame = frame.parent
    return None


# Waits


def _sleep(context: DecisionContext, at: Location, action: Sleep) -> None:
    try:
        length = _length(context, at, action)
    except ValueError as error:
        raise StepError(application(EXPRESSION_ERROR, f"{at.where}: `sleep`: {error}")) from error
    context.start_timer(at.path, length)


def _length(context: DecisionContext, at: Location, action: Sleep) -> timedelta:
    if action.duration is not None:
        duration = action.duration
        return as_duration(duration if isinstance(duration, timedelta) else context.evaluate(at, duration))
    until = action.until
    value = until if isinstance(until, datetime) else context.evaluate(at, until)
    return as_time(value) - context.now


def _wait_for_signal(context: DecisionContext, at: Location, action: WaitForSignal) -> Outcome | None:
    """Consume the oldest signal with the name, or wait."""
    memory = context.memory
    for i, signal in enumerate(memory.signals):
        if signal.name == action.name:
            context.update(signals=(*memory.signals[:i], *memory.signals[i + 1 :]))
            context.conditions_stale = True
            return _received(at, action, signal.input, signal.principal)
    _start_wait_timeout(context, at, action.timeout)
    if action.message is not None:
        context.change_task(at.path, note=shorten(as_text(context.evaluate(at, action.message))))
    context.update(signal_waiters=(*memory.signal_waiters, at.path.text))
    return None


def _wait_until(context: DecisionContext, at: Location, action: WaitUntil) -> Outcome | None:
    """Evaluate the condition; if it is false, evaluate it again after each change."""
    if context.evaluate(at, action.condition):
        return succeeded()
    _start_wait_timeout(context, at, action.timeout)
    context.update(condition_waiters=(*context.memory.condition_waiters, at.path.text))
    return None


def _start_wait_timeout(context: DecisionContext, at: Location, timeout: Timeout) -> None:
    length = context.timeout(at, _WAIT_TIMEOUT, timeout)
    if length is not None:
        context.start_timer(at.path, length)


def _stop_waiting(context: DecisionContext, at: Location, action: WaitForSignal | WaitUntil) -> None:
    """Remove a task from the waiting tasks, and cancel the timer of its wait."""
    memory, text = context.memory, at.path.text
    context.update(
        signal_waiters=tuple(path for path in memory.signal_waiters if path != text),
        condition_waiters=tuple(path for path in memory.condition_waiters if path != text),
    )
    if action.timeout is not None:
        context.cancel_timer(at.path)


def wait_timer_fired(context: DecisionContext, at: Location) -> Outcome:
    """Return the outcome of a wait whose timer has fired. Other kinds of steps have no such timer."""
    action = at.compiled.action
    assert isinstance(action, Sleep | WaitForSignal | WaitUntil)
    if isinstance(action, Sleep):
        return succeeded()
    limit = show_duration(context.recorded_timeout(at.path, _WAIT_TIMEOUT, action.timeout))
    _stop_waiting(context, at, action)
    match action:
        case WaitForSignal(name):
            return failed(timeout(f"{at.where}: no signal `{name}` came within {limit}"))
        case WaitUntil():
            return failed(timeout(f"{at.where}: the condition did not hold within {limit}"))
        case other:
            assert_never(other)


def signal_received(context: DecisionContext, event: ev.WorkflowExecutionSignaled) -> tuple[Path, Outcome] | None:
    """Return the task that has waited longest for a signal, and its outcome; if none waits, buffer the signal."""
    memory = context.memory
    for path in map(Path.parse, memory.signal_waiters):
        at = context.locate(path)
        action = at.compiled.action
        if isinstance(action, WaitForSignal) and action.name == event.signal_name:
            _stop_waiting(context, at, action)
            return path, _received(at, action, event.input, event.principal)
    signal = BufferedSignal(
        name=event.signal_name,
        input=event.input,
        identity=event.identity,
        principal=event.principal,
        time=event.event_time,
    )
    context.update(signals=(*memory.signals, signal))
    return None


def condition_checked(context: DecisionContext, path: Path) -> Outcome | None:
    """Evaluate the condition that a task waits for; return the outcome of the wait, or None if the task still waits."""
    if path.text not in context.memory.condition_waiters:
        return None
    at = context.locate(path)
    action = at.compiled.action
    assert isinstance(action, WaitUntil)
    try:
        outcome = succeeded() if context.evaluate(at, action.condition) else None
    except StepError as error:
        outcome = failed(error.failure)
    if outcome is not None:
        _stop_waiting(context, at, action)
    return outcome


def _received(at: Location, action: WaitForSignal, value: Any, principal: str) -> Outcome:
    """Return the outcome of a step that has received its signal."""
    if not action.approval:
        return succeeded(value)
    answer = value if isinstance(value, dict) else {}
    decision = {"approved": answer.get("approved") is True, "comment": answer.get("comment"), "by": principal}
    if decision["approved"]:
        return succeeded(decision)
    why = f": {as_text(answer['comment'])}" if answer.get("comment") else ""
    message = shorten(f"{at.where}: {principal or 'an unknown user'} rejected it{why}")
    return failed(
        Failure(kind=FailureKind.APPLICATION, type="Rejected", message=message, details=decision, non_retryable=True)
    )


# WorkflowLimits


def take_limits(context: DecisionContext, at: Location) -> None:
    """Ask for the limits of a task. Raises StepError."""
    wanted = [requested_limit(limit, _key(context, at, limit, i)) for i, limit in enumerate(at.compiled.step.limits)]
    context.change_task(at.path, stage=Stage.LIMITS)
    context.commands.append(
        cmd.ScheduleActivityTask(
            activity_id=at.path.limits.text,
            activity_type=TAKE_LIMITS,
            input=wanted,
            start_to_close_timeout=_START_TO_CLOSE,
            retry_policy=_ONCE,
        )
    )


def cancel_limits(context: DecisionContext, path: Path) -> None:
    """Stop waiting for the limits of a task."""
    context.commands.append(cmd.RequestCancelActivityTask(activity_id=path.limits.text))


def release_limits(context: DecisionContext, path: Path) -> None:
    """Release the limits that a task holds."""
    context.commands.append(cmd.RecordMarker(marker_name=LIMITS_RELEASED, details=path.limits.text))


def _key(context: DecisionContext, at: Location, limit: StepLimit, index: int) -> str:
    key = as_text(context.evaluate(at, at.compiled.templates[f"limits/{index}"]))
    if len(key) > MAX_KEY:
        message = f"{at.where}: the key of limit `{limit.name}` has {len(key)} characters; it may have {MAX_KEY}"
        raise StepError(application(EXPRESSION_ERROR, message))
    return key
