"""Workflows as code while their server is ended under load: how many stall until a timeout of their activity.

The servers are Perdure in the cluster, one of whose pods is deleted each time, and Perdure and Temporal's own server on this
machine, which are killed. Each trial ends the server three times. PERDURE_TRIALS says how many trials there are (1 by default). A
server that is killed may lose the completion that a worker is just sending (docs/limits.md); one that is stopped must not. A
workflow also counts as stalled if the server was away for as long as its timeout.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import deletions
from support.cluster.namespace import IMAGE, SYSTEM, Cluster, temporary_namespace
from support.manuals import REPOSITORY
from support.sdk.server import serving
from support.temporal_server import DurableServer

pytestmark = [pytest.mark.alone, pytest.mark.bench, pytest.mark.timeout(7200)]

TRIALS = int(os.environ.get("PERDURE_TRIALS", "1"))
ENDS = 3
_PROGRAM = Path(deletions.__file__)
_PATIENCE = 600.0
_LONGEST_PAUSE = 6.0


@dataclass(frozen=True)
class Load:
    """The worker and client of a trial."""

    output: Callable[[], str]
    stop: Callable[[], object]

    def ended(self) -> int:
        """How many workflows have ended."""
        return self.output().splitlines().count(deletions.ENDED)

    def figures(self) -> dict[str, Any] | None:
        """The figures at the end; None before."""
        return next((json.loads(line) for line in self.output().splitlines() if line.startswith("{")), None)


def trial(load: Load, end: Callable[[], object]) -> dict[str, Any]:
    """End the server a few times, each time at a random moment under load, and return the figures."""
    for _ in range(ENDS):
        _until_it_continues(load)
        time.sleep(random.uniform(0, _LONGEST_PAUSE))
        end()
    _until_it_continues(load)
    load.stop()
    figures: dict[str, Any] = _until("the workflows to end", load.figures)
    return figures


def _until_it_continues(load: Load) -> None:
    """Wait until as many workflows have ended as run at a time: the server is busy again."""
    before = load.ended()
    _until("workflows to end", lambda: load.ended() >= before + deletions.AT_ONCE)


def _until(what: str, found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + _PATIENCE
    while not (result := found()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.2)
    return result


def report(server: str, trials: list[dict[str, Any]]) -> int:
    """Print the figures of all trials, and return how many workflows have stalled."""
    for each in trials:
        print(f"{server}: {each}")
    total = {name: sum(each[name] for each in trials) for name in ("workflows", "stalled", "repeated")}
    print(f"{server}, {len(trials)} trials, ended {ENDS * len(trials)} times: {total}")
    return total["stalled"]


# In the cluster


@contextmanager
def pod(cluster: Cluster) -> Iterator[Load]:
    """The load in a pod, with the rights of the example's worker."""
    with temporary_namespace(cluster) as namespace:
        namespace("create", "configmap", "app", f"--from-file={_PROGRAM}")
        manifests = (REPOSITORY / "examples" / "temporal" / "worker.yaml").read_text(encoding="utf-8")
        for each in yaml.safe_load_all(manifests):
            if each["kind"] != "Deployment":
                namespace.apply(each)
                continue
            spec = each["spec"]["template"]["spec"]
            (container,) = spec["containers"]
            container |= {"image": IMAGE, "command": ["python", f"/app/{_PROGRAM.name}"]}
            next(volume for volume in spec["volumes"] if volume["name"] == "app")["configMap"]["name"] = "app"
            manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}}
            namespace.create({**manifest, "spec": {**spec, "restartPolicy": "Never"}})
        yield Load(
            output=lambda: namespace.run("logs", "trial").stdout,
            stop=lambda: namespace("exec", "trial", "--", "python", "-c", "import os; os.kill(1, 15)"),
        )


OPERATOR = ("-l", "app.kubernetes.io/name=perdure")
FORCED = ("--force", "--grace-period=0")


def pods(system: Cluster) -> dict[str, bool]:
    """The pods of the operator, and whether each is ready."""
    return {
        each["metadata"]["name"]: all(status.get("ready") for status in each["status"].get("containerStatuses") or [{}])
        for each in system.list("pods", *OPERATOR)
    }


def delete_one(system: Cluster, *options: str) -> None:
    """Delete one pod of the operator, and wait for the next one."""
    before = pods(system)
    chosen = random.choice(sorted(before))
    system("delete", "pod", chosen, "--wait=false", *options)

    def is_replaced() -> bool:
        after = pods(system)
        return chosen not in after and len(after) == len(before) and all(after.values())

    system.wait("the next pod", is_replaced)


def restart(system: Cluster) -> None:
    """Replace all pods of the operator, as the Deployment does it."""
    system("rollout", "restart", "deployment/perdure")
    system("rollout", "status", "deployment/perdure", "--timeout=300s")


ENDINGS: dict[str, tuple[Callable[[Cluster], None], bool]] = {
    "deleted by force": (lambda system: delete_one(system, *FORCED), False),
    "deleted": (delete_one, True),
    "restarted": (restart, True),
}


@pytest.mark.cluster
@pytest.mark.parametrize(("end", "graceful"), ENDINGS.values(), ids=ENDINGS)
def test_workflows_stall_seldom_when_operators_are_deleted(
    cluster: Cluster, end: Callable[[Cluster], None], *, graceful: bool
) -> None:
    system, trials = Cluster(cluster.kubectl, cluster.kubeconfig, SYSTEM), []
    for _ in range(TRIALS):
        with pod(cluster) as load:
            trials.append(trial(load, partial(end, system)))
    stalled = report(f"Perdure, {len(pods(system))} operators", trials)
    assert not (graceful and stalled)


# On this machine


@contextmanager
def process(address: str, namespace: str, folder: Path) -> Iterator[Load]:
    """The load in a process of this machine."""
    output = folder / "output"
    environment = {**os.environ, "TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": namespace}
    with (
        output.open("w") as file,
        subprocess.Popen([sys.executable, _PROGRAM], stdout=file, env=environment) as running,
    ):
        try:
            yield Load(output=output.read_text, stop=running.terminate)
        finally:
            running.kill()


def test_workflows_stall_seldom_when_temporals_own_server_is_killed(tmp_path: Path) -> None:
    trials = []
    for number in range(TRIALS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with (
            DurableServer(folder / "state.db").running() as server,
            process(server.address, server.namespace, folder) as load,
        ):
            trials.append(trial(load, server.restart))
    report("Temporal's server", trials)


@pytest.mark.cluster
def test_workflows_stall_seldom_when_an_operator_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    trials = []
    for number in range(TRIALS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with (
            serving(cluster, folder / "log", PERDURE_TEMPORAL_TLS_SECRET="") as operator,
            process(operator.address, operator.namespace, folder) as load,
        ):
            trials.append(trial(load, operator.restart))
    report("Perdure", trials)
