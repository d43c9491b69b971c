"""Kill operators and workers every few seconds under 50 flows in Python, and change their code in the meantime.

Everything is real: the operator's pods, the workers that a WorkerDeployment starts, and the pods of the activities. Set
PERDURE_SEED to repeat a trial.
"""

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.engine import events as ev
from support.cluster.command import perdure
from support.cluster.namespace import IMAGE, SYSTEM, Cluster, Json, recorded

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.bench, pytest.mark.timeout(3600)]

EARLY, LATE = 20, 30
PATIENCE = 1500.0
SEED = int(os.environ.get("PERDURE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
VICTIMS = ("app.kubernetes.io/name=perdure", "perdure.dev/worker-deployment=shop")
FLOW = """
import perdure.flow as pf

shop = pf.Environment("shop", cpu="10m", memory="64Mi")


@shop.activity(timeout="5m", retries=20)
def pack(name: str) -> str:
    return f"packed by {code}"


@shop.activity(timeout="5m", retries=20)
def send(name: str) -> str:
    return f"sent by {code}"


@shop.flow
async def order(name: str) -> list[str]:
    packed = await pack(name)
    await pf.signal("paid", bool)
    return [name, packed, await send(name), "ended by {code}"]
"""


@contextmanager
def kills(system: Cluster, namespace: Cluster) -> Iterator[Counter[str]]:
    """Kill a pod of the operator or of the workers every few seconds; how often each, so far."""
    chance = random.Random(SEED)
    done: Counter[str] = Counter()
    ended = threading.Event()

    def kill_until_ended() -> None:
        while not ended.wait(chance.uniform(2, 6)):
            selector = chance.choice(VICTIMS)
            where = system if selector == VICTIMS[0] else namespace
            names = [pod["metadata"]["name"] for pod in where.list("pods", f"-l={selector}")]
            if names:
                where("delete", "pod", chance.choice(names), "--force", "--grace-period=0", "--wait=false")
                done[selector] += 1

    with ThreadPoolExecutor(max_workers=1) as background:
        killing = background.submit(kill_until_ended)
        try:
            yield done
        finally:
            ended.set()
            killing.result()


def deploy(namespace: Cluster, folder: Path, code: str) -> None:
    """Deploy the flow as this code, and wait until it gets new runs."""
    before = namespace.get("workerdeployment", "shop")
    known = before["status"].get("currentBuildId") if before else None
    file = folder / "shop.py"
    file.write_text(FLOW.replace("{code}", code))
    perdure(namespace, "deploy", str(file), "--image", IMAGE, "--mount")

    def current() -> bool:
        found = namespace.get("workerdeployment", "shop") or {}
        return found.get("status", {}).get("currentBuildId") not in (None, known)

    namespace.wait(f"code {code} to get new runs", current, seconds=PATIENCE)


def start(namespace: Cluster, names: list[str]) -> None:
    for name in names:
        spec = {"workflow": {"type": "order", "taskQueue": "shop"}, "input": {"payloads": [{"json": name}]}}
        namespace.start(name, spec)


def is_packed(namespace: Cluster, name: str) -> bool:
    run = namespace.with_history(name)
    return any(isinstance(event, ev.ActivityTaskCompleted) for event in recorded(run))


def check(run: Json) -> None:
    """The history has no gap, ends once, and completes each activity once."""
    events = recorded(run)
    assert [event.event_id for event in events] == list(range(1, len(events) + 1))
    completed = Counter(each.scheduled_event_id for each in events if isinstance(each, ev.ActivityTaskCompleted))
    assert sorted(completed.values()) == [1, 1], completed


def test_flows_survive_kills_of_operators_and_workers_and_end_on_their_code(
    cluster: Cluster, namespace: Cluster, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    system = Cluster(cluster.kubectl, cluster.kubeconfig, SYSTEM)
    early, late = [f"early-{number}" for number in range(EARLY)], [f"late-{number}" for number in range(LATE)]
    deploy(namespace, tmp_path, "one")
    with kills(system, namespace) as done:
        start(namespace, early)
        for name in early:
            namespace.wait(f"{name} to be packed", lambda name=name: is_packed(namespace, name), seconds=PATIENCE)
        deploy(namespace, tmp_path, "two")
        start(namespace, late)
        for name in early + late:
            perdure(namespace, "signal", name, "--name", "paid", "--input", "true")
        for name in early + late:
            namespace.closed(name, seconds=PATIENCE)
    print(f"kills: {dict(done)}")
    assert all(done[selector] for selector in VICTIMS)
    for names, code in ((early, "one"), (late, "two")):
        for name in names:
            check(namespace.with_history(name))
            output = json.loads(perdure(namespace, "result", name, "--output", "json"))
            assert output == [name, f"packed by {code}", f"sent by {code}", f"ended by {code}"]
