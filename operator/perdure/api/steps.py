"""Builders of steps: a function for each kind of step, whose keyword arguments are also the modifiers that all steps have.

    from perdure import api
    from perdure.api import steps

    reserve = steps.activity("reserve", input={"order": "${input.id}"})
    charge = steps.activity("charge", input={"hold": steps.output_of(reserve)}, retry_policy="patient")
    spec = api.WorkflowSpec(activities=[...], steps=[reserve, charge, steps.sleep("cool-off", "30d")])

Durations are `timedelta`s, or texts such as `"90s"`; a text in `${…}` is an expression. What is not given is not in the manifest.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.steps import (
    ActivityCall,
    BlockCall,
    Branch,
    CancellationType,
    Case,
    ChildWorkflow,
    ContinueAsNew,
    Fail,
    Parallel,
    QualifiedWorkflowReference,
    Return,
    SignalWorkflow,
    Sleep,
    Step,
    Switch,
    WaitForSignal,
    WaitUntil,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from perdure.api.kinds.steps import Catch, Compensate, ForEach
    from perdure.api.kinds.workflowlimit import StepLimit
    from perdure.api.models import ApiModel
    from perdure.api.policies import FailurePolicy, ParentClosePolicy, WorkflowIdReusePolicy

Model = TypeVar("Model", bound="ApiModel")

Duration = timedelta | str
"""A duration, such as `timedelta(hours=1)` or `"1h"`, or an expression in `${…}`."""

_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Modifiers(TypedDict, total=False):
    """What every step can have, as the fields of `Step` of these names."""

    needs: Sequence[str | Step]
    """Steps that must end before; `[]` starts the step immediately. Default: the step before it."""
    when: str
    """Whether it runs: an expression."""
    for_each: ForEach
    catch: Sequence[Catch]
    compensate: Compensate
    timeout: Duration
    limits: Sequence[StepLimit]
    on_start: BlockCall
    on_end: BlockCall


def output_of(step: Step | str) -> str:
    """Return the expression for the output of a step, such as `${steps.reserve.output}`."""
    return f"${{{_reference(step)}.output}}"


def activity(
    name: str,
    activity: str | None = None,
    *,
    input: Any = None,  # noqa: A002 - the name of the field
    start_to_close_timeout: Duration | None = None,
    schedule_to_close_timeout: Duration | None = None,
    schedule_to_start_timeout: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    retry_policy: RetryPolicyChoice | str | None = None,
    cancellation_type: CancellationType | None = None,
    dead_letter: bool | None = None,
    **modifiers: Unpack[Modifiers],
) -> Step:
    """Run an activity.

    Args:
        name: Name of the step.
        activity: Name of the activity; None: that of the step.
        input: Its input; any JSON value, with expressions.
        start_to_close_timeout: Maximum time of an attempt; None: that of the activity, and so are the following ones.
        schedule_to_close_timeout: Maximum time of all attempts.
        schedule_to_start_timeout: Maximum time until an attempt starts.
        heartbeat_timeout: Maximum time between two heartbeats.
        retry_policy: How failures are retried: the name of a RetryPolicy, or a policy.
        cancellation_type: What a cancelled run does with it.
        dead_letter: Whether it becomes a DeadLetter if it finally fails.
        modifiers: What every step can have.
    """
    call = _made(
        ActivityCall,
        name=activity or name,
        input=input,
        start_to_close_timeout=start_to_close_timeout,
        schedule_to_close_timeout=schedule_to_close_timeout,
        schedule_to_start_timeout=schedule_to_start_timeout,
        heartbeat_timeout=heartbeat_timeout,
        retry_policy=_policy(retry_policy),
        cancellation_type=cancellation_type,
    )
    return _step(name, modifiers, activity=call, dead_letter=dead_letter)


def sleep(
    name: str, duration: Duration | None = None, *, until: datetime | str | None = None, **modifiers: Unpack[Modifiers]
) -> Step:
    """Wait for a time, also for months: give a duration, or `until`.

    Args:
        name: Name of the step.
        duration: How long.
        until: When to continue.
        modifiers: What every step can have.
    """
    return _step(name, modifiers, sleep=_made(Sleep, duration=duration, until=until))


def wait_for_signal(
    name: str,
    signal: str | None = None,
    *,
    timeout: Duration | None = None,
    message: str | None = None,
    **modifiers: Unpack[_WithoutTimeout],
) -> Step:
    """Wait for a signal, whose input is the output of the step.

    Args:
        name: Name of the step.
        signal: Name of the signal; None: that of the step.
        timeout: Maximum wait.
        message: What people should know or do.
        modifiers: What every step can have.
    """
    wait = _made(WaitForSignal, name=signal or name, timeout=timeout, message=message)
    return _step(name, modifiers, wait_for_signal=wait)


def approval(
    name: str,
    signal: str | None = None,
    *,
    timeout: Duration | None = None,
    message: str | None = None,
    **modifiers: Unpack[_WithoutTimeout],
) -> Step:
    """Wait for an approval: a signal whose sender the API server has authenticated. A rejection fails the step.

    Args:
        name: Name of the step.
        signal: Name of the signal; None: that of the step.
        timeout: Maximum wait.
        message: What people should know or do.
        modifiers: What every step can have.
    """
    wait = _made(WaitForSignal, name=signal or name, timeout=timeout, message=message, approval=True)
    return _step(name, modifiers, wait_for_signal=wait)


def wait_until(
    name: str, condition: str, *, timeout: Duration | None = None, **modifiers: Unpack[_WithoutTimeout]
) -> Step:
    """Wait until a condition on signals and variables is true.

    Args:
        name: Name of the step.
        condition: An expression in `${…}`.
        timeout: Maximum wait.
        modifiers: What every step can have.
    """
    return _step(name, modifiers, wait_until=_made(WaitUntil, condition=condition, timeout=timeout))


def child(
    name: str,
    workflow: str | QualifiedWorkflowReference | None = None,
    *,
    input: Any = None,  # noqa: A002 - the name of the field
    workflow_id: str | None = None,
    workflow_id_reuse_policy: WorkflowIdReusePolicy | None = None,
    parent_close_policy: ParentClosePolicy | None = None,
    cancellation_type: CancellationType | None = None,
    execution_timeout: Duration | None = None,
    run_timeout: Duration | None = None,
    retry_policy: RetryPolicyChoice | str | None = None,
    search_attributes: Mapping[str, Any] | None = None,
    **modifiers: Unpack[Modifiers],
) -> Step:
    """Start another run and wait for it.

    Args:
        name: Name of the step.
        workflow: Name of a Workflow, or a reference to code of workers; None: the Workflow named as the step.
        input: Its input; any JSON value, with expressions.
        workflow_id: Its workflow ID.
        workflow_id_reuse_policy: Whether it can use the workflow ID of closed runs.
        parent_close_policy: What happens to it if this run closes first.
        cancellation_type: Whether a cancelled step waits until it has closed.
        execution_timeout: Maximum time of it, with its retries.
        run_timeout: Maximum time of one run of it.
        retry_policy: How it is retried if it fails.
        search_attributes: Its search attributes.
        modifiers: What every step can have.
    """
    reference = (
        workflow
        if isinstance(workflow, QualifiedWorkflowReference)
        else QualifiedWorkflowReference(name=workflow or name)
    )
    started = _made(
        ChildWorkflow,
        workflow=reference,
        input=input,
        workflow_id=workflow_id,
        workflow_id_reuse_policy=workflow_id_reuse_policy,
        parent_close_policy=parent_close_policy,
        cancellation_type=cancellation_type,
        execution_timeout=execution_timeout,
        run_timeout=run_timeout,
        retry_policy=_policy(retry_policy),
        search_attributes=search_attributes,
    )
    return _step(name, modifiers, child_workflow=started)


def call(name: str, block: str | None = None, *, input: Any = None, **modifiers: Unpack[Modifiers]) -> Step:  # noqa: A002 - as above
    """Run a block of the same Workflow.

    Args:
        name: Name of the step.
        block: Name of the block; None: that of the step.
        input: Value of `params` in the block; any JSON value, with expressions.
        modifiers: What every step can have.
    """
    return _step(name, modifiers, call=_made(BlockCall, block=block or name, input=input))


def parallel(
    name: str,
    branches: Mapping[str, str | BlockCall],
    *,
    wait: int | str | None = None,
    failure_policy: FailurePolicy | None = None,
    **modifiers: Unpack[Modifiers],
) -> Step:
    """Run blocks at the same time. The output is an object with the output of each branch.

    Args:
        name: Name of the step.
        branches: The blocks, or calls of blocks, by the names of the branches.
        wait: How many branches must succeed: `"All"`, `"Any"`, or a number.
        failure_policy: What happens to running branches once `wait` cannot be reached.
        modifiers: What every step can have.
    """
    calls = {branch: _call(block) for branch, block in branches.items()}
    listed = [_made(Branch, name=branch, block=each.block, input=each.input) for branch, each in calls.items()]
    made = _made(Parallel, branches=listed, wait=wait, failure_policy=failure_policy)
    return _step(name, modifiers, parallel=made)


def switch(
    name: str,
    cases: Mapping[str, str | BlockCall],
    *,
    default: str | BlockCall | None = None,
    **modifiers: Unpack[Modifiers],
) -> Step:
    """Run the block of the first case whose condition is true.

    Args:
        name: Name of the step.
        cases: The blocks, or calls of blocks, by their conditions: expressions in `${…}`, in order.
        default: The block if no case applies.
        modifiers: What every step can have.
    """
    listed = [Case(when=when, call=_call(block)) for when, block in cases.items()]
    otherwise = None if default is None else {"call": _call(default)}
    return _step(name, modifiers, switch=_made(Switch, cases=listed, default=otherwise))


def set_variables(name: str, values: Mapping[str, Any], **modifiers: Unpack[Modifiers]) -> Step:
    """Set variables, which expressions read as `vars.<name>`.

    Args:
        name: Name of the step.
        values: Any JSON values, with expressions, by the names of the variables.
        modifiers: What every step can have.
    """
    return _step(name, modifiers, set_=dict(values))


def signal(name: str, workflow_id: str, signal: str, *, input: Any = None, **modifiers: Unpack[Modifiers]) -> Step:  # noqa: A002 - as above
    """Send a signal to another run.

    Args:
        name: Name of the step.
        workflow_id: Workflow ID of the run.
        signal: Name of the signal.
        input: Its input; any JSON value, with expressions.
        modifiers: What every step can have.
    """
    sent = _made(SignalWorkflow, workflow_id=workflow_id, name=signal, input=input)
    return _step(name, modifiers, signal=sent)


def continue_as_new(name: str, *, input: Any = None, **modifiers: Unpack[Modifiers]) -> Step:  # noqa: A002 - as above
    """Close this run, and start the next one with the same workflow ID and an empty history.

    Args:
        name: Name of the step.
        input: Its input; None: that of this run.
        modifiers: What every step can have.
    """
    return _step(name, modifiers, continue_as_new=_made(ContinueAsNew, input=input))


def fail(
    name: str,
    message: str = "",
    *,
    type: str | None = None,  # noqa: A002 - the name of the field
    details: Any = None,
    non_retryable: bool | None = None,
    **modifiers: Unpack[Modifiers],
) -> Step:
    """Fail the block or the run.

    Args:
        name: Name of the step.
        message: Message of the failure; text with expressions.
        type: Type of the failure, which `catch` matches.
        details: Details for programs; any JSON value, with expressions.
        non_retryable: Whether retry policies must not retry it.
        modifiers: What every step can have.
    """
    failure = _made(Fail, message=message or None, type=type, details=details, non_retryable=non_retryable)
    return _step(name, modifiers, fail=failure)


def return_(name: str, output: Any = None, **modifiers: Unpack[Modifiers]) -> Step:
    """End the block or the run successfully, and skip the remaining steps.

    Args:
        name: Name of the step.
        output: Its output; any JSON value, with expressions.
        modifiers: What every step can have.
    """
    return _step(name, modifiers, return_=_made(Return, output=output))


class _WithoutTimeout(TypedDict, total=False):
    """The modifiers of steps whose kind has a timeout of its own."""

    needs: Sequence[str | Step]
    when: str
    for_each: ForEach
    catch: Sequence[Catch]
    compensate: Compensate
    limits: Sequence[StepLimit]
    on_start: BlockCall
    on_end: BlockCall


def _step(name: str, modifiers: Mapping[str, Any], **fields: Any) -> Step:
    found = {"name": name, **fields, **modifiers}
    if "needs" in found:
        found["needs"] = [each.name if isinstance(each, Step) else each for each in found["needs"]]
    return _made(Step, **{key: list(value) if isinstance(value, tuple) else value for key, value in found.items()})


def _made(kind: type[Model], **fields: Any) -> Model:
    """Create a model with the fields that are given."""
    return kind.model_validate({key: value for key, value in fields.items() if value is not None}, by_name=True)


def _call(block: str | BlockCall) -> BlockCall:
    return BlockCall(block=block) if isinstance(block, str) else block


def _policy(policy: RetryPolicyChoice | str | None) -> RetryPolicyChoice | None:
    return RetryPolicyChoice(name=policy) if isinstance(policy, str) else policy


def _reference(step: Step | str) -> str:
    name = step.name if isinstance(step, Step) else step
    return f"steps.{name}" if _PLAIN.fullmatch(name) else f"steps['{name}']"
