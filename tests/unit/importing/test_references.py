"""References of foreign manifests: in defaults, in given parameters, between parameters, and to steps without outputs."""

from pathlib import Path
from typing import Any

import pytest

from perdure.importing.tekton.variables import composed, substituted
from unit.importing.imported import Result, argo, inputs, pipeline_run, ran, tekton, workflow

ECHO = "- {name: echo, inputs: {parameters: [{name: text}]}, container: {image: i, command: [echo]}}\n"
PRODUCER = """- name: producer
  container: {image: i, command: [work]}
  outputs: {parameters: [{name: x, valueFrom: {path: /x, default: none}}%s]}
"""
TEXT = "arguments: {parameters: [{name: text, value: '{{%s}}'}]}"


def texts(report: dict[str, Any]) -> list[Any]:
    """The inputs of the activity `echo`."""
    return [each["text"] for each in inputs(report) if isinstance(each, dict) and "text" in each]


@pytest.mark.parametrize("more", ["", ", {name: other, valueFrom: {path: /y}}"], ids=["one output", "two outputs"])
@pytest.mark.parametrize(
    ("main", "failure"),
    [
        (
            (
                "steps:\n  - - {name: p, template: producer, when: 'false'}\n"
                f"  - - {{name: c, template: echo, {TEXT % 'steps.p.outputs.parameters.x'}}}"
            ),
            False,
        ),
        (
            (
                "dag:\n    tasks:\n    - {name: p, template: producer, when: 'false'}\n"
                f"    - {{name: c, template: echo, depends: p.Succeeded || p.Skipped, {TEXT % 'tasks.p.outputs.parameters.x'}}}"
            ),
            False,
        ),
        (
            (
                "dag:\n    tasks:\n    - {name: p, template: producer, when: 'false'}\n    - {name: q, template: producer, "
                "depends: p.Succeeded}\n"
                f"    - {{name: c, template: echo, depends: q.Omitted, {TEXT % 'tasks.q.outputs.parameters.x'}}}"
            ),
            False,
        ),
        (
            (
                "steps:\n  - - {name: p, template: producer, continueOn: {failed: true}}\n"
                f"  - - {{name: c, template: echo, {TEXT % '=steps.p.outputs.parameters.x'}}}"
            ),
            True,
        ),
        (
            (
                "steps:\n  - - {name: p, template: producer, when: 'false'}\n"
                "  - - {name: c, template: echo, when: \"'{{steps.p.outputs.parameters.x}}' == 'none'\", "
                f"{TEXT % 'steps.p.outputs.parameters.x'}}}"
            ),
            False,
        ),
    ],
    ids=["steps", "dag", "omitted", "failed", "when"],
)
def test_an_output_that_a_step_did_not_write_has_its_default(
    tmp_path: Path, main: str, failure: bool, more: str
) -> None:
    """argo-workflows#15837: the output of a skipped step ignores its `default`."""
    made = argo(tmp_path, workflow(f"- name: main\n  {main}\n{PRODUCER % more}{ECHO}"))
    assert made.complete, made.sentences
    report = made.simulate({"producer": [{"fail": {"type": "X"}}]} if failure else {})
    assert texts(report) == ["none"]


NESTED = """- name: main
  steps:
  - - {name: b, template: block%s}
  - - {name: c, template: echo, arguments: {parameters: [{name: text, value: "{{steps.b.outputs.parameters.out}}"}]}}
- name: block
  steps:
  - - {name: p, template: plain, when: "%s"}
  outputs: {parameters: [{name: out, valueFrom: {%s, default: outer}}]}
- {name: plain, container: {image: i, command: [work]}, outputs: {parameters: [{name: x, valueFrom: {path: /x}}]}}
"""


@pytest.mark.parametrize(
    "source", ["parameter: '{{steps.p.outputs.parameters.x}}'", "expression: steps.p.outputs.parameters.x"]
)
@pytest.mark.parametrize(
    ("outer", "inner", "want"), [("", "true", "written"), ("", "false", "outer"), (", when: 'false'", "true", "outer")]
)
def test_an_output_of_a_template_of_steps_has_its_default(
    tmp_path: Path, source: str, outer: str, inner: str, want: str
) -> None:
    made = argo(tmp_path, workflow(NESTED % (outer, inner, source) + ECHO))
    assert made.complete, made.sentences
    assert texts(made.simulate({"plain": [{"output": "written"}]})) == [want]


