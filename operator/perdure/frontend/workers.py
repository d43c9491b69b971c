"""The known workers, in memory, and the RPCs about them: the reports that they send once a minute, and recent pollers."""

import functools
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.worker.v1 import WorkerHeartbeat, WorkerInfo, WorkerListInfo
from temporalio.api.workflowservice.v1 import (
    CountWorkersRequest,
    CountWorkersResponse,
    DescribeWorkerRequest,
    DescribeWorkerResponse,
    ListWorkersRequest,
    ListWorkersResponse,
    RecordWorkerHeartbeatRequest,
    RecordWorkerHeartbeatResponse,
)

from perdure.archive.filters import InvalidQueryError
from perdure.frontend.errors import invalid, not_found
from perdure.frontend.matching.polls import FORGOTTEN_AFTER
from perdure.frontend.matching.queues import TaskQueues
from perdure.frontend.messages import values
from perdure.frontend.messages.tokens import page_of
from perdure.frontend.messages.values import from_enum
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.query_language import parse
from perdure.kube.clock import now

_PAGE = 200

MAX_WORKERS = 10_000
"""Maximum number of known workers; the latest ones are kept."""
MAX_BYTES = 32 * 1024 * 1024
"""Maximum size of all reports, in bytes."""
LARGEST = 16 * 1024
"""Maximum size of the report of one worker, in bytes."""


class KnownWorkers:
    """The reports of all workers."""

    def __init__(self, queues: TaskQueues, *, max_workers: int = MAX_WORKERS, max_bytes: int = MAX_BYTES) -> None:
        """Keep the latest reports of the workers that poll `queues`, within both limits."""
        self._queues = queues
        self._max_workers, self._max_bytes = max_workers, max_bytes
        self._reports: dict[tuple[str, str], tuple[WorkerHeartbeat, datetime]] = {}
        self._bytes = 0

    def record(self, namespace: str, beats: Iterable[WorkerHeartbeat]) -> None:
        """Record the reports of workers of a namespace. A report without a key is ignored.

        A worker that has shut down is dropped, as on Temporal's server (service/matching/workers/registry_impl.go).

        Raises:
            UnfitError: A report cannot be stored; then none is stored.
        """
        beats = [beat for beat in beats if beat.worker_instance_key]
        for beat in beats:
            _check(beat)
        for beat in beats:
            key = namespace, beat.worker_instance_key
            self._forget(key)
            if beat.status == WorkerStatus.WORKER_STATUS_SHUTDOWN:
                continue
            self._reports[key] = beat, now()
            self._bytes += beat.ByteSize()
        since = now() - FORGOTTEN_AFTER
        while self._reports:  # the oldest comes first
            key = next(iter(self._reports))
            if (
                len(self._reports) <= self._max_workers
                and self._bytes <= self._max_bytes
                and self._reports[key][1] > since
            ):
                break
            self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        known = self._reports.pop(key, None)
        if known is not None:
            self._bytes -= known[0].ByteSize()

    def get(self, namespace: str, key: str) -> WorkerHeartbeat | None:
        """The last report of a worker."""
        beat, time = self._reports.get((namespace, key), (None, now()))
        return beat if time > now() - FORGOTTEN_AFTER else None

    def all(self, namespace: str) -> list[WorkerHeartbeat]:
        """The workers of a namespace, by identity; workers without reports are described by their polls."""
        since = now() - FORGOTTEN_AFTER
        found = [beat for (of, _), (beat, time) in self._reports.items() if of == namespace and time > since]
        known = {beat.worker_identity for beat in found}
        for identity, (queues, time) in self._queues.workers(namespace).items():
            if identity not in known:
                beat = WorkerHeartbeat(worker_identity=identity, task_queue=", ".join(sorted(queues)))
                beat.heartbeat_time.FromDatetime(time)
                found.append(beat)
        return sorted(found, key=lambda beat: (beat.worker_identity, beat.worker_instance_key))


