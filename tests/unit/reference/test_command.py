"""The pages of docs/reference are written and checked."""

from pathlib import Path

import pytest

from reference.command import FOLDER, generated_pages, main
from support.manuals import REPOSITORY


def test_the_command_updates_and_removes_stale_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["--root", str(tmp_path)]
    assert main([*run, "--check"]) == 1
    assert f"{FOLDER}/metrics.md is stale: run `make generate`" in capsys.readouterr().err
    assert main(run) == main([*run, "--check"]) == 0
    folder = tmp_path / FOLDER
    (folder / "metrics.md").write_text("edited", encoding="utf-8")
    (folder / "cli" / "gone.md").touch()
    capsys.readouterr()
    assert main([*run, "--check"]) == 1
    assert capsys.readouterr().err.count(" is stale") == 2
    assert main(run) == main([*run, "--check"]) == 0
    assert not (folder / "cli" / "gone.md").exists()


def test_generated_pages_are_current() -> None:
    assert main(["--root", str(REPOSITORY), "--check"]) == 0


def test_no_page_contains_none_or_an_empty_meaning() -> None:
    rows = [line for text in generated_pages().values() for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 500
    words = [row for row in rows if not row.startswith("| `archive` |")]  # a value of this field is `None`
    assert [row for row in words if "None" in row or row.endswith("|  |")] == []
