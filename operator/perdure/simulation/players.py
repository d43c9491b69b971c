"""Who plays in a simulation: chains of runs that are interpreted, and children that a scenario speaks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.api.names import successor_name
from perdure.api.workflow import Activity
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.decider import Decider
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import ChildOutcome, RunInput
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import CarriedSignal, ParentReference
from perdure.engine.state import PendingActivity, RunStatus, State
from perdure.language import containers
from perdure.language.failures import StepError
from perdure.language.interpreter import Refuser, RunScope
from perdure.language.program import Program, with_defaults
from perdure.language.tracing import Tracer
from perdure.simulation.scenario import Attempt, Child
from perdure.simulation.script import Beats
from perdure.simulation.tree import Tree

OUTCOMES = {
    RunStatus.COMPLETED: ChildOutcome.COMPLETED,
    RunStatus.FAILED: ChildOutcome.FAILED,
    RunStatus.CANCELLED: ChildOutcome.CANCELLED,
    RunStatus.TIMED_OUT: ChildOutcome.TIMED_OUT,
    RunStatus.TERMINATED: ChildOutcome.TERMINATED,
}
"""How a run that has closed for good looks to its parent."""


@dataclass(slots=True, kw_only=True)
class Try:
    """An attempt of an activity."""

    run: "Run"
    activity: str
    path: str
    event_id: int
    number: int
    entry: Attempt
    scripted: bool
    """Whether the scenario says how it goes."""
    start: datetime
    """When it starts, where it does not end before."""
    beats: Beats | None
    """None: the activity has no heartbeat timeout."""
    end: datetime | None = None
    outcome: str = "Running"
    failure: Failure | None = None
    told: bool = False
    """It was asked to stop."""

    @property
    def names(self) -> dict[str, int]:
        """How inputs name it."""
        return {"scheduled_event_id": self.event_id, "attempt": self.number}

    def is_of(self, activity: PendingActivity | None) -> bool:
        """Whether it is the one that an open activity waits for."""
        return activity is not None and activity.attempt == self.number

    def close(self, now: datetime, outcome: str, failure: Failure | None = None) -> None:
        """It has ended."""
        self.end, self.outcome, self.failure = now, outcome, failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What all runs of a chain have in common."""

    workflow_type: str
    workflow_id: str
    namespace: str
    program: Program
    execution_timeout: timedelta | None = None
    run_timeout: timedelta | None = None
    task_timeout: timedelta | None = None
    retry_policy: RetryPolicy | None = None
    search_attributes: Mapping[str, Any] = field(default_factory=dict)
    parent: ParentReference | None = None
    depth: int = 0
    """How many ancestors the runs have."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One run: what a WorkflowRun is in a cluster."""

    chain: "Chain"
    first: ev.WorkflowExecutionStarted
    """Its first event."""
    name: str
    run_id: str
    decider: Decider
    tree: Tree
    signals: tuple[CarriedSignal, ...] = ()
    """What it begins with."""
    paused: bool = False
    """Whether it begins paused."""
    state: State | None = None
    """None: it is just about to begin."""
    events: list[ev.AnyEvent] = field(default_factory=list)
    tries: dict[tuple[int, int], Try] = field(default_factory=dict)
    """The attempts that have not ended, by scheduled event id and number."""
    inbox: list[RunInput] = field(default_factory=list)
    asked: set[int] = field(default_factory=set)
    """Children and requests that were seen to, by initiated event id."""
    wake: datetime | None = None
    """When it is woken next, as far as that is arranged."""

    @property
    def open(self) -> bool:
        """Whether it has not closed."""
        return self.state is None or not self.state.closed


@dataclass(slots=True, kw_only=True)
class Chain:
    """The runs of one workflow id that follow each other by continue-as-new and retry."""

    role: Role
    runs: list[Run] = field(default_factory=list)
    parent: tuple[Run, int] | None = None
    """The run that has started it, and the event by which."""

    @property
    def current(self) -> Run:
        """The newest run."""
        return self.runs[-1]

    @property
    def open(self) -> bool:
        """Whether there is more to come of it."""
        state = self.current.state
        return state is None or not state.closed or state.start_successor

    @property
    def status(self) -> RunStatus:
        """How its newest run stands."""
        state = self.current.state
        return state.status if state else RunStatus.RUNNING

    def take(self, request: inp.Request) -> None:
        """Somebody asks something of it."""
        self.current.inbox.append(request)


@dataclass(slots=True, kw_only=True)
class ScriptedChild:
    """A child whose Workflow is in none of the files."""

    workflow_type: str
    workflow_id: str
    run_id: str
    parent: tuple[Run, int]
    entry: Child
    scripted: bool
    start: datetime
    end: datetime | None = None
    status: RunStatus = RunStatus.RUNNING

    @property
    def open(self) -> bool:
        """Whether it has not closed."""
        return self.end is None


