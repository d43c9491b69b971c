"""What only the pod of a task of Tekton knows: results of steps, their conditions, and arrays of any length."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure.api.kinds.workflow import Activity
from perdure.api.pod_patches import patched
from perdure.language.containers import resolve
from unit.importing.imported import inputs, pipeline_run, ran, tekton

Json = dict[str, Any]

ACTION = """kind: StepAction
metadata: {name: say}
spec:
  params:
  - {name: text, default: none}
  - {name: words, type: array, default: [a, b]}
  - {name: of, type: object, default: {x: "1", z: "2"}}
  image: busybox
  command: [echo]
  args: ["$(params.text)", "$(params.words[*])", "$(params.words[0])", "$(params.of.x)", "$(params.of.z)"]
"""


def task_run(steps: str, spec: str = "") -> str:
    indented = "\n".join(f"    {line}" for line in steps.splitlines())
    return f"kind: TaskRun\nmetadata: {{name: made}}\nspec:\n{spec}  taskSpec:\n    steps:\n{indented}\n"


def containers(activity: Json, input_: Json) -> list[Json]:
    """The containers of the pod of an attempt: init containers, and the last one."""
    evaluated = resolve(Activity.model_validate(activity), input=input_, run={"name": "made"}, attempt=1)
    assert evaluated.pod_template is not None
    spec = evaluated.pod_template.spec.dump()
    if evaluated.pod_spec_patch is not None:
        spec = patched(spec, evaluated.pod_spec_patch)
    return [*spec.get("initContainers", []), *spec["containers"]]


def line(container: Json) -> list[str]:
    """The command line after Kubernetes has expanded its variables."""
    values = {each["name"]: _expanded(str(each["value"]), {}) for each in container.get("env", [])}
    return [_expanded(word, values) for word in [*container["command"], *container.get("args", [])]]


def _expanded(text: str, values: dict[str, str]) -> str:
    made, rest = "", text
    while "$" in rest:
        before, rest = rest.split("$", 1)
        made += before
        if rest.startswith("$"):
            made, rest = made + "$", rest[1:]
        elif rest.startswith("(") and (name := rest[1:].split(")", 1)[0]) in values:
            made, rest = made + values[name], rest[len(name) + 2 :]
        else:
            made += "$"
    return made + rest


def run(container: Json, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a container on this machine, with the shared folder of the steps at another path."""
    words = [each.replace("/tekton/steps", str(folder)) for each in line(container)]
    words = [each.replace("/dev/termination-log", str(folder / "result")) for each in words]
    variables = {each["name"]: each["value"] for each in container.get("env", [])}
    environment = {**os.environ, **variables}
    return subprocess.run(words, env=environment, text=True, capture_output=True, timeout=30, check=False)


def test_arguments_of_an_array_of_any_length_are_spliced(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        pipeline_run("""tasks:
- name: a
  taskSpec: {results: [{name: words, type: array}], steps: [{name: s, image: busybox, command: [a]}]}
- name: b
  params: [{name: words, value: "$(tasks.a.results.words[*])"}]
  taskSpec:
    params: [{name: words, type: array}]
    steps:
    - {name: first, image: busybox, command: [printf, '<%s>'], args: [x, "$(params.words[*])", "$(context.taskRun.name)"]}
    - {name: last, image: busybox, args: ["$(params.words[*])"], script: 'printf "<%s>" "$#" "$@"'}"""),
    )
    assert made.complete, made.sentences
    for words in ([], ["one"], ["a b", "$(x)", "${y}", "$$", "'"]):
        first, last = containers(made.activity("b"), {"words": words})
        assert line(first) == ["printf", "<%s>", "x", *words, "made-b"]
        assert run(last, tmp_path).stdout == "".join(f"<{each}>" for each in (str(len(words)), *words))


def test_a_step_reads_the_results_of_another_one(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        task_run("""- name: first
  image: busybox
  results: [{name: out}]
  script: 'printf "%s" "a $(date +x) b" > $(step.results.out.path)'
- name: last
  image: busybox
  env: [{name: GIVEN, value: "<$(steps.first.results.out)>"}, {name: OTHER, value: o}]
  command: [sh, -c, 'printf "%s|" "$@" "$GIVEN" "$OTHER"', x]
  args: ["$(steps.first.results.out)", "with-$(steps.first.results.out).", plain, "$(context.taskRun.name)"]"""),
    )
    assert made.complete, made.sentences
    first, last = containers(made.spec["activities"][0], {})
    assert run(first, tmp_path).returncode == 0
    assert run(last, tmp_path).stdout == "a x b|with-a x b.|plain|made-made|<a x b>|o|"


