"""Manifests that their own systems reject, or that no one can mean: each is reported with its place, and what to do.

The rules of Argo are those of workflow/validate/validate.go (argoproj/argo-workflows), those of Tekton pkg/apis/pipeline/v1
(tektoncd/pipeline). Before, most of these manifests lost a part silently, some ended in a traceback, and some never ended.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.client.errors import ClientError
from unit.importing.imported import Result, argo, inputs, pipeline_run, tekton, workflow

ECHO = "- {name: echo, inputs: {parameters: [{name: text}]}, container: {image: i, command: [echo]}}\n"


def say(name: str, text: str, more: str = "") -> str:
    return f"{{name: {name}, template: echo, arguments: {{parameters: [{{name: text, value: {text}}}]}}{more}}}"


def main(*steps: str) -> str:
    return f"- {{name: main, steps: [[{', '.join(steps)}]]}}\n{ECHO}"


def dag(*tasks: str) -> str:
    return f"- {{name: main, dag: {{tasks: [{', '.join(tasks)}]}}}}\n{ECHO}"


def reported(made: Result, path: str, message: str) -> bool:
    return not made.complete and any(f": {path}: {message}" in each for each in made.sentences)


ARGO: dict[str, tuple[str, str, str]] = {
    "a loop over an object": (
        main(say("s", "'{{item}}'", ", withParam: '{}'")),
        "spec.templates[0].steps[0][0].withParam",
        "`withParam` must be one tag, or a list in JSON",
    ),
    "a last task without a name": (
        dag(say("a", "1"), "{template: echo, depends: a.Failed || a.Succeeded}", say("c", "1", ", depends: a.Failed")),
        "spec.templates[0].dag.tasks[1].name",
        "must be set",
    ),
    "a number with a billion digits": (
        main(say("s", "'{{item}}'", ", withSequence: {count: 2, format: '%0999999999d'}")),
        "spec.templates[0].steps[0][0].withSequence",
        "the format `%0999999999d` has no counterpart; format the number in the container",
    ),
    "a name that YAML reads as a boolean": (
        "- {name: main, inputs: {parameters: [{name: n, value: a}]}, container: {image: a}}",
        "spec.templates[0].inputs.parameters[0].name",
        "must be a string, not `false`; write it in quotes",
    ),
    "templates with one name": (
        "- {name: main, container: {image: a}}\n- {name: main, container: {image: b}}",
        "spec.templates[1].name",
        '`"main"` is also the name of `spec.templates[0]`; rename one of them',
    ),
    "steps with one name": (main(say("s", "1"), say("s", "2")), "spec.templates[0].steps[0][1].name", '`"s"` is also'),
    "tasks with one name": (dag(say("s", "1"), say("s", "2")), "spec.templates[0].dag.tasks[1].name", '`"s"` is also'),
    "arguments with one name": (
        main("{name: s, template: echo, arguments: {parameters: [{name: text, value: a}, {name: text, value: b}]}}"),
        "spec.templates[0].steps[0][0].arguments.parameters[1].name",
        '`"text"` is also',
    ),
    "an input without a name": (
        "- {name: main, inputs: {parameters: [{value: x}]}, container: {image: a}}",
        "spec.templates[0].inputs.parameters[0].name",
        "must be set",
    ),
    "containers with one name": (
        "- {name: main, containerSet: {containers: [{name: a, image: a, command: [a]}, {name: a, image: b, command: [b]}]}}",
        "spec.templates[0].containerSet.containers[1].name",
        '`"a"` is also',
    ),
    "names in an inline template": (
        (
            "- {name: main, steps: [[{name: s, inline: {container: {image: a}, inputs: {parameters: [{name: p, value: 1}, "
            "{name: p, value: 2}]}}}]]}"
        ),
        "spec.templates[0].steps[0][0].inline.inputs.parameters[1].name",
        '`"p"` is also',
    ),
    "a circle of tasks": (
        dag(say("a", "1", ", dependencies: [c]"), say("b", "2", ", depends: a"), say("c", "3", ", depends: b.Failed")),
        "spec.templates[0].dag.tasks",
        "`a`, which depends on `c`, which depends on `b`, which depends on `a`; none of them would ever run",
    ),
    "a task that waits for itself": (
        dag(say("a", "1", ", depends: a.Failed")),
        "spec.templates[0].dag.tasks",
        "`a`, which depends on `a`; none of them would ever run: remove one of the dependencies",
    ),
    "a target that does not exist": (
        "- {name: main, dag: {target: a b, tasks: [{name: a, template: echo}]}}\n- {name: echo, container: {image: i}}",
        "spec.templates[0].dag.target",
        "there is no task `b`; define it",
    ),
    "both kinds of dependencies": (
        dag(say("a", "1"), say("b", "2"), say("c", "3", ", depends: a, dependencies: [b]")),
        "spec.templates[0].dag.tasks[2].dependencies",
        "cannot be used next to `depends`",
    ),
    **{
        f"the condition {text}": (
            dag(say("a", "1"), say("b", "2", f", depends: {json.dumps(text)}")),
            "spec.templates[0].dag.tasks[1].depends",
            f"`{text}` is not a valid condition on tasks",
        )
        for text in ("a &&", "(a || a", "!", "a a", "a) && (a", "|| a", "a.Weird", "()", "a @ b")
    },
    "two loops": (
        main(say("s", "'{{item}}'", ", withItems: [1], withParam: '[2]'")),
        "spec.templates[0].steps[0][0]",
        "has `withItems` and `withParam`; a step has one loop",
    ),
    "two ends of a sequence": (
        main(say("s", "'{{item}}'", ", withSequence: {count: 1, end: 2}")),
        "spec.templates[0].steps[0][0].withSequence.count",
        "cannot be used next to `end`",
    ),
    "two kinds of work": (
        "- {name: main, container: {image: a}, script: {image: a, source: x}}",
        "spec.templates[0]",
        "has `container` and `script`; make a template of each",
    ),
    "no steps": ("- {name: main, steps: []}", "spec.templates[0].steps", "must have at least one step"),
    "no steps in a group": ("- {name: main, steps: [[]]}", "spec.templates[0].steps", "must have at least one step"),
    "no tasks": ("- {name: main, dag: {tasks: []}}", "spec.templates[0].dag.tasks", "must have at least one task"),
    "no parallelism": (
        "- {name: main, parallelism: 0, steps: [[{name: s, template: echo}]]}\n- {name: echo, container: {image: a}}",
        "spec.templates[0].parallelism",
        "must be at least 1",
    ),
    "a sequence without an end": (
        main(say("s", "'{{item}}'", ", withSequence: {count: 1000000000}")),
        "spec.templates[0].steps[0][0].withSequence",
        "a loop has at most 131072 items",
    ),
    "a condition with an error": (
        main(say("s", "a", ', when: "(a == a"')),
        "spec.templates[0].steps[0][0].when",
        "`(a == a` cannot be translated",
    ),
    "a condition on an item with an error": (
        main(say("s", "a", ', withItems: [1], when: "({{item}} == 1"')),
        "spec.templates[0].steps[0][0].when",
        "`({{item}} == 1` cannot be translated",
    ),
    "a parameter of the workflow that it does not declare": (
        main(say("s", "'{{workflow.parameters.none}}'")),
        "spec.templates[0].steps[0][0].arguments.parameters[0]",
        "the workflow has no parameter `none`; declare it in `arguments`",
    ),
    "an input that a template does not declare": (
        main(say("s", "'{{inputs.parameters.none}}'")),
        "spec.templates[0].steps[0][0].arguments.parameters[0]",
        "`inputs.parameters.none` is not an input of the template; declare it",
    ),
    "an output that a template does not declare": (
        f"- {{name: main, steps: [[{say('a', '1')}], [{say('b', repr('{{steps.a.outputs.parameters.none}}'))}]]}}\n{ECHO}",
        "spec.templates[0].steps[1][0].arguments.parameters[0]",
        "the template has no output parameter `none`; declare it",
    ),
    "the result of a list of steps": (
        (
            f"- {{name: main, steps: [[{{name: a, template: group}}], [{say('b', repr('{{steps.a.outputs.result}}'))}]]}}\n"
            f"- {{name: group, steps: [[{say('c', '1')}]]}}\n{ECHO}"
        ),
        "spec.templates[0].steps[1][0].arguments.parameters[0]",
        "the template has no `outputs.result`",
    ),
    "global outputs that become one variable": (
        (
            "- {name: main, container: {image: a, command: [b]}, outputs: {parameters: [{name: o, globalName: a-b, valueFrom: "
            "{path: /o}}, {name: q, globalName: a_b, valueFrom: {path: /q}}]}}"
        ),
        "spec.templates[0].outputs.parameters[1].globalName",
        "becomes the variable `a_b`, as another one does; rename it",
    ),
    "artifacts that become one": (
        "- {name: main, container: {image: a}, outputs: {artifacts: [{name: A_b, path: /a/x}, {name: a-b, path: /b/x}]}}",
        "spec.templates[0].outputs.artifacts[1].name",
        "becomes `a-b`, as another one does; rename it",
    ),
    "a parameter with the name of an artifact in the input": (
        (
            "- {name: main, inputs: {artifacts: [{name: f, path: /f/x, raw: {data: x}}], "
            "parameters: [{name: artifact-f, value: x}]}, "
            "container: {image: a}}"
        ),
        "spec.templates[0].inputs.parameters[0].name",
        "is the field of an artifact in the input; rename the parameter",
    ),
    "locks that become one": (
        (
            "- {name: main, steps: [[{name: a, template: a}, {name: b, template: b}]]}\n"
            "- {name: a, synchronization: {mutexes: [{name: A/b}]}, container: {image: a}}\n"
            "- {name: b, synchronization: {mutexes: [{name: a-b}]}, container: {image: a}}"
        ),
        "spec.templates[2].synchronization.mutexes[0]",
        "becomes the WorkflowLimit `a-b`, as the lock `A/b` does; rename one of them",
    ),
    "a wait below zero": (
        "- {name: main, suspend: {duration: -5s}}",
        "spec.templates[0].suspend.duration",
        "`-5s` is below zero; write a duration such as `90s`, or remove it",
    ),
    "a default that reads another input": (
        (
            "- {name: main, steps: [[{name: s, template: x}]]}\n"
            "- {name: x, inputs: {parameters: [{name: p, value: '{{inputs.parameters.q}}'}, {name: q, value: z}]}, container: "
            "{image: a}}"
        ),
        "spec.templates[0].steps[0][0]",
        "`inputs.parameters.q` has no value in the default of an input; pass it as an argument",
    ),
}


@pytest.mark.parametrize(("templates", "path", "message"), ARGO.values(), ids=ARGO)
def test_a_mistake_in_a_workflow_is_reported(tmp_path: Path, templates: str, path: str, message: str) -> None:
    made = argo(tmp_path, workflow(templates))
    assert reported(made, path, message), made.sentences


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ("{}", "spec.entrypoint", "must be set"),
        ("entrypoint: none", "spec.entrypoint", "there is no template `none`; define it"),
        ("entrypoint: main\nparallelism: -2", "spec.parallelism", "must be at least 1"),
        ("entrypoint: main\npriority: 5000", "spec.priority", "priorities are from -1000 to 1000: it becomes 1000"),
        (
            "entrypoint: main\narguments: {parameters: [{name: p, value: a}, {name: p, value: b}]}",
            "spec.arguments.parameters[1].name",
            '`"p"` is also',
        ),
    ],
)
def test_a_mistake_in_the_spec_of_a_workflow_is_reported(tmp_path: Path, spec: str, path: str, message: str) -> None:
    made = argo(tmp_path, workflow("- {name: main, container: {image: a}}", spec.replace("{}", "archiveLogs: false")))
    assert any(f": {path}: {message}" in each for each in made.sentences), made.sentences


S = "taskSpec: {params: [{name: x}], steps: [{name: s, image: i, command: [c], args: ['$(params.x)']}]}"
ONE = "params: [{name: x, value: '1'}]"
ARRAYS = "{name: a, type: array, default: [x]}, {name: o, type: object, properties: {k: {}}, default: {k: v}}"
TEKTON: dict[str, tuple[str, str, str]] = {
    "an array in a script": (
        (
            f"tasks: [{{name: t, taskSpec: {{params: [{ARRAYS}], "
            "steps: [{name: s, image: i, script: 'echo $(params.a[*])'}]}}]"
        ),
        "spec.pipelineSpec.tasks[0].taskSpec.steps[0].script",
        "`$(params.a[*])` is an array; an array can only be a whole word of `command` or `args`",
    ),
    "an array in a word": (
        (
            f"tasks: [{{name: t, taskSpec: {{params: [{ARRAYS}], "
            "steps: [{name: s, image: i, command: [c], args: ['-x=$(params.a[*])']}]}}]"
        ),
        "spec.pipelineSpec.tasks[0].taskSpec.steps[0].args[0]",
        "`$(params.a[*])` is an array",
    ),
    "an object in a word": (
        (
            f"tasks: [{{name: t, taskSpec: {{params: [{ARRAYS}], "
            "steps: [{name: s, image: i, command: ['$(params.o[*])']}]}}]"
        ),
        "spec.pipelineSpec.tasks[0].taskSpec.steps[0].command[0]",
        "`$(params.o[*])` is an object; read one of its keys",
    ),
    "a matrix over a number": (
        f"tasks: [{{name: a, matrix: {{params: [{{name: x, value: 7}}]}}, {S}, {ONE}}}]",
        "spec.pipelineSpec.tasks[0].matrix",
        "the values of `x` must be a list, not `7`",
    ),
    "an array as the program": (
        (
            "params: [{name: c, type: array}]\n"
            "tasks: [{name: t, taskSpec: {steps: [{name: s, image: i, command: ['$(params.c[*])'], args: ['$(params.c[*])']}]}}]"
        ),
        "spec.pipelineSpec.tasks[0].taskSpec.steps[0].command",
        "the program must not be computed",
    ),
    "a name that YAML reads as a boolean": (
        f"params: [{{name: n, default: a}}]\ntasks: [{{name: a, {S}, {ONE}}}]",
        "spec.pipelineSpec.params[0].name",
        "must be a string, not `false`; write it in quotes",
    ),
    "tasks with one name": (
        f"tasks: [{{name: a, {S}, {ONE}}}, {{name: a, {S}, {ONE}}}]",
        "spec.pipelineSpec.tasks[1].name",
        '`"a"` is also the name of `spec.pipelineSpec.tasks[0]`; rename one of them',
    ),
    "a final task with the name of another one": (
        f"tasks: [{{name: a, {S}, {ONE}}}]\nfinally: [{{name: a, {S}, {ONE}}}]",
        "spec.pipelineSpec.finally[0].name",
        '`"a"` is also',
    ),
    "a name that is no label": (
        f"tasks: [{{name: a.b, {S}, {ONE}}}]",
        "spec.pipelineSpec.tasks[0].name",
        "`a.b` must have lowercase letters, digits, and dashes",
    ),
    "a circle": (
        f"tasks: [{{name: a, runAfter: [b], {S}, {ONE}}}, {{name: b, runAfter: [a], {S}, {ONE}}}]",
        "spec.pipelineSpec.tasks[0].runAfter",
        "`a`, which needs `b`, which needs `a`; none of them would ever run",
    ),
    "parameters with one name": (
        f"params: [{{name: p, default: a}}, {{name: p, default: b}}]\ntasks: [{{name: a, {S}, {ONE}}}]",
        "spec.pipelineSpec.params[1].name",
        '`"p"` is also',
    ),
    "steps with one name": (
        "tasks: [{name: a, taskSpec: {steps: [{name: s, image: i, script: x}, {name: s, image: i, script: y}]}}]",
        "spec.pipelineSpec.tasks[0].taskSpec.steps[1].name",
        '`"s"` is also',
    ),
    "a task and a reference": (
        f"tasks: [{{name: a, {S}, {ONE}, taskRef: {{name: t}}}}]",
        "spec.pipelineSpec.tasks[0].taskSpec",
        "cannot be used next to `taskRef`; remove one of them",
    ),
    "a limit below zero": (
        f"tasks: [{{name: a, timeout: -1h, {S}, {ONE}}}]",
        "spec.pipelineSpec.tasks[0].timeout",
        "`-1h` is below zero",
    ),
    "retries below zero": (
        f"tasks: [{{name: a, retries: -1, {S}, {ONE}}}]",
        "spec.pipelineSpec.tasks[0].retries",
        "must be at least 0",
    ),
    "a parameter without a value": (
        f"tasks: [{{name: a, {S}}}]",
        "spec.pipelineSpec.tasks[0].params",
        "the parameter `x` of the task has no value; pass one, or declare a default",
    ),
    "a list for a text": (
        f"tasks: [{{name: a, {S}, params: [{{name: x, value: [a]}}]}}]",
        "spec.pipelineSpec.tasks[0].params",
        '`x` must be a string, as the parameter is declared, not `["a"]`',
    ),
    "a parameter of the run without a value": (
        f"params: [{{name: p}}]\ntasks: [{{name: a, {S}, {ONE}}}]",
        "spec.pipelineSpec.params[0]",
        "has no value; give one in the `params` of the run, or a default",
    ),
    "a key that an object does not have": (
        (
            f"params: [{{name: o, type: object, properties: {{a: {{}}}}, default: {{a: b}}}}]\n"
            f"tasks: [{{name: a, {S}, params: [{{name: x, value: $(params.o.none)}}]}}]"
        ),
        "spec.pipelineSpec.tasks[0].params",
        "the parameter `o` has no key `none`; declare it in its `properties`",
    ),
    "a matrix without an end": (
        "tasks: [{name: a, taskSpec: {steps: [{name: s, image: i, script: x}]}, matrix: {params: ["
        + ", ".join(f"{{name: p{i}, value: {json.dumps(list('abcdefghij'))}}}" for i in range(8))
        + "]}}]",
        "spec.pipelineSpec.tasks[0].matrix",
        "a loop has at most 131072 items",
    ),
}


@pytest.mark.parametrize(("spec", "path", "message"), TEKTON.values(), ids=TEKTON)
def test_a_mistake_in_a_pipeline_is_reported(tmp_path: Path, spec: str, path: str, message: str) -> None:
    made = tekton(tmp_path, pipeline_run(spec))
    assert reported(made, path, message), made.sentences


@pytest.mark.parametrize(
    ("timeouts", "path", "message"),
    [
        ("{pipeline: 1h, tasks: 2h}", "spec.timeouts.tasks", "must not be longer than the limit of the pipeline, `1h`"),
        ("{finally: 61m}", "spec.timeouts.finally", "must not be longer"),
        ("{pipeline: 1h, tasks: 40m, finally: 30m}", "spec.timeouts", "`tasks` and `finally` are longer"),
        ("{pipeline: 1h, finally: '0'}", "", ""),
        ("{pipeline: '0', tasks: 2h, finally: 1h}", "", ""),
        ("{pipeline: 1h, tasks: 40m, finally: 20m}", "", ""),
    ],
)
def test_limits_of_parts_are_within_that_of_the_run(tmp_path: Path, timeouts: str, path: str, message: str) -> None:
    run = pipeline_run(f"tasks: [{{name: a, {S}, {ONE}}}]").replace("spec:\n", f"spec:\n  timeouts: {timeouts}\n", 1)
    made = tekton(tmp_path, run)
    assert reported(made, path, message) if path else made.complete, made.sentences


RUNNABLE = "spec: {entrypoint: m, templates: [{name: m, container: {image: i}}]}"
STEPS = "spec: {steps: [{name: s, image: i, script: x}]}"


@pytest.mark.parametrize(
    ("system", "text", "message"),
    [
        (argo, f"apiVersion: argoproj.io/v2\nkind: Workflow\nmetadata: {{name: x}}\n{RUNNABLE}", "apiVersion: must be"),
        (tekton, f"apiVersion: tekton.dev/v9\nkind: Task\nmetadata: {{name: x}}\n{STEPS}", "apiVersion: must be"),
        (argo, f"kind: Workflow\nmetadata: {{name: y}}\n{RUNNABLE}", "metadata.name: must be a string, not `true`"),
        (
            tekton,
            f"kind: Task\nmetadata: {{name: a, labels: {{b: 1}}}}\n{STEPS}",
            "metadata.labels.b: must be a string, not `1`",
        ),
        (argo, f"kind: WorkflowTemplate\n{RUNNABLE}", "metadata.name: must be set"),
        (tekton, f"kind: Task\n{STEPS}", "metadata.name: must be set"),
        (argo, "apiVersion: argoproj.io/v1alpha1\nkind: Sensor\nmetadata: {name: x}", "kind: events are not imported"),
        (tekton, "apiVersion: a/b\nkind: EventListener\nmetadata: {name: x}", "kind: triggers are not imported"),
        (argo, "kind: [a]", "must be a manifest, with an `apiVersion` and a `kind`"),
        (argo, "- a list", "must be a manifest, with an `apiVersion` and a `kind`"),
        (argo, "kind: Workflow\nmetadata: 5\nspec: x", "spec: must be a map, not"),
        (
            argo,
            f"kind: Workflow\nmetadata: {{name: a, name: b}}\n{RUNNABLE}",
            "metadata.name: is set twice in the same object",
        ),
        (
            argo,
            f"kind: Workflow\nmetadata: {{name: {'n' * 254}}}\n{RUNNABLE}",
            "metadata.name: must be a DNS subdomain: lowercase letters, digits, `-`, and `.`, at most 253 characters",
        ),
        (
            argo,
            "kind: Workflow\nmetadata: {name: x}\nspec: {entrypoint: m, templates: [null]}",
            "must be a map, not `null`",
        ),
    ],
)
def test_an_object_that_cannot_be_read_is_reported(
    tmp_path: Path, system: Callable[..., Result], text: str, message: str
) -> None:
    made = system(tmp_path, text)
    assert not made.complete
    assert any(message in each for each in made.sentences), made.sentences


def test_objects_of_other_systems_with_the_same_kinds_are_left_out(tmp_path: Path) -> None:
    other = f"apiVersion: example.org/v1\nkind: Workflow\nmetadata: {{name: x}}\n{RUNNABLE}"
    own = workflow("- {name: main, container: {image: a}}")
    made = argo(tmp_path, f"{own}---\n{other}")
    assert made.complete
    assert [each["metadata"]["name"] for each in made.manifests] == ["made"]
    assert 'Note: Workflow/x: apiVersion: `"example.org/v1"` is not a version of `argoproj.io`' in made.sentences[0]
    with pytest.raises(ClientError, match=r"contain nothing to convert.*Workflow/x: .* is left out"):
        argo(tmp_path, other)


def test_a_mistake_in_a_definition_that_becomes_a_part_of_a_run_is_reported(tmp_path: Path) -> None:
    """It was reported only if the Task became a Workflow itself."""
    task = "kind: Task\nmetadata: {name: t}\nspec: {steps: [{image: i, scrip: x}]}\n"
    run = "kind: TaskRun\nmetadata: {name: r}\nspec: {taskRef: {name: t}}"
    made = tekton(tmp_path, f"{task}---\n{run}")
    assert any("Task/t: spec.steps[0].scrip: is not a field" in each for each in made.sentences), made.sentences


@pytest.mark.parametrize(
    ("system", "text", "message"),
    [
        (
            argo,
            (
                f"kind: WorkflowTemplate\nmetadata: {{name: x}}\n{RUNNABLE}\n---\n"
                f"kind: ClusterWorkflowTemplate\nmetadata: {{name: x}}\n{RUNNABLE}"
            ),
            "ClusterWorkflowTemplate/x: metadata.name: the Workflow `x` is also that of WorkflowTemplate/x; rename one",
        ),
        (
            tekton,
            (
                f"kind: Task\nmetadata: {{name: x}}\n{STEPS}\n---\nkind: Pipeline\nmetadata: {{name: x}}\n"
                "spec: {tasks: [{name: other, taskSpec: {steps: [{image: i, script: x}]}}]}"
            ),
            "Pipeline/x: metadata.name: the Workflow `x` is also that of Task/x; rename one of them",
        ),
    ],
)
def test_different_objects_that_become_one_are_reported(
    tmp_path: Path, system: Callable[..., Result], text: str, message: str
) -> None:
    """Applying one of them would overwrite the other one."""
    made = system(tmp_path, text)
    assert not made.complete
    assert any(message in each for each in made.sentences), made.sentences


LAYERS = 30


def doubled(tag: str) -> list[dict[str, Any]]:
    """Parameters each of which has the next one twice."""
    values = [tag.format(i + 1) * 2 for i in range(LAYERS)]
    return [{"name": f"p{i}", "value": each} for i, each in enumerate(values)] + [{"name": f"p{LAYERS}", "value": "x"}]


def test_parameters_that_double_each_other_are_reported(tmp_path: Path) -> None:
    """As many characters as 2 to the power of 30 are not written."""
    parameters = doubled("{{{{workflow.parameters.p{}}}}}")
    spec = f"entrypoint: main\narguments: {json.dumps({'parameters': parameters})}"
    made = argo(tmp_path, workflow(main(say("s", "'{{workflow.parameters.p0}}'")), spec))
    assert reported(made, "spec.arguments.parameters", "`p0` with what it refers to is too long"), made.sentences
    declared = [{"name": each["name"], "default": each["value"]} for each in doubled("$(params.p{})")]
    made = tekton(tmp_path, pipeline_run(f"params: {json.dumps(declared)}\ntasks: [{{name: a, {S}, {ONE}}}]"))
    assert reported(made, "spec.pipelineSpec.params", "`p0` with what it refers to is too long"), made.sentences


def test_aliases_that_double_each_other_are_not_read(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, LAYERS))]
    text = "\n".join([*lines, "kind: Workflow", f"spec: {{affinity: *a{LAYERS - 1}}}"])
    with pytest.raises(ClientError, match="its aliases stand for more than 1000000 values"):
        argo(tmp_path, text)


def test_a_path_that_is_a_number_is_invalid(tmp_path: Path) -> None:
    output = "outputs: {artifacts: [{name: a, path: 1.5}]}"
    made = argo(tmp_path, workflow(f"- {{name: main, {output}, container: {{image: i, command: [c]}}}}"))
    assert any("artifacts.outputs[0].path: must match" in each for each in made.sentences), made.sentences


def test_a_result_that_nests_too_deeply_is_not_written(tmp_path: Path) -> None:
    manifest = "'" + "{a: " * 150 + "1" + "}" * 150 + "'"
    made = argo(tmp_path, workflow(f"- {{name: main, resource: {{action: create, manifest: {manifest}}}}}"))
    assert reported(made, "spec", "its parts are nested, or refer to each other, too deeply"), made.sentences
    assert made.manifests == []


@pytest.mark.parametrize("system", ["argo", "tekton"])
def test_what_is_nested_too_deeply_is_reported(tmp_path: Path, system: str) -> None:
    if system == "argo":
        templates = [
            f"- {{name: t{i}, retryStrategy: {{limit: 1}}, steps: [[{{name: s, template: t{i + 1}}}]]}}"
            for i in range(350)
        ]
        made = argo(
            tmp_path, workflow("\n".join([*templates, "- {name: t350, container: {image: a}}"]), "entrypoint: t0")
        )
    else:
        chain = [{"name": f"p{i}", "default": f"$(params.p{i + 1})"} for i in range(2000)] + [{"name": "p2000"}]
        made = tekton(tmp_path, pipeline_run(f"params: {json.dumps(chain)}\ntasks: [{{name: a, {S}, {ONE}}}]"))
    assert reported(made, "spec", "its parts are nested, or refer to each other, too deeply"), made.sentences


def test_a_long_chain_of_tasks_is_converted(tmp_path: Path) -> None:
    """A definition can have 200 steps."""
    tasks = [say(f"t{i}", str(i), f", dependencies: [t{i - 1}]" if i else "") for i in range(200)]
    made = argo(tmp_path, workflow(dag(*reversed(tasks))))
    assert made.complete, made.sentences
    assert [each["name"] for each in made.spec["steps"]] == [f"t{i}" for i in range(200)]


def test_values_that_a_container_reads_are_not_mixed_up(tmp_path: Path) -> None:
    """Two values whose references end in the same way were passed as one."""
    templates = """- name: main
  steps:
  - - {name: make, template: make}
  - - {name: use, template: use}
