import subprocess
from pathlib import Path

import pytest

import version
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY

IMAGE = "localhost" + "/perdure"
"""In two parts: the copies in this file are not those of the version."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with the version and its copies."""
    files = {
        version.SOURCE: 'VERSION = "0.1.0"\n',
        version.CHART: "name: perdure\nversion: 0.1.0-dev\nappVersion: 0.1.0-dev\n",
        "docs/start.md": f"image: {IMAGE}:0.1.0 # any image\n",
        "CHANGELOG.md": f"{IMAGE}:0.0.9\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_the_copies_in_this_checkout_are_current() -> None:
    assert version.differing(REPOSITORY) == []


def test_setting_the_version_changes_all_copies(tree: Path) -> None:
    assert version.set_version(tree, "0.2.0") == [version.SOURCE, version.CHART, "docs/start.md"]
    assert version.declared_version(tree) == "0.2.0"
    assert "version: 0.2.0-dev\nappVersion: 0.2.0-dev\n" in (tree / version.CHART).read_text()
    assert (tree / "docs/start.md").read_text() == f"image: {IMAGE}:0.2.0 # any image\n"
    assert (tree / "CHANGELOG.md").read_text() == f"{IMAGE}:0.0.9\n"
    assert version.differing(tree) == []


def test_a_differing_copy_is_found(tree: Path) -> None:
    (tree / "docs/start.md").write_text(f"{IMAGE}:0.3.0")
    assert version.differing(tree) == ["docs/start.md: 0.3.0"]


@pytest.mark.parametrize("wanted", ["1.0", "v0.2.0", "0.2.0-rc.1"])
def test_a_version_is_three_numbers(tree: Path, wanted: str) -> None:
    with pytest.raises(ClusterError, match="must be three numbers"):
        version.set_version(tree, wanted)


def test_a_chart_without_a_version_is_an_error(tree: Path) -> None:
    (tree / version.CHART).write_text("version: 0.1.0\n")
    with pytest.raises(ClusterError, match="must have `version` and `appVersion`"):
        version.differing(tree)