@pytest.mark.parametrize(
    ("when", "runs"),
    [
        ("[{input: $(steps.first.results.out), operator: in, values: [x, ok]}]", True),
        ("[{input: $(steps.first.results.out), operator: in, values: [x, y]}]", False),
        ("[{input: $(steps.first.results.out), operator: notin, values: [x, y]}]", True),
        ("[{input: $(steps.first.results.out), operator: notin, values: [ok]}]", False),
        ("[{input: $(params.p), operator: in, values: [given]}, {input: a, operator: in, values: [b]}]", False),
        ("[{input: $(params.p), operator: in, values: [given]}]", True),
        ("[{input: $(workspaces.w.bound), operator: in, values: ['true']}]", False),
        ("[{input: x, operator: in, values: []}]", False),
    ],
)
def test_the_condition_of_a_step_is_tested_in_the_pod(tmp_path: Path, when: str, runs: bool) -> None:
    made = tekton(
        tmp_path,
        task_run(
            f"""- {{name: first, image: busybox, results: [{{name: out}}], script: 'printf ok > $(step.results.out.path)'}}
- {{name: last, image: busybox, command: [echo, ran], when: {when}}}""",
            "  params: [{name: p, value: given}]\n",
        ),
    )
    assert made.complete, made.sentences
    first, last = containers(made.spec["activities"][0], {"p": "given"})
    run(first, tmp_path)
    done = run(last, tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n" if runs else "")


def test_a_result_of_the_task_is_that_of_a_step(tmp_path: Path) -> None:
    text = task_run(
        "- {name: s, image: busybox, results: [{name: out}], script: 'printf ok > $(step.results.out.path)'}"
    )
    made = tekton(tmp_path, f"{text}    results: [{{name: r, value: $(steps.s.results.out)}}]\n")
    assert made.complete, made.sentences
    (only,) = containers(made.spec["activities"][0], {})
    assert run(only, tmp_path).returncode == 0
    assert (tmp_path / "result").read_text() == "ok"


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        ("- {name: s, image: a, command: [b], when: [{cel: 'true'}]}", "steps[0].when[0].cel"),
        ("- {name: s, image: a, when: [{input: a, operator: in, values: [a]}]}", "steps[0].when[0]"),
        ("- {name: s, image: a, script: 'echo $(steps.o.results.r)'}", "steps[0].script"),
        ("- {name: s, image: 'a:$(steps.o.results.r)', command: [b]}", "spec.taskSpec.steps"),
        ("- {name: s, image: a, command: [b], args: ['$(steps.o.results.r[0])']}", "steps[0].args[0]"),
    ],
)
def test_what_a_shell_cannot_do_is_reported(tmp_path: Path, steps: str, path: str) -> None:
    made = tekton(tmp_path, task_run(steps))
    assert not made.complete
    assert any(path in each for each in made.sentences), made.sentences
    assert "\x01" not in (tmp_path / "imported.yaml").read_text()


def test_the_parameters_of_a_step_action_have_values_of_the_run(tmp_path: Path) -> None:
    step = """- name: s
  ref: {name: say}
  params:
  - {name: text, value: "$(params.given)!"}
  - {name: words, value: "$(params.list[*])"}
  - {name: of, value: "$(params.object[*])"}"""
    params = '  params: [{name: given, value: g}, {name: list, value: [p, q, r]}, {name: object, value: {z: "3"}}]\n'
    made = tekton(tmp_path, ACTION, task_run(step, params))
    assert made.complete, made.sentences
    (only,) = containers(made.spec["activities"][0], {"given": "g"})
    assert line(only) == ["echo", "g!", "p", "q", "r", "p", "1", "3"]


def test_the_parameters_of_a_step_action_are_computed(tmp_path: Path) -> None:
    task = """kind: Task
metadata: {name: made}
spec:
  params: [{name: given}, {name: list, type: array}, {name: object, type: object}]
  steps:
  - name: s
    ref: {name: say}
    params:
    - {name: text, value: "$(params.given)!"}
    - {name: words, value: "$(params.list[*])"}
    - {name: of, value: "$(params.object[*])"}"""
    made = tekton(tmp_path, ACTION, task)
    assert made.complete, made.sentences
    values = {"given": "g", "list": ["p", "q"], "object": {"x": "5", "z": "3"}}
    (only,) = containers(made.spec["activities"][0], values)
    assert line(only) == ["echo", "g!", "p", "q", "p", "5", "3"]


CHILD = """kind: Pipeline
metadata: {name: child}
spec:
  params: [{name: p}, {name: q, default: d}]
  results: [{name: r, value: $(tasks.t.results.r)}]
  tasks:
  - name: t
    params: [{name: v, value: "$(params.p)$(params.q)"}]
    taskSpec: {params: [{name: v}], results: [{name: r}], steps: [{name: s, image: a, command: [b]}]}
  finally: [{name: f, taskSpec: {steps: [{name: s, image: a, command: [b]}]}}]
"""