Player = Chain | ScriptedChild


def first_run(chain: Chain, *, name: str, number: int, now: datetime, given: Any, **options: Any) -> Run:
    """The first run of a chain; `given` is its input, `options` are other attributes of its first event."""
    role, run_id = chain.role, _run_id(number)
    first = ev.WorkflowExecutionStarted(
        event_id=1,
        event_time=now,
        workflow_type=role.workflow_type,
        workflow_id=role.workflow_id,
        input=with_defaults(role.program, given),
        workflow_execution_timeout=role.execution_timeout,
        workflow_run_timeout=role.run_timeout or role.execution_timeout,
        workflow_task_timeout=role.task_timeout,
        workflow_execution_expiration_time=now + role.execution_timeout if role.execution_timeout else None,
        retry_policy=role.retry_policy,
        original_execution_run_id=run_id,
        first_execution_run_id=run_id,
        parent=role.parent,
        search_attributes=dict(role.search_attributes),
        successor=successor_name(name, run_id),
        **options,
    )
    return make_run(chain, first, name, run_id)


def next_run(before: Run, closing: ev.AnyEvent, *, number: int, now: datetime) -> Run:
    """The run that continues or retries another one."""
    run_id, name = _run_id(number), before.first.successor
    common = {
        "event_time": now,
        "original_execution_run_id": run_id,
        "continued_execution_run_id": before.run_id,
        "successor": successor_name(name, run_id),
        "first_workflow_task_backoff": None,
        "continued_failure": None,
    }
    if isinstance(closing, ev.WorkflowExecutionContinuedAsNew):
        given = with_defaults(before.chain.role.program, closing.input)
        first = msgspec.structs.replace(before.first, **common, input=given, attempt=1)
        return replace(make_run(before.chain, first, name, run_id), signals=closing.signals)
    common["continued_failure"] = ev.failure_of(closing)
    common["first_workflow_task_backoff"] = getattr(closing, "new_run_backoff", None)
    first = msgspec.structs.replace(before.first, **common, attempt=before.first.attempt + 1)
    return make_run(before.chain, first, name, run_id)


def make_run(chain: Chain, first: ev.WorkflowExecutionStarted, name: str, run_id: str) -> Run:
    """A run that is about to begin with its first event."""
    role = chain.role
    scope = RunScope(
        name=name, namespace=role.namespace, workflow_id=role.workflow_id, run_id=run_id, attempt=first.attempt
    )
    wrong = role.program.check_input(first.input)
    tracer = Tracer(role.program, scope, input=first.input, start_time=first.event_time)
    decider: Decider = Refuser("; ".join(map(str, wrong)), "InvalidInput") if wrong else tracer
    tree = Tree(role.program, tracer.trace)
    return Run(chain=chain, first=first, name=name, run_id=run_id, decider=decider, tree=tree)


def _run_id(number: int) -> str:
    """Run ids are uids in a cluster; here they are the same at every simulation."""
    return f"00000000-0000-4000-8000-{number:012}"


def closed_input(child: Chain | ScriptedChild, event_id: int, result: Any, failure: Failure | None) -> inp.ChildClosed:
    """What a parent hears of a child that has closed."""
    run_id = child.current.run_id if isinstance(child, Chain) else child.run_id
    closing = child.current.events[-1] if isinstance(child, Chain) else None
    return inp.ChildClosed(
        initiated_event_id=event_id,
        run_id=run_id,
        outcome=OUTCOMES[child.status],
        result=result,
        failure=failure,
        retry_state=getattr(closing, "retry_state", None),
    )


def timed_out(failure: Failure | None) -> bool:
    """Whether an attempt ended by a timeout."""
    return failure is not None and failure.kind is FailureKind.TIMEOUT


def outcome_of(failure: Failure) -> str:
    """How an attempt ended that has failed so."""
    if failure.kind is FailureKind.TIMEOUT:
        return "TimedOut"
    return {FailureKind.SERVER: "Lost", FailureKind.CANCELLED: "Cancelled"}.get(failure.kind, "Failed")


def definition_of(run: Run, activity: str) -> Activity:
    """The definition of an activity of a run."""
    return run.chain.role.program.activities[activity]


def no_pod(run: Run, activity: str, given: Any, attempt: int) -> Failure | None:
    """Why an attempt can have no pod: an expression in its container has no value. None where it can."""
    role = run.chain.role
    scope = {"name": run.name, "namespace": role.namespace, "workflowId": role.workflow_id, "runId": run.run_id}
    try:
        containers.resolve(definition_of(run, activity), input=given, run=scope, attempt=attempt)
    except StepError as error:
        return error.failure
    return None
