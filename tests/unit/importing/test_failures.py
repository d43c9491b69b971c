"""What a failure and a deadline do in imported manifests: as in the system from which they come."""

from pathlib import Path
from typing import Any

import pytest

from perdure.importing.programs import MISSING_CODE
from unit.importing.imported import Result, argo, inputs, pipeline_run, tekton, workflow

FORK = """
- name: main
  dag:
    %s
    tasks:
    - {name: A, template: a}
    - {name: B, template: b, dependencies: [A]}
    - {name: C, template: c, dependencies: [A]}
    - {name: D, template: d, dependencies: [B]}
    - {name: E, template: e, dependencies: [D]}
"""
ECHO = "".join(f"- {{name: {name}, container: {{image: i, command: [echo, {name}]}}}}\n" for name in "abcde")
SLOW_AND_FAILING: dict[str, Any] = {
    "b": [{"output": "b", "after": "30s"}],
    "c": [{"fail": {"type": "X"}, "after": "2s"}],
}


def counts(report: dict[str, Any]) -> dict[str, int]:
    return {name: len(found) for name, found in report["attempts"].items()}


@pytest.mark.parametrize("fast", ["", "failFast: true", "failFast: false"])
def test_a_failure_in_a_dag(tmp_path: Path, fast: str) -> None:
    """argo-workflows#1442: other branches were cancelled. Argo's controller runs them in any case, also with `failFast`."""
    made = argo(tmp_path, workflow(FORK % fast + ECHO))
    assert made.complete, made.sentences
    assert made.spec["failurePolicy"] == "Continue"
    report = made.simulate(SLOW_AND_FAILING)
    assert report["phase"] == "Failed"
    assert sorted(counts(report)) == list("abcde")


GROUP = """
- name: main
  %s
  parallelism: 1
  steps:
  - - {name: one, template: a}
    - {name: two, template: b}
    - {name: all, template: c, withItems: [1, 2]}
  - - {name: last, template: d}
"""


@pytest.mark.parametrize(("more", "want"), [("", {"a": 1, "b": 1, "c": 2}), ("failFast: true", {"a": 1})])
def test_a_failure_in_a_group_of_steps(tmp_path: Path, more: str, want: dict[str, int]) -> None:
    """Argo runs the whole group, also with `parallelism`, unless the template has `failFast` (operator.go: checkParallelism)."""
    made = argo(tmp_path, workflow(GROUP % more + ECHO))
    assert made.complete, made.sentences
    report = made.simulate({"a": [{"fail": {"type": "X"}, "after": "2s"}], "c": [{"after": "1s"}]})
    assert report["phase"] == "Failed"
    assert counts(report) == want


DEADLINE = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: b06}
spec:
  entrypoint: main
  activeDeadlineSeconds: 10
  %s
  templates:
  - {name: main, container: {image: i, command: [sleep, "3600"]}}
  - name: cleanup
    steps:
    - [{name: c1, template: echo}]
    - [{name: c2, template: echo}]
  - {name: echo, container: {image: i, command: [echo, cleaned]}}
"""


def test_the_exit_handler_runs_after_the_deadline(tmp_path: Path) -> None:
    """argo-workflows#13060: clean-up runs whole, and the run fails by its deadline."""
    made = argo(tmp_path, DEADLINE % "onExit: cleanup")
    (run,) = made.manifests
    assert (run["spec"]["stepsTimeout"], "runTimeout" in run["spec"]) == ("10s", False)
    report = made.simulate({"main": [{"hang": True}], "echo": [{"after": "3s"}]})
    assert (report["phase"], report["failure"]["type"], report["elapsed"]) == ("Failed", "DeadlineExceeded", 16)
    assert counts(report)["echo"] == 2


def test_a_deadline_without_handlers_ends_the_run(tmp_path: Path) -> None:
    (run,) = argo(tmp_path, DEADLINE % "").manifests
    assert (run["spec"]["runTimeout"], "stepsTimeout" in run["spec"]) == ("10s", False)


