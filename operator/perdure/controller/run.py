"""One run: what has been observed of it, and the pass that takes it further.

    observed  (watch: the run, its pods)  ─┐
    looked up (a deadline is due)         ─┼─▶ step ─▶ commit ─▶ effects (pods made, pods let go) ─▶ next wake
    the clock                             ─┘             │
                                          conflict ──────┘ someone else moved: read again, decide again

Crash windows. Before the commit nothing has happened. Between commit and effects, the committed state says what is to be
there: a restart makes the missing pods (their names are locks) and lets go of those nobody waits for. A commit whose answer was
lost looks like a conflict at the next one, and is found done.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog

from perdure.api.reasons import EventReason
from perdure.api.workflowrun import WorkflowRunSpec
from perdure.controller import pods as attempts
from perdure.controller import status as run_status
from perdure.controller.definitions import Definition, Definitions, NotReadyError
from perdure.controller.pods import AttemptBlockedError, AttemptImpossibleError, PodKey, Pods
from perdure.engine import events as ev
from perdure.engine import history, inputs
from perdure.engine.decider import Decider
from perdure.engine.failures import TimeoutType
from perdure.engine.state import PendingActivity, RunStatus, State
from perdure.engine.step import Transition, next_wake, start, step, terminate
from perdure.kube import client as api
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.kube.patch import Operation, json_patch
from perdure.language.interpreter import Interpreter, Refuser, RunScope, load_memory, progress, with_defaults
from perdure.language.program import InvalidWorkflowError
from perdure.observe import metrics
from perdure.runtime.attempts import Attempt, AttemptRefusedError, RunRef
from perdure.runtime.leases import heartbeat
from perdure.runtime.outcomes import look_again_at, outcome
from perdure.runtime.waiting import waiting_reason

_FIRST_CONFLICT_PAUSE = timedelta(milliseconds=5)
_FIRST_REFUSAL = timedelta(seconds=1)
_LONGEST_REFUSAL = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What every run works with."""

    client: api.Client
    pods: Pods
    definitions: Definitions
    recorder: Recorder


@dataclass(slots=True)
class _Blocked:
    """An attempt whose pod could not be made."""

    tries: int
    until: datetime
    message: str


