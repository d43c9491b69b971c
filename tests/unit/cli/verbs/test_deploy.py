"""`perdure deploy`: what it refuses, and how it waits for the new version. A script replaces kubectl."""

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from perdure.client import rollouts
from support.apiserver import ApiServer, Log, items
from support.cli import perdure

OBJECTS = "/apis/perdure.dev/v1alpha1/namespaces/shop"
PODS = "/api/v1/namespaces/shop/pods"
FLOWS = """
import perdure.flow as pf

{name} = pf.Environment("{name}")


@{name}.activity()
def load(day: str) -> int:
    return 1


@{name}.flow
async def nightly(day: str) -> int:
    return await load(day)
"""


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ApiServer, request: pytest.FixtureRequest) -> Any:
    """Deploys a module with one environment, `etl`, to the cluster."""
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text("#!/bin/sh\nexec cat > /dev/null\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(kubectl.parent), prepend=":")
    module = tmp_path / f"flows_{abs(hash(request.node.name))}.py"
    module.write_text(FLOWS.format(name="etl"))
    ready = {"type": "Ready", "status": "True", "reason": "Valid", "message": "", "observedGeneration": 2}
    server.answers[f"{OBJECTS}/workflows/etl"] = obj([ready])

    def run(*arguments: str) -> Result:
        return perdure("deploy", str(module), "--image", "etl:2", *arguments)

    return run


def obj(conditions: list[dict[str, Any]], **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "etl", "namespace": "shop", "generation": 2},
        "status": {"conditions": conditions, **status},
    }


def rolled_out(reason: str, message: str, generation: int = 2) -> dict[str, Any]:
    status = "True" if reason == "RolledOut" else "False"
    return {
        "type": "RolledOut",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    }


def test_it_waits_until_new_runs_get_the_code(deploy: Any, server: ApiServer) -> None:
    states = [
        obj([rolled_out("RolledOut", "Version `1` gets all new runs", generation=1)]),
        obj([rolled_out("WorkersStarting", "Version `2`: its workers have not polled yet")]),
        obj([rolled_out("RolledOut", "Version `2` gets all new runs")]),
    ]
    server.answers[f"{OBJECTS}/workerdeployments/etl"] = lambda: states.pop(0)
    done = deploy()
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines()[-3:] == [
        "WorkerDeployment `etl`: no operator has processed it yet",
        "WorkerDeployment `etl`: WorkersStarting: Version `2`: its workers have not polled yet",
        "WorkerDeployment `etl`: RolledOut: Version `2` gets all new runs",
    ]
    assert not states


def test_it_shows_why_the_new_version_never_starts(
    deploy: Any, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "_PATIENCE", 0.0)
    failing = rolled_out("WorkersFailing", "Version `2`: pod `etl-2-x`: CrashLoopBackOff")
    version = {"buildId": "2", "message": "pod `etl-2-x`: CrashLoopBackOff"}
    logs: list[Any] = [  # as a real kubelet answers while the container is replaced
        Log("unable to retrieve container logs for containerd://ce5fe32320dd"),
        (
            400,
            {"kind": "Status", "code": 400, "reason": "BadRequest", "message": "container worker is waiting to start"},
        ),
        Log("Traceback\nNameError: name 'pandas' is not defined"),
    ]
    server.answers |= {
        f"{OBJECTS}/workerdeployments/etl": obj([failing], currentBuildId="1", versions=[version]),
        PODS: items({"metadata": {"name": "etl-2-x"}}),
        f"{PODS}/etl-2-x/log": lambda: logs.pop(0),
    }
    done = deploy()
    assert done.exit_code == 1
    assert "CrashLoopBackOff" in done.stderr
    assert "The log of pod `etl-2-x` ends with:\nTraceback\nNameError: name 'pandas' is not defined" in done.stderr
    assert "Runs continue on version `1`, with its activities" in done.stderr


def test_it_reports_activities_that_cannot_be_used(deploy: Any, server: ApiServer) -> None:
    invalid = {"type": "Ready", "status": "False", "reason": "InvalidSpec", "message": "no such limit"}
    server.answers[f"{OBJECTS}/workflows/etl"] = obj([{**invalid, "observedGeneration": 2}])
    done = deploy()
    assert done.exit_code == 1
    assert "Workflow `etl`: InvalidSpec: no such limit" in done.stderr


