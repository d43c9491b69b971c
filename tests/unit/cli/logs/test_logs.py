"""`perdure logs`: the logs of all steps of a run."""

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from perdure.engine.inputs import TerminateRequested
from perdure.view.runs.logs import LogLines, LogSelection, logs_of, missing_logs
from support.apiserver import ApiServer, Log, items
from support.cli import perdure
from support.view.flow import Flow, charged_after_two_refusals, declined
from unit.cli.logs.pod_logs import BROKEN, DONE, RUNS_NOW, WAITING, line, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns/order-42"
RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"
PODS = "/api/v1/namespaces/shop/pods"


def logs(*options: str) -> tuple[int, list[str], str]:
    done = perdure("logs", "order-42", *options)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout.splitlines(), done.stderr


@pytest.fixture
def shop(server: ApiServer) -> ApiServer:
    """Reserved at the second attempt, charged at the third; the first pod of each step is deleted."""
    server.answers |= {
        RUN: charged_after_two_refusals().object,
        PODS: items(
            pod("charge", 5, 3, DONE, phase="Succeeded"),
            pod("charge", 5, 2, BROKEN, phase="Failed"),
            pod("reserve", 2, 2, DONE, phase="Succeeded"),
        ),
        f"{PODS}/order-42-2-2/log": Log(line(1, "picked the lamp")),
        f"{PODS}/order-42-5-2/log": Log(line(2, "calling the bank") + line(3, "the bank: no")),
        f"{PODS}/order-42-5-3/log": Log(line(4, "calling the bank") + line(5, "the bank: yes").rstrip("\n")),
    }
    return server


def asked(server: ApiServer, name: str) -> list[dict[str, list[str]]]:
    return [query for path, query in server.asked if path == f"{PODS}/{name}/log"]


def test_each_line_has_step_and_attempt_with_the_oldest_attempt_first(shop: ApiServer) -> None:
    code, out, err = logs()
    assert code == 0
    assert out == [
        "reserve#2: picked the lamp",
        "charge#2: calling the bank",
        "charge#2: the bank: no",
        "charge#3: calling the bank",
        "charge#3: the bank: yes",
    ]
    assert err.splitlines()[:2] == [
        "reserve#1: pod order-42-2-1 was deleted, and its log with it",
        "charge#1: pod order-42-5-1 was deleted, and its log with it",
    ]
    assert asked(shop, "order-42-2-2") == [{"timestamps": ["true"], "container": ["activity"]}]


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--step", "reserve"], ["reserve#2: picked the lamp"]),
        (["--attempt", "3", "--grep", "y[e]s"], ["charge#3: the bank: yes"]),
        (["--failed", "--grep", "no$"], ["charge#2: the bank: no"]),
        (["--step", "reserve", "--no-prefix"], ["picked the lamp"]),
        (["--step", "reserve", "--timestamps"], ["reserve#2: 2026-01-01T12:00:01.000000000Z picked the lamp"]),
    ],
)
def test_logs_can_be_filtered(options: list[str], shown: list[str]) -> None:
    assert logs(*options)[:2] == (0, shown)


def test_since_and_tail_are_passed_to_the_api_server(shop: ApiServer) -> None:
    assert logs("--step", "reserve", "--since", "10m", "--tail", "5")[0] == 0
    (query,) = asked(shop, "order-42-2-2")
    assert query["sinceSeconds"] == ["600"]
    assert query["tailLines"] == ["5"]


@pytest.mark.usefixtures("shop")
def test_a_missing_step_is_reported_with_the_existing_ones() -> None:
    code, _, err = logs("--step", "chrage")
    assert code == 2
    assert "has no step `chrage`; its steps are `reserve`, `charge`, `change-of-mind`, `done`" in err


@pytest.mark.usefixtures("shop")
def test_an_invalid_pattern_is_rejected() -> None:
    code, _, err = logs("--grep", "(")
    assert code == 2
    assert "--grep" in err


def test_deleted_pods_are_reported(shop: ApiServer) -> None:
    shop.answers[PODS] = items()
    code, out, err = logs("--step", "reserve")
    assert (code, out) == (1, [])
    *gone, hint = err.splitlines()
    assert gone == [
        "reserve#1: pod order-42-2-1 was deleted, and its log with it",
        "reserve#2: pod order-42-2-2 was deleted, and its log with it",
    ]
    assert "`artifacts.archiveLogs` of an activity stores the logs" in hint
    assert "`podRetention` sets how long its pods are kept" in hint


