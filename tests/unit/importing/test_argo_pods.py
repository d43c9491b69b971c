"""Pods of Argo's templates: fields with tags, and files from Git."""

import os
import subprocess
from pathlib import Path

import pytest

from perdure.api.kinds.workflow import Activity
from perdure.language import containers
from perdure.runtime.attempts import PodSettings
from perdure.runtime.pods.builder import build_trial
from unit.importing.imported import Json, argo, workflow

RUN = {"name": "made-1", "namespace": "shop", "workflowId": "made", "runId": "u"}
PARAMETERS = "entrypoint: main\narguments: {parameters: [{name: size, value: 1Gi}, {name: zone, value: west}]}"


def one(folder: Path, template: str, spec: str = PARAMETERS) -> Json:
    """The only activity of a complete import."""
    made = argo(folder, workflow(template, spec))
    assert made.complete, made.sentences
    (activity,) = made.spec["activities"]
    return dict(activity)


def pod_of(activity: Json) -> Json:
    """The spec of the pod of an attempt."""
    context = {"input": {"size": "1Gi", "zone": "west"}, "run": RUN, "attempt": 1}
    resolved = containers.resolve(Activity.parse(activity), **context)
    spec: Json = build_trial("shop", resolved, PodSettings())["spec"]
    return spec


