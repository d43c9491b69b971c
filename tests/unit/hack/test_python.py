"""One version of Python everywhere: the maximum nesting of JSON depends on it."""

import re
import sys
import tomllib
from pathlib import Path

from cluster import debian, nodeimage

REPOSITORY = Path(__file__).parents[3]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
BASE = re.search(
    r"^ARG BASE=python:(?P<python>[0-9.]+)-slim-(?P<debian>[a-z]+)@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE
)


def test_the_base_image_is_pinned_by_digest() -> None:
    assert BASE is not None


def test_tests_run_on_the_python_version_of_the_image() -> None:
    assert BASE is not None
    assert BASE["python"] == "{}.{}".format(*sys.version_info[:2])


def test_the_image_built_offline_has_the_same_python_version() -> None:
    assert BASE is not None
    assert nodeimage.PYTHON_IMAGE.partition(":")[2] == BASE["python"]
    assert BASE["debian"] == debian.SUITE  # its python3 is the one that this release of Debian has


def test_lint_and_developer_environment_use_the_python_version_of_the_image() -> None:
    assert BASE is not None
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["mypy"]["python_version"] == BASE["python"]
    assert project["tool"]["ruff"]["target-version"] == "py" + BASE["python"].replace(".", "")
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert f"UV_PYTHON ?= {BASE['python']}\n" in makefile
    assert f"Python {BASE['python']}" in DOCKERFILE
