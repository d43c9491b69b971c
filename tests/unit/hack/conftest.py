"""Fixtures of tests of the scripts in ``hack/``."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def fake_proc(tmp_path: Path) -> "FakeProc":
    return FakeProc(tmp_path / "proc")


class FakeProc:
    """A /proc with as many processes as a test wants."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    def add(self, pid: int, *arguments: str, parent: int = 1) -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        (folder / "cmdline").write_bytes(b"".join(argument.encode() + b"\0" for argument in arguments))
        (folder / "stat").write_text(f"{pid} (a (strange) name) S {parent} 1 1 0")

    def add_self(self, *arguments: str) -> None:
        self.add(os.getpid(), *arguments)
