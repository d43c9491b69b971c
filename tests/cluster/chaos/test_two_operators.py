"""Two operators with the same runs, one of them killed repeatedly: neither stops nor repeats work of the other."""

import random
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.api.names import pod_name
from perdure.engine import events as ev
from support.cluster.namespace import Cluster, check_history, recorded
from support.cluster.process import operator
from support.manuals import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.bench, pytest.mark.timeout(1800)]
RUNS, KILLS = 20, 15


@contextmanager
def watched_pods(namespace: Cluster, file: Path) -> Iterator[dict[str, set[str]]]:
    """Collects the UIDs of all pods by their names; filled at the end of the block."""
    uids: dict[str, set[str]] = defaultdict(set)
    columns = "custom-columns=NAME:.metadata.name,UID:.metadata.uid"
    command = [namespace.kubectl, f"--kubeconfig={namespace.kubeconfig}", f"--namespace={namespace.namespace}"]
    with (
        file.open("wb") as output,
        subprocess.Popen([*command, "get", "pods", "--watch", "--no-headers", "-o", columns], stdout=output) as watch,
    ):
        try:
            yield uids
        finally:
            watch.terminate()
    for line in file.read_text().splitlines():
        name, uid = line.split()
        uids[name].add(uid)


def test_two_operators_create_each_pod_once(namespace: Cluster, tmp_path: Path) -> None:
    chance = random.Random(1)
    namespace("apply", "-k", str(REPOSITORY / "examples" / "order-flow"))
    names = [f"order-{number}" for number in range(RUNS)]
    log = tmp_path / "log"
    with watched_pods(namespace, tmp_path / "pods") as uids:
        waiting = list(names)
        for kill in range(KILLS):
            while waiting and kill >= (RUNS - len(waiting)) * (KILLS - 4) / RUNS:
                name = waiting.pop(0)
                order = {"id": name, "items": ["lamp", "table", "chair", "shelf"], "amount": 1, "changeOfMind": "15s"}
                namespace.start(name, {"workflow": {"name": "order-flow"}, "input": order})
            with operator(namespace, log):
                time.sleep(chance.uniform(0, 6))
        with operator(namespace, log):
            for name in names:
                namespace.closed(name, seconds=600)
    attempts: set[str] = set()
    for name in names:
        run = namespace.with_history(name)
        assert run["status"]["phase"] == "Completed", run["status"]
        check_history(run)
        started = [event for event in recorded(run) if isinstance(event, ev.ActivityTaskStarted)]
        # Only failures of the workflow cause retries: no attempt is lost to the other operator.
        assert {e.last_failure.type for e in started if e.last_failure} == {"CardNetworkUnavailable"}
        attempts |= {pod_name(name, e.scheduled_event_id, n) for e in started for n in range(1, e.attempt + 1)}
    assert {name: made for name, made in uids.items() if len(made) > 1} == {}
    assert set(uids) == attempts
    assert "Traceback" not in log.read_text()
    namespace.wait(
        "no pod to be held", lambda: not [p for p in namespace.list("pods") if p["metadata"].get("finalizers")]
    )
