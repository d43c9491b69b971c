"""Earlier releases: the file that names them, their source, and their image."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import releases
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from releases import Release
from simulated.versions import forms

SCRIPT = """\
import pathlib, sys
arguments = dict(each.removeprefix("--").split("=", 1) for each in sys.argv[2:])
print(arguments["tag"])
if "broken" in arguments["tag"]:
    sys.exit("no space left")
with pathlib.Path(arguments["out"]).open("x") as image:
    image.write(arguments["tag"])
"""
"""The scripts of a release, as far as images are concerned."""

FINISH = """\
import importlib, json, sys
from perdure.api.state_versions import NEWEST
forms = importlib.import_module(sys.argv[1])
runs, _ = forms.finish(json.load(sys.stdin))
json.dump({"newest": NEWEST, "statuses": {name: run["status"] for name, run in runs.items()}}, sys.stdout)
"""
"""What the operator of a release makes of recorded objects; the argument is the module of its tests that finishes them."""


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def with_scripts(cache: Cache, release: Release) -> None:
    scripts = cache.built / f"release-{release.commit[:12]}" / "hack" / "cluster"
    scripts.mkdir(parents=True)
    (scripts / "__main__.py").write_text(SCRIPT, encoding="utf-8")


def test_the_file_names_releases_with_the_newest_first() -> None:
    text = f"# a comment\n0.2.0 {'b' * 40}\n\n0.1.0 {'a' * 40}\n"
    assert releases.releases(text) == [Release("0.2.0", "b" * 40), Release("0.1.0", "a" * 40)]
    (newest, *_) = releases.releases()
    assert len(newest.commit) == 40
    assert newest.image == f"localhost/perdure:{newest.version}-{newest.commit[:12]}"


def test_the_source_is_that_of_the_commit(cache: Cache) -> None:
    git = ["git", "-C", str(REPOSITORY)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    folder = releases.source(cache, Release("0.0.1", commit))
    shown = subprocess.run([*git, "show", f"{commit}:README.md"], check=True, capture_output=True, text=True).stdout
    assert (folder / "README.md").read_text(encoding="utf-8") == shown
    assert not list(folder.glob(".tar"))
    (folder / "kept").touch()
    assert (releases.source(cache, Release("0.0.1", commit)) / "kept").exists(), "it is in the cache"


def test_released_state_versions_keep_their_recorded_forms(cache: Cache) -> None:
    for release in releases.releases():
        recorded = releases.source(cache, release) / forms.FORMS.relative_to(REPOSITORY)
        for file in recorded.rglob("*.json"):
            kept = forms.FORMS / file.relative_to(recorded)
            assert kept.read_bytes() == file.read_bytes(), f"{release.version} is released: add a state version"


def test_the_newest_release_finishes_what_this_operator_stores_before_the_end_of_the_hold_back(cache: Cache) -> None:
    release = releases.releases()[0]
    source = releases.source(cache, release)
    newest = max(int(each.name) for each in (source / "tests/golden/forms").iterdir())
    stored = forms.record(reads=newest)
    (finish,) = (source / "tests" / "simulated").rglob("forms.py")
    module = ".".join(finish.relative_to(source / "tests").with_suffix("").parts)
    paths = ":".join(str(source / folder) for folder in ("operator", "tests", "hack"))
    done = subprocess.run(
        [sys.executable, "-c", FINISH, module],
        input=json.dumps(stored),
        env={**os.environ, "PYTHONPATH": paths},
        cwd=source,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["newest"] == newest, "the code of the release"
    assert found["statuses"].keys() >= {run["metadata"]["name"] for run in stored if run["kind"] == "WorkflowRun"}
    for name, status in found["statuses"].items():
        assert status.get("completionTime"), (name, status["conditions"])
        assert status["stateVersion"] == newest


def test_a_commit_that_the_clone_does_not_have_is_an_error(cache: Cache) -> None:
    with pytest.raises(ClusterError, match=r"does not have the commit of 0\.0\.1: git fetch --unshallow"):
        releases.source(cache, Release("0.0.1", "0" * 40))


def test_the_image_is_built_once_by_the_scripts_of_the_release(cache: Cache) -> None:
    release = Release("0.0.1", "c" * 40)
    with_scripts(cache, release)
    archive = releases.image(cache, release)
    assert archive.read_text(encoding="utf-8") == release.image
    archive.write_text("kept", encoding="utf-8")
    assert releases.image(cache, release).read_text(encoding="utf-8") == "kept"


def test_an_image_that_cannot_be_built_is_an_error_with_the_output(cache: Cache) -> None:
    release = Release("0.0.1-broken", "d" * 40)
    with_scripts(cache, release)
    with pytest.raises(ClusterError, match=r"(?s)0\.0\.1-broken cannot be built:.*no space left"):
        releases.image(cache, release)
