import subprocess
from pathlib import Path

import pytest

import version
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with the version and its copy."""
    files = {
        version.SOURCE: 'VERSION = "0.1.0"\n',
        version.CHART: "name: perdure\nversion: 0.1.0-dev\nappVersion: 0.1.0-dev\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_copy_in_this_checkout_is_current() -> None:
    assert version.differing(REPOSITORY) == []


def test_setting_the_version_changes_the_chart(tree: Path) -> None:
    assert version.set_version(tree, "0.2.0") == [version.SOURCE, version.CHART]
    assert version.declared_version(tree) == "0.2.0"
    assert "version: 0.2.0-dev\nappVersion: 0.2.0-dev\n" in (tree / version.CHART).read_text()
    assert version.differing(tree) == []


def test_a_differing_copy_is_found(tree: Path) -> None:
    (tree / version.CHART).write_text("version: 0.1.0-dev\nappVersion: 0.3.0-dev\n")
    assert version.differing(tree) == ["0.3.0"]


@pytest.mark.parametrize("wanted", ["1.0", "v0.2.0", "0.2.0-rc.1"])
def test_a_version_is_three_numbers(tree: Path, wanted: str) -> None:
    with pytest.raises(ClusterError, match="must be three numbers"):
        version.set_version(tree, wanted)


def test_a_chart_without_a_version_is_an_error(tree: Path) -> None:
    (tree / version.CHART).write_text("version: 0.1.0\n")
    with pytest.raises(ClusterError, match="must have `version` and `appVersion`"):
        version.differing(tree)


def test_no_other_file_repeats_the_image_with_a_version() -> None:
    image = "localhost" + "/perdure"
    found = subprocess.run(
        ["git", "grep", "-I", "--line-number", "--extended-regexp", rf"{image}:[0-9]+\.[0-9]"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    recorded = ("CHANGELOG.md", "tests/golden/", "tests/fidelity/recorded/")
    assert [line for line in found.stdout.splitlines() if not line.startswith(recorded)] == []
