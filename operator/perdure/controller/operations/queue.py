"""The queue of the Operations of this operator: processed in order for each target, and answered in their own status.

Order. The Operations of a target are processed in the order of their creation, regardless of the order of watch events: each
time, all pending ones are listed. The order is that of their first resourceVersion, which is recorded together with the
targeted run before the request is delivered. So after a crash, the same run gets the same requests in the same order, and no
later run of the workflow ID gets them.

A run that has just closed does not process a request. If the target is a workflow ID whose chain continues, the next run gets the
request, and later requests wait, so that no request overtakes another.

The resync lists the pending Operations every minute, and compares them with the watch.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Final, assert_never

import structlog

from perdure.api.phases import OperationPhase
from perdure.api.times import read_kubernetes_time
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.dispatch.schedules import Schedules
from perdure.controller.errors import isolate
from perdure.controller.expiry import expiry, remove_expired
from perdure.controller.informers import RESYNC_SECONDS, FirstLists, Informer, repeat
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.operations.operation import (
    Answered,
    Created,
    Delivered,
    ForgetKey,
    Key,
    NoRoom,
    OperationContext,
    OperationKey,
    Pending,
    ReconciledOperation,
    Recorded,
    TargetKey,
)
from perdure.controller.operations.status import newer_part
from perdure.controller.queue import ExpiryKey, KeyedQueue, share
from perdure.controller.services import Services
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.kube.paths import escaped
from perdure.observe import metrics
from perdure.runtime.operation_requests import arrival

PENDING = f"status.phase!={OperationPhase.COMPLETE},status.phase!={OperationPhase.FAILED}"
"""Field selector for pending Operations."""
_HELD_BYTES = 4 * 1024 * 1024
"""How many bytes of JSON of a target's Operations are kept in memory."""
_RETRY_SECONDS: Final = 1.0
_REMEMBERED: Final = timedelta(minutes=1)
"""How long a run remembers an answered Operation. After that time, the Operation cannot be mistaken for a pending one."""
_FIRST_FORGOTTEN: Final = timedelta(seconds=10)
"""The earliest time after a start at which a run drops an Operation: before, the run may not be known."""
_DEFAULT_TTL: Final = 3_600


async def pending(client: kube.Client, key: TargetKey) -> AsyncIterator[kube.Object]:
    """List the pending Operations of a target in the order of their creation. The list is consistent: none is missing.

    Operations that exceed the memory limit are read again when their turn comes.
    """
    url = kube.path(kube.PERDURE, key.namespace, "operations")
    chosen = f"spec.target.kind={key.kind},spec.target.{key.field}={escaped(key.value)},{PENDING}"
    held = 0
    waiting: list[tuple[int, str, str, kube.Object | None]] = []
    async for page in client.lists.pages(url, fieldSelector=chosen):
        for raw, obj in client.lists.objects(page):
            held += len(raw)
            meta = obj["metadata"]
            waiting.append((arrival(obj), meta["uid"], meta["name"], obj if held <= _HELD_BYTES else None))
    for _, uid, name, kept in sorted(waiting, key=itemgetter(0)):
        try:
            obj = await client.get(f"{url}/{name}") if kept is None else kept
        except (kube.NotFoundError, kube.UnreadableError):
            continue
        if obj["metadata"]["uid"] == uid and not obj["metadata"].get("deletionTimestamp"):
            yield obj


class OperationResync:
    """Finds pending Operations that the watch has missed because of gaps or a hanging connection."""

    def __init__(
        self, client: kube.Client, served: ServedNamespaces, informer: Informer, enqueue: Callable[[kube.Object], None]
    ) -> None:
        """Create a resync.

        Args:
            client: Lists the pending Operations.
            served: The served namespaces.
            informer: The watch on Operations.
            enqueue: Processes each pending Operation.
        """
        self._client = client
        self._served = served
        self._informer = informer
        self._enqueue = enqueue
        self._watched: set[str] = set()
        self._log = structlog.get_logger("perdure.operations")

    def add(self, uid: str) -> None:
        """Record that the watch has shown an Operation."""
        self._watched.add(uid)

    def delete(self, uid: str) -> None:
        """Record that an Operation was deleted."""
        self._watched.discard(uid)

    async def run(self) -> None:
        """Resync until cancelled."""
        await repeat(self.resync)

    async def retry(self) -> None:
        """Resync once, as soon as the Kubernetes API responds."""
        while not await self.resync():  # noqa: ASYNC110 - the Kubernetes API has no event for this
            await asyncio.sleep(_RETRY_SECONDS)

    async def resync(self) -> bool:
        """List and process all pending Operations, even if the watch has shown them; return whether all were listed."""
        try:
            await self._list()
        except kube.RequestError as error:
            self._log.warning("Could not resync Operations, retrying", error=repr(error))
            return False
        return True

    async def _list(self) -> None:
        missed = 0
        for namespace in self._served:
            url = kube.path(kube.PERDURE, namespace, "operations")
            async for obj in self._client.lists.each(url, fieldSelector=PENDING):
                created = datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
                unseen = obj["metadata"]["uid"] not in self._watched
                missed += unseen and created < now() - timedelta(seconds=RESYNC_SECONDS)
                isolate(obj, self._enqueue)
        if missed:
            self._informer.note_missed(missed)
            metrics.WATCH_LAG.inc(missed)
            self._log.warning("The watch missed Operations", objects=missed)


