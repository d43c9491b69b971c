"""The attempts of one run: what their pods have shown, what that means to the engine, and what is to be done with the pods.

Pods are seen by the watch, and read from the API server where a deadline is due: a watch may lag. What is done, making pods and
letting them go, comes after the commit, and may be done again after a crash: the names of pods are locks.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from perdure.api.names import pod_name
from perdure.api.workflow import Activity, Retention
from perdure.controller import pods as api_pods
from perdure.controller.logs import LogsOfRun
from perdure.controller.pods import AttemptBlockedError, AttemptImpossibleError, PodKey, Pods
from perdure.controller.policies import ASK_AGAIN, Policies
from perdure.controller.refusals import pause
from perdure.engine import inputs
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.retired import AttemptOutcome
from perdure.engine.state import PendingActivity, State
from perdure.engine.step import Transition
from perdure.kube import client as api
from perdure.kube.clock import now as wall_clock
from perdure.runtime.attempts import Attempt, AttemptRefusedError, RunRef
from perdure.runtime.circuits import holder
from perdure.runtime.leases import Pulse, heartbeat
from perdure.runtime.outcomes import failed_container, look_again_at, outcome
from perdure.runtime.pods import retention_of
from perdure.runtime.waiting import hinders, waiting_reason

_PATIENCE = timedelta(seconds=5)
"""How long something may be in the way of an attempt before it is told: much of it passes by itself."""
_LONGEST_REASON = 1_024
"""Characters of what is told of a refusal; it rides in the run's status."""
_WORTH_READING = {AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.LOST}
"""Attempts that end so leave their pod, unless their activity says otherwise: somebody will want its log."""


@dataclass(slots=True)
class _Blocked:
    """An attempt whose pod could not be made."""

    tries: int
    until: datetime
    message: str
    by_circuit: bool = False
    """A circuit breaker holds it back, and tells when it lets more through."""


