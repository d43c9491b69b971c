"""RPCs about task queues: their pollers and backlog, and the settings of their rates and weights."""

import math
from collections.abc import Collection, Mapping
from datetime import datetime

from msgspec.structs import replace
from temporalio.api.enums.v1 import DescribeTaskQueueMode, RateLimitSource, TaskQueueType, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import (
    ConfigMetadata,
    PollerInfo,
    RateLimitConfig,
    TaskQueueConfig,
    TaskQueueStats,
    TaskQueueTypeInfo,
    TaskQueueVersioningInfo,
)
from temporalio.api.taskqueue.v1 import RateLimit as ProtoRateLimit
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    UpdateTaskQueueConfigRequest,
    UpdateTaskQueueConfigResponse,
)

from perdure.engine.inputs import OPERATOR
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.frontend.deployments.rules import Deployments, WorkerDeployment, routing
from perdure.frontend.errors import invalid
from perdure.frontend.matching.dispatch import (
    LONGEST_FAIRNESS_KEY,
    NO_SETTINGS,
    QueueSettings,
    RateLimit,
    RateLimits,
    TaskQueueSettings,
)
from perdure.frontend.matching.queues import Kind, QueueName, TaskQueues
from perdure.frontend.messages.histories import deployment_version
from perdure.frontend.messages.values import NO_TIME, name
from perdure.frontend.registry import Entries, NamespaceRegistry, fits_key
from perdure.frontend.transport.rpc import CallContext
from perdure.kube.clock import now

KINDS = {
    TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW: Kind.WORKFLOW,
    TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY: Kind.ACTIVITY,
    TaskQueueType.TASK_QUEUE_TYPE_NEXUS: Kind.NEXUS,
}
_UNVERSIONED = ""
_NO_VERSION = "__unversioned__"
_NO_RATE = 100_000.0
"""How many tasks a second a worker takes that sets no limit (service/matching: defaultTaskDispatchRPS)."""
MAX_WEIGHTS = 1_000
"""Maximum number of fairness weights of a task queue (matching.maxFairnessKeyWeightOverrides)."""
MAX_REASON = 1_000
"""Maximum length of the reason for a limit, in characters."""


