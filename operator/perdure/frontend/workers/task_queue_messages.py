"""Messages of Temporal's API about the settings of task queues. Pure."""

from temporalio.api.enums.v1 import RateLimitSource, TaskQueueType
from temporalio.api.taskqueue.v1 import ConfigMetadata, RateLimit, RateLimitConfig, TaskQueueConfig
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse

from perdure.frontend.matching import settings as model
from perdure.frontend.matching.queues import Kind
from perdure.frontend.matching.rates import RateLimits
from perdure.frontend.matching.settings import QueueSettings

KINDS = {
    TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW: Kind.WORKFLOW,
    TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY: Kind.ACTIVITY,
    TaskQueueType.TASK_QUEUE_TYPE_NEXUS: Kind.NEXUS,
}


def config(settings: QueueSettings) -> TaskQueueConfig:
    """Return the settings of a task queue as a message."""
    return TaskQueueConfig(
        queue_rate_limit=_limit(settings.queue_rate_limit),
        fairness_keys_rate_limit_default=_limit(settings.fairness_keys_rate_limit_default),
        fairness_weight_overrides=settings.fairness_weight_overrides,
    )


def _limit(limit: model.RateLimit | None) -> RateLimitConfig | None:
    if limit is None:
        return None
    metadata = ConfigMetadata(reason=limit.reason, update_identity=limit.update_identity)
    metadata.update_time.FromDatetime(limit.update_time)
    rate = limit.requests_per_second
    return RateLimitConfig(metadata=metadata, rate_limit=None if rate is None else RateLimit(requests_per_second=rate))


def effective_rate(limits: RateLimits) -> DescribeTaskQueueResponse.EffectiveRateLimit | None:
    """Return the limit of a task queue and its source; None if there is none."""
    if limits.per_second is None:
        return None
    by_api = limits.settings.rate is not None
    return DescribeTaskQueueResponse.EffectiveRateLimit(
        requests_per_second=limits.per_second,
        rate_limit_source=RateLimitSource.RATE_LIMIT_SOURCE_API if by_api else RateLimitSource.RATE_LIMIT_SOURCE_WORKER,
    )