def test_a_default_that_only_applies_to_a_part_is_reported(tmp_path: Path) -> None:
    expression = "expression: \"steps.p.status == 'Skipped' ? 'a' : steps.p.outputs.parameters.x\""
    made = argo(tmp_path, workflow(NESTED % ("", "false", expression) + ECHO))
    assert any("valueFrom: the default applies to a single reference" in each for each in made.sentences)


LOOP = """- name: main
  dag:
    tasks:
    - {name: a, template: echo, %s, arguments: {parameters: [{name: text, value: "{{item}}"}]}}
    - {name: b, depends: a.Succeeded, template: mark, arguments: {parameters: [{name: is, value: succeeded}]}}
    - {name: c, depends: a.Skipped, template: mark, arguments: {parameters: [{name: is, value: skipped}]}}
    - name: d
      depends: a.Succeeded || a.Skipped
      template: mark
      arguments: {parameters: [{name: is, value: "{{tasks.a.status}} {{tasks.a.outputs.result}}"}]}
- {name: mark, inputs: {parameters: [{name: is}]}, container: {image: i, command: [work]}}
"""


@pytest.mark.parametrize(
    ("loop", "want"),
    [
        ("withParam: '{{workflow.parameters.list}}'", ["succeeded", 'Succeeded ["x","x"]']),
        ("withParam: '{{workflow.parameters.none}}'", ["skipped", "Skipped []"]),
        ("withParam: '{{workflow.parameters.list}}', when: 'false'", ["skipped", "Skipped []"]),
        ("withParam: '{{workflow.parameters.list}}', when: '{{item}} > 5'", ["skipped", "Skipped []"]),
        ("withItems: [1, 2], when: '{{item}} > 5'", ["skipped", "Skipped []"]),
    ],
)
def test_a_loop_without_items_is_skipped(tmp_path: Path, loop: str, want: list[str]) -> None:
    """argo-workflows#3378: a loop whose items were all skipped, or an empty one, counts as Succeeded."""
    arguments = "entrypoint: main\narguments: {parameters: [{name: list, value: '[1,2]'}, {name: none, value: '[]'}]}"
    made = argo(tmp_path, workflow(LOOP % loop + ECHO, arguments))
    assert made.complete, made.sentences
    report = made.simulate({"echo": [{"output": "x"}]})
    assert [each["is"] for each in inputs(report) if isinstance(each, dict) and "is" in each] == want


ANY = """- name: main
  dag:
    tasks:
    - {name: A, template: work, arguments: {parameters: [{name: num, value: "{{item}}"}]}, withItems: [1, 2, 3]}
    - {name: B, template: b, depends: A.AnySucceeded}
    - {name: C, template: c, depends: A.AllFailed}
    - {name: D, template: d, depends: A.Failed}
    - {name: E, template: e, depends: D.AnySucceeded || D.AllFailed}
- {name: work, inputs: {parameters: [{name: num}]}, container: {image: i, command: [work]}}
""" + "".join(f"- {{name: {name}, container: {{image: i, command: [work]}}}}\n" for name in "bcde")
X: dict[str, Any] = {"fail": {"type": "X"}}


@pytest.mark.parametrize(
    ("work", "want"),
    [
        ([{"whenInput": {"num": "2"}, **X}, {"whenInput": {"num": 2}, **X}, {"output": "ok"}], "bd"),
        ([X], "cd"),
        ([{"output": "ok"}], "b"),
    ],
)
def test_any_and_all_are_judged_over_the_items(tmp_path: Path, work: list[Any], want: str) -> None:
    """argo-workflows#4903: AnySucceeded meant "none failed", AllFailed "any failed". Only loops have items (dag.go)."""
    made = argo(tmp_path, workflow(ANY))
    assert made.complete, made.sentences
    report = made.simulate({"work": work})
    assert "".join(name for name in "bcde" if ran(report, name)) == want


