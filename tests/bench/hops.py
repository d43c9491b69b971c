"""CPU time of a call from one operator to another, in both forms: `PYTHONPATH=operator:tests python -m bench.hops`.

Both ends are in this process, so each figure is that of both operators. The message and the response have 500 bytes.
"""

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

from perdure.frontend.peers.calls import Failure, Headers, PeerCall
from perdure.frontend.peers.client import PeerClient, PeerIdentity
from perdure.frontend.peers.listener import listening_to_members
from perdure.frontend.transport.certificates import CA_CERT, TLS_CERT, TLS_KEY, renewed
from perdure.frontend.transport.door import Door, Peer
from perdure.frontend.transport.guard import Guard
from perdure.frontend.transport.tls import Material, ServerCertificate
from perdure.kube.clock import now
from support.callers import AUDIENCE, ApiServer, token
from support.ports import free_port

CALLS: Final = 4_000
PARALLEL: Final = (1, 8)
MESSAGE: Final = bytes(500)
METADATA: Final = (("client-name", "temporal-python"), ("client-version", "1.35.0"))


async def measure(folder: Path, parallel: int, *, over_grpc: bool, tls: bool) -> float:
    """Milliseconds of CPU time for each call."""
    made = renewed({}, ["perdure-temporal.perdure-system.svc"], now())
    material = Material(made[TLS_KEY], made[TLS_CERT], None)
    served = ServerCertificate(material, made[CA_CERT].decode()) if tls else None
    file, address = folder / "token", f"127.0.0.1:{free_port()}"
    file.write_text(token())
    door = Door(Guard(ApiServer(), AUDIENCE))  # type: ignore[arg-type] # stands in for the client

    async def refuse(headers: Headers, peer: Peer) -> Failure | None:
        await door.authenticate(headers, peer)
        return None

    async def answer(call: PeerCall) -> bytes | Failure:
        return call.body

    client = PeerClient(
        PeerIdentity(name="other", token=file, served=served),
        lambda: {"m": address},
        over_grpc=lambda: {"m"} if over_grpc else (),
    )

    async def call(times: int) -> None:
        for _ in range(times):
            await client.call(
                "m", "/s/m", MESSAGE, encode=bytes, decode=bytes, seconds=10, metadata=METADATA, principal="alice"
            )

    async with listening_to_members(address, refuse, answer, served):
        await call(20)
        began = time.process_time()
        await asyncio.gather(*(call(CALLS // parallel) for _ in range(parallel)))
        took = time.process_time() - began
        await client.close()
    return 1000 * took / CALLS


async def main() -> None:
    """Measure all of it, and print the results."""
    with TemporaryDirectory() as folder:
        for tls in (True, False):
            for parallel in PARALLEL:
                for over_grpc in (True, False):
                    took = await measure(Path(folder), parallel, over_grpc=over_grpc, tls=tls)
                    form, line = "gRPC" if over_grpc else "frames", "TLS" if tls else "in the clear"
                    print(f"{form}, {line}, {parallel} in parallel: {took:.3f} ms of CPU time for each call")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
