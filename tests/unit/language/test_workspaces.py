"""Findings about the workspaces of a definition before it runs."""

from typing import Any

import pytest

from perdure.api.kinds.workflow import Activity, WorkflowSpec
from perdure.language import containers
from perdure.language.checks import check
from perdure.language.step_failures import StepError

RUN = {"name": "order-1", "namespace": "shop", "workflowId": "order", "runId": "uid"}

_TAKEN = "Perdure reserves {} in the activity's pod; choose another one"


def findings_of(*mounts: dict[str, Any], **activity: Any) -> list[str]:
    work = {"name": "work", "startToCloseTimeout": "1m", "container": {"image": "i"}, **activity}
    spec = {
        "workspaces": [{"name": "files", "emptyDir": {}}],
        "activities": [{**work, "workspaces": list(mounts)}],
        "steps": [{"name": "do", "activity": {"name": "work"}}],
    }
    return [f"{finding.severity.value} {finding}" for finding in check(WorkflowSpec.parse(spec)).findings]


def test_valid_workspaces_are_accepted() -> None:
    assert findings_of({"name": "files"}, {"name": "files", "mountPath": "/parts", "subPath": "${input.part}/in"}) == []


@pytest.mark.parametrize(
    ("mounts", "want"),
    [
        (
            [{"name": "fils"}, {"name": "files"}],
            ["Error spec.activities[0].workspaces[0].name: workspace `fils` is not defined in `workspaces`; defined:"],
        ),
        ([], ["Warning spec.workspaces[0]: no activity mounts workspace `files`; remove it"]),
        (
            [{"name": "files"}, {"name": "files", "mountPath": "/workspaces/files/"}],
            ["Error spec.activities[0].workspaces[1].mountPath: another workspace or artifact is already mounted at"],
        ),
        (
            [{"name": "files", "mountPath": "/perdure"}],
            [
                "Error spec.activities[0].workspaces[0].mountPath: Perdure reserves a mount at `/perdure` in the activity's pod;"
            ],
        ),
        (
            [{"name": "files", "subPath": "../other"}],
            ["Error spec.activities[0].workspaces[0].subPath: must be a relative path without `..`"],
        ),
        (
            [{"name": "files", "subPath": "${nobody}"}],
            ["Error spec.activities[0].workspaces[0].subPath: `nobody`: unknown name `nobody`"],
        ),
    ],
    ids=["unknown", "unused", "twice", "reserved", "outside", "expression"],
)
def test_invalid_workspaces_are_reported(mounts: list[dict[str, Any]], want: list[str]) -> None:
    found = findings_of(*mounts)
    assert len(found) == len(want), found
    assert all(each.startswith(part) for each, part in zip(found, want, strict=True)), found


def test_volumes_of_a_template_must_not_have_names_of_workspaces() -> None:
    spec = {
        "volumes": [{"name": "workspace-files", "emptyDir": {}}],
        "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "x", "mountPath": "/workspaces/files"}]}],
    }
    found = findings_of({"name": "files"}, container=None, podTemplate={"spec": spec})
    assert [each.partition(": ") for each in found] == [
        (
            "Error spec.activities[0].podTemplate.spec.volumes[0].name",
            ": ",
            _TAKEN.format("a volume named `workspace-files`"),
        ),
        (
            "Error spec.activities[0].podTemplate.spec.containers[0].volumeMounts[0].mountPath",
            ": ",
            _TAKEN.format("a mount at `/workspaces/files`"),
        ),
    ]


def test_invalid_artifacts_are_reported() -> None:
    inputs = [
        {"name": "a", "path": "/workspaces/files/", "raw": {"data": "${input.text}"}},
        {"name": "b", "path": "/b", "http": {"url": "s3://bucket/file"}},
        {"name": "c", "path": "/c", "http": {"url": "${input.url}", "sha256": "${nobody}"}},
    ]
    found = findings_of({"name": "files"}, artifacts={"inputs": inputs})
    assert [each.partition("; the available names")[0].removeprefix("Error spec.activities[0].") for each in found] == [
        "artifacts.inputs[0].path: another workspace or artifact is already mounted at `/workspaces/files`",
        "artifacts.inputs[1].http.url: must begin with `http://` or `https://`",
        "artifacts.inputs[2].http.sha256: `nobody`: unknown name `nobody`",
    ]


def test_artifacts_are_evaluated() -> None:
    inputs = [
        {"name": "a", "path": "/a", "raw": {"data": "$(A) ${input.n}"}},
        {
            "name": "b",
            "path": "/b",
            "http": {"url": "http://shop.test/${input.n}?attempt=${attempt}", "sha256": "${input.hash}"},
        },
    ]
    work = {"name": "a", "startToCloseTimeout": "1m", "container": {"image": "i"}, "artifacts": {"inputs": inputs}}
    found = containers.resolve(Activity.parse(work), input={"n": 3, "hash": "ab"}, run=RUN, attempt=2).artifacts
    assert found is not None
    text, file = found.inputs
    assert text.raw is not None
    assert text.raw.data == "$(A) 3"
    assert file.http is not None
    assert (file.http.url, file.http.sha256) == ("http://shop.test/3?attempt=2", "ab")


def test_the_folder_of_an_attempt_is_evaluated() -> None:
    definition = Activity.parse(
        {
            "name": "a",
            "startToCloseTimeout": "1m",
            "container": {"image": "i"},
            "workspaces": [
                {"name": "files"},
                {"name": "files", "mountPath": "/in", "subPath": "$(A)/${input.n}-${attempt}"},
            ],
        }
    )
    found = containers.resolve(definition, input={"n": 3}, run=RUN, attempt=2)
    assert [mount.sub_path for mount in found.workspaces] == ["", "$(A)/3-2"]
    assert [mount.sub_path for mount in containers.with_placeholders(definition).workspaces] == ["", "$(A)/x-x"]
    with pytest.raises(StepError, match=r"workspaces\[1\]\.subPath"):
        containers.resolve(definition, input={}, run=RUN, attempt=1)