class TaskQueueRpcs:
    """Describes task queues, and changes their settings."""

    def __init__(
        self,
        queues: TaskQueues,
        deployments: NamespaceRegistry[WorkerDeployment],
        task_queues: NamespaceRegistry[TaskQueueSettings],
    ) -> None:
        self._queues = queues
        self._deployments = deployments
        self._task_queues = task_queues

    async def describe_task_queue(
        self, request: DescribeTaskQueueRequest, call: CallContext
    ) -> DescribeTaskQueueResponse:
        """Describe the pollers and the backlog of a task queue."""
        if not request.task_queue.name:
            raise invalid("TaskQueue is not set on request.")
        name = request.task_queue.name
        if request.api_mode == DescribeTaskQueueMode.DESCRIBE_TASK_QUEUE_MODE_ENHANCED:
            response = DescribeTaskQueueResponse()
            types = response.versions_info[_UNVERSIONED].types_info
            for each in set(request.task_queue_types) & set(KINDS) or KINDS:
                types[each].CopyFrom(self._described(request, QueueName(request.namespace, KINDS[each], name)))
            return response
        kind = KINDS.get(request.task_queue_type, Kind.WORKFLOW)
        described = self._described(request, QueueName(request.namespace, kind, name))
        response = DescribeTaskQueueResponse(pollers=described.pollers, stats=described.stats)
        known = await self._deployments.load(request.namespace)
        response.versioning_info.CopyFrom(_versioning(known, kind, name))
        settings = (await self._task_queues.load(request.namespace)).get(name, {}).get(kind)
        if request.report_config and settings is not None:
            response.config.CopyFrom(_config(settings))
        rate = _effective_rate(self._queues.limits(QueueName(request.namespace, kind, name)))
        if rate is not None:
            response.effective_rate_limit.CopyFrom(rate)
        return response

    def _described(self, request: DescribeTaskQueueRequest, name: QueueName) -> TaskQueueTypeInfo:
        parts = {name, *self._queues.versions(name)}
        found = [self._queues.statistics(part) for part in parts]
        described = TaskQueueTypeInfo(
            pollers=[
                _poller(identity, time, part.version, self._queues.limits(part))
                for part in parts
                for identity, time in self._pollers(part).items()
            ],
            stats=TaskQueueStats(
                approximate_backlog_count=sum(each.waiting for each in found),
                tasks_add_rate=sum(each.added for each in found),
                tasks_dispatch_rate=sum(each.dispatched for each in found),
            ),
        )
        described.stats.approximate_backlog_age.FromTimedelta(max(each.age for each in found))
        if request.api_mode == DescribeTaskQueueMode.DESCRIBE_TASK_QUEUE_MODE_ENHANCED:
            if not request.report_stats:
                described.ClearField("stats")
            if not request.report_pollers:
                described.ClearField("pollers")
        return described

    def _pollers(self, name: QueueName) -> Mapping[str, datetime]:
        """The recent pollers of a task queue. The queue of Workflows is always polled, because the operator decides them."""
        if name.kind is Kind.WORKFLOW and name.name == WORKFLOWS_QUEUE:
            return {OPERATOR: now()}
        return self._queues.pollers(name)

    async def update_task_queue_config(
        self, request: UpdateTaskQueueConfigRequest, call: CallContext
    ) -> UpdateTaskQueueConfigResponse:
        """Change the settings in the request, and keep all others."""
        queue = name(request.task_queue, "TaskQueue")
        if not fits_key(queue):
            raise invalid("TaskQueue cannot be stored as the key of a ConfigMap: it is too long")
        kind = KINDS.get(request.task_queue_type)
        if kind is None:
            raise invalid("TaskQueueType is not set on request.")
        queue_limit, key_limit = (
            _requested_limit(request, "update_queue_rate_limit"),
            _requested_limit(request, "update_fairness_key_rate_limit_default"),
        )
        workflows = kind is Kind.WORKFLOW
        check_limit(queue_limit, "UpdateQueueRateLimit", "rate limit", workflows=workflows)
        check_limit(key_limit, "UpdateFairnessKeyRateLimitDefault", "fairness key rate limit", workflows=workflows)
        weights, removed = request.set_fairness_weight_overrides, request.unset_fairness_weight_overrides
        check_weights(weights, removed)

        def change(known: Entries[TaskQueueSettings]) -> Entries[TaskQueueSettings]:
            of_queue = known.get(queue, {})
            settings = with_weights(of_queue.get(kind, NO_SETTINGS), weights, removed)
            if queue_limit is not None:
                settings = replace(settings, queue_rate_limit=queue_limit)
            if key_limit is not None:
                settings = replace(settings, fairness_keys_rate_limit_default=key_limit)
            return {**known, queue: {**of_queue, kind: settings}}

        after = await self._task_queues.change(request.namespace, change)
        return UpdateTaskQueueConfigResponse(config=_config(after[queue][kind]))


def _requested_limit(request: UpdateTaskQueueConfigRequest, field: str) -> RateLimit | None:
    """The limit that a request sets or removes; None if the request does not change it."""
    if not request.HasField(field):  # type: ignore[arg-type]
        return None
    update = getattr(request, field)
    rate = update.rate_limit.requests_per_second if update.HasField("rate_limit") else None
    return RateLimit(
        requests_per_second=rate, reason=update.reason, update_identity=request.identity, update_time=now()
    )


def _versioning(known: Deployments, kind: Kind, name: str) -> TaskQueueVersioningInfo:
    """The versions that get the tasks of a task queue."""
    current, ramp, percentage = routing(known, kind, name)
    made = TaskQueueVersioningInfo(current_version=_NO_VERSION)
    if current is not None:
        made.current_version = f"{current.deployment_name}.{current.build_id}"
        made.current_deployment_version.CopyFrom(deployment_version(current))
    ramping = ramp[0] if ramp is not None else None
    if ramp is not None:
        made.ramping_version = f"{ramping.deployment_name}.{ramping.build_id}" if ramping is not None else _NO_VERSION
        made.ramping_version_percentage = percentage
    if ramping is not None:
        made.ramping_deployment_version.CopyFrom(deployment_version(ramping))
    of = [known[each.deployment_name] for each in (current, ramping) if each is not None]
    times = [time for each in of for time in (each.current_changed_time, each.percentage_changed_time) if time]
    made.update_time.FromDatetime(max(times, default=NO_TIME))
    return made


