"""One run: the pass that takes it further.

    observed  (watch: the run, its pods)  ─┐
    looked up (a deadline is due)         ─┼─▶ step ─▶ commit ─▶ effects (pods made, pods let go) ─▶ next wake
    the clock                             ─┘             │
                                          conflict ──────┘ someone else moved: read again, decide again

What is observed of pods, and done with them, is in `attempts`; the write and its conflicts are in `commit`.

Crash windows. Before the commit nothing has happened. Between commit and effects, the committed state says what is to be
there: a restart makes the missing pods (their names are locks) and lets go of those nobody waits for. A commit whose answer was
lost looks like a conflict at the next one, and is found done.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from perdure.api.reasons import ConditionReason, EventReason
from perdure.api.workflowrun import WorkflowRunSpec
from perdure.controller import status as run_status
from perdure.controller.attempts import Attempts
from perdure.controller.commit import Record
from perdure.controller.definitions import Definition, Definitions, NotReadyError
from perdure.controller.pods import Pods
from perdure.controller.status import DamagedStateError
from perdure.controller.telling import Teller
from perdure.engine import events as ev
from perdure.engine.decider import Decider
from perdure.engine.state import State, apply
from perdure.engine.step import Transition, next_wake, start, step, terminate
from perdure.kube import client as api
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.language.interpreter import Interpreter, Refuser, RunScope, load_memory, progress, with_defaults
from perdure.language.program import InvalidWorkflowError
from perdure.observe import metrics
from perdure.runtime.attempts import RunRef

_FIRST_CONFLICT_PAUSE = timedelta(milliseconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What every run works with."""

    client: api.Client
    pods: Pods
    definitions: Definitions
    recorder: Recorder


