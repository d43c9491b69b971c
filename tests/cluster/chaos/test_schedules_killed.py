"""Kill the operator repeatedly while schedules fire: each scheduled time starts exactly one run.

The operator runs as a process of this machine, so that a kill takes effect immediately; the API server is real. Every run is
kept, and has its time in its name, so that what is there is all that was ever started. Set PERDURE_LONGER for a longer trial,
PERDURE_SEED to repeat one.
"""

import os
import random
import time
from datetime import datetime
from pathlib import Path

import pytest

from support.cluster.namespace import Cluster, Json
from support.cluster.process import LONGER, operator

pytestmark = [pytest.mark.cluster, pytest.mark.own, pytest.mark.timeout(600 * LONGER)]

KILLS, SCHEDULES = 8 * LONGER, 10 * LONGER
SEED = int(os.environ.get("PERDURE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
EVERY = 2


def schedule(name: str) -> Json:
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": {
            "intervals": [{"every": f"{EVERY}s"}],
            "catchupWindow": "1h",
            "overlapPolicy": "AllowAll",
            "successfulRunsHistoryLimit": 1000,
            "workflowRunTemplate": {"spec": {"inline": {"steps": [{"name": "end", "return": {"output": "done"}}]}}},
        },
    }


@pytest.mark.slow
def test_each_scheduled_time_starts_one_run_when_the_operator_is_killed(namespace: Cluster, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    names = [f"often-{number:03}" for number in range(SCHEDULES)]
    log = tmp_path / "operator.log"
    namespace.apply(*(schedule(name) for name in names))
    for _ in range(KILLS):
        with operator(namespace, log):
            time.sleep(chance.uniform(0, 4))
    with operator(namespace, log):
        for name in names:
            namespace("patch", "schedule", name, "--type=merge", "-p", '{"spec": {"paused": true}}')

        def settled() -> list[Json] | None:
            found = namespace.list("schedules")
            done = all(
                s["status"].get("observedGeneration") == s["metadata"]["generation"] and not s["status"]["active"]
                for s in found
            )
            return found if done else None

        schedules = namespace.wait("all runs to end", settled, seconds=1500)
    created = [run["metadata"]["name"] for run in namespace.list("workflowruns")]
    total = 0
    for each in schedules:
        name, status = each["metadata"]["name"], each["status"]
        assert status["counts"]["missedCatchupWindow"] == 0
        mine = [run for run in created if run.startswith(f"{name}-")]
        times = sorted(datetime.fromisoformat(run.rpartition("-")[2].upper()).timestamp() for run in mine)
        assert len(mine) == status["counts"]["actions"]
        assert [int(t - times[0]) for t in times] == list(range(0, EVERY * len(times), EVERY))
        assert times[0] - datetime.fromisoformat(each["metadata"]["creationTimestamp"]).timestamp() <= EVERY
        assert datetime.fromisoformat(status["lastScheduledTime"]).timestamp() == times[-1]
        total += len(mine)
    print(f"{KILLS} kills, {SCHEDULES} schedules, {total} actions due, as many started, none twice")
    assert total == len(created)
    assert total > KILLS * SCHEDULES // 2
