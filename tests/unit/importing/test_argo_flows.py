"""Steps, DAGs, conditions, and loops of Argo: converted and simulated."""

from pathlib import Path

import pytest

from unit.importing.imported import argo, inputs, ran, workflow

SAY = """
- name: say
  inputs: {parameters: [{name: text}]}
  container: {image: busybox, command: [echo, "{{inputs.parameters.text}}"]}
"""
FLIP = """
- name: flip
  script: {image: python, command: [python], source: "print('heads')"}
"""


def test_stages_run_one_after_the_other_and_their_steps_together(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """
- name: main
  steps:
  - - {name: a, template: say, arguments: {parameters: [{name: text, value: a}]}}
  - - {name: b, template: say, arguments: {parameters: [{name: text, value: b}]}}
    - {name: c, template: say, arguments: {parameters: [{name: text, value: c}]}}
  - - {name: d, template: say, arguments: {parameters: [{name: text, value: d}]}}
"""
            + SAY
        ),
    )
    assert made.complete, made.sentences
    assert [step.get("needs") for step in made.spec["steps"]] == [[], ["a"], ["a"], ["b", "c"]]
    report = made.simulate({"say": [{"after": "10s"}]})
    assert (report["phase"], report["elapsed"]) == ("Completed", 30)


def test_a_condition_reads_what_a_script_prints(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """
- name: main
  steps:
  - - {name: flip-coin, template: flip}
  - - {name: heads, template: heads, when: "{{steps.flip-coin.outputs.result}} == heads"}
    - {name: tails, template: tails, when: "{{steps.flip-coin.outputs.result}} == tails"}
- {name: heads, container: {image: busybox, command: [echo, heads]}}
- {name: tails, container: {image: busybox, command: [echo, tails]}}
"""
            + FLIP
        ),
    )
    assert made.complete, made.sentences
    report = made.simulate({"flip": [{"output": "tails"}]})
    assert ran(report, "heads") == []
    assert ran(report, "tails") == ["Completed"]


def test_a_recursive_template_calls_itself(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """
- name: main
  steps:
  - - {name: flip-coin, template: flip}
  - - {name: again, template: main, when: "{{steps.flip-coin.outputs.result}} == tails"}
"""
            + FLIP
        ),
    )
    assert made.complete, made.sentences
    report = made.simulate({"flip": [{"output": "tails"}, {"output": "tails"}, {"output": "heads"}]})
    assert report["phase"] == "Completed"
    assert ran(report, "flip") == ["Completed"] * 3


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("withItems: [a, 2, {k: v}]", ["a", 2, {"k": "v"}]),
        ("withParam: '[1, 2]'", [1, 2]),
        ("withParam: '{{workflow.parameters.list}}'", ["x", "y"]),
        ("withSequence: {count: '3'}", [0, 1, 2]),
        ("withSequence: {start: '5', end: '3'}", [5, 4, 3]),
        ("withSequence: {start: '1', count: '{{workflow.parameters.num}}'}", [1, 2]),
        ("withSequence: {count: 2, format: 'host%02X'}", ["host00", "host01"]),
        ("withItems: [1, 2, 3]\n      when: '{{item}} > 1'", [2, 3]),
    ],
)
def test_loops_run_once_for_each_item(tmp_path: Path, loop: str, expected: list[object]) -> None:
    made = argo(
        tmp_path,
        workflow(
            f"""
- name: main
  steps:
  - - name: each
      template: say
      arguments: {{parameters: [{{name: text, value: "{{{{item}}}}"}}]}}
      {loop}
"""
            + SAY,
            'entrypoint: main\narguments: {parameters: [{name: num, value: 2}, {name: list, value: "[\\"x\\", \\"y\\"]"}]}',
        ),
    )
    assert made.complete, made.sentences
    report = made.simulate()
    assert inputs(report) == [{"text": each} for each in expected]


def test_outputs_of_a_loop_are_lists(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """
- name: main
  steps:
  - - {name: each, template: work, withItems: [1, 2]}
  - - {name: sums, template: say, arguments: {parameters: [{name: text, value: "{{steps.each.outputs.parameters.sum}}"}]}}
  - - name: again
      template: say
      arguments: {parameters: [{name: text, value: "{{item.kind}}"}]}
      withParam: "{{steps.each.outputs.parameters}}"
- name: work
  container: {image: busybox, command: [work]}
  outputs: {parameters: [{name: sum, valueFrom: {path: /sum}}, {name: kind, valueFrom: {path: /kind}}]}
"""
            + SAY
        ),
    )
    assert made.complete, made.sentences
    report = made.simulate({"work": [{"output": {"sum": "3", "kind": "odd"}}]})
    assert inputs(report)[2:] == [{"text": ["3", "3"]}, {"text": "odd"}, {"text": "odd"}]


