"""Files and folders as values of flows: in a local run, and in what pods get."""

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from temporalio.exceptions import ActivityError

import perdure.flow as pf
from perdure.api.files import EXCHANGE
from perdure.api.kinds.workflow import WorkflowSpec
from perdure.api.values import codec_of
from perdure.flow.files import PodFiles, with_files
from perdure.flow.manifests import Placement, workflow_of
from perdure.language.containers import resolve
from perdure.runtime.pods.artifacts import with_artifacts

data = pf.Environment("data")
LINES = 100_000
STORED = {"store": "perdure-artifacts", "key": "ns/run/5-1/file-1", "size": 3, "sha256": "ab", "archive": "None"}


@dataclass
class Part:
    source: str
    rows: pf.File


class Bundle(pydantic.BaseModel):
    parts: list[Part]
    note: pf.File | None = None


class Struct(msgspec.Struct):
    rows: pf.File


@data.activity(retries=0)
def extract(source: str) -> Part:
    rows = pf.File.create("rows.csv")
    rows.path.write_text(f"{source}\n" * LINES)
    return Part(source, rows)


@data.activity(retries=0)
def join(parts: list[Part]) -> pf.Folder:
    folder = pf.Folder.create("all")
    for part in parts:
        (folder.path / part.source).write_bytes(part.rows.path.read_bytes())
    return folder


@data.activity(retries=0)
def count(folder: pf.Folder, again: pf.File | None = None) -> int:
    files = [*folder.path.iterdir(), *([] if again is None else [again.path])]
    return sum(len(each.read_text().splitlines()) for each in files)


@data.flow
async def sizes(sources: list[str]) -> int:
    parts = await pf.map(extract, sources)
    assert parts[0].rows.size == 3 * LINES
    folder = await join(parts)
    return await count(folder, parts[0].rows)


@data.flow
async def one(source: str) -> pf.File:
    return (await extract(source)).rows


def test_large_data_passes_as_references() -> None:
    run = pf.LocalRun()
    assert run.run(sizes, ["eu", "us"]) == 3 * LINES
    assert len(json.dumps([call.arguments for call in run.calls])) < 2000
    assert "perdure.dev/files" not in run.calls[-1].arguments
    assert run.calls[-1].arguments["again"] | {"sha256": "", "key": ""} == {
        "store": "perdure-artifacts",
        "key": "",
        "size": 3 * LINES,
        "sha256": "",
        "archive": "None",
        "name": "rows.csv",
    }


def test_a_test_can_read_the_file_that_a_flow_returns() -> None:
    found = one.run_local("eu")
    assert (found.name, found.path.read_text()[:3], found.size) == ("rows.csv", "eu\n", 3 * LINES)
    assert found.path.stat().st_mode & 0o222 == 0, "it cannot be changed, as in a pod"
    with open(found) as file:  # noqa: PTH123 - as users may
        assert file.readline() == "eu\n"


@data.activity(retries=0)
def wrong(kind: str) -> list[pf.File]:
    folder = pf.Folder.create("made").path
    match kind:
        case "missing":
            return [pf.File("/nowhere")]
        case "folder":
            return [pf.File(folder)]
        case _:
            (folder / "a").write_text("a")
            paths = [folder / str(number) for number in range(11)]
            for each in paths:
                each.write_text("a")
            return [pf.File(each) for each in paths]


@data.flow
async def fails(kind: str) -> int:
    return len(await wrong(kind))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "/nowhere does not exist"),
        ("folder", "is a folder: return a pf.Folder"),
        ("many", "at most 10 files: write more to one pf.Folder"),
    ],
)
def test_what_cannot_be_stored_is_reported(kind: str, message: str) -> None:
    with pytest.raises(ActivityError) as caught:
        fails.run_local(kind)
    assert message in str(caught.value.__cause__)


def test_a_flow_has_no_content_and_makes_no_files() -> None:
    @data.flow
    async def reads(source: str) -> str:
        return (await extract(source)).rows.path.read_text()

    @data.flow
    async def makes() -> pf.File:
        return pf.File("/etc/hosts")

    with pytest.raises(Exception, match="read it in an activity that gets it as an argument"):
        reads.run_local("eu")
    with pytest.raises(Exception, match="return it from an activity, which stores it"):
        makes.run_local()


