"""Decide whether an attempt may start: the WorkflowLimits of its activity or step, and the circuit breaker of its RetryPolicy.

An activity acquires limits in the order of their names, so that activities with several limits cannot block each other. It keeps
them while it waits for the next one, and across retries and restarts of the operator, because the status of a limit has its
holders. `limit_releases` releases them.
"""

from collections.abc import Iterator
from datetime import datetime

from perdure.api.workflowlimit import ActivityLimit, ActivityOverflowPolicy, StepLimit
from perdure.controller.limits.limit_entries import limit_entry
from perdure.controller.limits.workflow_limits import Claim, Full, Granted
from perdure.controller.pods.attempt_pods import scope_of
from perdure.controller.pods.pod_key import PodKey
from perdure.controller.reconcile.record import Record
from perdure.controller.runs.attempts.attempt_context import AttemptContext
from perdure.controller.tools import Tools
from perdure.engine.state import PendingActivity
from perdure.language.keys import activity_limit_keys, wanted_limits
from perdure.language.step_failures import StepError, application
from perdure.runtime.circuits import holder

_LIMIT_REACHED = "LimitReached"
"""The type of the failure of an activity that must not wait, or has waited too long."""


class AttemptAdmission:
    """The objects that runs share and that hold back the attempts of one run."""

    def __init__(self, tools: Tools, context: AttemptContext, record: Record) -> None:
        """Create it.

        Args:
            tools: The limits, and the RetryPolicies with circuit breakers.
            context: The run, and the known state of its attempts.
            record: The object of the run.
        """
        self._limits = tools.limits
        self._policies = tools.policies
        self._context = context
        self._run = context.run
        self._blocked = context.blocked
        self._record = record

    async def admits(self, activity: PendingActivity, now: datetime) -> bool:
        """Whether the attempt may have its pod; otherwise, this notes why it is blocked.

        A breaker is asked last, because it admits one attempt at a time while it is half-open.

        Raises:
            StepError: The attempt must fail: a key has no value, or the activity must not wait for a limit.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if activity.started_time is not None or PodKey.of(activity) in self._context.held.pods:
            return True
        return await self._takes_limits(activity, now) and await self._passes_circuit(activity, now)

    async def _takes_limits(self, activity: PendingActivity, now: datetime) -> bool:
        if not activity.takes_limits and not self._context.definitions.of(activity).limits:
            return True
        for use, key in self._wanted(activity):
            if not await self._takes(activity, use, key, now):
                return False
        self._blocked.clear_shared(PodKey.of(activity))
        return True

    def _wanted(self, activity: PendingActivity) -> Iterator[tuple[ActivityLimit | StepLimit, str]]:
        """The limits to acquire, with their keys, in order."""
        if activity.takes_limits:
            return wanted_limits(activity.input)
        definitions = self._context.definitions
        return activity_limit_keys(definitions.of(activity), definitions.attempt(activity).input, scope_of(self._run))

    async def _takes(self, activity: PendingActivity, use: ActivityLimit | StepLimit, key: str, now: datetime) -> bool:
        """Acquire one limit; otherwise, note why the attempt is blocked.

        Raises:
            StepError: The activity must not wait, or has waited too long.
        """
        priority = self._record.object["spec"].get("priority", 0)
        entry = limit_entry(self._run, activity, key, priority, activity.first_scheduled_time, now)
        queues = use.overflow_policy is ActivityOverflowPolicy.QUEUE
        due = None if use.wait_timeout is None else entry.created + use.wait_timeout
        namespace = self._run.namespace
        if not self._limits.lists(namespace, use.name, entry):
            await self._record.confirm()  # an outdated state must not take a limit for an activity that has ended
        answer = await self._limits.claim(namespace, use.name, Claim(self._run, entry, queues=queues))
        if isinstance(answer, Granted):
            return True
        if isinstance(answer, Full):
            reason, failure = answer.reason(use.name, key, "holder"), answer.failure(use.name, key, "holder")
            if not queues:
                raise StepError(application(_LIMIT_REACHED, f"{failure}, and it is full"))
        else:
            reason = failure = answer.reason(use.name, namespace)
            due = None if answer.newer else due
        if due is not None and due <= now:
            taker = "step" if activity.takes_limits else "activity"
            raise StepError(application(_LIMIT_REACHED, f"{failure}; the `waitTimeout` of the {taker} has expired"))
        self._blocked.by_limit(PodKey.of(activity), reason, due, queued=isinstance(answer, Full))
        return False

    async def _passes_circuit(self, activity: PendingActivity, now: datetime) -> bool:
        key, policy = PodKey.of(activity), activity.retry_policy
        if not policy.circuit_breaker:
            return True
        who = holder(self._run, f"{key.scheduled_event_id}/{key.attempt}")
        held = await self._policies.admit(self._run.namespace, policy.name, who)
        if held is None:
            self._blocked.clear(key)
            return True
        self._blocked.by_circuit(key, held, now)
        return False