- {name: make, container: {image: i, command: [c]}, outputs: {parameters: [{name: x, globalName: v, valueFrom: {path: /x}}]}}
- {name: use, container: {image: i, command: [c], args: ["{{workflow.parameters.v}}", "{{workflow.outputs.parameters.v}}"]}}"""
    made = argo(tmp_path, workflow(templates, "entrypoint: main\narguments: {parameters: [{name: v, value: given}]}"))
    assert made.complete, made.sentences
    report = made.simulate({"make": [{"output": "made"}]})
    assert sorted(inputs(report)[-1].values()) == ["given", "made"]
    results = "results: [{name: one, type: array}, {name: two, type: array}], steps: [{name: s, image: i, script: x}]"
    spec = f"""tasks:
- {{name: make, taskSpec: {{{results}}}}}
- name: use
  runAfter: [make]
  taskSpec:
    params: [{{name: make-0, default: mine}}]
    steps:
    - name: s
      image: i
      command: [c]
      args: ["$(params.make-0)", "$(tasks.make.results.one[0])", "$(tasks.make.results.two[0])"]"""
    made = tekton(tmp_path, pipeline_run(spec))
    assert made.complete, made.sentences
    report = made.simulate({"make": [{"output": {"one": ["1"], "two": ["2"]}}]})
    assert sorted(inputs(report)[-1].values()) == ["1", "2", "mine"]


def test_texts_in_braces_that_are_no_tags_stay_in_parameters(tmp_path: Path) -> None:
    value = '{{=sprig.upper("x")}} ${input.q} {{no tag}} {{workflow.name}}'
    spec = f"entrypoint: main\narguments: {json.dumps({'parameters': [{'name': 'p', 'value': value}]})}"
    made = argo(tmp_path, workflow(main(say("s", "'{{workflow.parameters.p}}'")), spec))
    assert made.complete, made.sentences
    assert inputs(made.simulate()) == [{"text": "X ${input.q} {{no tag}} made"}]


def test_numbers_of_both_kinds_are_compared(tmp_path: Path) -> None:
    """govaluate has only one kind of numbers."""
    steps = [say(f"s{i}", str(i), f', when: "{when}"') for i, when in enumerate(("1 == 1.0", "2 < 1.5", "-1 == -1.0"))]
    made = argo(tmp_path, workflow(main(*steps)))
    assert made.complete, made.sentences
    assert [each["text"] for each in inputs(made.simulate())] == ["0", "2"]


@pytest.mark.parametrize(("duration", "elapsed"), [("0", 0.001), ("0s", 0.001), ("1.5m", 90)])
def test_a_wait_of_zero_seconds_ends(tmp_path: Path, duration: str, elapsed: float) -> None:
    """It waited for a signal, which never came."""
    made = argo(tmp_path, workflow(f"- {{name: main, suspend: {{duration: '{duration}'}}}}"))
    assert made.complete, made.sentences
    report = made.simulate()
    assert (report["phase"], report["elapsed"]) == ("Completed", pytest.approx(elapsed, abs=0.01))


def test_a_deadline_of_zero_is_no_limit_and_a_note_says_so(tmp_path: Path) -> None:
    made = argo(
        tmp_path, workflow("- {name: main, container: {image: a}}", "entrypoint: main\nactiveDeadlineSeconds: 0")
    )
    assert made.complete
    (note,) = made.sentences
    assert "spec.activeDeadlineSeconds: zero is no limit; Argo's controller ends such a workflow when it starts" in note


def test_texts_with_control_characters_do_not_change_the_manifest(tmp_path: Path) -> None:
    """A name becomes a comment, which is one line."""
    templates = json.dumps([{"name": "main\n  evil: true\x07", "container": {"image": "a"}}])
    made = argo(
        tmp_path,
        workflow(
            "", f"entrypoint: {json.dumps(json.loads(templates)[0]['name'])}\ntemplates: {templates}\nx: 1"
        ).replace("  templates:\n", ""),
    )
    assert "evil" not in made.spec
    assert made.simulate()["phase"] == "Completed"


def test_results_with_dots_are_read(tmp_path: Path) -> None:
    spec = """tasks:
- {name: a, taskSpec: {results: [{name: a.b}, {name: a-b}], steps: [{name: s, image: i, script: x}]}}
- name: b
  params: [{name: x, value: "$(tasks.a.results['a.b']) $(tasks.a.results.a-b)"}]
  taskSpec: {params: [{name: x}], steps: [{name: s, image: i, script: x}]}"""
    made = tekton(tmp_path, pipeline_run(spec))
    assert made.complete, made.sentences
    assert inputs(made.simulate({"a": [{"output": {"a.b": "1", "a-b": "2"}}]}))[-1] == {"x": "1 2"}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("[{name: z, value: x}, {name: p, value: x}]", "the StepAction has no parameter `z`; remove it"),
        ("[]", "the parameter `p` of the StepAction has no value; pass one"),
    ],
)
def test_a_mistake_in_the_parameters_of_a_step_action_is_reported(tmp_path: Path, params: str, message: str) -> None:
    action = (
        "kind: StepAction\nmetadata: {name: act}\nspec: {params: [{name: p}], image: i, script: 'echo $(params.p)'}"
    )
    run = pipeline_run(
        f"tasks: [{{name: a, taskSpec: {{steps: [{{name: t, ref: {{name: act}}, params: {params}}}]}}}}]"
    )
    made = tekton(tmp_path, f"{run}---\n{action}")
    assert reported(made, "spec.pipelineSpec.tasks[0].taskSpec.steps[0].params", message), made.sentences


LAYERED = 12


@pytest.mark.parametrize(
    ("failing", "ran", "phase"), [("a0", ["a0", "b0", "last"], "Failed"), ("none", [], "Completed")]
)
def test_the_conditions_of_many_tasks_do_not_double(tmp_path: Path, failing: str, ran: list[str], phase: str) -> None:
    """Each task depends on the two before it: the condition of the last one contained those of all paths to it."""
    tasks = [say(f"{name}0", f"{name}0") for name in "ab"]
    for i in range(1, LAYERED):
        tasks += [say(f"{name}{i}", f"{name}{i}", f", depends: a{i - 1} && b{i - 1}") for name in "ab"]
    tasks.append(say("last", "last", f", depends: a{LAYERED - 1}.Omitted"))
    made = argo(tmp_path, workflow(dag(*tasks)))
    assert made.complete, made.sentences
    report = made.simulate({"echo": [{"whenInput": {"text": failing}, "exitCode": 1}, {}]})
    all_but_last = [f"{name}{i}" for i in range(LAYERED) for name in "ab"]
    assert [each["text"] for each in inputs(report)] == (ran or all_but_last)
    assert report["phase"] == phase
