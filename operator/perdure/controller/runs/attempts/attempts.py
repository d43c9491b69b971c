"""The attempts of a run whose activities run in pods: inputs from the pods and Leases, and effects on them.

The watch reports pods. When a deadline is due, pods are read from the API server, because a watch may lag. Leases are not
watched, but read when they are due. Effects follow the commit, and can be repeated after a crash, because the names of pods are
locks.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

import msgspec

from perdure.controller.pods import attempt_pods as api_pods
from perdure.controller.pods.attempt_pods import (
    AttemptBlockedError,
    AttemptImpossibleError,
    AttemptLeases,
    LogsOfRun,
    PodKey,
    Pods,
)
from perdure.controller.pods.workspaces import WorkspaceVolumes
from perdure.controller.reconcile.newer_states import NewerStateError, message_for
from perdure.controller.runs.attempts.admission import Admission, Blocked
from perdure.controller.runs.attempts.cached_results import CachedAttempts
from perdure.controller.runs.attempts.definitions import ActivityDefinitions
from perdure.controller.runs.attempts.held_pods import HeldPods
from perdure.controller.runs.conditions import RunEventRecorder
from perdure.controller.runs.store import RunStore, past_of
from perdure.controller.services import Services
from perdure.controller.workflows.definitions import Definition
from perdure.engine import inputs
from perdure.engine.effects import AttemptEffect, StartAttempt, StopAttempt, attempt_effects
from perdure.engine.failures import FailureKind, TimeoutType
from perdure.engine.history import decode_events
from perdure.engine.inputs import AttemptCompleted, AttemptInput, HeartbeatRead
from perdure.engine.ledger import AttemptOutcome, activity_named
from perdure.engine.state import PendingActivity, RunState
from perdure.engine.step import RunTransition
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.kube.clock import polling
from perdure.language.step_failures import StepError
from perdure.language.step_paths import Path
from perdure.runtime.attempt_outcomes import failed_container, outcome, recheck_time
from perdure.runtime.attempts import AttemptRefusedError, RunRef
from perdure.runtime.chains import ResetOrigin
from perdure.runtime.leases import Pulse, heartbeat
from perdure.runtime.pods.builder import main_container_name
from perdure.runtime.pods.services import address_of, is_ready, why_not_ready
from perdure.runtime.pods.status import is_problem, waiting_reason


class _LateError(Exception):
    """Rates do not permit the start of an attempt any more."""


class RunAttempts:
    """The pods of one run's attempts, in this process. Events of pods (`held`) may arrive at any time.

    States in arguments come from `definitions.in_pods`.
    """

    def __init__(
        self,
        services: Services,
        run: RunRef,
        store: RunStore,
        reset: ResetOrigin | None,
        events: RunEventRecorder,
        *,
        wake: Callable[[], None],
    ) -> None:
        """Create it without attempts.

        Args:
            services: The shared services for pods, definitions, limits, and circuit breakers.
            run: The run.
            store: The stored state of the run, which is confirmed before its effects are applied.
            reset: The origin of the run, if a reset created it.
            events: Records why a pod cannot be created, what blocks it, and that a result is not stored for later attempts.
            wake: Requests another reconciliation of the run.
        """
        self._run = run
        self._client = services.client
        self._pods = services.pods
        self._record = store.record
        self._artifacts = store.artifacts
        self.blocked = Blocked(run, events.pod_refused)
        self.held = HeldPods(run, self._forget, self.blocked.pod_ended)
        self.definitions = ActivityDefinitions(
            services.definitions, services.policies, run.namespace, self.blocked.refuse
        )
        self._workspaces = WorkspaceVolumes(services.client, run, reset)
        self._cached = CachedAttempts(services.client, run, self.definitions, store.artifacts, events.result_not_cached)
        self._inputs = PodInputs(services.pods, run, self.held, self.blocked, self.definitions, events.pod_waits, wake)
        self._admission = Admission(services, run, store.record, self.held, self.blocked, self.definitions)
        self._granted: list[AttemptCompleted] = []
        """The activities that hold the limits of their steps, or whose service is ready, and complete with that. Each is reported
        once to the engine."""
        self._applied: set[AttemptEffect] = set()

    @property
    def settled(self) -> bool:
        """Whether no pod must be read or released, and no result must be stored."""
        return self.held.settled and self._cached.settled

    def define(self, definition: Definition | None) -> None:
        """Set the definition of the run; None if it has none of its own."""
        self.definitions.define(definition)

    # Observing

    async def recover(self, state: RunState) -> None:
        """Read the pods of an earlier process, and create Leases that it has not created.

        A started attempt without a pod has lost its pod. Any other attempt without a pod may never have had one, and gets one.
        """
        for found in await self._pods.list_of(self._run):
            self.held.update(found)
        for activity in state.open_activities():
            key = PodKey.of(activity)
            pod = self.held.pods.get(key)
            if pod is None and activity.started_time is not None:
                self.held.miss(key)
            elif pod and (api_pods.has_ended(pod) or not self._needs_more(activity)):
                self._note_started(key)

    def _needs_more(self, activity: PendingActivity) -> bool:
        """Whether an attempt needs more objects than its pod, which an earlier process may not have created."""
        attempt = self.definitions.attempt(activity)
        return attempt.needs_lease or bool(attempt.service)

    async def gather(self, state: RunState, now: datetime) -> list[AttemptInput]:
        """The inputs for the current attempts, after checking due deadlines."""
        observed = await self._inputs.gather(state, now)
        self._cached.observe(state, observed, now)
        granted, self._granted = self._granted, []
        return [*self.blocked.refused(), *self._cached.found(now), *granted, *observed]

    def retire(self, transition: RunTransition) -> None:
        """Release the pods of attempts whose end was recorded, and store the results of those that completed."""
        for attempt in transition.retired:
            key = PodKey(attempt.scheduled_event_id, attempt.attempt)
            self.held.retire(key, attempt.outcome)
            if attempt.outcome is AttemptOutcome.COMPLETED:
                self._cached.recorded(key)

    # Effects

    async def apply(self, state: RunState, now: datetime) -> None:
        """Apply the effects of the committed state, and release the pods that no attempt needs.

        Raises:
            ConflictError: The state is not current.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        superfluous = self.held.superfluous(state)
        left = [effect for effect in attempt_effects(state, now) if effect not in self._applied]
        if superfluous or any(isinstance(effect, StopAttempt) for effect in left):
            await self._record.confirm(afresh=True)
        self.held.release_unneeded(state, superfluous)
        await self._release(now)
        await self._cached.store(now)  # before the next attempts look for results
        for effect in left:
            activity = state.activities[str(effect.scheduled_event_id)]
            match effect:
                case StopAttempt():
                    await self._stop(activity)
                    self._applied.add(effect)
                case StartAttempt():
                    await self._start(activity, state, now)
                case _:
                    assert_never(effect)

    async def finalize(self) -> None:
        """Release all pods of a deleted run.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        self.held.release_all()
        self._cached.forget()
        await self._release(wall_clock())

    async def _release(self, now: datetime) -> None:
        """Release the pods that no attempt needs. Those that stay are stopped first."""
        for uid, each in list(self.held.to_release.items()):
            if each.due is not None and now < each.due:
                continue
            if each.keep is None or each.due is not None:
                until = await self._pods.release_by_name(each.pod, keep=True)
            else:
                until = await self._pods.release(each.pod, keep=each.keep)
            if until is None:
                self.held.released(uid)
            else:
                each.wait(until)

    async def _stop(self, activity: PendingActivity) -> None:
        """Request the cancellation of an attempt: through its Lease if it heartbeats, otherwise by SIGTERM."""
        key = PodKey.of(activity)
        if activity.heartbeat_timeout is not None:
            await self._pods.leases.request_cancel(self._run, key, "the workflow asks the activity to stop")
        else:
            await self._pods.stop(self._run, key)

    async def _start(self, activity: PendingActivity, state: RunState, now: datetime) -> None:
        """Create the pod of an attempt and, if needed, its Lease, unless it has an earlier result, or something blocks it.

        An attempt that waits for its turn looks for a result before it begins to wait, and again when its turn has come.
        """
        key = PodKey.of(activity)
        if self.blocked.waits(key, now):
            return
        waits = self.blocked.is_shared(key)
        try:
            if activity.takes_limits:
                if await self._admission.admits(activity, state, now):
                    number, attempt = key.scheduled_event_id, key.attempt
                    self._granted.append(AttemptCompleted(scheduled_event_id=number, attempt=attempt))
                return
            if activity.awaits_service:
                self._check_service(activity, state)
                return
            if not waits and await self._has_result(activity, now):
                return
            if not await self._admission.admits(activity, state, now):
                return
            if waits and await self._has_result(activity, now):
                return
            await self._record.confirm()
            if not await self._admission.permits_start(activity, now):
                return
            await self._ensure(activity, now)
        except _LateError:
            return  # the rate permits it later
        except AttemptBlockedError as error:
            self.blocked.by_api(activity, error, now)
        except (AttemptRefusedError, AttemptImpossibleError, StepError) as error:
            self.blocked.refuse(activity, error.failure)
        else:
            self._note_started(key)

    def _check_service(self, activity: PendingActivity, state: RunState) -> None:
        """Complete the wait for a service whose pod is ready, and has its Service."""
        service = _service_of(activity, state)
        if service is None:
            return
        key = PodKey.of(service)
        pod = self.held.pods.get(key)
        if pod is not None and is_ready(pod) and StartAttempt(key.scheduled_event_id, key.attempt) in self._applied:
            number, attempt = activity.scheduled_event_id, activity.attempt
            ready = AttemptCompleted(scheduled_event_id=number, attempt=attempt, result=address_of(pod))
            self._granted.append(ready)

    async def _has_result(self, activity: PendingActivity, now: datetime) -> bool:
        """Whether an attempt without a pod can use an earlier result."""
        return PodKey.of(activity) not in self.held.pods and await self._cached.find(activity, now)

    async def _ensure(self, activity: PendingActivity, now: datetime) -> None:
        """Create a missing pod or Lease. An earlier process or another operator may have created the pod without its Lease.

        Raises:
            _LateError: Preparing the pod has taken so long that a rate no longer permits it.
            AttemptRefusedError, AttemptImpossibleError: The pod can never be created.
            AttemptBlockedError: A temporary obstacle blocks the pod.
        """
        key = PodKey.of(activity)
        attempt, pod = self.definitions.attempt(activity), self.held.pods.get(key)
        if pod is None:
            definition = self.definitions.of(activity)
            await self._artifacts.expect(definition, self._pods.settings.sidecar_image)
            workspaces = self.definitions.workspaces_of(activity)
            volumes = await self._workspaces.of(definition, workspaces, self._writers)
            confirm = partial(self._confirm, activity, now)
            pod = await self._pods.ensure(self._run, attempt, definition, volumes, confirm)
        elif attempt.needs_lease and not api_pods.has_ended(pod):
            await self._pods.leases.ensure(self._run, attempt, pod)
        elif attempt.service and not api_pods.has_ended(pod):
            await self._pods.services.ensure(pod)
        self.held.adopt(key, pod)

    async def _confirm(self, activity: PendingActivity, now: datetime) -> None:
        """Check right before a pod is created that its run still needs it, and that the rates of its limits still permit it.

        Raises:
            _LateError: A rate has permitted it too long ago, and does not permit it again now.
            ConflictError: The run has changed.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        await self._record.confirm()
        if not await self._admission.permits_start(activity, now):
            raise _LateError
        await self._record.confirm()  # again if the rate was asked for long

    async def _writers(self, workspace: str) -> Sequence[str]:
        """The completed steps of the run that may have written to a workspace.

        Raises:
            AttemptBlockedError: A newer version has written the history.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        try:
            past = await past_of(self._client, self._record.latest())
        except NewerStateError as error:
            raise AttemptBlockedError(message_for(str(error))) from error
        return (await self.definitions.writers(decode_events(past.events))).get(workspace, ())

    def _note_started(self, key: PodKey) -> None:
        """Record that an attempt has its pod and, if it needs one, its Lease."""
        self._applied.add(StartAttempt(key.scheduled_event_id, key.attempt))
        self.blocked.clear(key)

    def _forget(self, key: PodKey, pod: kube.Object | None) -> None:
        """Drop an attempt whose end is recorded, or that the run no longer waits for."""
        self._inputs.forget(key, pod)
        number, attempt = key.scheduled_event_id, key.attempt
        self._applied -= {StartAttempt(number, attempt), StopAttempt(number, attempt)}

    # What is left

    def next_wake(self, state: RunState, now: datetime) -> datetime | None:
        """When to read or retry something without an event."""
        new = self.blocked.any_refused or self._cached.any_found or bool(self._granted)
        # A closed run has no more inputs: another operator has closed it after these were found.
        if (new and not state.closed) or self._inputs.is_due(now):
            return now
        times = (
            *self.blocked.next_tries(state),
            *self.held.next_releases(),
            *self._cached.next_tries(),
            *self._inputs.next_reads(state, now),
        )
        return min((time for time in times if time > now), default=None)


_PATIENCE = timedelta(seconds=5)
"""How long an attempt can be blocked before this is reported, because many causes are temporary."""


class PodInputs:
    """Reads the state of one run's attempts."""

    def __init__(
        self,
        pods: Pods,
        run: RunRef,
        held: HeldPods,
        blocked: Blocked,
        definitions: ActivityDefinitions,
        hindered: Callable[[str, str], None],
        wake: Callable[[], None],
    ) -> None:
        """Create it without any attempt.

        Args:
            pods: Reads pods, their logs, and their Leases.
            run: The run.
            held: The known pods.
            blocked: The attempts whose pods cannot be created.
            definitions: The definitions of the activities.
            hindered: Called with the reason why a pod is blocked, and its name, once until that pod has started.
            wake: Requests another reconciliation of the run.
        """
        self._pods = pods
        self._run = run
        self._held = held
        self._blocked = blocked
        self._definitions = definitions
        self._report_hindered = hindered
        self._logs = LogsOfRun(pods.logs, wake)
        self._heartbeats = LeaseHeartbeats(pods.leases, run, definitions)
        self._hindered: dict[PodKey, datetime] = {}  # when each attempt became blocked
        self._reported: PodKey | None = None  # the reported attempt, which represents all blocked ones

    async def gather(self, state: RunState, now: datetime) -> list[inputs.AttemptInput]:
        """The inputs for the current attempts, after checking due deadlines."""
        observed: list[inputs.AttemptInput] = []
        for key, known in self._held.pods.items():
            again = recheck_time(known) if known is not None else None
            if again is not None and again <= now:
                self._held.unread.add(key)
        for key in sorted(self._held.unread):
            activity = key.due(state)
            if activity is not None:
                self._held.unread.discard(key)
                observed += await self._read(activity, self._held.pods[key], now)
        beats = await self._heartbeats.read_due(state, now)
        for activity in state.open_activities():
            if (beat := beats.get(PodKey.of(activity))) is not None:
                observed.append(beat)
            observed += await self._look_up_if_due(_as_started(activity, observed), now)
            observed += self._waiting(activity, state, now)
        return observed

    def forget(self, key: PodKey, pod: kube.Object | None) -> None:
        """Drop an attempt whose end is recorded, or that the run no longer waits for."""
        self._logs.forget(pod)
        self._heartbeats.forget(key)

    # One attempt

    async def _read(
        self, activity: PendingActivity, pod: kube.Object | None, now: datetime, *, due: bool = False
    ) -> list[inputs.AttemptInput]:
        """The state of an attempt according to its pod; None if the pod has disappeared.

        A failure is reported with the end of the log, so it waits until the log is read, unless a deadline of the attempt is due.
        """
        attempt, definition = self._definitions.attempt(activity), self._definitions.of(activity)
        stopping = activity.cancel_requested
        observed = outcome(attempt, definition, pod, now=now, due=due, stopping=stopping)
        result = _as_cancelled(activity, pod, observed)
        log = None
        if isinstance(result, inputs.AttemptFailed) and pod is not None:
            container = failed_container(definition, pod)
            known, log = self._logs.tail(pod, container, now) if container is not None else (True, None)
            if not known and not due:
                self._held.unread.add(PodKey.of(activity))
                return []
        if result is None or isinstance(result, inputs.AttemptStarted) or not attempt.needs_lease:
            return [_with_log(result, log)] if result is not None else []
        # It has ended. The Lease has the details of the last heartbeat for the next attempt, or a large result.
        lease, beat = await self._heartbeats.last(activity, now)
        observed = outcome(attempt, definition, pod, lease, now=now, due=due, stopping=stopping)
        result = _as_cancelled(activity, pod, observed)
        return [beat, *([_with_log(result, log)] if result is not None else [])]

    async def _look_up_if_due(self, activity: PendingActivity, now: datetime) -> list[inputs.AttemptInput]:
        """Read the pod from the API server before a deadline ends an attempt, because a watch may lag."""
        key = PodKey.of(activity)
        due = {kind for deadline, kind in activity.deadlines() if deadline <= now}
        if not self._heartbeats.silent(activity):
            due.discard(TimeoutType.HEARTBEAT)
        if not due:
            return []
        pod = await self._pods.read_pod(self._run, key)
        if pod is not None:
            self._held.update(pod)
        if pod is not None or key in self._held.pods or activity.started_time:
            return await self._read(activity, pod, now, due=True)
        return []

    def _waiting(self, activity: PendingActivity, state: RunState, now: datetime) -> list[inputs.AttemptInput]:
        """Why an attempt has not started. This is reported once it has been blocked for a while."""
        key = PodKey.of(activity)
        if activity.started_time is not None:
            self._hindered.pop(key, None)
            return []
        if activity.awaits_service:
            return self._waiting_for_service(activity, state, now)
        pod = self._held.pods.get(key)
        reason = (
            waiting_reason(pod, main_container_name(self._definitions.of(activity)))
            if pod
            else self._blocked.reason(key)
        )
        queued = not pod and self._blocked.is_queued(key)
        hindered = bool(reason) and not queued and is_problem(reason or "")
        if not hindered:
            self._hindered.pop(key, None)
        if not reason:
            return []
        stuck = hindered and now - self._hindered.setdefault(key, now) >= _PATIENCE
        if stuck and pod and not any(state.stuck()) and self._reported not in self._hindered:
            self._reported = key
            note = f"Step {activity.activity_id}: attempt {activity.attempt} does not start: {reason}"
            self._report_hindered(note, pod["metadata"]["name"])
        if reason == activity.waiting_reason and (activity.stuck or not stuck):
            return []
        commits = self._blocked.is_shared(key) or (stuck and self._blocked.follows_pod(key))
        commit_now = commits and reason != activity.waiting_reason
        waiting = inputs.AttemptWaiting(
            scheduled_event_id=key.scheduled_event_id,
            attempt=key.attempt,
            reason=reason,
            stuck=stuck,
            queued=queued,
            commit_now=commit_now,
        )
        return [waiting]

    def _waiting_for_service(
        self, activity: PendingActivity, state: RunState, now: datetime
    ) -> list[inputs.AttemptInput]:
        """Why a service is not ready. This is reported once the steps have waited for a while, and when it changes."""
        key = PodKey.of(activity)
        reason = self._not_ready(activity, state)
        since = self._hindered.setdefault(key, now)
        if not reason or reason == activity.waiting_reason or now - since < _PATIENCE:
            return []
        waiting = inputs.AttemptWaiting(
            scheduled_event_id=key.scheduled_event_id,
            attempt=key.attempt,
            reason=reason,
            stuck=False,
            queued=False,
            commit_now=True,
        )
        return [waiting]

    def _not_ready(self, activity: PendingActivity, state: RunState) -> str | None:
        """Why a wait for a service has not ended; None if the service has ended, or is ready."""
        service = _service_of(activity, state)
        if service is None:
            return None
        key = PodKey.of(service)
        pod = self._held.pods.get(key)
        if pod is not None and is_ready(pod):
            return None
        blocked = None if pod is not None else self._blocked.reason(key)
        return blocked or why_not_ready(pod, main_container_name(self._definitions.of(service)))

    # Waking

    def is_due(self, now: datetime) -> bool:
        """Whether a pod or a Lease must be read now."""
        return any(until <= now for until in self._reads(now))

    def next_reads(self, state: RunState, now: datetime) -> list[datetime]:
        """When to read pods or Leases without an event."""
        self._hindered = {key: since for key, since in self._hindered.items() if key.due(state)}
        return [
            *self._reads(now),
            *(since + _PATIENCE for since in self._hindered.values()),
            *self._heartbeats.next_reads(state, now),
            *filter(None, (recheck_time(pod) for pod in self._held.pods.values() if pod is not None)),
        ]

    def _reads(self, now: datetime) -> list[datetime]:
        """When to read changed pods: a failure may wait for its log."""
        return [self._logs.waits_until(self._held.pods.get(key)) or now for key in self._held.unread]


