"""Schedules on a real cluster: runs with real pods, overlap, pauses, results passed on, and retention."""

import json
import os
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from support.cluster.namespace import Cluster, Json, check_history, python
from support.cluster.process import Process

pytestmark = pytest.mark.cluster

QUICK: Json = {"steps": [{"name": "end", "return": {"output": {"at": "${string(schedule.scheduledTime)}"}}}]}
DOWN = int(os.environ.get("PERDURE_DOWN_SECONDS", "30"))
"""How long the operator is away, where schedules have to catch up."""
BUSY = 30
"""Seconds that a busy machine may take from a decision to the run that it makes."""
SLOW: Json = {"steps": [{"name": "nap", "sleep": {"duration": "1h"}}]}


def schedule(name: str, inline: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": {"workflowRunTemplate": {"spec": {"inline": inline}}, **spec},
    }


def status(namespace: Cluster, name: str) -> Json:
    found: Json = (namespace.get("schedule", name) or {}).get("status") or {}
    return found


def counted(namespace: Cluster, name: str, count: str, least: int) -> Json:
    """The status of a schedule, once a counter has reached a value."""

    def look() -> Json | None:
        found = status(namespace, name)
        return found if (found.get("counts") or {}).get(count, 0) >= least else None

    result: Json = namespace.wait(f"schedule {name} to count {least} {count}", look)
    return result


def patch(namespace: Cluster, name: str, spec: str) -> None:
    namespace("patch", "schedule", name, "--type=merge", "-p", f'{{"spec": {spec}}}')


def nominal(run: Json) -> datetime:
    return datetime.fromisoformat(run["spec"]["searchAttributes"]["TemporalScheduledStartTime"])


def created(run: Json) -> float:
    return datetime.fromisoformat(run["metadata"]["creationTimestamp"]).timestamp()


@pytest.mark.slow
def test_runs_with_pods_start_every_few_seconds_and_are_named_by_their_time(namespace: Cluster) -> None:
    work = python("activity.complete('done')")
    inline = {
        "activities": [work],
        "steps": [
            {"name": "only", "activity": {"name": "work", "input": {"last": "${schedule.lastCompletionResult}"}}},
            {"name": "end", "return": {"output": "${schedule.name}"}},
        ],
    }
    manifest = schedule("often", inline, cron=["@every 4s"], overlapPolicy="AllowAll", successfulRunsHistoryLimit=2)
    namespace.apply(manifest)
    found = counted(namespace, "often", "actions", 6)
    assert found["conditions"][0]["reason"] == "Accepted"
    assert len(found["nextScheduledTimes"]) == 10
    assert found["spec"]["intervals"] == [{"every": "4s", "offset": "0s"}]
    namespace.wait("a result", lambda: status(namespace, "often").get("lastCompletionResult") == "often")
    patch(namespace, "often", '{"paused": true}')
    done = namespace.wait("all runs to end", lambda: (s := status(namespace, "often")).get("active") == 0 and s)
    assert {action["status"] for action in done["recentActions"]} == {"Completed"}
    times = [datetime.fromisoformat(action["scheduledTime"]).timestamp() for action in done["recentActions"]]
    assert all(later - earlier == 4 for earlier, later in pairwise(times))
    runs = namespace.wait("only two to be kept", lambda: len(r := namespace.list("workflowruns")) == 2 and r)
    for run in runs:
        assert run["metadata"]["name"] == f"often-{nominal(run):%Y%m%dt%H%M%Sz}"
        assert run["metadata"]["labels"]["perdure.dev/schedule"] == "often"
        assert run["spec"]["searchAttributes"]["TemporalScheduledById"] == "often"


def test_the_overlap_policy_skips_a_time_or_terminates_the_open_run(namespace: Cluster) -> None:
    namespace.apply(schedule("skips", SLOW, cron=["@every 2s"]))
    namespace.apply(
        schedule("replaces", SLOW, cron=["@every 3s"], overlapPolicy="TerminateOther", failedRunsHistoryLimit=1)
    )
    namespace.apply(
        schedule("cancels", SLOW, cron=["@every 3s"], overlapPolicy="CancelOther", failedRunsHistoryLimit=1)
    )
    skips = counted(namespace, "skips", "overlapSkipped", 3)
    assert (skips["counts"]["actions"], skips["active"]) == (1, 1)
    for name, phase in (("replaces", "Terminated"), ("cancels", "Cancelled")):

        def phases(name: str = name) -> set[str]:
            return {action["status"] for action in status(namespace, name).get("recentActions") or []}

        namespace.wait(f"a run of {name} to be {phase}", lambda phases=phases, phase=phase: phase in phases())
        counted(namespace, name, "actions", 2)

    def reported() -> set[str]:
        return {e["reason"] for e in namespace.list("events", "--field-selector=involvedObject.name=skips")}

    namespace.wait("the Event", lambda: "RunSkipped" in reported())


