"""Costs of servers during a measurement: CPU time, and requests to the API server."""

import re
import urllib.request
from pathlib import Path

from support.cluster.namespace import Cluster
from support.sdk.server import Operator

_REQUESTS = re.compile(r"apiserver_request_total\{([^}]*)\} (\S+)")


def operator_cpu(operator: Operator) -> float:
    """Milliseconds of CPU time that an operator has used."""
    return 1000 * metrics_of(operator.health)["process_cpu_seconds_total"]


def metrics_of(health: int) -> dict[str, float]:
    """The metrics without labels of the operator with that port for probes."""
    with urllib.request.urlopen(f"http://127.0.0.1:{health}/metrics", timeout=60) as answer:
        rows = [line.split() for line in str(answer.read(), "utf-8").splitlines() if line[0] != "#" and "{" not in line]
    return {name: float(value) for name, value in rows}


class ApiServerCosts:
    """CPU time and requests of the API server since the start of a measurement."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before = self._read()

    def _read(self) -> tuple[float, float]:
        text = self._cluster("get", "--raw", "/metrics")
        return _cpu(text), sum(float(count) for labels, count in _REQUESTS.findall(text) if _is_counted(labels))

    def spent(self) -> tuple[float, float]:
        """Milliseconds of CPU time, and requests for Perdure's objects and Events."""
        cpu, requests = self._read()
        return cpu - self._before[0], requests - self._before[1]


def _is_counted(labels: str) -> bool:
    ours = 'group="perdure.dev"' in labels or 'resource="events"' in labels
    return ours and 'verb="WATCH"' not in labels


def _cpu(metrics: str) -> float:
    line = next(line for line in metrics.splitlines() if line.startswith("process_cpu_seconds_total "))
    return 1000 * float(line.split()[1])


def cpu_of_server(address: str) -> float | None:
    """Milliseconds of CPU time of the process that listens at an address of this machine; None without one."""
    port = int(address.rpartition(":")[2])
    sockets = {inode for file in ("tcp", "tcp6") for inode in _listening(Path("/proc/net") / file, port)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = {str(file.readlink()) for file in (process / "fd").iterdir()}
            if sockets & files:
                return (
                    sum(int((task / "schedstat").read_text().split()[0]) for task in (process / "task").iterdir()) / 1e6
                )
        except OSError:
            continue  # it has ended, or belongs to another user
    return None


def _listening(file: Path, port: int) -> set[str]:
    rows = [line.split() for line in file.read_text(encoding="ascii").splitlines()[1:]] if file.exists() else []
    return {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port}
