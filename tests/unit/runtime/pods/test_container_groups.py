"""Several containers of one pod that are an activity together: their order, their end, and what their shells do."""

import os
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure.api import labels
from perdure.engine.inputs import AttemptCompleted, AttemptStarted
from perdure.runtime.attempt_outcomes import failed_container
from perdure.runtime.attempts import InvalidDefinitionError, PodSettings
from perdure.runtime.pods.builder import build_pod
from perdure.runtime.pods.status import ContainerGroup, PodStatus, waiting_reason
from unit.runtime.attempt_outcomes import failure_of, outcome_of

CONTAINERS: list[dict[str, Any]] = [
    {"name": "report", "image": "i", "command": ["join"], "args": ["$(WORDS)"], "needs": ["left", "right"]},
    {"name": "left", "image": "i", "command": ["left"], "needs": ["fetch"]},
    {"name": "right", "image": "i", "command": ["right"], "needs": ["fetch"]},
    {"name": "fetch", "image": "i", "command": ["fetch"]},
    {"name": "proxy", "image": "i"},
]
ORDER = "/perdure-order"


def group(make: Any, containers: list[dict[str, Any]] | None = None, **fields: Any) -> Any:
    spec = {"containers": CONTAINERS if containers is None else containers}
    return make.activity(podTemplate={"spec": spec}, **fields)


def build(make: Any, containers: list[dict[str, Any]] | None = None, **fields: Any) -> dict[str, Any]:
    return build_pod(make.run, make.attempt, group(make, containers, **fields), PodSettings())


def test_containers_with_needs_are_started_by_a_shell_that_waits(make: Any) -> None:
    pod = build(make)
    report, left, _, fetch, proxy = pod["spec"]["containers"]
    assert report["command"][:2] == ["sh", "-c"]
    assert report["command"][3:] == ["report", "left right", "join"]
    assert report["args"] == ["$(WORDS)"]
    assert left["command"][3:] == ["left", "fetch", "left"]
    assert fetch["command"][3:] == ["fetch", "", "fetch"]
    assert "command" not in proxy
    assert not any("needs" in each for each in pod["spec"]["containers"])
    assert {"name": "perdure-order", "emptyDir": {"sizeLimit": "1Mi"}} in pod["spec"]["volumes"]


def test_each_container_of_the_activity_gets_the_input_but_no_other(make: Any) -> None:
    pod = build(make)
    with_input = [
        each["name"]
        for each in pod["spec"]["containers"]
        if any(variable["name"] == "PERDURE_INPUT" for variable in each.get("env", ()))
        and any(mount["mountPath"] == "/perdure" for mount in each.get("volumeMounts", ()))
    ]
    assert with_input == ["report", "left", "right", "fetch"]


def test_containers_without_an_order_need_no_shell(make: Any) -> None:
    pod = build(make, [{"name": "a", "image": "i", "needs": []}, {"name": "b", "image": "i", "needs": []}])
    assert not any("command" in each for each in pod["spec"]["containers"])
    assert [each["name"] for each in pod["spec"]["volumes"]] == ["perdure"]
    assert pod["metadata"]["annotations"][labels.NEEDS_ANNOTATION] == '{"a":[],"b":[]}'


def test_pods_without_needs_are_unchanged(make: Any) -> None:
    pod = build(make, [{"name": "a", "image": "i", "command": ["a"]}, {"name": "b", "image": "i"}])
    assert labels.NEEDS_ANNOTATION not in pod["metadata"]["annotations"]
    assert pod["spec"]["containers"][0]["command"] == ["a"]


def test_a_patch_can_change_the_command_of_a_container(make: Any) -> None:
    pod = build(make, podSpecPatch={"containers": [{"name": "left", "command": ["other"]}]})
    assert pod["spec"]["containers"][1]["command"][3:] == ["left", "fetch", "other"]


