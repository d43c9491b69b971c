"""Operators that start with many runs: when they are ready, when they have all open runs in memory, and what that takes.

Unlike the operators of tests, each is a new process of Python, which imports its modules first, as in a pod.
"""

import asyncio
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.costs import metrics_of
from bench.finished import fill
from bench.results import Result
from bench.schedules import QUICK, create_all
from perdure.controller.fleet.shards import SHARDS
from support.cluster.namespace import Cluster, Json, run_manifest, temporary_namespace
from support.ports import free_port
from support.sdk.server import Operator

FLEETS = (1, 3)
"""How many operators start at the same time. A single one is in no fleet, as with the chart's `replicas: 1`."""
SECONDS = 1800
NAP: Json = {"steps": [{"name": "nap", "sleep": {"duration": "24h"}}]}
_PROGRAM = "from perdure.handlers.main import main; main()"


@dataclass(frozen=True, slots=True)
class Stored:
    """What exists before the operators start."""

    finished: int
    sleeping: int
    """Open runs that sleep for a day."""
    size: int
    """Bytes of input that each finished run has in addition."""


@dataclass
class Member:
    """One operator."""

    process: "subprocess.Popen[bytes]"
    log: Path
    health: int
    """Port of /readyz and /metrics."""
    address: str
    """Where it serves SDKs."""
    began: float
    ready: float = 0.0
    """Seconds from its start until it was ready; 0 before that."""
    ready_memory: float = 0.0
    """MiB when it was ready."""

    def check(self) -> bool:
        """Whether it is or was ready."""
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")[-4000:]
        if not self.ready and _responds(f"http://127.0.0.1:{self.health}/readyz"):
            self.ready = time.monotonic() - self.began
            self.ready_memory = self.memory("Rss")
        return bool(self.ready)

    def metrics(self) -> dict[str, float]:
        return metrics_of(self.health)

    def memory(self, what: str) -> float:
        """MiB: ``Rss`` is resident, ``Pss`` has a share of what it shares with other processes."""
        return _mebibytes(Path(f"/proc/{self.process.pid}/smaps_rollup"), what)

    def peak(self) -> float:
        """The most resident memory so far, in MiB."""
        return _mebibytes(Path(f"/proc/{self.process.pid}/status"), "VmHWM")


def _mebibytes(file: Path, what: str) -> float:
    rows = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return next(int(row[1]) for row in rows if row[0] == f"{what}:") / 1024


def _responds(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def measure_fleet(operator: Operator, stored: Stored) -> list[Result]:
    """Fill a namespace, and start one operator that serves it, then several."""
    operator.cluster.start("ended", {"inline": QUICK, **({"input": "x" * stored.size} if stored.size else {})})
    operator.cluster.closed("ended")
    ended = operator.cluster.get("workflowrun", "ended")
    assert ended is not None
    results: list[Result] = []
    with temporary_namespace(operator.cluster, excluded=True) as namespace, TemporaryDirectory() as folder:
        with started(namespace, Path(folder), 1) as (starter,):
            wait([starter], starter.check)
            naps = [run_manifest(f"sleeping-{number:06}", {"inline": NAP}) for number in range(stored.sleeping)]
            took = await create_all("workflowruns", namespace.namespace, naps)
            print(f"{stored.sleeping} open runs after {took:.0f} s", file=sys.stderr)
            await asyncio.to_thread(wait, [starter], lambda: _holds_all([starter], stored.sleeping))
        await fill(namespace.namespace, ended, stored.finished)
        for number in FLEETS:
            with started(namespace, Path(folder), number) as members:
                results += await asyncio.to_thread(_measure, members, stored)
    return results


@contextmanager
def started(namespace: Cluster, folder: Path, number: int) -> Iterator[Sequence[Member]]:
    """Operators for a namespace, which start at the same time and are stopped at the end of the block."""
    members: list[Member] = []
    try:
        members += [_start(namespace, folder, f"bench-{each}", alone=number == 1) for each in range(number)]
        yield members
    finally:
        for each in members:
            each.process.terminate()
        for each in members:
            each.process.wait(60)


def _start(namespace: Cluster, folder: Path, name: str, *, alone: bool) -> Member:
    health, address, log = free_port(), f"127.0.0.1:{free_port()}", folder / f"{name}.log"
    peers = {"PERDURE_FLEET": "bench", "POD_IP": "127.0.0.1", "PERDURE_PEER_ADDRESS": f"127.0.0.1:{free_port()}"}
    environment = {
        **os.environ,
        "KUBECONFIG": str(namespace.kubeconfig),
        "POD_NAME": name,
        "PERDURE_HTTP_PORT": str(health),
        "PERDURE_WATCH_NAMESPACES": namespace.namespace,
        "PERDURE_LOG_LEVEL": "warning",
        "PERDURE_FINISHED_RUNS": "10000000",
        "PERDURE_FINISHED_MIB": "1000000",
        "PERDURE_TEMPORAL_ADDRESS": address,
        "PERDURE_TEMPORAL_AUTHENTICATION": "None",
        "PERDURE_TEMPORAL_TLS": "None",
        **({} if alone else peers),
    }
    with log.open("ab") as output:
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM], env=environment, stdout=output, stderr=output)
    return Member(process, log, health, address, time.monotonic())


def wait(members: Sequence[Member], so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not so():
        assert time.monotonic() < deadline, [each.log.read_text(encoding="utf-8")[-2000:] for each in members]
        time.sleep(0.2)


def _holds_all(members: Sequence[Member], sleeping: int) -> bool:
    """Whether the operators have divided the shards, and each has decided what its runs wait for."""
    found = [each.metrics() for each in members]
    agreed = len(members) == 1 or (
        all(each["perdure_fleet_members"] == len(members) for each in found)
        and sum(each["perdure_fleet_shards"] for each in found) == SHARDS
    )
    known = sum(each["perdure_runs_known"] + each["perdure_runs_hibernated"] for each in found)
    return agreed and known == sum(each["perdure_timers"] for each in found) == sleeping


def _measure(members: Sequence[Member], stored: Stored) -> list[Result]:
    """Wait until operators that have just started have all runs in memory."""
    wait(members, lambda: sum(each.check() for each in members) == len(members))
    wait(members, lambda: _holds_all(members, stored.sleeping))
    took = time.monotonic() - members[0].began
    number = "one operator" if len(members) == 1 else f"{len(members)} operators at the same time"
    what = f"{number}, {stored.finished} finished and {stored.sleeping} open runs: all open runs in memory after"
    results = [Result(what, "s", took)]
    for position, each in enumerate(members, start=1):
        found, who = each.metrics(), f"operator {position} of {len(members)}: "
        results += [
            Result(f"{who}ready after", "s", each.ready),
            Result(f"{who}memory when ready", "MiB", each.ready_memory),
            Result(f"{who}memory with all open runs", "MiB", each.memory("Rss")),
            Result(f"{who}of this, its own and its share", "MiB", each.memory("Pss")),
            Result(f"{who}peak", "MiB", each.peak()),
            Result(f"{who}CPU", "s", found["process_cpu_seconds_total"]),
            Result(f"{who}open runs", "", found["perdure_runs_known"] + found["perdure_runs_hibernated"]),
        ]
        if len(members) > 1:
            results.append(Result(f"{who}shards", "", found["perdure_fleet_shards"]))
    return results