def test_pending_pods_and_missing_pods_are_reported(server: ApiServer) -> None:
    server.answers |= {RUN: Flow().object, PODS: items(pod("reserve", 2, 1, WAITING, phase="Pending"))}
    code, _, err = logs()
    assert code == 1
    assert "reserve#1: pod order-42-2-1 has not started yet" in err
    server.answers[PODS] = items()
    assert logs() == (1, [], "no step of `order-42` has started a pod\n")


def test_an_unavailable_log_does_not_prevent_showing_others(shop: ApiServer) -> None:
    shop.answers[f"{PODS}/order-42-5-2/log"] = (502, {"kind": "Status", "message": "node-1 does not respond"})
    code, out, err = logs()
    assert code == 0
    assert out[0] == "reserve#2: picked the lamp"
    assert out[-1] == "charge#3: the bank: yes"
    assert "charge#2: the log cannot be read" in err


def test_the_log_of_a_failed_init_container_is_shown(server: ApiServer) -> None:
    failed = pod("reserve", 2, 1, WAITING, phase="Failed", initContainerStatuses=[{"name": "setup", "state": BROKEN}])
    server.answers |= {RUN: Flow().started(1).object, PODS: items(failed)}
    server.answers[f"{PODS}/order-42-2-1/log"] = Log(line(1, "no such file"))
    assert logs("--failed")[:2] == (0, ["reserve#1/setup: no such file"])
    assert asked(server, "order-42-2-1")[0]["container"] == ["setup"]


def test_children_are_shown_by_their_names(server: ApiServer) -> None:
    child = Flow(name="parcel-1")
    listed = {**child.object, "metadata": {**child.object["metadata"], "uid": "u-2"}}
    server.answers |= {
        RUN: Flow().object,
        RUNS: lambda: items(listed) if "parent-run-id=1111" in str(server.asked[-1]) else items(),
        PODS: lambda: items(pod("reserve", 2, 1, RUNS_NOW)) if "u-2" in str(server.asked[-1]) else items(),
        f"{PODS}/order-42-2-1/log": Log(line(1, "packed")),
    }
    assert logs("--children")[:2] == (0, ["parcel-1/reserve#1: packed"])
    assert logs()[:2] == (1, [])


def test_following_continues_with_new_pods_and_after_a_disconnect_until_the_run_ends(server: ApiServer) -> None:
    """The first stream breaks after two lines of the same time; they are sent again with the rest, and shown once."""
    flow = Flow().started(1)
    looks: Iterator[Any] = iter([flow.object, flow.object, flow.completed(3).object, flow.object])
    end = declined_at_once(flow)
    first = line(1, "one") + line(2, "two") + line(2, "two")
    streams = iter([Log(first, broken=True), Log(line(2, "two") + line(2, "two") + line(2, "two") + line(3, "four"))])
    server.answers |= {
        RUN: lambda: next(looks, end),
        PODS: lambda: items(
            pod("reserve", 2, 1, RUNS_NOW, phase="Running"),
            *([pod("charge", 5, 1, BROKEN, phase="Failed")] if len(asked(server, "order-42-2-1")) > 1 else []),
        ),
        f"{PODS}/order-42-2-1/log": lambda: next(streams),
        f"{PODS}/order-42-5-1/log": Log(line(9, "declined")),
    }
    code, out, _ = logs("--follow", "--tail", "10")
    assert code == 0
    assert sorted(out) == sorted(["reserve#1: one", *["reserve#1: two"] * 3, "reserve#1: four", "charge#1: declined"])
    again = asked(server, "order-42-2-1")[1]
    assert again["sinceTime"] == ["2026-01-01T12:00:02.000000000Z"]
    assert "tailLines" not in again


