"""Kill the operator repeatedly while runs compete for WorkflowLimits: a semaphore, and a mutex for each key.

The pods record when they hold the limits. A watch shows every version of the limits, and so the order in which runs get them.
Set PERDURE_LONGER for a longer trial (8: 200 runs, 20 keys), PERDURE_SEED to repeat one.
"""

import json
import os
import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from perdure.api.labels import RUN_LABEL
from support.cluster.audit import deletions
from support.cluster.namespace import IMAGE, Cluster, Json
from support.cluster.process import LONGER, operator

pytestmark = [pytest.mark.cluster, pytest.mark.own, pytest.mark.timeout(600 * LONGER)]

RUNS, KEYS, SLOTS = 25 * LONGER, min(20, 8 * LONGER), 5
SEED = int(os.environ.get("PERDURE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
QUEUING_KILLS = 2
"""So often the operator is killed while runs queue and none can start."""
PROGRAM = """
entered=$(date +%s.%N)
sleep 0.2
printf '{"key": "%s", "entered": %s, "left": %s}' "$KEY" "$entered" "$(date +%s.%N)" > /dev/termination-log
"""
"""What each pod does: its result says when it held the limits."""
CAPACITIES = {"mutex": 1, "slots": SLOTS}
WORKFLOW: Json = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "compete"},
    "spec": {
        "limits": [{"name": "mutex", "key": "${input.key}"}, {"name": "slots"}],
        "activities": [
            {
                "name": "work",
                "startToCloseTimeout": "10m",
                "podRetention": {"onSuccess": "Keep"},
                "container": {
                    "image": IMAGE,
                    "command": ["sh", "-ec", PROGRAM],
                    "env": [{"name": "KEY", "value": "${input.key}"}],
                    "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}},
                },
            }
        ],
        "steps": [{"name": "work", "activity": {"name": "work", "input": "${input}"}}],
    },
}


