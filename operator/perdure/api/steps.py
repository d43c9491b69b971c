"""Steps: what a workflow does, and how steps hang together."""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from perdure.api.common import SpecModel
from perdure.api.durations import DurationShape
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
from perdure.api.retrypolicy import RetryPolicyChoice
from perdure.api.rules import Rule, exactly_one_of

MAX_STEPS = 200
"""Steps of a workflow; a longer flow is told with blocks, `forEach` or children."""

MAX_BLOCK_STEPS = 32
"""Steps of one block. The API server reckons what its rules may cost with all blocks full, and has a limit."""

TaskTimeout = Annotated[timedelta, DurationShape(at_least=timedelta(seconds=1))]
"""How long a worker has for one workflow task."""


class CancellationType(StrEnum):
    """What a workflow does about a running activity when it is cancelled."""

    TRY_CANCEL = "TryCancel"
    """The activity is told, and the step is cancelled at once."""

    WAIT_CANCELLATION_COMPLETED = "WaitCancellationCompleted"
    """The activity is told, and the step ends when it has."""

    ABANDON = "Abandon"
    """The activity is left to itself, and the step is cancelled at once."""


class ParentClosePolicy(StrEnum):
    """What becomes of an open child when its parent closes, in whatever way."""

    TERMINATE = "Terminate"
    """The child is terminated."""

    REQUEST_CANCEL = "RequestCancel"
    """The child is asked to cancel itself."""

    ABANDON = "Abandon"
    """The child goes on."""


class WorkflowIdReusePolicy(StrEnum):
    """Whether a workflow id may be used again, when only closed runs have it."""

    ALLOW_DUPLICATE_FAILED_ONLY = "AllowDuplicateFailedOnly"
    """If the newest of them did not complete: Failed, Cancelled, Terminated or TimedOut."""

    ALLOW_DUPLICATE = "AllowDuplicate"
    """Always."""

    REJECT_DUPLICATE = "RejectDuplicate"
    """Never."""