def test_a_paused_schedule_starts_nothing_and_catches_up_on_nothing(namespace: Cluster) -> None:
    namespace.apply(schedule("pausing", QUICK, cron=["@every 2s"], catchupWindow="1h"))
    counted(namespace, "pausing", "actions", 1)
    patch(namespace, "pausing", '{"paused": true, "notes": "for the migration"}')
    paused = namespace.condition("schedule", "pausing", "PausedBySpec")
    assert paused["message"] == "`spec.paused` is true: for the migration"
    before = status(namespace, "pausing")
    assert "nextScheduledTimes" not in before or before["nextScheduledTimes"] == []
    time.sleep(5)  # missed times are not due later
    assert status(namespace, "pausing")["counts"] == before["counts"]
    resumed = datetime.now(UTC)  # noqa: TID251 (of this machine, which is the cluster's)
    patch(namespace, "pausing", '{"paused": false}')
    after = counted(namespace, "pausing", "actions", before["counts"]["actions"] + 2)
    newer = after["recentActions"][before["counts"]["actions"] :]
    assert all(datetime.fromisoformat(action["scheduledTime"]) > resumed for action in newer[-2:])
    assert after["counts"].get("missedCatchupWindow", 0) == 0


def test_a_failure_is_retried_passed_on_and_pauses_the_schedule(namespace: Cluster) -> None:
    failing = {"steps": [{"name": "no", "fail": {"type": "NoDisk", "message": "no disk"}}]}
    retries = {"exponential": {"initialInterval": "1s", "backoffCoefficient": "1", "maximumAttempts": 3}}
    namespace.apply(
        schedule(
            "failing", failing, cron=["@every 30s"], pauseOnFailure=True, retryPolicy=retries, failedRunsHistoryLimit=10
        )
    )
    paused = namespace.condition("schedule", "failing", "PausedByFailure")
    found = status(namespace, "failing")
    assert found["paused"]["by"] == "Failure"
    assert "no disk" in paused["message"]
    assert found["lastFailure"]["message"]
    assert found["counts"]["actions"] == 1
    endings = {run["metadata"]["name"].rpartition("z")[2] for run in namespace.list("workflowruns")}
    assert endings == {"", "-r2", "-r3"}


def operation(namespace: Cluster, name: str, schedule_name: str, **request: Any) -> Json:
    """The status of an Operation on a schedule, once it is answered."""
    target = {"kind": "Schedule", "name": schedule_name}
    namespace.apply(
        {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "Operation",
            "metadata": {"name": name},
            "spec": {"target": target, **request},
        }
    )

    def answered() -> Json | None:
        found: Json = (namespace.get("operation", name) or {}).get("status") or {}
        return found if found.get("completionTime") else None

    result: Json = namespace.wait(f"Operation {name} to be answered", answered)
    return result


def test_operations_pause_trigger_backfill_and_unpause(namespace: Cluster) -> None:
    namespace.apply(schedule("asked", QUICK, cron=["0 * * * *"], successfulRunsHistoryLimit=100))
    assert operation(namespace, "pause", "asked", pause={"reason": "a test"})["phase"] == "Complete"
    assert "a test" in namespace.condition("schedule", "asked", "PausedByOperation")["message"]
    triggered = operation(namespace, "trigger", "asked", trigger={})
    assert triggered["phase"] == "Complete"
    run = namespace.closed(triggered["result"]["workflowRun"])
    assert run["phase"] == "Completed"
    times = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T05:00:00Z"}
    assert operation(namespace, "backfill", "asked", backfill=times)["phase"] == "Complete"
    namespace.wait("six more runs", lambda: len(namespace.list("workflowruns")) == 7)
    found = namespace.wait("all to end", lambda: (s := status(namespace, "asked")).get("active") == 0 and s)
    assert found["counts"]["actions"] == 7
    assert "lastScheduledTime" not in found
    assert operation(namespace, "unpause", "asked", unpause={})["phase"] == "Complete"
    namespace.condition("schedule", "asked", "NotPaused")
    missing = operation(namespace, "missing", "nobody", trigger={})
    assert (missing["phase"], missing["conditions"][0]["reason"]) == ("Failed", "TargetNotFound")


def test_an_invalid_spec_is_reported_and_can_be_fixed(namespace: Cluster) -> None:
    namespace.apply(schedule("wrong", QUICK, cron=["0 0 30 2 *"]))
    assert "40 years" in namespace.condition("schedule", "wrong", "NoMoreTimes")["message"]
    patch(namespace, "wrong", '{"timeZone": "Europe/Berlim"}')
    assert "Europe/Berlin" in namespace.condition("schedule", "wrong", "UnknownTimeZone")["message"]
    patch(namespace, "wrong", '{"timeZone": null, "cron": ["@every 2s"]}')
    counted(namespace, "wrong", "actions", 1)
    conditions = {c["type"]: c for c in status(namespace, "wrong")["conditions"]}
    assert conditions["Ready"]["status"] == "True"


def test_the_history_of_a_scheduled_run_replays(namespace: Cluster) -> None:
    namespace.apply(schedule("telling", QUICK, cron=["@every 2s"], remainingActions=1))
    namespace.condition("schedule", "telling", "OutOfActions")
    (run,) = namespace.wait("its run", lambda: namespace.list("workflowruns"))
    namespace.closed(run["metadata"]["name"])
    complete = namespace.with_history(run["metadata"]["name"])
    assert complete["status"]["output"] == {"at": nominal(complete).strftime("%Y-%m-%dT%H:%M:%SZ")}
    check_history(complete)


