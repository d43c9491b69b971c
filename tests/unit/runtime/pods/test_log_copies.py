"""The command that copies the log of an activity's container, and how its sidecar affects the outcome."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.inputs import AttemptCompleted
from perdure.runtime.attempt_outcomes import outcome
from perdure.runtime.attempts import InvalidDefinitionError, PodSettings
from perdure.runtime.pods.artifacts import stop_seconds, with_artifacts
from perdure.runtime.pods.builder import build_pod

_SECONDS = 60
_REFERENCE = {
    "store": "perdure-artifacts",
    "key": "shop/u/5-2/log.gz",
    "size": 20,
    "sha256": "ab",
    "archive": "None",
}


def archiving(make: Any, **fields: Any) -> Any:
    container = {"image": "i", "command": ["run", "$(HOME)"], "args": ["--fast"]}
    return make.activity(**{"container": container, "artifacts": {"archiveLogs": True}, **fields})


def spec_of(make: Any, definition: Any) -> dict[str, Any]:
    settings = PodSettings(sidecar_image="perdure:test")
    pod = build_pod(make.run, make.attempt, with_artifacts(definition, settings.sidecar_image), settings)
    spec: dict[str, Any] = pod["spec"]
    return spec


def started(
    make: Any, folder: Path, *command: str, shell: str = "sh", variables: Mapping[str, str] = {}
) -> subprocess.Popen[str]:
    """Run a command, with environment variables, as the pod of an activity that archives its log would."""
    definition = archiving(make, container={"image": "i", "command": list(command)})
    words = spec_of(make, definition)["containers"][0]["command"]
    words = [shell, *(word.replace("$$", "$").replace("/perdure-log", str(folder)) for word in words[1:])]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"], **variables})


@pytest.fixture(params=["sh", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        (["sh", "-c", "echo out; echo err >&2; exit 3"], (3, "out\nerr\n")),
        (["sh", "-c", "printf unfinished"], (0, "unfinished")),
        (["sh", "-c", "kill -9 $$$$"], (137, "")),
        (["printf", "%s\n", "a  b", "$HOME", "*"], (0, "a  b\n$HOME\n*\n")),
    ],
)
def test_the_command_prints_and_ends_as_without_the_copy(
    make: Any, tmp_path: Path, shell: str, command: list[str], ending: tuple[int, str]
) -> None:
    done = started(make, tmp_path, *command, shell=shell)
    shown = done.communicate(timeout=_SECONDS)[0]
    assert (done.returncode, shown) == ending
    assert (tmp_path / "log").read_text() == shown


def test_variables_of_the_container_are_unchanged(make: Any, tmp_path: Path, shell: str) -> None:
    names = ("code", "copy", "ended", "folder", "signal", "stop", "tool", "work")
    variables = {name: f"own {name}" for name in names}
    command = ["sh", "-c", "; ".join(f'echo "${name}"' for name in names)]
    output, _ = started(make, tmp_path, *command, shell=shell, variables=variables).communicate(timeout=_SECONDS)
    assert output.splitlines() == list(variables.values())


def test_a_signal_reaches_the_command(make: Any, tmp_path: Path, shell: str) -> None:
    program = (
        "import os, signal, sys; signal.signal(signal.SIGTERM, lambda *_: (print('stopped'), sys.exit(7)));"
        "received, wakeup = os.pipe(); os.set_blocking(wakeup, False); signal.set_wakeup_fd(wakeup);"
        "print('ready', flush=True); os.read(received, 1)"
    )
    running = started(make, tmp_path, "python3", "-c", program, shell=shell)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=_SECONDS)[0] == "stopped\n"
    assert running.returncode == 7
    assert (tmp_path / "log").read_text() == "ready\nstopped\n"


def test_a_command_that_does_not_exist_fails_with_the_reason(make: Any, tmp_path: Path, shell: str) -> None:
    done = started(make, tmp_path, "no-such-command", shell=shell)
    assert "no-such-command" in done.communicate(timeout=_SECONDS)[0]
    assert done.returncode == 127


def test_a_process_that_is_left_behind_does_not_keep_the_container_running(make: Any, tmp_path: Path) -> None:
    with started(make, tmp_path, "sh", "-c", "sleep 600 & echo $!") as done:
        assert done.stdout is not None
        left = int(done.stdout.readline())
        try:
            assert done.wait(timeout=_SECONDS) == 0
        finally:
            os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("missing", ["tools", "volume"])
def test_without_tools_or_volume_the_command_runs_without_a_copy(make: Any, tmp_path: Path, missing: str) -> None:
    definition = archiving(make, container={"image": "i", "command": ["/bin/sh", "-c", "echo work; exit 3"]})
    words = spec_of(make, definition)["containers"][0]["command"]
    folder = tmp_path if missing == "tools" else tmp_path / "none"
    words = ["/bin/sh", *(word.replace("$$", "$").replace("/perdure-log", str(folder)) for word in words[1:])]
    path = str(tmp_path) if missing == "tools" else os.environ["PATH"]
    done = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "work\n", "")
    assert list(tmp_path.iterdir()) == []


def test_the_sidecar_shares_the_copy(make: Any) -> None:
    spec = spec_of(make, archiving(make))
    (main,), (sidecar,) = spec["containers"], spec["initContainers"]
    assert main["command"][:2] == ["sh", "-c"]
    assert main["command"][3:] == ["sh", "/perdure-log", "run", "$(HOME)"]
    assert main["args"] == ["--fast"]
    mount = {"name": "perdure-log", "mountPath": "/perdure-log"}
    assert mount in main["volumeMounts"]
    assert sidecar["volumeMounts"] == [mount]
    assert {"name": "perdure-log", "emptyDir": {}} in spec["volumes"]
    assert {"name": "PERDURE_LOG_FOLDER", "value": "/perdure-log"} in sidecar["env"]
    assert not [each for each in main["env"] if each["name"].startswith("PERDURE_STORE")]
    assert "terminationGracePeriodSeconds" not in spec, "only outputs may take long"
    assert stop_seconds({"spec": spec}) is None


def test_a_script_is_copied_with_its_own_wrapper(make: Any, tmp_path: Path) -> None:
    script = {"image": "i", "source": "echo a; echo b", "result": "LastLine"}
    main = spec_of(make, archiving(make, container=None, script=script))["containers"][0]
    (tmp_path / "script").write_text(script["source"])
    folder = tmp_path / "copy"
    folder.mkdir()
    words = [
        word.replace("$$", "$").replace("/perdure-log", str(folder)).replace("/perdure/", f"{tmp_path}/")
        for word in main["command"]
    ]
    variables = {"PATH": os.environ["PATH"], "PERDURE_TERMINATION_LOG": str(tmp_path / "message")}
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, "a\nb\n")
    assert (tmp_path / "message").read_text() == "b"
    assert (folder / "log").read_text() == "a\nb\n"


def test_a_container_without_a_command_is_refused(make: Any) -> None:
    with pytest.raises(InvalidDefinitionError, match=r"`artifacts.archiveLogs` needs the `command` of the container"):
        with_artifacts(archiving(make, container={"image": "i"}), "i")


def outcome_of(make: Any, *init: dict[str, Any], phase: str = "Running", due: bool = False) -> Any:
    definition = archiving(make)
    pod = make.pod(make.terminated(message="7"), phase=phase, init=init, definition=definition)
    return outcome(make.attempt, definition, pod, now=make.now, due=due)


@pytest.mark.parametrize("artifacts", [{"archiveLogs": False}, {"largeResults": False, "archiveLogs": False}])
def test_an_activity_that_says_that_it_archives_no_log_is_unchanged(make: Any, artifacts: Any) -> None:
    definition = make.activity(artifacts=artifacts)
    assert with_artifacts(definition, "i") is definition
    done = outcome(make.attempt, definition, make.pod(make.terminated(message="7")), now=make.now)
    assert (done.result, done.artifacts) == (7, {})


def test_an_archived_log_is_an_artifact_of_the_attempt(make: Any) -> None:
    assert outcome_of(make, make.running("perdure-outputs")) is None
    report = {"at": "shop/u/5-2", "files": {}, "log": ["shop/u/5-2/log.gz", 20, "ab"]}
    done = outcome_of(make, make.terminated(0, name="perdure-outputs", message=json.dumps(report)))
    assert isinstance(done, AttemptCompleted)
    assert (done.result, done.artifacts) == (7, {"log.gz": _REFERENCE})


def test_an_attempt_succeeds_although_its_log_is_not_archived(make: Any) -> None:
    ends = [
        make.terminated(0, name="perdure-outputs", message='{"at":"a","files":{}}'),
        make.terminated(137, name="perdure-outputs", message=""),
    ]
    outcomes = [outcome_of(make, end) for end in ends]
    outcomes += [outcome_of(make, phase="Succeeded"), outcome_of(make, make.running("perdure-outputs"), due=True)]
    assert [(type(each), each.result, each.artifacts) for each in outcomes] == [(AttemptCompleted, 7, {})] * 4
