"""Programs: the definition of a Workflow, compiled once and shared by any number of runs.

A program has lists of steps (`Flow`). Each step has an action, which is one of the classes of `Action`, and its modifiers.

It also says how to judge the result of an activity in a pod. A result is doubtful if it is empty although an expression reads
it, or if it looks like JSON but is not valid.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
import orjson

from perdure.api.kinds.retrypolicy import RetryPolicyChoice, RetryRules
from perdure.api.kinds.steps import ActivityCall, ChildWorkflow, Step
from perdure.api.kinds.workflow import Activity, Handler, WorkflowSpec
from perdure.api.kinds.workflowlimit import LimitUse
from perdure.api.policies import FailurePolicy
from perdure.engine.retry import CloudSchedulerRetry, PolicyChoice, PolicyReference, RetryPolicy
from perdure.language.expressions import Template
from perdure.language.schemas import InputCheck
from perdure.language.step_paths import Path

Timeout = timedelta | Template | None
"""A duration, or its expression; None: no limit."""


# Actions


@dataclass(frozen=True, slots=True)
class RunActivity:
    """`activity`, also as a compensation."""

    call: ActivityCall
    input: Template | None
    timeouts: Mapping[str, Template]
    """Templates of the timeouts that are expressions, by Python field name."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """`sleep`: exactly one of the fields is set."""

    duration: timedelta | Template | None
    until: datetime | Template | None


@dataclass(frozen=True, slots=True)
class WaitForSignal:
    """`waitForSignal`."""

    name: str
    timeout: Timeout
    approval: bool = False
    message: Template | None = None


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """`waitUntil`."""

    condition: Template
    timeout: Timeout


@dataclass(frozen=True, slots=True)
class RunChild:
    """`childWorkflow`."""

    call: ChildWorkflow
    input: Template | None
    workflow_id: Template | None
    search_attributes: Template | None
    execution_timeout: Timeout
    run_timeout: Timeout


@dataclass(frozen=True, slots=True)
class CallBlock:
    """`call`, also as a compensation and in `switch` and `catch`."""

    block: str
    input: Template | None


@dataclass(frozen=True, slots=True)
class Case:
    """A case of `switch`."""

    when: Template
    call: CallBlock


@dataclass(frozen=True, slots=True)
class Switch:
    """`switch`."""

    cases: tuple[Case, ...]
    default: CallBlock | None


@dataclass(frozen=True, slots=True)
class Parallel:
    """`parallel`."""

    branches: Mapping[str, CallBlock]
    """The branches by name, in order."""
    required: int
    """Number of branches that must succeed."""
    failure_policy: FailurePolicy = FailurePolicy.CANCEL_RUNNING


@dataclass(frozen=True, slots=True)
class SetVariables:
    """`set`."""

    values: Template


@dataclass(frozen=True, slots=True)
class SignalRun:
    """`signal`."""

    workflow_id: Template | None
    name: Template | None
    input: Template | None


@dataclass(frozen=True, slots=True)
class ContinueAsNew:
    """`continueAsNew`."""

    input: Template | None
    """The input of the next run; None: the input of this run."""


@dataclass(frozen=True, slots=True)
class Fail:
    """`fail`."""

    type: str
    non_retryable: bool
    message: Template | None
    details: Template | None


@dataclass(frozen=True, slots=True)
class Return:
    """`return`."""

    output: Template | None


Action = (
    RunActivity
    | Sleep
    | WaitForSignal
    | WaitUntil
    | RunChild
    | CallBlock
    | Switch
    | Parallel
    | SetVariables
    | SignalRun
    | ContinueAsNew
    | Fail
    | Return
)


@dataclass(frozen=True, slots=True)
class Loop:
    """`forEach`."""

    items: Template | None
    variable: str
    max_concurrency: int | None
    failure_policy: FailurePolicy = FailurePolicy.CANCEL_RUNNING


@dataclass(frozen=True, slots=True)
class Catch:
    """An entry of `catch`."""

    error_types: tuple[str, ...]
    variable: str
    call: CallBlock


# Findings


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "Error"
    """The definition cannot run, or always fails: no runs start."""
    WARNING = "Warning"
    """The definition probably contains a mistake."""
    NOTE = "Note"
    """The definition may be intended, but should be reviewed."""


_MAX_PLACE = 120


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem in a definition."""

    path: str
    """The path of the problem: ``spec.steps[2].activity.name``."""
    message: str
    """The problem, and how to fix it."""
    severity: Severity = Severity.ERROR
    local: bool = False
    """Whether the finding does not depend on the rest of the definition."""

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"

    @property
    def place(self) -> str:
        """Return the path for messages; the middle of a very long path is omitted."""
        return self.path if len(self.path) <= _MAX_PLACE else f"{self.path[:80]}…{self.path[-39:]}"

    def moved(self, path: str) -> "Finding":
        """Return a copy for a definition at `path` in its manifest instead of ``spec``."""
        return replace(self, path=path + self.path.removeprefix("spec"))


