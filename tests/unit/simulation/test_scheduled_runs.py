"""Simulations of the runs that a Schedule starts."""

from typing import Any

import pytest
import yaml

from perdure.simulation.manifests import BadFileError
from unit.simulation.stage import Json, play, workflow

REPORT = """
steps: [{name: nap, sleep: {until: "${schedule.nextTime}"}}]
output:
  input: "${input}"
  slept: "${steps.nap.endTime - steps.nap.startTime}"
  name: "${schedule.name}"
  last: "${schedule.?lastCompletionResult.orValue(null)}"
"""


def schedule(template: str = "{workflow: {name: main}, input: {day: '${schedule.localDate}'}}", **spec: Any) -> Json:
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": "nightly", "namespace": "shop"},
        "spec": {
            "cron": ["30 0 * * FRI"],
            "timeZone": "Europe/Berlin",
            **spec,
            "workflowRunTemplate": {"spec": yaml.safe_load(template)},
        },
    }


def test_a_scheduled_run_begins_at_its_time_with_the_evaluated_input() -> None:
    played = play(
        REPORT, "schedule: {scheduledTime: 2026-03-26T23:30:00Z, lastCompletionResult: {rows: 7}}", schedule()
    )
    assert played.phase == "Completed"
    assert played.json["output"] == {
        "input": {"day": "2026-03-27"},
        "slept": "601200s",  # a week, less the hour by which clocks go forward
        "name": "nightly",
        "last": {"rows": 7},
    }
    assert played.json["name"] == "nightly-20260326t233000z"


def test_the_default_is_the_first_time_from_the_start() -> None:
    played = play(REPORT, "{startTime: 2026-06-01T00:00:00Z, schedule: {name: nightly}}", schedule())
    assert played.json["output"]["input"] == {"day": "2026-06-05"}
    late = play(
        REPORT, "{startTime: 2026-06-05T00:00:00Z, schedule: {scheduledTime: 2026-06-04T22:30:00Z}}", schedule()
    )
    assert late.json["output"]["slept"] == "599400s"  # it starts an hour and a half late


def test_the_input_of_the_scenario_replaces_that_of_the_schedule() -> None:
    played = play(REPORT, "{input: {day: today}, schedule: {}}", schedule())
    assert played.json["output"]["input"] == {"day": "today"}


def test_an_inline_workflow_of_a_schedule_is_simulated() -> None:
    inline = "{inline: {steps: [{name: end, return: {output: '${schedule.timeZone}'}}]}}"
    assert play(workflow(REPORT), "schedule: {}", schedule(inline)).json["output"] == "Europe/Berlin"


def test_a_schedule_in_the_files_has_no_effect_unless_the_scenario_names_it() -> None:
    assert play("steps: [{name: end, return: {output: '${schedule.size()}'}}]", "{}", schedule()).json["output"] == 0


@pytest.mark.parametrize(
    ("scenario", "made", "want"),
    [
        ("schedule: {name: nightly}", None, "s.yaml: schedule.name: there is no Schedule `nightly` in the files"),
        ("schedule: {}", None, "s.yaml: schedule: the files must have one Schedule, or set `schedule.name`"),
        ("schedule: {}", schedule(cron=["61 * * * *"]), "other0.yaml: spec.cron[0]"),
        ("schedule: {}", schedule(endTime="2025-01-01T00:00:00Z"), "the Schedule has no time from `startTime`"),
        ("schedule: {}", schedule("{workflow: {name: other}}"), "there is no Workflow `other` in the files"),
        (
            "schedule: {}",
            schedule("{workflow: {name: main}, input: '${schedule.lastFailure.message}'}"),
            "other0.yaml: spec.workflowRunTemplate.spec.input: ${schedule.lastFailure.message}: ",
        ),
        ("schedule: {}", schedule("{workflow: {type: Order, taskQueue: q}}"), "there is no Workflow `` in the files"),
    ],
)
def test_a_scheduled_run_that_cannot_start_is_an_error(scenario: str, made: Json | None, want: str) -> None:
    with pytest.raises(BadFileError) as caught:
        play(REPORT, scenario, *([made] if made else []))
    assert want in str(caught.value)
