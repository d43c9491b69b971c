"""Simulations of the runs that a Schedule starts."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.simulation.manifests import BadFileError
from support.cli import perdure
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


def test_a_scheduled_time_that_is_none_of_the_schedule_is_an_error() -> None:
    with pytest.raises(BadFileError) as caught:
        play(REPORT, "schedule: {scheduledTime: 2026-03-26T23:00:00Z}", schedule())
    assert (
        "s.yaml: schedule.scheduledTime: 2026-03-26T23:00:00Z is not a time of the Schedule; the nearest times are "
        "2026-03-19T23:30:00Z and 2026-03-26T23:30:00Z. For a run that a user triggers, set `schedule.triggered: true`"
    ) in str(caught.value)
    triggered = play(REPORT, "schedule: {scheduledTime: 2026-03-26T23:00:00Z, triggered: true}", schedule())
    assert triggered.json["name"].startswith("nightly-20260326t230000z-t")
    assert triggered.json["output"]["slept"] == "1800s"
    for time in ("1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z"):
        with pytest.raises(BadFileError, match=r"schedule.scheduledTime: must be at 1970-01-01T00:00:00Z or later"):
            play(REPORT, f"schedule: {{scheduledTime: {time}, triggered: true}}", schedule())
    only_triggered = schedule(cron=[])
    output = "output: '${schedule.localTime}'\nsteps: [{name: a, set: {b: 1}}]"
    played = play(output, "schedule: {scheduledTime: 2026-03-26T23:00:00Z}", only_triggered)
    assert played.json["output"] == "2026-03-27T00:00:00+01:00"


def test_simulate_says_how_to_simulate_a_scheduled_run(tmp_path: Path) -> None:
    """Two days of new users: nothing said how to simulate the run of a Schedule in the file."""
    other = schedule("{workflow: {name: other}}") | {"metadata": {"name": "else"}}
    late = schedule() | {"metadata": {"name": "late"}}
    files = {
        "w.yaml": [workflow("steps: [{name: a, set: {b: '${schedule.localDate}'}}]"), schedule(), other],
        "both.yaml": [workflow("steps: [{name: a, set: {b: 1}}]"), schedule(), late],
        "s.yaml": [{"schedule": {"name": "nightly"}}],
        "t.yaml": [{"startTime": "2026-06-01T00:00:00Z"}],
    }
    for name, documents in files.items():
        (tmp_path / name).write_text(yaml.safe_dump_all(documents), encoding="utf-8")

    def note(file: str, *options: str) -> str:
        scenario = [str(tmp_path / each) if each.endswith(".yaml") else each for each in options]
        return perdure("simulate", "-f", str(tmp_path / file), *scenario).stderr

    how = "to simulate a scheduled run, pass a scenario with `schedule: {name: nightly}`"
    assert note("w.yaml") == f"Note: the Schedule `nightly` starts this Workflow; {how}\n"
    assert note("w.yaml", "--scenario", "s.yaml") == ""
    assert note("w.yaml", "--scenario", "t.yaml") == note("w.yaml")  # its run fails
    assert note("both.yaml") == f"Note: the Schedules `nightly`, `late` start this Workflow; {how}\n"
    assert note("both.yaml", "--scenario", "t.yaml") == ""


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
