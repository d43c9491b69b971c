"""Output artifacts are uploaded to a real S3 server and downloaded as input artifacts, even if requests fail."""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure.runner.artifacts.archives import PIECE
from perdure.runner.artifacts.input_artifacts import Inputs
from perdure.runner.artifacts.output_artifacts import Outputs, uploaded
from perdure.runner.artifacts.programs import ArtifactError
from perdure.runner.artifacts.seals import Reader
from perdure.runner.artifacts.store import ArtifactStore
from support.artifacts.gateway import Gateway, serving
from support.ports import free_port
from unit.runner.artifacts.proxy import proxied
from unit.runner.artifacts.stopping import stopped

AT = "shop/uid-1/5-2"
_MIB = 1024 * 1024
_UPLOAD = [sys.executable, "-m", "perdure.runner.artifacts.output_artifacts"]
_IMPATIENT = timedelta(seconds=1)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("gateway"), free_port()) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where an activity has left its outputs: below the path that they have in its container."""
    (tmp_path / "container" / "out").mkdir(parents=True)
    return tmp_path / "container"


def send(gateway: Gateway, folder: Path, at: str, path: str = "/out/report", **fields: Any) -> list[Any] | None:
    return Outputs(folder, ArtifactStore(gateway.environ), at).upload({"name": "report", "path": path, **fields})


def fetch(environ: dict[str, str], target: Path, key: str, **fields: Any) -> Path:
    target.mkdir(exist_ok=True)
    Inputs(target, environ).prepare({"name": "report", "key": key, **fields})
    return target / "report"


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, 2 * PIECE + 1], ids=lambda size: f"{size} bytes")
def test_a_file_survives_upload_and_download(gateway: Gateway, folder: Path, tmp_path: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    (folder / "out/report").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    assert send(gateway, folder, f"{AT}-{size}") == [size, digest, "None"]
    assert gateway.object(f"{AT}-{size}/report").read_bytes() == content
    found = fetch(gateway.environ, tmp_path / "volume", f"{AT}-{size}/report", sha256=digest)
    assert found.read_bytes() == content


def test_a_folder_survives_upload_and_download(gateway: Gateway, folder: Path, tmp_path: Path) -> None:
    report = folder / "out/report"
    (report / "deep/empty").mkdir(parents=True)
    (report / "deep/run.sh").write_text("echo")
    (report / "deep/run.sh").chmod(0o755)
    (report / "größe.txt").write_text("12")
    (report / "link").symlink_to("deep/run.sh")
    stored = send(gateway, folder, AT)
    assert stored is not None
    size, digest, archive = stored
    assert (archive, size) == ("Tar", gateway.object(f"{AT}/report.tar.gz").stat().st_size)
    assert send(gateway, folder, f"{AT}-again") == stored, "the same files give the same bytes"
    found = fetch(gateway.environ, tmp_path / "volume", f"{AT}/report.tar.gz", sha256=digest, archive=archive)
    assert sorted(str(each.relative_to(found)) for each in found.rglob("*")) == sorted(
        ["deep", "deep/empty", "deep/run.sh", "größe.txt", "link"]
    )
    assert (found / "link").read_text() == "echo"
    assert (found / "deep/run.sh").stat().st_mode & 0o777 == 0o755


def test_a_copy_is_written_under_its_key_and_overwritten(gateway: Gateway, folder: Path) -> None:
    for text in ("first", "second"):
        (folder / "out/report").write_text(text)
        send(gateway, folder, f"{AT}-{text}", key="latest/report.txt")
        assert gateway.object(f"{AT}-{text}/report").read_text() == text
        assert gateway.object("latest/report.txt").read_text() == text
    assert gateway.object(f"{AT}-first/report").read_text() == "first"


def test_a_missing_artifact_fails_unless_it_is_optional(gateway: Gateway, folder: Path) -> None:
    with pytest.raises(
        ArtifactError, match="artifact `report`: the container has ended, and `/out/report` does not exist"
    ) as failed:
        send(gateway, folder, AT)
    assert failed.value.kind == "ArtifactMissing"
    assert send(gateway, folder, AT, optional=True) is None


def test_symbolic_links_are_not_followed(gateway: Gateway, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("credentials")
    (folder / "out/report").symlink_to(tmp_path / "secret")
    (folder / "out/way").symlink_to(tmp_path)
    for path in ("/out/report", "/out/way/secret"):
        with pytest.raises(ArtifactError, match="symbolic link"):
            send(gateway, folder, f"{AT}-link", path)
    (folder / "out/whole").mkdir()
    (folder / "out/whole/out").symlink_to(tmp_path / "secret")
    with pytest.raises(ArtifactError, match="the link `out` leads out of the folder"):
        send(gateway, folder, f"{AT}-link", "/out/whole")
    (folder / "out/pipes").mkdir()
    os.mkfifo(folder / "out/pipes/pipe")
    with pytest.raises(ArtifactError, match="`pipe` is not a file, a folder, or a link"):
        send(gateway, folder, f"{AT}-link", "/out/pipes")
    assert not gateway.object(f"{AT}-link").exists()


def test_content_that_does_not_match_its_hash_is_rejected(gateway: Gateway, folder: Path, tmp_path: Path) -> None:
    (folder / "out/report").write_text("1")
    send(gateway, folder, f"{AT}-changed")
    gateway.object(f"{AT}-changed/report").write_text("2")
    with pytest.raises(ArtifactError, match="the SHA-256 of the file is"):
        fetch(gateway.environ, tmp_path / "volume", f"{AT}-changed/report", sha256=hashlib.sha256(b"1").hexdigest())
    assert not (tmp_path / "volume/report").exists()


def test_an_object_that_does_not_exist_is_reported(gateway: Gateway, tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError, match="artifact `report`: the artifact store did not return `nothing`: it does not exist"
    ):
        fetch(gateway.environ, tmp_path / "volume", "nothing")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"PERDURE_STORE_SECRET_ACCESS_KEY": "wrong"}, "403 Forbidden: SignatureDoesNotMatch: The request signature"),
        ({"PERDURE_STORE_ACCESS_KEY_ID": "nobody"}, "No user exists with the provided access key ID"),
        ({"PERDURE_STORE_BUCKET": "no-such-bucket"}, "NoSuchBucket: The specified bucket does not exist."),
        (
            {"PERDURE_STORE_ENDPOINT": "no URL"},
            "the settings of the artifact store are not valid: the endpoint must begin with",
        ),
    ],
    ids=["secret", "key", "bucket", "endpoint"],
)
def test_invalid_settings_fail_with_the_answer_of_the_store_and_without_the_secret(
    gateway: Gateway, changed: dict[str, str], said: str
) -> None:
    environ = {**gateway.environ, **changed}
    for use in (lambda store: store.upload("x", iter([b"1"])), lambda store: list(store.download("x"))):
        with pytest.raises(ArtifactError, match="artifact store") as failed:
            use(ArtifactStore(environ, patience=_IMPATIENT))
        assert environ["PERDURE_STORE_SECRET_ACCESS_KEY"] not in str(failed.value)
        assert failed.value.kind == "ArtifactStoreFailed", "the activity is not to blame"
        assert said in str(failed.value)
        assert "<" not in str(failed.value)


def test_an_interrupted_upload_is_retried(gateway: Gateway, folder: Path) -> None:
    content = random.Random(1).randbytes(3 * PIECE)
    (folder / "out/report").write_bytes(content)
    with proxied(gateway.port) as proxy:
        proxy.left = 2 * _MIB  # in the middle of the first part
        environ = {**gateway.environ, "PERDURE_STORE_ENDPOINT": f"http://127.0.0.1:{proxy.port}"}

        def heal() -> None:
            if proxy.cut.wait(60):
                proxy.left = None

        healer = threading.Thread(target=heal)
        healer.start()
        store = ArtifactStore(environ)
        stored = Outputs(folder, store, f"{AT}-cut").upload({"name": "report", "path": "/out/report"})
        healer.join(60)
    assert stored == [len(content), hashlib.sha256(content).hexdigest(), "None"]
    assert gateway.object(f"{AT}-cut/report").read_bytes() == content


def test_a_failed_upload_leaves_no_object(gateway: Gateway, folder: Path) -> None:
    (folder / "out/report").write_bytes(bytes(3 * PIECE))
    with proxied(gateway.port) as proxy:
        proxy.left = 2 * _MIB
        environ = {**gateway.environ, "PERDURE_STORE_ENDPOINT": f"http://127.0.0.1:{proxy.port}"}
        store = ArtifactStore(environ, patience=_IMPATIENT)
        with pytest.raises(ArtifactError, match="artifact `report`: the artifact store rejected") as failed:
            Outputs(folder, store, f"{AT}-never").upload({"name": "report", "path": "/out/report"})
    assert failed.value.kind == "ArtifactStoreFailed"
    assert not gateway.object(f"{AT}-never/report").exists()


def test_an_upload_waits_while_the_store_is_down(tmp_path: Path, folder: Path) -> None:
    (folder / "out/report").write_text("late")
    port, up, done = free_port(), threading.Event(), threading.Event()

    def serve_later() -> None:
        up.set()
        with serving(tmp_path, port):
            done.wait(120)

    gateway = Gateway(port, tmp_path / "objects")
    server = threading.Timer(2, serve_later)
    server.start()
    try:
        assert send(gateway, folder, AT) == [4, hashlib.sha256(b"late").hexdigest(), "None"]
        assert up.is_set()
    finally:
        done.set()
        server.join(60)


def sidecar(gateway: Gateway, folder: Path, log: Path, wanted: list[dict[str, Any]]) -> dict[str, str]:
    return {
        **gateway.environ,
        "PERDURE_OUTPUTS": json.dumps(wanted),
        "PERDURE_OUTPUTS_FOLDER": str(folder),
        "PERDURE_TERMINATION_LOG": str(log),
        "PERDURE_NAMESPACE": "shop",
        "PERDURE_RUN_ID": f"uid-{log.parent.name}",
        "PERDURE_EVENT": "5",
        "PERDURE_ATTEMPT": "2",
    }


def test_the_sidecar_uploads_when_it_is_stopped_and_reports_what_it_stored(
    gateway: Gateway, folder: Path, tmp_path: Path
) -> None:
    (folder / "out/report").write_text("7")
    wanted = [{"name": "report", "path": "/out/report"}, {"name": "more", "path": "/out/more", "optional": True}]
    environ = sidecar(gateway, folder, tmp_path / "log", wanted)
    assert stopped(_UPLOAD, environ).returncode == 0
    at = f"shop/uid-{tmp_path.name}/5-2"
    report = {"at": at, "files": {"report": [1, hashlib.sha256(b"7").hexdigest(), "None"]}}
    assert json.loads((tmp_path / "log").read_text()) == report
    assert gateway.object(f"{at}/report").read_text() == "7"


def test_uploading_a_large_file_takes_little_memory(gateway: Gateway, folder: Path, tmp_path: Path) -> None:
    size = 1024 * _MIB if os.environ.get("PERDURE_LONGER") else 256 * _MIB
    with (folder / "out/report").open("wb") as file:
        file.truncate(size)
    wanted = [{"name": "report", "path": "/out/report"}]
    environ = sidecar(gateway, folder, tmp_path / "log", wanted)
    assert _peak(_UPLOAD, environ) < 150 * _MIB
    at = json.loads((tmp_path / "log").read_text())["at"]
    assert gateway.object(f"{at}/report").stat().st_size == size
    (tmp_path / "volume").mkdir()
    inputs = [{"name": "report", "key": f"{at}/report"}]
    environ |= {"PERDURE_ARTIFACTS": json.dumps(inputs), "PERDURE_ARTIFACTS_FOLDER": str(tmp_path / "volume")}
    assert _peak([sys.executable, "-m", "perdure.runner.artifacts.input_artifacts"], environ) < 150 * _MIB
    assert (tmp_path / "volume/report").stat().st_size == size


def _peak(command: list[str], environ: dict[str, str]) -> int:
    """The most memory that a program has in use, in bytes."""
    done = stopped(command, environ)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1]) * 1024


def test_a_failed_upload_is_reported_in_the_termination_log(gateway: Gateway, folder: Path, tmp_path: Path) -> None:
    environ = sidecar(gateway, folder, tmp_path / "log", [{"name": "report", "path": "/out/report"}])
    with pytest.raises(ArtifactError):
        uploaded(environ)
    assert stopped(_UPLOAD, environ).returncode == 1
    error = json.loads((tmp_path / "log").read_text())["error"]
    assert error == {
        "type": "ArtifactMissing",
        "message": "artifact `report`: the container has ended, and `/out/report` does not exist",
    }


def test_a_part_of_an_object_is_written_to_the_log(gateway: Gateway) -> None:
    content = random.Random(1).randbytes(3 * _MIB)
    ArtifactStore(gateway.environ).upload("parts/a", iter([content]))
    reader = Reader.generate()
    environ = {
        **os.environ,
        **gateway.environ,
        "PERDURE_KEY": "parts/a",
        "PERDURE_RANGE": f"{_MIB}-{2 * _MIB + 7}",
        "PERDURE_READER": reader.public_key,
    }
    done = subprocess.run(
        [sys.executable, "-m", "perdure.runner.artifacts.export"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    first, *lines = done.stdout.splitlines()
    assert b"".join(map(reader.open(first).piece, lines)) == content[_MIB : 2 * _MIB + 7]
