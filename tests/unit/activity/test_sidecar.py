"""The sidecar as a process with a folder: heartbeats, cancellation and results as files."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.activity import sidecar

SCRIPT = "from perdure.activity import sidecar\nsidecar.main()\n"
DETAILS = "perdure.dev/heartbeat-details"
assert sidecar.main


class Sidecar:
    """The process and its folder."""

    def __init__(self, pod: Any, folder: Path, **environ: str) -> None:
        self.folder = folder
        folder.mkdir()
        self.process: subprocess.Popen[str] = pod.start(SCRIPT, PERDURE_FILES=str(folder), **environ)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=60)
        assert "Traceback" not in err, err
        return self.process.returncode


@pytest.fixture
def start_sidecar(api: Any, pod: Any, tmp_path: Path) -> Any:
    """Start a sidecar; the Lease has a short timeout, so that heartbeats are sent soon."""
    started: list[Sidecar] = []

    def start(**environ: str) -> Sidecar:
        started.append(Sidecar(pod.with_lease(0.4), tmp_path / "files", **environ))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()
    assert api


def ready(api: Any, start_sidecar: Sidecar) -> None:
    """It handles signals from its first heartbeat on."""
    start_sidecar.write("heartbeat", "")
    api.wait_for(lambda: bool(api.requests))


def test_each_write_of_the_file_is_a_heartbeat_with_its_content(
    api: Any, start_sidecar: Callable[..., Sidecar]
) -> None:
    it = start_sidecar()
    it.write("heartbeat", '{"done": 3}')
    api.wait_for(lambda: api.annotations.get(DETAILS) == '{"done":3}')
    it.write("heartbeat", "half way")
    api.wait_for(lambda: api.annotations.get(DETAILS) == '"half way"')
    assert it.stop() == 0


def test_automatic_heartbeats_are_sent_only_if_enabled(api: Any, start_sidecar: Callable[..., Sidecar]) -> None:
    it = start_sidecar(PERDURE_AUTO_HEARTBEAT="true")
    api.wait_for(lambda: len(api.requests) >= 3)
    assert it.stop() == 0


def test_a_cancellation_request_becomes_a_file(api: Any, start_sidecar: Callable[..., Sidecar]) -> None:
    api.annotations["perdure.dev/cancel-requested"] = "asked by ann"
    it = start_sidecar()
    ready(api, it)
    with api.changed:
        pass
    while not (it.folder / "cancelled").exists():
        assert it.process.poll() is None
    assert (it.folder / "cancelled").read_text() == "asked by ann\n"
    assert it.stop() == 0


@pytest.mark.parametrize(
    ("written", "reported"), [('{"a": 1}', {"a": 1}), ("plain\n", "plain"), ("1.10\n", "1.10"), ("", None), ("7", 7)]
)
def test_the_result_is_reported_at_the_end(
    api: Any, pod: Any, start_sidecar: Callable[..., Sidecar], written: str, reported: Any
) -> None:
    it = start_sidecar()
    ready(api, it)
    it.write("result", written)
    assert it.stop() == 0
    assert pod.message == reported


def test_a_large_result_is_written_to_the_lease(api: Any, pod: Any, start_sidecar: Callable[..., Sidecar]) -> None:
    it = start_sidecar()
    ready(api, it)
    it.write("result", json.dumps("x" * 100_000))
    assert it.stop() == 0
    assert json.loads(api.annotations["perdure.dev/result"]) == "x" * 100_000
    assert not pod.message_file.exists()


def test_a_too_large_result_is_reported_as_a_failure(api: Any, pod: Any, start_sidecar: Callable[..., Sidecar]) -> None:
    it = start_sidecar()
    ready(api, it)
    it.write("result", json.dumps("x" * 300_000))
    assert it.stop() == 1
    assert pod.message["error"]["type"] == "PayloadTooLarge"


def test_without_a_result_nothing_is_reported(api: Any, pod: Any, start_sidecar: Callable[..., Sidecar]) -> None:
    it = start_sidecar()
    ready(api, it)
    assert it.stop() == 0
    assert not pod.message_file.exists()


def test_the_sidecar_can_be_run_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import perdure.activity.sidecar as s; print(s.__doc__.splitlines()[0])"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "sidecar" in done.stdout


# Objects that an activity may put into the folder in place of files


def trap(kind: str, path: Path, target: Path) -> None:
    match kind:
        case "a link":
            path.symlink_to(target)
        case "a link to nothing":
            path.symlink_to(target.with_name("nothing"))
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case "a socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(path))


TRAPS = ["a link", "a link to nothing", "a pipe", "a folder", "a socket"]


@pytest.mark.parametrize("kind", TRAPS)
def test_a_result_that_is_not_a_regular_file_is_rejected(
    api: Any, pod: Any, start_sidecar: Callable[..., Sidecar], kind: str
) -> None:
    it = start_sidecar()
    ready(api, it)
    trap(kind, it.folder / "result", pod.token_file)
    assert it.stop() == 1
    assert pod.message["error"]["type"] == "ResultMissing"
    assert "secret" not in pod.message_file.read_text()


@pytest.mark.parametrize("kind", TRAPS)
def test_a_heartbeat_that_is_not_a_regular_file_is_ignored(
    api: Any, pod: Any, start_sidecar: Callable[..., Sidecar], kind: str
) -> None:
    it = start_sidecar()
    ready(api, it)
    (it.folder / "heartbeat").unlink()
    trap(kind, it.folder / "heartbeat", pod.token_file)
    it.process.send_signal(signal.SIGTERM)
    _, complaint = it.process.communicate(timeout=60)
    assert "The heartbeat could not be forwarded" in complaint
    assert it.process.returncode == 0
    assert "secret" not in json.dumps(api.requests)


def test_replacing_the_folder_has_no_effect(api: Any, pod: Any, start_sidecar: Callable[..., Sidecar]) -> None:
    it = start_sidecar()
    ready(api, it)
    it.folder.rename(it.folder.with_name("moved"))
    other = it.folder.with_name("other")
    other.mkdir()
    (other / "result").write_text("forged")
    it.folder.symlink_to(other)
    assert it.stop() == 0
    assert not pod.message_file.exists()


def test_the_cancellation_request_does_not_follow_symbolic_links(
    api: Any, start_sidecar: Callable[..., Sidecar], tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    it = start_sidecar()
    for name in (".cancelled", "cancelled"):
        (it.folder / name).symlink_to(precious)
    api.annotations["perdure.dev/cancel-requested"] = "asked by ann"
    ready(api, it)
    while (it.folder / "cancelled").is_symlink():
        assert it.process.poll() is None
    assert (it.folder / "cancelled").read_text() == "asked by ann\n"
    assert precious.read_text() == "kept"
    assert it.stop() == 0


def test_a_too_large_file_is_not_read_completely(api: Any, pod: Any, start_sidecar: Callable[..., Sidecar]) -> None:
    it = start_sidecar()
    ready(api, it)
    with (it.folder / "result").open("wb") as file:
        file.truncate(1 << 40)
    assert it.stop() == 1
    assert pod.message["error"]["type"] == "PayloadTooLarge"