RETRIED = """
tasks:
- {name: tx, retries: 2, taskSpec: {steps: [{name: s, image: i, command: [work]}]}}
- {name: ty, taskSpec: {steps: [{name: s, image: i, command: [work]}]}}
- {name: tz, runAfter: [ty], taskSpec: {steps: [{name: s, image: i, command: [work]}]}}
finally:
- name: f
  params:
  - {name: tx, value: $(tasks.tx.status)}
  - {name: ty, value: $(tasks.ty.status)}
  - {name: tz, value: $(tasks.tz.status)}
  taskSpec:
    params: [{name: tx}, {name: ty}, {name: tz}]
    steps: [{name: s, image: i, command: [echo], args: ["$(params.tx) $(params.ty) $(params.tz)"]}]
"""


def statuses(report: dict[str, Any]) -> Any:
    """The statuses that the final task gets."""
    return inputs(report)[-1]


def test_running_tasks_finish_with_their_retries(tmp_path: Path) -> None:
    """tektoncd/pipeline#4409: the retries of a task were cut off, and `finally` saw `Cancelled`."""
    made = tekton(tmp_path, pipeline_run(RETRIED))
    assert made.complete, made.sentences
    assert made.spec["failurePolicy"] == "FinishRunning"
    bad = {"fail": {"type": "X"}, "after": "10s"}
    report = made.simulate({"tx": [bad, bad, {"after": "10s"}], "ty": [{"fail": {"type": "X"}, "after": "5s"}]})
    assert report["phase"] == "Failed"
    assert counts(report)["tx"] == 3
    assert statuses(report) == {"tx": "Succeeded", "ty": "Failed", "tz": "None"}


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        ("{pipeline: 10s, tasks: 5s, finally: 5s}", ("10s", "5s", "5s")),
        ("{pipeline: 10s, tasks: 6s}", ("10s", "6s", "4s")),
        ("{pipeline: 10s, finally: 3s}", ("10s", "7s", "3s")),
        ("{tasks: 5s}", ("1h", "5s", "59m55s")),
        ("{pipeline: 10s}", ("10s", None, "10s")),
    ],
)
def test_limits_of_tasks_and_finally(tmp_path: Path, limits: str, want: tuple[str | None, ...]) -> None:
    """What is not set is the rest (tektoncd/pipeline, pkg/apis/pipeline/v1/pipelinerun_types.go)."""
    made = tekton(tmp_path, f"{pipeline_run(RETRIED)}  timeouts: {limits}\n")
    spec = made.manifests[0]["spec"]
    assert (spec.get("runTimeout"), spec.get("stepsTimeout"), made.spec["finally"]["timeout"]) == want


def test_finally_runs_after_the_limit_of_the_tasks(tmp_path: Path) -> None:
    """tektoncd/pipeline#4071: the limit became one of each attempt, and `finally` did not run."""
    made: Result = tekton(tmp_path, f"{pipeline_run(RETRIED)}  timeouts: {{pipeline: 20s, tasks: 5s, finally: 5s}}\n")
    report = made.simulate(
        {"tx": [{"hang": True}], "ty": [{"after": "1s"}], "tz": [{"hang": True}], "f": [{"after": "4s"}]}
    )
    assert (report["phase"], report["failure"]["type"], report["elapsed"]) == ("Failed", "DeadlineExceeded", 9)
    assert statuses(report) == {"tx": "Failed", "ty": "Succeeded", "tz": "Failed"}


@pytest.mark.parametrize(
    ("entry", "code", "status"),
    [
        ("work", 1, "Failed"),
        ("work", MISSING_CODE, "Error"),
        ("dag", 1, "Failed"),
        ("dag", MISSING_CODE, "Error"),
        ("late", 1, "Failed"),
        ("late", MISSING_CODE, "Error"),
        ("steps", MISSING_CODE, "Failed"),
    ],
)
def test_an_exit_handler_reads_the_status_error(tmp_path: Path, entry: str, code: int, status: str) -> None:
    """A DAG ends as its tasks do, also where one that did not run is the last one; steps that have an Error fail."""
    templates = """- {name: work, container: {image: a, command: [b]}, outputs: {parameters: [{name: o, valueFrom: {path: /o}}]}}
- {name: dag, dag: {tasks: [{name: a, template: work}]}}
- name: late
  dag:
    tasks:
    - {name: a, template: work}
    - {name: b, template: say, dependencies: [a], arguments: {parameters: [{name: v, value: never}]}}
    - {name: c, template: say, depends: a.Skipped, arguments: {parameters: [{name: v, value: never}]}}
- {name: steps, steps: [[{name: a, template: work}]]}
- {name: say, inputs: {parameters: [{name: v}]}, container: {image: a, command: [b]}}
- name: handler
  steps: [[{name: h, template: say, arguments: {parameters: [{name: v, value: "{{workflow.status}}"}]}}]]"""
    made = argo(tmp_path, workflow(templates, f"entrypoint: {entry}\nonExit: handler"))
    assert made.complete, made.sentences
    report = made.simulate({"work": [{"exitCode": code}]})
    assert report["phase"] == "Failed"
    assert inputs(report)[-1] == {"v": status}


