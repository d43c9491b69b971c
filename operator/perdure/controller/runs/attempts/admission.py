"""Decide whether an attempt may start: the pod before it, WorkflowLimits of its activity or step, a circuit breaker.

A retry waits until no container of the previous attempt runs, unless the activity permits both at the same time. The pod is read
from the API server, because a watch may lag. If its node is lost, it counts as ended when its attempt would count as lost. But
what holds a WorkflowLimit must not run twice, so such an attempt waits until Kubernetes removes the pod.

An activity takes all of its limits together, or none. It keeps them across retries and restarts of the operator, because the
status of a limit has its holders. `controller.limit_releases` releases them. A rate that counts attempts must also permit each
attempt.

`Blocked` has the attempts that may not start, and those whose pods the API server rejects: temporarily, with the time of the next
try, or permanently.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from perdure.api.kinds.workflowlimit import ActivityLimit, ActivityOverflowPolicy, LimitTaker, LimitTakers, StepLimit
from perdure.api.names import pod_name
from perdure.controller.limits import Claim, Full, Unusable, Wanted, limit_entry, names_of, taken_together
from perdure.controller.pods.attempt_pods import AttemptBlockedError, PodKey, may_run, scope_of, stopping
from perdure.controller.reconcile.record import Record
from perdure.controller.reconcile.refusals import pause
from perdure.controller.retry_policies import CHECK_AGAIN
from perdure.controller.runs.attempts.definitions import ActivityDefinitions
from perdure.controller.runs.attempts.held_pods import HeldPods
from perdure.controller.services import Services
from perdure.engine.failures import Failure
from perdure.engine.inputs import AttemptFailed
from perdure.engine.state import PODS_QUEUE, PendingActivity, RunState
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.language.keys import activity_limit_keys, requested_limits
from perdure.language.step_failures import StepError, application
from perdure.runtime.attempt_outcomes import recheck_time
from perdure.runtime.attempts import RunRef
from perdure.runtime.circuits import Held, holder

_LIMIT_REACHED = "LimitReached"
"""The type of the failure of an activity that must not wait, or has waited too long."""
_LOOK_AGAIN: Final = timedelta(seconds=10)
"""Delay before the pod of an earlier attempt is read again, unless a watch shows earlier that it has ended."""
_LONGEST_REASON = 1_024
"""Maximum length of the message of a refusal in the run's status, in characters."""


class _Cause(Enum):
    """What blocks an attempt."""

    API = "api"
    """The API server rejects its pod or its Lease."""
    POD = "pod"
    """The pod of the previous attempt, which still runs."""
    CIRCUIT = "circuit"
    """A circuit breaker, which reports when it admits more attempts."""
    LIMIT = "limit"
    """A WorkflowLimit that does not exist or is not valid. The run is woken when that changes."""
    QUEUE = "queue"
    """The queue of a WorkflowLimit. The run is woken when its turn comes."""


_WAKES: Final = frozenset({_Cause.LIMIT, _Cause.QUEUE})
"""The causes after which the run is woken in time, so that each reconciliation can try again."""


@dataclass(slots=True)
class _Block:
    """The reason why an attempt is blocked."""

    until: datetime | None
    """When to try again without an event."""
    message: str
    tries: int = 0
    cause: _Cause = _Cause.API

    @property
    def is_shared(self) -> bool:
        """Whether an object that runs share blocks the attempt."""
        return self.cause not in {_Cause.API, _Cause.POD}


