"""The tests of docs/python-testing.md pass."""

import os
import re
import subprocess
import sys
from pathlib import Path

from support.manuals import REPOSITORY

PAGE = (REPOSITORY / "docs" / "python-testing.md").read_text()


def test_the_tests_on_the_page_pass_and_show_its_report(tmp_path: Path) -> None:
    first = next(re.finditer(r"```python\n(.*?)```", PAGE, re.DOTALL))[1]
    report = next(re.finditer(r"```text\n(.*?)```", PAGE, re.DOTALL))[1]
    failing = first.replace("== 80", "== 81", 1)
    (tmp_path / "test_page.py").write_text(first)
    (tmp_path / "test_failing.py").write_text(failing)
    paths = [str(REPOSITORY / "operator"), str(REPOSITORY / "examples" / "flow")]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "perdure.flow.pytest_plugin", "-p", "no:cacheprovider"]
    options = ["-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)]
    shown = subprocess.run(
        [*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    ).stdout
    assert "1 failed, 3 passed" in shown, shown
    assert report in shown, shown
