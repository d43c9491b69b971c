"""Artifacts in expressions: of steps, of loops, and of skipped steps; and findings of lint about them."""

from typing import Any

import pytest
import yaml

from perdure.api.kinds.workflow import Activity, WorkflowSpec
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.language import containers
from perdure.language.checks import check
from unit.language.execution.play import Play

REPORT = {"store": "perdure-artifacts", "key": "shop/u/5-1/report", "size": 9, "sha256": "ab", "archive": "None"}
MAKE = """
activities:
- name: make
  startToCloseTimeout: 1m
  container: {image: i}
  artifacts: {outputs: [{name: report, path: /out/report}, {name: log, path: /out/log, optional: true}]}
- name: logged
  startToCloseTimeout: 1m
  container: {image: i, command: [run]}
  artifacts: {archiveLogs: true}
- name: copied
  startToCloseTimeout: 5m
  container: {image: i}
  artifacts: {outputs: [{name: report, path: /out/report, key: reports/latest}]}
- name: large
  startToCloseTimeout: 1m
  container: {image: i}
  artifacts: {largeResults: true}
- name: use
  startToCloseTimeout: 1m
  container: {image: i}
  artifacts: {inputs: [{name: report, path: /in/report, from: "${input.report}"}]}
"""


def completed(play: Play, path: str, **fields: Any) -> list[cmd.Command]:
    of = {"scheduled_event_id": 1, "started_event_id": 0, "activity_id": path, "attempt": 1}
    return play.happens(ev.ActivityTaskCompleted, **of, **fields)


def test_an_artifact_of_a_step_is_passed_on() -> None:
    play = Play(
        f"""{MAKE}
steps:
- {{name: make, activity: {{name: make}}}}
- {{name: use, activity: {{name: use, input: {{report: "${{steps.make.artifacts.report}}"}}}}}}
output: "${{steps.make.artifacts.?log.orValue(null)}}"
"""
    )
    (scheduled,) = completed(play, "make", result=1, artifacts={"report": REPORT})
    assert isinstance(scheduled, cmd.ScheduleActivityTask)
    assert scheduled.input == {"report": REPORT}
    (done,) = completed(play, "use")
    assert isinstance(done, cmd.CompleteWorkflowExecution)
    assert done.result is None


def test_the_end_hook_of_a_step_sees_its_artifacts() -> None:
    play = Play(
        f"""{MAKE}
steps:
- {{name: make, activity: {{name: make}}, onEnd: {{block: notify, input: "${{step.artifacts.report.key}}"}}}}
blocks:
- {{name: notify, steps: [{{name: use, activity: {{name: use, input: "${{params}}"}}}}]}}
"""
    )
    (scheduled,) = completed(play, "make", artifacts={"report": REPORT})
    assert isinstance(scheduled, cmd.ScheduleActivityTask)
    assert scheduled.input == REPORT["key"]


def test_the_artifacts_of_a_loop_are_a_list_in_the_order_of_its_items() -> None:
    play = Play(
        f"""{MAKE}
steps:
- {{name: make, forEach: {{items: [1, 2]}}, activity: {{name: make}}}}
output: "${{steps.make.artifacts.map(each, each.report.key)}}"
"""
    )
    assert completed(play, "make[1]", artifacts={"report": {**REPORT, "key": "second"}}) == []
    (done,) = completed(play, "make[0]", artifacts={"report": {**REPORT, "key": "first"}})
    assert isinstance(done, cmd.CompleteWorkflowExecution)
    assert done.result == ["first", "second"]


def findings_of(steps: str) -> list[str]:
    spec = WorkflowSpec.parse(yaml.safe_load(f"{MAKE}\nsteps:\n{steps}"))
    return [f"{each.severity.value} {each.path}: {each.message}" for each in check(spec).findings]


@pytest.mark.parametrize(
    ("step", "read", "said"),
    [
        ("activity: {name: make}", "steps.make.artifacts.report", None),
        ("activity: {name: make}", "steps.make.artifacts.report.size + 1", None),
        (
            "activity: {name: make}",
            "steps.make.artifacts.reprot",
            "Error there is no field `reprot` in `steps.make.artifacts`, did you mean `report`",
        ),
        ("activity: {name: make}", "steps.make.artifacts.report.hash", "Error there is no field `hash`"),
        ("activity: {name: make}", "steps.make.artifacts.report.copy", "Error there is no field `copy`"),
        ("activity: {name: copied}", "steps.make.artifacts.report.copy", None),
        ("activity: {name: make}", "steps.make.artifacts.log", "Warning `steps.make.artifacts.log` may be missing"),
        ("activity: {name: make}", "steps.make.artifacts.?log.orValue(null)", None),
        ("activity: {name: make}", "steps.make.artifacts['log.gz'].key", "Error there is no field `log.gz`"),
        ("activity: {name: large}", "steps.make.output", None),
        ("activity: {name: large}", "steps.make.output + 1", None),
        ("activity: {name: large}", "steps.make.output.?total.orValue(0)", None),
        (
            "activity: {name: large}",
            "steps.make.output.total",
            "Warning `steps.make.output.total` is missing in the reference to a large result; write `steps.make.output.?tot",
        ),
        (
            "activity: {name: large}",
            "steps.make.output.size",
            "Warning `steps.make.output.size` is missing in a small result, which is not a reference; write",
        ),
        ("activity: {name: large}", "steps.make.artifacts[?'result.json'].key.orValue('')", None),
        ("activity: {name: large}", "steps.make.artifacts['result.json'].key", "Warning `steps.make.artifacts"),
        ("activity: {name: make}", "steps.make.output.total", None),
        ("activity: {name: logged}", "steps.make.artifacts[?'log.gz'].key.orValue('')", None),
        (
            "activity: {name: use, input: {report: {key: a}}}",
            "steps.make.artifacts.report",
            "Error there is no field `report`",
        ),
        ("sleep: {duration: 1s}", "steps.make.artifacts.report", "Error there is no field `report`"),
        (
            "{when: '${input.go}', activity: {name: make}}",
            "steps.make.artifacts.report",
            "Warning step `make` may be skipped",
        ),
        ("{forEach: {items: [1]}, activity: {name: make}}", "steps.make.artifacts.map(a, a.report.key)", None),
    ],
)
def test_lint_knows_the_artifacts_of_a_step(step: str, read: str, said: str | None) -> None:
    fields = step if step.startswith("{") else f"{{{step}}}"
    steps = f'- {{name: make, {fields[1:]}\n- {{name: use, set: {{x: "${{{read}}}"}}}}'
    found = [each for each in findings_of(steps) if "is not used" not in each and "no step runs" not in each]
    if said is None:
        assert [each for each in found if "steps.make." in each] == []
    else:
        severity, _, message = said.partition(" ")
        assert any(each.startswith(severity) and message in each for each in found), found