@pytest.mark.parametrize(
    ("message", "want"),
    [
        (None, '"null"'),
        ("it broke", r'"[{\"message\":\"it broke\",\"phase\":\"Failed\"}]"'),
        ('a "b" \\ c\n', r'"[{\"message\":\"a \\\"b\\\" \\\\ c\\n\",\"phase\":\"Failed\"}]"'),
    ],
)
def test_an_exit_handler_reads_the_failures(tmp_path: Path, message: str | None, want: str) -> None:
    """As in Argo, they are a list in JSON, in quotes."""
    templates = """- {name: main, container: {image: a, command: [b]}}
- {name: say, inputs: {parameters: [{name: v}]}, container: {image: a, command: [b]}}
- name: handler
  steps: [[{name: h, template: say, arguments: {parameters: [{name: v, value: "{{workflow.failures}}"}]}}]]"""
    made = argo(tmp_path, workflow(templates, "entrypoint: main\nonExit: handler"))
    assert made.complete
    assert any("`workflow.failures` only has the failure that ended the workflow" in each for each in made.sentences)
    end = {"fail": {"type": "Broken", "message": message}} if message else {}
    assert inputs(made.simulate({"main": [end]}))[-1] == {"v": want}


_COUNTS = """- {name: say, inputs: {parameters: [{name: v}]}, container: {image: a, command: [b]}}
- name: work
  script: {image: a, command: [sh], source: b}
- name: named
  container: {image: a, command: [b]}
  outputs: {parameters: [{name: passed, valueFrom: {path: /p}}, {name: failed, valueFrom: {path: /f}}]}"""


@pytest.mark.parametrize(("template", "read"), [("work", "result"), ("named", "parameters.failed")])
@pytest.mark.parametrize("loop", ["", "withItems: [1, 2]"])
def test_an_output_with_the_field_failed_is_no_failure(tmp_path: Path, template: str, read: str, loop: str) -> None:
    """Such as the numbers of tests that have passed and failed."""
    told = "template: say, arguments: {parameters: [{name: v, value: %s}]}"
    tasks = f"""- name: main
  dag:
    tasks:
    - {{name: a, template: {template}, {loop}}}
    - {{name: good, depends: a.Succeeded, {told % f"'{{{{tasks.a.outputs.{read}}}}}'"}}}
    - {{name: bad, depends: a.Failed, {told % "bad"}}}
"""
    made = argo(tmp_path, workflow(tasks + _COUNTS))
    assert made.complete, made.sentences
    output = {"passed": "12", "failed": "1"}
    report = made.simulate({template: [{"output": output}]})
    assert report["phase"] == "Completed"
    one = output if template == "work" else "1"
    assert inputs(report)[-1] == {"v": [one, one] if loop else one}
    report = made.simulate({template: [{"fail": {"type": "Broken"}}]})
    assert inputs(report)[-1] == {"v": "bad"}


@pytest.mark.parametrize(
    ("code", "continues", "phase"),
    [
        (MISSING_CODE, "{error: true}", "Completed"),
        (MISSING_CODE, "{failed: true}", "Failed"),
        (MISSING_CODE, "{error: true, failed: true}", "Completed"),
        (1, "{error: true}", "Failed"),
        (1, "{failed: true}", "Completed"),
    ],
)
def test_a_last_task_that_did_not_run_may_end_as_the_task_before(
    tmp_path: Path, code: int, continues: str, phase: str
) -> None:
    """As in dag.go, assessDAGPhase: `continueOn` names the status that it has inherited."""
    templates = f"""- name: main
  dag:
    tasks:
    - {{name: first, template: work}}
    - {{name: last, template: work, dependencies: [first], continueOn: {continues}}}
- name: work
  container: {{image: a, command: [b]}}
  outputs: {{parameters: [{{name: o, valueFrom: {{path: /o}}}}]}}"""
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    assert made.simulate({"work": [{"exitCode": code}]})["phase"] == phase


