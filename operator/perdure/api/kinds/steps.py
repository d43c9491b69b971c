"""Steps of a workflow, and the order in which they run."""

import re
from datetime import timedelta
from enum import StrEnum
from operator import not_
from typing import Annotated, Any, ClassVar

from pydantic import Field

from perdure.api.fields import (
    DurationOrExpression,
    Expression,
    FailureTypeName,
    FieldShape,
    Flag,
    Identifier,
    Json,
    JsonObject,
    LimitOrExpression,
    Name,
    PlainName,
    Positive,
    QualifiedName,
    Reference,
    ResourceName,
    Template,
    TimeOrExpression,
    TimeoutOrExpression,
    Variable,
    atomic_list,
    map_list,
    matching,
    set_list,
)
from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.workflowlimit import MAX_STEP_LIMITS, StepLimit
from perdure.api.models import SpecModel
from perdure.api.policies import FailurePolicy, ParentClosePolicy, WorkflowIdReusePolicy
from perdure.api.rules import Rule, exactly_one_of
from perdure.api.times import PositiveDuration

MAX_STEPS = 200
"""Maximum number of steps of a workflow; divide a longer flow into blocks, `forEach` or children."""

MAX_BLOCK_STEPS = 32
"""Maximum number of steps of one block. The API server estimates the cost of validation with all blocks full, and limits it."""


class CancellationType(StrEnum):
    """What a cancelled workflow does with a running activity."""

    TRY_CANCEL = "TryCancel"
    """Request the cancellation of the activity, and cancel the step immediately."""

    WAIT_CANCELLATION_COMPLETED = "WaitCancellationCompleted"
    """Request the cancellation of the activity, and wait until it has ended."""

    ABANDON = "Abandon"
    """Leave the activity running, and cancel the step immediately."""


