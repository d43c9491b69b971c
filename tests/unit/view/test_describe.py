"""The output of `describe`, case by case; times are seconds since the start."""

import json
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from perdure.api.json_values import Json
from perdure.api.names import claim_name
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import (
    AttemptCancelled,
    AttemptWaiting,
    CancelRequested,
    PauseRequested,
    RunInput,
    SignalRequested,
    TerminateRequested,
)
from perdure.view.page import ASCII
from perdure.view.runs.describe import as_data, describe
from perdure.view.runs.hints import hints
from perdure.view.runs.open_work import LiveAttempt, LiveState
from perdure.view.runs.run import read_run
from perdure.view.runs.tree import tree
from support.view.flow import Flow, at, charged_after_two_refusals, declined, golden, plain

_TWO_CHARGES = """
activities:
- {name: charge, startToCloseTimeout: 30s, container: {image: shop}}
steps:
- {name: a, needs: [], activity: {name: charge}}
- {name: b, needs: [], activity: {name: charge}}
"""


def test_a_completed_step_shows_its_attempts_and_its_last_failure() -> None:
    flow = charged_after_two_refusals()
    assert plain(tree(flow.run(36), flow.page(36))) == golden("""
        STEP               STATUS       KIND                    TRIES      START  TIME
        ├─ reserve         ✓ Succeeded  activity reserve-stock  1 +1 lost  +0s    10s
        │    attempt 1 failed: pod order-42-2-1 was deleted by someone
        │    pods order-42-2-1, order-42-2-2
        ├─ charge          ✓ Succeeded  activity charge-card    3/3        +10s   16s
        │    attempt 2 failed: CardDeclined: no funds
        │    pods order-42-5-1, order-42-5-2, order-42-5-3
        ├─ change-of-mind  ◔ Waiting    sleep 30s                          +26s   10s
        │    fires in 20s
        └─ done            ○ Pending    return
    """)


def test_a_completed_run_ends_with_the_next_commands() -> None:
    flow = charged_after_two_refusals().at(56)
    shown = plain(describe(flow.run(), flow.page(60)))
    header, steps, hints = shown.split("\n\n")
    assert header == golden("""
        Name:         order-42
        Namespace:    shop
        Workflow:     order-flow
        Run ID:       11111111-2222-3333-4444-555555555555
        Status:       ✓ Completed
        Started:      2026-01-01T12:00:00Z (1m ago)
        Ended:        2026-01-01T12:00:56Z (4s ago)
        Duration:     56s
        Input:        {"items":["lamp"],"amount":349}
        Output:       {"reservation":"R-1"}
    """)
    assert steps.startswith("Steps 4/4\n")
    assert hints == golden("""
        What next
          every event with its attributes:
            perdure history -n shop order-42 --detailed
          the whole output:
            kubectl -n shop get workflowrun order-42 -o 'jsonpath={.status.output}'
          delete it, to start another run of that name (the operator deletes it in 59m56s):
            kubectl -n shop delete workflowrun order-42
    """)