class Run:
    """A WorkflowRun in this process. `advance` is called by one task at a time; the ``observe_…`` methods at any time."""

    def __init__(self, tools: Tools, obj: api.Object) -> None:
        meta = obj["metadata"]
        self.ref = RunRef(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            workflow_id=obj["spec"].get("workflowId") or meta["name"],
        )
        self._definitions = tools.definitions
        self._record = Record(tools.client, obj)
        self._teller = Teller(tools.recorder, self.ref)
        self._attempts = Attempts(tools.pods, self.ref, self._teller.pod_refused)
        self._state: State | None = None
        self._definition: Definition | None = None
        self._decider: Decider | None = None
        self._conflicts = 0

    # Observing

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: the run is closed or gone, and so are its pods, as far as they are ours."""
        closed = self._record.gone or (self._state is not None and self._state.closed)
        return closed and self._attempts.settled

    @property
    def waits_for_workflow(self) -> str | None:
        """The Workflow that this run cannot start without."""
        reference = self._record.object["spec"].get("workflow") or {}
        return reference.get("name") if self._state is None else None

    def observe(self, obj: api.Object) -> bool:
        """A watch shows the run; whether that is news."""
        return self._record.observe(obj)

    def observe_gone(self) -> None:
        """The run was deleted. What it has started is removed by the garbage collector, and let go here."""
        self._record.gone = True

    def observe_pod(self, pod: api.Object) -> None:
        """A watch shows one of the run's pods."""
        self._attempts.observe(pod)

    def observe_pod_gone(self, pod: api.Object) -> None:
        """One of the run's pods has disappeared."""
        self._attempts.observe_gone(pod)

    # The pass

    async def advance(self) -> datetime | None:
        """Take the run as far as it goes now; when it wants to be called again, None if only something outside can wake it.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
        """
        if self._record.gone:
            self._attempts.let_all_go()
            await self._attempts.finish_leaving()
            return None
        try:
            wake = await self._advance(wall_clock())
        except api.ConflictError:
            metrics.COMMIT_CONFLICTS.inc()
            self._conflicts += 1
            await self._read_again()
            # At once the first time; were somebody to write all the time, ever later.
            return wall_clock() + _FIRST_CONFLICT_PAUSE * ((1 << min(self._conflicts, 10)) - 2)
        except api.TooLargeError as error:
            # The spec alone fills the object, so that nothing can be written beside it. No other try would do better.
            self._teller.warn(EventReason.PAYLOAD_TOO_LARGE, run_status.refused_as_too_large(error.message), "Commit")
            return None
        except BaseException:
            self._attempts.look_again()
            raise
        self._conflicts = 0
        return wake

    async def _advance(self, now: datetime) -> datetime | None:
        # What was committed in an earlier pass may be old by now: this process may have stood still meanwhile.
        self._record.current = False
        if self._record.outdated:
            await self._read_again()
            if self._record.gone:
                return now
        if self._state is None and not await self._load(now):
            return None
        state = self._state
        assert state is not None
        if not state.closed:
            assert self._decider is not None
            observed = await self._attempts.gather(state, now)
            transition = step(state, observed, now, self._decider)
            if transition.durable:
                transition = await self._commit(transition, now)
            self._state = state = transition.state
            self._attempts.retire(transition)
            if transition.more:
                return now
        self._attempts.sort_out(state)
        await self._attempts.finish_leaving()
        for activity in self._attempts.missing(state, now):
            await self._record.confirm()
            await self._attempts.make(activity, now)
        return min(filter(None, (next_wake(state, now), self._attempts.next_wake(state, now))), default=None)

    async def _read_again(self) -> None:
        """Someone else has written, or may have: look at everything anew."""
        if await self._record.read_again():
            self._state = None
            self._attempts.look_again()

    # Beginning, and going on after a restart

    async def _load(self, now: datetime) -> bool:
        """Go on where the stored status stands, or begin; whether the run can go on."""
        spec = WorkflowRunSpec.parse(self._record.object["spec"])
        try:
            state = run_status.stored_state(self._record.status)
            if state is None:
                return await self._begin(spec, now)
            if state.activities:
                # What a watch shows may be old; pods are made only for what is so now.
                await self._read_again()
                if self._record.gone:
                    return False
                state = run_status.stored_state(self._record.status)
                assert state is not None
            if not state.closed:
                await self._resume(spec, state)
        except DamagedStateError as error:
            message = f"{error}; the run goes on when that is restored, or delete the run"
            await self._wait(ConditionReason.STATE_DAMAGED, message, now)
            return False
        if state.activities:
            await self._attempts.recover(state)
        if run_status.is_damaged(self._record.status):
            await self._record.write(run_status.compose(self._record.status, self._facts(state), state, (), now))
        self._state = state
        return True

    async def _resume(self, spec: WorkflowRunSpec, state: State) -> None:
        """Take up a run that has begun earlier.

        Raises:
            DamagedStateError: its definition is not what it was.
        """
        try:
            definition = await self._definitions.pinned(self.ref.name, spec, self._record.status.get("definition"))
        except InvalidWorkflowError as error:
            raise DamagedStateError(f"the definition that the run has begun with cannot be run: {error}") from error
        unknown = {a.activity_type for a in state.activities.values()} - definition.program.activities.keys()
        if unknown:
            raise DamagedStateError(f"the definition lacks activities that are open: {', '.join(sorted(unknown))}")
        self._decide_by(definition, spec, state.start_time)

    async def _begin(self, spec: WorkflowRunSpec, now: datetime) -> bool:
        try:
            definition = await self._definitions.find(self.ref.namespace, self.ref.name, spec)
        except NotReadyError as error:
            await self._wait(error.reason, error.message, now)
            return False
        except InvalidWorkflowError as error:
            self._decider = Refuser(str(error))
            workflow_type, run_input = self.ref.name, None
        else:
            self._decide_by(definition, spec, now)
            workflow_type, run_input = definition.workflow_type, with_defaults(definition.program, spec.input)
        run_timeout = spec.run_timeout or spec.execution_timeout or None
        started = ev.WorkflowExecutionStarted(
            event_id=1,
            event_time=now,
            workflow_type=workflow_type,
            workflow_id=self.ref.workflow_id,
            input=run_input,
            workflow_execution_timeout=spec.execution_timeout or None,
            workflow_run_timeout=run_timeout,
            workflow_execution_expiration_time=now + spec.execution_timeout if spec.execution_timeout else None,
            original_execution_run_id=self.ref.uid,
            first_execution_run_id=self.ref.uid,
        )
        transition = await self._commit(start(started, self._decider_now()), now)
        self._state = transition.state
        return True

    async def _wait(self, reason: ConditionReason, message: str, now: datetime) -> None:
        """Say why the run does not start or go on; once, not at each try."""
        before = self._record.status
        status = run_status.waiting(before, self._facts(), reason, message, now)
        if status != before:
            await self._record.write(status)
        if status["conditions"] != before.get("conditions"):
            self._teller.warn(EventReason(reason.value), message, "Start")

    def _decide_by(self, definition: Definition, spec: WorkflowRunSpec, start_time: datetime) -> None:
        self._definition = definition
        self._attempts.activities = definition.program.activities
        scope = RunScope(
            name=self.ref.name,
            namespace=self.ref.namespace,
            workflow_id=self.ref.workflow_id,
            run_id=self.ref.uid,
            attempt=1,
        )
        given = with_defaults(definition.program, spec.input)
        self._decider = Interpreter(definition.program, scope, input=given, start_time=start_time)

    def _decider_now(self) -> Decider:
        assert self._decider is not None
        return self._decider

    # The commit

    async def _commit(self, transition: Transition, now: datetime) -> Transition:
        """Record the transition: one write, refused if anyone has written since.

        Returns:
            What was recorded: the transition or, where that would not fit into an object, the end of the run.
        """
        status = self._composed(transition, now)
        reason = run_status.too_large(status)
        if reason is None:
            try:
                await self._record.write(status)
            except api.TooLargeError as error:
                reason = run_status.refused_as_too_large(error.message)
        if reason is not None:
            transition = await self._terminate(transition, reason, now)
        self._teller.committed(self._state, transition, self._record.status["progress"])
        return transition

    async def _terminate(self, transition: Transition, reason: str, now: datetime) -> Transition:
        """Record, instead of a transition that does not fit into the object, the end of the run: bare, if it has to be.

        Raises:
            TooLargeError: not even that fits.
        """
        first = () if self._state else transition.events[:1]
        before = self._state or apply(None, first[0])
        ended = terminate(before, reason, now, self._decider_now())
        ended = replace(ended, events=(*first, *ended.events))
        status = self._composed(ended, now)
        try:
            await self._record.write(status)
        except api.TooLargeError:
            await self._record.write(run_status.bare(status))
        return ended

    def _composed(self, transition: Transition, now: datetime) -> run_status.Status:
        facts = self._facts(transition.state)
        return run_status.compose(self._record.status, facts, transition.state, transition.events, now)

    def _facts(self, state: State | None = None) -> run_status.RunFacts:
        done = ""
        definition = self._definition
        if state is not None and definition is not None:
            done = "{}/{}".format(*progress(definition.program, load_memory(state.memory)))
        return run_status.RunFacts(
            name=self.ref.name,
            uid=self.ref.uid,
            generation=self._record.object["metadata"].get("generation", 1),
            progress=done,
            definition=definition.snapshot if definition else None,
        )
