"""`perdure move` between two operators, each with its API server: open runs continue, and what cannot move is refused."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime import status_encoding
from perdure.simulation.cluster.kubelet import ContainerExit
from rpc.archive.archiving import run, until
from support.apiserver import kubeconfig
from support.cli import perdure
from support.cluster_over_http import over_http
from support.operator import in_memory
from support.temporal import Server

Json = dict[str, Any]
HEAD = {"apiVersion": "perdure.dev/v1alpha1"}
STEPS: list[Json] = [
    {"name": "first", "set": {"count": "${1}"}},
    {"name": "wait", "waitForSignal": {"name": "go"}},
    {"name": "last", "set": {"count": "${vars.count + 1}"}},
]
FLOW: Json = {"steps": STEPS, "output": "${vars.count}"}
CHILD: Json = {"steps": [{"name": "child", "childWorkflow": {"workflow": {"name": "flow"}}}]}
EVERY: Json = {"intervals": [{"every": "1h"}], "workflowRunTemplate": {"spec": {"workflow": {"name": "flow"}}}}


def waiting(server: Server, name: str) -> bool:
    status = next(
        (each["status"] for each in server.cluster.of("workflowruns") if each["metadata"]["name"] == name), {}
    )
    return bool(status.get("awaitedSignals"))


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Server, Callable[[int], None]]]:
    """Two clusters with namespace `shop`, and a function that has commands use the first or the second one."""
    objects = [
        {**HEAD, "kind": "Workflow", "metadata": {"name": "flow"}, "spec": FLOW},
        {**HEAD, "kind": "WorkflowRun", "metadata": {"name": "mine"}, "spec": {"workflow": {"name": "flow"}}},
        run("inline", ttl=3_600, spec={"inline": FLOW}),
        run("done", ttl=3_600),
    ]
    # Servers in memory give the same UIDs in the same order: the second one has others, so that no run gets its UID again.
    others = [run(f"other-{number}", ttl=3_600) for number in range(9)]
    with ExitStack() as stack:
        servers = [stack.enter_context(in_memory(namespace="shop", objects=each)) for each in (objects, others)]
        urls = [stack.enter_context(over_http(server.cluster)) for server in servers]

        def use(number: int) -> None:
            kubeconfig(tmp_path, monkeypatch, urls[number])

        use(0)
        until(lambda: waiting(servers[0], "mine") and waiting(servers[0], "inline"))
        yield servers[0], servers[1], use


def call(*arguments: str, stdin: str | None = None) -> str:
    done = perdure(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_open_runs_continue_in_another_cluster(clusters: Any, tmp_path: Path) -> None:
    source, target, use = clusters
    call("pause", *call("list", "--running", "--output", "name").split())
    file = tmp_path / "shop.json"
    file.write_text(call("move", "export"), encoding="utf-8")
    kinds = [each["kind"] for each in json.loads(file.read_text())["items"]]
    assert sorted(set(kinds)) == ["Workflow", "WorkflowRevision", "WorkflowRun"]
    assert kinds.count("WorkflowRun") == 2, "the finished run stays"

    use(1)
    done = perdure("move", "import", "--file", str(file))
    assert done.exit_code == 0, done.output
    assert sorted(done.stdout.split()) == ["inline", "mine"]
    assert "2 runs are in namespace shop and paused." in done.stderr
    moved = [each for each in target.cluster.of("workflowruns") if "other" not in each["metadata"]["name"]]
    phases = {each["metadata"]["name"]: each["status"]["phase"] for each in moved}
    assert phases == {"inline": "Paused", "mine": "Paused"}
    again = perdure("move", "import", "--file", str(file))
    assert again.exit_code == 1
    assert "WorkflowRun `inline` exists in namespace `shop`, so nothing was created" in again.stderr

    call("unpause", "mine", "inline")
    call("signal", "mine", "inline", "--name", "go")
    for name in ("mine", "inline"):
        assert call("result", name).strip() == "2", "what was done before is not done again"
    assert {each["metadata"]["name"] for each in source.cluster.of("workflowruns")} == {"mine", "inline", "done"}


def test_what_cannot_move_is_refused_or_left_out(clusters: Any, tmp_path: Path) -> None:
    del clusters, tmp_path
    call("schedule", "create", "hourly", "--interval", "1h", "--workflow", "flow")
    call("pause", "mine")
    done = perdure("move", "export")
    assert done.exit_code == 1
    assert "namespace `shop` cannot be moved:" in done.stderr
    assert "WorkflowRun `inline` is not paused; pause it with `perdure pause`" in done.stderr
    assert "Schedule `hourly` is not paused; pause it with `perdure schedule pause`" in done.stderr
    done = perdure("move", "export", "--skip")
    assert done.exit_code == 0
    assert "left out: WorkflowRun `inline` is not paused" in done.stderr
    assert [each["metadata"]["name"] for each in json.loads(done.stdout)["items"] if each["kind"] == "WorkflowRun"] == [
        "mine"
    ]


# --- What a run waits for --------------------------------------------------------------------------------------------

RETRIED: Json = {
    "activities": [
        {
            "name": "charge",
            "startToCloseTimeout": "1m",
            "container": {"image": "x"},
            "retryPolicy": {"exponential": {"initialInterval": "5s", "maximumAttempts": 3}},
        }
    ],
    "steps": [{"name": "charge", "activity": {"name": "charge"}}],
    "output": "${steps.charge.output}",
}


def nap(duration: str) -> Json:
    return {
        "steps": [*STEPS[:1], {"name": "nap", "sleep": {"duration": duration}}, STEPS[2]],
        "output": "${vars.count}",
    }


def status_of(server: Server, name: str) -> Json:
    found: Json = next(each for each in server.cluster.of("workflowruns") if each["metadata"]["name"] == name)
    return status_encoding.decode({"kind": "WorkflowRun", **found}).get("status") or {}


def timers(server: Server, name: str) -> list[str]:
    return [each["fireTime"] for each in ((status_of(server, name).get("state") or {}).get("timers") or {}).values()]


def backs_off(server: Server) -> bool:
    pending = status_of(server, "retried").get("pendingActivities") or []
    return [(each["state"], each["attempt"]) for each in pending] == [("BackingOff", 2)]


def test_timers_retries_and_schedules_continue_in_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = {**HEAD, "kind": "Workflow", "metadata": {"name": "flow"}, "spec": {"steps": STEPS[:1], "output": "made"}}
    hourly = {**HEAD, "kind": "Schedule", "metadata": {"name": "hourly"}, "spec": EVERY}
    waits = {"soon": nap("2s"), "later": nap("1h"), "retried": RETRIED}
    objects = [flow, hourly, *(run(name, ttl=3_600, spec={"inline": each}) for name, each in waits.items())]
    others = [run(f"other-{number}", ttl=3_600) for number in range(9)]
    with ExitStack() as stack:
        declined, charged = (
            ContainerExit(after=0.05, code=1, message=""),
            ContainerExit(after=0.05, message='"charged"'),
        )
        source = stack.enter_context(in_memory(namespace="shop", objects=objects, pods=lambda _: declined))
        target = stack.enter_context(in_memory(namespace="shop", objects=others, pods=lambda _: charged))
        urls = [stack.enter_context(over_http(each.cluster)) for each in (source, target)]
        kubeconfig(tmp_path, monkeypatch, urls[0])
        until(lambda: bool(timers(source, "later")) and backs_off(source))
        call("pause", *waits)
        call("schedule", "pause", "hourly")
        due = timers(source, "later")
        file = tmp_path / "shop.json"
        file.write_text(call("move", "export"), encoding="utf-8")

        kubeconfig(tmp_path, monkeypatch, urls[1])
        done = perdure("move", "import", "--file", str(file))
        assert done.exit_code == 0, done.output
        assert {name: status_of(target, name)["phase"] for name in waits} == dict.fromkeys(waits, "Paused")
        (moved,) = target.cluster.of("schedules")
        assert moved["spec"]["paused"] is True
        assert [each["every"] for each in moved["spec"]["intervals"]] == ["1h"]

        call("unpause", *waits)
        assert call("result", "soon").strip() == "2", "a timer that is due in between fires"
        assert timers(target, "later") == due
        assert call("result", "retried").strip() == "charged"
        events = status_of(target, "retried")["history"]["events"]
        attempts = [each["attempt"] for each in events if each["eventType"] == "ActivityTaskStarted"]
        assert attempts == [2], "the first attempt counts"

        call("schedule", "unpause", "hourly")
        call("schedule", "trigger", "hourly")
        until(lambda: any("hourly" in each["metadata"]["name"] for each in target.cluster.of("workflowruns")))
        made = next(
            each["metadata"]["name"]
            for each in target.cluster.of("workflowruns")
            if "hourly" in each["metadata"]["name"]
        )
        assert call("result", made).strip() == "made"