@pytest.mark.parametrize("options", [(), ("--step", "train[lr=0.2]")], ids=["all", "one"])
def test_followed_items_of_a_loop_that_has_closed_have_the_names_of_other_lines(
    server: ApiServer, options: tuple[str, ...]
) -> None:
    """The loop closes before the pod of its last item is seen. The run has a next step, so it is open then."""
    steps = SWEEP + "- {name: nap, sleep: {duration: 1h}}\n"
    flow = Flow(steps, [{"lr": 0.1}, {"lr": 0.2}]).started(1)
    open_loop = flow.object
    closed_loop = flow.completed(2).started(3).completed(4).object
    looks: Iterator[Any] = iter([open_loop, open_loop, closed_loop, closed_loop])
    seen: list[bool] = []
    end = flow.at(2 * 3600).object
    server.answers |= {
        RUN: lambda: (seen.append(True), next(looks, end))[1],
        PODS: lambda: items(
            pod("train[0]", 2, 1, RUNS_NOW, phase="Running"),
            *([pod("train[1]", 5, 1, DONE, phase="Succeeded")] if len(seen) > 2 else []),
        ),
        f"{PODS}/order-42-2-1/log": Log(line(1, "loss 3")),
        f"{PODS}/order-42-5-1/log": Log(line(2, "loss 2")),
    }
    wanted = ["train[0: lr=0.1]#1: loss 3", "train[1: lr=0.2]#1: loss 2"]
    assert logs("--follow", *options)[:2] == (0, wanted[1:] if options else wanted)


def declined_at_once(flow: Flow) -> dict[str, Any]:
    return flow.failed(5, declined(non_retryable=True)).object


# Without a cluster


def test_the_missing_pod_of_an_open_attempt_is_not_reported_as_deleted() -> None:
    assert list(missing_logs(Flow().run(), [])) == []
    backing_off = Flow().started(1).completed(2, "R-1").failed(3)
    assert [(log.step, log.attempt) for log in missing_logs(backing_off.run(), [])] == [("reserve", 1), ("charge", 1)]


def test_a_step_filter_includes_nested_steps() -> None:
    found = logs_of(
        Flow().run(), [pod(step, 2, 1, DONE) for step in ("rooms[3]", "rooms[13]", "roomservice", "a/rooms")]
    )
    taken = [log.step for log in found if LogSelection(steps=["rooms", "a"]).matches(log)]
    assert taken == ["rooms[3]", "rooms[13]", "a/rooms"]


def test_each_container_of_an_activity_has_a_log() -> None:
    several = pod("sum", 2, 1, RUNS_NOW)
    several["spec"]["containers"].append({**several["spec"]["containers"][1], "name": "fetch"})
    several["status"]["containerStatuses"].append({"name": "fetch", "state": BROKEN})
    found = logs_of(Flow().run(), [several])
    assert [(log.title(), log.container, log.ended, log.failed) for log in found] == [
        ("sum#1/activity", "activity", False, False),
        ("sum#1/fetch", "fetch", True, True),
    ]


def test_a_pod_without_attempt_annotations_is_ignored() -> None:
    assert logs_of(Flow().run(), [{"metadata": {"name": "stranger"}}, {}]) == []


def test_lines_without_a_timestamp_are_unchanged() -> None:
    lines = LogLines(timestamps=True, pattern=None)
    assert lines.accept(b"unable to retrieve container logs") == "unable to retrieve container logs"
    assert lines.accept(b"2026-01-01T12:00:01.5Z") == "2026-01-01T12:00:01.5Z "
    assert lines.last == "2026-01-01T12:00:01.5Z"
    assert LogLines(timestamps=False, pattern=re.compile("x")).accept(b"2026-01-01T12:00:01.5Z y \xff") is None


def test_attempts_that_have_timed_out_are_failed_ones_though_their_containers_exit_with_0(server: ApiServer) -> None:
    flow = Flow().started(1).at(302)  # longer than its startToCloseTimeout
    assert [step.state for step in flow.run().steps][:1] == ["BackingOff"]
    server.answers |= {
        RUN: flow.object,
        PODS: items(pod("reserve", 2, 1, DONE, phase="Succeeded")),
        f"{PODS}/order-42-2-1/log": Log(line(1, "waiting for the stock")),
    }
    assert logs("--failed")[:2] == (0, ["reserve#1: waiting for the stock"])
    server.answers[PODS] = items()
    code, out, err = logs("--failed")
    assert (code, out) == (1, [])
    assert err.startswith("reserve#1: pod order-42-2-1 was deleted, and its log with it\n")


