"""Actions: how each kind of step starts and is canceled.

``start`` returns the outcome of an action that closes as it starts; None if it is running. ``cancel`` returns the outcome of an
action that closes immediately; None if it closes later.
"""

from datetime import timedelta
from typing import assert_never

import msgspec

from perdure.api.kinds.steps import CancellationType
from perdure.api.names import MAX_WORKFLOW_ID
from perdure.engine import commands as cmd
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.starts import CarriedSignal, WorkflowStart
from perdure.language import timeouts
from perdure.language.coercion import as_text
from perdure.language.compiled_actions import (
    CallBlock,
    ContinueAsNew,
    Fail,
    Parallel,
    Return,
    RunActivity,
    RunChild,
    SetVariables,
    SignalRun,
    Sleep,
    Switch,
    Timeout,
    WaitForSignal,
    WaitUntil,
)
from perdure.language.execution.blocks import Blocks
from perdure.language.execution.context import Location, replace
from perdure.language.execution.parts import Parts
from perdure.language.execution.schedule_activity import schedule_activity
from perdure.language.execution.waits import Waits
from perdure.language.expressions import Template
from perdure.language.memory import CANCELLED, Outcome, failed, succeeded
from perdure.language.program import retry_policy
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application


class Actions:
    """Starts and cancels the actions of steps."""

    def __init__(self, parts: Parts, blocks: Blocks, waits: Waits) -> None:
        self._parts = parts
        self._context = parts.context
        self._evaluate = parts.evaluation.of_step
        self._blocks = blocks
        self._waits = waits

    def start(self, at: Location) -> Outcome | None:  # noqa: C901, PLR0912 (one case for each kind)
        """Start the action of a task. Raises StepError."""
        match at.compiled.action:
            case RunActivity() as action:
                self._run_activity(at, action)
            case RunChild() as action:
                self._start_child(at, action)
            case SignalRun() as action:
                self._signal_run(at, action)
            case Sleep() as action:
                self._waits.sleep(at, action)
            case WaitForSignal() as action:
                return self._waits.for_signal(at, action)
            case WaitUntil() as action:
                return self._waits.until(at, action)
            case CallBlock() as action:
                self._blocks.call(at, action)
            case Switch() as action:
                return self._blocks.switch(at, action)
            case Parallel() as action:
                self._blocks.parallel(at, action)
            case SetVariables() as action:
                return self._set_variables(at, action)
            case ContinueAsNew() as action:
                self._continue_as_new(at, action)
            case Fail() as action:
                return self._fail(at, action)
            case Return() as action:
                output = self._evaluate(at, action.output)
                self._parts.frames.stop(at.path.parent, succeeded(output))  # cancels this step too: it succeeds
            case other:
                assert_never(other)
        return None

    def cancel(self, at: Location) -> Outcome | None:
        """Cancel the action of a task."""
        match at.compiled.action:
            case RunActivity() as action:
                if action.call.cancellation_type is not CancellationType.ABANDON:
                    self._context.commands.append(cmd.RequestCancelActivityTask(activity_id=at.path.text))
                return _canceled(action.call.cancellation_type)
            case RunChild() as action:
                if action.call.cancellation_type is not CancellationType.ABANDON:
                    self._context.commands.append(
                        cmd.RequestCancelExternalWorkflowExecution(
                            child_id=at.path.text, reason="the step was cancelled"
                        )
                    )
                return _canceled(action.call.cancellation_type)
            case Sleep() | WaitForSignal() | WaitUntil() as action:
                self._waits.cancel(at, action)
                return CANCELLED
            case CallBlock() | Switch() | Parallel() as action:
                self._blocks.cancel(at, action)
                return None
            case Return():
                return succeeded()
            case SignalRun() | SetVariables() | ContinueAsNew() | Fail():
                return CANCELLED
            case other:
                assert_never(other)

    def _run_activity(self, at: Location, action: RunActivity) -> None:
        value = self._input(at, action.input)
        given = timeouts.of_activity(at.where, action.timeouts, lambda template: self._evaluate(at, template))
        self._context.commands.append(schedule_activity(self._context.program, action.call, at.path, value, given))

    def _start_child(self, at: Location, action: RunChild) -> None:
        child = action.call
        value = self._input(at, action.input)
        workflow_id = as_text(self._evaluate(at, action.workflow_id))
        if len(workflow_id) > MAX_WORKFLOW_ID:
            message = f"{at.where}: `workflowId` has {len(workflow_id)} characters; it may have {MAX_WORKFLOW_ID}"
            raise StepError(application(EXPRESSION_ERROR, message))
        attributes = self._evaluate(at, action.search_attributes) or {}
        execution_timeout = self._child_timeout(at, "executionTimeout", action.execution_timeout)
        run_timeout = self._child_timeout(at, "runTimeout", action.run_timeout)
        self._context.commands.append(
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

    def _child_timeout(self, at: Location, name: str, given: Timeout) -> timedelta | None:
        if isinstance(given, Template):
            return timeouts.positive(at.where, name, self._evaluate(at, given))
        return given

    def _input(self, at: Location, template: Template | None) -> object:
        """Return the input of an activity or child, and record its size, because the input is kept while the task runs."""
        value = self._evaluate(at, template)
        size = len(msgspec.json.encode(value))
        self._context.work += size >> 3
        self._context.put_task(at.path, replace(self._context.memory.tasks[at.path.text], size=size))
        return value

    def _signal_run(self, at: Location, action: SignalRun) -> None:
        self._context.commands.append(
            cmd.SignalExternalWorkflowExecution(
                signal_id=at.path.text,
                workflow_id=as_text(self._evaluate(at, action.workflow_id)),
                signal_name=as_text(self._evaluate(at, action.name)),
                input=self._evaluate(at, action.input),
            )
        )

    def _set_variables(self, at: Location, action: SetVariables) -> Outcome:
        values = self._evaluate(at, action.values)
        self._context.update(vars={**self._context.memory.vars, **values})
        self._context.conditions_stale = True
        return succeeded(values)

    def _continue_as_new(self, at: Location, action: ContinueAsNew) -> None:
        """Close the run; the next run gets the unconsumed signals."""
        value = self._context.scope["input"] if action.input is None else self._evaluate(at, action.input)
        carried = tuple(
            CarriedSignal(
                signal_name=signal.name, input=signal.input, identity=signal.identity, principal=signal.principal
            )
            for signal in self._context.memory.signals
        )
        self._parts.closing.finish(cmd.ContinueAsNewWorkflowExecution(input=value, signals=carried))

    def _fail(self, at: Location, action: Fail) -> Outcome:
        """Fail; within the block of a `catch`, with the caught failure as the cause."""
        return failed(
            Failure(
                kind=FailureKind.APPLICATION,
                type=action.type,
                message=as_text(self._evaluate(at, action.message)),
                details=self._evaluate(at, action.details),
                non_retryable=action.non_retryable,
                cause=self._blocks.caught(at.path.parent),
            )
        )


def _canceled(kind: CancellationType) -> Outcome | None:
    return None if kind is CancellationType.WAIT_CANCELLATION_COMPLETED else CANCELLED