def test_a_condition_that_any_end_fulfills_is_none(tmp_path: Path) -> None:
    ended = "(%s.Succeeded || %s.Failed || %s.Errored || %s.Skipped || %s.Omitted)".replace("%s", "{0}")
    depends = " && ".join(ended.format(name) for name in ("a", "b"))
    templates = f"""- name: main
  dag:
    tasks:
    - {{name: a, template: work}}
    - {{name: b, template: work, withItems: [1, 2]}}
    - {{name: all, template: work, depends: '{depends}'}}
    - {{name: some, template: work, depends: '({ended.format("a")} && b.Failed) || a.Succeeded'}}
- {{name: work, container: {{image: a, command: [b]}}}}"""
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    assert "when" not in made.step("all")
    assert made.step("some")["when"].startswith("${( true && ")


def test_long_conditions_of_many_tasks_are_divided(tmp_path: Path) -> None:
    """Each is about a loop, whose statuses are long conditions; a step has at most 4,096 characters."""
    tasks = "".join(f"    - {{name: t{i}, template: work, withItems: [1, 2]}}\n" for i in range(9))
    depends = " && ".join(f"(t{i}.Failed || t{i}.Errored || t{i}.AllFailed)" for i in range(9))
    templates = f"""- name: main
  dag:
    tasks:
{tasks}    - {{name: all, template: say, depends: '{depends}'}}
- name: work
  container: {{image: a, command: [b]}}
  outputs: {{parameters: [{{name: o, valueFrom: {{path: /o}}}}]}}
- {{name: say, container: {{image: a, command: [b]}}}}"""
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    assert max(len(each.get("when", "")) for each in made.spec["steps"]) < 4_096
    assert "say" in made.simulate({"work": [{"exitCode": 1}]})["attempts"]
    assert "say" not in made.simulate({"work": [{"output": "x"}]})["attempts"]


def test_a_failed_task_sets_no_global_output(tmp_path: Path) -> None:
    templates = """- name: main
  dag:
    tasks:
    - {name: first, template: make, arguments: {parameters: [{name: v, value: first}]}}
    - {name: second, template: make, depends: first, arguments: {parameters: [{name: v, value: second}]}}
    - {name: read, template: say, depends: second.Failed}
- name: make
  inputs: {parameters: [{name: v}]}
  container: {image: a, command: [b]}
  outputs: {parameters: [{name: o, globalName: shared, valueFrom: {path: /o}}]}
- {name: say, container: {image: a, command: [b], args: ["{{workflow.outputs.parameters.shared}}"]}}"""
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    fails = {"whenInput": {"v": "second"}, "fail": {"type": "Broken"}}
    report = made.simulate({"make": [fails, {"output": "of the first"}]})
    assert inputs(report)[-1] == {"shared": "of the first"}


def test_a_result_with_the_name_failed_is_no_failure(tmp_path: Path) -> None:
    made = tekton(
        tmp_path,
        """apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: a}
spec:
  pipelineSpec:
    tasks:
    - name: tests
      onError: continue
      taskSpec: {results: [{name: failed}, {name: passed}], steps: [{name: s, image: i, command: [c]}]}
    finally:
    - name: tell
      params: [{name: status, value: $(tasks.tests.status)}]
      taskSpec: {params: [{name: status}], steps: [{name: s, image: i, command: [c], args: [$(params.status)]}]}
""",
    )
    assert made.complete, made.sentences
    report = made.simulate({"tests": [{"output": {"failed": "0", "passed": "3"}}]})
    assert inputs(report)[-1] == {"status": "Succeeded"}
    assert inputs(made.simulate({"tests": [{"exitCode": 1}]}))[-1] == {"status": "Failed"}


@pytest.mark.parametrize(("code", "status"), [(1, "Failed"), (MISSING_CODE, "Error")])
def test_hooks_of_a_step_read_its_failure_and_its_error(tmp_path: Path, code: int, status: str) -> None:
    hook = "template: say, arguments: {parameters: [{name: v, value: %s}]}"
    templates = f"""- name: main
  steps:
  - - name: a
      template: work
      continueOn: {{error: true, failed: true}}
      hooks:
        failed: {{expression: 'steps["a"].status == "Failed"', {hook % "Failed"}}}
        errored: {{expression: 'steps["a"].status == "Error"', {hook % "Error"}}}
        either: {{expression: 'steps["a"].status in ["Failed", "Error"]', {hook % '"either {{steps.a.status}}"'}}}
- {{name: work, container: {{image: a, command: [b]}}, outputs: {{parameters: [{{name: o, valueFrom: {{path: /o}}}}]}}}}
- {{name: say, inputs: {{parameters: [{{name: v}}]}}, container: {{image: a, command: [b]}}}}"""
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    report = made.simulate({"work": [{"exitCode": code}]})
    assert report["phase"] == "Completed"
    found = [each["v"] for each in inputs(report) if each]
    assert sorted(found) == sorted([status, f"either {status}"])


