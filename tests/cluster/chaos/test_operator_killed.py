"""Kill the operator repeatedly while runs are in progress: invariant 3.

The operator runs as a process of this machine, so that a kill takes effect immediately; everything else is real: the API
server, the pods, the Leases. Set PERDURE_LONGER for a longer trial, PERDURE_SEED to repeat one.
"""

import os
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest

from perdure.api.names import pod_name
from perdure.engine import events as ev
from support.cluster.audit import what, writes
from support.cluster.namespace import Cluster, check_history, recorded
from support.cluster.process import LONGER, operator
from support.manuals import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.own, pytest.mark.timeout(600 * LONGER)]

KILLS, RUNS = 14 * LONGER, 5 * LONGER
SEED = int(os.environ.get("PERDURE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
CREATED = 201
CONFLICT = 409


def creations(namespace: str) -> dict[str, list[int]]:
    """How the API server has answered each wish to create a pod, by its audit log: codes by the pod's name.

    A request whose client is killed before the answer has some other code than 201, and may have made the pod all the same.
    """
    answers: dict[str, list[int]] = defaultdict(list)
    for entry in writes(namespace):
        if what(entry) == "create pods":
            answers[entry["objectRef"]["name"]].append((entry.get("responseStatus") or {}).get("code", 0))
    return answers


@pytest.mark.slow
def test_no_run_is_lost_and_no_attempt_duplicated_when_the_operator_is_killed(
    namespace: Cluster, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    namespace("apply", "-k", str(REPOSITORY / "examples" / "order-flow"))
    names = [f"order-{number}" for number in range(RUNS)]

    def is_open() -> int:
        return sum(1 for run in namespace.list("workflowruns") if not (run.get("status") or {}).get("completionTime"))

    log = tmp_path / "operator.log"
    open_at_kill = []
    waiting = list(names)
    for kill in range(KILLS):
        # The runs start one after the other, so that kills hit all of their stages until the end.
        while waiting and kill >= (RUNS - len(waiting)) * (KILLS - 8) / RUNS:
            name = waiting.pop(0)
            order = {"id": name, "items": ["lamp", "table", "chair", "shelf"], "amount": 1, "changeOfMind": "15s"}
            namespace.start(name, {"workflow": {"name": "order-flow"}, "input": order})
        open_at_kill.append(is_open())
        with operator(namespace, log):
            time.sleep(chance.uniform(0, 3))
    with operator(namespace, log):
        for name in names:
            namespace.closed(name, seconds=600)
        namespace.wait(  # the last pods are released after their run has closed
            "no pod to be held", lambda: not [p for p in namespace.list("pods") if p["metadata"].get("finalizers")]
        )
    print(f"{KILLS} kills; runs that were open at each: {open_at_kill}")
    assert all(open_at_kill)
    attempts: set[str] = set()
    for name in names:
        run = namespace.with_history(name)
        assert run["status"]["phase"] == "Completed", run["status"]
        check_history(run)
        started = [e for e in recorded(run) if isinstance(e, ev.ActivityTaskStarted)]
        attempts |= {pod_name(name, e.scheduled_event_id, n) for e in started for n in range(1, e.attempt + 1)}
    answers = creations(namespace.namespace)
    assert {pod: codes for pod, codes in answers.items() if codes.count(CREATED) > 1} == {}
    assert set(answers) == attempts
    unanswered = {pod: codes for pod, codes in answers.items() if CREATED not in codes}
    assert all(set(codes) - {CONFLICT} for codes in unanswered.values()), unanswered
