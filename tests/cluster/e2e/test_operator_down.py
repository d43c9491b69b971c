"""Events during a downtime of the operator: the outcome is correct after it returns."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from perdure.engine import events as ev
from support.cluster.namespace import Cluster, check_history, one_step, python, recorded
from support.cluster.process import Process

pytestmark = [pytest.mark.cluster, pytest.mark.own]

QUICK = {"exponential": {"initialInterval": "1s", "backoffCoefficient": "1"}}

HEARTBEATS_ONCE = """
import time
from pathlib import Path
def work(_):
    activity.heartbeat("working")
    if activity.info().attempt == 1: time.sleep(6)
    ENDING
activity.main({"work": work})
"""


def test_pods_that_ended_or_stopped_their_heartbeats_during_a_downtime_are_evaluated(
    namespace: Cluster, operator_process: Process
) -> None:
    endings = {
        "finished": "return 'done'",
        "failed": "\n    if activity.info().attempt == 1: raise activity.ApplicationError('no', type='No')\n    return 'retried'",
        "silent": "\n    if activity.info().attempt == 1: time.sleep(600)\n    return activity.last_heartbeat_details()",
    }
    for name, ending in endings.items():
        # On a busy machine, a pod may take longer than a short timeout to start.
        timeout = "15s" if name == "silent" else "10m"
        work = python(HEARTBEATS_ONCE.replace("ENDING", ending), heartbeatTimeout=timeout, retryPolicy=QUICK)
        namespace.start(name, one_step(work))
    for name in endings:
        namespace.pod(f"{name}-2-1", "Running")
    with operator_process.down():
        namespace.pod("finished-2-1", "Succeeded")
        namespace.pod("failed-2-1", "Failed")
        namespace.start("created", one_step(python("activity.complete('begun late')")))
    outputs = {name: namespace.closed(name)["output"] for name in (*endings, "created")}
    assert outputs == {"finished": "done", "failed": "retried", "silent": "working", "created": "begun late"}
    attempts = {}
    for name in (*endings, "created"):
        run = namespace.with_history(name)
        check_history(run)
        attempts[name] = next(e.attempt for e in recorded(run) if isinstance(e, ev.ActivityTaskStarted))
    assert attempts == {"finished": 1, "failed": 2, "silent": 2, "created": 1}


def start_of(namespace: Cluster, name: str) -> datetime | None:
    """The start time of a run; None before it starts."""
    status = (namespace.get("workflowrun", name) or {}).get("status") or {}
    return datetime.fromisoformat(status["startTime"]) if "startTime" in status else None


def test_timers_and_timeouts_due_during_the_downtime_fire_in_order(
    namespace: Cluster, operator_process: Process
) -> None:
    steps = [{"name": "nap", "sleep": {"duration": "15s"}}, {"name": "end", "return": {"output": "woken"}}]
    namespace.start("napping", {"inline": {"steps": steps}, "runTimeout": "1h"})
    long = [{"name": "nap", "sleep": {"duration": "1h"}}]
    namespace.start("overdue", {"inline": {"steps": long}, "runTimeout": "15s"})
    begun = [
        namespace.wait(f"run {name} to begin", partial(start_of, namespace, name)) for name in ("napping", "overdue")
    ]
    with operator_process.down():
        due = max(begun) + timedelta(seconds=15)
        namespace.wait("both to be due", lambda: datetime.now(UTC) > due)  # noqa: TID251 (of this machine, which is the cluster's)
    assert namespace.closed("napping")["output"] == "woken"
    assert namespace.closed("overdue")["phase"] == "TimedOut"


def test_a_run_deleted_during_the_downtime_leaves_nothing_behind(namespace: Cluster, operator_process: Process) -> None:
    namespace.start("gone", one_step(python("import time; time.sleep(600)")))
    namespace.pod("gone-2-1", "Running")
    with operator_process.down():
        namespace.delete("workflowrun", "gone")
    namespace.wait("its pod to be gone", lambda: not namespace.list("pods"))
