"""Route each RPC to the member of the fleet that owns its shard."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue

from perdure.api.names import schedule_name
from perdure.controller.directory import Directory
from perdure.controller.fleet.shards import Shards, shard_of
from perdure.frontend.errors import RpcError, unavailable
from perdure.frontend.matching.polls import LONGEST_POLL
from perdure.frontend.matching.queues import queue_shard
from perdure.frontend.messages.tokens import ActivityToken, NexusToken, QueryToken, Token, WorkflowTaskToken, unpack
from perdure.frontend.peers.calls import RECHECK, RELOAD, PeerLostError
from perdure.frontend.peers.client import NotOwnerError, PeerClient
from perdure.frontend.peers.forwarding import (
    RETRY_SECONDS,
    Forwarding,
    add_request_ids,
    check_repeatable,
    is_repeatable,
)
from perdure.frontend.transport.door import POLLS, WAITING
from perdure.frontend.transport.rpc import CallContext, Handler
from perdure.kube.clock import monotonic
from perdure.observe import metrics

_PATIENCE_SECONDS: Final = 20.0
"""How long an RPC waits for an owner, which is longer than taking over the shards of a killed member."""
_BROADCAST_SECONDS: Final = 2.0
"""How long a member waits for the others to read settings that it has changed."""
CHECKED_SECONDS: Final = 5.0
"""How long after a poll was forwarded the check at its beginning is sufficient."""
RECHECK_SECONDS: Final = 5.0
"""How long another check may take."""
_FINISH_SECONDS: Final = 2.0
"""How long an RPC whose run another member owns now may take to finish here."""


class Router(Forwarding):
    """Forwards RPCs, and handles the RPCs of shards that this member owns."""

    def __init__(self, shards: Shards, directory: Directory, client: PeerClient) -> None:
        """Create it without RPCs.

        Args:
            shards: The owners of the shards.
            directory: The entries of all runs.
            client: Calls the other members.
        """
        super().__init__(client)
        self._shards = shards
        self._directory = directory
        self._handled: dict[asyncio.Future[None], int] = {}
        """The future that ends each RPC in progress, with the shard of the RPC."""

    def routed(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Return handlers that forward each RPC to the member that can handle it."""
        return {rpc: self._routed(rpc, handler) for rpc, handler in handlers.items()}

    def _routed(self, rpc: str, handler: Handler) -> Handler:
        async def handle(request: Any, call: CallContext) -> Any:
            shard = self._shard_of(rpc, request)
            if shard is not None:
                return await self._call_owner(shard, rpc, handler, request, call)
            if rpc in EVERYWHERE:
                await self._call_all_others(rpc, request, call)
            response = await handler(request, call)
            if rpc in SETTINGS:
                await self.announce(getattr(request, "namespace", ""))
            return response

        return handle

    def _shard_of(self, rpc: str, request: Any) -> int | None:
        def workflow_of(run_id: str) -> str:
            entry = self._directory.get(run_id)
            return entry.workflow_id if entry is not None else ""

        return shard_of_rpc(rpc, request, workflow_of)

    # Forwarding

    async def _call_owner(self, shard: int, rpc: str, handler: Handler, request: Any, call: CallContext) -> Any:
        """Let the owner of the shard handle an RPC, and retry while the owner changes and the caller waits.

        Raises:
            RpcError: The error of the owner; UNAVAILABLE if no owner is found in time, or if an owner was lost that may have
                handled an RPC which must not be repeated.
        """
        add_request_ids(request)
        began = monotonic()
        until = began + call.within(LONGEST_POLL if rpc in WAITING else _PATIENCE_SECONDS)
        while True:
            left = call.seconds_left
            now_left = replace(call, seconds_left=None if left is None else max(left - (monotonic() - began), 0.0))
            try:
                owner = self._shards.owner(shard)
                if not owner:
                    return await self._handle_locally(shard, rpc, handler, request, now_left)
                return await self.forward(owner, rpc, request, now_left)
            except (NotOwnerError, PeerLostError) as error:
                metrics.FLEET_OWNER_MISMATCHES.inc()
                check_repeatable(error, repeatable=is_repeatable(rpc, request))
                if self.draining and rpc in POLLS:
                    raise unavailable("this operator is shutting down; retry") from None
                if monotonic() + RETRY_SECONDS >= until:
                    raise unavailable(f"no operator owns shard {shard} at the moment: {error}; retry later") from None
            await self.wait_for_change()

    async def recheck_at(self, member: str, call_id: str, began: float) -> None:
        """Have the member that forwarded a poll check again whether the worker may poll, unless it did so a moment ago.

        Args:
            member: The member.
            call_id: The ID of the forwarded call; empty if there is nothing to check again.
            began: When the poll arrived, on the monotonic clock, in seconds.

        Raises:
            RpcError: The worker may no longer poll, or the member cannot be reached.
        """
        if not call_id or monotonic() - began < CHECKED_SECONDS:
            return
        try:
            await self._client.call(member, RECHECK, call_id, encode=str.encode, decode=bytes, seconds=RECHECK_SECONDS)
        except (NotOwnerError, PeerLostError) as error:
            raise unavailable(str(error)) from error

    async def _call_all_others(self, rpc: str, request: Any, call: CallContext) -> None:
        """Let all other members handle an RPC, too. An unreachable member does not need it, or loses the affected state."""
        short = replace(call, seconds_left=call.within(_BROADCAST_SECONDS))
        others = list(self._shards.others)
        await asyncio.gather(*(self.forward(each, rpc, request, short) for each in others), return_exceptions=True)

    async def announce(self, namespace: str) -> None:
        """Let all other members reload the settings of a namespace."""

        async def reload(member: str) -> None:
            with suppress(NotOwnerError, PeerLostError, RpcError):  # it reloads them within a minute
                await self._client.call(
                    member, RELOAD, namespace, encode=str.encode, decode=bytes, seconds=_BROADCAST_SECONDS
                )

        await asyncio.gather(*map(reload, list(self._shards.others)))

    # Handling

    async def handle(self, rpc: str, handler: Handler, request: Any, call: CallContext) -> Any:
        """Handle an RPC that another member has forwarded.

        Raises:
            NotOwnerError: This member does not own the shard of the RPC.
            PeerLostError: This member has lost the shard while it handled the RPC.
            RpcError: The RPC failed.
        """
        shard = self._shard_of(rpc, request)
        if shard is None:
            return await handler(request, call)
        return await self._handle_locally(shard, rpc, handler, request, call)

    async def _handle_locally(self, shard: int, rpc: str, handler: Handler, request: Any, call: CallContext) -> Any:
        """Handle an RPC while this member owns its shard.

        A run that has the request already stays here as a guest until it has recorded the answer. Forwarding the RPC earlier
        would fail: the new owner does not know that commit yet, and has no such task.
        """
        if not self._shards.owns_shard(shard):
            raise NotOwnerError(f"this operator does not own shard {shard}")
        work = asyncio.ensure_future(handler(request, call))
        with self._lost(shard) as lost:
            try:
                await asyncio.wait({work, lost}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done() and rpc not in WAITING and self._shards.active:
                    await asyncio.wait({work}, timeout=_FINISH_SECONDS)
            finally:
                if not work.done():
                    work.cancel()
                    await asyncio.wait({work})
                if not work.cancelled():
                    work.exception()
        if work.cancelled():
            raise PeerLostError(f"this operator has lost shard {shard}", may_have_acted=True)
        return work.result()

    @contextmanager
    def _lost(self, shard: int) -> Iterator["asyncio.Future[None]"]:
        """Yield a future that is done once this member no longer owns a shard."""
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._handled[lost] = shard
        try:
            yield lost
        finally:
            del self._handled[lost]

    def reassign(self) -> None:
        """Apply a change of the fleet: end RPCs that others handle now, and look for owners again."""
        self.changed.set()
        for lost, shard in self._handled.items():
            if not lost.done() and not self._shards.owns_shard(shard):
                lost.set_result(None)


# The shard of an RPC

EVERYWHERE: Final = frozenset({"RecordWorkerHeartbeat", "ShutdownWorker"})
"""RPCs for all members, because any of them may have tasks for the worker."""
SETTINGS: Final = frozenset(
    {
        "AddSearchAttributes",
        "CreateNexusEndpoint",
        "DeleteNexusEndpoint",
        "DeleteWorkerDeployment",
        "DeleteWorkerDeploymentVersion",
        "RemoveSearchAttributes",
        "SetWorkerDeploymentCurrentVersion",
        "SetWorkerDeploymentManager",
        "SetWorkerDeploymentRampingVersion",
        "UpdateNexusEndpoint",
        "UpdateTaskQueueConfig",
        "UpdateWorkerDeploymentVersionMetadata",
    }
)
"""RPCs that change a ConfigMap that each member caches."""
_QUEUES: Final = frozenset(
    {"DescribeTaskQueue", "PollActivityTaskQueue", "PollNexusTaskQueue", "PollWorkflowTaskQueue"}
)
"""RPCs about a task queue."""
_EXECUTIONS: Final = ("execution", "workflow_execution")
_NAMES: Final = ("workflow_id", "activity_id", "operation_id")
"""Fields with a workflow ID or an equivalent ID, in order of precedence."""


def shard_of_rpc(rpc: str, request: Any, workflow_of: Callable[[str], str]) -> int | None:
    """The shard of the run, Schedule, or task queue of an RPC. None if any member can handle the RPC.

    Args:
        rpc: The name of the RPC.
        request: The request.
        workflow_of: Returns the workflow ID of a run, by run ID; empty if the run is unknown.
    """
    fields = request.DESCRIPTOR.fields_by_name
    if rpc in EVERYWHERE or rpc in SETTINGS or "namespace" not in fields:
        return None
    namespace: str = request.namespace
    if "task_token" in fields:
        return _of_token(request.task_token, namespace, workflow_of)
    if rpc in _QUEUES:
        return queue_shard(namespace, _queue(request.task_queue))
    named = _named(rpc, request, workflow_of)
    return shard_of(namespace, named) if named else None


def _named(rpc: str, request: Any, workflow_of: Callable[[str], str]) -> str:
    """The workflow ID of an RPC's run, or the name of its Schedule; empty if it has neither."""
    fields = request.DESCRIPTOR.fields_by_name
    if rpc == "ExecuteMultiOperation":
        return request.operations[0].start_workflow.workflow_id if request.operations else ""
    if "schedule_id" in fields:
        return schedule_name(request.schedule_id)
    if "update_ref" in fields:
        return _of_execution(request.update_ref.workflow_execution, workflow_of)
    for field in _EXECUTIONS:
        if field in fields:
            return _of_execution(getattr(request, field), workflow_of)
    return next((getattr(request, field) for field in _NAMES if field in fields and getattr(request, field)), "")


def _queue(named: TaskQueue) -> str:
    """The task queue of a worker; for a sticky queue, the normal queue that it belongs to."""
    sticky = named.kind == TaskQueueKind.TASK_QUEUE_KIND_STICKY
    return named.normal_name if sticky and named.normal_name else named.name


def _of_execution(execution: WorkflowExecution, workflow_of: Callable[[str], str]) -> str:
    return execution.workflow_id or workflow_of(execution.run_id)


def _of_token(raw: bytes, namespace: str, workflow_of: Callable[[str], str]) -> int | None:
    try:
        token: Token = unpack(raw, (WorkflowTaskToken, ActivityToken, QueryToken, NexusToken), namespace)
    except RpcError:
        return None  # the member that handles it rejects it
    if isinstance(token, NexusToken):
        return token.shard
    named = token.workflow_id or workflow_of(token.run_id)
    return shard_of(namespace, named) if named else None