class Run:
    """A WorkflowRun in this process. `advance` is called by one task at a time; the ``observe_…`` methods at any time."""

    def __init__(self, tools: Tools, obj: api.Object) -> None:
        self._tools = tools
        meta = obj["metadata"]
        self._object = obj
        self.ref = RunRef(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            workflow_id=obj["spec"].get("workflowId") or meta["name"],
        )
        self._url = api.path(api.PERDURE, meta["namespace"], "workflowruns", meta["name"])
        self._version: str = meta["resourceVersion"]
        self._status: run_status.Status = obj.get("status") or {}
        self._state: State | None = None
        self._definition: Definition | None = None
        self._decider: Decider | None = None
        self._pods: dict[PodKey, api.Object | None] = {}  # None: it was there, and has disappeared
        self._made: set[PodKey] = set()  # attempts whose pod, and Lease if they have one, are known to have been made
        self._unread: set[PodKey] = set()
        self._leaving: dict[str, tuple[api.Object, bool]] = {}
        self._left: set[str] = set()  # uids of pods that were let go, until they have disappeared
        self._committed_here = False
        self._blocked: dict[PodKey, _Blocked] = {}
        self._refused: list[inputs.AttemptFailed] = []
        self._newest = self._version
        self._conflicts = 0
        self.gone = False
        self._log = structlog.get_logger("perdure.run").bind(namespace=self.ref.namespace, run=self.ref.name)

    # Observing

    @property
    def _outdated(self) -> bool:
        return self._newest != self._version and not _older(self._newest, self._version)

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: the run is closed or gone, and so are its pods, as far as they are ours."""
        closed = self.gone or (self._state is not None and self._state.closed)
        return closed and not self._leaving and not self._unread

    @property
    def waits_for_workflow(self) -> str | None:
        """The Workflow that this run cannot start without."""
        reference = self._object["spec"].get("workflow") or {}
        return reference.get("name") if self._state is None else None

    def observe(self, obj: api.Object) -> bool:
        """A watch shows the run; whether that is news: our own writes come back too, some before their answers."""
        self._newest = obj["metadata"]["resourceVersion"]
        return self._outdated

    def observe_gone(self) -> None:
        """The run was deleted. What it has started is removed by the garbage collector, and let go here."""
        self.gone = True

    def observe_pod(self, pod: api.Object) -> None:
        """A watch shows one of the run's pods."""
        key, uid = attempts.key_of(pod), pod["metadata"]["uid"]
        if key is not None and attempts.is_of(pod, self.ref) and uid not in self._leaving and uid not in self._left:
            self._pods[key] = pod
            self._unread.add(key)

    def observe_pod_gone(self, pod: api.Object) -> None:
        """One of the run's pods has disappeared."""
        key = attempts.key_of(pod)
        self._leaving.pop(pod["metadata"]["uid"], None)
        self._left.discard(pod["metadata"]["uid"])
        known = self._pods.get(key) if key is not None else None
        if key is not None and known is not None and known["metadata"]["uid"] == pod["metadata"]["uid"]:
            self._pods[key] = None
            self._unread.add(key)

    # The pass

    async def advance(self) -> datetime | None:
        """Take the run as far as it goes now; when it wants to be called again, None if only something outside can wake it.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
        """
        if self.gone:
            self._let_all_go()
            await self._finish_leaving()
            return None
        try:
            wake = await self._advance(wall_clock())
        except api.ConflictError:
            metrics.COMMIT_CONFLICTS.inc()
            self._conflicts += 1
            await self._read_again()
            # At once the first time; were somebody to write all the time, ever later.
            return wall_clock() + _FIRST_CONFLICT_PAUSE * ((1 << min(self._conflicts, 10)) - 2)
        except BaseException:
            # What was read may have come to nothing: it is read once more.
            self._unread |= set(self._pods)
            raise
        self._conflicts = 0
        return wake

    async def _advance(self, now: datetime) -> datetime | None:
        # What was committed in an earlier pass may be old by now: this process may have stood still meanwhile.
        self._committed_here = False
        if self._outdated:
            await self._read_again()
            if self.gone:
                return now
        if self._state is None and not await self._load(now):
            return None
        state = self._state
        assert state is not None
        if not state.closed:
            assert self._decider is not None
            observed = await self._gather(state, now)
            transition = step(state, observed, now, self._decider)
            if transition.durable:
                transition = await self._commit(transition, now)
            self._state = state = transition.state
            self._retire(transition)
            if transition.more:
                return now
        self._sort_unread(state)
        await self._finish_leaving()
        await self._ensure_attempts(state, now)
        return self._wake_time(state, now)

    async def _load(self, now: datetime) -> bool:
        """Go on where the stored status stands, or begin; whether the run can go on."""
        spec = WorkflowRunSpec.parse(self._object["spec"])
        stored = self._status.get("state")
        if stored is None:
            return await self._begin(spec, now)
        state = history.decode_state(stored)
        if state.activities:
            # What a watch shows may be old; pods are made only for what is so now.
            await self._read_again()
            if self.gone:
                return False
            state = history.decode_state(self._status["state"])
        if not state.closed:
            self._decide_by(
                self._tools.definitions.pinned(self.ref.name, spec, self._status.get("definition")),
                spec,
                state.start_time,
            )
            if state.activities:
                await self._recover_pods(state)
        self._state = state
        return True

    async def _recover_pods(self, state: State) -> None:
        """Look at what a predecessor has left: its pods, and Leases it may not have come to create."""
        for found in await self._tools.pods.list_of(self.ref):
            self.observe_pod(found)
        for activity in state.activities.values():
            key = PodKey(activity.scheduled_event_id, activity.attempt)
            pod = self._pods.get(key)
            if pod is not None and (attempts.has_ended(pod) or not self._attempt(activity).needs_lease):
                self._made.add(key)

    async def _begin(self, spec: WorkflowRunSpec, now: datetime) -> bool:
        try:
            definition = await self._tools.definitions.find(self.ref.namespace, self.ref.name, spec)
        except NotReadyError as error:
            await self._wait(error, now)
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

    async def _wait(self, error: NotReadyError, now: datetime) -> None:
        """Say why the run does not start; once, not at each try."""
        before = self._status.get("conditions")
        status = run_status.pending(self._status, self._facts(), error.reason, error.message, now)
        if status != self._status:
            await self._write(status)
        if status["conditions"] != before:
            self._record("Warning", EventReason(error.reason.value), error.message, "Start")

    def _decide_by(self, definition: Definition, spec: WorkflowRunSpec, start_time: datetime) -> None:
        self._definition = definition
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

    # Observations become inputs

    async def _gather(self, state: State, now: datetime) -> list[inputs.AttemptInput]:
        observed: list[inputs.AttemptInput] = [*self._refused]
        self._refused.clear()
        for key, known in self._pods.items():
            again = look_again_at(known) if known is not None else None
            if again is not None and again <= now:
                self._unread.add(key)
        for key in sorted(self._unread):
            activity = state.activity(key.scheduled_event_id)
            if activity is not None and activity.attempt == key.attempt:
                self._unread.discard(key)
                observed += await self._read(activity, self._pods[key], now)
        for activity in state.activities.values():
            observed += await self._look_up_if_due(activity, now)
        return observed

    async def _read(
        self, activity: PendingActivity, pod: api.Object | None, now: datetime
    ) -> list[inputs.AttemptInput]:
        """What a pod tells about its attempt; None: the pod has disappeared."""
        attempt = self._attempt(activity)
        told = outcome(attempt, self._activity(activity), pod, now=now)
        if told is None or isinstance(told, inputs.AttemptStarted) or not attempt.needs_lease:
            return [told] if told is not None else []
        # It has ended: the Lease has the last heartbeat's details for the next attempt, and a large result.
        lease = await self._tools.pods.read_lease(self.ref, PodKey(activity.scheduled_event_id, activity.attempt))
        told = outcome(attempt, self._activity(activity), pod, lease, now=now)
        return [heartbeat(attempt, lease, now=now), *([told] if told is not None else [])]

    async def _look_up_if_due(self, activity: PendingActivity, now: datetime) -> list[inputs.AttemptInput]:
        """Before a deadline ends an attempt, the truth is asked of the API server: a watch may lag."""
        due = {kind for deadline, kind in activity.deadlines() if deadline <= now}
        if not due:
            return []
        key = PodKey(activity.scheduled_event_id, activity.attempt)
        observed: list[inputs.AttemptInput] = []
        if TimeoutType.HEARTBEAT in due:
            lease = await self._tools.pods.read_lease(self.ref, key)
            read = heartbeat(self._attempt(activity), lease, now=now)
            observed.append(read)
            beats = (
                read.time is not None
                and activity.heartbeat_timeout is not None
                and read.time + activity.heartbeat_timeout > now
            )
            if beats and due == {TimeoutType.HEARTBEAT}:
                return observed
        pod = await self._tools.pods.read_pod(self.ref, key)
        if pod is not None:
            self._pods[key] = pod
        if pod is not None or key in self._pods or activity.started_time:
            observed += await self._read(activity, pod, now)
        blocked = self._blocked.get(key)
        waits = waiting_reason(pod, self._activity(activity)) if pod is not None else blocked and blocked.message
        if waits:
            observed.append(
                inputs.AttemptWaiting(scheduled_event_id=key.scheduled_event_id, attempt=key.attempt, reason=waits)
            )
        return observed

    def _attempt(self, activity: PendingActivity) -> Attempt:
        return attempts.attempt_of(activity, self._activity(activity))

    def _activity(self, activity: PendingActivity) -> Any:
        assert self._definition is not None
        return self._definition.program.activities[activity.activity_type]

    # The commit

    async def _commit(self, transition: Transition, now: datetime) -> Transition:
        """Record the transition: one write, refused if anyone has written since.

        Returns:
            What was recorded: the transition or, where that would not fit into an object, the end of the run.
        """
        status = self._composed(transition, now)
        reason = run_status.too_large(status)
        if reason is not None and self._state is not None:
            transition = terminate(self._state, reason, now, self._decider_now())
            status = self._composed(transition, now)
        await self._write(status)
        self._tell(transition)
        return transition

    def _composed(self, transition: Transition, now: datetime) -> run_status.Status:
        facts = self._facts(transition.state)
        return run_status.compose(self._status, facts, transition.state, transition.events, now)

    async def _write(self, status: run_status.Status) -> None:
        operations: list[Operation] = [{"op": "replace", "path": "/metadata/resourceVersion", "value": self._version}]
        if "status" in self._object or self._status:
            operations += json_patch(self._status, status, "/status")
        else:
            operations.append({"op": "add", "path": "/status", "value": status})
        try:
            answer = await self._tools.client.patch(f"{self._url}/status", operations)
        except api.NotFoundError as error:
            # Deleted meanwhile: the same as any other change by somebody else.
            raise api.ConflictError(error.status, error.reason, error.message) from error
        metrics.COMMITS.inc()
        self._version = answer["metadata"]["resourceVersion"]
        self._status = status
        self._committed_here = True

    async def _confirm(self) -> None:
        """Make sure that what was read is still so, before anything is made by it that this process has not committed itself.

        Raises:
            ConflictError: it is not.
        """
        if not self._committed_here:
            operations: list[Operation] = [
                {"op": "replace", "path": "/metadata/resourceVersion", "value": self._version}
            ]
            await self._tools.client.patch(f"{self._url}/status", operations)
            self._committed_here = True

    async def _read_again(self) -> None:
        """Someone else has written, or may have: take what the API server has, and look at everything anew."""
        try:
            fresh = await self._tools.client.get(self._url)
        except api.NotFoundError:
            self.gone = True
            return
        if fresh["metadata"]["uid"] != self.ref.uid or fresh["metadata"].get("deletionTimestamp"):
            self.gone = True
            return
        self._object = fresh
        self._committed_here = False
        self._version = self._newest = fresh["metadata"]["resourceVersion"]
        status = fresh.get("status") or {}
        if status != self._status:
            self._status = status
            self._state = None
            self._unread |= set(self._pods)

    def _facts(self, state: State | None = None) -> run_status.RunFacts:
        done = ""
        definition = self._definition
        if state is not None and definition is not None:
            done = "{}/{}".format(*progress(definition.program, load_memory(state.memory)))
        return run_status.RunFacts(
            name=self.ref.name,
            uid=self.ref.uid,
            generation=self._object["metadata"].get("generation", 1),
            progress=done,
            definition=definition.snapshot if definition else None,
        )

    # Effects

    def _retire(self, transition: Transition) -> None:
        for attempt in transition.retired:
            key = PodKey(attempt.scheduled_event_id, attempt.attempt)
            pod = self._pods.pop(key, None)
            self._unread.discard(key)
            self._made.discard(key)
            if pod is not None:
                self._leaving[pod["metadata"]["uid"]] = (pod, not attempt.succeeded)

    def _sort_unread(self, state: State) -> None:
        """Pods of attempts nobody waits for (any more) are let go: superseded ones, and all once the run has closed."""
        for key in list(self._unread):
            activity = state.activity(key.scheduled_event_id)
            if activity is None or activity.attempt != key.attempt:
                self._unread.discard(key)
                pod = self._pods.pop(key)
                if pod is not None and (attempts.held(pod) or not attempts.has_ended(pod)):
                    self._leaving[pod["metadata"]["uid"]] = (pod, True)

    def _let_all_go(self) -> None:
        for pod in self._pods.values():
            if pod is not None:
                self._leaving[pod["metadata"]["uid"]] = (pod, False)
        self._pods.clear()
        self._unread.clear()

    async def _finish_leaving(self) -> None:
        for uid, (pod, keep) in list(self._leaving.items()):
            await self._tools.pods.release(pod, keep=keep)
            if self._leaving.pop(uid, None) is not None:
                self._left.add(uid)

    async def _ensure_attempts(self, state: State, now: datetime) -> None:
        """Make the pods of the attempts that are due."""
        for activity in state.activities.values():
            key = PodKey(activity.scheduled_event_id, activity.attempt)
            blocked = self._blocked.get(key)
            if activity.scheduled_time > now or key in self._made or (blocked and blocked.until > now):
                continue
            await self._confirm()
            await self._ensure_attempt(activity, key, now)

    async def _ensure_attempt(self, activity: PendingActivity, key: PodKey, now: datetime) -> None:
        try:
            pod = await self._tools.pods.ensure(self.ref, self._attempt(activity), self._activity(activity))
        except AttemptBlockedError as error:
            self._block(key, activity, str(error), now)
        except (AttemptRefusedError, AttemptImpossibleError) as error:
            self._refused.append(
                inputs.AttemptFailed(
                    scheduled_event_id=key.scheduled_event_id, attempt=key.attempt, failure=error.failure
                )
            )
        else:
            self._made.add(key)
            if self._pods.setdefault(key, pod) is pod and (pod.get("status") or {}).get("phase") != "Pending":
                self._unread.add(key)  # adopted: it may have ended already

    def _block(self, key: PodKey, activity: PendingActivity, message: str, now: datetime) -> None:
        blocked = self._blocked.setdefault(key, _Blocked(0, now, message))
        blocked.message = message
        blocked.until = now + min(_FIRST_REFUSAL * 2 ** min(blocked.tries, 10), _LONGEST_REFUSAL)
        blocked.tries += 1
        if blocked.tries == 1:
            note = f"Step {activity.activity_id}: no pod for attempt {activity.attempt} yet: {message}"
            self._record("Warning", EventReason.POD_REFUSED, note, "CreatePod")

    # Telling

    def _tell(self, transition: Transition) -> None:
        """Events and metrics of what has just been committed."""
        before = self._state
        after = transition.state
        if before is None:
            self._record("Normal", EventReason.STARTED, f"Started as workflow {self.ref.workflow_id}", "Start")
        if after.closed:
            outcome_name = after.status.value
            metrics.RUNS.labels(namespace=self.ref.namespace, outcome=outcome_name).inc()
            failure = ev.failure_of(transition.events[-1])
            note = failure.message if failure else f"Completed {self._status.get('progress', '')} steps"
            kind = "Normal" if after.status is RunStatus.COMPLETED else "Warning"
            self._record(kind, EventReason(outcome_name), note, "Close")
        for attempt in transition.retired:
            metrics.ATTEMPTS.labels(outcome="Completed" if attempt.succeeded else "Ended").inc()
            again = after.activity(attempt.scheduled_event_id)
            if again is not None and again.last_failure is not None:
                note = (
                    f"Step {again.activity_id}: attempt {attempt.attempt} ended: {again.last_failure.message}; "
                    f"attempt {again.attempt} at {again.scheduled_time:%H:%M:%S} UTC"
                )
                self._record("Warning", EventReason.ATTEMPT_FAILED, note, "Retry")
        if after.task and (before is None or before.task is None):
            self._record("Warning", EventReason.WORKFLOW_TASK_FAILED, after.task.message, "Decide")

    def _record(self, kind: str, reason: EventReason, note: str, action: str) -> None:
        self._tools.recorder.record(self._object, kind=kind, reason=reason.value, note=note, action=action)

    def _wake_time(self, state: State, now: datetime) -> datetime | None:
        if self._unread or self._refused:
            return now
        self._blocked = {
            key: blocked
            for key, blocked in self._blocked.items()
            if (activity := state.activity(key.scheduled_event_id))
            and activity.attempt == key.attempt
            and key not in self._made
        }
        times = [next_wake(state, now), *(blocked.until for blocked in self._blocked.values())]
        times += [look_again_at(pod) for pod in self._pods.values() if pod is not None]
        return min((time for time in times if time is not None and time > now), default=None)


def _older(version: str, than: str) -> bool:
    """Whether a resourceVersion comes before another; they are numbers that grow (KEP-5504)."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