def test_an_attempt_that_the_timeout_of_the_run_has_ended_is_a_failed_one(server: ApiServer) -> None:
    flow = Flow(timeout=timedelta(seconds=8)).started(1).at(9)
    assert flow.run().phase == "TimedOut"
    server.answers |= {
        RUN: flow.object,
        PODS: items(pod("reserve", 2, 1, DONE, phase="Succeeded")),
        f"{PODS}/order-42-2-1/log": Log(line(1, "waiting for the stock")),
    }
    assert logs("--failed")[:2] == (0, ["reserve#1: waiting for the stock"])


SWEEP = """
activities:
- {name: fit, startToCloseTimeout: 5m, container: {image: shop}}
steps:
- {name: train, forEach: {items: "${input}", as: it, maxConcurrency: 1}, activity: {name: fit}}
"""


def test_items_of_loops_are_named_by_their_values(server: ApiServer) -> None:
    flow = Flow(SWEEP, [{"lr": 0.1, "layers": [1]}, {"lr": 0.2}]).started(1).completed(2).started(3).completed(4)
    server.answers |= {
        RUN: flow.object,
        PODS: items(pod("train[0]", 2, 1, DONE, phase="Succeeded"), pod("train[1]", 5, 1, DONE, phase="Succeeded")),
        f"{PODS}/order-42-2-1/log": Log(line(1, "loss 3")),
        f"{PODS}/order-42-5-1/log": Log(line(2, "loss 2")),
    }
    assert logs()[1] == ["train[0: lr=0.1]#1: loss 3", "train[1: lr=0.2]#1: loss 2"]
    for name in ("train[1]", "train[lr=0.2]"):
        assert logs("--step", name)[:2] == (0, ["train[1: lr=0.2]#1: loss 2"])
    code, out, err = logs("--step", "train[lr=0.3]")
    assert (code, out, err.splitlines()[-1]) == (1, [], "no matching attempt has a log")


def failed_charge(log: str | None) -> dict[str, Any]:
    flow = Flow().started(1).completed(2, "r-1")
    for number in range(3):
        flow = flow.at(10 + 10 * number).started(11 + 10 * number).failed(12 + 10 * number, declined(log=log))
    return flow.object


def test_the_end_of_the_log_of_a_deleted_pod_comes_from_the_failure(server: ApiServer) -> None:
    """Two days of new users: `logs --failed` said that no step has started a pod when the pods were deleted."""
    server.answers |= {RUN: failed_charge("calling the bank\nthe bank: no"), PODS: items()}
    code, out, err = logs("--failed")
    assert (code, out) == (0, ["charge#3: calling the bank", "charge#3: the bank: no"])
    assert "charge#1: pod order-42-5-1 was deleted, and its log with it\n" in err
    assert "charge#3: pod order-42-5-3 was deleted, and its log with it; this is its end, as the failure has it:" in err
    assert "started a pod" not in err
    server.answers[RUN] = failed_charge(None)
    assert logs("--failed", "--attempt", "3")[:2] == (1, [])


def test_without_a_failed_attempt_there_is_no_log_of_one(server: ApiServer) -> None:
    ran = Flow().started(1).completed(2, "r-1").at(3)
    server.answers |= {RUN: ran.object, PODS: items()}
    assert logs("--failed") == (1, [], "no attempt of `order-42` has failed\n")
    server.answers[PODS] = items(pod("reserve", 2, 1, DONE, phase="Succeeded"))
    assert logs("--failed") == (1, [], "no attempt of `order-42` has failed\n")


def test_the_pod_of_a_running_attempt_that_was_deleted_is_reported(server: ApiServer) -> None:
    server.answers |= {RUN: Flow().started(1).object, PODS: items()}
    code, _, err = logs()
    assert code == 1
    assert err.startswith("reserve#1: pod order-42-2-1 was deleted, and its log with it\n")


def test_the_deleted_pods_of_a_run_that_was_terminated_are_not_denied(server: ApiServer) -> None:
    ended = Flow().started(1).at(2, TerminateRequested(request_id="r", reason="stop"))
    server.answers |= {RUN: ended.object, PODS: items()}
    for options in ([], ["--failed"]):
        code, _, err = logs(*options)
        assert code == 1
        assert err.startswith("`order-42` has no pods: those of a closed run are deleted after its `podRetention`")
