"""Run a scenario with the operator itself, on an in-memory cluster and in virtual time.

manifests, scenario ─▶ objects in the API server ─▶ the operator ─▶ pods, children, … ─▶ the kubelet ends them as scripted
│
└─▶ the transcript observes every commit: timeline, attempts, histories
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from random import Random
from typing import Any

from perdure.api.labels import API_VERSION, CREATED_BY_ANNOTATION
from perdure.engine import history
from perdure.engine.inputs import AttemptCompleted
from perdure.handlers.assembly import OperatorOptions
from perdure.kube import clock
from perdure.observe import json_logs
from perdure.runtime.attempts import RunRef
from perdure.runtime.cached_results import CacheKey, build_cached_result
from perdure.runtime.chains import parent_of
from perdure.simulation.cast import Cast
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.loop import DeadlockError, TooLateError, VirtualLoop
from perdure.simulation.cluster.process import Operator, Session, task_factory
from perdure.simulation.cluster.store import Object, ObjectKey, Write
from perdure.simulation.players import ChildPlayer, Role, SimulatedChain, workflow_id_of
from perdure.simulation.scenario import Scenario
from perdure.simulation.script import ScriptedEntries, ScriptedKubelet, stand_in
from perdure.simulation.transcript import EndlessError, Transcript

LONGEST = timedelta(days=36_525)
"""The longest virtual time of a simulation: 100 years."""


class _NumberedServer(ApiServer):
    """An API server that uses numbers as UIDs of runs, so that each simulation has the same UIDs."""

    runs = 0
    log = b""

    def new_uid(self, key: ObjectKey) -> str:
        """Return a UID for a new object."""
        if key.plural != "workflowruns":
            return super().new_uid(key)
        self.runs += 1
        return f"00000000-0000-4000-8000-{self.runs:012}"


class Play:
    """A simulation. `play` runs it to its end."""

    def __init__(self, cast: Cast, scenario: Scenario) -> None:
        """Prepare a simulation without starting it."""
        self.cast = cast
        self.scenario = scenario
        self.start = scenario.start_time
        self._trouble: list[Exception] = []
        self._requests = 0
        self._children = ScriptedEntries(scenario.children)
        self._loop = VirtualLoop(self.start, lasts=LONGEST)
        self._loop.set_task_factory(task_factory)
        self._loop.set_exception_handler(self._failed)
        lead = cast.lead
        role = Role(
            workflow_type=lead.workflow_type,
            workflow_id=lead.spec.workflow_id or lead.name,
            namespace=lead.namespace,
            program=lead.program,
        )
        self.transcript = Transcript(
            self._loop,
            SimulatedChain(role=role),
            cast.programs,
            most=scenario.max_events,
            give_up=self._give_up,
        )
        self._lead = self.transcript.lead
        self._server = _NumberedServer(self._loop, Random(0))  # noqa: S311 - it must be the same every time
        self._server.admit = self._admit
        self._server.observers.append(self._observe)
        ScriptedKubelet(self._loop, self._server, ScriptedEntries(scenario.activities), self.transcript.started)

    def play(self) -> None:
        """Run the simulation until nothing more can happen.

        Raises:
            EndlessError: The simulation does not end.
        """
        with json_logs.silent():
            copy_context().run(self._play)
        for run in self.transcript.runs:
            history.retrace(run.events, run.decider)
        for error in self._trouble:
            if self._lead.open or not isinstance(error, EndlessError):
                raise error  # a child that continues after the run has closed, such as an abandoned one, has no limit

    def _play(self) -> None:
        clock.polling.set(False)
        loop = self._loop
        self._set_up()
        session = Session(self._server, "operator")
        try:
            operator = Operator(OperatorOptions(), loop, self._server, session, crashed=self._crashed)
            try:
                with suppress(DeadlockError):  # nothing more can happen
                    loop.run_forever()
            except TooLateError:
                self._trouble.append(
                    EndlessError(
                        f"the run continues beyond 100 years of virtual time{self.transcript.at_what()}; end it with "
                        "`cancelAt` or `terminateAt`, or make it end"
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

    # Requests of users

    def _set_up(self) -> None:
        lead, scenario = self.cast.lead, self.scenario
        for name, program in self.cast.programs.items():
            self._create("workflows", "Workflow", name, program.spec.dump())
        for name, limit in self.cast.limits.items():
            self._create("workflowlimits", "WorkflowLimit", name, limit.spec.dump())
        for name in self._claims():
            claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
            self._server.create("persistentvolumeclaims", claim, namespace=lead.namespace)
        for body in self._earlier_results():
            self._server.create("cachedresults", body, namespace=lead.namespace)
        given = {} if scenario.input is None else {"input": scenario.input}
        for signal in scenario.signals:
            what = {"name": signal.name} | ({} if signal.input is None else {"input": signal.input})
            self._ask_at(signal.at, "signal", what, signal.workflow_id, signal.sender)
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

    def _claims(self) -> set[str]:
        """The names of the claims that workspaces use. These claims exist in a simulation."""
        programs = (self.cast.lead.program, *self.cast.programs.values())
        workspaces = (each.persistent_volume_claim for program in programs for each in program.spec.workspaces or ())
        return {claim.claim_name for claim in workspaces if claim is not None}

    def _earlier_results(self) -> Iterable[Object]:
        """The cached results that exist when the run starts."""
        found: dict[str, Object] = {}
        earlier = RunRef(namespace=self._lead.role.namespace, name="earlier", uid="earlier", workflow_id="earlier")
        programs = (self.cast.lead.program, *self.cast.programs.values())
        for definition in (each for program in programs for each in program.activities.values()):
            if definition.cache is None:
                continue
            for each in self.scenario.cached.get(definition.name, ()):
                key, completed = CacheKey.of(definition, each.key), self.start - each.age
                expiry = completed + definition.cache.max_age
                result = AttemptCompleted(scheduled_event_id=0, attempt=1, result=each.output)
                found[key.name] = build_cached_result(key, earlier, definition.name, result, completed, expiry)
        return found.values()

    def _ask_at(self, at: timedelta, verb: str, what: Object, workflow_id: str | None, user: str = "") -> None:
        self._requests += 1
        self._loop.call_at(at.total_seconds(), self._ask, f"scenario-{self._requests}", verb, what, workflow_id, user)

    def _ask(self, name: str, verb: str, what: Object, workflow_id: str | None, user: str) -> None:
        """Create an Operation on a run, as users do."""
        wanted = workflow_id or self._lead.role.workflow_id
        if any(player.open and workflow_id_of(player) == wanted for player in self.transcript.players):
            spec = {"target": {"kind": "WorkflowRun", "workflowId": wanted}, verb: what}
            self._create("operations", "Operation", name, spec, {CREATED_BY_ANNOTATION: user} if user else {})
        else:
            message = f"`{what.get('name', verb)}` was not delivered: no such run is open"
            self.transcript.note(self._lead.current, "", "Skipped", message)

    def _create(
        self, plural: str, kind: str, name: str, spec: Object, annotations: Mapping[str, str] | None = None
    ) -> None:
        metadata = {"name": name, **({"annotations": dict(annotations)} if annotations else {})}
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        self._server.create(plural, body, namespace=self._lead.role.namespace)

    # Scripted children

    def _admit(self, key: ObjectKey, obj: Object) -> None:
        """Give a child whose Workflow is not in any of the files the behavior from the scenario."""
        named = (obj["spec"].get("workflow") or {}).get("name") if key.plural == "workflowruns" else None
        if named is None or named in self.cast.programs or parent_of(obj) is None:
            return
        obj["spec"]["inline"] = stand_in(self._children.next(named, obj["spec"].get("input")))
        del obj["spec"]["workflow"]
        child = ChildPlayer(
            workflow_type=named,
            workflow_id=obj["spec"].get("workflowId") or key.name,
            run_id="",
            parent=self.transcript.parent(obj),
            start=self._loop.now(),
        )
        self.transcript.expect(key.name, child)

    def _observe(self, write: Write) -> None:
        if not self._trouble:
            self.transcript.observe(write)