def test_the_claims_of_workspaces_are_shown() -> None:
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {}}}
    workspaces = [
        {"name": "files", "volumeClaimTemplate": claim},
        {"name": "cache", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    flow = charged_after_two_refusals().at(56)
    obj = flow.object
    obj["status"] = obj["status"] | {"definition": obj["status"]["definition"] | {"workspaces": workspaces}}
    claim_of_files = claim_name("order-42", obj["metadata"]["uid"], "files")
    shown = plain(describe(read_run(obj, now=at(60)), flow.page(60)))
    assert [line for line in shown.splitlines() if line.startswith("Workspace:")] == [
        f"Workspace:    files (PersistentVolumeClaim {claim_of_files})",
        "Workspace:    cache (PersistentVolumeClaim shared)",
    ]
    lineage = [
        {"name": "order-41", "runId": "first", "eventId": 3},
        {"name": "order-42", "runId": "second", "eventId": 5},
    ]
    reset = {"requestId": "r", "lineage": lineage}
    obj["metadata"]["annotations"] = {"perdure.dev/reset": json.dumps(reset)}
    assert read_run(obj, now=at(60)).claims[0] == ("files", claim_name("order-41", "first", "files"))


def test_the_workflows_and_defaults_of_which_the_definition_has_parts_are_shown() -> None:
    flow = charged_after_two_refusals().at(56)
    obj = flow.object
    copied = {
        "workflow": "shared",
        "generation": 3,
        "activities": {"charge-card": "charge", "log": "log"},
        "blocks": {},
    }
    base = {"workflow": "base", "generation": 1, "activities": {}, "blocks": {"tidy": "tidy"}}
    taken = {
        "workflowDefaults": "default",
        "generation": 2,
        "fields": ["onFailure", "stepsTimeout"],
        "activityFields": {"charge-card": ["retryPolicy"], "reserve-stock": ["retryPolicy"], "ship": ["podMetadata"]},
    }
    obj["status"] = obj["status"] | {"sources": [copied, base, taken]}
    shown = plain(describe(read_run(obj, now=at(60)), replace(flow.page(60), width=140))).splitlines()
    assert [line for line in shown if "generation" in line] == [
        "Copied from:  shared, generation 3: activity charge-card (charge), log",
        "Copied from:  base, generation 1: block tidy",
        "Defaults:     generation 2: onFailure, stepsTimeout; retryPolicy of charge-card, reserve-stock; podMetadata of ship",
    ]
    assert any("activity charge-card (of shared)" in line for line in shown)


def test_a_failed_run_shows_the_chain_of_causes_and_the_log_to_read() -> None:
    flow = Flow().started(1).completed(10, "R-1")
    flow.failed(12, declined(details={"code": 51}, non_retryable=True, stack_trace="Traceback\n  line 1\nno funds"))
    live = LiveState(pods=frozenset({"order-42-5-1"}))
    shown = plain(describe(flow.run(live=live), flow.page(20)))
    assert shown[shown.index("Steps") :] == golden("""
        Steps 1/4
        STEP               STATUS        KIND                    TRIES  START  TIME
        ├─ reserve         ✓ Succeeded   activity reserve-stock  1      +0s    10s
        │    pod order-42-2-1
        ├─ charge          ✗ Failed      activity charge-card    1/3    +10s   2s
        │    CardDeclined: no funds; NonRetryableFailure
        │    pod order-42-5-1
        ├─ change-of-mind  ○ NotReached  sleep 30s
        └─ done            ○ NotReached  return

        Failure
          Activity: step `charge`: activity `charge-card` failed after 1 attempt
            (NonRetryableFailure)
            caused by CardDeclined: no funds
              details: {"code":51}
              not retryable
              Traceback
                line 1
              no funds

        What next
          the log of the last attempt of `charge`:
            kubectl -n shop logs order-42-5-1
          after you fix the cause: run the failed steps again in a new run, and keep the other results:
            perdure retry -n shop order-42
          every event with its attributes:
            perdure history -n shop order-42 --detailed
          delete it, to start another run of that name (the operator deletes it in 59m52s):
            kubectl -n shop delete workflowrun order-42
    """)


def test_log_commands_are_suggested_only_for_existing_pods() -> None:
    flow = Flow().started(1).completed(10).failed(12).started(17).failed(18, declined(non_retryable=True))
    for left, command, purpose in (
        ((1, 2), "logs order-42-5-2", "the log of the last attempt of `charge`"),
        ((1,), "logs order-42-5-1", "the log of an earlier attempt, whose pod exists, of `charge`"),
        ((), None, None),
    ):
        run = flow.run(live=LiveState(pods=frozenset(f"order-42-5-{n}" for n in left)))
        commands = {command: purpose for purpose, command in hints(run, flow.page())}
        assert commands.get(f"kubectl -n shop {command}") == purpose
        assert any(" logs " in command for command in commands) == bool(left)
        shown = plain(tree(run, flow.page(width=90)))
        assert ("pods order-42-5-1, order-42-5-2 (deleted)\n" in shown) == (2 not in left)


@pytest.mark.parametrize(
    ("kind", "details", "options"),
    [
        ("InitContainerFailed", {"container": "fetch", "exitCode": 7}, " -c fetch"),
        ("ExitCode3", {"container": "convert", "exitCode": 3}, " -c convert"),
        ("ExitCode3", {"container": "activity", "exitCode": 3}, ""),
        ("Broken", {"container": "a field of an error document"}, ""),
    ],
)
def test_the_log_command_names_the_container_that_failed(kind: str, details: Json, options: str) -> None:
    failure = Failure(kind=FailureKind.APPLICATION, type=kind, message="failed", details=details)
    for final in (False, True):
        flow = Flow().started(1).failed(2, msgspec.structs.replace(failure, non_retryable=final))
        run = flow.run()
        assert next(iter(run.every_step())).state == ("Failed" if final else "BackingOff")
        assert f"kubectl -n shop logs order-42-2-1{options}" in dict(map(reversed, hints(run, flow.page())))


def test_an_attempt_in_backoff_shows_when_the_next_one_starts() -> None:
    flow = Flow().started(1).completed(10).failed(12)
    live = LiveState(pods=frozenset({"order-42-5-1"}))
    shown = plain(describe(flow.run(13, live), flow.page(13)))
    assert "├─ charge          ↻ BackingOff  activity charge-card    2/3    +10s   3s\n" in shown
    assert "│    attempt 2 in 3s; attempt 1 failed: CardDeclined: no funds\n│    pod order-42-5-1\n" in shown
    assert shown[shown.index("Pending activities") :] == golden("""
        Pending activities
          charge (charge-card)  ↻ BackingOff
            Attempt:      2 of 3, in 3s
            Scheduled:    2026-01-01T12:00:10Z (3s ago)
            Last failure: CardDeclined: no funds

        What next
          why `charge` failed:
            kubectl -n shop logs order-42-5-1
          follow it until it ends:
            perdure wait -n shop order-42
          what has happened so far:
            perdure history -n shop order-42
    """)


def test_a_running_attempt_shows_its_heartbeat_and_timeouts() -> None:
    flow = Flow().started(1).heartbeat(4, {"picked": ["lamp"]})
    shown = plain(describe(flow.run(6), flow.page(6)))
    assert '│    heartbeat 2s ago: {"picked":["lamp"]}\n' in shown
    assert (
        golden("""
        Pending activities
          reserve (reserve-stock)  ● Running
            Attempt:      1
            Pod:          order-42-2-1
            Scheduled:    2026-01-01T12:00:00Z (6s ago)
            Started:      2026-01-01T12:00:01Z (5s ago)
            Heartbeat:    2s ago: {"picked":["lamp"]}
            Times out:    in 8s (Heartbeat)
    """)
        in shown
    )
    assert "kubectl -n shop logs -f order-42-2-1" in shown


def test_pod_and_lease_override_the_status() -> None:
    flow = Flow()
    live = LiveAttempt(started=at(1), heartbeat=at(5), details={"picked": 3})
    run = flow.run(6, LiveState(pods=frozenset({"order-42-2-1"}), attempts={"order-42-2-1": live}))
    assert run.steps[0].state == "Running"
    assert '    heartbeat 1s ago: {"picked":3}' in plain(tree(run, flow.page(6)))


@pytest.mark.parametrize("containers", [(), ("fetch", "convert")])
def test_the_log_command_of_a_running_attempt_names_the_containers_at_work(containers: tuple[str, ...]) -> None:
    live = LiveAttempt(started=at(1), containers=containers)
    run = Flow().run(6, LiveState(pods=frozenset({"order-42-2-1"}), attempts={"order-42-2-1": live}))
    assert [hint for hint in hints(run, Flow().page(6)) if " logs " in hint[1]] == [
        (f"what container `{name}` of `reserve` is doing", f"kubectl -n shop logs -f order-42-2-1 -c {name}")
        for name in containers
    ] or [("what `reserve` is doing", "kubectl -n shop logs -f order-42-2-1")]


@pytest.mark.parametrize(
    ("asked", "failed", "offered"),
    [
        (CancelRequested(request_id="c"), False, False),
        (TerminateRequested(request_id="t"), False, False),
        (TerminateRequested(request_id="t"), True, True),
        (None, True, True),
    ],
)
def test_a_retry_is_offered_if_a_step_failed(asked: RunInput | None, *, failed: bool, offered: bool) -> None:
    flow = Flow(_TWO_CHARGES, input={}).started(1, "a").started(2, "b")
    if failed:
        flow.failed(3, declined(non_retryable=True), "a")
    if asked is not None:
        flow.at(4, asked)
    for open_ in list(flow.state.activities.values()):
        flow.at(5, AttemptCancelled(scheduled_event_id=open_.scheduled_event_id, attempt=open_.attempt))
    assert flow.run().closed
    offers = dict(map(reversed, hints(flow.run(), flow.page())))
    assert ("perdure retry -n shop order-42" in offers) == offered
    assert ("perdure rerun -n shop order-42" in offers) != offered


def test_a_pod_that_does_not_start_shows_the_reason() -> None:
    flow = Flow()
    waits_for = "container activity: ImagePullBackOff: Back-off pulling image"
    run = flow.run(
        6, LiveState(pods=frozenset({"order-42-2-1"}), attempts={"order-42-2-1": LiveAttempt(waits_for=waits_for)})
    )
    shown = plain(describe(run, flow.page(6)))
    assert f"◔ Scheduled  activity reserve-stock  1      +0s    6s\n│    attempt 1: {waits_for}\n" in shown
    assert "kubectl -n shop describe pod order-42-2-1" in shown


def test_an_attempt_that_waits_for_a_limit_shows_it() -> None:
    reason = "WorkflowLimit `licenses` is full: it allows 5 holders"
    waiting = AttemptWaiting(scheduled_event_id=2, attempt=1, reason=reason, queued=True, commit_now=True)
    flow = Flow().at(1, waiting)
    shown = plain(describe(flow.run(6), flow.page(6)))
    assert f"attempt 1: {reason}\n" in shown
    assert "kubectl -n shop get workflowlimits.perdure.dev licenses -o yaml" in shown


def test_an_attempt_that_waits_for_a_missing_limit_suggests_listing_the_limits() -> None:
    reason = "there is no valid WorkflowLimit `licenses` in namespace `shop`"
    flow = Flow().at(1, AttemptWaiting(scheduled_event_id=2, attempt=1, reason=reason, commit_now=True))
    assert hints(flow.run(6), flow.page(6))[0] == (
        "list the WorkflowLimits; `reserve` starts once `licenses` exists and is valid",
        "kubectl -n shop get workflowlimits.perdure.dev",
    )


def test_a_command_is_suggested_once_although_two_steps_wait_for_the_same_limit() -> None:
    flow = Flow(
        "steps:\n"
        "- {name: a, needs: [], limits: [{name: licenses}], sleep: {duration: 1s}}\n"
        "- {name: b, needs: [], limits: [{name: licenses}], sleep: {duration: 1s}}\n",
        input={},
    )
    reason = "WorkflowLimit `licenses` is full: it allows 1 holder"
    waiting = [
        AttemptWaiting(scheduled_event_id=event, attempt=1, reason=reason, queued=True, commit_now=True)
        for event in (2, 3)
    ]
    flow.at(1, *waiting)
    assert [activity.waits_for for activity in flow.run(6).activities] == [reason, reason]
    found = [command for _, command in hints(flow.run(6), flow.page(6))]
    assert len(found) == len(set(found)) == 3


def test_an_expired_backoff_in_the_status_is_not_shown() -> None:
    flow = Flow().started(1).completed(10).failed(12)
    assert flow.status["pendingActivities"][0]["state"] == "BackingOff"
    assert flow.run(17).steps[1].state == "Scheduled"


def test_steps_open_when_the_run_times_out_are_stopped() -> None:
    flow = Flow(timeout=timedelta(seconds=20)).started(1).at(20)
    live = LiveState(pods=frozenset({"order-42-2-1", "order-42-2-3"}))
    shown = plain(describe(flow.run(live=live), flow.page(30)))
    assert "Status:       ✗ TimedOut" in shown
    assert "├─ reserve         ⊘ Stopped     activity reserve-stock         +0s    20s" in shown
    assert "│    interrupted when the run ended TimedOut\n│    pods order-42-2-1, order-42-2-3\n" in shown
    assert "  Timeout: workflow timeout: the runTimeout of 20s has passed" in shown


def test_a_run_without_a_status_suggests_checking_the_operator() -> None:
    flow = Flow()
    flow.status = {}
    shown = plain(describe(flow.run(), flow.page(5)))
    assert "Status:       ○ Pending" in shown
    assert "kubectl get pods -A -l app.kubernetes.io/name=perdure" in shown
    assert "Steps" not in shown


def test_a_paused_run_suggests_unpausing_once() -> None:
    flow = Flow().started(1)
    paused = read_run({**flow.object, "status": {**flow.object["status"], "phase": "Paused"}}, now=at(1))
    found = hints(paused, flow.page(1))
    assert [command for what, command in found if what == "unpause it"] == ["perdure unpause -n shop order-42"]
    assert not [command for _, command in found if "kubectl" in command and "create" in command]


def test_output_options_and_the_name_of_the_plugin_are_applied() -> None:
    flow = charged_after_two_refusals()
    page = flow.page(36, glyphs=ASCII, iso=True, program="kubectl perdure", context="prod")
    shown = plain(describe(flow.run(36), page))
    assert shown.isascii()
    assert "`- done            o Pending" in shown
    assert "fires at 2026-01-01T12:00:56Z" in shown
    assert "2026-01-01T12:00:26Z" in shown
    assert "kubectl perdure wait --context prod -n shop order-42" in shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_tree_fits_the_width_of_the_terminal(width: int) -> None:
    names = [f"a-step-with-quite-a-long-name-{i}" for i in range(3)]
    steps = "".join(f"- {{name: {name}, activity: {{name: an-activity-with-a-long-name}}}}\n" for name in names)
    activity = "{name: an-activity-with-a-long-name, startToCloseTimeout: 5m, container: {image: shop}}"
    flow = Flow(f"activities:\n- {activity}\nsteps:\n{steps}").failed(2, declined("far " * 50))
    lines = tree(flow.run(), flow.page(width=width))
    assert max(len(line.plain) for line in lines) <= width
    assert any("…" in line.plain for line in lines)


def test_control_characters_are_escaped() -> None:
    flow = Flow().started(1).completed(10).failed(12, declined("\x1b[2Jgone\r\n\u202eevil", non_retryable=True))
    shown = plain(describe(flow.run(), flow.page()))
    assert "CardDeclined: ?[2Jgone ?evil" in shown
    assert "\x1b" not in shown


def test_structured_output_uses_api_names_and_keeps_user_values() -> None:
    flow = Flow(input={"items": [], "amount": None, "some_key": ""}).started(1).heartbeat(4, {"done_so_far": None})
    data = as_data(flow.run(6), flow.page(6))
    assert data["input"] == {"items": [], "amount": None, "some_key": ""}
    assert data["durationSeconds"] == 6
    assert data["steps"][0] == {
        "path": "reserve",
        "name": "reserve",
        "kind": "activity",
        "target": "reserve-stock",
        "state": "Running",
        "attempt": 1,
        "maximumAttempts": 0,
        "startTime": "2026-01-01T12:00:00Z",
        "lastAttemptStartTime": "2026-01-01T12:00:01Z",
        "pods": ["order-42-2-1"],
    }
    (pending,) = data["pendingActivities"]
    assert pending["heartbeatDetails"] == {"done_so_far": None}
    assert pending["deadline"] == {"time": "2026-01-01T12:00:14Z", "timeout": "Heartbeat"}


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Running", "state": {"memory": [], "activities": {"2": {"new": 1}}}, "history": {"events": [{}, 3]}},
        {"phase": "Sleeping", "pendingActivities": [{"step": "a", "state": "Dreaming"}], "pendingTimers": [{}]},
        {"phase": "Failed", "failure": {"cause": {"cause": 3}}, "startTime": "now", "conditions": None},
    ],
    ids=["another state", "unknown words", "odd values"],
)
def test_a_status_of_another_version_is_shown_as_far_as_possible(status: dict[str, object]) -> None:
    flow = Flow()
    run = read_run({**flow.object, "status": status}, now=at(1))
    assert str(status["phase"]) in plain(describe(run, flow.page(1)))


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        ("WorkflowNotFound", "kubectl -n shop get workflows.perdure.dev"),
        ("InvalidWorkflow", "kubectl -n shop get workflow.perdure.dev order-flow -o yaml"),
        ("RetryPolicyNotFound", "kubectl -n shop get retrypolicies.perdure.dev"),
        ("LimitReached", "kubectl -n shop get workflowlimits.perdure.dev order-41 -o yaml"),
        ("LimitNotFound", "kubectl -n shop get workflowlimits.perdure.dev"),
        ("WorkflowIdInUse", "perdure describe -n shop order-41"),
        ("StartDelayed", "perdure wait -n shop order-42"),
    ],
)
def test_a_pending_run_suggests_checking_what_it_waits_for(reason: str, command: str) -> None:
    condition = {"type": "Succeeded", "status": "Unknown", "reason": reason, "message": "`order-41` goes first"}
    obj = {**Flow().object, "status": {"phase": "Pending", "conditions": [condition]}}
    first, *_ = hints(read_run(obj, now=at(1)), Flow().page(1))
    assert first[1] == command


