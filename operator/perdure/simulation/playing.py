"""A scenario played by the operator itself, on a cluster in memory and in virtual time.

manifests, scenario ─▶ objects in the API server ─▶ the operator ─▶ pods, children, … ─▶ the kubelet ends them as scripted
│
└─▶ every commit is watched: timeline, attempts, histories
"""

import asyncio
from collections import Counter
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from random import Random
from typing import Any

from perdure.api.common import API_VERSION
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.state import RunState
from perdure.handlers.assembly import OperatorOptions
from perdure.kube import clock
from perdure.observe import logs
from perdure.runtime.chains import continuation_of, parent_of
from perdure.simulation.cast import Cast
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.loop import DeadlockError, TooLateError, VirtualLoop
from perdure.simulation.cluster.process import Operator, task_factory
from perdure.simulation.cluster.registry import Write
from perdure.simulation.cluster.session import Session
from perdure.simulation.cluster.storage import Object, ObjectKey
from perdure.simulation.players import (
    Player,
    Role,
    ScriptedChild,
    SimulatedChain,
    SimulatedRun,
    Try,
    make_run,
    outcome_of,
    workflow_id_of,
)
from perdure.simulation.pods import ScriptedKubelet, Started
from perdure.simulation.scenario import Scenario
from perdure.simulation.script import Script, stand_in
from perdure.simulation.timeline import Moment, length, tell, why

LONGEST = timedelta(days=36_525)
"""How much virtual time a simulation may take: 100 years."""

_MANY = 50
"""Attempts or runs that may be why a simulation does not end."""


class EndlessError(Exception):
    """The simulation does not come to an end. The message says what it was at, and what to do."""


class _Server(ApiServer):
    """Runs have numbers for UIDs, the same in every simulation."""

    runs = 0
    log = b""

    def new_uid(self, key: ObjectKey) -> str:
        """A UID for a new object."""
        if key.plural != "workflowruns":
            return super().new_uid(key)
        self.runs += 1
        return f"00000000-0000-4000-8000-{self.runs:012}"


