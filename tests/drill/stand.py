"""Clusters of their own for drills, with runs of every kind, and with a ledger.

The ledger is a server outside of what is restored or moved, which logs each attempt of an activity in a pod. Work that is in it
more often than it should be ran twice.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import lifecycle, projectimage
from cluster.docker import Docker, find_docker
from cluster.paths import REPOSITORY, Cache
from cluster.tools import DEFAULT_TOOLS, ensure_tools
from deploy import NAMESPACE as SYSTEM
from deploy import kind_cluster
from support.cluster.namespace import Cluster, Json
from support.cluster.stages import STAGES, Kind, has_done, send, signals

CACHE = Cache.from_environment(os.environ)
IMAGE = "localhost/perdure:drill"
COPIES = 2
LEDGER = "drill-ledger"
EFFECT = f"""python3 -c '
import http.client, os
server = http.client.HTTPConnection("ledger.{LEDGER}", 8000)
names = ("PERDURE_NAMESPACE", "PERDURE_WORKFLOW_ID", "PERDURE_ACTIVITY_ID")
server.request("GET", "/" + "/".join(os.environ[name] for name in names))
server.getresponse()
'"""
"""What each attempt does: a request that the ledger logs."""


@dataclass(frozen=True)
class Drill:
    """A cluster with the operator and the ledger."""

    name: str
    system: Cluster
    docker: Docker

    def on_node(self, script: str) -> str:
        return self.docker.run("exec", f"{self.name}-control-plane", "sh", "-euc", script, timeout=300)

    def scale(self, replicas: int) -> None:
        self.system("scale", "deployment/perdure", f"--replicas={replicas}")
        self.system.wait(f"{replicas} operators", lambda: len(self._operators()) == replicas)
        if replicas:
            self.system("rollout", "status", "deployment/perdure", "--timeout=5m")

    def _operators(self) -> list[Json]:
        return self.system.list("pods", "-l=app.kubernetes.io/component=operator")

    def ledger(self, namespace: Cluster) -> Counter[str]:
        """How often each piece of work was done in a namespace, by workflow ID and activity."""
        lines = self.system("logs", "ledger", f"--namespace={LEDGER}").splitlines()
        head = f'"GET /{namespace.namespace}/'
        return Counter(line.split(head)[1].split()[0] for line in lines if head in line)


def cluster(verb: str, name: str, *arguments: str) -> None:
    """Run the cluster scripts: they may start a daemon that outlives them."""
    command = [sys.executable, str(REPOSITORY / "hack" / "cluster"), verb, f"--name={name}", *arguments]
    subprocess.run(command, check=True, timeout=1800)


@contextmanager
def stand(name: str) -> Iterator[Drill]:
    """A kind cluster with the operator and the ledger, which is removed at the end, unless KEEP=1 is set."""
    try:
        cluster("up", name, "--workers=0")
        archive = REPOSITORY / "build" / "drill.tar"
        projectimage.build(CACHE, REPOSITORY / "Dockerfile", REPOSITORY, IMAGE, archive)
        target = kind_cluster(CACHE, name, workers=0)
        lifecycle.load(CACHE, name, [archive])
        docker = find_docker(CACHE)
        assert docker is not None
        folder = ensure_tools(CACHE, DEFAULT_TOOLS)
        repository, _, tag = IMAGE.rpartition(":")
        settings = [f"--set-string=image.repository={repository}", f"--set-string=image.tag={tag}", "--set=replicas=1"]
        place = [f"--namespace={SYSTEM}", "--create-namespace", "--wait", "--timeout=5m"]
        target.run("helm", "upgrade", "--install", "perdure", "charts/perdure", *place, *settings)
        found = Drill(name, Cluster(str(folder / "kubectl"), Path(target.environment["KUBECONFIG"]), SYSTEM), docker)
        start_ledger(found.system)
        yield found
    finally:
        if not os.environ.get("KEEP"):
            cluster("down", name)


def start_ledger(system: Cluster) -> None:
    labels = {"app": "ledger"}
    container = {"name": "ledger", "image": IMAGE, "command": ["python3", "-u", "-m", "http.server", "8000"]}
    head = {"apiVersion": "v1", "metadata": {"name": "ledger", "namespace": LEDGER, "labels": labels}}
    system.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEDGER}})
    there = Cluster(system.kubectl, system.kubeconfig, LEDGER)
    there.apply(head | {"kind": "Pod", "spec": {"containers": [container]}})
    there.apply(head | {"kind": "Service", "spec": {"selector": labels, "ports": [{"port": 8000}]}})
    there.pod("ledger", "Running")


def await_stage(namespace: Cluster, runs: dict[str, Kind], stage: int) -> None:
    """Wait until all runs have done the work of a stage."""

    def done() -> bool:
        return all(has_done(namespace.with_history(name), kind, stage) for name, kind in runs.items())

    namespace.wait(f"the end of stage {stage}", done, seconds=900)


def signal(namespace: Cluster, stage: int, runs: dict[str, Kind]) -> None:
    """Send the runs to a stage, and wait until those that are open have recorded it."""
    send(namespace, stage, runs)

    def recorded(name: str) -> bool:
        run = namespace.get("workflowrun", name) or {}
        return "completionTime" in run["status"] or signals(namespace, name) >= stage

    namespace.wait(f"signal {stage}", lambda: all(map(recorded, runs)), seconds=600)


def finish(namespace: Cluster, runs: dict[str, Kind], *, stage: int) -> dict[str, str]:
    """Send the signals from a stage on, and return the phase that each run ends in."""
    for each in range(stage, STAGES):
        signal(namespace, each, runs)
    return {name: namespace.closed(name, seconds=900)["phase"] for name in runs}


def twice(drill: Drill, namespace: Cluster, runs: dict[str, Kind]) -> dict[str, set[str]]:
    """The activities of each run that were done more often than they should be."""
    found: dict[str, set[str]] = {name: set() for name in runs}
    for key, times in drill.ledger(namespace).items():
        run, _, activity = key.partition("/")
        if run in runs and times > runs[run].attempts:
            found[run].add(activity)
    return found