class Blocked:
    """The attempts of one run whose pods could not be created."""

    def __init__(self, run: RunRef, notify: Callable[[str, str], None]) -> None:
        """Start without blocked attempts.

        Args:
            run: The run.
            notify: Called once for each attempt with the reason why its pod cannot be created for now, and the pod's name.
        """
        self._run = run
        self._notify = notify
        self._blocks: dict[PodKey, _Block] = {}
        self._refused: list[AttemptFailed] = []

    # Permanently

    def refuse(self, activity: PendingActivity, failure: Failure) -> None:
        """Fail an attempt whose pod can never be created, or whose activity has no definition."""
        number, attempt = activity.scheduled_event_id, activity.attempt
        self._refused.append(AttemptFailed(scheduled_event_id=number, attempt=attempt, failure=failure))

    @property
    def any_refused(self) -> bool:
        """Whether there are refused attempts that were not reported to the engine yet."""
        return bool(self._refused)

    def refused(self) -> list[AttemptFailed]:
        """The refused attempts, as inputs of the engine; each is reported once."""
        refused, self._refused = self._refused, []
        return refused

    # Temporarily

    def by_api(self, activity: PendingActivity, error: AttemptBlockedError, now: datetime) -> None:
        """Record that the API server rejects the pod or the Lease of an attempt."""
        block = self._blocks.setdefault(PodKey.of(activity), _Block(now, str(error)))
        block.message, block.until, block.cause = str(error), now + pause(block.tries), _Cause.API
        block.tries += 1
        if block.tries == 1:
            note = f"Step {activity.activity_id}: {error.lacks.format(activity.attempt)}: {error}"
            self._notify(note, pod_name(self._run.name, activity.scheduled_event_id, activity.attempt))

    def by_predecessor(self, key: PodKey, pod: kube.Object, now: datetime, *, trusts_node: bool) -> None:
        """Note that an attempt waits for the end of an earlier attempt's pod; see `may_run`."""
        lost, again = recheck_time(pod), now + _LOOK_AGAIN
        until = again if trusts_node or lost is None else min(lost, again)
        overdue = lost is not None and lost <= now
        self._blocks[key] = _Block(until, _still_runs(pod, overdue=overdue), cause=_Cause.POD)

    def clear_predecessor(self, key: PodKey) -> None:
        """Note that an attempt does not wait for the pod of an earlier one, or that this must be checked now."""
        if self.follows_pod(key):
            self.clear(key)

    def pod_ended(self, ended: PodKey) -> None:
        """Process the end of an earlier attempt's pod: the attempt that waits for it tries again."""
        for key in [key for key in self._blocks if key.scheduled_event_id == ended.scheduled_event_id]:
            self.clear_predecessor(key)

    def by_circuit(self, key: PodKey, held: Held, now: datetime) -> None:
        """Note that a circuit breaker blocks an attempt."""
        self._blocks[key] = _Block(held.until or now + CHECK_AGAIN, held.reason, cause=_Cause.CIRCUIT)

    def by_limit(self, key: PodKey, message: str, until: datetime | None, *, queued: bool) -> None:
        """Note that an attempt waits for a WorkflowLimit.

        Args:
            key: The attempt.
            message: The reason.
            until: When it must not wait longer.
            queued: Whether it waits for its turn; otherwise, the limit cannot be used.
        """
        self._blocks[key] = _Block(until, message, cause=_Cause.QUEUE if queued else _Cause.LIMIT)

    def clear(self, key: PodKey) -> None:
        """Note that nothing blocks an attempt."""
        self._blocks.pop(key, None)

    def clear_shared(self, key: PodKey) -> None:
        """Note that no WorkflowLimit and no circuit breaker blocks an attempt."""
        if self.is_shared(key):
            self.clear(key)

    def waits(self, key: PodKey, now: datetime) -> bool:
        """Whether it is too early to try again."""
        block = self._blocks.get(key)
        return block is not None and block.until is not None and now < block.until and block.cause not in _WAKES

    def reason(self, key: PodKey) -> str | None:
        """The shortened reason why an attempt is blocked; None if it is not."""
        block = self._blocks.get(key)
        return _cut(block.message) if block is not None else None

    def is_shared(self, key: PodKey) -> bool:
        """Whether a circuit breaker or a WorkflowLimit blocks an attempt."""
        block = self._blocks.get(key)
        return block is not None and block.is_shared

    def follows_pod(self, key: PodKey) -> bool:
        """Whether an attempt waits for the end of an earlier attempt's pod."""
        block = self._blocks.get(key)
        return block is not None and block.cause is _Cause.POD

    def is_queued(self, key: PodKey) -> bool:
        """Whether an attempt waits for its turn in a WorkflowLimit."""
        block = self._blocks.get(key)
        return block is not None and block.cause is _Cause.QUEUE

    def recheck_circuits(self) -> bool:
        """Check the circuit breakers again, and return whether one blocks an attempt."""
        held = [block for block in self._blocks.values() if block.cause is _Cause.CIRCUIT]
        for block in held:
            block.until = wall_clock()
        return bool(held)

    def unreported(self, state: RunState, pods: Mapping[PodKey, kube.Object | None]) -> bool:
        """Whether something other than the API server blocks an attempt, and the state does not show this yet.

        If a pod exists, it has admitted another operator, and the pod shows the state of the attempt.
        """
        return any(
            block.cause is not _Cause.API
            and not pods.get(key)
            and (activity := key.due(state)) is not None
            and activity.started_time is None
            and activity.waiting_reason != _cut(block.message)
            for key, block in self._blocks.items()
        )

    def next_tries(self, state: RunState) -> list[datetime]:
        """The times of the next tries. Attempts that are not in the state are dropped."""
        self._blocks = {key: block for key, block in self._blocks.items() if key.due(state)}
        return [block.until for block in self._blocks.values() if block.until is not None]