@pytest.mark.parametrize(
    ("artifacts", "said"),
    [
        (
            {"outputs": [{"name": "a", "path": "/perdure"}]},
            "outputs[0].path: must not be in `/perdure`, which is a folder of Perdure",
        ),
        (
            {"outputs": [{"name": "a", "path": "/perdure-result/a"}]},
            "outputs[0].path: must not be in `/perdure-result`, which is a folder of Perdure",
        ),
        ({"outputs": [{"name": "a", "path": "/x/../a"}]}, "outputs[0].path: must not contain `..`"),
        (
            {"outputs": [{"name": "a", "path": "/perdure/a"}]},
            "outputs[0].path: must not be in `/perdure`, which is a folder of Perdure",
        ),
        (
            {"inputs": [{"name": "i", "path": "/in", "key": "x"}], "outputs": [{"name": "a", "path": "/in/a"}]},
            "outputs[0].path: must not be in an input artifact, which is read-only",
        ),
        (
            {"inputs": [{"name": "i", "path": "/in", "from": "report"}]},
            "inputs[0].from: must be one expression, such as `${input.report}`",
        ),
        (
            {"inputs": [{"name": "i", "path": "/in", "from": "${input.a}${input.b}"}]},
            "inputs[0].from: must be one expression",
        ),
    ],
)
def test_invalid_artifacts_are_reported(artifacts: Any, said: str) -> None:
    work = {"name": "work", "startToCloseTimeout": "1m", "container": {"image": "i"}, "artifacts": artifacts}
    spec = WorkflowSpec.parse({"activities": [work], "steps": [{"name": "work", "activity": {"name": "work"}}]})
    assert any(
        f"spec.activities[0].artifacts.{said}" in f"{each.path}: {each.message}" for each in check(spec).findings
    )


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ({"container": {"image": "i"}}, "container.command: must be set to archive the log: use the entrypoint"),
        (
            {"podTemplate": {"spec": {"containers": [{"name": "a", "image": "i"}]}}},
            "podTemplate.spec.containers[0].command: must be set to archive the log",
        ),
        (
            {
                "container": {
                    "image": "i",
                    "command": ["a"],
                    "volumeMounts": [{"name": "v", "mountPath": "/perdure-log/"}],
                }
            },
            "container.volumeMounts[0].mountPath: Perdure reserves a mount at `/perdure-log`",
        ),
        ({"container": {"image": "i", "command": ["a"]}}, None),
        ({"script": {"image": "i", "source": "echo"}}, None),
    ],
)
def test_a_container_that_archives_its_log_has_a_command(work: Any, said: str | None) -> None:
    activity = {"name": "work", "startToCloseTimeout": "1m", "artifacts": {"archiveLogs": True}, **work}
    spec = WorkflowSpec.parse({"activities": [activity], "steps": [{"name": "work", "activity": {"name": "work"}}]})
    found = [f"{each.path}: {each.message}" for each in check(spec).findings]
    if said is None:
        assert found == []
    else:
        assert any(each.startswith(f"spec.activities[0].{said}") for each in found), found


def test_the_value_of_from_keeps_its_type() -> None:
    inputs = [
        {"name": "a", "path": "/a", "from": "${input.report}"},
        {"name": "b", "path": "/b", "key": "day-${input.day}"},
    ]
    work = {"name": "a", "startToCloseTimeout": "1m", "container": {"image": "i"}, "artifacts": {"inputs": inputs}}
    definition = Activity.parse(work)
    found = containers.resolve(definition, input={"report": REPORT, "day": 7}, run={}, attempt=1).artifacts
    assert found is not None
    assert (found.inputs[0].from_, found.inputs[1].key) == (REPORT, "day-7")
    trial = containers.with_placeholders(definition).artifacts
    assert trial is not None
    assert (trial.inputs[0].from_, trial.inputs[1].key) == ({"key": "x"}, "day-x")