def test_an_awaited_signal_is_shown_and_suggested_as_a_command() -> None:
    flow = Flow("steps:\n- {name: approve, waitForSignal: {name: approved, timeout: 1h}}", input={})
    (condition,) = flow.status["conditions"]
    assert condition["message"] == "waits for signal `approved` (step `approve`, until 2026-01-01T13:00:00Z)"
    assert flow.status["awaitedSignals"] == [{"name": "approved", "step": "approve", "until": "2026-01-01T13:00:00Z"}]
    first, *_ = hints(flow.run(60), flow.page(60))
    assert first == (
        "send the signal that `approve` waits for (it times out in 59m); --input takes data as JSON",
        "perdure signal -n shop order-42 --name approved",
    )
    flow.at(70, SignalRequested(request_id="1", signal_name="approved"))
    assert (flow.status["awaitedSignals"], flow.status["conditions"][0]["message"]) == ([], "")


def test_a_signal_awaited_by_many_steps_is_suggested_once_with_its_timeout() -> None:
    steps = """
    steps:
    - {name: each, forEach: {items: "${lists.range(5)}"}, call: {block: ask}}
    - {name: other, needs: [], waitForSignal: {name: refused}}
    blocks:
    - {name: ask, steps: [{name: wait, waitForSignal: {name: approved, timeout: 90500ms}}]}
    """
    flow = Flow(steps, input={})
    assert "(step `each[0]/wait`, until 2026-01-01T12:01:30Z)" in flow.status["conditions"][0]["message"]
    commands = [command for _, command in hints(flow.run(1), flow.page(1)) if " signal " in command]
    assert commands == [f"perdure signal -n shop order-42 --name {name}" for name in ("approved", "refused")]