class Play:
    """A simulation. `play` takes it to its end."""

    def __init__(self, cast: Cast, scenario: Scenario) -> None:
        """Nothing happens yet."""
        self.cast = cast
        self.scenario = scenario
        self.start = scenario.start_time
        self.timeline: list[Moment] = []
        self.tries: list[Try] = []
        self.players: list[Player] = []
        self.dead_letters: list[Any] = []
        self.count = 0
        self.end = self.start
        """When the last thing happened."""
        lead = cast.lead
        self.lead = SimulatedChain(
            role=Role(
                workflow_type=lead.workflow_type,
                workflow_id=lead.spec.workflow_id or lead.name,
                namespace=lead.namespace,
                program=lead.program,
            )
        )
        self._trouble: list[Exception] = []
        self._asked = 0
        self._runs: dict[str, SimulatedRun] = {}
        self._chains: dict[str, SimulatedChain] = {}
        """By the UID of each of their runs."""
        self._scripted: dict[str, ScriptedChild] = {}
        self._busiest: Counter[str] = Counter()
        self._children = Script(scenario.children)
        self._loop = VirtualLoop(self.start, lasts=LONGEST)
        self._loop.set_task_factory(task_factory)
        self._loop.set_exception_handler(self._failed)
        self._server = _Server(self._loop, Random(0))  # noqa: S311 - it is to be the same every time
        self._server.admit = self._admit
        self._server.observers.append(self._observe)
        ScriptedKubelet(self._loop, self._server, Script(scenario.activities), self._started)

    def play(self) -> None:
        """Let everything happen, until nothing more will.

        Raises:
            EndlessError: it goes on and on.
        """
        with logs.silent():
            copy_context().run(self._play)
        for run in self._runs.values():
            history.retrace(run.events, run.decider)
            if run.state is not None and run.state.closed and run.state.close_time is not None:
                run.tree.close(run.state.close_time)
        for error in self._trouble:
            if self.lead.open or not isinstance(error, EndlessError):
                raise error  # what goes on after the run has closed, such as an abandoned child, goes on as long as it may

    def _play(self) -> None:
        clock.polling.set(False)
        loop = self._loop
        self._set_up()
        session = Session(self._server, "operator")
        try:
            operator = Operator(OperatorOptions(), loop, self._server, session, crashed=self._crashed)
            try:
                with suppress(DeadlockError):  # nothing more will happen
                    loop.run_forever()
            except TooLateError:
                self._trouble.append(
                    EndlessError(
                        f"the run goes on beyond 100 years of virtual time{self._at_what()}; end it with `cancelAt` or "
                        "`terminateAt`, or let it come to an end"
                    )
                )
            loop.run_until_complete(operator.kill())
        finally:
            loop.close()

    def _crashed(self, message: str) -> None:
        self._give_up(RuntimeError(message))

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._give_up(context.get("exception") or RuntimeError(context["message"]))

    def _give_up(self, error: Exception) -> None:
        self._trouble.append(error)
        self._loop.stop()

    # What people do

    def _set_up(self) -> None:
        lead, scenario = self.cast.lead, self.scenario
        for name, program in self.cast.programs.items():
            self._create("workflows", "Workflow", name, program.spec.dump())
        given = {} if scenario.input is None else {"input": scenario.input}
        for signal in scenario.signals:
            what = {"name": signal.name} | ({} if signal.input is None else {"input": signal.input})
            self._ask_at(signal.at, "signal", what, signal.workflow_id)
        terminate = {"reason": "terminated"}
        for at, verb, what in (
            (scenario.pause_at, "pause", {}),
            (scenario.unpause_at, "unpause", {}),
            (scenario.cancel_at, "cancel", {}),
            (scenario.terminate_at, "terminate", terminate),
        ):
            if at is not None:
                self._ask_at(at, verb, what, None)
        self._create("workflowruns", "WorkflowRun", lead.name, {**lead.spec.dump(), **given})

    def _ask_at(self, at: timedelta, verb: str, what: Object, workflow_id: str | None) -> None:
        self._asked += 1
        self._loop.call_at(at.total_seconds(), self._ask, f"scenario-{self._asked}", verb, what, workflow_id)

    def _ask(self, name: str, verb: str, what: Object, workflow_id: str | None) -> None:
        """Ask a run for something, by an Operation as people do."""
        wanted = workflow_id or self.lead.role.workflow_id
        if any(player.open and workflow_id_of(player) == wanted for player in self.players):
            self._create(
                "operations", "Operation", name, {"target": {"kind": "WorkflowRun", "workflowId": wanted}, verb: what}
            )
        else:
            told = f"`{what.get('name', verb)}` came to nobody: no such run is open"
            self._note(self.lead.current, "", "Skipped", told)

    def _create(self, plural: str, kind: str, name: str, spec: Object) -> None:
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self._server.create(plural, body, namespace=self.lead.role.namespace)

    # Children that the scenario speaks for

    def _admit(self, key: ObjectKey, obj: Object) -> None:
        """Have a child whose Workflow is in none of the files do what the scenario says."""
        named = (obj["spec"].get("workflow") or {}).get("name") if key.plural == "workflowruns" else None
        if named is None or named in self.cast.programs or parent_of(obj) is None:
            return
        obj["spec"]["inline"] = stand_in(self._children.next(named, obj["spec"].get("input")))
        del obj["spec"]["workflow"]
        self._scripted[key.name] = ScriptedChild(
            workflow_type=named,
            workflow_id=obj["spec"].get("workflowId") or key.name,
            run_id="",
            parent=self._parent(obj),
            start=self._loop.now(),
        )

    def _parent(self, obj: Object) -> tuple[SimulatedRun, int]:
        tie = parent_of(obj)
        assert tie is not None
        return self._runs[tie.run_id], tie.initiated_event_id

    # What is seen of it

    def _observe(self, write: Write) -> None:
        if self._trouble or write.type == "DELETED":
            return
        match write.key.plural:
            case "workflowruns" if write.type == "ADDED":
                self._added(write.after)
            case "workflowruns":
                self._committed(write.after)

    def _added(self, obj: Object) -> None:
        meta, before, tie = obj["metadata"], continuation_of(obj), parent_of(obj)
        scripted = self._scripted.get(meta["name"])
        if scripted is not None:
            scripted.run_id = meta["uid"]
            self.players.append(scripted)
        elif before is not None and before.run_id in self._chains:
            self._chains[meta["uid"]] = self._chains[before.run_id]
        elif tie is None:
            self._chains[meta["uid"]] = self.lead
            self.players.append(self.lead)
        else:
            named = obj["spec"]["workflow"]["name"]
            role = Role(
                workflow_type=named,
                workflow_id=obj["spec"].get("workflowId") or meta["name"],
                namespace=meta["namespace"],
                program=self.cast.programs[named],
            )
            chain = self._chains[meta["uid"]] = SimulatedChain(role=role, parent=self._parent(obj))
            self.players.append(chain)

    def _committed(self, obj: Object) -> None:
        meta, status = obj["metadata"], obj.get("status") or {}
        if "state" not in status:
            return
        if meta["name"] in self._scripted:
            self._end_scripted(self._scripted[meta["name"]], status)
            return
        known = self._runs.get(meta["uid"])
        count = len(known.events) if known else 0
        fresh = [each for each in status["history"]["events"] if each["eventId"] > count]
        state = history.decode_state(status["state"])
        events = history.decode_events(fresh)
        if known is None:
            first = events[0]
            assert isinstance(first, ev.WorkflowExecutionStarted)
            chain = self._chains[meta["uid"]]
            known = self._runs[meta["uid"]] = make_run(
                chain, first, meta["name"], meta["uid"], obj["spec"].get("input")
            )
            chain.runs.append(known)
        known.state = state
        if events:
            self.end = self._loop.now()
        self.committed(known, state, events)

    def _end_scripted(self, child: ScriptedChild, status: Object) -> None:
        state = history.decode_state(status["state"])
        child.status = state.status
        if state.closed:
            child.end = state.close_time

    def committed(self, run: SimulatedRun, state: RunState, events: tuple[ev.AnyEvent, ...]) -> None:
        """A run has committed events, and its state."""
        run.events += events
        for key, tried in list(run.tries.items()):
            self._settle(run, state, tried, events)
            if tried.end is not None:
                del run.tries[key]
        for event in events:
            self._without_pod(run, event)
            told = tell(event)
            if told is not None:
                self._note(run, *told)
        self.dead_letters += [
            event.details for event in events if isinstance(event, ev.MarkerRecorded) and event.details is not None
        ]
        self._spend(len(events))

    def _note(self, run: SimulatedRun, path: str, word: str, told: str) -> None:
        self.timeline.append(Moment(self._loop.now(), run.name, path, word, told))

    def _spend(self, number: int) -> None:
        self.count += number
        if self.count > self.scenario.max_events:
            self._give_up(
                EndlessError(
                    f"the run has not ended after {self.scenario.max_events:,} events and attempts{self._at_what()}; let it "
                    "come to an end, or raise `maxEvents` of the scenario"
                )
            )

    def _at_what(self) -> str:
        activity, tries = max(self._busiest.items(), key=lambda item: item[1], default=("", 0))
        if tries > max(self.count // 2, _MANY):
            return f": activity `{activity}` had {tries:,} attempts, so let one succeed or set `maximumAttempts`"
        runs = len(self.lead.runs)
        return f": it has continued as {runs:,} runs" if runs > _MANY else ""

    # Attempts

    def _started(self, started: Started) -> None:
        """The pod of an attempt was made."""
        run = self._runs[started.run_id]
        assert run.state is not None
        activity = run.state.activity(started.event_id)
        if activity is None:
            return
        tried = Try(
            run=run,
            activity=activity.activity_type,
            path=activity.activity_id,
            event_id=started.event_id,
            number=started.number,
            start=self._loop.now() + started.after,
        )
        run.tries[tried.event_id, tried.number] = tried
        self.tries.append(tried)
        self._busiest[tried.activity] += 1
        number = f", attempt {tried.number}" if tried.number > 1 else ""
        self._note(run, tried.path, "Running", f"activity {tried.activity}{number}")
        self._spend(1)

    def _without_pod(self, run: SimulatedRun, event: ev.AnyEvent) -> None:
        """Note an attempt that could have no pod: an expression in its container has no value."""
        if not isinstance(event, ev.ActivityTaskFailed):
            return
        if any(
            t.run is run and t.event_id == event.scheduled_event_id and t.number == event.attempt for t in self.tries
        ):
            return
        found = next(e for e in run.events if e.event_id == event.scheduled_event_id)
        assert isinstance(found, ev.ActivityTaskScheduled)
        now = self._loop.now()
        tried = Try(
            run=run,
            activity=found.activity_type,
            path=found.activity_id,
            event_id=found.event_id,
            number=event.attempt,
            start=now,
        )
        tried.close(now, outcome_of(event.failure), event.failure)
        self.tries.append(tried)
        self._busiest[tried.activity] += 1
        self._spend(1)

    def _settle(self, run: SimulatedRun, state: RunState, tried: Try, events: tuple[ev.AnyEvent, ...]) -> None:
        """Find out whether an attempt has ended with these events, and how."""
        activity = state.activity(tried.event_id)
        if tried.is_of(activity):
            return
        now = self._loop.now()
        if activity is not None:
            failure = activity.last_failure
            assert failure is not None
            tried.close(now, outcome_of(failure), failure)
            again = f"attempt {activity.attempt} in {length(activity.scheduled_time - now)}"
            self._note(run, tried.path, "BackingOff", f"attempt {tried.number} failed: {why(failure)}; {again}")
            return
        match next((e for e in reversed(events) if getattr(e, "scheduled_event_id", 0) == tried.event_id), None):
            case ev.ActivityTaskCompleted():
                tried.close(now, "Completed")
            case ev.ActivityTaskFailed(failure=failure) | ev.ActivityTaskTimedOut(failure=failure):
                tried.close(now, outcome_of(failure), failure)
            case ev.ActivityTaskCanceled():
                tried.close(now, "Cancelled")
            case _:
                tried.close(now, "Stopped")