def _poller(identity: str, time: datetime, version: str, limits: RateLimits) -> PollerInfo:
    by_worker = limits.per_second if limits.settings.rate is None else None
    made = PollerInfo(identity=identity, rate_per_second=_NO_RATE if by_worker is None else by_worker)
    if version:
        options = made.deployment_options
        options.deployment_name, _, options.build_id = version.partition(":")
        options.worker_versioning_mode = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    made.last_access_time.FromDatetime(time)
    return made


def _config(settings: QueueSettings) -> TaskQueueConfig:
    """Return the settings of a task queue as a message."""
    return TaskQueueConfig(
        queue_rate_limit=_limit(settings.queue_rate_limit),
        fairness_keys_rate_limit_default=_limit(settings.fairness_keys_rate_limit_default),
        fairness_weight_overrides=settings.fairness_weight_overrides,
    )


def _limit(limit: RateLimit | None) -> RateLimitConfig | None:
    if limit is None:
        return None
    metadata = ConfigMetadata(reason=limit.reason, update_identity=limit.update_identity)
    metadata.update_time.FromDatetime(limit.update_time)
    rate = limit.requests_per_second
    return RateLimitConfig(
        metadata=metadata, rate_limit=None if rate is None else ProtoRateLimit(requests_per_second=rate)
    )


def _effective_rate(limits: RateLimits) -> DescribeTaskQueueResponse.EffectiveRateLimit | None:
    """Return the limit of a task queue and its source; None if there is none."""
    if limits.per_second is None:
        return None
    by_api = limits.settings.rate is not None
    return DescribeTaskQueueResponse.EffectiveRateLimit(
        requests_per_second=limits.per_second,
        rate_limit_source=RateLimitSource.RATE_LIMIT_SOURCE_API if by_api else RateLimitSource.RATE_LIMIT_SOURCE_WORKER,
    )


# Checks of settings, with the messages of Temporal's server (service/frontend/validators.go, service/matching/fairness_util.go)


def check_limit(limit: RateLimit | None, field: str, noun: str, *, workflows: bool) -> None:
    """Check a limit that a request sets.

    Args:
        limit: The limit; None: the request does not change it.
        field: The name of the limit in messages about its values.
        noun: The name of the limit in other messages.
        workflows: Whether the task queue dispatches workflow tasks.

    Raises:
        RpcError: The limit is negative or not allowed for this kind of task, or its reason is too long.
    """
    if limit is None or limit.requests_per_second is None:
        return
    if workflows:
        raise invalid(f"Setting {noun} on workflow task queues is not allowed.")
    if not limit.requests_per_second >= 0:
        raise invalid(f"RequestsPerSecond for {field} rate limit must be non-negative.")
    if len(limit.reason) > MAX_REASON:
        raise invalid(f"{field}.Reason field too long (max {MAX_REASON} characters).")


def check_weights(weights: Mapping[str, float], removed: Collection[str]) -> None:
    """Check the fairness weights that a request sets and removes.

    Raises:
        RpcError: There are too many, a key is empty, too long or in both, or a weight is not positive and finite.
    """
    number = len(weights) + len(removed)
    if number > MAX_WEIGHTS:
        raise invalid(f"too many fairness weight overrides in request: got {number}, maximum {MAX_WEIGHTS}")
    for key in (*weights, *removed):
        if not key:
            raise invalid("fairness weight override key must not be empty")
        if len(key.encode()) > LONGEST_FAIRNESS_KEY:
            raise invalid("fairness key length exceeds limit")
        if key in weights and not weights[key] > 0:
            raise invalid(f'invalid fairness weight weight for key "{key}": must be greater than zero')
        if weights.get(key) == math.inf:
            raise invalid(f'invalid fairness weight for key "{key}": must be finite')
    for key in removed:
        if key in weights:
            raise invalid(f'fairness weight override key "{key}" present in both set and unset lists')


def with_weights(settings: QueueSettings, weights: Mapping[str, float], removed: Collection[str]) -> QueueSettings:
    """Return settings with other fairness weights.

    Raises:
        RpcError: There would be too many.
    """
    merged = {**settings.fairness_weight_overrides, **weights}
    for key in removed:
        merged.pop(key, None)
    if len(merged) > MAX_WEIGHTS:
        raise invalid(f"fairness weight overrides update rejected: the maximum of {MAX_WEIGHTS} overrides is exceeded")
    return replace(settings, fairness_weight_overrides=merged)