class Attempts:
    """The pods of one run's attempts, in this process. The ``observe…`` methods may be called at any time."""

    def __init__(
        self,
        pods: Pods,
        policies: Policies,
        run: RunRef,
        refused: Callable[[str, str], None],
        hindered: Callable[[str, str], None],
        *,
        wake: Callable[[], None],
    ) -> None:
        """Begin to look after a run's attempts.

        Args:
            pods: Where pods are made and read.
            policies: Where circuit breakers are asked.
            run: The run.
            refused: Told, once for each attempt, why its pod cannot be made for now, and the pod's name.
            hindered: Told what is in the way of a pod, and its name: once, until that pod has started.
            wake: Asks for another pass of the run.
        """
        self.activities: Mapping[str, Activity] = {}
        """The definitions, by name; known once the run's definition is."""
        self._api = pods
        self._policies = policies
        self._run = run
        self._tell_refused = refused
        self._tell_hindered = hindered
        self._pods: dict[PodKey, api.Object | None] = {}  # None: it was there, and has disappeared
        self._made: set[PodKey] = set()  # attempts whose pod, and Lease if they have one, are known to have been made
        self._unread: set[PodKey] = set()
        self._logs = LogsOfRun(pods.logs, wake)
        self._pulses: dict[PodKey, Pulse] = {}
        self._told_to_stop: set[PodKey] = set()
        self._leaving: dict[str, tuple[api.Object, Retention]] = {}
        self._left: set[str] = set()  # uids of pods that were let go, until they have disappeared
        self._blocked: dict[PodKey, _Blocked] = {}
        self._hindered: dict[PodKey, datetime] = {}  # since when something is in the way of an attempt
        self._told_of: PodKey | None = None  # the one that was told of: one tells for all
        self._impossible: list[inputs.AttemptFailed] = []

    @property
    def settled(self) -> bool:
        """Whether nothing is left to be looked at or released."""
        return not self._leaving and not self._pods

    # Observing

    def observe(self, pod: api.Object) -> None:
        """A watch shows one of the run's pods."""
        key, uid = api_pods.key_of(pod), pod["metadata"]["uid"]
        if key is not None and api_pods.is_of(pod, self._run) and uid not in self._leaving and uid not in self._left:
            self._pods[key] = pod
            self._unread.add(key)

    def observe_gone(self, pod: api.Object) -> None:
        """One of the run's pods has disappeared."""
        key = api_pods.key_of(pod)
        self._leaving.pop(pod["metadata"]["uid"], None)
        self._left.discard(pod["metadata"]["uid"])
        known = self._pods.get(key) if key is not None else None
        if key is not None and known is not None and known["metadata"]["uid"] == pod["metadata"]["uid"]:
            self._pods[key] = None
            self._unread.add(key)

    def look_again(self) -> None:
        """Read everything once more: what was read may have come to nothing."""
        self._unread |= set(self._pods)

    async def recover(self, state: State) -> None:
        """Look at what a predecessor has left: its pods, and Leases it may not have come to create.

        An attempt that is known to have started, and has no pod, has lost it. Of any other nobody can say whether it ever had
        one: it gets one.
        """
        for found in await self._api.list_of(self._run):
            self.observe(found)
        for activity in state.activities.values():
            key = _key(activity)
            pod = self._pods.get(key)
            if pod is not None and (api_pods.has_ended(pod) or not self._attempt(activity).needs_lease):
                self._made.add(key)
            elif pod is None and activity.started_time is not None:
                self._pods[key] = None
                self._unread.add(key)

    # Observations become inputs

    async def gather(self, state: State, now: datetime) -> list[inputs.AttemptInput]:
        """What has been observed of the attempts that count; deadlines that are due have been looked into."""
        observed: list[inputs.AttemptInput] = [*self._impossible]
        self._impossible.clear()
        for key, known in self._pods.items():
            again = look_again_at(known) if known is not None else None
            if again is not None and again <= now:
                self._unread.add(key)
        for key in sorted(self._unread):
            activity = _due(state, key)
            if activity is not None:
                self._unread.discard(key)
                observed += await self._read(activity, self._pods[key], now)
        beats = await self._listen(state, now)
        for activity in state.activities.values():
            observed += beats.get(_key(activity), ())
            observed += await self._look_up_if_due(activity, now)
            observed += self._waiting(activity, state, now)
        return observed

    def _waiting(self, activity: PendingActivity, state: State, now: datetime) -> list[inputs.AttemptInput]:
        """Why an attempt has not started; once something has been in its way for a while, it is told."""
        key = _key(activity)
        pod, blocked = self._pods.get(key), self._blocked.get(key)
        reason = waiting_reason(pod, self._definition(activity)) if pod else blocked and _cut(blocked.message)
        if activity.started_time is not None or not reason or not hinders(reason):
            self._hindered.pop(key, None)
        if activity.started_time is not None or not reason:
            return []
        stuck = hinders(reason) and now - self._hindered.setdefault(key, now) >= _PATIENCE
        if stuck and pod and not any(state.stuck()) and self._told_of not in self._hindered:
            self._told_of = key
            note = f"Step {activity.activity_id}: attempt {activity.attempt} does not start: {reason}"
            self._tell_hindered(note, pod["metadata"]["name"])
        if reason == activity.waiting_reason and (activity.stuck or not stuck):
            return []
        told = {"scheduled_event_id": key.scheduled_event_id, "attempt": key.attempt}
        telling = blocked is not None and blocked.by_circuit and reason != activity.waiting_reason
        return [inputs.AttemptWaiting(**told, reason=reason, stuck=stuck, worth_telling=telling)]

    async def _read(
        self, activity: PendingActivity, pod: api.Object | None, now: datetime, *, due: bool = False
    ) -> list[inputs.AttemptInput]:
        """What a pod tells about its attempt; None: the pod has disappeared.

        A failure is told with the end of the log, so it waits until that is read; not where a deadline of the attempt is due.
        """
        attempt, definition = self._attempt(activity), self._definition(activity)
        told = _as_asked(activity, pod, outcome(attempt, definition, pod, now=now))
        if isinstance(told, inputs.AttemptFailed) and pod is not None:
            container = failed_container(definition, pod)
            known, log = self._logs.tail(pod, container, now) if container is not None else (True, None)
            if not known and not due:
                self._unread.add(_key(activity))
                return []
            told = replace(told, failure=msgspec.structs.replace(told.failure, log=log)) if log else told
        if told is None or isinstance(told, inputs.AttemptStarted) or not attempt.needs_lease:
            return [told] if told is not None else []
        # It has ended: the Lease has the last heartbeat's details for the next attempt, and a large result.
        asked = wall_clock()
        lease = await self._api.read_lease(self._run, _key(activity))
        again = _as_asked(activity, pod, outcome(attempt, definition, pod, lease, now=now))
        if isinstance(told, inputs.AttemptFailed) and isinstance(again, inputs.AttemptFailed):
            again = replace(again, failure=msgspec.structs.replace(again.failure, log=told.failure.log))
        told = again
        pulse = self._pulse(activity, now).read(attempt, lease, asked, wall_clock())
        return [heartbeat(attempt, lease, pulse), *([told] if told is not None else [])]

    async def _look_up_if_due(self, activity: PendingActivity, now: datetime) -> list[inputs.AttemptInput]:
        """Before a deadline ends an attempt, the truth is asked of the API server: a watch may lag."""
        key = _key(activity)
        due = {kind for deadline, kind in activity.deadlines() if deadline <= now}
        if not self._silent(activity):
            due.discard(TimeoutType.HEARTBEAT)
        if not due:
            return []
        pod = await self._api.read_pod(self._run, key)
        if pod is not None:
            self._pods[key] = pod
        if pod is not None or key in self._pods or activity.started_time:
            return await self._read(activity, pod, now, due=True)
        return []

    async def _listen(self, state: State, now: datetime) -> dict[PodKey, list[inputs.AttemptInput]]:
        """Read the Leases that are due, all at once; what shows a heartbeat, or too long a silence."""
        due = [
            activity
            for activity in state.activities.values()
            if activity.started_time is not None
            and activity.heartbeat_timeout is not None
            and now >= self._pulse(activity, now).look_at(activity.heartbeat_timeout)
        ]
        beats = await asyncio.gather(*(self._listen_to(activity, now) for activity in due), return_exceptions=True)
        heard: dict[PodKey, list[inputs.AttemptInput]] = {}
        for activity, beat in zip(due, beats, strict=True):
            if isinstance(beat, BaseException):
                raise beat
            if beat is not None:
                heard[_key(activity)] = [beat]
        return heard

    async def _listen_to(self, activity: PendingActivity, now: datetime) -> inputs.HeartbeatRead | None:
        known, attempt = self._pulse(activity, now), self._attempt(activity)
        asked = wall_clock()
        lease = await self._api.read_lease(self._run, _key(activity))
        pulse = self._pulses[_key(activity)] = known.read(attempt, lease, asked, wall_clock())
        return heartbeat(attempt, lease, pulse) if pulse.since != known.since or self._silent(activity) else None

    def _pulse(self, activity: PendingActivity, now: datetime) -> Pulse:
        return self._pulses.setdefault(_key(activity), Pulse.begin(now))

    def _silent(self, activity: PendingActivity) -> bool:
        pulse, timeout = self._pulses.get(_key(activity)), activity.heartbeat_timeout
        return pulse is not None and timeout is not None and pulse.lost(timeout)

    def _attempt(self, activity: PendingActivity) -> Attempt:
        return api_pods.attempt_of(activity, self._definition(activity))

    def _definition(self, activity: PendingActivity) -> Activity:
        return self.activities[definition_key(activity)]

    def refuse(self, activity: PendingActivity, failure: Failure) -> None:
        """An attempt can never have a pod, or there is no definition for its activity: it fails."""
        key = _key(activity)
        self._impossible.append(
            inputs.AttemptFailed(scheduled_event_id=key.scheduled_event_id, attempt=key.attempt, failure=failure)
        )

    # Making pods

    def missing(self, state: State, now: datetime) -> list[PendingActivity]:
        """The activities whose attempt is due and has no pod yet."""
        return [
            activity
            for activity in state.activities.values()
            if state.may_start(activity, now)
            and _key(activity) not in self._made
            and not ((blocked := self._blocked.get(_key(activity))) and blocked.until > now)
        ]

    async def admitted(self, activity: PendingActivity, now: datetime) -> bool:
        """Whether the attempt's circuit breaker, if it has one, lets it start."""
        key, policy = _key(activity), activity.retry_policy
        if not policy.circuit_breaker or activity.started_time is not None or key in self._pods:
            return True
        who = holder(self._run, f"{key.scheduled_event_id}/{key.attempt}")
        held = await self._policies.admit(self._run.namespace, policy.name, who)
        if held is None:
            self._blocked.pop(key, None)
            return True
        self._blocked[key] = _Blocked(0, held.until or now + ASK_AGAIN, held.reason, by_circuit=True)
        return False

    def ask_circuits_again(self) -> bool:
        """A circuit breaker may let more through; whether any attempt is held back by one."""
        held = [blocked for blocked in self._blocked.values() if blocked.by_circuit]
        for blocked in held:
            blocked.until = min(blocked.until, wall_clock())
        return bool(held)

    def untold(self, state: State) -> bool:
        """Whether an attempt is held back by a circuit breaker, and the run does not say so yet."""
        return any(
            blocked.by_circuit
            and not self._pods.get(key)  # another operator was let through: the pod says how far the attempt is
            and (activity := _due(state, key)) is not None
            and activity.started_time is None
            and activity.waiting_reason != _cut(blocked.message)
            for key, blocked in self._blocked.items()
        )

    async def make(self, activity: PendingActivity, now: datetime) -> None:
        """Make the pod of an attempt that is due, and its Lease where it has one."""
        key, attempt = _key(activity), self._attempt(activity)
        known = self._pods.get(key)
        try:
            if known is None:
                pod = await self._api.ensure(self._run, attempt, self._definition(activity))
            else:  # a predecessor, or another operator, has made it, perhaps without its Lease
                pod = known
                if attempt.needs_lease and not api_pods.has_ended(pod):
                    await self._api.ensure_lease(self._run, attempt, pod)
        except AttemptBlockedError as error:
            self._block(activity, error, now)
        except (AttemptRefusedError, AttemptImpossibleError) as error:
            self.refuse(activity, error.failure)
        else:
            self._made.add(key)
            if self._pods.setdefault(key, pod) is pod and (pod.get("status") or {}).get("phase") != "Pending":
                self._unread.add(key)  # adopted: it may have ended already

    def _block(self, activity: PendingActivity, error: AttemptBlockedError, now: datetime) -> None:
        blocked = self._blocked.setdefault(_key(activity), _Blocked(0, now, str(error)))
        blocked.message = str(error)
        blocked.until = now + pause(blocked.tries)
        blocked.tries += 1
        if blocked.tries == 1:
            note = f"Step {activity.activity_id}: {error.lacks.format(activity.attempt)}: {error}"
            self._tell_refused(note, pod_name(self._run.name, activity.scheduled_event_id, activity.attempt))

    # Asking pods to stop

    def to_stop(self, state: State) -> list[PendingActivity]:
        """The attempts that run, and have yet to be asked to stop."""
        return [
            activity
            for activity in state.activities.values()
            if activity.cancel_requested
            and activity.started_time is not None
            and _key(activity) not in self._told_to_stop
        ]

    async def pass_on_cancellations(self, state: State) -> None:
        """Ask attempts to stop: those that heartbeat through their Lease, the others by SIGTERM.

        Args:
            state: The state, confirmed to be current if there are any `to_stop`.
        """
        for activity in self.to_stop(state):
            key = _key(activity)
            if activity.heartbeat_timeout is not None:
                await self._api.request_cancel(self._run, key, "the workflow asks the activity to stop")
            else:
                await self._api.stop(self._run, key)
            self._told_to_stop.add(key)

    # Letting pods go

    def retire(self, transition: Transition) -> None:
        """The attempts whose end was recorded: their pods are let go."""
        for attempt in transition.retired:
            key = PodKey(attempt.scheduled_event_id, attempt.attempt)
            pod = self._pods.pop(key, None)
            self._logs.forget(pod)
            self._unread.discard(key)
            self._made.discard(key)
            self._pulses.pop(key, None)
            self._told_to_stop.discard(key)
            if pod is not None:
                succeeded = attempt.outcome is AttemptOutcome.COMPLETED
                worth = succeeded or attempt.outcome in _WORTH_READING
                keep = retention_of(pod, succeeded=succeeded) if worth else Retention.DELETE
                self._leaving[pod["metadata"]["uid"]] = (pod, keep)

    def superfluous(self, state: State) -> list[PodKey]:
        """The pods to be released because no attempt of this state needs them: superseded ones, and all of a closed run.

        Such a pod may also belong to a newer state, which another operator has committed: confirm this one before they are
        given up.
        """
        return [key for key, pod in self._pods.items() if _due(state, key) is None and _is_to_be_released(pod)]

    def give_up(self, state: State, superfluous: list[PodKey]) -> None:
        """Give up pods that no attempt needs, and forget those that nothing is left to be done about.

        Args:
            state: The state.
            superfluous: Pods that were seen before the state was confirmed to be current. Later ones may be newer than it.
        """
        for key in [key for key, pod in self._pods.items() if _due(state, key) is None]:
            if key not in superfluous and _is_to_be_released(self._pods[key]):
                continue
            self._unread.discard(key)
            pod = self._pods.pop(key)
            self._logs.forget(pod)
            if pod is not None and _is_to_be_released(pod):
                keep = retention_of(pod, succeeded=api_pods.has_succeeded(pod))
                self._leaving[pod["metadata"]["uid"]] = (pod, keep)

    def let_all_go(self) -> None:
        """The run is gone: nothing is kept."""
        for pod in self._pods.values():
            if pod is not None:
                self._leaving[pod["metadata"]["uid"]] = (pod, Retention.DELETE)
        self._pods.clear()
        self._unread.clear()

    async def finish_leaving(self) -> None:
        """Let go of the pods that are to be let go."""
        for uid, (pod, keep) in list(self._leaving.items()):
            await self._api.release(pod, keep=keep)
            if self._leaving.pop(uid, None) is not None:
                self._left.add(uid)

    # Waking

    def next_wake(self, state: State, now: datetime) -> datetime | None:
        """When something is to be looked at or tried again although nothing was heard of it."""
        reading = [self._logs.waits_until(self._pods.get(key)) or now for key in self._unread]
        if self._impossible or any(until <= now for until in reading):
            return now
        self._blocked = {
            key: blocked for key, blocked in self._blocked.items() if _due(state, key) and key not in self._made
        }
        self._hindered = {key: since for key, since in self._hindered.items() if _due(state, key)}
        times = [blocked.until for blocked in self._blocked.values()]
        times += reading
        times += [since + _PATIENCE for since in self._hindered.values()]
        times += [
            self._pulse(activity, now).look_at(activity.heartbeat_timeout)
            for activity in state.activities.values()
            if activity.started_time is not None and activity.heartbeat_timeout is not None
        ]
        times += filter(None, (look_again_at(pod) for pod in self._pods.values() if pod is not None))
        return min((time for time in times if time > now), default=None)


