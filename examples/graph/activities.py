"""The activities of the release: what runs in the pods. Needs an image with Python and `perdure.activity`."""

import ast
import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perdure import activity

LONGEST_LINE = 80
MODULE = "code_under_test.py"


def lint(params: dict[str, Any]) -> dict[str, Any]:
    """Read the code without running it: does it parse, and are its lines short?"""
    code = params["code"]
    try:
        ast.parse(code)
    except SyntaxError as error:
        raise activity.ApplicationError(f"line {error.lineno}: {error.msg}", type="LintFailed") from error
    long = [number for number, line in enumerate(code.splitlines(), start=1) if len(line) > LONGEST_LINE]
    if long:
        raise activity.ApplicationError(f"lines are too long: {long}", type="LintFailed")
    return {"lines": len(code.splitlines())}


def test(params: dict[str, Any]) -> dict[str, Any]:
    """Run the tests in a folder of their own."""
    with TemporaryDirectory() as folder:
        Path(folder, MODULE).write_text(params["code"], encoding="utf-8")
        Path(folder, "test_it.py").write_text(params["tests"], encoding="utf-8")
        command = [sys.executable, "-B", "-m", "unittest"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 (its own words)
    print(done.stderr)
    if done.returncode:
        raise activity.ApplicationError(done.stderr.strip().splitlines()[-1], type="TestsFailed")
    return {"tests": params["tests"].count("def test")}


def pack(params: dict[str, Any]) -> dict[str, Any]:
    """Create an archive; the same code gives the same bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"release-{params['version']}/{MODULE}"), params["code"])
    return {"bytes": len(data.getvalue()), "sha256": hashlib.sha256(data.getvalue()).hexdigest()[:16]}


def manual(params: dict[str, Any]) -> list[str]:
    """List the functions of the code."""
    return [node.name for node in ast.walk(ast.parse(params["code"])) if isinstance(node, ast.FunctionDef)]


if __name__ == "__main__":
    activity.main({"lint": lint, "test": test, "pack": pack, "manual": manual})
