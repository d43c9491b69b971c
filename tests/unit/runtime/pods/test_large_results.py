"""Results that are too large for the history: the pod of the attempt, and its outcome."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.inputs import AttemptCompleted, AttemptFailed
from perdure.runtime.attempt_outcomes import outcome
from perdure.runtime.attempts import PodSettings
from perdure.runtime.pods.artifacts import stop_seconds, with_artifacts
from perdure.runtime.pods.builder import build_pod

_SECONDS = 60
_REPORT = {"at": "shop/u/5-2", "files": {"result.json": [9000, "ab", "None"]}}
_REFERENCE = {
    "store": "perdure-artifacts",
    "key": "shop/u/5-2/result.json",
    "size": 9000,
    "sha256": "ab",
    "archive": "None",
}


def spec_of(make: Any, definition: Any) -> dict[str, Any]:
    settings = PodSettings(sidecar_image="perdure:test")
    pod = build_pod(make.run, make.attempt, with_artifacts(definition, settings.sidecar_image), settings)
    spec: dict[str, Any] = pod["spec"]
    return spec


def test_the_file_is_an_optional_artifact_for_the_sidecar(make: Any) -> None:
    environment = [{"name": "PERDURE_RESULT_FILE", "value": "theirs"}, {"name": "A", "value": "b"}]
    container = {"image": "i", "env": environment}
    outputs = [{"name": "report", "path": "/out/report"}]
    spec = spec_of(make, make.activity(container=container, artifacts={"largeResults": True, "outputs": outputs}))
    (main,), (sidecar,) = spec["containers"], spec["initContainers"]
    files = [each["value"] for each in main["env"] if each["name"] == "PERDURE_RESULT_FILE"]
    assert files == ["/perdure-result/result.json"]
    assert {"name": "A", "value": "b"} in main["env"]
    mounts = {each["mountPath"]: each for each in main["volumeMounts"]}
    assert mounts["/perdure-result"]["name"] == "perdure-outputs"
    assert {each["mountPath"] for each in sidecar["volumeMounts"]} == {
        "/perdure-outputs/out",
        "/perdure-outputs/perdure-result",
    }
    wanted = json.loads(next(each["value"] for each in sidecar["env"] if each["name"] == "PERDURE_OUTPUTS"))
    assert wanted == [
        {"name": "report", "path": "/out/report"},
        {"name": "result.json", "path": "/perdure-result/result.json", "optional": True},
    ]
    assert not [each for each in main["env"] if each["name"].startswith("PERDURE_STORE")]
    assert spec["terminationGracePeriodSeconds"] == 600
    assert stop_seconds({"spec": spec}) == 30


def test_without_the_setting_there_is_no_file(make: Any) -> None:
    definition = make.activity(artifacts={"outputs": [{"name": "report", "path": "/out/report"}]})
    (main,) = spec_of(make, definition)["containers"]
    assert "PERDURE_RESULT_FILE" not in {each["name"] for each in main["env"]}


def outcome_of(
    make: Any, *init: dict[str, Any], main: dict[str, Any] | None = None, phase: str = "Running", due: bool = False
) -> Any:
    definition = make.activity(artifacts={"largeResults": True})
    pod = make.pod(main or make.terminated(message=""), phase=phase, init=init, definition=definition)
    return outcome(make.attempt, definition, pod, now=make.now, due=due)


def uploader(make: Any, report: Any, code: int = 0) -> dict[str, Any]:
    ended: dict[str, Any] = make.terminated(code, name="perdure-outputs", message=json.dumps(report))
    return ended


def test_a_stored_result_is_a_reference(make: Any) -> None:
    for main in (make.terminated(message=""), make.terminated(message="1")):
        done = outcome_of(make, uploader(make, _REPORT), main=main)
        assert isinstance(done, AttemptCompleted)
        assert (done.result, done.artifacts) == (_REFERENCE, {"result.json": _REFERENCE})


def test_a_small_result_stays_as_it_is(make: Any) -> None:
    done = outcome_of(make, uploader(make, {"at": "a", "files": {}}), main=make.terminated(message='{"a":1}'))
    assert (done.result, done.artifacts) == ({"a": 1}, {})


def test_a_stored_result_counts_before_the_lease_and_the_other_sidecar(make: Any) -> None:
    definition = make.activity(artifacts={"largeResults": True}, resultSize="Large", sidecar={})
    attempt = make.with_attempt(large_result=True, sidecar=True)
    ends = [uploader(make, _REPORT), make.terminated(name="perdure-sidecar", message="")]
    pod = make.pod(make.terminated(message=""), init=tuple(ends), definition=definition, attempt=attempt)
    done = outcome(attempt, definition, pod, make.lease(attempt, result='"small"'), now=make.now)
    assert isinstance(done, AttemptCompleted)
    assert done.result == _REFERENCE


@pytest.mark.parametrize("due", [False, True])
def test_success_waits_for_the_upload_and_failure_does_not(make: Any, *, due: bool) -> None:
    assert outcome_of(make, make.running("perdure-outputs"), due=due) is None
    document = '{"error":{"type":"OutOfStock"}}'
    failed = outcome_of(make, make.running("perdure-outputs"), main=make.terminated(1, message=document), due=due)
    assert isinstance(failed, AttemptFailed)
    assert failed.failure.type == "OutOfStock"


def test_a_result_that_is_not_stored_fails_the_attempt(make: Any) -> None:
    error = {"error": {"type": "ArtifactStoreFailed", "message": "no space"}}
    failed = outcome_of(make, uploader(make, error, 1))
    assert (type(failed), failed.failure.type, failed.failure.message) == (
        AttemptFailed,
        "ArtifactStoreFailed",
        "no space",
    )
    failed = outcome_of(make, phase="Succeeded")
    assert (type(failed), failed.failure.type) == (AttemptFailed, "ArtifactsNotStored")


def test_a_truncated_message_fails_with_the_name_of_the_file(make: Any) -> None:
    empty = uploader(make, {"at": "a", "files": {}})
    failed = outcome_of(make, empty, main=make.terminated(message="x" * 4096))
    assert failed.failure.type == "PayloadTooLarge"
    assert failed.failure.message.endswith("Write it to the file $PERDURE_RESULT_FILE instead")
    assert "UTF-8" not in failed.failure.message
    cut_within_a_character = "\ufffd\ufffd" + "\u4e2d" * 1364
    failed = outcome_of(make, empty, main=make.terminated(message=cut_within_a_character))
    assert "UTF-8" not in failed.failure.message
    failed = outcome_of(make, empty, main=make.terminated(message="\ufffd" * 3000))
    assert "its result is not UTF-8 text, and does not fit into a termination message" in failed.failure.message


def execute(make: Any, folder: Path, source: str, result: str, shell: str) -> tuple[int, str, str | None]:
    """Run a script as its pod would: return its exit code, its termination message, and its large result."""
    script = {"image": "i", "source": source, "result": result}
    (main,) = spec_of(make, make.activity(script=script, artifacts={"largeResults": True}))["containers"]
    (folder / "script").write_text(source)
    (folder / "message").write_text("")
    words = [word.replace("$$", "$").replace("/perdure/", f"{folder}/") for word in main["command"]]
    variables = {
        "PATH": os.environ["PATH"],
        "PERDURE_TERMINATION_LOG": str(folder / "message"),
        "PERDURE_RESULT_FILE": str(folder / "result.json"),
        "PERDURE_MESSAGE_LIMIT": "4095",
    }
    done = subprocess.run([shell, *words[1:]], env=variables, capture_output=True, timeout=_SECONDS, check=False)
    file = folder / "result.json"
    return done.returncode, (folder / "message").read_text(), file.read_text() if file.exists() else None


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    ("source", "ending"),
    [
        ("echo a; echo b", ("LastLine", 0, "b\n", None)),
        ("echo a; echo b", ("Output", 0, "a\nb\n", None)),
        ("true", ("Output", 0, "", None)),
        ("echo 0", ("LastLine", 0, "0\n", None)),
        ("echo a; exit 3", ("Output", 3, "", None)),
        ("printf %4095d 1", ("Output", 0, f"{1:4095}", None)),
        ("printf %4096d 1", ("Output", 0, "", f"{1:4096}")),
        ("echo a; printf %100000d 1", ("LastLine", 0, "", f"{1:100000}")),
        ("echo a; printf %100000d 1", ("Output", 0, "", f"a\n{1:100000}")),
        ("printf %100000d 1; exit 3", ("Output", 3, "", None)),
        ('printf %9000d 1; printf b > "$PERDURE_TERMINATION_LOG"', ("Output", 0, "b", None)),
        ('echo a; printf c > "$PERDURE_RESULT_FILE"', ("LastLine", 0, "", "c")),
    ],
)
def test_a_large_result_of_a_script_becomes_the_file(
    make: Any, tmp_path: Path, shell: str, source: str, ending: tuple[str, int, str, str | None]
) -> None:
    result, *ended = ending
    assert execute(make, tmp_path, source, result, shell) == tuple(ended)


def test_a_result_that_does_not_fit_on_the_disk_fails_the_script(make: Any, tmp_path: Path) -> None:
    (tmp_path / "result.json.part").symlink_to("/dev/full")
    assert execute(make, tmp_path, "printf %9000d 1", "Output", "sh") == (74, "", None)