def listed(beat: WorkerHeartbeat) -> WorkerListInfo:
    """The entry of a worker in a list."""
    made = WorkerListInfo(
        worker_instance_key=beat.worker_instance_key,
        worker_identity=beat.worker_identity,
        task_queue=beat.task_queue,
        sdk_name=beat.sdk_name,
        sdk_version=beat.sdk_version,
        status=beat.status,
        host_name=beat.host_info.host_name,
        worker_grouping_key=beat.host_info.worker_grouping_key,
        process_id=beat.host_info.process_id,
        plugins=beat.plugins,
        drivers=beat.drivers,
    )
    if beat.HasField("deployment_version"):
        made.deployment_version.CopyFrom(beat.deployment_version)
    if beat.HasField("start_time"):
        made.start_time.CopyFrom(beat.start_time)
    return made


def field_of(beat: WorkerHeartbeat, name: str) -> Any:
    """The value of a field for filters; None if it is not set.

    Raises:
        KeyError: The field does not exist.
    """
    return _FIELDS[name](beat)


def _check(beat: WorkerHeartbeat) -> None:
    values.check_size(beat.ByteSize(), LARGEST, "Worker heartbeat")
    for field in ("start_time", "heartbeat_time"):
        values.timestamp(beat, field)


def _time(time: Timestamp) -> datetime | None:
    return time.ToDatetime(tzinfo=UTC) if time.seconds else None


def _status(beat: WorkerHeartbeat) -> str:
    return from_enum(WorkerStatus, beat.status)


_FIELDS: dict[str, Callable[[WorkerHeartbeat], Any]] = {
    "WorkerInstanceKey": lambda beat: beat.worker_instance_key or None,
    "WorkerIdentity": lambda beat: beat.worker_identity or None,
    "HostName": lambda beat: beat.host_info.host_name or None,
    "TaskQueue": lambda beat: beat.task_queue or None,
    "DeploymentName": lambda beat: beat.deployment_version.deployment_name or None,
    "BuildId": lambda beat: beat.deployment_version.build_id or None,
    "SdkName": lambda beat: beat.sdk_name or None,
    "SdkVersion": lambda beat: beat.sdk_version or None,
    "StartTime": lambda beat: _time(beat.start_time),
    "HeartbeatTime": lambda beat: _time(beat.heartbeat_time),
    "WorkerStatus": _status,
    "Status": _status,
}
"""As Temporal's server has them (service/matching/workers/worker_query_engine.go)."""


class WorkerRpcs:
    """Lists and describes workers, and records their reports."""

    def __init__(self, workers: KnownWorkers) -> None:
        self._workers = workers

    async def count_workers(self, request: CountWorkersRequest, call: CallContext) -> CountWorkersResponse:
        """Count the workers that match a filter."""
        return CountWorkersResponse(count=len(await self._found(request)))

    async def list_workers(self, request: ListWorkersRequest, call: CallContext) -> ListWorkersResponse:
        """List the workers that match a filter."""
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
                await query.budget.yield_turn()
        except InvalidQueryError as error:
            raise invalid(f"invalid query: {error}") from error
        return found

    async def describe_worker(self, request: DescribeWorkerRequest, call: CallContext) -> DescribeWorkerResponse:
        """Return the last report of a worker."""
        found = self._workers.get(request.namespace, request.worker_instance_key)
        if found is None:
            raise not_found(f"worker not found: {request.worker_instance_key}")
        return DescribeWorkerResponse(worker_info=WorkerInfo(worker_heartbeat=found))

    async def record_worker_heartbeat(
        self, request: RecordWorkerHeartbeatRequest, call: CallContext
    ) -> RecordWorkerHeartbeatResponse:
        """Record the heartbeats of workers."""
        self._workers.record(request.namespace, request.worker_heartbeat)
        return RecordWorkerHeartbeatResponse()


def _known(name: str) -> object:
    try:
        return field_of(WorkerHeartbeat(), name)
    except KeyError:
        raise InvalidQueryError(f"{name} is not a field of a worker") from None