@pytest.mark.parametrize(
    ("containers", "message"),
    [
        ([{"name": "a", "image": "i", "command": ["a"], "needs": ["b"]}], "`b` is not a container of the pod"),
        (
            [
                {"name": "a", "image": "i", "command": ["a"], "needs": ["b"]},
                {"name": "b", "image": "i", "command": ["b"], "needs": ["a"]},
            ],
            "need each other: `a` → `b` → `a`",
        ),
        ([{"name": "a", "image": "i", "command": ["a"], "needs": ["b"]}, {"name": "b", "image": "i"}], "a shell"),
        ([{"name": "a", "image": "i", "command": ["a"], "needs": "b"}], "must be a list"),
        ([{"name": "a", "image": "i"}, {"image": "i", "command": ["b"], "needs": []}], "must be set"),
    ],
)
def test_an_invalid_order_is_refused(make: Any, containers: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidDefinitionError, match=message):
        build(make, containers)


# Outcome of the attempt

AT = "2026-01-31T12:00:{:02}Z"
RUNNING: dict[str, Any] = {"running": {"startedAt": AT.format(10)}}
WAITING: dict[str, Any] = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}


def ended(code: int, second: int = 30, message: str = "") -> dict[str, Any]:
    times = {"startedAt": AT.format(10), "finishedAt": AT.format(second)}
    return {"terminated": {"exitCode": code, "message": message, **times}}


def pod_with(make: Any, phase: str = "Running", **states: dict[str, Any]) -> dict[str, Any]:
    pod = build(make)
    pod["metadata"]["uid"] = "pod-uid"
    pod["spec"]["nodeName"] = "node"
    pod["status"] = {
        "phase": phase,
        "containerStatuses": [{"name": name, "state": state} for name, state in states.items()],
    }
    return pod


def group_outcome(make: Any, phase: str = "Running", **states: dict[str, Any]) -> Any:
    return outcome_of(make, pod_with(make, phase, **states), definition=group(make))


def test_an_attempt_has_started_when_all_its_containers_have_started(make: Any) -> None:
    states = {"report": RUNNING, "left": RUNNING, "right": RUNNING}
    reported = group_outcome(make, **states, fetch=ended(0), proxy=RUNNING)
    assert isinstance(reported, AttemptStarted)
    assert reported.time == datetime(2026, 1, 31, 12, 0, 10, tzinfo=UTC)
    assert group_outcome(make, "Pending", **states, fetch=WAITING) is None
    waiting = pod_with(make, "Pending", **states, fetch=WAITING)
    assert waiting_reason(waiting, "report") == "container fetch: ImagePullBackOff: no such image"


def test_containers_that_wait_for_others_are_not_at_work(make: Any) -> None:
    states = {"report": RUNNING, "left": RUNNING, "right": RUNNING, "proxy": RUNNING}
    for fetch, at_work in ((WAITING, ()), (RUNNING, ("fetch",)), (ended(0), ("left", "right"))):
        pod = pod_with(make, **states, fetch=fetch)
        assert sorted(ContainerGroup.of(pod, "report").at_work(PodStatus.of(pod))) == sorted(at_work)


def test_an_attempt_succeeds_when_all_its_containers_have_succeeded(make: Any) -> None:
    states = {"left": ended(0), "fetch": ended(0), "proxy": RUNNING}
    reported = group_outcome(make, report=ended(0, message='"sum"'), right=ended(0), **states)
    assert isinstance(reported, AttemptCompleted)
    assert reported.result == "sum"
    assert isinstance(group_outcome(make, report=ended(0, message='"sum"'), right=RUNNING, **states), AttemptStarted)


def test_a_failed_container_ends_the_attempt_while_others_run_or_wait(make: Any) -> None:
    killed = ended(137)
    killed["terminated"]["reason"] = "OOMKilled"
    states = {"report": RUNNING, "right": RUNNING, "fetch": ended(0), "proxy": RUNNING}
    failure = failure_of(group_outcome(make, **states, left=killed))
    assert failure.type == "OOMKilled"
    assert "container left" in failure.message


def test_the_failed_container_is_reported_and_not_its_dependents(make: Any) -> None:
    reported = ended(1, 20, "container fetch failed, so container left did not start its command")
    broken = ended(7, 30)
    states = {"left": reported, "right": reported, "report": reported}
    assert isinstance(group_outcome(make, **states, fetch=RUNNING), AttemptStarted)
    assert failure_of(group_outcome(make, "Failed", **states, fetch=broken)).type == "ExitCode7"
    assert failed_container(group(make), pod_with(make, "Failed", **states, fetch=broken)) == "fetch"


