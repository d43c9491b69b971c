"""Only the artifacts of deleted runs are deleted from a real S3 server, even if requests fail."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from perdure.runner.artifacts.deletion import deleted
from perdure.runner.artifacts.store import ArtifactStore
from support.artifacts.gateway import Gateway, serving
from support.ports import free_port
from unit.runner.artifacts.proxy import proxied

_IMPATIENT = timedelta(seconds=1)
_MANY = 120
"""More than one page of a list."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("gateway"), free_port()) as found:
        yield found


def store(gateway: Gateway, *keys: str) -> None:
    for key in keys:
        ArtifactStore(gateway.environ).upload(key, iter([key.encode()]))


def delete(environ: dict[str, str], *folders: str, seconds: float = 60) -> dict[str, object]:
    return deleted({**environ, "PERDURE_FOLDERS": json.dumps(folders)}, patience=_IMPATIENT, seconds=seconds)


def test_only_objects_in_the_folders_are_deleted(gateway: Gateway) -> None:
    gone = [f"shop/uid-1/{i}-1/report" for i in range(_MANY)] + ["shop/uid-2/5-3/log.tar.gz"]
    kept = ["shop/uid-10/5-1/report", "shop/kept/uid-1/5-1/report", "stop/uid-1/5-1/report", "shop/uid-1x"]
    store(gateway, *gone, *kept)
    assert delete(gateway.environ, "shop/uid-1", "shop/uid-2", "shop/uid-3") == {}
    assert [key for key in gone if gateway.object(key).exists()] == []
    assert [key for key in kept if not gateway.object(key).exists()] == []
    assert delete(gateway.environ, "shop/uid-1") == {}, "repeating it is harmless"


@pytest.mark.parametrize(
    "changed",
    [
        {"PERDURE_STORE_SECRET_ACCESS_KEY": "wrong"},
        {"PERDURE_STORE_ACCESS_KEY_ID": "nobody"},
        {"PERDURE_STORE_BUCKET": "no-such-bucket"},
        {"PERDURE_STORE_ENDPOINT": "no URL"},
    ],
    ids=["secret", "key", "bucket", "endpoint"],
)
def test_invalid_settings_are_reported_without_the_secret(gateway: Gateway, changed: dict[str, str]) -> None:
    store(gateway, "shop/uid-4/5-1/report")
    report = delete({**gateway.environ, **changed}, "shop/uid-4", "shop/uid-5")
    assert report["failed"] == [0, 1]
    assert "the artifact store" in str(report["error"])
    assert gateway.environ["PERDURE_STORE_SECRET_ACCESS_KEY"] not in str(report["error"])
    assert gateway.object("shop/uid-4/5-1/report").exists()


def test_an_unreachable_store_is_reported_and_a_retry_succeeds(gateway: Gateway) -> None:
    store(gateway, "shop/uid-6/5-1/report")
    with proxied(gateway.port) as proxy:
        proxy.left = 0
        environ = {**gateway.environ, "PERDURE_STORE_ENDPOINT": f"http://127.0.0.1:{proxy.port}"}
        assert delete(environ, "shop/uid-6")["failed"] == [0]
        assert gateway.object("shop/uid-6/5-1/report").exists()
        proxy.left = None
        assert delete(environ, "shop/uid-6") == {}
    assert not gateway.object("shop/uid-6/5-1/report").exists()


def test_folders_are_left_for_the_next_pod_when_time_runs_out(gateway: Gateway) -> None:
    store(gateway, "shop/uid-7/5-1/report")
    report = delete(gateway.environ, "shop/uid-7", seconds=-1)
    assert report == {"failed": [0], "error": "there was not enough time"}
    assert gateway.object("shop/uid-7/5-1/report").exists()


@pytest.mark.parametrize(("key", "code"), [("", 0), ("nobody", 1)])
def test_the_program_reports_to_the_termination_log(gateway: Gateway, tmp_path: Path, key: str, code: int) -> None:
    store(gateway, "shop/uid-8/5-1/report")
    environ = {**os.environ, **gateway.environ, "PERDURE_FOLDERS": '["shop/uid-8"]'}
    environ |= {
        "PERDURE_TERMINATION_LOG": str(tmp_path / "log"),
        **({"PERDURE_STORE_ACCESS_KEY_ID": key} if key else {}),
    }
    done = subprocess.run(
        [sys.executable, "-m", "perdure.runner.artifacts.deletion"], env=environ, check=False, timeout=120
    )
    assert done.returncode == code
    assert json.loads((tmp_path / "log").read_text()).get("failed", []) == [0] * code
    assert gateway.object("shop/uid-8/5-1/report").exists() is bool(code)