class InvalidWorkflowError(Exception):
    """A definition cannot run; `findings` has all problems."""

    def __init__(self, findings: list[Finding], type_: str = "InvalidWorkflow") -> None:
        super().__init__("; ".join(map(str, findings)))
        self.findings = findings
        self.type = type_
        """Type of the failure of a run with this definition."""


# Steps, lists of steps, and the program


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """A compiled step: its action and modifiers."""

    step: Step
    """The definition, for checks and for messages."""
    needs: tuple[str, ...]
    templates: Mapping[str, Template]
    """All templates of the step by key (`compiler.values_of`), for checks."""
    action: Action
    when: Template | None
    loop: Loop | None
    catch: tuple[Catch, ...]
    compensate: RunActivity | CallBlock | None
    timeout: Timeout
    on_start: CallBlock | None = None
    on_end: CallBlock | None = None

    @property
    def name(self) -> str:
        """Name of the step."""
        return self.step.name

    @property
    def activity(self) -> str | None:
        """Return the name of the activity of the step, if it has one."""
        return self.action.call.name if isinstance(self.action, RunActivity) else None


@dataclass(frozen=True, slots=True)
class CompiledService:
    """A service that runs as long as the steps of a list."""

    name: str
    activity: str
    """Name of the activity that is its pod, in `Program.activities`."""
    ready_timeout: timedelta


@dataclass(frozen=True, slots=True)
class Flow:
    """A list of steps: the main one, or a block's."""

    steps: tuple[CompiledStep, ...]
    by_name: Mapping[str, CompiledStep]
    dependants: Mapping[str, tuple[str, ...]]
    """The steps that need a step, in the order of the list."""
    output: Template | None
    """The template of the output; None: the output of the last step."""
    kept: frozenset[str]
    """The steps whose outputs an expression may still read; other outputs are not kept."""
    params: InputCheck
    max_concurrency: int | None = None
    """Maximum number of steps that run at the same time."""
    failure_policy: FailurePolicy = FailurePolicy.CANCEL_RUNNING
    steps_timeout: Timeout = None
    services: tuple[CompiledService, ...] = ()


@dataclass(frozen=True, slots=True)
class CompiledHandler:
    """A handler and the template of its block's input."""

    handler: Handler
    input: Template


@dataclass(frozen=True, slots=True)
class CompiledLimit:
    """A WorkflowLimit that a run takes, and the template of its key."""

    use: LimitUse
    key: Template


@dataclass(frozen=True, slots=True)
class Program:
    """A definition that can be run."""

    spec: WorkflowSpec
    flows: Mapping[str, Flow]
    """The main steps under the empty name, and the blocks."""
    activities: Mapping[str, Activity]
    """The activities of the definition, and those that are the services of steps."""
    handlers: Mapping[str, CompiledHandler]
    """The handlers by field name: `onCancel`, `onFailure`, `finally`."""
    input: InputCheck
    retry_policies: frozenset[str] = frozenset()
    """The names of referenced RetryPolicies."""
    outputs_read: frozenset[str] = frozenset()
    """The steps whose outputs expressions read, by name."""
    limits: tuple[CompiledLimit, ...] = ()
    """The WorkflowLimits that a run acquires before it starts, by name, so that runs with several cannot block each other."""

    @property
    def main(self) -> Flow:
        """The main steps."""
        return self.flows[""]

    def templates(self) -> Iterator[Template]:
        """Yield all templates of the program."""
        for handler in self.handlers.values():
            yield handler.input
        for flow in self.flows.values():
            if flow.output is not None:
                yield flow.output
            for step in flow.steps:
                yield from step.templates.values()

    def check_input(self, value: Any) -> list[Finding]:
        """Return the errors of the input of a run, completed by defaults."""
        return [Finding(f"spec.input{where}", message) for where, message in self.input.check(value)]


def with_defaults(program: Program, value: Any) -> Any:
    """The input of a run, completed by the default of the definition."""
    return program.input.complete(value)


# Retry policies


