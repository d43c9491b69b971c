"""The operator as a process of this machine, so that a kill takes effect immediately."""

import multiprocessing
import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from support.cluster.namespace import Cluster
from support.ports import free_port

LONGER = int(os.environ.get("PERDURE_LONGER", "1"))
"""So many times longer are the trials in which operators are killed; `make test-all` sets it."""
PATIENCE = 300
"""Seconds after which a test fails whose operator does not begin."""


_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["perdure.handlers.main", "perdure.frontend.server"])
"""A new operator has its modules already: importing them takes longer than everything else at its start."""


@dataclass
class Process:
    """One operator, which can be killed and started again."""

    cluster: Cluster
    log: Path
    options: dict[str, str] = field(default_factory=dict)
    """Variables of its environment."""
    health: int = field(default_factory=free_port)
    """Port of /readyz and /metrics."""
    running: BaseProcess | None = None

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        settings = {
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "PERDURE_HTTP_PORT": str(self.health),
            "PERDURE_WATCH_NAMESPACES": self.cluster.namespace,
        }
        environment = {**os.environ, **settings, **self.options}
        self.running = process = _PROCESSES.Process(target=_operate, args=(environment, self.log), daemon=True)
        process.start()
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready():
            assert process.is_alive(), self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9, at this very instant."""
        if self.running is not None:
            self.running.kill()
            self.running.join()
            self.running = None

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()

    @contextmanager
    def down(self) -> Iterator[None]:
        """It is killed, and started again at the end of the block."""
        self.kill()
        yield
        self.start()


def _operate(environment: dict[str, str], log: Path) -> None:
    """The main function of the new process."""
    from perdure.handlers.main import main  # noqa: PLC0415 (it is there already, in the process that forks)

    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    main()


@contextmanager
def operator(cluster: Cluster, log: Path, **options: str) -> Iterator[Process]:
    """An operator of the namespace of `cluster` with variables, killed with -9 at the end of the block."""
    process = Process(cluster, log, options)
    try:
        process.start()
        yield process
    finally:
        process.kill()