COMPOSED = """entrypoint: main
arguments:
  parameters:
  - {name: image, value: "{{workflow.parameters.registry}}/app:{{workflow.parameters.tag}}"}
  - {name: registry, value: "reg.{{workflow.parameters.zone}}"}
  - {name: tag, value: latest}
  - {name: zone, value: io}
"""
SHOW = f"- name: main\n  steps:\n  - - {{name: s, template: echo, {TEXT % 'workflow.parameters.image'}}}\n{ECHO}"


@pytest.mark.parametrize(
    ("kind", "input_", "want"),
    [
        ("Workflow", None, "reg.io/app:latest"),
        ("WorkflowTemplate", None, "reg.io/app:latest"),
        ("WorkflowTemplate", {"tag": "v2"}, "reg.io/app:v2"),
        ("WorkflowTemplate", {"image": "mine", "zone": "eu"}, "mine"),
        ("WorkflowTemplate", {"registry": "eu"}, "eu/app:latest"),
    ],
)
def test_parameters_of_a_workflow_are_composed(tmp_path: Path, kind: str, input_: Any, want: str) -> None:
    """tektoncd/pipeline#9270, the same in Argo: references in defaults stay literal text, in any order."""
    made = argo(tmp_path, workflow(SHOW, COMPOSED).replace("kind: Workflow", f"kind: {kind}"))
    assert made.complete, made.sentences
    assert texts(started(made, input_)) == [want]


def started(made: Result, input_: Any) -> dict[str, Any]:
    """Simulate a run with an input."""
    if input_ is None:
        return made.simulate()
    return made.simulate(input=input_)


@pytest.mark.parametrize("system", ["argo", "tekton"])
def test_a_cycle_of_parameters_is_an_error(tmp_path: Path, system: str) -> None:
    """tektoncd/pipeline#9270: a cycle is accepted."""
    if system == "argo":
        both = "".join(
            f"  - {{name: {name}, value: '{{{{workflow.parameters.{other}}}}}'}}\n" for name, other in ("ab", "ba")
        )
        made = argo(tmp_path, workflow(SHOW, f"entrypoint: main\narguments:\n  parameters:\n{both}"))
        path = "spec.arguments.parameters"
    else:
        made = tekton(tmp_path, TEKTON % "[{name: a, default: $(params.b)}, {name: b, default: $(params.a)}]")
        path = "spec.params"
    want = f"{path}: `a`, which refers to `b`, which refers to `a`; give one of them a value of its own"
    assert any(want in each for each in made.sentences), made.sentences


TEKTON = """apiVersion: tekton.dev/v1
kind: Pipeline
metadata: {name: p}
spec:
  params: %s
  tasks:
  - name: show
    params:
    - {name: image, value: "$(params.image)"}
    - {name: list, value: ["first", "$(params.list[*])", "last"]}
    - {name: a, value: "$(params.obj.a)"}
    taskSpec:
      params: [{name: image}, {name: list, type: array}, {name: a}, {name: more, default: "$(params.a)-$(params.image)"}]
      steps: [{image: i, command: [echo], args: ["$(params.image)", "$(params.a)", "$(params.list[1])", "$(params.more)"]}]
"""
PARAMS = """
  - {name: image, default: "$(params.registry)/app:$(params.tag)"}
  - {name: list, type: array, default: ["$(params.tag)", "x"]}
  - {name: obj, type: object, properties: {a: {type: string}}, default: {a: "$(params.registry)-a"}}
  - {name: registry, default: "reg.io"}
  - {name: tag, default: latest}"""


@pytest.mark.parametrize(
    ("input_", "want"),
    [
        (None, ("reg.io/app:latest", ["first", "latest", "x", "last"], "reg.io-a")),
        ({"tag": "v2"}, ("reg.io/app:v2", ["first", "v2", "x", "last"], "reg.io-a")),
        ({"image": "mine", "list": [], "registry": "r"}, ("mine", ["first", "last"], "r-a")),
    ],
)
def test_parameters_of_a_pipeline_are_composed(tmp_path: Path, input_: Any, want: tuple[Any, ...]) -> None:
    """tektoncd/pipeline#9270 and #8157: references in defaults, and `[*]` among other elements is one flat list."""
    made = tekton(tmp_path, TEKTON % PARAMS)
    assert made.complete, made.sentences
    image, items, a = want
    assert inputs(started(made, input_)) == [{"image": image, "list": items, "a": a, "more": f"{a}-{image}"}]