def retry_policy(choice: RetryPolicyChoice | None) -> PolicyChoice:
    """Convert a retry policy to the engine's form; None means Temporal's default."""
    if choice is None:
        return RetryPolicy()
    return PolicyReference(choice.name) if choice.name is not None else retry_rules(choice)


def retry_rules(rules: RetryRules, *, name: str = "", circuit_breaker: bool = False) -> RetryPolicy:
    """Convert the rules of a policy to the engine's form.

    Args:
        rules: The spec of a RetryPolicy, or a policy that is written in place.
        name: Name of the RetryPolicy; empty for one that is written in place.
        circuit_breaker: Whether the RetryPolicy has a circuit breaker.
    """
    google = rules.cloud_scheduler
    policy = RetryPolicy(name=name, circuit_breaker=circuit_breaker, maximum_losses=rules.maximum_losses)
    if google is not None:
        return msgspec.structs.replace(
            policy,
            cloud_scheduler=CloudSchedulerRetry(
                retry_count=google.retry_count,
                max_retry_duration=google.max_retry_duration,
                min_backoff_duration=google.min_backoff_duration,
                max_backoff_duration=google.max_backoff_duration,
                max_doublings=google.max_doublings,
            ),
        )
    if rules.exponential is None:
        return policy
    return msgspec.structs.replace(
        policy,
        initial_interval=rules.exponential.initial_interval,
        backoff_coefficient=float(rules.exponential.backoff_coefficient),
        maximum_interval=rules.exponential.maximum_interval,
        maximum_attempts=rules.exponential.maximum_attempts,
        non_retryable_error_types=tuple(rules.exponential.non_retryable_error_types),
    )


_READS_OUTPUT = re.compile(r"""\bsteps(?:\.(\w+)|\[\s*(["'])([^"']+)\2\s*\])\.output\b""")
"""An expression that assumes that a step has an output; `.?output` does not."""
ONLY_LOGGED: Final = "what a container prints is only logged"
"""The advice for an activity that returned nothing."""


def outputs_read(templates: Iterable[Template]) -> frozenset[str]:
    """Find the steps whose outputs expressions read, by name."""
    sources = (source for template in templates for source in template.sources)
    return frozenset(found[1] or found[3] for source in sources for found in _READS_OUTPUT.finditer(source))


def result_warning(program: Program, path: str, result: Any) -> str:
    """Return a warning about a doubtful result of an activity in a pod.

    Args:
        program: The program of the run.
        path: The path of the step of the activity.
        result: The result.

    Returns:
        A short clause for users; empty if the result is not doubtful.
    """
    parsed = Path.parse(path)
    if parsed.is_compensation:
        return ""  # no expression reads what a compensation returns
    name = parsed.step
    steps = [flow.by_name[name] for flow in program.flows.values() if name in flow.by_name]
    if not steps or not all(_by_pod(program, step) for step in steps):
        return ""
    if isinstance(result, str):
        return _unreadable(result)
    if result is None and name in program.outputs_read:
        return f"`steps.{name}.output` is null: /dev/termination-log has no result, or has `null`"
    return ""


def no_output(program: Program, output: Any) -> str:
    """Explain why a completed run has no output if an activity should have returned it; empty otherwise."""
    if output is not None or program.main.output is not None or not program.main.steps:
        return ""
    last = program.main.steps[-1]
    if not _by_pod(program, last):
        return ""
    return f"it has no output: its last step `{last.name}` left no result in /dev/termination-log; {ONLY_LOGGED}"


def _by_pod(program: Program, step: CompiledStep) -> bool:
    definition = program.activities.get(step.activity) if step.activity is not None else None
    return definition is not None and definition.worker is None


def _unreadable(result: str) -> str:
    """Return the error in a text that looks like a JSON object or list."""
    if not result.lstrip().startswith(("{", "[")):
        return ""
    try:
        orjson.loads(result)
    except orjson.JSONDecodeError as error:
        return f"the result is text: it looks like JSON, but cannot be read ({error})"
    return ""


def archives_log(program: Program, path: str) -> bool:
    """Whether the attempts of a step archive their logs.

    Args:
        program: The program of the run.
        path: The path of the step.
    """
    parsed = Path.parse(path)
    if parsed.is_compensation:
        return False  # it has another activity than the step that it compensates
    activities = {flow.by_name[parsed.step].activity for flow in program.flows.values() if parsed.step in flow.by_name}
    artifacts = [activity.artifacts for name, activity in program.activities.items() if name in activities]
    return bool(artifacts) and all(each is not None and each.archive_logs for each in artifacts)
