"""The RPC that sets rate limits and fairness weights of a task queue."""

from msgspec.structs import replace
from temporalio.api.workflowservice.v1 import UpdateTaskQueueConfigRequest, UpdateTaskQueueConfigResponse

from perdure.frontend.errors import invalid
from perdure.frontend.matching import settings as model
from perdure.frontend.matching.queues import Kind
from perdure.frontend.matching.settings import NO_SETTINGS, RateLimit, TaskQueueSettings
from perdure.frontend.messages.values import name
from perdure.frontend.registry import Entries, NamespaceRegistry, fits_key
from perdure.frontend.transport.call import CallContext
from perdure.frontend.workers.task_queue_messages import KINDS, config
from perdure.kube.clock import now


class TaskQueueConfigs:
    """Changes the settings of task queues."""

    def __init__(self, task_queues: NamespaceRegistry[TaskQueueSettings]) -> None:
        self._task_queues = task_queues

    async def update_task_queue_config(
        self, request: UpdateTaskQueueConfigRequest, call: CallContext
    ) -> UpdateTaskQueueConfigResponse:
        """Change the settings in the request, and keep all others."""
        del call
        queue = name(request.task_queue, "TaskQueue")
        if not fits_key(queue):
            raise invalid("TaskQueue cannot be stored as the key of a ConfigMap: it is too long")
        kind = KINDS.get(request.task_queue_type)
        if kind is None:
            raise invalid("TaskQueueType is not set on request.")
        whole, keys = (
            _limit(request, "update_queue_rate_limit"),
            _limit(request, "update_fairness_key_rate_limit_default"),
        )
        workflows = kind is Kind.WORKFLOW
        model.check_limit(whole, "UpdateQueueRateLimit", "rate limit", workflows=workflows)
        model.check_limit(keys, "UpdateFairnessKeyRateLimitDefault", "fairness key rate limit", workflows=workflows)
        weights, removed = request.set_fairness_weight_overrides, request.unset_fairness_weight_overrides
        model.check_weights(weights, removed)

        def change(known: Entries[TaskQueueSettings]) -> Entries[TaskQueueSettings]:
            of_queue = known.get(queue, {})
            settings = model.with_weights(of_queue.get(kind, NO_SETTINGS), weights, removed)
            if whole is not None:
                settings = replace(settings, queue_rate_limit=whole)
            if keys is not None:
                settings = replace(settings, fairness_keys_rate_limit_default=keys)
            return {**known, queue: {**of_queue, kind: settings}}

        after = await self._task_queues.change(request.namespace, change)
        return UpdateTaskQueueConfigResponse(config=config(after[queue][kind]))


def _limit(request: UpdateTaskQueueConfigRequest, field: str) -> RateLimit | None:
    """The limit that a request sets or removes; None if the request does not change it."""
    if not request.HasField(field):  # type: ignore[arg-type]
        return None
    update = getattr(request, field)
    rate = update.rate_limit.requests_per_second if update.HasField("rate_limit") else None
    return RateLimit(
        requests_per_second=rate, reason=update.reason, update_identity=request.identity, update_time=now()
    )
