"""Workspaces of flows: in manifests, in pods, in local runs, and in functions that are called directly."""

import os
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ActivityError, ApplicationError

import perdure.flow as pf
from perdure.api.kinds.workflow import WorkflowSpec
from perdure.flow.manifests import Placement, workflow_of
from perdure.flow.workspaces import FOLDERS, folders_in_pod
from perdure.language.checks import check

files = pf.Workspace("files", size="10Gi", access="ReadWriteMany", storage_class="nfs", keep=True)
team = pf.Workspace("team", claim="team-data")
build = pf.Environment("build", image="example.com/build:1")
tests = pf.Environment("tests", image="example.com/tests:1")


@build.activity(workspace=files, retries=0)
def write(name: str) -> None:
    (files.path / name).write_text(name)


@tests.activity(workspace=(files.read_only, team))
def read(names: list[str]) -> int:
    (team.path / "read").touch()
    return sum(len((files.path / name).read_text()) for name in names)


@tests.activity(retries=0)
def lost() -> str:
    return str(files.path)


@build.flow
async def written(names: list[str]) -> int:
    await pf.map(write, names)
    return await read(names)


@build.flow
async def apart(names: list[str]) -> str:
    await written(names)
    return str(team.path)


@build.flow
async def strayed() -> str:
    return await lost()


def test_a_workflow_has_the_workspaces_that_its_activities_mount() -> None:
    found = {}
    for environment in (build, tests):
        workflow = workflow_of(environment, Placement(image="python", module="build"))
        spec = WorkflowSpec.model_validate(workflow["spec"])
        assert [each.message for each in check(spec).findings if "workspace" in each.message] == []
        found[environment.name] = workflow["spec"]
    claim = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "nfs",
    }
    ours = {"name": "files", "volumeClaimTemplate": {"spec": claim}, "retention": {"onSuccess": "Keep"}}
    assert found["build"]["workspaces"] == [ours]
    assert found["tests"]["workspaces"] == [ours, {"name": "team", "persistentVolumeClaim": {"claimName": "team-data"}}]
    mounts = [each.get("workspaces") for each in found["tests"]["activities"]]
    assert mounts == [[{"name": "files", "readOnly": True}, {"name": "team"}], None]
    assert "workspaces" not in workflow_of(pf.Environment("plain"), Placement(image="python", module="m"))["spec"]


def test_the_files_are_where_the_pod_mounts_them() -> None:
    token = FOLDERS.set(folders_in_pod([files.read_only, team]))
    try:
        assert (files.path, team.path, os.fspath(team)) == (
            Path("/workspaces/files"),
            Path("/workspaces/team"),
            "/workspaces/team",
        )
    finally:
        FOLDERS.reset(token)


def test_a_local_run_has_folders_that_a_test_can_fill_and_read() -> None:
    run, other = pf.LocalRun(), pf.LocalRun()
    (run.folder_of(files) / "given").write_text("12345")
    assert run.run(written, ["given", "made"]) == len("given") + len("made")
    assert sorted(each.name for each in run.folder_of(files).iterdir()) == ["given", "made"]
    assert list(other.folder_of(files).iterdir()) == []


def test_a_child_has_volumes_of_its_own_and_shares_claims() -> None:
    run = pf.LocalRun()
    with pytest.raises(ApplicationError, match="the workspace `team` is not here"):
        run.run(apart, ["a"])
    assert list(run.folder_of(files).iterdir()) == []
    assert [each.name for each in run.folder_of(team).iterdir()] == ["read"]


def test_an_activity_has_only_what_it_mounts() -> None:
    with pytest.raises(ActivityError) as caught:
        strayed.run_local()
    assert "only activities with `workspace=…` of it have its files" in str(caught.value.cause)


def test_functions_share_a_folder_when_they_are_called_directly() -> None:
    write.function("direct")
    assert read.function(["direct"]) == len("direct")


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("Files", {"size": "1Gi"}, "the name of a workspace must have lowercase letters"),
        ("files", {}, "give `size` of the workspace `files`, such as `10Gi`, or `claim`"),
        ("files", {"size": "1Gi", "claim": "c"}, "give `size` of the workspace `files`"),
        ("files", {"size": "much"}, "`size` of the workspace `files` must be a quantity"),
        ("files", {"size": "1Gi", "access": "All"}, "`access` of the workspace `files` must be ReadWriteOnce"),
    ],
)
def test_mistakes_are_named(name: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        pf.Workspace(name, **options)


def test_two_workspaces_of_a_name_are_refused() -> None:
    mixed = pf.Environment("mixed")

    @mixed.activity(workspace=files)
    def first() -> None: ...

    @mixed.activity(workspace=pf.Workspace("files", size="1Gi"))
    def second() -> None: ...

    with pytest.raises(
        ValueError, match="the activity `second` mounts another workspace named `files` than the others"
    ):
        workflow_of(mixed, Placement(image="python", module="m"))
