"""The public reports about importers, each replayed with its exact outcome (`reports/cases.yaml`).

tektoncd/pipeline#1303, #4409, #4071, #9270, #8157, argo-workflows#4903, #1442, #13060, #3990, #15837, #3378, #972, and
kestra#3000. The outcome is which steps ran, with what status, when, and with what input, and how the run ended; that of a
schedule is how many times start and are missed. The table in tests/reports.md has a row for each case; `--record` writes it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from perdure.api.times import parse_duration
from perdure.cli.files.scenarios import simulate_scenario
from perdure.importing.schedules import convert
from support.manuals import REPOSITORY
from unit.importing.imported import Json, Result, argo, tekton
from unit.schedule.drive import Drive, rules

FOLDER: Final = Path(__file__).parent / "reports"
CASES: Final[list[Json]] = yaml.safe_load((FOLDER / "cases.yaml").read_text(encoding="utf-8"))
PAGE: Final = REPOSITORY / "tests" / "reports.md"
_HEAD: Final = "| report | input | what is replayed |\n| --- | --- | --- |\n"
_NOT_SHOWN: Final = frozenset({"handler", "return", "fail", "set"})
"""The kinds of steps that the import adds."""


def imported(folder: Path, case: Json) -> Result:
    """The input of a case, imported; a manifest of Perdure as it is."""
    text = (FOLDER / case["file"]).read_text(encoding="utf-8")
    if "perdure.dev" in text:
        file = folder / "native.yaml"
        file.write_text(text)
        return Result(file, list(yaml.safe_load_all(text)), (), complete=True)
    return (argo if "argoproj.io" in text else tekton)(folder, text)


def outcome(report: Json) -> Json:
    """What happened, in the form of the cases."""
    scheduled = [each for each in report["events"] if each["eventType"] == "ActivityTaskScheduled"]
    inputs: dict[str, list[Any]] = {}
    for each in scheduled:
        inputs.setdefault(each["activityType"], []).append(each.get("input"))
    return {
        "phase": report["phase"],
        "failure": (report["failure"] or {}).get("type"),
        "elapsed": report["elapsed"],
        "steps": dict(_statuses(report["steps"])),
        "attempts": {
            name: [f"{each['outcome']} {each['start']}-{each['end']}" for each in found]
            for name, found in report["attempts"].items()
        },
        "input": inputs,
    }


def _statuses(steps: list[Json]) -> Iterator[tuple[str, str]]:
    for each in steps:
        if each["kind"] not in _NOT_SHOWN:
            yield each["path"].removeprefix(":finally/"), each["status"]
        if ":catch" not in each["path"]:
            yield from _statuses(each.get("steps", []))


RUNS: Final = [each for each in CASES if "missed" not in each]


@pytest.mark.parametrize("case", RUNS, ids=[f"{each['file']} {i}" for i, each in enumerate(RUNS)])
def test_a_report_has_the_right_outcome(tmp_path: Path, case: Json) -> None:
    expect = {"complete": True, "reported": [], "phase": "Completed", "failure": None, "elapsed": 0, **case["expect"]}
    made = imported(tmp_path, case)
    assert made.complete == expect.pop("complete"), made.sentences
    parts = expect.pop("reported")
    assert len(parts) == len(made.sentences), made.sentences
    assert all(part in sentence for part, sentence in zip(parts, made.sentences, strict=True)), made.sentences
    given = {"input": case["input"]} if "input" in case else {}
    if case["file"] == "B06-native.yaml":
        report = simulate_scenario([str(made.file)], None)[1].as_json()
    else:
        report = made.simulate(case.get("do"), **given)
    found = outcome(report)
    assert {key: found[key] for key in expect} == expect


@pytest.mark.parametrize("case", [each for each in CASES if "missed" in each], ids=lambda case: str(case["file"]))
def test_a_schedule_has_the_right_outcome(case: Json) -> None:
    manifest = yaml.safe_load((FOLDER / case["file"]).read_text(encoding="utf-8"))
    spec = convert(manifest, case["file"])[-1]["spec"]
    drive = Drive(rules(**spec))
    drive.advance()
    drive.now += parse_duration(case["missed"])
    drive.advance()
    missed = drive.state.counts.missed_catchup_window
    assert {"starts": len(drive.made), "missed": missed} == case["expect"]


def test_every_input_of_the_reports_is_replayed() -> None:
    files = {each.name for each in FOLDER.glob("B*.yaml")}
    assert {each["file"] for each in CASES} == files
    assert len(files) == 27


def test_the_table_has_all_cases(record: bool) -> None:
    rows = [
        f"| {each['report']} | [{each['file']}](unit/importing/reports/{each['file']}) | {each['says']} |\n"
        for each in CASES
    ]
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"{re.escape(_HEAD)}(?:\|.*\n)*", text)
    assert found
    if record:
        PAGE.write_text(text.replace(found[0], _HEAD + "".join(rows)), encoding="utf-8")
    else:
        assert found[0] == _HEAD + "".join(rows)
