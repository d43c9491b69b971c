"""Compiles a step and its templates to an action."""

from collections.abc import Mapping
from datetime import timedelta

from perdure.api.kinds.steps import ActivityCall, BlockCall, Step
from perdure.api.kinds.steps import Parallel as ParallelSpec
from perdure.api.kinds.steps import Switch as SwitchSpec
from perdure.api.rules import json_name
from perdure.language.compiled_actions import (
    Action,
    CallBlock,
    Case,
    Catch,
    ContinueAsNew,
    Fail,
    Loop,
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
from perdure.language.expressions import Template
from perdure.language.timeouts import OF_ACTIVITY

Templates = Mapping[str, Template]
"""The templates of a step by key (`compiler.values_of`), without keys that have no value."""


def action_of(step: Step, templates: Templates) -> Action:  # noqa: C901, PLR0911 (one case for each kind)
    """Compile the action of a step.

    Args:
        step: The step, in which exactly one kind is set.
        templates: The templates of the step.
    """
    get = templates.get
    if step.activity is not None:
        return _activity(step.activity, get("input"), templates, "")
    if step.sleep is not None:
        duration, until = step.sleep.duration, step.sleep.until
        return Sleep(
            duration=templates["duration"] if isinstance(duration, str) else duration,
            until=templates["until"] if isinstance(until, str) else until,
        )
    if step.wait_for_signal is not None:
        given = step.wait_for_signal
        limit = timeout_of(templates, "waitTimeout", given.timeout)
        return WaitForSignal(given.name, limit, given.approval, get("waitMessage"))
    if step.wait_until is not None:
        timeout = timeout_of(templates, "waitTimeout", step.wait_until.timeout)
        return WaitUntil(templates["condition"], timeout)
    if step.child_workflow is not None:
        child = step.child_workflow
        return RunChild(
            child,
            get("input"),
            get("workflowId"),
            get("searchAttributes"),
            timeout_of(templates, "executionTimeout", child.execution_timeout),
            timeout_of(templates, "runTimeout", child.run_timeout),
        )
    if step.call is not None:
        return CallBlock(step.call.block, get("input"))
    if step.switch is not None:
        return _switch(step.switch, templates)
    if step.parallel is not None:
        return _parallel(step.parallel, templates)
    if step.set_ is not None:
        return SetVariables(templates["set"])
    if step.signal is not None:
        return SignalRun(get("workflowId"), get("name"), get("input"))
    if step.continue_as_new is not None:
        return ContinueAsNew(get("input"))
    if step.fail is not None:
        return Fail(step.fail.type, step.fail.non_retryable, get("message"), get("details"))
    return Return(get("output"))


def loop_of(step: Step, templates: Templates) -> Loop | None:
    """Compile the `forEach` of a step."""
    each = step.for_each
    return None if each is None else Loop(templates.get("items"), each.as_, each.max_concurrency)


def catches_of(step: Step, templates: Templates) -> tuple[Catch, ...]:
    """Compile the `catch` of a step."""
    return tuple(
        Catch(tuple(clause.error_types), clause.as_, CallBlock(clause.call.block, templates.get(f"catch/{i}")))
        for i, clause in enumerate(step.catch)
    )


def compensation_of(step: Step, templates: Templates) -> RunActivity | CallBlock | None:
    """Compile the `compensate` of a step."""
    given, value = step.compensate, templates.get("compensate")
    if given is None:
        return None
    if given.activity is not None:
        return _activity(given.activity, value, templates, "compensate/")
    return CallBlock(given.call.block, value) if given.call is not None else None


def hook_of(call: BlockCall | None, value: Template | None) -> CallBlock | None:
    """Compile the `onStart` or `onEnd` of a step."""
    return None if call is None else CallBlock(call.block, value)


def timeout_of(templates: Templates, key: str, given: timedelta | str | None) -> Timeout:
    """Return a constant timeout, or the template of its expression."""
    return templates[key] if isinstance(given, str) else given


def _activity(call: ActivityCall, value: Template | None, templates: Templates, prefix: str) -> RunActivity:
    keys = {name: f"{prefix}{json_name(name)}" for name in OF_ACTIVITY}
    return RunActivity(call, value, {name: templates[key] for name, key in keys.items() if key in templates})


def _switch(given: SwitchSpec, templates: Templates) -> Switch:
    cases = tuple(
        Case(templates[f"case/{i}"], CallBlock(case.call.block, templates.get(f"input/{i}")))
        for i, case in enumerate(given.cases)
    )
    default = CallBlock(given.default.call.block, templates.get("input/default")) if given.default else None
    return Switch(cases, default)


def _parallel(given: ParallelSpec, templates: Templates) -> Parallel:
    branches = {b.name: CallBlock(b.block, templates.get(f"branch/{b.name}")) for b in given.branches}
    required = {"All": len(branches), "Any": 1}.get(given.wait)
    return Parallel(branches, int(given.wait) if required is None else required)
