"""Prefect and Airflow on this machine, installed by uv: what they use while nothing runs, and how long runs take."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.ports import free_port

ACTIVITIES: Final = 10
_PREFECT: Final = ("prefect==3.9.1",)
_AIRFLOW: Final = ("apache-airflow==3.3.2",)
_PREFECT_FLOWS: Final = f"""
from prefect import flow, task

@task
def work(number: int) -> int:
    return number

@flow
def nothing(number: int) -> int:
    return number

@flow
def chain(number: int) -> int:
    for _ in range({ACTIVITIES}):
        number = work(number)
    return number
"""
_PREFECT_DEPLOY: Final = """
import sys
from prefect import flow
for name in ("nothing", "chain"):
    flow.from_source(sys.argv[1], entrypoint=f"speed.py:{name}").deploy(name, work_pool_name="local", print_next_steps=False)
"""
_PREFECT_RUN: Final = """
import json, sys
from prefect.deployments import run_deployment
def seconds(name):
    run = run_deployment(f"{name}/{name}", parameters={"number": 7}, poll_interval=0.5)
    assert run.state.is_completed(), run.state
    return (run.end_time - run.created).total_seconds()
print(json.dumps([seconds(sys.argv[1]) for _ in range(int(sys.argv[2]))]))
"""
_AIRFLOW_DAGS: Final = f"""
from airflow.sdk import dag, task

@task
def work(number: int) -> int:
    return number

@dag(schedule=None, is_paused_upon_creation=False)
def nothing():
    work(7)

@dag(schedule=None, is_paused_upon_creation=False)
def chain():
    number = 7
    for _ in range({ACTIVITIES}):
        number = work(number)

nothing()
chain()
"""
_AIRFLOW_RUNS: Final = """
import json, sys
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
with create_session() as session:
    runs = session.query(DagRun).filter(DagRun.dag_id == sys.argv[1]).order_by(DagRun.id).all()
    print(json.dumps([[str(each.state), each.end_date and (each.end_date - each.queued_at).total_seconds()] for each in runs]))
