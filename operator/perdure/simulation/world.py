"""The world: virtual time, and everything that happens in it.

    heap of (time, what happens) ─▶ inboxes ─▶ engine.step(state, inputs, now) ─▶ what the committed state asks for
              ▲                                                                       │ attempts, children, signals, successors
              └───────────────────────────────────────────────────────────────────────┘

Everything of the same moment that concerns a run goes into one pass, as in the controller: a result that is there when a
deadline is due counts.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.api.names import child_name
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import RunInput
from perdure.engine.starts import ParentClosePolicy, ParentReference, WorkflowStart, too_deep
from perdure.engine.state import PendingActivity, PendingChild, PendingExternal, RunStatus, State
from perdure.engine.step import Transition, next_wake, start, step
from perdure.language.program import retry_rules
from perdure.simulation.cast import Cast
from perdure.simulation.players import (
    Chain,
    Player,
    Role,
    Run,
    ScriptedChild,
    Try,
    closed_input,
    definition_of,
    first_run,
    next_run,
    no_pod,
    outcome_of,
)
from perdure.simulation.scenario import Attempt, Child, Scenario, Signal
from perdure.simulation.script import LOST, Script, attempt_failure, beats, child_failure, exit_code
from perdure.simulation.timeline import Moment, length, tell, why

LONGEST = timedelta(days=36_525)
"""How much virtual time a simulation may take: 100 years."""
WHO = "scenario"
"""Who asks for what the scenario says."""

_MANY = 50
"""Attempts or runs that may be why a simulation does not end."""
_SILENT_ATTEMPT = Attempt()
_SILENT_CHILD = Child()


class EndlessError(Exception):
    """The simulation does not come to an end. The message says what it was at, and what to do."""


class World:
    """A simulation. `play` takes it to its end."""

    def __init__(self, cast: Cast, scenario: Scenario) -> None:
        self.cast = cast
        self.scenario = scenario
        self.now = self.start = scenario.start_time
        self.timeline: list[Moment] = []
        self.tries: list[Try] = []
        self.players: list[Player] = []
        self.dead_letters: list[Any] = []
        self.count = 0
        self._heap: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = 0
        self._runs = 0
        self._touched: dict[str, Run] = {}
        self._activities = Script(scenario.activities)
        self._children = Script(scenario.children)
        self._busiest: Counter[str] = Counter()
        self.lead = self._enter_lead()

    # The loop

    def play(self) -> None:
        """Let everything happen, until nothing more will.

        Raises:
            EndlessError: it goes on and on.
        """
        try:
            while self._heap:
                self.now = max(self._heap[0][0], self.now)
                self._check_time()
                while self._heap and self._heap[0][0] <= self.now:
                    heapq.heappop(self._heap)[2]()
                touched, self._touched = self._touched, {}
                for run in touched.values():
                    self._advance(run)
        except EndlessError:
            if self.lead.open:
                raise  # what goes on after the run has closed, such as an abandoned child, goes on as long as it may

    def _at(self, time: datetime, happens: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (time, self._order, happens))

    def _tell(self, run: Run, *inputs: RunInput) -> None:
        """Put something into a run's inbox, now."""
        run.inbox += inputs
        self._touch(run)

    def _touch(self, run: Run) -> None:
        if run.state is not None:
            self._touched[run.run_id] = run

    def _note(self, run: Run, path: str, word: str, told: str) -> None:
        self.timeline.append(Moment(self.now, run.name, path, word, told))

    def _check_time(self) -> None:
        if self.now > self.start + LONGEST:
            raise EndlessError(
                f"the run goes on beyond 100 years of virtual time{self._at_what()}; end it with `cancelAt` or "
                "`terminateAt`, or let it come to an end"
            )

    def _spend(self, number: int) -> None:
        self.count += number
        if self.count > self.scenario.max_events:
            raise EndlessError(
                f"the run has not ended after {self.scenario.max_events:,} events and attempts{self._at_what()}; let it "
                "come to an end, or raise `maxEvents` of the scenario"
            )

    def _at_what(self) -> str:
        activity, tries = max(self._busiest.items(), key=lambda item: item[1], default=("", 0))
        if tries > max(self.count // 2, _MANY):
            return f": activity `{activity}` had {tries:,} attempts, so let one succeed or set `maximumAttempts`"
        runs = len(self.lead.runs)
        return f": it has continued as {runs:,} runs" if runs > _MANY else ""

    # Passes

    def _advance(self, run: Run) -> None:
        if not run.open or run.state is None:
            run.inbox.clear()
            return
        inputs = [*self._readings(run, run.state), *run.inbox]
        run.inbox = []
        self._took(run, step(run.state, inputs, self.now, run.decider))

    def _readings(self, run: Run, state: State) -> list[RunInput]:
        """What the Leases say of attempts that may end now."""
        ending = {item.scheduled_event_id for item in run.inbox if isinstance(item, inp.AttemptInput)}
        found: list[RunInput] = []
        for activity in state.activities.values():
            tried = run.tries.get((activity.scheduled_event_id, activity.attempt))
            due = any(deadline <= self.now for deadline, _ in activity.deadlines())
            if tried and tried.beats and (due or activity.scheduled_event_id in ending):
                last = tried.beats.last(self.now)
                found.append(inp.HeartbeatRead(**tried.names, time=last, details=last and tried.beats.details))
        return found

    def _took(self, run: Run, transition: Transition) -> None:
        """A pass was made: it is recorded, and what the state asks for is done."""
        while True:
            run.state = transition.state
            self._record(run, transition.events)
            if not transition.more:
                break
            transition = step(run.state, (), self.now, run.decider)
        state = run.state
        self._start_due(run, state)
        self._tell_to_stop(run, state)
        for child in state.children.values():
            self._see_to_child(run, child, closed=state.closed)
        for external in state.externals.values():
            self._see_to_external(run, external)
        if state.closed:
            run.tree.close(self.now)
            self._closed(run, state)
        else:
            self._wake(run, next_wake(_worth_waking(state), self.now))

    def _record(self, run: Run, events: tuple[ev.AnyEvent, ...]) -> None:
        run.events += events
        for key, tried in list(run.tries.items()):
            self._settle(run, tried, events)
            if tried.end is not None:
                del run.tries[key]
        for event in events:
            told = tell(event)
            if told is not None:
                self._note(run, *told)
        self.dead_letters += [
            event.details for event in events if isinstance(event, ev.MarkerRecorded) and event.details is not None
        ]
        self._spend(len(events))

    def _wake(self, run: Run, time: datetime | None) -> None:
        """Arrange that a run is woken, where it is not already."""
        if time is None or (run.wake is not None and self.now < run.wake <= time):
            return
        run.wake = time
        self._at(time, lambda: self._touch(run))

    # Attempts

    def _start_due(self, run: Run, state: State) -> None:
        if state.closed or state.paused:
            return
        for activity in state.activities.values():
            key = activity.scheduled_event_id, activity.attempt
            if activity.scheduled_time <= self.now and key not in run.tries and not activity.paused:
                run.tries[key] = self._start_attempt(run, activity)

    def _start_attempt(self, run: Run, activity: PendingActivity) -> Try:
        scripted = self._activities.next(activity.activity_type, activity.input)
        entry = scripted or _SILENT_ATTEMPT
        begins = self.now + entry.starts_after
        silent = activity.heartbeat_timeout
        tried = Try(
            run=run,
            activity=activity.activity_type,
            path=activity.activity_id,
            event_id=activity.scheduled_event_id,
            number=activity.attempt,
            entry=entry,
            scripted=scripted is not None,
            start=begins,
            beats=beats(entry, begins, silent) if silent else None,
        )
        self.tries.append(tried)
        self._busiest[tried.activity] += 1
        self._spend(1)
        impossible = no_pod(run, tried.activity, activity.input, tried.number)
        if impossible is not None:
            ends = inp.AttemptFailed(**tried.names, failure=impossible, started_time=None)
            self._at(self.now, lambda: self._tell(run, ends))
            return tried
        number = f", attempt {tried.number}" if tried.number > 1 else ""
        self._note(run, tried.path, "Running", f"activity {tried.activity}{number}")
        self._at(begins, lambda: self._tell(run, inp.AttemptStarted(**tried.names, time=begins)))
        if not entry.hang:
            end = self._end_of(tried)
            self._at(begins + entry.after, lambda: self._tell(run, end))
        falls_silent = tried.beats.silence(silent) if tried.beats and silent else None
        if falls_silent is not None:
            self._at(falls_silent, lambda: self._touch(run))
        return tried

    def _end_of(self, tried: Try) -> RunInput:
        """What becomes of an attempt by itself."""
        if tried.entry.lost:
            return inp.AttemptLost(**tried.names, failure=LOST, started_time=tried.start)
        failure = attempt_failure(tried.entry, definition_of(tried.run, tried.activity))
        if failure is not None:
            return inp.AttemptFailed(**tried.names, failure=failure, started_time=tried.start)
        assert exit_code(tried.entry) == 0
        return inp.AttemptCompleted(**tried.names, result=tried.entry.output, started_time=tried.start)

    def _tell_to_stop(self, run: Run, state: State) -> None:
        """Attempts that are to stop hear of it at their next heartbeat; those without heartbeats at once."""
        for activity in state.activities.values():
            tried = run.tries.get((activity.scheduled_event_id, activity.attempt))
            if tried is None or tried.told or not activity.cancel_requested:
                continue
            tried.told = True
            if tried.entry.ignores_cancel:
                continue
            scripted = tried.beats if tried.entry.heartbeats else None
            time = (scripted.next(self.now) if scripted else None) or self.now
            stopped = inp.AttemptCancelled(**tried.names, started_time=tried.start)
            self._at(time, lambda run=run, stopped=stopped: self._tell(run, stopped))  # type: ignore[misc]

    def _settle(self, run: Run, tried: Try, events: tuple[ev.AnyEvent, ...]) -> None:
        """Find out whether an attempt has ended with these events, and how."""
        assert run.state is not None
        activity = run.state.activity(tried.event_id)
        if tried.is_of(activity):
            return
        if activity is not None:
            failure = activity.last_failure
            assert failure is not None
            tried.close(self.now, outcome_of(failure), failure)
            again = f"attempt {activity.attempt} in {length(activity.scheduled_time - self.now)}"
            self._note(run, tried.path, "BackingOff", f"attempt {tried.number} failed: {why(failure)}; {again}")
            return
        match next((e for e in reversed(events) if getattr(e, "scheduled_event_id", 0) == tried.event_id), None):
            case ev.ActivityTaskCompleted():
                tried.close(self.now, "Completed")
            case ev.ActivityTaskFailed(failure=failure) | ev.ActivityTaskTimedOut(failure=failure):
                tried.close(self.now, outcome_of(failure), failure)
            case ev.ActivityTaskCanceled():
                tried.close(self.now, "Cancelled")
            case _:
                tried.close(self.now, "Stopped")

    # Children

    def _see_to_child(self, run: Run, child: PendingChild, *, closed: bool) -> None:
        abandoned = child.parent_close_policy is ParentClosePolicy.ABANDON
        if child.start is not None and child.initiated_event_id not in run.asked and (not closed or abandoned):
            run.asked.add(child.initiated_event_id)
            self._start_child(run, child, child.start)
        elif closed and not abandoned:
            player = next((p for p in self.players if p.open and p.parent == (run, child.initiated_event_id)), None)
            if player is None:
                return
            if child.parent_close_policy is ParentClosePolicy.TERMINATE:
                self._ask(
                    player, inp.TerminateRequested(request_id=f"close/{run.run_id}", reason="its parent has closed")
                )
            else:
                self._ask(player, inp.CancelRequested(request_id=f"close/{run.run_id}", reason="its parent has closed"))

    def _start_child(self, run: Run, child: PendingChild, wanted: WorkflowStart) -> None:
        refused = too_deep(run.chain.role.depth + 1) or self._refusal(wanted)
        number = child.initiated_event_id
        if refused is not None:
            self._at(
                self.now, lambda: self._tell(run, inp.ChildStartFailed(initiated_event_id=number, failure=refused))
            )
            return
        player = self._child_chain(run, number, wanted) or self._scripted_child(run, number, wanted)
        run_id = player.current.run_id if isinstance(player, Chain) else player.run_id
        self._at(self.now, lambda: self._tell(run, inp.ChildStarted(initiated_event_id=number, run_id=run_id)))

    def _refusal(self, wanted: WorkflowStart) -> Failure | None:
        """Why a workflow id cannot be used (again)."""
        same = [p for p in self.players if _workflow_id(p) == wanted.workflow_id]
        policy = wanted.workflow_id_reuse_policy
        if any(p.open for p in same):
            why = "a run with it is open"
        elif same and (
            policy == "RejectDuplicate"
            or (policy == "AllowDuplicateFailedOnly" and same[-1].status is RunStatus.COMPLETED)
        ):
            why = f"the newest run with it is {same[-1].status}, and the reuse policy is {policy}"
        else:
            return None
        return Failure(
            kind=FailureKind.APPLICATION,
            type="WorkflowExecutionAlreadyStarted",
            message=f"workflow id `{wanted.workflow_id}` is taken: {why}",
            non_retryable=True,
        )

    def _child_chain(self, run: Run, event_id: int, wanted: WorkflowStart) -> Chain | None:
        """A child whose Workflow is among the files: it is simulated itself."""
        program = self.cast.programs.get(wanted.workflow_type)
        if program is None:
            return None
        role = Role(
            workflow_type=wanted.workflow_type,
            workflow_id=wanted.workflow_id,
            namespace=run.chain.role.namespace,
            program=program,
            execution_timeout=wanted.workflow_execution_timeout,
            run_timeout=wanted.workflow_run_timeout,
            task_timeout=wanted.workflow_task_timeout,
            retry_policy=wanted.retry_policy,
            search_attributes=wanted.search_attributes,
            depth=run.chain.role.depth + 1,
            parent=ParentReference(
                name=run.name, workflow_id=run.chain.role.workflow_id, run_id=run.run_id, initiated_event_id=event_id
            ),
        )
        chain = Chain(role=role, parent=(run, event_id))
        self._enter(chain, child_name(run.name, event_id), wanted.input)
        return chain

    def _scripted_child(self, run: Run, event_id: int, wanted: WorkflowStart) -> ScriptedChild:
        scripted = self._children.next(wanted.workflow_type, wanted.input)
        entry = scripted or _SILENT_CHILD
        self._runs += 1
        child = ScriptedChild(
            workflow_type=wanted.workflow_type,
            workflow_id=wanted.workflow_id,
            run_id=f"00000000-0000-4000-8000-{self._runs:012}",
            parent=(run, event_id),
            entry=entry,
            scripted=scripted is not None,
            start=self.now,
        )
        self.players.append(child)
        if not entry.hang:
            failure = child_failure(entry.fail) if entry.fail else None
            status = RunStatus.FAILED if failure else RunStatus.COMPLETED
            self._at(self.now + entry.after, lambda: self._close_scripted(child, status, failure))
        return child

    def _close_scripted(self, child: ScriptedChild, status: RunStatus, failure: Failure | None = None) -> None:
        if child.open:
            child.end, child.status = self.now, status
            parent, event_id = child.parent
            result = child.entry.output if status is RunStatus.COMPLETED else None
            self._tell(parent, closed_input(child, event_id, result, failure))

    # Other runs

    def _see_to_external(self, run: Run, external: PendingExternal) -> None:
        if external.initiated_event_id in run.asked:
            return
        run.asked.add(external.initiated_event_id)
        player = next((p for p in self.players if p.open and _workflow_id(p) == external.workflow_id), None)
        failure = None
        if player is None:
            failure = Failure(
                kind=FailureKind.APPLICATION,
                type="ExternalWorkflowExecutionNotFound",
                message=f"there is no open run with workflow id `{external.workflow_id}`",
                non_retryable=True,
            )
        else:
            request_id, who = f"{run.run_id}/{external.initiated_event_id}", run.chain.role.workflow_id
            if external.signal_id is None:
                self._ask(player, inp.CancelRequested(request_id=request_id, reason=external.reason, identity=who))
            else:
                self._ask(
                    player,
                    inp.SignalRequested(
                        request_id=request_id, signal_name=external.signal_name, input=external.input, identity=who
                    ),
                )
        done = inp.ExternalDone(initiated_event_id=external.initiated_event_id, failure=failure)
        self._at(self.now, lambda: self._tell(run, done))

    def _ask(self, player: Player, request: inp.Request) -> None:
        """Hand a request to a run that is open; it takes it in a pass of its own, in this moment."""
        if isinstance(player, Chain):
            self._at(self.now, lambda: self._tell(player.current, request))
        elif isinstance(request, inp.TerminateRequested):
            why = Failure(kind=FailureKind.TERMINATED, message=request.reason)
            self._at(self.now, lambda: self._close_scripted(player, RunStatus.TERMINATED, why))
        elif isinstance(request, inp.CancelRequested) and not player.entry.ignores_cancel:
            self._at(self.now, lambda: self._close_scripted(player, RunStatus.CANCELLED))

    # Beginning and closing

    def _enter_lead(self) -> Chain:
        lead, scenario = self.cast.lead, self.scenario
        spec = lead.spec
        role = Role(
            workflow_type=lead.workflow_type,
            workflow_id=spec.workflow_id or lead.name,
            namespace=lead.namespace,
            program=lead.program,
            execution_timeout=spec.execution_timeout or None,
            run_timeout=spec.run_timeout or None,
            task_timeout=spec.task_timeout,
            retry_policy=retry_rules(spec.retry_policy) if spec.retry_policy else None,
            search_attributes=spec.search_attributes,
        )
        chain = Chain(role=role)
        given = scenario.input if scenario.input is not None else spec.input
        delay = {"first_workflow_task_backoff": spec.start_delay} if spec.start_delay else {}
        self._enter(chain, lead.name, given, **delay)
        chain.current.paused = spec.start_paused
        for signal in scenario.signals:
            self._at(self.start + signal.at, lambda signal=signal: self._signal(signal))  # type: ignore[misc]
        for time, request in (
            (scenario.pause_at, inp.PauseRequested(request_id="pause", identity=WHO)),
            (scenario.unpause_at, inp.UnpauseRequested(request_id="unpause", identity=WHO)),
            (scenario.cancel_at, inp.CancelRequested(request_id="cancel", identity=WHO)),
            (scenario.terminate_at, inp.TerminateRequested(request_id="terminate", reason="terminated", identity=WHO)),
        ):
            if time is not None:
                self._at(self.start + time, lambda request=request: self._request(request))  # type: ignore[misc]
        return chain

    def _signal(self, signal: Signal) -> None:
        request = inp.SignalRequested(
            request_id=f"signal/{self._order}", signal_name=signal.name, input=signal.input, identity=WHO
        )
        self._order += 1
        self._request(request, signal.workflow_id)

    def _request(self, request: inp.Request, workflow_id: str | None = None) -> None:
        """Something that the scenario asks of a run."""
        player: Player | None = self.lead
        if workflow_id is not None:
            player = next((p for p in self.players if p.open and _workflow_id(p) == workflow_id), None)
        what = getattr(request, "signal_name", "") or type(request).__name__.removesuffix("Requested").lower()
        if player is None or not player.open:
            self._note(self.lead.current, "", "Skipped", f"`{what}` came to nobody: no such run is open")
        elif isinstance(player, Chain):
            self._tell(player.current, request)

    def _enter(self, chain: Chain, name: str, given: Any, **options: Any) -> None:
        """A new chain begins, in this moment."""
        self._runs += 1
        run = first_run(chain, name=name, number=self._runs, now=self.now, given=given, **options)
        chain.runs.append(run)
        self.players.append(chain)
        self._at(self.now, lambda: self._begin(run))

    def _begin(self, run: Run) -> None:
        self._took(run, start(run.first, run.decider, run.signals, paused=run.paused))
        if run.inbox:
            self._touch(run)

    def _closed(self, run: Run, state: State) -> None:
        chain, closing = run.chain, run.events[-1]
        if state.start_successor:
            self._runs += 1
            chain.runs.append(next_run(run, closing, number=self._runs, now=self.now))
            self._at(self.now, lambda: self._begin(chain.current))
        elif chain.parent is not None:
            parent, event_id = chain.parent
            told = closed_input(chain, event_id, getattr(closing, "result", None), ev.failure_of(closing))
            self._at(self.now, lambda: self._tell(parent, told))


def _worth_waking(state: State) -> State:
    """The state without what a run need not be woken for.

    The world knows when an attempt falls silent, and wakes the run then; and what cannot be decided cannot be later, since
    nobody mends the definition meanwhile.
    """
    return msgspec.structs.replace(
        state,
        task=None,
        activities={
            key: msgspec.structs.replace(activity, heartbeat_timeout=None) for key, activity in state.activities.items()
        },
    )


def _workflow_id(player: Player) -> str:
    return player.role.workflow_id if isinstance(player, Chain) else player.workflow_id