def _service_of(waiting: PendingActivity, state: RunState) -> PendingActivity | None:
    """The open activity that is the service for which another one waits."""
    path = Path.parse(waiting.activity_id)
    return activity_named(state, path.served_frame.run_service(path.awaited).text)


def _with_log(observed: inputs.AttemptInput, log: str | None) -> inputs.AttemptInput:
    """Add the end of the log to the failure of an attempt."""
    if not log or not isinstance(observed, inputs.AttemptFailed):
        return observed
    return replace(observed, failure=msgspec.structs.replace(observed.failure, log=log))


def _as_started(activity: PendingActivity, observed: Sequence[inputs.AttemptInput]) -> PendingActivity:
    """The activity with the start of its attempt that a watch has just shown: by that start, a deadline may already be due."""
    for each in observed:
        if isinstance(each, inputs.AttemptStarted) and each.scheduled_event_id == activity.scheduled_event_id:
            return msgspec.structs.replace(activity, started_time=activity.started_time or each.time)
    return activity


def _as_cancelled(
    activity: PendingActivity, pod: kube.Object | None, result: inputs.AttemptInput | None
) -> inputs.AttemptInput | None:
    """The state of an attempt that was requested to stop. If its pod confirms this or was deleted, it counts as canceled."""
    if not activity.cancel_requested or not isinstance(result, inputs.AttemptFailed | inputs.AttemptLost):
        return result
    deleted = activity.heartbeat_timeout is None and (pod is None or "deletionTimestamp" in pod["metadata"])
    if result.failure.kind is not FailureKind.CANCELLED and not deleted:
        return result
    return inputs.AttemptCancelled(
        scheduled_event_id=result.scheduled_event_id,
        attempt=result.attempt,
        details=result.failure.details,
        started_time=result.started_time,
    )


