"""The wheel `perdure-activity`: the helper, and nothing else."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from support.manuals import REPOSITORY

PROJECT = REPOSITORY / "packages" / "perdure-activity"


def build(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_contains_the_helper_and_has_no_dependencies(tmp_path: Path) -> None:
    wheel = build(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
        archive.extractall(tmp_path / "site")
    code = [name for name in names if ".dist-info/" not in name]
    assert code
    assert all(name.startswith("perdure/activity/") and name.endswith(".py") for name in code)
    assert "Requires-Dist" not in text
    script = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); from perdure import activity; activity.run(lambda: 1)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], env={}, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "1\n"


def test_the_wheel_has_the_version_of_the_project() -> None:
    root = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    package = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    theirs, ours = (each["tool"]["hatch"]["version"] for each in (root, package))
    assert (PROJECT / ours.pop("path")).resolve() == REPOSITORY / theirs.pop("path")
    assert ours == theirs
    assert package["project"]["requires-python"] == root["project"]["requires-python"]
