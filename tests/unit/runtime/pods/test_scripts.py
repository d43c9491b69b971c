"""The container of a script, and its command."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure.api import labels
from perdure.runtime.attempts import PayloadTooLargeError, PodSettings
from perdure.runtime.pods.builder import build_pod
from perdure.runtime.pods.payloads import TERMINATION_MESSAGE_LIMIT


def script(make: Any, source: str, **fields: Any) -> Any:
    return make.activity(script={"image": "shell", "source": source, **fields})


def build(make: Any, definition: Any) -> dict[str, Any]:
    return build_pod(make.run, make.attempt, definition, PodSettings())


def execute(pod: dict[str, Any], folder: Path) -> tuple[int, str, str]:
    """Run the command of a pod as a kubelet would: its exit code, its stdout, and its termination message."""
    (folder / "script").write_text(pod["metadata"]["annotations"][labels.SCRIPT_ANNOTATION])
    (folder / "log").write_text("")
    command = [
        word.replace("$$", "$").replace("/perdure/", f"{folder}/") for word in pod["spec"]["containers"][0]["command"]
    ]
    variables = {"PATH": os.environ["PATH"], "PERDURE_TERMINATION_LOG": str(folder / "log")}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout, (folder / "log").read_text()


def test_the_interpreter_gets_the_script_as_a_file(make: Any) -> None:
    pod = build(make, script(make, "print(1)", command=["python", "-u"], args=["a"], env=[{"name": "A", "value": "b"}]))
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python", "-u", "/perdure/script"]
    assert container["args"] == ["a"]
    assert container["name"] == "activity"
    assert {"name": "A", "value": "b"} in container["env"]
    assert not container.keys() & {"source", "result"}
    assert pod["metadata"]["annotations"][labels.SCRIPT_ANNOTATION] == "print(1)"
    (volume,) = pod["spec"]["volumes"]
    assert {"path": "script", "fieldRef": {"fieldPath": "metadata.annotations['perdure.dev/script']"}} in volume[
        "downwardAPI"
    ]["items"]


def test_a_script_too_large_with_its_input_is_rejected(make: Any) -> None:
    attempt = make.with_attempt(input="x" * 220_000)
    with pytest.raises(PayloadTooLargeError, match="script 60000 bytes"):
        build_pod(make.run, attempt, script(make, "#" * 60_000), PodSettings())


@pytest.mark.parametrize(
    ("source", "result", "ending"),
    [
        ("echo a; echo b", "LastLine", (0, "b")),
        ("printf 'a\\nb'", "LastLine", (0, "b")),
        ("echo a; echo b", "Output", (0, "a\nb")),
        ("true", "LastLine", (0, "")),
        ("true", "Output", (0, "")),
        ("echo 0", "LastLine", (0, "0")),
        ("echo a; exit 3", "LastLine", (3, "")),
        ("echo a; exit 3", "Output", (3, "")),
        ('echo a; printf b > "$PERDURE_TERMINATION_LOG"', "LastLine", (0, "b")),
        ('printf c > "$PERDURE_TERMINATION_LOG"; exit 4', "Output", (4, "c")),
        ("echo a", "File", (0, "")),
        ('echo "$0" | tail -c 7', "Output", (0, "script")),
    ],
)
def test_the_result_comes_from_the_selected_source(
    make: Any, tmp_path: Path, source: str, result: str, ending: tuple[int, str]
) -> None:
    pod = build(make, script(make, source, result=result))
    code, _, message = execute(pod, tmp_path)
    assert (code, message) == ending


@pytest.mark.parametrize("result", ["LastLine", "Output"])
def test_stdout_is_logged_completely(make: Any, tmp_path: Path, result: str) -> None:
    pod = build(make, script(make, "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done", result=result))
    code, printed, message = execute(pod, tmp_path)
    assert (code, printed.count("\n")) == (0, 5000)
    assert message.endswith("line 4999")
    assert len(message) < TERMINATION_MESSAGE_LIMIT or result == "Output"


def test_a_too_large_output_is_truncated_to_the_termination_message(make: Any, tmp_path: Path) -> None:
    pod = build(
        make, script(make, "i=0; while [ $i -lt 900 ]; do echo $i-----; i=$((i+1)); done; printf x", result="Output")
    )
    assert len(execute(pod, tmp_path)[2].encode()) == TERMINATION_MESSAGE_LIMIT
