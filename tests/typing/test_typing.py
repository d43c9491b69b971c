"""Users' programs are clean in mypy and pyright, in their strict modes; what is wrong in them, both report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.manuals import REPOSITORY

HERE = Path(__file__).parent
OPERATOR = REPOSITORY / "operator"
PROGRAMS = sorted(file for file in HERE.glob("*.py") if not file.name.startswith("test_"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda file: file.stem)
def test_mypy_agrees(program: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "mypy.ini"
    options = [
        "strict = true",
        f"cache_dir = {tmp_path / 'cache'}",
        f"mypy_path = {OPERATOR}",
        "follow_imports = silent",
    ]
    configuration.write_text("\n".join(["[mypy]", *options]))
    command = [sys.executable, "-m", "mypy", f"--config-file={configuration}", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Success"), done.stdout + done.stderr


def test_pyright_agrees(tmp_path: Path) -> None:
    configuration = tmp_path / "pyrightconfig.json"
    settings = {
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
        "reportMissingTypeStubs": "none",
    }
    settings |= {"enableTypeIgnoreComments": False, "reportUnusedExpression": "none"}
    configuration.write_text(
        json.dumps({**settings, "include": list(map(str, PROGRAMS)), "extraPaths": [str(OPERATOR)]})
    )
    command = [sys.executable, "-m", "basedpyright", f"--project={configuration}", f"--pythonpath={sys.executable}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("0 errors"), done.stdout + done.stderr
