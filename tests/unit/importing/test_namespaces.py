"""Objects of several namespaces in one import: each refers to those of its own, in any order of the files.

Before, the last template with a name was used for all references, also that of another team.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest

from unit.importing.imported import Json, Result, argo, tekton


def at(namespace: str) -> str:
    return f", namespace: {namespace}" if namespace else ""


def template(namespace: str, *, cluster: bool = False) -> str:
    kind = "ClusterWorkflowTemplate" if cluster else "WorkflowTemplate"
    work = f"{{image: of-{namespace or 'none'}, command: [c], env: [{{name: SIZE, value: '{{{{workflow.parameters.size}}}}'}}]}}"
    return f"""apiVersion: argoproj.io/v1alpha1
kind: {kind}
metadata: {{name: t{at(namespace)}}}
spec: {{entrypoint: main, templates: [{{name: main, container: {work}}}]}}
"""


def config(namespace: str) -> str:
    return f"kind: ConfigMap\nmetadata: {{name: m{at(namespace)}}}\ndata: {{size: of-{namespace}}}\n"


def workflow(namespace: str, more: str = "") -> str:
    return f"""apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {{name: r{at(namespace)}}}
spec:
  entrypoint: m
  arguments: {{parameters: [{{name: size, valueFrom: {{configMapKeyRef: {{name: m, key: size}}, default: none}}}}]}}
  templates: [{{name: m, steps: [[{{name: s, templateRef: {{name: t, template: main{more}}}}}]]}}]
"""


def task(namespace: str) -> str:
    return f"""apiVersion: tekton.dev/v1
kind: Task
metadata: {{name: t{at(namespace)}}}
spec: {{steps: [{{name: s, image: of-{namespace or "none"}, command: [c]}}]}}
"""


def task_run(namespace: str) -> str:
    return f"apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata: {{name: r{at(namespace)}}}\nspec: {{taskRef: {{name: t}}}}\n"


def images(made: Result) -> dict[str, str]:
    """The image of the only activity of each run, by namespace; empty if it has none."""
    runs = [each for each in made.manifests if each["kind"] == "WorkflowRun"]
    return {each["metadata"].get("namespace", ""): image_of(each["spec"]["inline"]) for each in runs}


def image_of(definition: Json) -> str:
    for each in definition.get("activities", []):
        found: dict[str, Any] = each.get("container") or each["podTemplate"]["spec"]["containers"][0]
        return str(found["image"])
    return ""


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_reference_stays_in_its_namespace(tmp_path: Path, order: tuple[int, ...]) -> None:
    of_argo = [template("a"), template("b"), workflow("a"), workflow("b")]
    made = argo(tmp_path, *[of_argo[i] for i in order], config("b"), config("a"))
    assert made.complete, made.sentences
    assert images(made) == {"a": "of-a", "b": "of-b"}
    sizes = {each["metadata"]["namespace"]: each["spec"]["input"] for each in made.manifests if "input" in each["spec"]}
    assert sizes == {"a": {"size": "of-a"}, "b": {"size": "of-b"}}
    of_tekton = [task("a"), task("b"), task_run("a"), task_run("b")]
    made = tekton(tmp_path, *[of_tekton[i] for i in order])
    assert made.complete, made.sentences
    assert images(made) == {"a": "of-a", "b": "of-b"}


@pytest.mark.parametrize(
    ("places", "of", "image"),
    [
        (["a"], "", "of-a"),
        (["", "a"], "", "of-none"),
        (["", "a"], "a", "of-a"),
        (["", "a"], "b", "of-none"),
        (["a"], "b", ""),
        (["a", "b"], "", ""),
    ],
)
def test_what_an_object_can_refer_to(tmp_path: Path, places: list[str], of: str, image: str) -> None:
    """One without a namespace may be in any; where it is not known which is meant, none is."""
    made = argo(tmp_path, *map(template, places), workflow(of))
    assert images(made) == {of: image}
    assert bool(image) != any("in none of the files" in each for each in made.sentences)
    made = tekton(tmp_path, *map(task, places), task_run(of))
    assert images(made) == ({of: image} if image else {})
    assert bool(image) != any("in none of the files" in each for each in made.sentences)
    tasks = [each["metadata"].get("namespace", "") for each in made.manifests if each["kind"] == "Workflow"]
    assert len(tasks) == len(places) - bool(image), "a task that no run uses is converted by itself"


def test_a_cluster_scoped_template_has_no_namespace(tmp_path: Path) -> None:
    made = argo(tmp_path, template("x", cluster=True), template("a"), workflow("a", ", clusterScope: true"))
    assert images(made) == {"a": "of-x"}


def test_pipelines_that_only_contain_each_other_are_reported(tmp_path: Path) -> None:
    def pipeline(name: str, of: str) -> str:
        head = f"apiVersion: tekton.dev/v1\nkind: Pipeline\nmetadata: {{name: {name}}}\n"
        return f"{head}spec: {{tasks: [{{name: x, pipelineRef: {{name: {of}}}}}]}}\n"

    for texts in ([pipeline("a", "b"), pipeline("b", "a")], [pipeline("a", "a")]):
        made = tekton(tmp_path, *texts, task_run("").replace("name: t", "name: t2"), task(""))
        assert not made.complete
        assert any("contains itself, which Tekton rejects" in each for each in made.sentences)
