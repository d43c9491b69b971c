"""Runs that a retry or a reset created: which steps ran in an earlier run, and where their logs are."""

import json
from typing import Any

from perdure.engine import events as ev
from perdure.engine import history, resets
from perdure.view.runs.describe import as_data
from perdure.view.runs.replay import trace
from perdure.view.runs.run import read_run
from perdure.view.runs.tree import tree
from support.apiserver import ApiServer, Log, items
from support.cli import RUNS, perdure
from support.view.flow import UID, Flow, at, declined, golden, plain

PODS = "/api/v1/namespaces/shop/pods"
RUN = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns/order-42-retry-1"

BOTH = """
activities:
- {name: ask, startToCloseTimeout: 5m, container: {image: shop}}
steps:
- {name: first, activity: {name: ask}}
- {name: note, set: {kept: 1}}
- {name: nap, sleep: {duration: 10s}}
- {name: left, needs: [nap], activity: {name: ask}}
- {name: right, needs: [nap], activity: {name: ask}}
"""

LOOP = """
activities:
- {name: fit, startToCloseTimeout: 5m, container: {image: shop}}
steps:
- name: train
  forEach: {items: "${[1, 2, 3, 4]}", maxConcurrency: 1, failurePolicy: Continue}
  activity: {name: fit, input: "${item}"}
"""


def failed() -> Flow:
    """`first` ran for 2 s; `left` failed; `right` then succeeded at the second attempt."""
    flow = Flow(BOTH, input={}).started(1, "first").completed(2, "one", "first").at(12)
    flow.started(13, "left").started(13, "right").failed(14, of="right").started(16, "right")
    return flow.completed(17, "two", "right").failed(18, declined(non_retryable=True), "left")


def looped() -> Flow:
    """The second of four items, which run one after the other, failed."""
    flow = Flow(LOOP, input={})
    for item in range(4):
        flow.started(10 * item + 1)
        if item == 1:
            flow.failed(10 * item + 2, declined(non_retryable=True))
        else:
            flow.completed(10 * item + 2, "fitted")
    return flow


def retried(flow: Flow, offset: float) -> dict[str, Any]:
    """The new run: it repeats `left`, has kept the result of `right`, which ended after the point, and has run for 1 s."""
    stored = flow.status["history"]["events"]
    events = history.decode_events(stored)
    point = next((each.event_id for each in events if isinstance(each, ev.TimerFired)), 1)
    kept = tuple(each.event_id for each in events[point:] if isinstance(each, ev.ActivityTaskCompleted))
    first = events[0]
    assert isinstance(first, ev.WorkflowExecutionStarted)
    forked = history.fork(events, point, flow.decider)
    marker = resets.reset_event(
        first, point + 1, at(offset), base_run_id=UID, new_run_id="uid-new", successor="order-42-retry-1-2"
    )
    results = resets.kept_results(forked, events[point:], kept)
    flow.name, flow.status = "order-42-retry-1", {"history": {"events": stored[:point]}}
    flow.continued(offset, resets.begin(forked, marker, [], flow.decider, [], kept=results))
    flow.started(offset + 1).completed(offset + 2, "done")
    lineage = [{"name": "order-42", "runId": UID, "eventId": point}]
    found = flow.object
    found["metadata"] |= {
        "uid": "uid-new",
        "annotations": {"perdure.dev/reset": json.dumps({"requestId": "r", "lineage": lineage, "kept": kept})},
    }
    return found


def test_kept_steps_name_the_earlier_run_and_repeated_ones_count_from_the_reset() -> None:
    flow = failed()
    found = retried(flow, 60)
    run = read_run(found, now=at(63), trace=trace(found))
    shown = golden("""
        STEP      STATUS       KIND          TRIES  START    TIME
        ├─ first  ✓ Succeeded  activity ask  1      earlier  2s
        │    ran in the earlier run order-42
        ├─ note   ✓ Succeeded  set kept             earlier  0s
        ├─ nap    ✓ Succeeded  sleep 10s            earlier  10s
        ├─ left   ✓ Succeeded  activity ask  1      +0s      2s
        │    pod order-42-retry-1-8-1
        └─ right  ✓ Succeeded  activity ask         earlier
             ran in the earlier run order-42
    """)
    assert plain(tree(run, flow.page(63))) == shown
    assert plain(tree(read_run(found, now=at(63)), flow.page(63))) == shown  # without a replay of the history
    data = {step["path"]: step for step in as_data(run, flow.page(63))["steps"]}
    assert data["first"]["earlierRun"] == "order-42"
    assert (data["first"].get("pods"), data["left"]["pods"]) == (None, ["order-42-retry-1-8-1"])


