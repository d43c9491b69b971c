"""A run as HTML for notebooks."""

from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from perdure.api.kinds.workflowrun import definition_of
from perdure.view.runs.notebook import as_html
from perdure.view.runs.run import read_run
from support.console import NASTY, order

NOW = datetime(2026, 1, 1, 12, 5, tzinfo=UTC)


def shown(run: dict[str, Any]) -> ET.Element:
    html = as_html(read_run(run, now=NOW), definition_of(run), NOW)
    return ET.fromstring(html)


def test_a_run_has_a_box_for_each_step_and_lines_between_them() -> None:
    root = shown(order().object)
    boxes = root.findall(".//{*}rect")
    lines = root.findall(".//{*}path")
    assert len(boxes) == len(lines) + 1 > 1
    assert "attempt 3" in "".join(root.itertext())


def test_texts_of_users_are_no_markup() -> None:
    run = order().object
    run["status"]["failure"] = {"kind": "Application", "type": "Bad", "message": NASTY}
    text = "".join(shown(run).itertext())
    assert "alert(1)" in text
    assert shown(run).findall(".//script") == shown(run).findall(".//img") == []


def test_a_run_that_has_not_started_has_no_graph() -> None:
    run = order().object
    run.pop("status")
    root = shown(run)
    assert root.findall(".//{*}svg") == []
    assert "Pending" in "".join(root.itertext())