@pytest.mark.parametrize("embedded", [False, True])
def test_a_pipeline_in_a_pipeline_is_a_child_workflow(tmp_path: Path, embedded: bool) -> None:
    spec = "\n".join(f"  {each}" for each in CHILD.split("spec:\n")[1].splitlines())
    of = f"\n  pipelineSpec:\n{spec}" if embedded else "\n  pipelineRef: {name: child}"
    text = f"""tasks:
- name: one{of}
  timeout: 5m
  retries: 2
  params: [{{name: p, value: x}}]
- name: two
  params: [{{name: v, value: $(tasks.one.results.r)}}]
  taskSpec: {{params: [{{name: v}}], steps: [{{name: s, image: a, command: [b]}}]}}"""
    made = tekton(tmp_path, CHILD, pipeline_run(text))
    assert made.complete, made.sentences
    run_ = made.manifests[-1]
    assert [each["kind"] for each in made.manifests] == ["Workflow"] * (1 + embedded) + ["WorkflowRun"]
    call = run_["spec"]["inline"]["steps"][0]["childWorkflow"]
    assert call["workflow"]["name"] == ("made-one" if embedded else "child")
    assert (call["executionTimeout"], call["retryPolicy"]["exponential"]["maximumAttempts"]) == ("5m", 3)
    report = made.simulate({"t": [{"output": "result"}]})
    assert report["phase"] == "Completed", report
    assert inputs(report)[-1] == {"v": "result"}
    assert len(ran(report, "f")) == 1


def test_a_pipeline_that_contains_itself_is_reported(tmp_path: Path) -> None:
    text = "kind: Pipeline\nmetadata: {name: round}\nspec: {tasks: [{name: again, pipelineRef: {name: round}}]}\n"
    made = tekton(tmp_path, text, "kind: PipelineRun\nmetadata: {name: r}\nspec: {pipelineRef: {name: round}}\n")
    assert any("the pipeline `round` contains itself" in each for each in made.sentences)


@pytest.mark.parametrize(
    "reference",
    [
        "{resolver: git, params: [{name: url, value: u}, {name: pathInRepo, value: /task/t/0.1/add.yaml}]}",
        "{resolver: http, params: [{name: url, value: 'https://a/b/add.yaml'}]}",
        "{resolver: hub, params: [{name: name, value: add}]}",
    ],
)
def test_a_task_that_a_resolver_names_is_taken_from_the_files(tmp_path: Path, reference: str) -> None:
    run_ = f"kind: TaskRun\nmetadata: {{name: r}}\nspec: {{taskRef: {reference}}}\n"
    pipeline = pipeline_run(f"tasks: [{{name: a, taskRef: {reference}}}]")
    task = "kind: Task\nmetadata: {name: add}\nspec: {steps: [{name: s, image: a, command: [b]}]}\n"
    for text in (run_, pipeline):
        alone, together = tekton(tmp_path, text), tekton(tmp_path, text, task)
        assert not alone.complete
        assert any("is not followed; import the file" in each for each in alone.sentences)
        assert together.complete, together.sentences
        assert any("the task `add` in the files is used" in each for each in together.sentences)


def test_the_reason_of_a_task_that_may_fail_is_failure_ignored(tmp_path: Path) -> None:
    text = """tasks:
- {name: a, onError: continue, taskSpec: {steps: [{name: s, image: a, command: [b]}]}}
- name: m
  onError: continue
  matrix: {params: [{name: p, value: [x, y]}]}
  taskSpec: {params: [{name: p}], steps: [{name: s, image: a, command: [b]}]}
- {name: c, taskSpec: {steps: [{name: s, image: a, command: [b]}]}}
finally:
- name: f
  params:
  - {name: v, value: "$(tasks.a.reason) $(tasks.m.reason) $(tasks.c.reason) $(tasks.a.status) $(tasks.m.status)"}
  taskSpec: {params: [{name: v}], steps: [{name: s, image: a, command: [b]}]}"""
    made = tekton(tmp_path, pipeline_run(text))
    assert made.complete, made.sentences
    report = made.simulate({"a": [{"exitCode": 1}], "m": [{"exitCode": 1}]})
    assert inputs(report)[-1] == {"v": "FailureIgnored FailureIgnored Succeeded Failed Failed"}


def test_a_text_that_is_no_variable_of_tekton_stays(tmp_path: Path) -> None:
    made = tekton(tmp_path, task_run("- {name: s, image: a, script: 'echo $(context.other.status) $(date)'}"))
    assert made.complete, made.sentences
    (only,) = containers(made.spec["activities"][0], {})
    assert line(only)[-1] == "echo $(context.other.status) $(date)"
