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
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.loop import DeadlockError, TimeLimitError, VirtualLoop
from perdure.simulation.cluster.process import Operator, Session, task_factory
from perdure.simulation.cluster.store import Object, ObjectKey, Write
from perdure.simulation.manifests import Definitions
from perdure.simulation.scenario import Scenario, ScriptedAttempt
from perdure.simulation.script import ScriptedEntries, ScriptedKubelet, scripted_definition
from perdure.simulation.transcript import (
    EndlessError,
    SimulatedChain,
    SimulatedChild,
    Transcript,
    WorkflowInfo,
    workflow_id_of,
)

MAX_DURATION = timedelta(days=36_525)
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


class Simulator:
    """Simulates a Workflow or a run. `run` does so to the end."""

    def __init__(
        self, definitions: Definitions, scenario: Scenario, attempts: ScriptedEntries[ScriptedAttempt] | None = None
    ) -> None:
        """Prepare a simulation without starting it.

        Args:
            definitions: What is simulated.
            scenario: What happens meanwhile.
            attempts: How attempts end; by default, as the scenario says.
        """
        self.definitions = definitions
        self.scenario = scenario
        self.start = definitions.target.start
        self._errors: list[Exception] = []
        self._requests = 0
        self._children = ScriptedEntries(scenario.children)
        self._loop = VirtualLoop(self.start, lasts=MAX_DURATION)
        self._loop.set_task_factory(task_factory)
        self._loop.set_exception_handler(self._failed)
        target = definitions.target
        workflow = WorkflowInfo(
            workflow_type=target.workflow_type,
            workflow_id=target.spec.workflow_id or target.name,
            namespace=target.namespace,
            program=target.program,
        )
        self.transcript = Transcript(
            self._loop,
            SimulatedChain(workflow=workflow),
            definitions.programs,
            max_events=scenario.max_events,
            give_up=self._give_up,
        )
        self._root = self.transcript.root
        self._server = _NumberedServer(self._loop, Random(0))  # noqa: S311 - it must be the same every time
        self._server.admit = self._admit
        self._server.observers.append(self._observe)
        script = ScriptedEntries(scenario.activities) if attempts is None else attempts
        ScriptedKubelet(self._loop, self._server, script, self.transcript.started)

    def run(self) -> None:
        """Run the simulation until nothing more can happen.

        Raises:
            EndlessError: The simulation does not end.
        """
        with json_logs.silent():
            copy_context().run(self._run)
        for run in self.transcript.runs:
            if run.state is not None and not run.state.ended_undecided:
                undecided, unfinished = len(run.state.undecided), run.state.unfinished
                history.replay(run.events, run.decider, undecided=undecided, unfinished=unfinished)
        for error in self._errors:
            if self._root.open or not isinstance(error, EndlessError):
                raise error  # a child that continues after the run has closed, such as an abandoned one, has no limit
        if not self._root.runs:
            reason = self._why_pending()
            raise EndlessError(f"the run never starts: {reason}; change what it waits for, or end it with `cancelAt`")

    def _why_pending(self) -> str:
        """What the conditions of the run say while it has not started."""
        run = self._server.get(ObjectKey("workflowruns", self._root.workflow.namespace, self.definitions.target.name))
        return "; ".join(
            each["message"] for each in run.get("status", {}).get("conditions", ()) if each["status"] != "True"
        )

    def _run(self) -> None:
        clock.polling.set(False)
        loop = self._loop
        self._set_up()
        session = Session(self._server, "operator")
        try:
            operator = Operator(OperatorOptions(), loop, self._server, session, crashed=self._crashed)
            try:
                with suppress(DeadlockError):  # nothing more can happen
                    loop.run_forever()
            except TimeLimitError:
                self._errors.append(
                    EndlessError(
                        f"the run continues beyond 100 years of virtual time{self.transcript.repeated_work()}; end it with "
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
        self._errors.append(error)
        self._loop.stop()

    # Requests of users

    def _set_up(self) -> None:
        target, scenario = self.definitions.target, self.scenario
        for name, program in self.definitions.programs.items():
            self._create("workflows", "Workflow", name, program.spec.dump())
        for name, limit in self.definitions.limits.items():
            self._create("workflowlimits", "WorkflowLimit", name, limit.spec.dump())
        for name in self._claims():
            claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
            self._server.create("persistentvolumeclaims", claim, namespace=target.namespace)
        for body in self._earlier_results():
            self._server.create("cachedresults", body, namespace=target.namespace)
        run_input = {} if scenario.input is None else {"input": scenario.input}
        for signal in scenario.signals:
            request = {"name": signal.name} | ({} if signal.input is None else {"input": signal.input})
            self._request_at(signal.at, "signal", request, signal.workflow_id, signal.sender)
        terminate = {"reason": "terminated"}
        for at, verb, request in (
            (scenario.pause_at, "pause", {}),
            (scenario.unpause_at, "unpause", {}),
            (scenario.cancel_at, "cancel", {}),
            (scenario.terminate_at, "terminate", terminate),
        ):
            if at is not None:
                self._request_at(at, verb, request, None)
        self._create(
            "workflowruns", "WorkflowRun", target.name, {**target.spec.dump(), **run_input}, target.annotations
        )

    def _claims(self) -> set[str]:
        """The names of the claims that workspaces use. These claims exist in a simulation."""
        programs = (self.definitions.target.program, *self.definitions.programs.values())
        workspaces = (each.persistent_volume_claim for program in programs for each in program.spec.workspaces or ())
        return {claim.claim_name for claim in workspaces if claim is not None}

    def _earlier_results(self) -> Iterable[Object]:
        """The cached results that exist when the run starts."""
        found: dict[str, Object] = {}
        earlier = RunRef(namespace=self._root.workflow.namespace, name="earlier", uid="earlier", workflow_id="earlier")
        programs = (self.definitions.target.program, *self.definitions.programs.values())
        for definition in (each for program in programs for each in program.activities.values()):
            if definition.cache is None:
                continue
            for each in self.scenario.cached.get(definition.name, ()):
                key, completed = CacheKey.of(definition, each.key), self.start - each.age
                expiry = completed + definition.cache.max_age
                result = AttemptCompleted(scheduled_event_id=0, attempt=1, result=each.output)
                found[key.name] = build_cached_result(key, earlier, definition.name, result, completed, expiry)
        return found.values()

    def _request_at(self, at: timedelta, verb: str, request: Object, workflow_id: str | None, user: str = "") -> None:
        self._requests += 1
        self._loop.call_at(
            at.total_seconds(), self._request, f"scenario-{self._requests}", verb, request, workflow_id, user
        )

    def _request(self, name: str, verb: str, request: Object, workflow_id: str | None, user: str) -> None:
        """Create an Operation on a run, as users do."""
        wanted = workflow_id or self._root.workflow.workflow_id
        if any(execution.open and workflow_id_of(execution) == wanted for execution in self.transcript.executions):
            spec = {"target": {"kind": "WorkflowRun", "workflowId": wanted}, verb: request}
            self._create("operations", "Operation", name, spec, {CREATED_BY_ANNOTATION: user} if user else {})
        else:
            message = f"`{request.get('name', verb)}` was not delivered: no such run is open"
            self.transcript.add_entry(self._root.current, "", "Skipped", message)

    def _create(
        self, plural: str, kind: str, name: str, spec: Object, annotations: Mapping[str, str] | None = None
    ) -> None:
        metadata = {"name": name, **({"annotations": dict(annotations)} if annotations else {})}
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        self._server.create(plural, body, namespace=self._root.workflow.namespace)

    # Scripted children

    def _admit(self, key: ObjectKey, obj: Object) -> None:
        """Give a child whose Workflow is not in any of the files the behavior from the scenario."""
        named = (obj["spec"].get("workflow") or {}).get("name") if key.plural == "workflowruns" else None
        if named is None or named in self.definitions.programs or parent_of(obj) is None:
            return
        obj["spec"]["inline"] = scripted_definition(self._children.next(named, obj["spec"].get("input")))
        del obj["spec"]["workflow"]
        child = SimulatedChild(
            workflow_type=named,
            workflow_id=obj["spec"].get("workflowId") or key.name,
            run_id="",
            parent=self.transcript.parent(obj),
            start=self._loop.now(),
        )
        self.transcript.expect(key.name, child)

    def _observe(self, write: Write) -> None:
        if not self._errors:
            self.transcript.observe(write)