@pytest.mark.parametrize(
    ("strategy", "code", "attempts"),
    [
        ("retryPolicy: OnFailure", 1, 3),
        ("retryPolicy: OnFailure", MISSING_CODE, 1),
        ("retryPolicy: OnError", 1, 1),
        ("retryPolicy: OnError", MISSING_CODE, 3),
        ("expression: lastRetry.status == 'Error'", 1, 1),
        ("expression: lastRetry.status == 'Error'", MISSING_CODE, 3),
        ("expression: lastRetry.status == 'Failed'", 1, 3),
        ("expression: lastRetry.status == 'Failed'", MISSING_CODE, 1),
        ("retryPolicy: Always", 1, 3),
        ("retryPolicy: Always", MISSING_CODE, 3),
    ],
)
@pytest.mark.parametrize("entry", ["work", "group"])
def test_a_retry_strategy_tells_a_failure_from_an_error(
    tmp_path: Path, entry: str, strategy: str, code: int, attempts: int
) -> None:
    """Also that of a DAG, whose status is Error if that of its task is."""
    retries = f"retryStrategy: {{limit: 2, {strategy}}}"
    outputs = "outputs: {parameters: [{name: o, valueFrom: {path: /o}}]}"
    of_work, of_group = (f"{retries}, " if each == entry else "" for each in ("work", "group"))
    templates = f"""- name: main
  dag:
    tasks:
    - {{name: a, template: {entry}}}
    - name: say
      template: say
      depends: a.Failed || a.Errored
      arguments: {{parameters: [{{name: v, value: "{{{{tasks.a.status}}}}"}}]}}
- {{name: group, {of_group}dag: {{tasks: [{{name: x, template: work}}]}}}}
- {{name: work, {of_work}container: {{image: a, command: [b]}}, {outputs}}}
- {{name: say, inputs: {{parameters: [{{name: v}}]}}, container: {{image: a, command: [b]}}}}"""
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    report = made.simulate({"work": [{"exitCode": code}] * 3})
    assert counts(report)["work"] == attempts
    assert inputs(report)[-1] == {"v": "Error" if code == MISSING_CODE else "Failed"}


@pytest.mark.parametrize(
    ("strategy", "attempts"),
    [
        ("limit: 2", 3),
        ("limit: 2, retryPolicy: OnFailure", 3),
        ("limit: 2, retryPolicy: OnError", 1),
        ('limit: 2, expression: "asInt(lastRetry.exitCode) in [1, 3]"', 1),
        ('limit: 2, expression: "asInt(lastRetry.exitCode) > 1"', 3),
        ("limit: 2, expression: \"lastRetry.status == 'Failed'\"", 3),
        ("limit: 2, expression: \"lastRetry.status == 'Error'\"", 1),
        ("limit: 2, expression: \"lastRetry.exitCode != '143'\"", 1),
        ("limit: 2, expression: \"lastRetry.exitCode != '137'\"", 3),
    ],
)
def test_a_retry_strategy_also_decides_about_attempts_that_their_deadline_ends(
    tmp_path: Path, strategy: str, attempts: int
) -> None:
    """A container that is stopped has an exit code, too; these attempts were always repeated."""
    made = argo(
        tmp_path,
        workflow(
            f"- {{name: main, retryStrategy: {{{strategy}}}, activeDeadlineSeconds: 5, container: {{image: a, command: [b]}}, "
            "outputs: {parameters: [{name: o, valueFrom: {path: /o}}]}}"
        ),
    )
    assert made.complete, made.sentences
    assert any("counts as the exit code 143" in each for each in made.sentences) == (
        "14" in strategy or "137" in strategy
    )
    assert counts(made.simulate({"main": [{"hang": True}]}))["main"] == attempts