def test_computed_fields_of_a_pod_become_a_patch(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  nodeSelector: {zone: "{{workflow.parameters.zone}}", disk: ssd}
  volumes: [{name: data, persistentVolumeClaim: {claimName: "{{workflow.name}}-data"}}]
  container:
    image: "a:{{workflow.parameters.zone}}"
    volumeMounts: [{name: data, mountPath: /data}]
    envFrom: [{configMapRef: {name: "{{workflow.parameters.zone}}"}}, {configMapRef: {name: "${plain}"}}]""",
    )
    spec = made["podTemplate"]["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["volumes"] == [{"name": "data"}]
    assert spec["containers"] == [
        {"name": "main", "image": "a:${input.zone}", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    ]
    assert made["podSpecPatch"] == {
        "nodeSelector": {"zone": "${input.zone}"},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "${run.name}-data"}}],
        "containers": [
            {
                "name": "main",
                "envFrom": [{"configMapRef": {"name": "${input.zone}"}}, {"configMapRef": {"name": "$${plain}"}}],
            }
        ],
    }
    pod = pod_of(made)
    assert pod["nodeSelector"] == {"zone": "west", "disk": "ssd"}
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "made-1-data"}} in pod["volumes"]
    main = pod["containers"][0]
    assert (main["image"], main["envFrom"][0]["configMapRef"]["name"]) == ("a:west", "west")


@pytest.mark.parametrize(
    "work",
    [
        "container: {image: a, workingDir: '/{{workflow.name}}'}",
        "script: {image: a, source: x, workingDir: '/{{workflow.name}}'}",
    ],
)
def test_a_computed_field_of_a_container_needs_no_pod_template(tmp_path: Path, work: str) -> None:
    made = one(tmp_path, f"- {{name: main, {work}}}")
    assert made["podSpecPatch"] == {"containers": [{"name": "activity", "workingDir": "/${run.name}"}]}
    assert "workingDir" not in made.get("container", made.get("script"))
    assert pod_of(made)["containers"][0]["workingDir"] == "/made-1"


@pytest.mark.parametrize(
    "patch",
    [
        '{"containers": [{"name": "main", "resources": {"limits": {"memory": "{{workflow.parameters.size}}", "cpu": "1"}}}]}',
        "containers: [{name: main, resources: {limits: {memory: '{{workflow.parameters.size}}', cpu: '1'}}}]",
    ],
)
def test_a_pod_spec_patch_with_tags_becomes_a_patch(tmp_path: Path, patch: str) -> None:
    made = one(tmp_path, f"- name: main\n  podSpecPatch: |\n    {patch}\n  container: {{image: a}}")
    (container,) = made["podTemplate"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": "1"}}
    limits = {"limits": {"memory": "${input.size}"}}
    assert made["podSpecPatch"] == {"containers": [{"name": "main", "resources": limits}]}


def test_a_tag_without_quotes_in_a_patch_keeps_the_type_of_its_value(tmp_path: Path) -> None:
    made = one(
        tmp_path, "- {name: main, podSpecPatch: '{\"priority\": {{workflow.parameters.size}}}', container: {image: a}}"
    )
    assert made["podSpecPatch"]["priority"].startswith("${type(input.size) == string && ")


CLONE = """- name: main
  inputs: {artifacts: [{name: code, path: %s, git: {repo: "%s", revision: "%s"%s}}]}
  container: {image: a, command: [ls], volumeMounts: [{name: work, mountPath: /src}]}"""
VOLUMES = "entrypoint: main\nvolumes: [{name: work, emptyDir: {}}]"


def git(folder: Path, *words: str) -> str:
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@shop.test",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@shop.test",
    }
    done = subprocess.run(
        ["git", *words], cwd=folder, env={**os.environ, **identity}, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for i in (1, 2):
        (folder / "version").write_text(str(i))
        git(folder, "add", "version")
        git(folder, "commit", "-q", "-m", str(i))
        git(folder, "tag", f"v{i}")
    git(folder, "branch", "old", "v1")
    return folder


@pytest.mark.parametrize(
    ("revision", "options", "expected"),
    [
        ("", "", "2"),
        ("v1", "", "1"),
        ("old", "", "1"),
        ("commit", "", "1"),
        ("", ", branch: old, singleBranch: true", "1"),
        ("main", ", depth: 1", "2"),
    ],
)
def test_files_from_git_are_fetched_before_the_container_starts(
    tmp_path: Path, repository: Path, revision: str, options: str, expected: str
) -> None:
    revision = git(repository, "rev-parse", "--short", "v1") if revision == "commit" else revision
    target = tmp_path / "target"
    made = one(tmp_path, CLONE % (target, f"file://{repository}", revision, options), VOLUMES)
    (container,) = made["podTemplate"]["spec"]["initContainers"]
    line = [each.replace("$$", "$") for each in [*container["command"], *container["args"]]]
    for _ in range(2):  # a retry finds the files of the first attempt
        subprocess.run(line, check=True, capture_output=True, timeout=60)
    assert (target / "version").read_text() == expected


def test_files_from_git_go_to_a_volume_that_contains_their_path(tmp_path: Path) -> None:
    spec = one(tmp_path, CLONE % ("/src/code", "https://shop.test/x.git", "", ""), VOLUMES)["podTemplate"]["spec"]
    assert spec["initContainers"][0]["volumeMounts"] == [{"name": "work", "mountPath": "/src"}]
    assert [each["name"] for each in spec["volumes"]] == ["work"]
    spec = one(tmp_path, CLONE % ("/code", "https://shop.test/x.git", "", ""), VOLUMES)["podTemplate"]["spec"]
    mount = {"name": "git-code", "mountPath": "/code"}
    assert spec["initContainers"][0]["volumeMounts"] == [mount]
    assert mount in spec["containers"][0]["volumeMounts"]
    assert {"name": "git-code", "emptyDir": {}} in spec["volumes"]


def test_credentials_for_git_are_read_from_their_secret(tmp_path: Path) -> None:
    secret = ", usernameSecret: {name: hub, key: user}, passwordSecret: {name: hub, key: password}"
    spec = one(tmp_path, CLONE % ("/code", "https://shop.test/x.git", "", secret), VOLUMES)["podTemplate"]["spec"]
    assert spec["initContainers"][0]["env"] == [
        {"name": "GIT_USERNAME", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "user"}}},
        {"name": "GIT_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "password"}}},
    ]


def test_mirrored_mounts_are_those_of_the_main_container(tmp_path: Path) -> None:
    """`mirrorVolumeMounts` was dropped silently."""
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  container: {image: a, volumeMounts: [{name: v, mountPath: /v}, {name: w, mountPath: /w}]}
  sidecars: [{name: s, image: b, mirrorVolumeMounts: true, volumeMounts: [{name: w, mountPath: /w, readOnly: true}]}]
  initContainers: [{name: f, image: b, mirrorVolumeMounts: true}, {name: g, image: b}]
  volumes: [{name: v, emptyDir: {}}, {name: w, emptyDir: {}}]"""
        ),
    )
    assert made.complete, made.sentences
    others = made.activity("main")["podTemplate"]["spec"]["initContainers"]
    assert {each["name"]: each.get("volumeMounts") for each in others} == {
        "s": [{"name": "w", "mountPath": "/w", "readOnly": True}, {"name": "v", "mountPath": "/v"}],
        "f": [{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/w"}],
        "g": None,
    }