class WorkflowReference(SpecModel):
    """A Workflow by name, or the type of a workflow that Temporal SDK workers run."""

    rules = (
        Rule(
            "must have either `name` (a Workflow), or `type` and `taskQueue` (code run by Temporal SDK workers)",
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
    """Workflow type, as the worker's code names it."""

    task_queue: Identifier | None = None
    """Task queue that the workers poll."""


class BlockCall(SpecModel):
    """Runs a block of the same workflow."""

    block: Reference
    """Name of the block."""

    input: Json = None
    """What the block knows as `params`; any value, with expressions. Default: the block's own default, or nothing."""


class ActivityCall(SpecModel):
    """Runs an activity; what is set here overrides the activity's own definition.

    A timeout is a duration, or an expression that gives one.
    """

    name: Reference
    """Name of the activity, from `spec.activities`."""

    input: Json = None
    """Input of the activity; any value, with expressions. Default none."""

    start_to_close_timeout: TimeoutOrExpression | None = None
    """How long one attempt may take, such as `5m`. Default: the activity's."""

    schedule_to_close_timeout: TimeoutOrExpression | None = None
    """How long all attempts and the waits between them may take, such as `1h`. Default: the activity's."""

    schedule_to_start_timeout: TimeoutOrExpression | None = None
    """How long an attempt may wait to be started, such as `10m`; never retried. Default: the activity's."""

    heartbeat_timeout: TimeoutOrExpression | None = None
    """Longest gap between heartbeats, such as `30s`. Default: the activity's."""

    retry_policy: RetryPolicyChoice | None = None
    """How failures are retried. Default: the activity's."""

    cancellation_type: CancellationType = CancellationType.TRY_CANCEL
    """What happens to a running attempt when the workflow is cancelled. Default TryCancel."""


class Sleep(SpecModel):
    """Waits for some time, also for months; exactly one of `duration` and `until`."""

    rules = (exactly_one_of("duration", "until"),)

    duration: DurationOrExpression | None = None
    """How long to wait: a duration such as `30d`, or an expression that gives one."""

    until: TimeOrExpression | None = None
    """Until when to wait: a time such as `2026-12-24T18:00:00Z`, or an expression that gives one."""


class WaitForSignal(SpecModel):
    """Waits for a signal; its input is the step's output. Signals that came earlier are taken first, in order."""

    name: Identifier
    """Name of the signal."""

    timeout: TimeoutOrExpression | None = None
    """How long to wait: a duration such as `24h`, or an expression that gives one; then the step fails with a timeout.
    Default: without limit."""


class WaitUntil(SpecModel):
    """Waits until a condition over signals and variables holds."""

    condition: Expression
    """What is waited for, such as `${vars.votes >= 3}`; asked again whenever something happened."""

    timeout: TimeoutOrExpression | None = None
    """How long to wait: a duration such as `24h`, or an expression that gives one; then the step fails with a timeout.
    Default: without limit."""


class ChildWorkflow(SpecModel):
    """Starts another run and waits for it; its output is the step's output."""

    workflow: WorkflowReference
    """What to run: a Workflow by `name`, or `type` and `taskQueue` of a workflow run by Temporal SDK workers."""

    workflow_id: Annotated[Template, Field(min_length=1)] | None = None
    """Workflow id of the child; text with expressions. Default: made from the parent's run and the step."""

    workflow_id_reuse_policy: WorkflowIdReusePolicy = WorkflowIdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
    """Whether the id may be used again when only closed runs have it. Default AllowDuplicateFailedOnly."""

    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    """What becomes of the child when this run closes first. Default Terminate."""

    cancellation_type: CancellationType = CancellationType.WAIT_CANCELLATION_COMPLETED
    """Whether a cancelled step waits for its child to close. Default WaitCancellationCompleted."""

    input: Json = None
    """Input of the child; any value, with expressions. Default: the Workflow's own default."""

    execution_timeout: LimitOrExpression = timedelta(0)
    """How long the child may take, with its retries and continue-as-new: a duration such as `7d`, or an expression that
    gives one. Default 0s: no limit."""

    run_timeout: LimitOrExpression | None = None
    """How long one run of the child may take: a duration such as `1d`, or an expression that gives one.
    Default: `executionTimeout`."""

    task_timeout: TaskTimeout = timedelta(seconds=10)
    """How long a worker has for one workflow task before it is given to another. Default 10s."""

    retry_policy: RetryPolicyChoice | None = None
    """How a failed child is retried, as a new run of the same workflow id. Default: not at all."""

    search_attributes: Annotated[JsonObject, Field(max_length=100)] = Field(default_factory=dict)
    """Search attributes of the child, by name; values with expressions. Default none."""


class Branch(SpecModel):
    """One of the blocks that run at the same time."""

    name: PlainName
    """Name of the branch: its output is `steps.<step>.output.<name>`."""

    block: Reference
    """Name of the block."""

    input: Json = None
    """What the block knows as `params`; any value, with expressions."""


WAIT_PATTERN = "^(All|Any|[1-9][0-9]{0,2})$"
"""For how many branches a parallel step can wait."""

WAIT_MESSAGE = "must be `All`, `Any`, or how many branches to wait for, such as `2`"
"""The sentence a person sees who wrote something else."""

_read_wait_text = matching(re.compile(WAIT_PATTERN), 3, WAIT_MESSAGE)


def _read_wait(value: Any) -> str:
    """Take `2` for `"2"`, as the API server does."""
    return _read_wait_text(str(value) if isinstance(value, int) and not isinstance(value, bool) else value)


Wait = Annotated[
    str,
    FieldShape(
        _read_wait,
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            "x-kubernetes-validations": [
                {
                    "rule": f"type(self) == int ? self > 0 : self.matches('{WAIT_PATTERN}')",
                    "message": WAIT_MESSAGE,
                }
            ],
        },
    ),
]
"""For how many branches a parallel step waits."""


class Parallel(SpecModel):
    """Runs blocks at the same time; its output is an object with the output of each branch."""

    rules = (
        Rule(
            "`wait` must not be more than the number of `branches`",
            "type(self.wait) == int ? self.wait <= self.branches.size() : "
            "!self.wait.matches('^[1-9][0-9]{0,2}$') || int(self.wait) <= self.branches.size()",
            lambda step: not step.wait.isdecimal() or int(step.wait) <= len(step.branches),
        ),
    )

    branches: Annotated[list[Branch], map_list("name", 32, min_items=1)]
    """The blocks, each with a name of its own."""

    wait: Wait = "All"
    """How many branches must have succeeded for the step to go on: `All`, `Any`, or a number. The others are
    cancelled then. Default All."""


class Case(SpecModel):
    """One way that a switch can take."""

    when: Expression
    """Whether this way is taken: an expression that gives true or false."""

    call: BlockCall
    """The block to run."""


class Default(SpecModel):
    """The way that a switch takes when no other fits."""

    call: BlockCall
    """The block to run."""


class Switch(SpecModel):
    """Runs the block of the first case whose `when` is true; its output is that block's output."""

    cases: Annotated[list[Case], atomic_list(32, min_items=1)]
    """The cases, asked in order."""

    default: Default | None = None
    """What to do when no case fits. Default: nothing."""


class SignalWorkflow(SpecModel):
    """Sends a signal to another run in the same namespace."""

    workflow_id: Annotated[Template, Field(min_length=1)]
    """Workflow id of the run, which must be open; text with expressions."""

    name: Annotated[Template, Field(min_length=1)]
    """Name of the signal; text with expressions."""

    input: Json = None
    """What the signal carries; any value, with expressions."""


class ContinueAsNew(SpecModel):
    """Closes this run and starts the next one of the same workflow id, with a history of its own."""

    input: Json = None
    """Input of the next run; any value, with expressions. Default: the input of this run."""


class Fail(SpecModel):
    """Fails the block or the run."""

    type: FailureTypeName = "Failed"
    """Type of the failure, which `catch` and retry policies compare. Default Failed."""

    message: Template = ""
    """What went wrong, for people; text with expressions."""

    details: Json = None
    """What went wrong, for programs; any value, with expressions."""

    non_retryable: Flag = False
    """Whether retry policies leave the failure alone. Default false."""


class Return(SpecModel):
    """Ends the block or the run successfully, and skips the steps that are left."""

    output: Json = None
    """Output of the block or the run; any value, with expressions."""


class ForEach(SpecModel):
    """Runs the step once for each item; the step's output is the list of the outputs, in the items' order."""

    items: Json
    """The items: a list, or an expression that gives one. Asked once."""

    max_concurrency: Positive | None = None
    """How many items run at the same time. Default: all of them."""

    as_: Variable = "item"
    """Name of the item in expressions, beside `index`. Default item."""


class Catch(SpecModel):
    """Handles failures of the step: the output of the block becomes the output of the step."""

    error_types: Annotated[list[FailureTypeName], set_list(100)] = Field(default_factory=list)
    """Types of failures, looked for in the whole chain of causes. Default: every failure."""

    as_: Variable = "error"
    """Name of the failure in the expressions of `call`. Default error."""

    call: BlockCall
    """The block that handles the failure."""


class Compensate(SpecModel):
    """Undoes a completed step if the run fails or is cancelled later: exactly one of `activity` and `call`.

    Compensations run last-in first-out, and go on when one of them fails.
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
"""What a step can be, as Python names of its fields."""


class Step(SpecModel):
    """One step: exactly one thing to do, and modifiers of it."""

    rules = (
        exactly_one_of(*STEP_KINDS),
        Rule(
            "`deadLetter` must stand on a step with `activity`: only an activity can be set aside and re-driven",
            "!self.deadLetter || has(self.activity)",
            lambda step: not step.dead_letter or step.activity is not None,
        ),
    )

    name: Name
    """Name of the step: its result is `steps.<name>.output` in expressions."""

    needs: Annotated[list[Reference], set_list(MAX_STEPS)] | None = None
    """Steps that must have ended before this one starts. `[]` starts it at once.
    Default: the step before it in the list."""

    when: Expression | None = None
    """Whether the step runs: an expression that gives true or false; if false the step is Skipped.
    Asked once, before the items of `forEach`. Default: it runs."""

    for_each: ForEach | None = None
    """Runs the step once for each item of a list. `catch`, `timeout` and `compensate` apply to each item."""

    catch: Annotated[list[Catch], atomic_list(8)] = Field(default_factory=list)
    """What to do when the step fails: the first entry that fits is taken. Default: the failure goes up."""

    compensate: Compensate | None = None
    """What undoes the step, if the run fails or is cancelled after it."""

    timeout: TimeoutOrExpression | None = None
    """How long the step may take, whatever it does: a duration such as `1h`, or an expression that gives one; then it
    fails with a timeout. Default: no limit."""

    dead_letter: Flag = False
    """Whether an activity that failed for good is kept as a DeadLetter, to be re-driven. Default false."""

    activity: ActivityCall | None = None
    """Runs an activity."""

    sleep: Sleep | None = None
    """Waits for some time."""

    wait_for_signal: WaitForSignal | None = None
    """Waits for a signal."""

    wait_until: WaitUntil | None = None
    """Waits until a condition holds."""

    child_workflow: ChildWorkflow | None = None
    """Starts another run and waits for it."""

    call: BlockCall | None = None
    """Runs a block of this workflow."""

    parallel: Parallel | None = None
    """Runs several blocks at the same time."""

    switch: Switch | None = None
    """Runs one of several blocks."""

    set_: Annotated[JsonObject, Field(min_length=1, max_length=100)] | None = None
    """Sets variables, by name, to any value, with expressions; `vars.<name>` in expressions."""

    signal: SignalWorkflow | None = None
    """Sends a signal to another run."""

    continue_as_new: ContinueAsNew | None = None
    """Closes this run and starts the next one."""

    fail: Fail | None = None
    """Fails the block or the run."""

    return_: Return | None = None
    """Ends the block or the run successfully."""

    @property
    def kind(self) -> str:
        """What the step does: the name of the one field that says it, such as `activity` or `return`."""
        return next(kind.rstrip("_") for kind in STEP_KINDS if getattr(self, kind) is not None)
