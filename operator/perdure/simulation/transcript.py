"""The transcript of a simulation: chains of runs, the attempts of their activities, scripted children, and a timeline.

The timeline is for users, with one line per entry.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from perdure.api.times import LONGEST, format_duration
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.activities import TOO_MANY_LOSSES
from perdure.engine.commands import Decider
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.state import (
    AWAIT_SERVICE,
    DEAD_LETTER,
    LIMITS_RELEASED,
    TAKE_LIMITS,
    PendingActivity,
    RunState,
    RunStatus,
)
from perdure.language.coercion import format_value
from perdure.language.interpreter import Refuser, RunScope
from perdure.language.program import Program, with_defaults
from perdure.language.step_paths import TIMEOUT, Path, is_limit
from perdure.language.step_tree import StepNode, TracedStep, Tracer, step_tree
from perdure.runtime import status_encoding
from perdure.runtime.chains import continuation_of, parent_of
from perdure.schedule.run_manifests import schedule_scope
from perdure.simulation.cluster.loop import VirtualLoop
from perdure.simulation.cluster.store import Object, Write
from perdure.simulation.script import StartedAttempt


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
    requested_input: Any
    """If it is rejected, the first event does not contain it."""
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
        """The steps at the end of the simulation, with those of ended blocks."""
        end, definition = self.state.close_time if self.state else None, self.chain.workflow.program.spec.dump()
        return step_tree(definition, {}, self.trace, closed=not self.open, end=end, over=True)


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
    workflow, meta, requested = chain.workflow, obj["metadata"], obj["spec"].get("input")
    scope = RunScope(
        name=meta["name"],
        namespace=workflow.namespace,
        workflow_id=workflow.workflow_id,
        run_id=meta["uid"],
        attempt=first.attempt,
        schedule=schedule_scope(obj),
    )
    wrong = workflow.program.check_input(with_defaults(workflow.program, requested))
    tracer = Tracer(workflow.program, scope, input=first.input, start_time=first.event_time)
    decider: Decider = Refuser("; ".join(map(str, wrong)), "InvalidInput") if wrong else tracer
    return SimulatedRun(
        chain=chain,
        first=first,
        name=meta["name"],
        run_id=meta["uid"],
        requested_input=requested,
        decider=decider,
        trace=tracer.trace,
    )


def outcome_of(failure: Failure) -> str:
    """The outcome of an attempt that ended with a failure."""
    if failure.type == TOO_MANY_LOSSES and failure.cause is not None:
        failure = failure.cause  # why the last attempt was lost
    if failure.kind is FailureKind.TIMEOUT:
        return "TimedOut"
    return {FailureKind.SERVER: "Lost", FailureKind.CANCELLED: "Cancelled"}.get(failure.kind, "Failed")


def workflow_id_of(execution: Execution) -> str:
    """The workflow ID of a chain or a child."""
    return execution.workflow.workflow_id if isinstance(execution, SimulatedChain) else execution.workflow_id


StepEntry = tuple[str, str, str]
"""The step, its new status, and the text."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line of the timeline."""

    time: datetime
    run: str
    """Name of the run."""
    path: str
    """Path of the step; empty for an entry about the run."""
    word: str
    """The new status of the step or run."""
    detail: str


def length(time: timedelta) -> str:
    """Format a length of time as in manifests."""
    return format_duration(min(max(time, timedelta(0)), LONGEST))


def failure_text(failure: Failure) -> str:
    """Describe a failure in one line."""
    if failure.kind in {FailureKind.APPLICATION, FailureKind.CANCELLED}:
        return ": ".join(part for part in (failure.type or failure.kind.value, failure.message) if part)
    return failure.message or failure.kind.value


def _value_text(value: Any, before: str = "") -> str:
    return "" if value is None else f"{before}{format_value(value)}"


def describe_event(event: ev.AnyEvent) -> StepEntry | None:
    """Return the entry of an event; None for events that the entries of attempts cover."""
    return _of_step(event) or _of_run(event)