def test_deleting_a_schedule_deletes_its_runs(namespace: Cluster) -> None:
    namespace.apply(schedule("gone", SLOW, cron=["@every 2s"]))
    counted(namespace, "gone", "actions", 1)
    namespace.delete("schedule", "gone")
    namespace.wait("its runs to be gone", lambda: not namespace.list("workflowruns"))


@pytest.mark.slow
@pytest.mark.own
def test_after_downtime_times_within_the_window_start_and_others_are_missed(
    namespace: Cluster, operator_process: Process
) -> None:
    windows = {f"window-{DOWN * parts // 3}": DOWN * parts // 3 for parts in (1, 2, 5)}
    for name, window in windows.items():
        manifest = schedule(name, QUICK, cron=["@every 4s"], catchupWindow=f"{window}s", overlapPolicy="AllowAll")
        manifest["spec"]["successfulRunsHistoryLimit"] = 1000
        namespace.apply(manifest)
        counted(namespace, name, "actions", 1)
    with operator_process.down():
        gone = time.time()  # noqa: TID251 (of this machine, which is the cluster's)
        before = {name: status(namespace, name)["counts"]["actions"] for name in windows}
        time.sleep(DOWN)
    for name, window in windows.items():
        counted(namespace, name, "actions", before[name] + max(1, (min(window, DOWN) - 10) // 4))
        patch(namespace, name, '{"paused": true}')
        namespace.condition("schedule", name, "PausedBySpec")
        counts = status(namespace, name)["counts"]
        runs = [run for run in namespace.list("workflowruns") if run["metadata"]["name"].startswith(f"{name}-")]
        made = {nominal(run).timestamp(): created(run) for run in runs}
        assert len(made) == len(runs) == counts["actions"]
        missing = sorted(set(range(int(min(made)), int(max(made)), 4)) - made.keys())
        assert len(missing) == counts["missedCatchupWindow"]
        late = {time: made[time] - time for time in made if time > gone}
        latest = max(late.values())
        print(
            f"down for {DOWN} s, window {window} s: {len(missing)} missed, {len(made)} started, the latest {latest} s late"
        )
        assert latest <= window + BUSY
        if window > DOWN:
            assert not missing
        else:
            back = min(made[time] for time in late if time > missing[-1])
            assert missing == list(range(missing[0], missing[-1] + 4, 4))
            assert back - missing[-1] >= window


@pytest.mark.parametrize("policy", ["TerminateOther", "CancelOther"])
def test_the_overlap_policy_stops_a_run_that_keeps_continuing_as_new(namespace: Cluster, policy: str) -> None:
    """No run of the blocking chain stays open, however quickly its runs follow each other."""
    steps = [
        {"name": "wait", "sleep": {"duration": "100ms"}},
        {"name": "anew", "continueAsNew": {"input": "${input}"}},
    ]
    manifest = schedule("anew", {"steps": steps}, intervals=[{"every": "3s"}], overlapPolicy=policy)
    manifest["spec"]["workflowRunTemplate"]["spec"]["input"] = {"a": 1}
    namespace.apply(manifest)
    counted(namespace, "anew", "actions", 6)
    patch(namespace, "anew", '{"paused": true}')  # while it starts runs, one or two of them are still closing
    namespace.wait("all but the newest to be closed", lambda: status(namespace, "anew")["active"] <= 1)
    assert status(namespace, "anew")["counts"]["actions"] >= 6


def test_a_status_cannot_be_removed_or_replaced_by_an_older_one(namespace: Cluster) -> None:
    namespace.apply(schedule("begun", QUICK, intervals=[{"every": "2s"}], catchupWindow="1h", overlapPolicy="AllowAll"))
    old = counted(namespace, "begun", "actions", 1)
    before = counted(namespace, "begun", "actions", 4)
    patch = ("patch", "schedule", "begun", "--subresource=status", "--type=merge", "-p")
    for removed, message in (('{"status": null}', "`status`"), ('{"status": {"state": null}}', "`status.state`")):
        assert f"{message} must not be removed" in namespace.run(*patch, removed).stderr
    put_back = namespace.run(*patch, json.dumps({"status": old}))
    assert "`status.commit` must not be removed or replaced with an older one" in put_back.stderr
    counted(namespace, "begun", "actions", before["counts"]["actions"] + 2)


def test_a_backfill_of_too_many_times_is_rejected_and_blocks_nothing(namespace: Cluster) -> None:
    namespace.apply(schedule("goes-on", QUICK, intervals=[{"every": "2s"}]))
    counted(namespace, "goes-on", "actions", 1)
    namespace.apply(
        {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "Operation",
            "metadata": {"name": "all"},
            "spec": {
                "target": {"kind": "Schedule", "name": "goes-on"},
                "backfill": {"startTime": "0001-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:00Z"},
            },
        }
    )
    assert "1970" in namespace.condition("operation", "all", "InvalidSpec")["message"]
    counted(namespace, "goes-on", "actions", 3)