def test_types_with_files_are_found() -> None:
    kinds: list[Any] = [pf.File, pf.Folder | None, list[Part], Bundle, dict[str, Bundle], Struct, list[Struct]]
    assert [codec_of(each).has_files for each in kinds] == [True] * len(kinds)
    assert not codec_of(list[str]).has_files
    assert codec_of(Struct).decode({"rows": STORED}, "it").rows == pf.File.from_reference(STORED)
    assert codec_of(Struct).encode(Struct(pf.File.from_reference(STORED)), "it") == {"rows": STORED}


def test_the_manifest_declares_the_artifacts() -> None:
    workflow = workflow_of(data, Placement(image="python", module="data"))
    WorkflowSpec.model_validate(workflow["spec"])
    activities = {each["name"]: each.get("artifacts", {}) for each in workflow["spec"]["activities"]}
    assert [activities["extract"].keys(), activities["join"].keys(), activities["count"].keys()] == [
        {"outputs"},
        {"inputs", "outputs"},
        {"inputs"},
    ]
    assert len(activities["extract"]["outputs"]) == 10


def test_the_pod_gets_the_files_of_its_arguments() -> None:
    spec = workflow_of(data, Placement(image="python", module="data"))["spec"]
    definition = next(each for each in WorkflowSpec.model_validate(spec).activities if each.name == "count")
    archive = {**STORED, "archive": "Tar"}

    def wanted(arguments: dict[str, Any]) -> Any:
        resolved = resolve(definition, input=with_files(arguments), run={}, attempt=1)
        spec = with_artifacts(resolved, "image").dump()["podTemplate"]["spec"]
        return json.loads(spec["initContainers"][0]["env"][0]["value"])

    [folder] = wanted({"folder": archive, "again": None})
    assert folder == {"name": "files", "items": [{"key": STORED["key"], "sha256": "ab", "archive": "Tar"}]}
    assert wanted({"again": None}) == []


def test_settings_of_the_store_are_kept() -> None:
    other = pf.Environment("other")

    @other.activity(definition={"artifacts": {"store": "team", "outputs": [{"name": "log", "path": "/out/log"}]}})
    def make() -> pf.File: ...

    [activity] = workflow_of(other, Placement(image="python", module="data"))["spec"]["activities"]
    assert activity["artifacts"]["store"] == "team"
    assert [each["name"] for each in activity["artifacts"]["outputs"]][:2] == ["log", "file-1"]


def test_outputs_of_its_own_take_the_places_of_files() -> None:
    own = pf.Environment("own")

    @own.activity(definition={"artifacts": {"outputs": [{"name": "log", "path": "/out/log"}]}})
    def make() -> pf.File: ...

    spec = WorkflowSpec.model_validate(workflow_of(own, Placement(image="python", module="data"))["spec"])
    artifacts = spec.activities[0].artifacts
    assert artifacts is not None
    assert [each.name for each in artifacts.outputs] == ["log", *(f"file-{number}" for number in range(1, 10))]


def test_a_local_store_changes_only_what_it_has(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    outside.chmod(0o640)

    @data.activity()
    def link() -> list[pf.File | pf.Folder]:
        folder = pf.Folder.create("links")
        (folder.path / "outside").symlink_to(outside)
        (folder.path / "missing").symlink_to(tmp_path / "missing")
        (folder.path / "own").write_text("ours")
        return [pf.File(folder.path / "own"), folder]

    @data.flow
    async def linked() -> list[pf.File | pf.Folder]:
        return await link()

    file, folder = pf.LocalRun().run(linked)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o640
    assert file.path.read_text() == (folder.path / "own").read_text() == "ours"
    assert stat.S_IMODE((folder.path / "own").stat().st_mode) == 0o444


def test_a_pod_reads_its_inputs_and_names_its_outputs(tmp_path: Path) -> None:
    inputs, outputs = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    (inputs / "0").write_text("eu\n")
    stored = with_files({"parts": [{"source": "eu", "rows": STORED}, {"source": "us", "rows": STORED}]})
    assert stored["perdure.dev/files"] == [STORED]
    token = EXCHANGE.set(PodFiles(stored.pop("perdure.dev/files"), inputs, outputs))
    try:
        result = join.run(stored)
        assert result == {"perdure.dev/artifact": "file-1", "name": "all"}
        assert (outputs / "file-1" / "eu").read_text() == "eu\n"
        with pytest.raises(pf.ValueTypeError, match="must list it in"):
            count.run({"folder": {**STORED, "key": "other", "archive": "Tar"}})
        with pytest.raises(pf.ValueTypeError, match="reference to a folder"):
            count.run({"folder": STORED})
    finally:
        EXCHANGE.reset(token)