class LeaseHeartbeats:
    """The Leases of one run's attempts."""

    def __init__(self, leases: AttemptLeases, run: RunRef, definitions: ActivityDefinitions) -> None:
        """Create it without Leases."""
        self._leases = leases
        self._run = run
        self._definitions = definitions
        self._pulses: dict[PodKey, Pulse] = {}

    async def read_due(self, state: RunState, now: datetime) -> dict[PodKey, HeartbeatRead]:
        """Read the due Leases concurrently, and return heartbeats and missed ones."""
        due = [activity for activity, time in self._reads(state, now) if now >= time]
        beats = await asyncio.gather(*(self._read_one(activity, now) for activity in due), return_exceptions=True)
        read: dict[PodKey, HeartbeatRead] = {}
        for activity, beat in zip(due, beats, strict=True):
            if isinstance(beat, BaseException):
                raise beat
            if beat is not None:
                read[PodKey.of(activity)] = beat
        return read

    async def _read_one(self, activity: PendingActivity, now: datetime) -> HeartbeatRead | None:
        key = PodKey.of(activity)
        known = self._pulse(activity, now)
        lease, pulse = await self._read(activity, now)
        self._pulses[key] = pulse
        attempt = self._definitions.attempt(activity)
        return heartbeat(attempt, lease, pulse) if pulse.since != known.since or self.silent(activity) else None

    async def last(self, activity: PendingActivity, now: datetime) -> tuple[kube.Object | None, HeartbeatRead]:
        """Read the Lease of an ended attempt, and its last heartbeat."""
        lease, pulse = await self._read(activity, now)
        return lease, heartbeat(self._definitions.attempt(activity), lease, pulse)

    async def _read(self, activity: PendingActivity, now: datetime) -> tuple[kube.Object | None, Pulse]:
        known, attempt = self._pulse(activity, now), self._definitions.attempt(activity)
        sent = wall_clock()
        lease = await self._leases.read(self._run, PodKey.of(activity))
        return lease, known.read(attempt, lease, sent, wall_clock())

    def silent(self, activity: PendingActivity) -> bool:
        """Whether an attempt has missed its heartbeat timeout."""
        pulse, timeout = self._pulses.get(PodKey.of(activity)), activity.heartbeat_timeout
        return pulse is not None and timeout is not None and pulse.lost(timeout)

    def next_reads(self, state: RunState, now: datetime) -> Iterator[datetime]:
        """When to read Leases."""
        return (time for _, time in self._reads(state, now))

    def forget(self, key: PodKey) -> None:
        """Drop an attempt whose end is recorded."""
        self._pulses.pop(key, None)

    def _reads(self, state: RunState, now: datetime) -> Iterator[tuple[PendingActivity, datetime]]:
        for activity in state.open_activities():
            if activity.started_time is not None and activity.heartbeat_timeout is not None:
                yield activity, self._pulse(activity, now).next_read(activity.heartbeat_timeout)

    def _pulse(self, activity: PendingActivity, now: datetime) -> Pulse:
        return self._pulses.setdefault(PodKey.of(activity), Pulse.begin(now, exact=not polling.get()))