def definition_key(activity: PendingActivity) -> str:
    """By which name the definition of an activity is known: that of its own Workflow, or of the one that a queue names."""
    return f"{activity.task_queue}/{activity.activity_type}" if activity.task_queue else activity.activity_type


def _cut(message: str) -> str:
    return message if len(message) <= _LONGEST_REASON else message[: _LONGEST_REASON - 1] + "…"


def _key(activity: PendingActivity) -> PodKey:
    return PodKey(activity.scheduled_event_id, activity.attempt)


def _due(state: State, key: PodKey) -> PendingActivity | None:
    """The open activity whose attempt that is; None for an attempt nobody waits for."""
    activity = state.activity(key.scheduled_event_id)
    return activity if activity is not None and activity.attempt == key.attempt else None


def _is_to_be_released(pod: api.Object | None) -> bool:
    """Whether something is left to do about a pod that no attempt needs."""
    return pod is not None and (api_pods.held(pod) or not api_pods.has_ended(pod))


def _as_asked(
    activity: PendingActivity, pod: api.Object | None, told: inputs.AttemptInput | None
) -> inputs.AttemptInput | None:
    """What a pod tells, where it may only echo that it was asked to stop: it says so, or was deleted for it."""
    if not activity.cancel_requested or not isinstance(told, inputs.AttemptFailed | inputs.AttemptLost):
        return told
    deleted = activity.heartbeat_timeout is None and (pod is None or "deletionTimestamp" in pod["metadata"])
    if told.failure.kind is not FailureKind.CANCELLED and not deleted:
        return told
    return inputs.AttemptCancelled(
        scheduled_event_id=told.scheduled_event_id,
        attempt=told.attempt,
        details=told.failure.details,
        started_time=told.started_time,
    )
