"""The frontends of the operators of a world, as workers and clients reach them."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import grpc
from temporalio.api.common.v1 import WorkflowType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import StartWorkflowExecutionRequest

from perdure.frontend.errors import RpcError
from perdure.frontend.settings import Settings
from perdure.frontend.transport.door import Door, Peer
from perdure.frontend.transport.grpc_server import head_of
from perdure.frontend.transport.rpc import Rpc, rpcs
from perdure.simulation.cluster.loop import ClusterLoop
from simulated.sdk.peers import Peers
from simulated.sdk.wires import BrokenError, Wires
from support.faulty.operators import FaultyOperator

_BUGS = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN})
_TRANSIENT = frozenset(
    {
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
    }
)


class Frontends:
    """Sets up the frontend of each operator, and carries the calls of workers and clients to it."""

    def __init__(self, loop: ClusterLoop, wires: Wires, fail: Callable[[str], None]) -> None:
        """`fail` records a violation."""
        self._loop = loop
        self._wires = wires
        self._fail = fail
        self._peers = Peers(wires)
        self._served: dict[FaultyOperator, Mapping[str, Rpc]] = {}

    def settings(self, name: str) -> Settings:
        """Return the settings of the frontend of an operator."""
        return Settings(authentication=False, member=name)

    def serve(self, operator: FaultyOperator, *, fleet: bool) -> None:
        """Serve callers of an operator until it is killed, and in a fleet, forward their calls to other operators."""
        for gone in [each for each in self._served if each.is_dead]:
            del self._served[gone]
        manager, handlers = operator.manager, operator.frontend.handlers()
        if fleet:
            handlers = self._peers.join(operator, handlers)
        self._served[operator] = _by_name(rpcs(handlers, manager.served, manager.first_lists.wait, Door(None)))

    def choose(self, random: Random) -> FaultyOperator | None:
        """An operator that is alive; None if there is none."""
        alive = [each for each in self._served if not each.is_dead]
        return random.choice(alive) if alive else None

    async def call(self, operator: FaultyOperator, rpc: str, request: Any, seconds: float) -> Any:
        """Call an operator.

        Raises:
            BrokenError: There is no response.
            RpcError: The response is an error.
        """
        served = self._served.get(operator)
        if served is None:
            raise BrokenError("the operator is gone")
        call = _Call(request, self._loop.time() + seconds)
        try:
            response = await self._wires.carry(operator, lambda: served[rpc].answer(call), seconds=seconds)
        except RpcError as error:
            if error.code in _BUGS:
                self._fail(f"{self._loop.time():.3f} {operator.name}: {rpc} fails: {error.code.name} {error.message}")
            raise
        return type(response).FromString(response.SerializeToString())


def _by_name(offered: list[Rpc]) -> Mapping[str, Rpc]:
    return {rpc.name: rpc for rpc in offered}


class _Call:
    """A call that has arrived."""

    metadata = ()
    peer = Peer("10.0.0.1", 4711)

    def __init__(self, request: Any, deadline: float) -> None:
        self._request = request
        self._deadline = deadline

    @property
    def seconds_left(self) -> float:
        return max(self._deadline - asyncio.get_running_loop().time(), 0.0)

    async def read(self) -> bytes:
        raw: bytes = self._request.SerializeToString()
        return raw

    def on_sent(self, release: Callable[[], None]) -> None:
        release()

    async def head(self, raw: bytes) -> Any:
        return head_of(self._request.DESCRIPTOR).FromString(raw)

    async def decode(self, raw: bytes) -> Any:
        return type(self._request).FromString(raw)


class Caller:
    """A process that calls one operator, and another one once the connection has broken."""

    def __init__(self, frontends: Frontends, random: Random) -> None:
        self._frontends = frontends
        self._random = random
        self._operator: FaultyOperator | None = None

    async def call(self, rpc: str, request: Any, seconds: float = 10.0) -> Any:
        """Call an operator once.

        Raises:
            BrokenError: There is no response.
            RpcError: The response is an error.
        """
        operator = self._operator = self._operator or self._frontends.choose(self._random)
        if operator is None:
            raise BrokenError("no operator is running")
        try:
            return await self._frontends.call(operator, rpc, request, seconds)
        except BrokenError:
            self._operator = None
            raise

    async def insist(self, rpc: str, request: Any, limit: float = 60.0) -> Any:
        """Call an operator, and call again while it may help.

        Raises:
            BrokenError: There was no response in time.
            RpcError: The response is an error that would be the same the next time.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + limit
        while True:
            try:
                return await self.call(rpc, request)
            except (BrokenError, RpcError) as error:
                if loop.time() > until or not is_transient(error):
                    raise
            await asyncio.sleep(self._random.uniform(0.05, 1.0))


def is_transient(error: Exception) -> bool:
    """Whether SDKs retry a call that failed with this error, or applications do, because its deadline has passed."""
    return isinstance(error, BrokenError) or (isinstance(error, RpcError) and error.code in _TRANSIENT)


def start(workflow_id: str, request_id: str) -> StartWorkflowExecutionRequest:
    return StartWorkflowExecutionRequest(
        namespace="default",
        workflow_id=workflow_id,
        workflow_type=WorkflowType(name="Order"),
        task_queue=TaskQueue(name="orders"),
        request_id=request_id,
    )
