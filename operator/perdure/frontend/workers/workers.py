"""RPCs about task queues and workers."""

import functools
from collections.abc import Mapping
from datetime import datetime

from temporalio.api.enums.v1 import DescribeTaskQueueMode, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueueStats, TaskQueueTypeInfo, TaskQueueVersioningInfo
from temporalio.api.worker.v1 import WorkerHeartbeat, WorkerInfo
from temporalio.api.workflowservice.v1 import (
    CountWorkersRequest,
    CountWorkersResponse,
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    DescribeWorkerRequest,
    DescribeWorkerResponse,
    ListWorkersRequest,
    ListWorkersResponse,
    RecordWorkerHeartbeatRequest,
    RecordWorkerHeartbeatResponse,
)

from perdure.engine.inputs import OPERATOR
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.frontend.deployments.rules import Deployments, WorkerDeployment, routing
from perdure.frontend.errors import invalid, not_found
from perdure.frontend.matching.queues import Kind, QueueName, TaskQueues
from perdure.frontend.matching.settings import TaskQueueSettings
from perdure.frontend.messages.histories import deployment_version
from perdure.frontend.messages.paging import page_of
from perdure.frontend.messages.values import NO_TIME
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.transport.call import CallContext
from perdure.frontend.visibility.comparisons import InvalidQueryError
from perdure.frontend.visibility.query_language import parse
from perdure.frontend.workers.registry import KnownWorkers, field_of, listed
from perdure.frontend.workers.task_queue_messages import KINDS, config, effective_rate
from perdure.kube.clock import now

_PAGE = 200
_UNVERSIONED = ""
_NO_VERSION = "__unversioned__"


class TaskWorkers:
    """Describes task queues and their workers."""

    def __init__(
        self,
        queues: TaskQueues,
        workers: KnownWorkers,
        deployments: NamespaceRegistry[WorkerDeployment],
        task_queues: NamespaceRegistry[TaskQueueSettings],
    ) -> None:
        self._queues = queues
        self._workers = workers
        self._deployments = deployments
        self._task_queues = task_queues

    async def describe_task_queue(
        self, request: DescribeTaskQueueRequest, call: CallContext
    ) -> DescribeTaskQueueResponse:
        """Describe the pollers and the backlog of a task queue."""
        del call
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
            response.config.CopyFrom(config(settings))
        rate = effective_rate(self._queues.limits(QueueName(request.namespace, kind, name)))
        if rate is not None:
            response.effective_rate_limit.CopyFrom(rate)
        return response

    def _described(self, request: DescribeTaskQueueRequest, name: QueueName) -> TaskQueueTypeInfo:
        parts = {name, *self._queues.versions(name)}
        found = [self._queues.statistics(part) for part in parts]
        described = TaskQueueTypeInfo(
            pollers=[
                _poller(identity, time, part.version)
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

    async def count_workers(self, request: CountWorkersRequest, call: CallContext) -> CountWorkersResponse:
        """Count the workers that match a filter."""
        del call
        return CountWorkersResponse(count=len(await self._found(request)))

    async def list_workers(self, request: ListWorkersRequest, call: CallContext) -> ListWorkersResponse:
        """List the workers that match a filter."""
        del call
        page, token = page_of(
            await self._found(request),
            request.next_page_token,
            request.page_size,
            _PAGE,
            lambda beat: 2 * beat.ByteSize(),
        )
        return ListWorkersResponse(
            workers_info=[WorkerInfo(worker_heartbeat=beat) for beat in page],
            workers=map(listed, page),
            next_page_token=token,
        )

    async def _found(self, request: ListWorkersRequest | CountWorkersRequest) -> list[WorkerHeartbeat]:
        try:
            query = parse(request.query)
            if query.group_by:
                raise InvalidQueryError("'group by' is not supported for workers")  # noqa: TRY301 (reported like the others)
            query.test(_known)
            found = []
            for beat in self._workers.all(request.namespace):
                if query.test(functools.partial(field_of, beat)):
                    found.append(beat)
                await query.effort.rest()
        except InvalidQueryError as error:
            raise invalid(f"invalid query: {error}") from error
        return found

    async def describe_worker(self, request: DescribeWorkerRequest, call: CallContext) -> DescribeWorkerResponse:
        """Return the last report of a worker."""
        del call
        found = self._workers.get(request.namespace, request.worker_instance_key)
        if found is None:
            raise not_found(f"worker not found: {request.worker_instance_key}")
        return DescribeWorkerResponse(worker_info=WorkerInfo(worker_heartbeat=found))

    async def record_worker_heartbeat(
        self, request: RecordWorkerHeartbeatRequest, call: CallContext
    ) -> RecordWorkerHeartbeatResponse:
        """Record the heartbeats of workers."""
        del call
        self._workers.record(request.namespace, request.worker_heartbeat)
        return RecordWorkerHeartbeatResponse()


def _known(name: str) -> object:
    try:
        return field_of(WorkerHeartbeat(), name)
    except KeyError:
        raise InvalidQueryError(f"{name} is not a field of a worker") from None


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


def _poller(identity: str, time: datetime, version: str) -> PollerInfo:
    made = PollerInfo(identity=identity, rate_per_second=100_000)
    if version:
        options = made.deployment_options
        options.deployment_name, _, options.build_id = version.partition(":")
        options.worker_versioning_mode = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    made.last_access_time.FromDatetime(time)
    return made
