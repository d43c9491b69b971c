"""A large result is stored on a real S3 server, and another activity reads it from there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.api.kinds.workflow import Activity
from perdure.language import containers
from perdure.runtime.attempts import Attempt, PodSettings, RunRef
from perdure.runtime.pods.artifacts import references, with_artifacts
from perdure.runtime.pods.builder import build_pod
from support.artifacts.gateway import Gateway, serving
from support.ports import free_port
from unit.runner.artifacts.stopping import stopped

_SECONDS = 60
_RUN = RunRef(namespace="shop", name="order", uid="uid-1", workflow_id="order")
_ATTEMPT = Attempt(scheduled_event_id=5, attempt=1, activity_id="5", activity_type="work")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("gateway"), free_port()) as found:
        yield found


def activity(**artifacts: Any) -> Activity:
    fields = {"name": "work", "startToCloseTimeout": "5m", "container": {"image": "i"}}
    return Activity.parse({**fields, "artifacts": artifacts})


def pod_of(definition: Activity) -> Any:
    return build_pod(_RUN, _ATTEMPT, with_artifacts(definition, "i"), PodSettings())["spec"]


def value(container: Any, name: str) -> str:
    found: str = next(each["value"] for each in container["env"] if each["name"] == name)
    return found.replace("$$", "$")


def produced(gateway: Gateway, folder: Path, program: str) -> tuple[int, Any, str]:
    """Run the program and the sidecar of an activity: return the exit code, the report, and the termination message."""
    spec = pod_of(activity(largeResults=True))
    (main,), (sidecar,) = spec["containers"], spec["initContainers"]
    file = folder / value(main, "PERDURE_RESULT_FILE").removeprefix("/")
    file.parent.mkdir()
    (folder / "message").touch()
    theirs = {
        "PERDURE_RESULT_FILE": str(file),
        "PERDURE_TERMINATION_LOG": str(folder / "message"),
        "PERDURE_MESSAGE_LIMIT": value(main, "PERDURE_MESSAGE_LIMIT"),
    }
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **theirs}, timeout=_SECONDS, check=True)
    ours = {
        **gateway.environ,
        "PERDURE_OUTPUTS": value(sidecar, "PERDURE_OUTPUTS"),
        "PERDURE_OUTPUTS_FOLDER": str(folder),
        "PERDURE_TERMINATION_LOG": str(folder / "report"),
        "PERDURE_NAMESPACE": _RUN.namespace,
        "PERDURE_RUN_ID": _RUN.uid,
        "PERDURE_EVENT": str(_ATTEMPT.scheduled_event_id),
        "PERDURE_ATTEMPT": folder.name,
    }
    module = sidecar["command"][sidecar["command"].index("python") + 1 :]
    done = stopped([sys.executable, *module], ours)
    return done.returncode, json.loads((folder / "report").read_text()), (folder / "message").read_text()


_HELPER = "from perdure.activity import complete; complete({})"


def test_a_large_result_of_the_helper_is_read_by_another_activity(gateway: Gateway, tmp_path: Path) -> None:
    code, report, message = produced(gateway, tmp_path, _HELPER.format("['x' * 1000] * 1000"))
    assert (code, message) == (0, "")
    reference = (references("perdure-artifacts", report, {}) or {})["result.json"]
    assert reference["key"] == f"shop/uid-1/5-{tmp_path.name}/result.json"
    reader = activity(inputs=[{"name": "given", "path": "/in", "from": "${input}"}])
    (downloader,) = pod_of(containers.resolve(reader, input=reference, run={}, attempt=1))["initContainers"]
    (tmp_path / "in").mkdir()
    wanted = {"PERDURE_ARTIFACTS": value(downloader, "PERDURE_ARTIFACTS")}
    environ = {**os.environ, **gateway.environ, **wanted, "PERDURE_ARTIFACTS_FOLDER": str(tmp_path / "in")}
    subprocess.run([sys.executable, *downloader["command"][1:]], env=environ, timeout=_SECONDS, check=True)
    assert json.loads((tmp_path / "in/given").read_text()) == ["x" * 1000] * 1000


def test_a_small_result_of_the_helper_is_not_stored(gateway: Gateway, tmp_path: Path) -> None:
    code, report, message = produced(gateway, tmp_path, _HELPER.format("{'total': 7}"))
    assert (code, report["files"], json.loads(message)) == (0, {}, {"total": 7})
    assert not gateway.object(report["at"]).exists()


def test_only_a_regular_file_is_stored(gateway: Gateway, tmp_path: Path) -> None:
    program = "import os; os.symlink('/etc/hostname', os.environ['PERDURE_RESULT_FILE'])"
    code, report, _ = produced(gateway, tmp_path, program)
    assert code == 1
    assert "artifact `result.json`" in report["error"]["message"]