def test_a_log_contained_in_the_message_is_not_repeated() -> None:
    log = "no disk\n  is left"
    message = f"container activity failed (exit code 3):\n{log}"
    failure = Failure(
        kind=FailureKind.APPLICATION, type="ExitCode3", message=message, log=f"{log}\n", non_retryable=True
    )
    flow = Flow().started(1).failed(2, failure)
    shown = plain(describe(flow.run(), flow.page()))
    assert shown[shown.index("Failure") :].count("no disk") == 1


def test_a_cancellation_that_waits_says_for_what() -> None:
    """argo-workflows#17041."""
    flow = (
        Flow(_TWO_CHARGES).at(1, PauseRequested(request_id="p", reason="wait")).at(2, CancelRequested(request_id="c"))
    )
    shown = " ".join(plain(describe(flow.run(), flow.page(3))).split())
    assert "The cancellation takes effect once the run is unpaused" in shown


def test_lost_attempts_show_in_the_condition_once_they_are_several() -> None:
    """airflow#53015."""
    flow = Flow(_TWO_CHARGES)
    for number in range(3):
        flow = flow.lost(200 * number, of="a")
        condition = next(each for each in flow.status["conditions"] if each["type"] == "Succeeded")
        assert condition["reason"] == ("AttemptsLost" if number == 2 else "Running")
    assert "step `a` has lost 3 attempts" in condition["message"]
    assert "set `maximumLosses`" in condition["message"]