def set_capacity(namespace: Cluster, name: str, capacity: int) -> None:
    limit = {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkflowLimit", "metadata": {"name": name}}
    namespace.apply({**limit, "spec": {"capacity": capacity}})


@contextmanager
def recording(namespace: Cluster, name: str, file: Path) -> Iterator[None]:
    """Write every version of a limit to a file, until the end of the block."""
    command = [namespace.kubectl, "--kubeconfig", str(namespace.kubeconfig), "--namespace", namespace.namespace]
    command += ["get", "workflowlimit", name, "--watch", "--output=json"]
    with file.open("wb") as output, subprocess.Popen(command, stdout=output) as watch:
        try:
            namespace.wait("the watch to start", lambda: file.stat().st_size > 0)
            yield
            namespace.wait("the watch to show the last version", lambda: _is_complete(namespace, name, file))
            assert watch.poll() is None, "the watch has ended early"
        finally:
            watch.kill()


def _is_complete(namespace: Cluster, name: str, file: Path) -> bool:
    limit = namespace.get("workflowlimit", name)
    assert limit is not None
    text = file.read_text()
    return text.endswith("\n}\n") and f'"resourceVersion": "{limit["metadata"]["resourceVersion"]}"' in text


def versions(file: Path) -> list[Json]:
    """The statuses of a recorded limit, in their order."""
    text, decoder, found, at = file.read_text(), json.JSONDecoder(), [], 0
    while at < len(text):
        limit, at = decoder.raw_decode(text, at)
        found.append(limit.get("status") or {})
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def holders_per_key(status: Json) -> Counter[str]:
    return Counter(entry.get("key", "") for entry in status.get("holders", ()))


def turn(entry: Json) -> tuple[int, str]:
    """The place of a run in the queue: a smaller one goes first."""
    return -entry.get("priority", 0), entry["created"]


def overtaken(before: Json, after: Json, capacity: int) -> list[tuple[str, str]]:
    """Runs that took a limit, each with one that still waits for the same key, for which the place was kept.

    The runs take two limits together: others overtake one of them until it reserves a place (docs/workflow-limits.md). One place
    is kept: if several become free, as they do when an operator starts, others take the rest.
    """
    now_held = holders_per_key(after)
    held = {entry["runId"] for entry in before.get("holders", ())}
    reserved = {entry["runId"] for entry in before.get("waiters", ()) if entry.get("reserves")}
    return [
        (taken["run"], waiting["run"])
        for taken in after.get("holders", ())
        if taken["runId"] not in held and now_held[taken.get("key", "")] >= capacity
        for waiting in after.get("waiters", ())
        if waiting["runId"] in reserved
        and waiting.get("key", "") == taken.get("key", "")
        and turn(waiting) < turn(taken)
    ]


def peak_overlap(times: list[tuple[float, float]]) -> int:
    """How many of the intervals overlap at most."""
    changes = sorted([(start, 1) for start, _ in times] + [(end, -1) for _, end in times])
    peak = now = 0
    for _, change in changes:
        now += change
        peak = max(peak, now)
    return peak


def held_by_pods(namespace: Cluster) -> dict[str, tuple[str, float, float]]:
    """By run: the key, and from when to when its only pod held the limits, as the pod has recorded it.

    A pod holds them since its creation, which the API server records in whole seconds.
    """
    found = {}
    for pod in namespace.list("pods"):
        run = pod["metadata"]["labels"][RUN_LABEL]
        assert run not in found, f"run {run} has two pods"
        note = json.loads(pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"])
        created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) + timedelta(seconds=1)
        found[run] = (note["key"], min(note["entered"], created.timestamp()), note["left"])
    return found


@dataclass
class Competition:
    """Runs that compete for the limits: the first half from the beginning, the others while those run."""

    namespace: Cluster
    log: Path
    chance: random.Random
    started: int = 0
    open_at_kill: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Kill operators until all runs are closed, and have released the limits."""
        deadline = time.monotonic() + 500 * LONGER
        self._start(RUNS // 2)
        while self.started < RUNS or self._open():
            assert time.monotonic() < deadline, f"{self._open()} runs are still open"
            with operator(self.namespace, self.log):
                time.sleep(self.chance.uniform(1, 4))
                self.open_at_kill.append(self._open())
            if len(self.open_at_kill) == QUEUING_KILLS:
                for name, capacity in CAPACITIES.items():
                    set_capacity(self.namespace, name, capacity)
            elif len(self.open_at_kill) > QUEUING_KILLS:
                self._start(max(1, RUNS // 20))
        with operator(self.namespace, self.log):
            self.namespace.wait("all runs to release the limits", self._released)

    def _start(self, number: int) -> None:
        for _ in range(min(number, RUNS - self.started)):
            input_ = {"key": f"key-{self.chance.randrange(KEYS)}"}
            spec = {"workflow": {"name": "compete"}, "input": input_, "priority": self.chance.choice((0, 0, 5, 9))}
            self.namespace.start(f"run-{self.started}", spec)
            self.started += 1

    def _open(self) -> int:
        runs = self.namespace.list("workflowruns")
        return sum(1 for run in runs if not (run.get("status") or {}).get("completionTime"))

    def _released(self) -> bool:
        return not any(limit["status"]["holders"] for limit in self.namespace.list("workflowlimits"))


@pytest.mark.slow
def test_limits_are_never_exceeded_and_keep_their_order_when_the_operator_is_killed(
    namespace: Cluster, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    for name in CAPACITIES:
        set_capacity(namespace, name, 0)
    namespace.apply(WORKFLOW)
    competition = Competition(namespace, tmp_path / "operator.log", random.Random(SEED))
    files = {name: tmp_path / f"{name}.json" for name in CAPACITIES}
    with recording(namespace, "mutex", files["mutex"]), recording(namespace, "slots", files["slots"]):
        competition.run()
    kills = competition.open_at_kill
    print(f"{len(kills)} kills; runs that were open at each: {kills}")
    assert Counter(run["status"]["phase"] for run in namespace.list("workflowruns")) == {"Completed": RUNS}
    check_pods(namespace)
    for name, file in files.items():
        check_order(name, file)


def check_pods(namespace: Cluster) -> None:
    """The records of the pods show that no more than allowed ran at the same time."""
    held = held_by_pods(namespace)
    missing = {f"run-{number}" for number in range(RUNS)} - held.keys()
    assert not missing, explained(namespace, missing)
    by_key: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for key, since, until in held.values():
        by_key[key].append((since, until))
    together = peak_overlap([times for of_key in by_key.values() for times in of_key])
    print(f"{RUNS} pods, {len(by_key)} keys: at most {together} pods at once")
    assert together <= SLOTS
    assert {key: count for key, times in by_key.items() if (count := peak_overlap(times)) > 1} == {}


def explained(namespace: Cluster, missing: set[str]) -> str:
    """What shows why completed runs have no pods."""
    runs = "\n".join(
        f"{json.dumps(namespace.with_history(name)['status'], indent=1)}\n"
        f"{namespace('get', 'events', f'--field-selector=involvedObject.name={name}')}"
        for name in sorted(missing)
    )
    pods = f"{namespace('get', 'pods')}\n{namespace('get', 'events', '--field-selector=involvedObject.kind=Pod')}"
    return (
        f"no pods of {sorted(missing)}\n{runs}\n{pods}\npods were deleted by:\n{deletions(namespace.namespace, 'pods')}"
    )


def check_order(name: str, file: Path) -> None:
    """In every version, no more runs than allowed hold the limit, and none took a place that was kept for an earlier one."""
    statuses = versions(file)
    capacity = CAPACITIES[name]
    assert max(max(holders_per_key(status).values(), default=0) for status in statuses) <= capacity
    assert [pair for before, after in pairwise(statuses) for pair in overtaken(before, after, capacity)] == []
    taken = {entry["run"] for status in statuses for entry in status.get("holders", ())}
    assert len(taken) == RUNS, "every run has held the limit"
    waited = max(status.get("waiting", 0) for status in statuses)
    print(f"{name}: {len(statuses)} versions, at most {waited} runs waited")
