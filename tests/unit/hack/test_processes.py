import subprocess
from pathlib import Path
from typing import Any

import pytest

from cluster import processes

MARKER = "/cache/docker/daemon.json"


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ("41", 41),
        ("41\n", 41),
        ("42", None),
        ("43", None),
        ("99", None),
        ("", None),
        ("garbage", None),
    ],
    ids=[
        "the process it was written for",
        "with a line end",
        "another process with the same ID",
        "a zombie, whose command line is empty",
        "no process",
        "an empty file of a killed daemon",
        "no number",
    ],
)
def test_a_pid_file_counts_only_for_a_process_with_the_marker(
    tmp_path: Path, fake_proc: Any, content: str, want: int | None
) -> None:
    fake_proc.add(41, "/usr/sbin/dockerd", "--config-file", MARKER)
    fake_proc.add(42, "/usr/sbin/dockerd")
    fake_proc.add(43)
    file = tmp_path / "docker.pid"
    file.write_text(content)
    assert processes.pid_from_file(file, MARKER, fake_proc.root) == want


def test_no_pid_file_means_no_process(tmp_path: Path, fake_proc: Any) -> None:
    assert processes.pid_from_file(tmp_path / "absent", MARKER, fake_proc.root) is None


def test_processes_with_a_marker_are_found_except_this_one(fake_proc: Any) -> None:
    fake_proc.add(7, "containerd-shim", "-address", "/cache/docker/run/exec/containerd.sock")
    fake_proc.add(8, "containerd-shim", "-address", "/run/containerd/containerd.sock")
    fake_proc.add_self("python3", "/cache/docker/run")
    assert processes.find("/cache/docker/run", fake_proc.root) == [7]


def test_children_are_found_when_process_names_contain_brackets(fake_proc: Any) -> None:
    fake_proc.add(7, "containerd-shim")
    fake_proc.add(8, "systemd", parent=7)
    fake_proc.add(9, "bash", parent=8)
    assert processes.children({7}, fake_proc.root) == [8]


def test_only_a_process_with_the_marker_is_stopped() -> None:
    marker = "perdure-test-marker"
    with subprocess.Popen(["sleep", "60"]) as other:
        processes.stop(other.pid, marker, grace=1)
        assert other.poll() is None
        other.kill()
    with subprocess.Popen([marker, "60"], executable="sleep") as ours:
        while not processes.is_ours(ours.pid, marker):
            pass
        processes.stop(ours.pid, marker, grace=5)
        assert ours.wait(timeout=5) == -15
