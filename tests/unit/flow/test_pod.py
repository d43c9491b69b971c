"""The entry point of activities' pods."""

import os
import subprocess
import sys
from pathlib import Path

from support.manuals import REPOSITORY

MODULE = """
import logging
import perdure.flow as pf

shop = pf.Environment("shop")


@shop.activity()
def charge(amount: int) -> int:
    logging.getLogger("shop").info("charging %d", amount)
    return amount
"""


def log_of(folder: Path, code: str, *environments: str, result: str = "7") -> str:
    (folder / "shop.py").write_text(code)
    pod = {"PERDURE_ACTIVITY": "charge", "PERDURE_INPUT": '{"amount": 7}'}
    command = [sys.executable, "-m", "perdure.flow.pod", str(folder / "shop.py"), *environments]
    environment = {**os.environ, **pod, "PYTHONPATH": str(REPOSITORY / "operator")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"{result}\n"
    return done.stderr


def test_a_pod_runs_the_activity_of_its_environment(tmp_path: Path) -> None:
    other = """
other = pf.Environment("vault")


@other.activity()
def charge_(amount: int) -> int:
    return -amount
"""
    log_of(tmp_path, MODULE + other, "shop")
    log_of(tmp_path, MODULE + other, "vault", result="-7")


def test_the_log_of_a_pod_has_what_the_function_logs(tmp_path: Path) -> None:
    assert log_of(tmp_path, MODULE).endswith("INFO shop: charging 7\n")


def test_a_module_decides_about_its_log(tmp_path: Path) -> None:
    own = MODULE.replace("import perdure", 'logging.basicConfig(level="INFO", format="%(message)s")\nimport perdure', 1)
    assert log_of(tmp_path, own) == "charging 7\n"


def test_a_pod_has_its_workspaces(tmp_path: Path) -> None:
    mounted = MODULE.replace(
        "@shop.activity()", "files = pf.Workspace('files', size='1Gi')\n\n\n@shop.activity(workspace=files)"
    )
    mounted = mounted.replace("def charge(", "async def charge(").replace(
        '"charging %d", amount', '"files in %s", files.path'
    )
    assert log_of(tmp_path, mounted).endswith("INFO shop: files in /workspaces/files\n")