class Operations:
    """All Operations of this operator."""

    def __init__(
        self,
        services: Services,
        runs: WorkflowRuns,
        schedules: Schedules,
        first_lists: FirstLists,
        served: ServedNamespaces,
        *,
        workers: int = 16,
    ) -> None:
        """Create Operations that are not reconciled yet.

        Args:
            services: The Kubernetes API, DeadLetters, and definitions.
            runs: The runs that Operations target.
            schedules: The Schedules that Operations target.
            first_lists: Nothing is delivered before they are complete.
            served: The served namespaces.
            workers: The number of keys that are processed at the same time.
        """
        self._client = services.client
        self._runs = runs
        self._shards = services.shards
        self._first_lists = first_lists
        self._context = OperationContext(services, runs, schedules)
        self.informer = Informer("operations", self._update, self._delete)
        """The watch on Operations."""
        self._resync = OperationResync(services.client, served, self.informer, self._enqueue)
        self._queue: KeyedQueue[Key] = KeyedQueue(
            self._work,
            clock=now,
            workers=workers,
            tenant=lambda key: key.namespace,
            each=share(workers),
            name="operations",
            admits=self._admits,
            remembers=self._remembers,
        )
        self.drain = self._queue.drain
        """Wait until no work is in progress; see there."""
        services.shards.subscribe(self._reassign)
        self._in_progress: dict[str, ReconciledOperation] = {}
        self._held: set[TargetKey] = set()
        """Targets with an Operation that waits for the answer to an earlier Operation."""
        self._forgotten: set[str] = set()
        self._full: set[str] = set()
        """UIDs of pending Operations without room for an answer."""
        self._list_task: asyncio.Task[None] | None = None

    # Watch events

    def _update(self, obj: kube.Object) -> None:
        """Process the creation or change of an Operation."""
        self._resync.add(obj["metadata"]["uid"])
        self._enqueue(obj)

    def _delete(self, obj: kube.Object) -> None:
        """Process the deletion of an Operation."""
        uid = obj["metadata"]["uid"]
        self._resync.delete(uid)
        self._withdraw(uid)
        self._queue.forget(ExpiryKey.of(obj))
        self._full.discard(uid)
        self._context.newer.pop(uid, None)
        self._forget_later(obj, now())
        self._forgotten.discard(uid)
        self._leave_to_owner(obj)

    def _enqueue(self, obj: kube.Object) -> None:
        """Wake what an Operation needs: its target while it is pending, its removal once it was answered."""
        uid, done = obj["metadata"]["uid"], read_kubernetes_time((obj.get("status") or {}).get("completionTime"))
        if obj["metadata"].get("deletionTimestamp"):
            self._withdraw(uid)
        if done and not newer_part(obj):
            self._context.newer.pop(uid, None)
            self._queue.wake_at(ExpiryKey.of(obj), _expiry(obj))
            self._forget_later(obj, done)
        elif not done and uid not in self._in_progress:
            self._queue.wake(TargetKey.of(obj))

    def _withdraw(self, uid: str) -> None:
        """Process the deletion of an Operation: withdraw its request if the run has not recorded it."""
        operation = self._in_progress.pop(uid, None)
        if operation is not None:
            operation.mark_deleted()
            self._continue_target(operation.target)

    def _forget_later(self, obj: kube.Object, since: datetime) -> None:
        """Let the run drop an answered or deleted Operation after a while."""
        uid, run_id = obj["metadata"]["uid"], (obj.get("status") or {}).get("runId")
        if run_id and uid not in self._forgotten:
            self._forgotten.add(uid)
            key = ForgetKey(obj["metadata"]["namespace"], run_id, uid)
            self._queue.wake_at(key, max(since + _REMEMBERED, now() + _FIRST_FORGOTTEN))

    # A fleet

    def _admits(self, key: Key) -> bool:
        """Whether this process may process a key."""
        if isinstance(key, ForgetKey):
            entry = self._runs.directory.get(key.run_id)
            return entry is None or self._shards.owns(entry.namespace, entry.workflow_id)
        return self._shards.owns(key.namespace, key.sharded_by)

    def _remembers(self, key: Key) -> bool:
        """Whether to keep a key that others process. Pending Operations are listed when they are gained."""
        return not isinstance(key, TargetKey | OperationKey)

    def _leave_to_owner(self, obj: kube.Object) -> None:
        """Process the deletion of an Operation: do not remember the run if another process lets it drop the request."""
        key = ForgetKey(
            obj["metadata"]["namespace"], (obj.get("status") or {}).get("runId", ""), obj["metadata"]["uid"]
        )
        if not self._admits(key):
            self._queue.forget(key)

    def _reassign(self) -> None:
        """Apply a change of the shards: drop the Operations that others own now, and list its own."""
        for uid, operation in list(self._in_progress.items()):
            if not self._shards.owns(operation.target.namespace, operation.target.sharded_by):
                operation.withdraw()
                self._in_progress.pop(uid, None)
        self._held = {key for key in self._held if self._shards.owns(key.namespace, key.sharded_by)}
        self._queue.readmit()
        if self._shards.active:
            if self._list_task is not None:
                self._list_task.cancel()
            self._list_task = asyncio.get_running_loop().create_task(self._resync.retry())

    # Work

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._queue.start(group)
            group.create_task(self._resync.run())

    async def _work(self, key: Key) -> None:
        await self._first_lists.wait()
        match key:
            case TargetKey():
                await self._process_target(key)
            case OperationKey():
                await self._advance(key)
            case ExpiryKey():
                url = kube.path(kube.PERDURE, key.namespace, "operations", key.name)
                self._queue.wake_at(key, await remove_expired(self._client, url, key.uid, _expiry))
            case ForgetKey():
                entry = self._runs.directory.get(key.run_id)
                if entry is not None:
                    self._runs.acknowledge(entry, key.uid)
            case _:
                assert_never(key)

    async def _process_target(self, key: TargetKey) -> None:
        """Process the pending Operations of a target in order, until one must wait."""
        self._held.discard(key)
        earlier = ""
        async for obj in pending(self._client, key):
            uid = obj["metadata"]["uid"]
            if uid in self._full:
                continue
            operation = self._in_progress.get(uid) or self._add(obj)
            if operation.is_pending and not await self._process(operation, earlier):
                return
            if operation.requested_run:
                earlier = operation.requested_run
                self._held.add(key)  # noted before anything is awaited, so that its answer wakes a later one
        self._held.discard(key)

    async def _process(self, operation: ReconciledOperation, earlier: str) -> bool:
        """Reconcile a pending Operation; return whether later ones can proceed.

        Raises:
            Exception: The Operation is still pending, and must be retried with backoff before later ones.
        """
        operation.earlier = earlier
        try:
            wake = await operation.advance()
        except Exception:
            if operation.is_pending:
                self._release(operation)
                raise
            wake = now()  # its answer is recorded separately
        self._note_progress(operation, wake)
        return operation.deleted or not operation.is_pending

    def _add(self, obj: kube.Object) -> ReconciledOperation:
        key = OperationKey(obj["metadata"]["namespace"], obj["metadata"]["uid"], TargetKey.of(obj).sharded_by)
        operation = ReconciledOperation(self._context, obj, lambda: self._queue.wake(key))
        self._in_progress[key.uid] = operation
        return operation

    def _wait(self, operation: ReconciledOperation, wake: datetime | None) -> None:
        """Let an Operation and later ones wait until `wake`; None: until an earlier one is answered."""
        if wake is not None:
            self._queue.wake_at(operation.target, wake)
        self._release(operation)

    def _release(self, operation: ReconciledOperation) -> None:
        """Drop a pending Operation from memory, because it is listed again. Keep one that must reach the next run."""
        if not operation.must_reach_next_run:
            self._in_progress.pop(operation.uid, None)

    async def _advance(self, key: OperationKey) -> None:
        """Record the answer to an Operation, or deliver its request to the next run of the chain."""
        operation = self._in_progress.get(key.uid)
        if operation is not None and not operation.is_pending:
            self._note_progress(operation, await operation.advance())

    def _note_progress(self, operation: ReconciledOperation, wake: datetime | None) -> None:
        """Follow up on an Operation after its reconciliation."""
        match operation.progress:
            case _ if operation.deleted:
                self._close(operation)
            case Pending():
                self._wait(operation, wake)
            case Delivered():
                pass
            case Created() | Answered():
                target = operation.target
                self._queue.wake_at(OperationKey(target.namespace, operation.uid, target.sharded_by), wake)
            case Recorded():
                self._close(operation)
                self._enqueue(operation.object)
            case NoRoom():
                self._close(operation)
                self._full.add(operation.uid)
            case _:
                assert_never(operation.progress)

    def _close(self, operation: ReconciledOperation) -> None:
        self._in_progress.pop(operation.uid, None)
        self._continue_target(operation.target)

    def _continue_target(self, key: TargetKey) -> None:
        """Process the Operations that wait for the answer to an earlier one."""
        if key in self._held:
            self._queue.wake(key)


def _expiry(obj: kube.Object) -> datetime | None:
    """When the time to live of an answered Operation ends; None while it is pending, or if only a newer version can read it."""
    return None if newer_part(obj) else expiry(obj, _DEFAULT_TTL)