RUN = """
---
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: r}
spec:
  pipelineRef: {name: p}
  params: [{name: tag, value: "$(params.zone)-1"}, {name: zone, value: "${HOME}"}, {name: list, value: ["$(params.zone)"]}]
"""


def test_given_parameters_are_composed(tmp_path: Path) -> None:
    made = tekton(tmp_path, TEKTON % (PARAMS + "\n  - {name: zone}") + RUN)
    assert made.complete, made.sentences
    (run,) = made.manifests
    assert run["spec"]["input"]["tag"] == "${HOME}-1"
    assert run["spec"]["input"]["image"] == "reg.io/app:${HOME}-1"
    assert inputs(made.simulate())[0]["list"] == ["first", "${HOME}", "last"]


def test_arguments_of_a_known_array_are_spliced(tmp_path: Path) -> None:
    """tektoncd/pipeline#8157: with the values of a run, the number of arguments is known."""
    run = pipeline_run(
        """params: [{name: list, type: array, default: [b, c]}]
tasks:
- name: t
  params: [{name: all, value: [a, "$(params.list[*])", d]}]
  taskSpec: {params: [{name: all, type: array}], steps: [{image: i, command: [echo], args: ["$(params.all[*])"]}]}
- name: many
  matrix: {params: [{name: x, value: [a, "$(params.list[*])", "$(params.list[0])-z"]}]}
  taskSpec: {params: [{name: x}], steps: [{image: i, command: [echo], args: ["$(params.x)"]}]}"""
    )
    made = tekton(tmp_path, run)
    assert made.complete, made.sentences
    (container,) = made.activity("t")["podTemplate"]["spec"]["containers"]
    assert container["args"] == ["a", "b", "c", "d"]
    report = made.simulate()
    assert [each["x"] for each in inputs(report) if "x" in each] == ["a", "b", "c", "b-z"]


def test_an_artifact_of_a_skipped_step_does_not_exist(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  steps:
  - - {name: p, template: make, when: "false"}
  - - {name: u, template: use, arguments: {artifacts: [{name: in, from: "{{steps.p.outputs.artifacts.out}}"}]}}
- {name: make, container: {image: i, command: [work]}, outputs: {artifacts: [{name: out, path: /data/out}]}}
- name: use
  inputs: {artifacts: [{name: in, path: /data/in, optional: true}]}
  container: {image: i, command: [work]}"""
        ),
    )
    assert made.complete, made.sentences
    assert made.simulate()["phase"] == "Completed"


def test_what_remains_foreign_is_reported(tmp_path: Path) -> None:
    """No foreign reference remains in the result without a message: it would be literal text."""
    made = argo(
        tmp_path,
        workflow("- {name: main, container: {image: a}}").replace("made}", 'made, labels: {a: "{{workflow.uid}}"}}'),
    )
    assert any("labels.a: `{{workflow.uid}}` was not translated" in each for each in made.sentences)
    run = pipeline_run("tasks: [{name: t, taskSpec: {steps: [{image: i, command: [x]}]}}]").replace(
        "name: made", 'name: made, annotations: {a: "$(context.pipelineRun.name)"}'
    )
    made = tekton(tmp_path, run)
    assert any("annotations.a: `$(context.pipelineRun.name)` was not translated" in each for each in made.sentences)


def test_references_to_known_values_are_replaced() -> None:
    values = {"a.b": "x", "list": ["p", "q"], "map": {"k": "v"}}
    text = "$(params[\"a.b\"]) $(params['a.b']) $(params.list[1]) $(params.map.k) $(params.none) $(tasks.t.status)"
    assert substituted(text, values) == "x x q v $(params.none) $(tasks.t.status)"
    assert substituted(["o", "$(params.list[*])", "$(params.none[*])"], values) == ["o", "p", "q", "$(params.none[*])"]
    assert composed(
        {"b": "$(params.a)1", "a": "$(params.c)2", "c": "3"}, {"b": "$(params.a)1", "a": "$(params.c)2"}
    ) == {
        "b": "321",
        "a": "32",
        "c": "3",
    }