_CHECKS = """
failurePolicy: FinishRunning
stepsTimeout: 1h
activities:
- {name: charge, startToCloseTimeout: 2h, retryPolicy: {exponential: {maximumAttempts: 1}}, container: {image: shop}}
steps:
- {name: a, needs: [], activity: {name: charge}}
- {name: b, needs: [], activity: {name: charge}}
- {name: c, activity: {name: charge}}
"""


def test_a_run_that_continues_after_a_failure_says_so_and_shows_its_deadline() -> None:
    flow = Flow(_CHECKS).failed(5, of="a")
    shown = plain(describe(flow.run(10), flow.page(10)))
    message = " ".join(line.strip() for line in shown.partition("Message:")[2].partition("Started:")[0].split("\n"))
    assert message.strip().startswith("1 step failed, and the run will fail when the others have ended: step `a`: ")
    assert "  all steps  times out 2026-01-01T13:00:00Z (in 59m50s)" in shown
    assert "stepsTimeout" not in plain(tree(flow.run(10), flow.page(10)))


def test_a_run_that_exceeded_its_deadline_says_so() -> None:
    flow = Flow(_CHECKS).failed(5, of="a").at(3_600)
    shown = plain(describe(flow.run(3_600), flow.page(3_600)))
    assert "Failed (DeadlineExceeded)" in shown
    assert "DeadlineExceeded: the steps have taken longer than their `stepsTimeout` of" in shown
    assert "then failed as well: " in shown
    steps = plain(tree(flow.run(3_600), flow.page(3_600)))
    states = [line.split()[3] for line in steps.split("\n") if "activity" in line]
    assert states == ["Failed", "Cancelled", "NotReached"]
