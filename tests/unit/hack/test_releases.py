"""Earlier releases: the file that names them, their source, and their image."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import releases
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from perdure.api.state_versions import FIELD, NEWEST, version_of
from perdure.runtime.revisions import Content
from perdure.simulation.cluster.store import Object
from releases import Release
from simulated.scenarios.definitions import activity
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
stages = []
class Stage(forms._Stage):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        stages.append(self)
forms._Stage = Stage
known = {each.kind for each in forms.kinds().values()}
forms.finish([each for each in json.load(sys.stdin) if each["kind"] in known])
json.dump({"newest": NEWEST, "objects": [each for _, each in sorted(stages[0].server.objects.items())]}, sys.stdout)
"""
"""What the operator of a release makes of recorded objects, of kinds that it has; the argument: the module that finishes them."""
Key = tuple[str, str]
"""A kind, and the name of an object."""
NAP = {"name": "nap", "sleep": {"duration": "2h"}}
FOREIGN = {"name": "loop", "childWorkflow": {"workflow": {"name": "default/loop"}, "input": {"n": 0}}}
SERVED = {"name": "served", "services": [{"name": "db", "image": "db"}], "steps": [{"name": "one", "return": {}}]}
REVISION = Content(workflow="child", definition=forms.CHILD).build("default", 1)
REVISED = {"workflow": {"name": "child", "revision": REVISION["metadata"]["name"]}}
NEW_IN_DEFINITIONS: dict[str, Object] = {
    "labeled": {"activities": [activity("a", podMetadata={"labels": {"tier": "high"}})], "steps": [NAP]},
    "served": {"services": [{"name": "db", "image": "db"}], "steps": [NAP]},
    "caller-of-served": {"blocks": [SERVED], "steps": [NAP, {"name": "call", "call": {"block": "served"}}]},
}
"""Definitions with fields that the newest release does not know."""
IN_RUNS = {**{name: {"inline": each} for name, each in NEW_IN_DEFINITIONS.items()}, "revised": REVISED}
NEW_IN_SPECS: dict[Key, Object] = {
    **{("WorkflowRun", name): spec for name, spec in IN_RUNS.items()},
    **{("Workflow", name): spec for name, spec in NEW_IN_DEFINITIONS.items()},
    **{
        ("Schedule", name): {"intervals": [{"every": "1h"}], "workflowRunTemplate": {"spec": spec}}
        for name, spec in IN_RUNS.items()
    },
    ("WorkflowLimit", "calls"): {"capacity": 5, "rate": {"count": 3, "period": "1m", "counts": "Attempts"}},
    ("Operation", "start-revised"): {
        "target": {"kind": "WorkflowRun", "workflowId": "signaled-first"},
        "signalWithStart": {"name": "go", "start": REVISED},
    },
}
"""Specs with every field that the newest release does not know."""
NEW_VALUES: dict[Key, Object] = {
    ("WorkflowRun", "foreign"): {"workflow": {"name": "default/child"}},
    ("WorkflowRun", "parent-of-foreign"): {"inline": {"steps": [NAP, FOREIGN]}},
}
"""Specs with new values of fields that the newest release has."""
DEFAULTS = {
    "runMetadata": {"labels": {"team": "ours"}},
    "retention": {"ttlSecondsAfterFinished": 10_000_000, "failedRunsHistoryLimit": 100},
    "activities": {
        "retryPolicy": {"exponential": {"maximumAttempts": 3}},
        "podTemplate": {"spec": {"priorityClassName": "low"}},
    },
}
"""Defaults without labels of pods, which definitions of the newest release have no place for (`podMetadata`)."""
WIDER = {("workflow.name", "maxLength"), ("workflow.name", "pattern")}
"""For which fields of specs more values are valid than in the newest release: `needed` in api/state_versions.py knows them."""


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


