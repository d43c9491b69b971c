"""One version of Python in all images, and the oldest one that Perdure supports on the machines of developers."""

import re
import sys
import tomllib
from pathlib import Path

from cluster import debian, nodeimage

REPOSITORY = Path(__file__).parents[3]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
BASE = re.search(
    r"^ARG BASE=python:(?P<python>[0-9.]+)-slim-(?P<debian>[a-z]+)@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE
)


def test_the_base_image_is_pinned_by_digest() -> None:
    assert BASE is not None


def test_the_image_built_offline_has_the_same_python_version() -> None:
    assert BASE is not None
    assert BASE["python"] == debian.PYTHON
    assert nodeimage.PYTHON_IMAGE.partition(":")[2] == BASE["python"]
    assert BASE["debian"] == debian.PYTHON_SUITE  # its python3 is the one that this release of Debian has
    major, minor = BASE["python"].split(".")
    assert f"sys.version_info[:2] == ({major}, {minor})" in DOCKERFILE
    assert f"Python {BASE['python']}" in DOCKERFILE


def test_lint_and_developer_environment_use_the_oldest_supported_version() -> None:
    (oldest,) = re.findall(r"^>=(3\.[0-9]+)$", PROJECT["project"]["requires-python"])
    activity = tomllib.loads((REPOSITORY / "packages/perdure-activity/pyproject.toml").read_text(encoding="utf-8"))
    assert activity["project"]["requires-python"] == f">={oldest}"
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert f"UV_PYTHON ?= {oldest}\n" in makefile


def test_tests_run_on_the_oldest_supported_version_or_on_that_of_the_image() -> None:
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert "{}.{}".format(*sys.version_info[:2]) in {oldest, debian.PYTHON}


def test_the_package_names_all_versions_from_the_oldest_to_that_of_the_image() -> None:
    first, last = (int(each.rpartition(".")[2]) for each in (PROJECT["project"]["requires-python"], debian.PYTHON))
    listed = re.findall(r"Python :: 3\.([0-9]+)", " ".join(PROJECT["project"]["classifiers"]))
    assert [int(each) for each in listed] == list(range(first, last + 1))