@pytest.mark.parametrize(
    ("code", "kind"), [(2, "ExitCode2"), (127, "ExitCode127"), (128, "ExitCode128"), (137, "SIGKILL")]
)
def test_a_container_that_fails_while_it_waits_ends_the_attempt(make: Any, code: int, kind: str) -> None:
    states = {"report": RUNNING, "right": RUNNING, "fetch": RUNNING}
    failure = failure_of(group_outcome(make, **states, left=ended(code)))
    assert failure.type == kind
    assert "container left" in failure.message


def test_a_container_that_is_stopped_while_it_waits_has_not_failed(make: Any) -> None:
    states = {"report": RUNNING, "right": RUNNING, "left": ended(143, 20)}
    assert isinstance(group_outcome(make, **states, fetch=RUNNING), AttemptStarted)
    assert failure_of(group_outcome(make, **states, fetch=ended(7))).type == "ExitCode7"


def test_the_first_of_several_failures_is_reported(make: Any) -> None:
    states = {"report": RUNNING, "fetch": ended(0, 20)}
    assert failure_of(group_outcome(make, **states, left=ended(4, 40), right=ended(5, 35))).type == "ExitCode5"


def test_of_failures_in_the_same_second_that_of_a_container_that_did_not_wait_is_reported(make: Any) -> None:
    states = {"report": ended(4), "left": ended(5), "right": ended(6)}
    assert failure_of(group_outcome(make, "Failed", **states, fetch=ended(7))).type == "ExitCode7"


# Shell behavior


def start(make: Any, folder: Path, containers: list[dict[str, Any]]) -> dict[str, subprocess.Popen[str]]:
    """Start all containers together, as a kubelet would."""
    started = {}
    for container in build(make, containers)["spec"]["containers"]:
        command = [word.replace("$$", "$").replace(ORDER, str(folder)) for word in container["command"]]
        started[container["name"]] = subprocess.Popen(
            [*command, *container.get("args", ())],
            cwd=folder,
            env={"PATH": os.environ["PATH"]},
            stderr=subprocess.PIPE,
            text=True,
        )
    return started


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=30)
    return process.returncode, errors


def shell(name: str, program: str, *needs: str) -> dict[str, Any]:
    return {"name": name, "image": "i", "command": ["sh", "-c"], "args": [program], "needs": list(needs)}


def test_the_shells_keep_the_order(make: Any, tmp_path: Path) -> None:
    started = start(
        make,
        tmp_path,
        [
            shell("d", "cat b c >>log", "b", "c"),
            shell("c", "cat a >c", "a"),
            shell("b", "cat a >b", "a"),
            shell("a", "echo 'with space' >a"),
        ],
    )
    assert {name: end_of(process) for name, process in started.items()} == dict.fromkeys("dcba", (0, ""))
    assert (tmp_path / "log").read_text() == "with space\nwith space\n"


def test_containers_that_depend_on_a_failed_one_do_not_run(make: Any, tmp_path: Path) -> None:
    started = start(
        make,
        tmp_path,
        [shell("c", "echo c >>log", "b"), shell("b", "echo b >>log", "a"), shell("a", "exit 7"), shell("d", "exit 0")],
    )
    ends = {name: end_of(process) for name, process in started.items()}
    assert {name: code for name, (code, _) in ends.items()} == {"a": 7, "b": 1, "c": 1, "d": 0}
    assert ends["b"][1] == "container a failed, so container b did not start its command\n"
    assert not (tmp_path / "log").exists()


def test_a_command_is_stopped_with_its_container(make: Any, tmp_path: Path) -> None:
    started = start(
        make,
        tmp_path,
        [
            shell("b", "exit 0", "a"),
            shell("a", "trap 'echo stopped >log; exit 9' TERM; : >ready; while :; do sleep 0.1; done"),
        ],
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for process in started.values():
        process.terminate()
    assert end_of(started["a"])[0] == 9
    assert end_of(started["b"])[0] in {143, -signal.SIGTERM}  # its shell may not have set its trap yet
    assert (tmp_path / "log").read_text() == "stopped\n"