def finished_by(source: Path, objects: list[Object]) -> dict[Key, Object]:
    """What the operator of a release makes of recorded objects, by kind and name. It does not have the kinds that are new."""
    (finish,) = (source / "tests" / "simulated").rglob("forms.py")
    module = ".".join(finish.relative_to(source / "tests").with_suffix("").parts)
    paths = ":".join(str(source / folder) for folder in ("operator", "tests", "hack"))
    done = subprocess.run(
        [sys.executable, "-c", FINISH, module],
        input=json.dumps(objects),
        env={**os.environ, "PYTHONPATH": paths},
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["newest"] == newest_of(source), "the code of the release"
    return by_key(found["objects"])


def crds(source: Path) -> dict[str, Object]:
    """The CRDs of a release, by the name of their file."""
    return {
        file.name: yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
        for file in sorted((source / "crds").glob("*.yaml"))
    }


def newest_of(source: Path) -> int:
    """The newest state version of a release."""
    return max(int(each.name) for each in (source / "tests/golden/forms").iterdir())


def by_key(objects: list[Object]) -> dict[Key, Object]:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def bytes_of(obj: Object) -> bytes:
    """An object without its conditions, and without the metadata that a write of them changes."""
    meta = {key: value for key, value in obj["metadata"].items() if key not in {"resourceVersion", "managedFields"}}
    status = {key: value for key, value in (obj.get("status") or {}).items() if key != "conditions"}
    return json.dumps({**obj, "metadata": meta, "status": status}).encode()


def newer_state(obj: Object) -> str:
    """The message of the condition that says that a newer version wrote an object; empty if there is none."""
    found = {each["type"]: each for each in (obj.get("status") or {}).get("conditions") or ()}
    reported = found.get("NewerState") or found.get("Ready") or {}
    return str(reported.get("message")) if reported.get("reason") == "NewerState" else ""


def test_the_newest_release_finishes_what_this_operator_stores_before_the_end_of_the_hold_back(cache: Cache) -> None:
    source = releases.source(cache, releases.releases()[0])
    stored = forms.record(defaults=DEFAULTS, whole=False, reads=newest_of(source)).objects
    assert any(
        "workflowDefaults" in str(each["status"].get("sources")) for each in stored if each["kind"] == "WorkflowRun"
    )
    found = finished_by(source, stored)
    runs = {key: obj for key, obj in found.items() if obj["kind"] == "WorkflowRun"}
    assert runs.keys() >= {key for key in by_key(stored) if key[0] == "WorkflowRun"}
    for key, run in runs.items():
        assert run["status"].get("completionTime"), (key, run["status"]["conditions"])
        assert run["status"][FIELD] == newest_of(source)


def test_the_newest_release_reports_what_has_a_newer_form_and_changes_not_a_byte_of_it(cache: Cache) -> None:
    source = releases.source(cache, releases.releases()[0])
    stored = by_key(forms.record().objects)
    newer = {key for key, obj in stored.items() if version_in(obj) > newest_of(source)}
    found = finished_by(source, list(stored.values()))
    found["Schedule", "every"]["spec"]["paused"] = False  # the story pauses it
    found["Schedule", "every"]["metadata"]["generation"] -= 1
    known = newer & found.keys()
    assert {kind for kind, _ in known} >= {"ArtifactSet", "CachedResult", "HistorySegment", "Schedule", "WorkflowRun"}
    assert {kind for kind, _ in newer - known} == {"WorkerDeployment", "WorkflowRevision"}, (
        "kinds that the release does not have"
    )
    assert {key: bytes_of(found[key]) for key in known} == {key: bytes_of(stored[key]) for key in known}
    for key in known:
        is_closed = "completionTime" in stored[key].get("status", {})
        if key[0] in {"WorkflowRun", "Schedule", "WorkflowLimit", "RetryPolicy"} and not is_closed:
            assert f"state version {NEWEST}, and this operator reads versions 1 to" in newer_state(found[key]), key
    runs, _ = forms.finish(stored.values())
    assert all(run["status"].get("completionTime") for run in runs.values()), "after the next upgrade"


def version_in(obj: Object) -> int:
    """The state version of an object; 1 if it has none."""
    return max(version_of(obj.get(part) or {}) for part in ("spec", "status"))


def test_the_newest_release_does_nothing_with_what_is_new_in_specs(cache: Cache) -> None:
    source = releases.source(cache, releases.releases()[0])
    new = {**NEW_IN_SPECS, **NEW_VALUES}
    more = {("WorkflowRevision", REVISION["metadata"]["name"]): REVISION["spec"], **new}
    stored = by_key(forms.record(more=more, whole=False, reads=newest_of(source)).objects)
    found = finished_by(source, list(stored.values()))
    for key in new:
        assert found[key]["spec"] == stored[key]["spec"]
        if key[0] in {"Workflow", "Schedule", "WorkflowLimit"}:
            ready = ready_condition(found[key])
            assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec"), key
            assert ready_condition(stored[key])["status"] == "True", key
        else:
            assert newer_state(found[key]), found[key]["status"]["conditions"]
        if key[0] == "WorkflowRun":
            assert bytes_of(found[key]) == bytes_of(stored[key])
    started = {name for kind, name in found if kind == "WorkflowRun"}
    assert not [each for each in started if each.startswith(tuple(f"{name}-" for name in IN_RUNS))], "by no Schedule"
    runs, others = forms.finish(stored.values())
    assert {runs[name]["status"]["phase"] for kind, name in new if kind == "WorkflowRun"} == {"Completed"}
    for kind, name in new:
        if kind == "Schedule":
            assert [each for each in runs if each.startswith(f"{name}-")], "after the next upgrade"
        if kind in {"Workflow", "WorkflowLimit"}:
            assert ready_condition(others[f"{kind}/{name}"])["status"] == "True"
    assert [run for run in runs.values() if run["spec"].get("workflowId") == "signaled-first"]


def ready_condition(obj: Object) -> Object:
    """The condition `Ready` of an object."""
    (found,) = [each for each in obj["status"]["conditions"] if each["type"] == "Ready"]
    return found


def test_all_new_fields_of_specs_are_in_the_test_of_the_newest_release(cache: Cache) -> None:
    before, after = crds(releases.source(cache, releases.releases()[0])), crds(REPOSITORY)
    for file, crd in before.items():
        kind = crd["spec"]["names"]["kind"]
        specs = [spec for (of, _), spec in NEW_IN_SPECS.items() if of == kind]
        for version in ("v1alpha1", "v1beta1"):
            known, now = fields_of(crd, version), fields_of(after[file], version)
            assert known <= now, f"{file}: a field that users may have written is gone"
            new = {path.removeprefix(".") for path in now - known if parent(path) in known}
            missing = {path for path in new if not any(has(each, path.split(".")) for each in specs)}
            assert missing == set(), f"{file}: add these fields to NEW_IN_SPECS"
            filled = {path for path, schema in spec_of(after[file], version).items() if "default" in schema} & (
                now - known
            )
            filled = {path for path in filled if parent(path) in known}
            assert filled == set(), (
                f"{file}: the API server writes these fields into all specs, which older operators reject"
            )


def fields_of(crd: Object, version: str) -> set[str]:
    """The paths of the fields that users write into the spec of a kind."""
    return set(spec_of(crd, version))


def spec_of(crd: Object, version: str) -> dict[str, Object]:
    """The schemas of the fields that users write into the spec of a kind, by path."""
    (found,) = [each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"] if each["name"] == version]
    spec = found["properties"]["spec"]
    if spec.get("x-kubernetes-preserve-unknown-fields"):  # operators store it in a state version
        return {}
    return dict(schemas_in(spec))


def parent(path: str) -> str:
    """The path of what contains a field, or the entries of a list or a map."""
    return path.removesuffix("[]") if path.endswith("[]") else path.rpartition(".")[0]


def has(value: Any, path: list[str]) -> bool:
    """Whether a value has a field."""
    if not path:
        return True
    name, rest = path[0].removesuffix("[]"), path[1:]
    found = value.get(name) if isinstance(value, dict) else None
    if not path[0].endswith("[]"):
        return found is not None and has(found, rest)
    entries = found.values() if isinstance(found, dict) else found or ()
    return any(has(each, rest) for each in entries)


OPTIONAL = {"enum", "maximum", "maxItems", "maxLength", "maxProperties", "minimum", "minItems", "minLength", "pattern"}
"""What restricts the values of a field in a CRD."""


def schemas_in(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """A schema, and those of all its fields, by path; `[]` is any entry of a list or a map."""
    yield path, schema
    for name, part in (schema.get("properties") or {}).items():
        yield from schemas_in(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from schemas_in(schema[key], f"{path}[]")


def limits_of(schema: Object) -> dict[tuple[str, str], Any]:
    """The type of each field of a schema, and what restricts its values."""
    keys = ("type", *OPTIONAL)
    return {(path, key): part[key] for path, part in schemas_in(schema) for key in keys if key in part}


def is_known(path: str, key: str) -> bool:
    """Whether `needed` knows which values of a field the newest release does not know."""
    return any(path.endswith(f".{field}") and key == changed for field, changed in WIDER)


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