DAG = """
- name: main
  dag:
    tasks:
    - {name: A, template: a}
    - {name: B, template: b, depends: A}
    - {name: on-failure, template: c, depends: "B.Failed"}
    - {name: after, template: d, depends: "B && A.Succeeded"}
- {name: a, container: {image: busybox}}
- {name: b, container: {image: busybox}}
- {name: c, container: {image: busybox}}
- {name: d, container: {image: busybox}}
"""


def test_a_task_can_depend_on_a_failure(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow(DAG))
    assert made.complete, made.sentences
    good = made.simulate()
    assert (good["phase"], ran(good, "c"), ran(good, "d")) == ("Completed", [], ["Completed"])
    bad = made.simulate({"b": [{"exitCode": 1}]})
    assert (bad["phase"], ran(bad, "c"), ran(bad, "d")) == ("Failed", ["Completed"], [])


def test_an_omitted_task_omits_those_that_need_it(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow("""
- name: main
  dag:
    tasks:
    - {name: A, template: a}
    - {name: B, template: b, depends: A.Failed}
    - {name: C, template: c, depends: B}
    - {name: skipped, template: b, depends: A, when: "1 == 2"}
    - {name: after-skipped, template: d, depends: skipped}
- {name: a, container: {image: busybox}}
- {name: b, container: {image: busybox}}
- {name: c, container: {image: busybox}}
- {name: d, container: {image: busybox}}
"""),
    )
    report = made.simulate()
    assert report["phase"] == "Completed"
    assert [ran(report, name) for name in "abcd"] == [["Completed"], [], [], ["Completed"]]


def test_dependencies_can_be_declared_before_their_tasks(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow("""
- name: main
  dag:
    tasks:
    - {name: last, template: b, dependencies: [x, z]}
    - {name: x, template: a}
    - {name: z, template: a, dependencies: [x]}
- {name: a, container: {image: busybox}}
- {name: b, container: {image: busybox}}
"""),
    )
    assert made.complete, made.sentences
    assert made.simulate({"a": [{"after": "5s"}]})["elapsed"] == 10


def test_the_target_of_a_dag_selects_its_tasks(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow("""
- name: main
  dag:
    target: z
    tasks:
    - {name: x, template: a}
    - {name: z, template: a, dependencies: [x]}
    - {name: w, template: a}
- {name: a, container: {image: busybox}}
"""),
    )
    assert [step["name"] for step in made.spec["steps"]] == ["x", "z"]


def test_continue_on_lets_later_steps_run(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """
- name: main
  steps:
  - - {name: a, template: a, continueOn: {failed: true}}
  - - {name: b, template: say, arguments: {parameters: [{name: text, value: "{{steps.a.status}} {{steps.a.exitCode}}"}]}}
- {name: a, container: {image: busybox}}
"""
            + SAY
        ),
    )
    assert made.complete, made.sentences
    report = made.simulate({"a": [{"exitCode": 3}]})
    assert report["phase"] == "Completed"
    assert inputs(report)[-1] == {"text": "Failed 3"}


HOOKS = """
- name: main
  steps:
  - - {name: a, template: work, onExit: clean}
  - - {name: b, template: last}
- {name: work, container: {image: busybox}}
- {name: last, container: {image: busybox}}
- {name: clean, container: {image: busybox}}
- name: report
  container: {image: busybox, args: ["{{workflow.status}}"]}
"""


@pytest.mark.parametrize(("code", "phase", "status"), [(0, "Completed", "Succeeded"), (1, "Failed", "Failed")])
def test_exit_handlers_always_run(tmp_path: Path, code: int, phase: str, status: str) -> None:
    made = argo(tmp_path, workflow(HOOKS, "entrypoint: main\nonExit: report"))
    assert made.complete, made.sentences
    report = made.simulate({"work": [{"exitCode": code} if code else {}]})
    assert report["phase"] == phase
    assert ran(report, "clean") == ["Completed"]
    assert ran(report, "last") == ([] if code else ["Completed"])
    assert inputs(report)[-1] == {"status": status}


def test_the_target_of_a_dag_can_be_a_parameter(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """
- name: main
  dag:
    target: "{{workflow.parameters.target}}"
    tasks:
    - {name: a, template: say, arguments: {parameters: [{name: text, value: a}]}}
    - {name: b, template: say, dependencies: [a], arguments: {parameters: [{name: text, value: b}]}}
    - {name: c, template: say, dependencies: [a], arguments: {parameters: [{name: text, value: c}]}}
    - {name: d, template: say, dependencies: [c], arguments: {parameters: [{name: text, value: d}]}}
"""
            + SAY,
            "entrypoint: main\narguments: {parameters: [{name: target, value: b c}]}",
        ),
    )
    assert made.complete, made.sentences
    assert [each["text"] for each in inputs(made.simulate())] == ["a", "b", "c"]
    several = made.file.with_name("foreign-0.yaml").read_text().replace('target: "', 'target: "{{workflow.name}} ')
    assert any("dag.target: must be one tag" in each for each in argo(tmp_path, several).sentences)


