"""The five-minute start works when it is followed to the letter, and no page has an expression where none is evaluated."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.cli.files.lint import lint
from perdure.language.program import Severity
from perdure.language.schedule_input import evaluated_input
from perdure.schedule.run_manifests import schedule_scope, scheduled_run
from perdure.schedule.state import ScheduledRun, ScheduleState, Start
from perdure.schedule.times import Times
from support.cli import perdure
from support.manuals import REPOSITORY, Json, blocks, example_files

PAGE = REPOSITORY / "docs" / "start.md"


def followed() -> dict[str, Json]:
    """The manifests of the page by their kind."""
    return {each["kind"]: each for block in blocks() if block.page == PAGE for each in block.ours()}


def write(folder: Path, *manifests: Json) -> str:
    (folder / "page.yaml").write_text(yaml.safe_dump_all(manifests))
    return str(folder / "page.yaml")


def simulated(folder: Path, greeting: str, start: datetime, *manifests: Json) -> Any:
    """The output of the run in the manifests, which starts at `start`, and whose pod prints the greeting."""
    write(folder, *manifests)
    (folder / "scenario.yaml").write_text(
        yaml.safe_dump(
            {"files": ["page.yaml"], "startTime": start.isoformat(), "activities": {"greet": [{"output": greeting}]}}
        )
    )
    scenario = str(folder / "scenario.yaml")
    done = perdure("simulate", "--scenario", scenario, "-o", "json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["output"]


def test_the_manifests_of_the_start_page_have_no_warnings(tmp_path: Path) -> None:
    linted = lint([write(tmp_path, *followed().values())])
    assert linted.objects == 3
    assert [str(each.finding) for each in linted.found if each.finding.severity is not Severity.NOTE] == []


def test_the_scheduled_run_of_the_start_page_has_the_output_that_the_page_shows(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^OUTPUT\n(.*)$", PAGE.read_text(), re.MULTILINE)
    due = datetime.fromisoformat(re.findall("for (.*), at", shown)[0])
    found = followed()
    found["Schedule"]["metadata"] |= {"namespace": "default", "uid": "s"}
    start = Start(nominal=due, actual=due)
    running = ScheduledRun(name=start.run_name("hello-every-minute", 1, ""), start=start, started=due)
    spec = ScheduleSpec.parse(found["Schedule"]["spec"])
    run = scheduled_run(found["Schedule"], running, ScheduleState(cursor=due, handled_after=due), Times(spec))
    run["spec"]["input"] = evaluated_input(spec.workflow_run_template.spec, schedule_scope(run))
    assert simulated(tmp_path, f"hello {run['spec']['input']['name']}", due, found["Workflow"], run) == shown


def test_the_documentation_has_no_expression_where_none_is_evaluated(tmp_path: Path) -> None:
    for number, block in enumerate(each for each in blocks() if not each.not_yet):
        (tmp_path / f"{block.page.stem}-{number}.yaml").write_text(block.text)
    linted = lint([str(tmp_path), *map(str, example_files())])
    assert linted.objects > 100
    assert [f"{each.file}: {each.finding}" for each in linted.found if "is not evaluated" in each.finding.message] == []