def test_kept_items_that_wait_for_a_repeated_one_name_the_earlier_run() -> None:
    found = retried(looped(), 60)
    for view in (read_run(found, now=at(63), trace=trace(found)), read_run(found, now=at(63))):
        steps = {step.path: step for step in view.every_step()}
        assert {path: step.earlier_run for path, step in steps.items()} == {
            "train": "",
            "train[0]": "order-42",
            "train[1]": "",
            "train[2]": "order-42",
            "train[3]": "order-42",
        }
        assert [path for path, step in steps.items() if step.pods] == ["train[1]"]
        assert (steps["train[2]"].attempt, steps["train[2]"].start) == (None, None)


def pod(run: str, step: str, event: int, attempt: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{run}-{event}-{attempt}",
            "creationTimestamp": f"2026-01-01T12:00:{event:02}Z",
            "annotations": {"perdure.dev/scheduled-event-id": str(event), "perdure.dev/attempt": str(attempt)},
        },
        "spec": {"containers": [{"name": "activity", "env": [{"name": "PERDURE_ACTIVITY_ID", "value": step}]}]},
        "status": {"containerStatuses": [{"name": "activity", "state": {"terminated": {"exitCode": 0}}}]},
    }


def test_the_logs_of_kept_steps_are_read_from_the_pods_of_the_earlier_run(server: ApiServer) -> None:
    found = retried(failed(), 60)

    def pods() -> dict[str, Any]:
        (selector,) = server.asked[-1][1]["labelSelector"]
        if selector.endswith("uid-new"):
            return items(pod("order-42-retry-1", "left", 8, 1))
        return items(pod("order-42", "right", 9, 2), pod("order-42", "left", 8, 1))

    server.answers |= {
        RUN: found,
        PODS: pods,
        f"{PODS}/order-42-9-2/log": Log("2026-01-01T12:00:01Z two\n"),
        f"{PODS}/order-42-retry-1-8-1/log": Log("2026-01-01T12:01:01Z done\n"),
    }
    done = perdure("logs", "order-42-retry-1", "-n", "shop")
    assert (done.exit_code, done.stdout.splitlines()) == (0, ["right#2: two", "left#1: done"])
    assert done.stderr.splitlines() == [
        "first: ran in the earlier run `order-42`, and its pod was deleted; see `perdure logs -n shop order-42`"
    ]


def test_the_logs_of_kept_items_have_the_names_of_other_items(server: ApiServer) -> None:
    found = retried(looped(), 60)

    def pods() -> dict[str, Any]:
        (selector,) = server.asked[-1][1]["labelSelector"]
        new = selector.endswith("uid-new")
        return items(pod("order-42-retry-1", "train[1]", 6, 1) if new else pod("order-42", "train[2]", 8, 1))

    server.answers |= {
        RUN: found,
        PODS: pods,
        f"{PODS}/order-42-8-1/log": Log("2026-01-01T12:00:01Z fitted\n"),
        f"{PODS}/order-42-retry-1-6-1/log": Log("2026-01-01T12:01:01Z done\n"),
    }
    done = perdure("logs", "order-42-retry-1", "-n", "shop")
    assert sorted(done.stdout.splitlines()) == ["train[1: 2]#1: done", "train[2: 3]#1: fitted"]
    assert [line.partition(": ran")[0] for line in done.stderr.splitlines()] == ["train[0: 1]", "train[3: 4]"]


def test_a_run_that_was_retried_names_its_retries_and_does_not_advise_another_one(server: ApiServer) -> None:
    first, second, third = failed().object, retried(failed(), 60), retried(failed(), 60)
    for number, run, created in ((1, second, "2026-01-01T12:01:00Z"), (2, third, "2026-01-01T12:02:00Z")):
        name = {"name": f"order-42-retry-{number}", "uid": f"u{number}", "creationTimestamp": created}
        run["metadata"] = {**run["metadata"], **name}
        run["spec"] = {**run["spec"], "workflowId": "order-42"}
    server.answers |= {f"{RUNS}/order-42": first, f"{RUNS}/order-42-retry-2": third, RUNS: items(third, second, first)}
    shown = perdure("describe", "order-42", "-n", "shop").stdout
    assert "Retried as:   order-42-retry-1 (Completed), order-42-retry-2 (Completed)\n" in shown
    next_ = shown.partition("What next\n")[2]
    assert "  the run that retries it:\n    perdure describe -n shop order-42-retry-2\n" in next_
    assert "perdure retry" not in next_
    assert "Retries:      order-42\n" in perdure("describe", "order-42-retry-2", "-n", "shop").stdout
    data = json.loads(perdure("describe", "order-42", "-n", "shop", "-o", "json").stdout)
    assert data["retries"] == [{"name": f"order-42-retry-{number}", "phase": "Completed"} for number in (1, 2)]
    server.answers[RUNS] = items(first)
    alone = perdure("describe", "order-42", "-n", "shop").stdout
    assert "Retried as" not in alone
    assert "perdure retry -n shop order-42\n" in alone