RETRIED = """
- name: main
  steps: [[{name: a, template: flow, arguments: {parameters: [{name: text, value: "hi {{workflow.parameters.who}}"}]}}]]
- name: flow
  retryStrategy: {limit: 2, backoff: {duration: 5, maxDuration: 1m}}
  inputs: {parameters: [{name: text}]}
  dag: {tasks: [{name: one, template: say, arguments: {parameters: [{name: text, value: "{{inputs.parameters.text}}"}]}}]}
"""


def test_a_list_of_steps_with_retries_is_a_child_workflow(tmp_path: Path) -> None:
    spec = "entrypoint: main\narguments: {parameters: [{name: who, value: ann}]}"
    made = argo(tmp_path, workflow(RETRIED + SAY, spec))
    assert made.complete, made.sentences
    kinds = {each["metadata"]["name"]: each for each in made.manifests}
    step = kinds["made"]["spec"]["inline"]["steps"][0]["childWorkflow"]
    assert (step["workflow"], step["input"]) == (
        {"name": "made-flow"},
        {"text": "hi ${input.who}", "who": "${input.who}"},
    )
    policy = {"initialInterval": "5s", "backoffCoefficient": "1", "maximumAttempts": 3}
    assert (step["retryPolicy"], step["executionTimeout"]) == ({"exponential": policy}, "1m")
    assert kinds["made-flow"]["spec"].keys() == {"activities", "steps", "blocks"}
    report = made.simulate({"say": [{"fail": {"type": "Deaf"}}, {}]})
    assert (report["phase"], report["elapsed"]) == ("Completed", 5)


def test_default_retries_also_apply_to_the_entrypoint(tmp_path: Path) -> None:
    spec = "entrypoint: main\ntemplateDefaults: {retryStrategy: {limit: 1}, timeout: 30s}"
    made = argo(
        tmp_path,
        workflow("- {name: main, steps: [[{name: a, template: b}]]}\n- {name: b, container: {image: c}}", spec),
    )
    assert made.complete, made.sentences
    kinds = {each["metadata"]["name"]: each["spec"] for each in made.manifests}
    policy = kinds["made"]["inline"]["steps"][0]["childWorkflow"]["retryPolicy"]
    assert policy["exponential"]["maximumAttempts"] == 2
    (activity,) = kinds["made-main"]["activities"]
    assert (activity["startToCloseTimeout"], activity["retryPolicy"]["exponential"]["maximumAttempts"]) == ("30s", 2)
    assert kinds["made-main"]["steps"][0]["timeout"] == "30s"


@pytest.mark.parametrize("kind", ["steps", "dag"])
def test_a_parallelism_limits_the_steps_of_a_template(tmp_path: Path, kind: str) -> None:
    calls = [
        f"{{name: {each}, template: say, arguments: {{parameters: [{{name: text, value: {each}}}]}}}}" for each in "abc"
    ]
    steps = f"steps: [[{', '.join(calls)}]]" if kind == "steps" else f"dag: {{tasks: [{', '.join(calls)}]}}"
    made = argo(tmp_path, workflow(f"- name: main\n  parallelism: 2\n  {steps}\n{SAY}"))
    assert made.complete, made.sentences
    report = made.simulate({"say": [{"after": "10s"}]})
    assert (report["phase"], report["elapsed"]) == ("Completed", 20)


def test_a_hook_of_a_running_workflow_runs_when_it_starts(tmp_path: Path) -> None:
    spec = """entrypoint: main
hooks:
  running: {expression: workflow.status == "Running", template: notify}
  exit: {template: notify}"""
    templates = "- {name: main, container: {image: a}}\n- {name: notify, container: {image: b}}"
    made = argo(tmp_path, workflow(templates, spec))
    assert made.complete, made.sentences
    report = made.simulate({"main": [{"after": "9s"}], "notify": [{"fail": {"type": "Deaf"}}, {}]})
    assert (report["phase"], report["elapsed"]) == ("Completed", 9)
    assert ran(report, "notify") == ["Failed", "Completed"]
    late = argo(tmp_path, workflow(templates, spec.replace("Running", "Failed")))
    assert any("spec.hooks.running.expression: only hooks of the status `Running`" in each for each in late.sentences)


