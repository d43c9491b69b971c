"""The log of a container is stored on a real S3 server when it ends, and read from there when its pod is gone."""

import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure.client.logs import objects_in
from perdure.runner.artifacts.log_export import lines
from perdure.runner.artifacts.output_artifacts import LogCopy, archived
from perdure.runner.artifacts.programs import ArtifactError
from perdure.runner.artifacts.store import ArtifactStore
from perdure.runtime.pods.commands import WRAPPER
from support.artifacts.gateway import Gateway, serving
from support.ports import free_port

_SECONDS = 60
_KEY = "shop/uid-1/5-{}/log.gz"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("gateway"), free_port()) as found:
        yield found


def environ(gateway: Gateway, attempt: int) -> dict[str, str]:
    of = {"PERDURE_NAMESPACE": "shop", "PERDURE_RUN_ID": "uid-1", "PERDURE_EVENT": "5", "PERDURE_ATTEMPT": str(attempt)}
    return gateway.environ | of


def sidecar(gateway: Gateway, folder: Path, attempt: int, **changed: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        **environ(gateway, attempt),
        "PERDURE_OUTPUTS": "[]",
        "PERDURE_OUTPUTS_FOLDER": str(folder),
        "PERDURE_LOG_FOLDER": str(folder),
        "PERDURE_TERMINATION_LOG": str(folder / "message"),
    }
    command = ["env", "--block-signal=TERM", sys.executable, "-m", "perdure.runner.artifacts.output_artifacts"]
    running = subprocess.Popen(command, env=environment | changed)
    _await_start(running)
    return running


def test_the_log_of_a_pod_is_stored_with_size_and_hash(gateway: Gateway, tmp_path: Path) -> None:
    program = "echo one; echo two >&2; exit 3"
    subprocess.run(["sh", "-c", WRAPPER, "sh", str(tmp_path), "sh", "-c", program], check=False, timeout=_SECONDS)
    running = sidecar(gateway, tmp_path, 1)
    running.terminate()
    assert running.wait(timeout=_SECONDS) == 0
    content = gateway.object(_KEY.format(1)).read_bytes()
    assert gzip.decompress(content) == b"one\ntwo\n"
    report = json.loads((tmp_path / "message").read_text())
    assert report["files"] == {}
    assert report["log"] == [_KEY.format(1), len(content), hashlib.sha256(content).hexdigest()]


def test_a_sidecar_that_is_stopped_stores_what_a_killed_container_has_written(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("out of mem")
    running = sidecar(gateway, tmp_path, 3)
    running.terminate()
    assert running.wait(timeout=_SECONDS) == 0
    assert gzip.decompress(gateway.object(_KEY.format(3)).read_bytes()) == b"out of mem"


def _await_start(running: subprocess.Popen[bytes]) -> None:
    """Wait until the sidecar can be stopped by a signal."""
    end = time.monotonic() + _SECONDS
    while not _blocks_sigterm(running.pid):
        assert running.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)


def _blocks_sigterm(process: int) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    blocked = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(blocked & 1 << (signal.SIGTERM - 1))


@pytest.mark.parametrize("changed", [{"PERDURE_STORE_SECRET_ACCESS_KEY": "wrong"}, {"PERDURE_STORE_ENDPOINT": "x"}])
def test_an_error_of_the_store_does_not_fail_the_attempt(
    gateway: Gateway, tmp_path: Path, changed: dict[str, str]
) -> None:
    (tmp_path / "log").touch()
    running = sidecar(gateway, tmp_path, 4, **changed)
    running.terminate()
    assert running.wait(timeout=_SECONDS) == 0
    assert "log" not in json.loads((tmp_path / "message").read_text())


def test_uploads_to_an_unavailable_store_end_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").touch()
    nowhere = environ(Gateway(free_port(), tmp_path), 5)
    assert archived(LogCopy(tmp_path), nowhere, patience=timedelta(seconds=1)) == {}
    assert "the log is not archived: the artifact store rejected" in capsys.readouterr().err


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("credentials")
    log = LogCopy(tmp_path)
    for make, message in (
        (lambda path: path.symlink_to(tmp_path / "secret"), "symbolic link"),
        (os.mkfifo, "not a file"),
        (Path.mkdir, "not a file"),
        (lambda _: None, "has left no copy"),
    ):
        make(tmp_path / "log")
        log.trim()
        with pytest.raises(ArtifactError, match=message):
            log.packed()
        if (tmp_path / "log").is_dir():
            (tmp_path / "log").rmdir()
        else:
            (tmp_path / "log").unlink(missing_ok=True)
    assert (tmp_path / "secret").read_text() == "credentials"


def test_only_the_end_of_a_long_log_is_kept_on_disk_and_stored(tmp_path: Path) -> None:
    limit, log, line = 100_000, LogCopy(tmp_path, 100_000), "x" * 98 + "\n"
    with (tmp_path / "log").open("a") as file:
        for number in range(30):
            file.writelines(f"{number:02}{line}" for _ in range(500))
            file.flush()
            log.trim()
            assert (tmp_path / "log").stat().st_blocks * 512 <= 3 * limit
    kept = gzip.decompress(log.packed()).decode().splitlines()
    assert kept[0] == "(earlier lines are not archived)"
    assert limit - 200 <= sum(len(each) + 1 for each in kept[1:]) <= limit
    assert {each[2:] for each in kept[1:]} == {line.rstrip()}
    assert kept[-1][:2] == "29"


def test_archived_logs_are_sent_through_the_log_of_a_pod(gateway: Gateway) -> None:
    store, noise = ArtifactStore(gateway.environ), os.urandom(3_000)
    objects = {"a": b"first", "b": noise, "c": b"", "d": noise}
    for name, content in objects.items():
        store.upload(f"sent/{name}", iter([content]))
    keys = [f"sent/{name}" for name in ("a", "none", "b", "c", "d")]
    first = objects_in([line.encode() for line in lines(store, keys, limit=4_000)])
    assert first == {"sent/a": b"first", "sent/none": None, "sent/b": noise, "sent/c": b""}
    assert objects_in([line.encode() for line in lines(store, ["sent/d"], limit=4_000)]) == {"sent/d": noise}
    (large,) = objects_in([line.encode() for line in lines(store, ["sent/d"], limit=2_000)]).values()
    assert "too large" in str(large)
    wrong = ArtifactStore({**gateway.environ, "PERDURE_STORE_SECRET_ACCESS_KEY": "wrong"})
    failed: Any = objects_in([line.encode() for line in lines(wrong, ["sent/a"])])["sent/a"]
    assert "the artifact store did not return `sent/a`" in str(failed)