class WorkflowReference(SpecModel):
    """A Workflow, by name, or a workflow type that Temporal SDK workers run."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "must have either `name` (a Workflow), or `type` and `taskQueue` (code that Temporal SDK workers run)",
            "has(self.name) ? !has(self.type) && !has(self.taskQueue) : has(self.type) && has(self.taskQueue)",
            lambda ref: (
                (ref.name is not None, ref.type is not None, ref.task_queue is not None)
                in ((True, False, False), (False, True, True))
            ),
        ),
    )

    name: ResourceName | None = None
    """Name of a Workflow in the same namespace."""

    type: Identifier | None = None
    """Workflow type, as the worker registers it."""

    task_queue: Identifier | None = None
    """Task queue that the workers poll."""


class QualifiedWorkflowReference(WorkflowReference):
    """A Workflow, by name, also of another namespace, or a workflow type that Temporal SDK workers run."""

    name: QualifiedName | None = None
    """Name of a Workflow in the same namespace, or `<namespace>/<name>` of one whose `allowedNamespaces` has this namespace. Its
    pods run in this namespace."""


class BlockCall(SpecModel):
    """Runs a block of the same workflow."""

    block: Reference
    """Name of the block."""

    input: Json = None
    """Value of `params` in the block; any value, with expressions. Default: the default of the block, or null."""


class ActivityCall(SpecModel):
    """Runs an activity. Fields set here override those of the activity.

    A timeout is a duration, or an expression that returns one.
    """

    name: Reference
    """Name of an activity in `spec.activities`."""

    input: Json = None
    """Input of the activity; any value, with expressions. Default: none."""

    start_to_close_timeout: TimeoutOrExpression | None = None
    """Maximum time of one attempt, such as `5m`. Default: that of the activity."""

    schedule_to_close_timeout: TimeoutOrExpression | None = None
    """Maximum time of all attempts and the waits between them, such as `1h`. Default: that of the activity."""

    schedule_to_start_timeout: TimeoutOrExpression | None = None
    """Maximum time until an attempt starts, such as `10m`; never retried. Default: that of the activity."""

    heartbeat_timeout: TimeoutOrExpression | None = None
    """Maximum time between two heartbeats, such as `30s`. Default: that of the activity."""

    retry_policy: RetryPolicyChoice | None = None
    """How failures are retried. Default: the policy of the activity."""

    cancellation_type: CancellationType = CancellationType.TRY_CANCEL
    """What happens to a running attempt when the workflow is cancelled. Default: TryCancel."""


class Sleep(SpecModel):
    """Waits for a time, even for months; set exactly one of `duration` and `until`."""

    rules = (exactly_one_of("duration", "until"),)

    duration: DurationOrExpression | None = None
    """How long to wait: a duration such as `30d`, or an expression that returns one."""

    until: TimeOrExpression | None = None
    """When to continue: a time such as `2026-12-24T18:00:00Z`, or an expression that returns one."""


class WaitForSignal(SpecModel):
    """Waits for a signal, whose input is the output of the step. Signals that arrived earlier are consumed first, in order."""

    name: Identifier
    """Name of the signal."""

    timeout: TimeoutOrExpression | None = None
    """How long to wait before the step fails with a timeout: a duration such as `24h`, or an expression that returns one.
    Default: no limit."""

    approval: Annotated[Flag, Field(exclude_if=not_)] = False
    """Whether the signal is an approval. Its input is an object with `approved` (true or false) and, optionally, a `comment`. The
    output of the step is an object with `approved`, `comment`, and `by`: the user who sent the signal, as the API server
    authenticated them. Anything else than `approved: true` fails the step with the type `Rejected`. Default: false."""

    message: Template | None = None
    """What people should know or do; text with expressions. `perdure describe` shows it while the step waits. Default: none."""


class WaitUntil(SpecModel):
    """Waits until a condition on signals and variables is true."""

    condition: Expression
    """Condition to wait for, such as `${vars.votes >= 3}`; evaluated again after every event."""

    timeout: TimeoutOrExpression | None = None
    """How long to wait before the step fails with a timeout: a duration such as `24h`, or an expression that returns one.
    Default: no limit."""


class ChildWorkflow(SpecModel):
    """Starts another run and waits for it. Its output is the output of the step."""

    workflow: QualifiedWorkflowReference
    """Workflow to run: a Workflow by `name`, or `type` and `taskQueue` of a workflow that Temporal SDK workers run."""

    workflow_id: Annotated[Template, Field(min_length=1)] | None = None
    """Workflow ID of the child; text with expressions. Default: derived from the run of the parent and the step."""

    workflow_id_reuse_policy: WorkflowIdReusePolicy = WorkflowIdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
    """Whether the child can use the workflow ID of closed runs. Default: AllowDuplicateFailedOnly."""

    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    """What happens to the child if this run closes first. Default: Terminate."""

    cancellation_type: CancellationType = CancellationType.WAIT_CANCELLATION_COMPLETED
    """Whether a cancelled step waits until its child has closed. Default: WaitCancellationCompleted."""

    input: Json = None
    """Input of the child; any value, with expressions. Default: the default input of the Workflow."""

    execution_timeout: LimitOrExpression = timedelta(0)
    """Maximum time of the child, with its retries and continue-as-new: a duration such as `7d`, or an expression that
    returns one. Default: 0s, no limit."""

    run_timeout: LimitOrExpression | None = None
    """Maximum time of one run of the child: a duration such as `1d`, or an expression that returns one.
    Default: `executionTimeout`."""

    task_timeout: PositiveDuration = timedelta(seconds=10)
    """Time that a worker has for one workflow task before another worker gets it. Default: 10s."""

    retry_policy: RetryPolicyChoice | None = None
    """How a failed child is retried, as a new run with the same workflow ID. Default: not retried."""

    search_attributes: Annotated[JsonObject, Field(max_length=100)] = Field(default_factory=dict)
    """Search attributes of the child, by name; values can contain expressions. Default: none."""


class Branch(SpecModel):
    """One of the blocks that run at the same time."""

    name: PlainName
    """Name of the branch. Its output is `steps.<step>.output.<name>`."""

    block: Reference
    """Name of the block."""

    input: Json = None
    """Value of `params` in the block; any value, with expressions."""


WAIT_PATTERN = "^(All|Any|[1-9][0-9]{0,2})$"
"""Valid values of `wait`."""

_WAIT_CEL = (
    "type(self) in [int] ? self > 0 : "
    "self in ['All', 'Any'] || self >= '1' && self < ':' && self.size() < 4 && int(self) > 0"
)
"""The same for the API server. Kubernetes 1.32 and 1.33 ignore `maxLength` of a field that is an integer or a string, so
`matches` and even `type(self) == int` exceed the cost budget. The character after `9` is `:`."""

WAIT_MESSAGE = "must be `All`, `Any`, or a number of branches, such as `2`"
"""Validation message for any other value."""

_read_wait_text = matching(re.compile(WAIT_PATTERN), 3, WAIT_MESSAGE)


def _read_wait(value: Any) -> str:
    """Accept `2` for `"2"`, as the API server does."""
    return _read_wait_text(str(value) if isinstance(value, int) and not isinstance(value, bool) else value)


Wait = Annotated[
    str,
    FieldShape(
        _read_wait,
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            "x-kubernetes-validations": [{"rule": _WAIT_CEL, "message": WAIT_MESSAGE}],
        },
    ),
]
"""Number of branches that a parallel step waits for."""


class Parallel(SpecModel):
    """Runs blocks at the same time. Its output is an object with the output of each branch."""

    rules = (
        Rule(
            "`wait` must not be more than the number of `branches`",
            "type(self.wait) in [int] ? self.wait <= self.branches.size() : "
            "self.wait > ':' || int(self.wait) <= self.branches.size()",
            lambda step: not step.wait.isdecimal() or int(step.wait) <= len(step.branches),
        ),
    )

    branches: Annotated[list[Branch], map_list("name", 32, min_items=1)]
    """The blocks, each with a unique name."""

    wait: Wait = "All"
    """How many branches must succeed: `All`, `Any`, or a number. The step then cancels the others. Default: All."""

    failure_policy: FailurePolicy | None = None
    """What happens to running branches once `wait` cannot be reached: CancelRunning cancels them,
    FinishRunning and Continue let them finish. Default: the `failurePolicy` of the list of steps."""


class Case(SpecModel):
    """One case of a switch."""

    when: Expression
    """Condition of the case: an expression that returns true or false."""

    call: BlockCall
    """The block to run."""


class Default(SpecModel):
    """The case of a switch if no other one applies."""

    call: BlockCall
    """The block to run."""


class Switch(SpecModel):
    """Runs the block of the first case whose `when` is true. Its output is the output of that block."""

    cases: Annotated[list[Case], atomic_list(32, min_items=1)]
    """The cases, evaluated in order."""

    default: Default | None = None
    """Block to run if no case applies. Default: none."""


class SignalWorkflow(SpecModel):
    """Sends a signal to another run in the same namespace."""

    workflow_id: Annotated[Template, Field(min_length=1)]
    """Workflow ID of the run, which must be open; text with expressions."""

    name: Annotated[Template, Field(min_length=1)]
    """Name of the signal; text with expressions."""

    input: Json = None
    """Input of the signal; any value, with expressions."""


class ContinueAsNew(SpecModel):
    """Closes this run and starts the next run with the same workflow ID and an empty history."""

    input: Json = None
    """Input of the next run; any value, with expressions. Default: the input of this run."""


class Fail(SpecModel):
    """Fails the block or the run."""

    type: FailureTypeName = "Failed"
    """Type of the failure, which `catch` and retry policies match. Default: Failed."""

    message: Template = ""
    """Message of the failure; text with expressions."""

    details: Json = None
    """Details of the failure, for programs; any value, with expressions."""

    non_retryable: Flag = False
    """Whether retry policies must not retry the failure. Default: false."""


class Return(SpecModel):
    """Ends the block or the run successfully, and skips the remaining steps."""

    output: Json = None
    """Output of the block or the run; any value, with expressions."""


class ForEach(SpecModel):
    """Runs the step once for each item. The output of the step is the list of outputs, in the order of the items."""

    items: Json
    """The items: a list, or an expression that returns one. Evaluated once."""

    max_concurrency: Positive | None = None
    """Maximum number of items that run at the same time. Default: no limit."""

    as_: Variable = "item"
    """Name of the item in expressions; `index` is its position. Default: item."""

    failure_policy: FailurePolicy | None = None
    """What the failure of an item does to the others: CancelRunning cancels them, FinishRunning lets running items finish and
    starts no others, Continue runs all items. The step then fails. Default: the `failurePolicy` of the list of steps."""


class Catch(SpecModel):
    """Handles failures of the step. The output of the block becomes the output of the step."""

    error_types: Annotated[list[FailureTypeName], set_list(100)] = Field(default_factory=list)
    """Types of failures, matched against the failure and all its causes. Default: every failure."""

    as_: Variable = "error"
    """Name of the failure in the expressions of `call`. Default: error."""

    call: BlockCall
    """The block that handles the failure."""


class Compensate(SpecModel):
    """Undoes a completed step if the run fails or is cancelled later. Set exactly one of `activity` and `call`.

    Compensations run in reverse order. If one of them fails, the others still run.
    """

    rules = (exactly_one_of("activity", "call"),)

    activity: ActivityCall | None = None
    """An activity that undoes the step."""

    call: BlockCall | None = None
    """A block that undoes the step."""


STEP_KINDS = (
    *("activity", "sleep", "wait_for_signal", "wait_until", "child_workflow", "call", "parallel", "switch", "set_"),
    *("signal", "continue_as_new", "fail", "return_"),
)
"""Kinds of steps, as Python names of the fields."""


class Step(SpecModel):
    """One step: exactly one kind of work, and its modifiers."""

    rules = (
        exactly_one_of(*STEP_KINDS),
        Rule(
            "`deadLetter` must be used with `activity`: only an activity can become a DeadLetter",
            "!self.deadLetter || has(self.activity)",
            lambda step: not step.dead_letter or step.activity is not None,
        ),
    )

    name: Name
    """Name of the step. Its output is `steps.<name>.output` in expressions."""

    needs: Annotated[list[Reference], set_list(MAX_STEPS)] | None = None
    """Steps that must end before this one starts. `[]` starts it immediately.
    Default: the previous step in the list."""

    when: Expression | None = None
    """Whether the step runs: an expression that returns true or false. If false, the step is Skipped.
    Evaluated once, before the items of `forEach`. Default: the step runs."""

    for_each: ForEach | None = None
    """Runs the step once for each item of a list. `catch`, `timeout` and `compensate` apply to each item."""

    catch: Annotated[list[Catch], atomic_list(8)] = Field(default_factory=list)
    """Handlers of failures: the first entry that matches handles the failure. Default: the failure propagates."""

    compensate: Compensate | None = None
    """Undoes the step if the run fails or is cancelled later."""

    timeout: TimeoutOrExpression | None = None
    """Maximum time of the step, whatever its kind, before it fails with a timeout: a duration such as `1h`, or an expression
    that returns one. Default: no limit."""

    limits: Annotated[list[StepLimit], map_list("name", MAX_STEP_LIMITS)] = Field(default_factory=list, exclude_if=not_)
    """WorkflowLimits that the step takes, for each item of `forEach`, before its block or other action begins. It holds them
    until that has ended; `onStart`, `catch`, and `onEnd` run without them."""

    on_start: BlockCall | None = None
    """A block that runs before the step, for each item of `forEach`. If it fails, the step fails without running. `timeout` and
    `catch` include it. Default: none."""

    on_end: BlockCall | None = None
    """A block that runs after the step, however it ended, for each item of `forEach`; `step` in its input has the `status`,
    `output`, `artifacts` (if it left any) and `failure` of the step. If it fails, the step fails. Default: none."""

    dead_letter: Flag = False
    """Whether to create a DeadLetter if the activity finally fails, so that you can re-drive it. Default: false."""

    activity: ActivityCall | None = None
    """Runs an activity."""

    sleep: Sleep | None = None
    """Waits for a time."""

    wait_for_signal: WaitForSignal | None = None
    """Waits for a signal."""

    wait_until: WaitUntil | None = None
    """Waits until a condition is true."""

    child_workflow: ChildWorkflow | None = None
    """Starts another run and waits for it."""

    call: BlockCall | None = None
    """Runs a block of this workflow."""

    parallel: Parallel | None = None
    """Runs several blocks at the same time."""

    switch: Switch | None = None
    """Runs one of several blocks."""

    set_: Annotated[JsonObject, Field(min_length=1, max_length=100)] | None = None
    """Sets variables, by name, to any value, with expressions. Read them as `vars.<name>`."""

    signal: SignalWorkflow | None = None
    """Sends a signal to another run."""

    continue_as_new: ContinueAsNew | None = None
    """Closes this run and starts the next one with the same workflow ID."""

    fail: Fail | None = None
    """Fails the block or the run."""

    return_: Return | None = None
    """Ends the block or the run successfully."""

    @property
    def kind(self) -> str:
        """The kind of the step: the name of the one field that is set, such as `activity` or `return`."""
        return next(kind.rstrip("_") for kind in STEP_KINDS if getattr(self, kind) is not None)