def test_hooks_run_before_and_after_a_step(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """
- name: main
  steps:
  - - name: a
      template: work
      hooks:
        running: {expression: 'steps["a"].status == "Running"', template: say, arguments: {parameters: [{name: text, value: on}]}}
        good: {expression: "steps.a.status == 'Succeeded'", template: say, arguments: {parameters: [{name: text, value: good}]}}
        bad: {expression: "steps.a.status == 'Failed'", template: say, arguments: {parameters: [{name: text, value: bad}]}}
- {name: work, container: {image: busybox}}
"""
            + SAY
        ),
    )
    assert made.complete, made.sentences
    assert inputs(made.simulate()) == [{"text": "true"}, None, {"text": "good"}]
    assert inputs(made.simulate({"work": [{"exitCode": 1}]})) == [{"text": "true"}, None, {"text": "bad"}]


def test_a_suspended_step_waits_for_a_signal_with_its_outputs(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """
- name: main
  steps:
  - - {name: ask, template: approve}
  - - {name: wait, template: pause}
  - - {name: b, template: say, arguments: {parameters: [{name: text, value: "{{steps.ask.outputs.parameters.who}}"}]}}
- {name: approve, suspend: {}, outputs: {parameters: [{name: who, valueFrom: {supplied: {}}}]}}
- {name: pause, suspend: {duration: "20"}}
"""
            + SAY
        ),
    )
    assert made.complete, made.sentences
    report = made.simulate(signals=[{"at": "1m", "name": "approve", "input": {"who": "Ada"}}])
    assert (report["phase"], report["elapsed"]) == ("Completed", 80)
    assert inputs(report) == [{"text": "Ada"}]


def test_outputs_of_a_block_and_global_outputs_reach_later_steps(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """
- name: main
  steps:
  - - {name: inner, template: inner}
  - - {name: a, template: say, arguments: {parameters: [{name: text, value: "{{steps.inner.outputs.parameters.num}}"}]}}
  - - {name: b, template: say, arguments: {parameters: [{name: text, value: "{{workflow.outputs.parameters.the-n}}"}]}}
- name: inner
  steps: [[{name: make, template: make}]]
  outputs: {parameters: [{name: num, valueFrom: {parameter: "{{steps.make.outputs.parameters.num}}"}}]}
- name: make
  container: {image: busybox, command: [make]}
  outputs: {parameters: [{name: num, globalName: the-n, valueFrom: {path: /n}}]}
"""
            + SAY
        ),
    )
    assert made.complete, made.sentences
    report = made.simulate({"make": [{"output": 5}]})
    assert inputs(report)[1:] == [{"text": 5}, {"text": 5}]


@pytest.mark.parametrize("field", ["depends: missing.Succeeded", "dependencies: [missing]"])
def test_a_task_that_is_not_defined_is_reported(tmp_path: Path, field: str) -> None:
    made = argo(
        tmp_path,
        workflow(
            f"- {{name: main, dag: {{tasks: [{{name: a, template: b, {field}}}]}}}}\n- {{name: b, container: {{image: i}}}}"
        ),
    )
    assert any("dag.tasks[0].depends: there is no task `missing`" in each for each in made.sentences), made.sentences


@pytest.mark.parametrize(
    ("end", "items"), [("3", ["1", "2", "3"]), ("1", ["1"]), ("0", ["1", "0"]), ("-1", ["1", "0", "-1"])]
)
def test_a_sequence_with_a_computed_end_below_its_start_counts_down(tmp_path: Path, end: str, items: list[str]) -> None:
    """As `expandSequence` in workflow/controller/operator.go of Argo Workflows 4.0.5; its example withsequence-nested-result."""
    templates = """- name: main
  steps:
  - - {name: last, template: last}
  - - name: each
      template: each
      arguments: {parameters: [{name: number, value: "{{item}}"}]}
      withSequence: {start: "1", end: "{{steps.last.outputs.result}}"}
- {name: last, script: {image: a, command: [sh], source: "echo 3"}}
- {name: each, inputs: {parameters: [{name: number}]}, container: {image: a}}"""
    made = argo(tmp_path, workflow(templates))
    assert made.complete, made.sentences
    report = made.simulate({"last": [{"output": int(end)}]})
    assert [str(each["number"]) for each in inputs(report) if each] == items


def test_a_workflow_of_hera(tmp_path: Path) -> None:
    """`hera/total.py`, as Hera 7.1 prints it: a function becomes a script in Python, with the values in its source."""
    made = argo(tmp_path, (Path(__file__).parent / "hera" / "total.yaml").read_text(encoding="utf-8"))
    assert made.complete, made.sentences
    report = made.simulate({"add": [{"output": 6}], "show": [{"whenInput": {"text": "a"}, "exitCode": 1}, {}]})
    assert report["phase"] == "Failed"
    assert [len(ran(report, each)) for each in ("add", "show")] == [1, 5]
    assert inputs(report)[:2] == [{"numbers": "[1, 2, 3]"}, {"text": 6, "prefix": "total: "}]
    assert "${input.numbers}" in str(made.activity("add"))
