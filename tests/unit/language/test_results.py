"""Missing and suspicious results of activities, and where they are reported."""

from typing import Any

import pytest
import yaml

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.language.compiler import compile_program
from perdure.language.program import no_output, result_warning
from perdure.view.runs.hints import hints
from perdure.view.runs.open_work import LiveState
from perdure.view.runs.tree import tree
from support.view.flow import Flow, plain

ACTIVITIES = """
activities:
- {name: count, startToCloseTimeout: 5m, container: {image: shop}}
- {name: code, startToCloseTimeout: 5m, worker: {taskQueue: q}}
"""


def program(steps: str) -> Any:
    return compile_program(WorkflowSpec.parse(yaml.safe_load(ACTIVITIES + "steps:\n" + steps)))


@pytest.mark.parametrize(
    ("call", "reads", "result", "want"),
    [
        ("count", "${steps.a.output}", None, "`steps.a.output` is null"),
        ("count", "found ${steps['a'].output.files} files", None, "`steps.a.output` is null"),
        ("count", "${steps.a.?output.orValue(0)}", None, ""),
        ("count", "${steps.a.status}", None, ""),
        ("count", "${steps.a.output}", 7, ""),
        ("count", "${steps.a.output}", "7 files", ""),
        ("count", "", "{'files': 7}", "the result is text: it looks like JSON, but cannot be read"),
        ("count", "", " [1, 2", "looks like JSON, but cannot be read"),
        ("count", "", '{"files": 7}', ""),
        ("code", "${steps.a.output}", None, ""),
        ("code", "", "{'files': 7}", ""),
    ],
)  # fmt: skip
def test_a_missing_or_unparsable_result_that_is_read_is_reported(call: str, reads: str, result: Any, want: str) -> None:
    steps = f"- {{name: a, activity: {{name: {call}}}}}\n" + f'- {{name: b, set: {{x: "{reads}"}}}}\n'
    found = result_warning(program(steps), "a", result)
    assert want in found
    assert bool(found) == bool(want)


@pytest.mark.parametrize("path", ["a:compensate", "a[0]:compensate", "b/a[12]:compensate"])
def test_the_result_of_a_compensation_is_not_reported(path: str) -> None:
    steps = "- {name: a, activity: {name: count}}\n- {name: b, set: {x: '${steps.a.output}'}}\n"
    assert result_warning(program(steps), path, None) == result_warning(program(steps), path, "{'files': 7}") == ""


def test_a_run_without_output_is_reported_if_its_last_step_left_no_result() -> None:
    last = "- {name: a, activity: {name: count}}\n"
    assert "its last step `a` left no result in /dev/termination-log" in no_output(program(last), None)
    assert no_output(program(last), 7) == ""
    assert no_output(program("- {name: a, activity: {name: code}}\n"), None) == ""
    assert no_output(program(last + "- {name: b, set: {x: 1}}\n"), None) == ""


def test_describe_shows_a_missing_result_and_the_log_command() -> None:
    steps = '- {name: a, activity: {name: count}}\n- {name: b, set: {x: "${steps.a.output}"}}\n'
    flow = Flow(ACTIVITIES + "steps:\n" + steps).started(1).completed(2)
    run, page = flow.run(live=LiveState(pods=frozenset({"order-42-2-1"}))), flow.page(width=200)
    assert "    `steps.a.output` is null: /dev/termination-log has no result, or has `null`\n" in plain(tree(run, page))
    assert hints(run, page)[0][1] == "kubectl -n shop logs order-42-2-1"
    assert not any(" logs " in command for _, command in hints(flow.run(live=LiveState()), page))