def test_it_waits_no_longer_than_wanted(deploy: Any, server: ApiServer) -> None:
    starting = rolled_out("WorkersStarting", "Version `2`: its workers have not polled yet")
    server.answers[f"{OBJECTS}/workerdeployments/etl"] = obj([starting])
    done = deploy("--timeout", "1s")
    assert done.exit_code == 124
    assert "timed out: WorkerDeployment `etl`: WorkersStarting" in done.stderr
    server.asked.clear()
    assert deploy("--no-wait").exit_code == 0
    assert server.asked == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('e = pf.Environment("e", cpu="lots")', "line 2: ValueError: `cpu` of the environment `e` must be a quantity"),
        ('e = pf.Environment("e", memory=256)', "`memory` of the environment `e` must be a quantity of Kubernetes"),
        ('e = pf.Environment("e", gpu="1")', "`gpu` of the environment `e` must be a whole number of at least 0"),
        (
            'e = pf.Environment("e")\n\n\n@e.activity(timeout="1x")\ndef load(day: str) -> None: ...',
            "`timeout` of the activity `load` must be a duration such as `90s` or `1h30m`, not '1x'",
        ),
        (
            'e = pf.Environment("e")\n\n\n@e.activity(heartbeat="0s")\ndef load(day: str) -> None: ...',
            "`heartbeat` of the activity `load` must be longer than zero, not '0s'",
        ),
        (
            'e = pf.Environment("e")\n\n\n@e.activity(retries=-1)\ndef load(day: str) -> None: ...',
            "`retries` of the activity `load` must be a whole number of at least 0, not -1",
        ),
        ('r = pf.Retry(initial="soon")', "`initial` of `pf.Retry` must be a duration such as `90s` or `1h30m`"),
        ("r = pf.Retry(backoff=0.5)", "`backoff` of `pf.Retry` must be a number of at least 1, not 0.5"),
        (
            'e = pf.Environment("e")\n\n\n@e.activity()\ndef load(day, at: str) -> None: ...',
            "parameter `day` of load has no type: write `day: str`, or the type that it has",
        ),
        (
            'e = pf.Environment("e")\n\n\n@e.flow\nasync def nightly(lock: "Lock") -> None: ...',
            "the types of nightly cannot be read: NameError: name 'Lock' is not defined",
        ),
        (
            'import threading\ne = pf.Environment("e")\n\n\n@e.activity()\ndef load(t: threading.Thread) -> None: ...',
            "parameter `t` of load: <class 'threading.Thread'> cannot be passed between a flow and its activities",
        ),
        (
            'e = pf.Environment("e")\n\n\n@e.activity(definition={"cashe": {}})\ndef load(day: str) -> None: ...',
            "Workflow e: spec.activities[0].cashe: unknown field; did you mean `cache`?",
        ),
        (
            'e = pf.Environment("e")\n\n\n@e.activity(definition={"podTemplate": {}})\ndef load() -> None: ...',
            "`podTemplate` in `definition` would replace the container of the function: use `podSpecPatch`",
        ),
    ],
)
def test_a_mistake_is_named_with_its_function_and_its_fix(tmp_path: Path, text: str, said: str) -> None:
    module = tmp_path / f"mistaken_{abs(hash(text))}.py"
    module.write_text(f"import perdure.flow as pf\n{text}\n")
    done = perdure("deploy", str(module), "--image", "x", "--dry-run")
    assert (done.exit_code, said in " ".join(done.stderr.split())) == (2, True), done.stderr


def test_a_package_in_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", sys.path.copy())
    (tmp_path / "flows_of_a_package").mkdir()
    (tmp_path / "flows_of_a_package" / "etl.py").write_text(FLOWS.format(name="packed"))
    monkeypatch.chdir(tmp_path)
    done = perdure("deploy", "flows_of_a_package.etl", "--image=example.com/shop:1", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "- perdure.flow.pod\n          - flows_of_a_package.etl\n          - packed\n" in done.output