"""


@dataclass(frozen=True, slots=True)
class Idle:
    """What processes use while nothing runs."""

    processes: int
    cpu: float
    """Share of a core."""
    memory: float
    """MiB, with shared pages divided among the processes that share them."""

    def __str__(self) -> str:
        """As the bench prints it."""
        return f"{self.processes} processes, {self.cpu * 100:.1f} % of a core, {self.memory:.0f} MiB"


def measure_idle(processes: Callable[[], Iterable[int]], seconds: float) -> Idle:
    """Measure the processes of a server for some time."""
    before, began = _cpu(processes()), time.monotonic()
    time.sleep(seconds)
    now = list(processes())
    spent = sum(used - before.get(each, 0) for each, used in _cpu(now).items())
    return Idle(len(now), spent / (time.monotonic() - began), sum(map(_memory, now)))


def _cpu(processes: Iterable[int]) -> dict[int, float]:
    """Return the seconds of CPU time of processes."""
    ticks, found = os.sysconf("SC_CLK_TCK"), {}
    for each in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            found[each] = (int(fields[11]) + int(fields[12])) / ticks
    return found


def _memory(process: int) -> float:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0.0


def pod_processes(uids: Iterable[str]) -> list[int]:
    """Return the processes of pods whose nodes are containers of this machine."""
    names = [each.replace("-", "_") for each in uids]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            place = (process / "cgroup").read_text(encoding="utf-8").replace("-", "_")
            if any(each in place for each in names) and "pause" not in (process / "comm").read_text(encoding="utf-8"):
                found.append(int(process.name))
    return found


class Installed:
    """Commands of an installed tool, each in a session of its own, of which all processes end together."""

    def __init__(self, packages: Iterable[str], folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir()
        self.folder = folder
        cache = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))
        self.environment = {**os.environ, "HOME": str(folder), "UV_CACHE_DIR": cache, **environment}
        self._uv = ["uv", "run", "--quiet", "--no-project", "--python", "3.11"]
        self._uv += [word for each in packages for word in ("--with", each)]
        self._running: list[subprocess.Popen[bytes]] = []

    def __call__(self, *command: str) -> str:
        """Run a command, and return its output."""
        done = subprocess.run(
            [*self._uv, *command], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *command: str) -> None:
        """Start a server."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*self._uv, *command],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(process)

    def processes(self) -> list[int]:
        """Return the processes of the servers, without uv, which only waits for them."""
        sessions, found = {each.pid for each in self._running}, []
        for each in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = (each / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                if int(fields[3]) in sessions and int(each.name) not in sessions:
                    found.append(int(each.name))
        return found

    def stop(self) -> None:
        """End all servers."""
        for each in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        for running in self._running:
            running.kill()
            running.wait()


def _until(what: str, tried: Callable[[], object], installed: Installed, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not tried():
        log = (installed.folder / "log").read_text(encoding="utf-8", errors="replace")[-3000:]
        assert time.monotonic() < deadline, f"waited for {what}\n{log}"
        time.sleep(1)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


class Prefect:
    """Prefect's server with its database in a file, and a worker that starts a process for each run."""

    SHORTEST: Final = "a run without tasks"

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        home = {"PREFECT_HOME": str(folder / "home"), "PREFECT_API_URL": f"http://127.0.0.1:{self._port}/api"}
        self.installed = Installed(_PREFECT, folder, {**home, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"})

    def start(self) -> None:
        """Start the server and the worker, and deploy the flows."""
        self.installed.start("prefect", "server", "start", "--port", str(self._port))
        _until("the server of Prefect", lambda: _listens(self._port), self.installed)
        self.installed("prefect", "work-pool", "create", "local", "--type", "process")
        self.installed.start("prefect", "worker", "start", "--pool", "local")
        (self.installed.folder / "speed.py").write_text(_PREFECT_FLOWS, encoding="utf-8")
        self.installed("python", "-c", _PREFECT_DEPLOY, str(self.installed.folder))

    def seconds(self, name: str, count: int) -> list[float]:
        """Return how long runs take, one after another, from their creation to their end."""
        found: list[float] = json.loads(self.installed("python", "-c", _PREFECT_RUN, name, str(count)).splitlines()[-1])
        return found


class Airflow:
    """`airflow standalone`: API server, scheduler with LocalExecutor, DAG processor, triggerer, and a database in a file."""

    SHORTEST: Final = "a run with one task"

    def __init__(self, folder: Path) -> None:
        home = folder / "home"
        self._port = free_port()
        self._dags = home / "dags"
        settings = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60.0",
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self._port}/execution/",
        }
        self.installed = Installed(_AIRFLOW, folder, settings)

    def start(self) -> None:
        """Start all parts, and wait until the DAGs are known."""
        self._dags.mkdir(parents=True)
        (self._dags / "speed.py").write_text(_AIRFLOW_DAGS, encoding="utf-8")
        self.installed("airflow", "db", "migrate")
        self.installed.start("airflow", "standalone")
        _until("the API server of Airflow", lambda: _listens(self._port), self.installed)
        _until("the DAGs", lambda: "chain" in self.installed("airflow", "dags", "list"), self.installed)

    def seconds(self, name: str, count: int) -> list[float]:
        """Return how long runs take, one after another, from when they are queued to their end."""
        for number in range(1, count + 1):
            self.installed("airflow", "dags", "trigger", name)
            _until(f"run {number} of {name}", lambda n=number: len(self._ended(name)) == n, self.installed)
        return self._ended(name)

    def _ended(self, name: str) -> list[float]:
        runs = json.loads(self.installed("python", "-c", _AIRFLOW_RUNS, name).splitlines()[-1])
        assert not [state for state, _ in runs if state == "failed"], runs
        return [took for state, took in runs if state == "success"]


@contextlib.contextmanager
def started(scheduler: Prefect | Airflow) -> Iterator[Prefect | Airflow]:
    """Start a scheduler, and stop it in the end."""
    try:
        scheduler.start()
        yield scheduler
    finally:
        scheduler.installed.stop()
