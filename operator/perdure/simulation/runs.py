"""The runs of a simulation: chains of runs, their attempts, and scripted children."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.engine import events as ev
from perdure.engine.decider import Decider
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.state import PendingActivity, RunState, RunStatus
from perdure.language.interpreter import Refuser, RunScope
from perdure.language.program import Program, with_defaults
from perdure.language.step_tree import StepNode, TracedStep, Tracer, step_tree
from perdure.schedule.run_manifests import schedule_scope


@dataclass(slots=True, kw_only=True)
class Attempt:
    """An attempt of an activity."""

    run: "SimulatedRun"
    activity: str
    path: str
    event_id: int
    number: int
    start: datetime
    """When it starts, unless it ends earlier."""
    end: datetime | None = None
    outcome: str = "Running"
    failure: Failure | None = None

    def is_of(self, activity: PendingActivity | None) -> bool:
        """Whether it is the current attempt of a pending activity."""
        return activity is not None and activity.attempt == self.number

    def close(self, now: datetime, outcome: str, failure: Failure | None = None) -> None:
        """Record the end of the attempt."""
        self.end, self.outcome, self.failure = now, outcome, failure


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInfo:
    """The properties that all runs of a chain share."""

    workflow_type: str
    workflow_id: str
    namespace: str
    program: Program


@dataclass(slots=True, kw_only=True)
class SimulatedRun:
    """One run, which is a WorkflowRun in the cluster."""

    chain: "SimulatedChain"
    first: ev.WorkflowExecutionStarted
    """The first event."""
    name: str
    run_id: str
    given: Any
    """The requested input. If it is rejected, the first event does not contain it."""
    decider: Decider
    trace: Mapping[str, TracedStep]
    """The steps that have started, by path; complete once the history was replayed."""
    state: RunState | None = None
    """None until it begins."""
    events: list[ev.AnyEvent] = field(default_factory=list)
    attempts: dict[tuple[int, int], Attempt] = field(default_factory=dict)
    """The attempts that have not ended, by scheduled event ID and number."""

    @property
    def open(self) -> bool:
        """Whether it has not closed."""
        return self.state is None or not self.state.closed

    @property
    def steps(self) -> tuple[StepNode, ...]:
        """The steps, with those of ended blocks."""
        end = self.state.close_time if self.state else None
        return step_tree(self.chain.workflow.program.spec.dump(), {}, self.trace, closed=not self.open, end=end)


@dataclass(slots=True, kw_only=True)
class SimulatedChain:
    """The runs of a workflow ID that are linked by continue-as-new and retries."""

    workflow: WorkflowInfo
    runs: list[SimulatedRun] = field(default_factory=list)
    parent: tuple[SimulatedRun, int] | None = None
    """The run that started the chain, and the ID of its event."""

    @property
    def current(self) -> SimulatedRun:
        """The newest run."""
        return self.runs[-1]

    @property
    def open(self) -> bool:
        """Whether the chain has not ended."""
        state = self.current.state if self.runs else None
        return state is None or not state.closed or state.start_successor

    @property
    def status(self) -> RunStatus:
        """The status of the newest run."""
        state = self.current.state
        return state.status if state else RunStatus.RUNNING


@dataclass(slots=True, kw_only=True)
class SimulatedChild:
    """A child whose Workflow is not in any of the files."""

    workflow_type: str
    workflow_id: str
    run_id: str
    parent: tuple[SimulatedRun, int]
    start: datetime
    end: datetime | None = None
    status: RunStatus = RunStatus.RUNNING

    @property
    def open(self) -> bool:
        """Whether it has not closed."""
        return self.end is None


Execution = SimulatedChain | SimulatedChild


def make_run(chain: SimulatedChain, first: ev.WorkflowExecutionStarted, obj: dict[str, Any]) -> SimulatedRun:
    """Create a run that has begun with its first event; `obj` is its WorkflowRun."""
    workflow, meta, given = chain.workflow, obj["metadata"], obj["spec"].get("input")
    scope = RunScope(
        name=meta["name"],
        namespace=workflow.namespace,
        workflow_id=workflow.workflow_id,
        run_id=meta["uid"],
        attempt=first.attempt,
        schedule=schedule_scope(obj),
    )
    wrong = workflow.program.check_input(with_defaults(workflow.program, given))
    tracer = Tracer(workflow.program, scope, input=first.input, start_time=first.event_time)
    decider: Decider = Refuser("; ".join(map(str, wrong)), "InvalidInput") if wrong else tracer
    return SimulatedRun(
        chain=chain,
        first=first,
        name=meta["name"],
        run_id=meta["uid"],
        given=given,
        decider=decider,
        trace=tracer.trace,
    )


def outcome_of(failure: Failure) -> str:
    """The outcome of an attempt that ended with a failure."""
    if failure.kind is FailureKind.TIMEOUT:
        return "TimedOut"
    return {FailureKind.SERVER: "Lost", FailureKind.CANCELLED: "Cancelled"}.get(failure.kind, "Failed")


def workflow_id_of(execution: Execution) -> str:
    """The workflow ID of a chain or a child."""
    return execution.workflow.workflow_id if isinstance(execution, SimulatedChain) else execution.workflow_id