def _still_runs(pod: kube.Object, *, overdue: bool) -> str:
    """Say that the pod of an earlier attempt has not ended. `overdue`: its node should have reported the end long ago."""
    name = f"pod {pod['metadata']['name']} of an earlier attempt"
    if not overdue:
        return f"{name} {stopping(pod)}"
    return (
        f"node {pod['spec'].get('nodeName')} does not report that {name} has ended, and the WorkflowLimit allows no second one; "
        "if the node is lost, delete it, or taint it with node.kubernetes.io/out-of-service"
    )


def _cut(message: str) -> str:
    return message if len(message) <= _LONGEST_REASON else message[: _LONGEST_REASON - 1] + "…"


class Admission:
    """The earlier pods, and the objects that runs share, that block the attempts of one run."""

    def __init__(
        self,
        services: Services,
        run: RunRef,
        record: Record,
        held: HeldPods,
        blocked: Blocked,
        definitions: ActivityDefinitions,
    ) -> None:
        """Create it.

        Args:
            services: The pods, the limits, and the RetryPolicies with circuit breakers.
            run: The run.
            record: The object of the run.
            held: The known pods.
            blocked: Collects the attempts that are blocked.
            definitions: The definitions of the activities.
        """
        self._pods = services.pods
        self._limits = services.limits
        self._policies = services.policies
        self._run = run
        self._record = record
        self._held = held
        self._blocked = blocked
        self._definitions = definitions

    async def admits(self, activity: PendingActivity, state: RunState, now: datetime) -> bool:
        """Whether the attempt may have its pod; otherwise, this notes why it is blocked.

        The breaker comes last, because it admits one attempt at a time while it is half-open.

        Args:
            activity: The activity.
            state: The state of the run.
            now: The time.

        Raises:
            StepError: The attempt must fail: a key has no value, or the activity must not wait for a limit.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if activity.started_time is not None or PodKey.of(activity) in self._held.pods:
            return True
        return (
            await self._succeeds_ended_pod(activity, state, now)
            and await self.acquire_limits(activity, now)
            and await self._passes_circuit(activity, now)
        )

    async def _succeeds_ended_pod(self, activity: PendingActivity, state: RunState, now: datetime) -> bool:
        key = PodKey.of(activity)
        if key.attempt == 1 or activity.takes_limits or self._definitions.of(activity).may_overlap:
            return True
        pod, exclusive = await self._pods.read_predecessor(self._run, key), self._definitions.limited(activity, state)
        if pod is not None and may_run(pod, now, trusts_node=exclusive):
            self._blocked.by_predecessor(key, pod, now, trusts_node=exclusive)
            return False
        self._blocked.clear_predecessor(key)
        return True

    async def acquire_limits(self, activity: PendingActivity, now: datetime) -> bool:
        """Whether the attempt gets its limits, all that workers have to wait for; otherwise, this notes why it is blocked.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        selecting = self._selecting(activity)
        required = [*self._required(activity, selecting)]
        entry_id = f"{self._run.uid}/{activity.scheduled_event_id}"
        await self._limits.withdraw(self._run, entry_id, {use.name for use, _ in required})
        if not required:
            self._blocked.clear_shared(PodKey.of(activity))
            return True
        group, namespace = self._places(activity, required, now), self._run.namespace
        if not self._limits.lists_all(namespace, group):
            await self._record.confirm()  # an outdated state must not take a limit for an activity that has ended
        missing = await self._limits.acquire(namespace, group)
        if missing and self._selecting(activity) != selecting:  # one was deleted or changed in the meantime
            return await self.acquire_limits(activity, now)
        if missing:
            self._wait(activity, group, missing, {use.name: use for use, _ in required}, now)
            return False
        self._blocked.clear_shared(PodKey.of(activity))
        return True

    async def permits_start(self, activity: PendingActivity, now: datetime) -> bool:
        """Whether the rates of its limits permit an attempt to start now; otherwise, this notes that it waits.

        Call it right before the pod is created: the attempt counts, and a permission expires soon. The `waitTimeout` and the
        `overflowPolicy` of a limit do not apply, because the activity holds it.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if activity.started_time is not None or PodKey.of(activity) in self._held.pods:
            return True
        group = self._places(activity, self._required(activity, self._selecting(activity)), now)
        missing = await self._limits.permit(self._run.namespace, group, activity.attempt)
        if not missing:
            return True
        place, full = missing[0]
        until = min((each.until for _, each in missing if each.until is not None), default=None)
        reason = full.reason(place.limit, place.claim.entry.key, "holder")
        self._blocked.by_limit(PodKey.of(activity), reason, until, queued=True)
        return False

    def _places(
        self, activity: PendingActivity, required: Iterable[tuple[ActivityLimit | StepLimit, str]], now: datetime
    ) -> tuple[Wanted, ...]:
        """The places in the limits that an activity takes together."""
        priority, wanted = self._record.object["spec"].get("priority", 0), []
        for use, key in required:
            entry = limit_entry(self._run, activity, key, priority, activity.first_scheduled_time, now)
            queues = use.overflow_policy is ActivityOverflowPolicy.QUEUE
            wanted.append(Wanted(use.name, Claim(self._run, entry, queues=queues)))
        return taken_together(wanted)

    def _selecting(self, activity: PendingActivity) -> list[tuple[str, str]]:
        """The limits that select the activity, with its keys."""
        if activity.takes_limits:
            return []
        workflow = self._record.object["spec"].get("workflow") or {}
        name = workflow.get("name") or ""
        if not activity.by_worker and activity.task_queue:
            name = activity.task_queue.removeprefix(PODS_QUEUE)
        taker = LimitTaker(
            kind=LimitTakers.ACTIVITIES,
            workflow=name,
            type=activity.activity_type,
            task_queue=activity.task_queue if activity.by_worker else "",
            group=name or workflow.get("type") or "",
        )
        return self._limits.selecting(self._run.namespace, taker)

    def _required(
        self, activity: PendingActivity, selecting: Iterable[tuple[str, str]]
    ) -> Iterator[tuple[ActivityLimit | StepLimit, str]]:
        """The limits to acquire, with their keys, in order."""
        if activity.takes_limits:
            yield from requested_limits(activity.input)
            return
        definition, named = None if activity.by_worker else self._definitions.of(activity), set[str]()
        if definition is not None and definition.limits:
            values = self._definitions.attempt(activity).input
            for use, key in activity_limit_keys(definition, values, scope_of(self._run)):
                named.add(use.name)
                yield use, key
        for name, key in selecting:
            if name not in named:
                yield ActivityLimit(name=name), key

    def _wait(
        self,
        activity: PendingActivity,
        group: Sequence[Wanted],
        missing: Iterable[tuple[Wanted, Full | Unusable]],
        uses: Mapping[str, ActivityLimit | StepLimit],
        now: datetime,
    ) -> None:
        """Note why the attempt is blocked.

        Raises:
            StepError: The activity must not wait, or has waited too long.
        """
        reasons: list[str] = []
        times: list[datetime] = []
        names = names_of(group)
        for place, answer in missing:
            use, entry = uses[place.limit], place.claim.entry
            due = None if use.wait_timeout is None else entry.created + use.wait_timeout
            if isinstance(answer, Full):
                reason = answer.reason(use.name, entry.key, "holder")
                reason = f"{reason}; it takes {names} together" if names else reason
                failure = answer.failure(use.name, entry.key, "holder")
                if not place.claim.queues:
                    raise StepError(application(_LIMIT_REACHED, f"{failure}, and it is full"))
                times += [answer.until] if answer.until is not None else []
            else:
                reason = failure = answer.reason(use.name, self._run.namespace)
                due = None if answer.newer else due
            if due is not None and due <= now:
                taker = "step" if activity.takes_limits else "activity"
                raise StepError(application(_LIMIT_REACHED, f"{failure}; the `waitTimeout` of the {taker} has expired"))
            reasons.append(reason)
            times += [due] if due is not None else []
        queued = all(isinstance(answer, Full) for _, answer in missing)
        self._blocked.by_limit(PodKey.of(activity), reasons[0], min(times, default=None), queued=queued)

    async def _passes_circuit(self, activity: PendingActivity, now: datetime) -> bool:
        key, policy = PodKey.of(activity), activity.retry_policy
        if not policy.circuit_breaker:
            return True
        who = holder(self._run, f"{key.scheduled_event_id}/{key.attempt}")
        reason = await self._policies.admit(self._run.namespace, policy.name, who)
        if reason is None:
            self._blocked.clear(key)
            return True
        self._blocked.by_circuit(key, reason, now)
        return False
