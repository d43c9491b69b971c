"""Mistakes in foreign manifests are reported at their place, by the schemas of their kinds."""

from pathlib import Path

import pytest

from perdure.importing.reader import ConversionReport
from perdure.importing.schemas import Schema
from unit.importing.imported import argo, pipeline_run, tekton, workflow

TASK = "tasks: [{name: t, taskSpec: {%s}}]"


def gaps(system: str, document: object) -> list[tuple[str, str]]:
    report = ConversionReport()
    Schema(system).checked(document, report)  # type: ignore[arg-type]
    return [(gap.path, gap.message) for gap in report.gaps]


@pytest.mark.parametrize(
    ("template", "path", "message"),
    [
        (
            "{name: main, containr: {image: a}, suspend: {}}",
            "spec.templates[0].containr",
            "is not a field of Argo Workflows here; did you mean `container`?",
        ),
        (
            "{name: main, container: {image: a, env: [{name: X, valeu: b}]}}",
            "spec.templates[0].container.env[0].valeu",
            "is not a field of Argo Workflows here; did you mean `value`?",
        ),
        (
            "{name: main, dag: {tasks: [{name: a, inline: {container: {imagee: x}}}]}}",
            "spec.templates[0].dag.tasks[0].inline.container.imagee",
            "is not a field of Argo Workflows here; did you mean `image`?",
        ),
        (
            "{name: main, retryStrategy: {limit: [1]}, container: {image: a}}",
            "spec.templates[0].retryStrategy.limit",
            "must be a number or a string, not `[1]`",
        ),
        (
            "{name: main, daemon: 'yes', container: {image: a}}",
            "spec.templates[0].daemon",
            'must be true or false, not `"yes"`',
        ),
        (
            "{name: main, parallelism: '2', steps: []}",
            "spec.templates[0].parallelism",
            'must be a whole number, not `"2"`',
        ),
        ("{name: main, container: [x]}", "spec.templates[0].container", 'must be a map, not `["x"]`'),
        (
            "{name: main, dag: {tasks: [x]}}",
            "spec.templates[0].dag.tasks[0]",
            'must be a map, not `"x"`',
        ),
        ("{name: main, steps: [x]}", "spec.templates[0].steps[0]", 'must be a list of maps, not `"x"`'),
    ],
)
def test_a_mistake_is_reported_at_its_place(tmp_path: Path, template: str, path: str, message: str) -> None:
    made = argo(tmp_path, workflow(f"- {template}"))
    assert f"Not imported: Workflow/made: {path}: {message}" in made.sentences
    assert not made.complete


@pytest.mark.parametrize(
    "container",
    [
        "env: [{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]",
        "resources: {limits: {cpu: 0.5, example.com/tasks: 1}}",
        "env: [{name: steps, value: x}, {name: tasks, value: y}]",
        "volumeMounts: []",
    ],
)
def test_the_shape_of_a_field_follows_its_place(tmp_path: Path, container: str) -> None:
    """tektoncd/pipeline#1303: `resourceFieldRef.resource` "must be a map", as `resource` of a template."""
    made = argo(tmp_path, workflow(f"- {{name: main, container: {{image: a, {container}}}}}"))
    assert made.complete, made.sentences


def test_names_of_users_may_be_those_of_fields(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  metadata: {labels: {container: a, tasks: b}, annotations: {spec: c}}
  nodeSelector: {dag: x}
  container: {image: a}""",
            "entrypoint: main\nworkflowMetadata: {labels: {steps: x}}",
        ),
    )
    assert made.complete, made.sentences
    assert made.activity("main")["podTemplate"]["metadata"]["labels"] == {"container": "a", "tasks": "b"}


def test_quantities_become_text(tmp_path: Path) -> None:
    """A number such as 0.5 is no quantity for an API server."""
    made = argo(
        tmp_path, workflow("- {name: main, container: {image: a, resources: {requests: {cpu: 0.5, memory: 64}}}}")
    )
    assert made.activity("main")["container"]["resources"] == {"requests": {"cpu": "0.5", "memory": 64}}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (TASK % "stepps: []", "spec.pipelineSpec.tasks[0].taskSpec.stepps"),
        (TASK % "steps: [{image: a, comand: [x]}]", "spec.pipelineSpec.tasks[0].taskSpec.steps[0].comand"),
        (TASK % "steps: [{image: a}], volumes: [{name: x, emptyDirr: {}}]", "taskSpec.volumes[0].emptyDirr"),
        ("tasks: [{name: t, retries: many, taskSpec: {steps: []}}]", "spec.pipelineSpec.tasks[0].retries"),
        ("tasks: [{name: t, pipelineSpec: {taskss: []}}]", "spec.pipelineSpec.tasks[0].pipelineSpec.taskss"),
    ],
)
def test_mistakes_in_embedded_specs_are_reported(tmp_path: Path, spec: str, path: str) -> None:
    """The CRDs of Tekton leave embedded specs open; they have the schemas of their kinds here."""
    made = tekton(tmp_path, pipeline_run(spec))
    assert [each for each in made.sentences if each.startswith("Not imported: ") and path in each], made.sentences


def test_tekton_ignores_the_case_of_fields(tmp_path: Path) -> None:
    made = tekton(tmp_path, pipeline_run(TASK % "steps: [{Image: a, COMMAND: [x]}]"))
    assert made.complete, made.sentences
    assert made.spec["activities"][0]["podTemplate"]["spec"]["containers"][0]["command"] == ["x"]


@pytest.mark.parametrize("system", ["argo", "tekton"])
def test_each_kind_and_type_has_a_schema(system: str) -> None:
    schema = Schema(system)
    for kind in schema.kinds:
        metadata = {"name": "a", "uid": "b", "generation": 1, "managedFields": [{}], "creationTimestamp": "t"}
        assert (
            gaps(system, {"apiVersion": "a/b", "kind": kind, "metadata": metadata, "spec": {}, "status": {"x": 1}})
            == []
        )


def test_other_kinds_have_no_schema() -> None:
    document = {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": 1, "b": [2]}, "immutable": True}
    assert gaps("argo", document) == [("data.b", "must be a string, not `[2]`")]


def test_fields_of_earlier_versions_are_known() -> None:
    """Argo 3.6 had a single `mutex`; Tekton's v1beta1 had `timeout` in a PipelineRun."""
    spec = {"templates": [{"name": "a", "synchronization": {"mutex": {"name": "m"}}}]}
    assert gaps("argo", {"kind": "Workflow", "spec": spec}) == []
    assert gaps("tekton", {"kind": "PipelineRun", "spec": {"timeout": "5m", "podTemplate": {}}}) == []
