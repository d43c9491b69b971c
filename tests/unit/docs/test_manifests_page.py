"""docs/manifests.md: its program writes its manifest, and the example's manifests are valid."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.manuals import REPOSITORY

PAGE = (REPOSITORY / "docs" / "manifests.md").read_text(encoding="utf-8")


def test_the_programs_on_the_page_do_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (manifest,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    for program in programs:
        exec(program, names)
    assert capsys.readouterr().out == f"{manifest}\n"


def test_the_example_writes_valid_manifests(tmp_path: Path) -> None:
    example = REPOSITORY / "examples" / "manifests" / "orders.py"
    written = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True).stdout
    assert written.count("kind: Workflow\n") == written.count("kind: Schedule\n") == 2
    file = tmp_path / "orders.yaml"
    file.write_text(written)
    command = "from perdure.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "lint", "--file", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