def _of_step(event: ev.AnyEvent) -> StepEntry | None:
    match event:
        case ev.ActivityTaskScheduled() if event.activity_type == TAKE_LIMITS and not event.task_queue:
            return event.activity_id, "Waiting", f"for {_limits_text(event.input)}"
        case ev.ActivityTaskScheduled() if event.activity_type == AWAIT_SERVICE and not event.task_queue:
            return event.activity_id, "Waiting", "until the service is ready"
        case ev.MarkerRecorded() if event.marker_name == LIMITS_RELEASED:
            return str(event.details), "Succeeded", "released"
        case ev.ActivityTaskCompleted():
            return (
                event.activity_id,
                "Succeeded",
                f"{'cached ' if event.cached else ''}{_value_text(event.result)}".rstrip(),
            )
        case ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut():
            return event.activity_id, "Failed", f"{failure_text(event.failure)} ({event.retry_state})"
        case ev.ActivityTaskCanceled():
            return event.activity_id, "Cancelled", ""
        case ev.ActivityTaskCancelRequested():
            return event.activity_id, "CancelRequested", ""
        case ev.TimerStarted() if not is_limit(event.timer_id):
            return event.timer_id, "Waiting", f"for {length(event.start_to_fire_timeout)}"
        case ev.TimerFired():
            step, limit = event.timer_id.removesuffix(TIMEOUT), is_limit(event.timer_id)
            return step, "TimedOut" if limit else "Waiting", "" if limit else "the time has passed"
        case ev.StartChildWorkflowExecutionInitiated():
            return event.child_id, "Running", f"child {event.start.workflow_type}{_value_text(event.start.input, ' ')}"
        case ev.ChildWorkflowExecutionCompleted():
            return event.child_id, "Succeeded", _value_text(event.result)
        case ev.StartChildWorkflowExecutionFailed() | ev.ChildWorkflowExecutionFailed():
            return event.child_id, "Failed", failure_text(event.failure)
        case ev.ChildWorkflowExecutionTimedOut():
            return event.child_id, "TimedOut", ""
        case ev.ChildWorkflowExecutionTerminated():
            return event.child_id, "Terminated", event.reason
        case ev.ChildWorkflowExecutionCanceled():
            return event.child_id, "Cancelled", ""
        case ev.ExternalWorkflowExecutionSignaled():
            return event.signal_id, "Succeeded", f"`{event.workflow_id}` received the signal"
        case ev.SignalExternalWorkflowExecutionFailed():
            return event.signal_id, "Failed", failure_text(event.failure)
        case _:
            return None


def _limits_text(limits: Any) -> str:
    """Return the names and keys of the limits that a step takes."""
    return ", ".join(f"`{each['name']}`" + (f" (key `{each['key']}`)" if each["key"] else "") for each in limits)


def _of_run(event: ev.AnyEvent) -> StepEntry | None:
    match event:
        case ev.WorkflowExecutionStarted():
            attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
            wait = event.first_workflow_task_backoff
            return (
                "",
                "Running",
                f"starts{attempt}{f', in {length(wait)}' if wait else ''}{_value_text(event.input, ': ')}",
            )
        case ev.WorkflowExecutionSignaled():
            return "", "Running", f"signal `{event.signal_name}`{_value_text(event.input, ': ')}"
        case ev.WorkflowExecutionCancelRequested():
            return "", "CancelRequested", event.cause
        case ev.WorkflowExecutionPaused():
            return "", "Paused", ""
        case ev.WorkflowExecutionUnpaused():
            return "", "Running", "continues"
        case ev.WorkflowExecutionCompleted():
            return "", "Completed", _value_text(event.result)
        case ev.WorkflowExecutionFailed():
            return "", "Failed", f"{failure_text(event.failure)}{_retry_text(event.new_run_backoff)}"
        case ev.WorkflowExecutionTimedOut():
            return "", "TimedOut", _retry_text(event.new_run_backoff).removeprefix("; ")
        case ev.WorkflowExecutionCanceled():
            return "", "Cancelled", failure_text(event.failure) if event.failure else ""
        case ev.WorkflowExecutionTerminated():
            return "", "Terminated", event.reason
        case ev.WorkflowExecutionContinuedAsNew():
            return "", "ContinuedAsNew", _value_text(event.input)
        case ev.MarkerRecorded():
            return "", "Running", f"{event.marker_name}{_value_text(event.details, ': ')}"
        case _:
            return None


def _retry_text(wait: timedelta | None) -> str:
    return "" if wait is None else f"; again in {length(wait)}"


_MANY_ATTEMPTS = 50
"""The number of attempts or runs from which on they count as the cause of an endless simulation."""


class EndlessError(Exception):
    """The simulation does not end. The message says what it was doing, and what to do."""


class Transcript:
    """Records and counts every commit of a run and every attempt."""

    def __init__(
        self,
        loop: VirtualLoop,
        root: SimulatedChain,
        programs: Mapping[str, Program],
        *,
        max_events: int,
        give_up: Callable[[Exception], None],
    ) -> None:
        """Start an empty transcript.

        Args:
            loop: The event loop, for the time.
            root: The chain of the simulated run.
            programs: The Workflows, by name.
            max_events: The maximum number of events and attempts.
            give_up: Called with an EndlessError if there are more.
        """
        self.root = root
        self.timeline: list[TimelineEntry] = []
        self.attempts: list[Attempt] = []
        self.executions: list[Execution] = []
        self.dead_letters: list[Any] = []
        self.end = loop.now()
        """When the last event happened."""
        self.on_commit: Callable[[SimulatedRun, RunState], None] = lambda _run, _state: None
        """Called after each commit with the run and its new state."""
        self._loop = loop
        self._programs = programs
        self._max_events = max_events
        self._give_up = give_up
        self._count = 0
        self._runs: dict[str, SimulatedRun] = {}
        self._chains: dict[str, SimulatedChain] = {}
        """The chains by the UID of each of their runs."""
        self._scripted: dict[str, SimulatedChild] = {}
        self._busiest: Counter[str] = Counter()

    @property
    def runs(self) -> tuple[SimulatedRun, ...]:
        """All runs that have begun."""
        return tuple(self._runs.values())

    def parent(self, obj: Object) -> tuple[SimulatedRun, int]:
        """The run that started a child, and the ID of its event."""
        tie = parent_of(obj)
        assert tie is not None
        return self._runs[tie.run_id], tie.initiated_event_id

    def expect(self, name: str, child: SimulatedChild) -> None:
        """Treat the WorkflowRun with this name, which is about to be created, as a scripted child."""
        self._scripted[name] = child

    # Runs

    def observe(self, write: Write) -> None:
        """Follow a write to a WorkflowRun."""
        if write.key.plural != "workflowruns" or write.type == "DELETED":
            return
        if write.type == "ADDED":
            self._added(write.after)
        else:
            self._committed(write.after)

    def _added(self, obj: Object) -> None:
        meta, before, tie = obj["metadata"], continuation_of(obj), parent_of(obj)
        scripted = self._scripted.get(meta["name"])
        if scripted is not None:
            scripted.run_id = meta["uid"]
            self.executions.append(scripted)
        elif before is not None and before.run_id in self._chains:
            self._chains[meta["uid"]] = self._chains[before.run_id]
        elif tie is None:
            self._chains[meta["uid"]] = self.root
            self.executions.append(self.root)
        else:
            named = obj["spec"]["workflow"]["name"]
            workflow = WorkflowInfo(
                workflow_type=named,
                workflow_id=obj["spec"].get("workflowId") or meta["name"],
                namespace=meta["namespace"],
                program=self._programs[named],
            )
            chain = self._chains[meta["uid"]] = SimulatedChain(workflow=workflow, parent=self.parent(obj))
            self.executions.append(chain)

    def _committed(self, obj: Object) -> None:
        meta, status = obj["metadata"], status_encoding.decode(obj).get("status") or {}
        if "state" not in status:
            return
        state = history.decode_state(status["state"])
        scripted = self._scripted.get(meta["name"])
        if scripted is not None:
            scripted.status = state.status
            scripted.end = state.close_time if state.closed else None
            return
        known = self._runs.get(meta["uid"])
        count = len(known.events) if known else 0
        events = history.decode_events([each for each in status["history"]["events"] if each["eventId"] > count])
        run = known or self._began(obj, events[0])
        run.state = state
        run.events += events
        if events:
            self.end = self._loop.now()
        self._follow(run, state, events)
        self.on_commit(run, state)

    def _began(self, obj: Object, first: ev.AnyEvent) -> SimulatedRun:
        assert isinstance(first, ev.WorkflowExecutionStarted)
        uid = obj["metadata"]["uid"]
        chain = self._chains[uid]
        run = self._runs[uid] = make_run(chain, first, obj)
        chain.runs.append(run)
        return run

    def _follow(self, run: SimulatedRun, state: RunState, events: tuple[ev.AnyEvent, ...]) -> None:
        """Update the attempts and the timeline with the events of a commit."""
        for key, attempt in list(run.attempts.items()):
            self._settle(run, state, attempt, events)
            if attempt.end is not None:
                del run.attempts[key]
        for event in events:
            self._without_pod(run, event)
            described = describe_event(event)
            if described is not None:
                self.add_entry(run, *described)
        self.dead_letters += [
            event.details
            for event in events
            if isinstance(event, ev.MarkerRecorded) and event.marker_name == DEAD_LETTER
        ]
        self._spend(len(events))

    def add_entry(self, run: SimulatedRun, path: str, word: str, detail: str) -> None:
        """Add an entry to the timeline."""
        self.timeline.append(TimelineEntry(self._loop.now(), run.name, path, word, detail))

    def _spend(self, number: int) -> None:
        self._count += number
        if self._count > self._max_events:
            self._give_up(
                EndlessError(
                    f"the run has not ended after {self._max_events:,} events and attempts{self.repeated_work()}; make it "
                    "end, or raise `maxEvents` of the scenario"
                )
            )

    def repeated_work(self) -> str:
        """Describe what happens repeatedly, for a message; empty if nothing does."""
        activity, attempts = max(self._busiest.items(), key=lambda item: item[1], default=("", 0))
        if attempts > max(self._count // 2, _MANY_ATTEMPTS):
            lost = sum(each.activity == activity and each.outcome == "Lost" for each in self.attempts)
            if lost > attempts // 2:  # `maximumAttempts` does not count them
                advice = "set `maximumLosses` in its retry policy"
                return f": activity `{activity}` had {attempts:,} attempts, {lost:,} of them lost, so let one succeed or {advice}"
            return f": activity `{activity}` had {attempts:,} attempts, so let one succeed or set `maximumAttempts`"
        runs = len(self.root.runs)
        return f": it has continued as {runs:,} runs" if runs > _MANY_ATTEMPTS else ""

    # Attempts

    def started(self, started: StartedAttempt) -> None:
        """Record an attempt whose pod was created."""
        run = self._runs[started.run_id]
        assert run.state is not None
        activity = run.state.activity(started.event_id)
        if activity is None:
            return
        attempt = Attempt(
            run=run,
            activity=activity.activity_type,
            path=activity.activity_id,
            event_id=started.event_id,
            number=started.number,
            start=self._loop.now() + started.after,
        )
        run.attempts[attempt.event_id, attempt.number] = attempt
        self.attempts.append(attempt)
        self._busiest[attempt.activity] += 1
        number = f", attempt {attempt.number}" if attempt.number > 1 else ""
        what = "starts" if Path.parse(attempt.path).service else f"activity {attempt.activity}"
        self.add_entry(run, attempt.path, "Running", f"{what}{number}")
        self._spend(1)

    def _without_pod(self, run: SimulatedRun, event: ev.AnyEvent) -> None:
        """Record an attempt without a pod, because an expression in its container has no value."""
        if not isinstance(event, ev.ActivityTaskFailed):
            return
        if any(
            t.run is run and t.event_id == event.scheduled_event_id and t.number == event.attempt for t in self.attempts
        ):
            return
        found = next(e for e in run.events if e.event_id == event.scheduled_event_id)
        assert isinstance(found, ev.ActivityTaskScheduled)
        if found.activity_type in {AWAIT_SERVICE, TAKE_LIMITS}:
            return  # it never has one
        now = self._loop.now()
        attempt = Attempt(
            run=run,
            activity=found.activity_type,
            path=found.activity_id,
            event_id=found.event_id,
            number=event.attempt,
            start=now,
        )
        attempt.close(now, outcome_of(event.failure), event.failure)
        self.attempts.append(attempt)
        self._busiest[attempt.activity] += 1
        self._spend(1)

    def _settle(self, run: SimulatedRun, state: RunState, attempt: Attempt, events: tuple[ev.AnyEvent, ...]) -> None:
        """Record the end of an attempt if these events ended it."""
        activity = state.activity(attempt.event_id)
        if attempt.is_of(activity):
            return
        now = self._loop.now()
        if activity is not None:
            failure = activity.last_failure
            assert failure is not None
            attempt.close(now, outcome_of(failure), failure)
            again = f"attempt {activity.attempt} in {length(activity.scheduled_time - now)}"
            self.add_entry(
                run, attempt.path, "BackingOff", f"attempt {attempt.number} failed: {failure_text(failure)}; {again}"
            )
            return
        match next((e for e in reversed(events) if getattr(e, "scheduled_event_id", 0) == attempt.event_id), None):
            case ev.ActivityTaskCompleted():
                attempt.close(now, "Completed")
            case ev.ActivityTaskFailed(failure=failure) | ev.ActivityTaskTimedOut(failure=failure):
                attempt.close(now, outcome_of(failure), failure)
            case ev.ActivityTaskCanceled():
                attempt.close(now, "Cancelled")
            case _:
                attempt.close(now, "Stopped")
