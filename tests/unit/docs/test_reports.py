"""The table of reports in `tests/reports.md`: its tests exist, and each names the report that it rebuilds."""

import re

import pytest

from support.manuals import REPOSITORY

TESTS = REPOSITORY / "tests"
PAGE = (TESTS / "reports.md").read_text(encoding="utf-8")
ROWS = [
    (row[0], row[2], re.findall(r"\]\(([^)]+\.py)\)", row[1]))
    for row in re.findall(r"^\| (B\d+) (\| \[[^\]]*(#\d+)\].*)$", PAGE, re.MULTILINE)
]
"""The ID, the number in its tracker, and the tests of each report."""


@pytest.mark.parametrize(
    ("number", "paths"), [(number, paths) for _, number, paths in ROWS], ids=[row[0] for row in ROWS]
)
def test_the_tests_of_a_report_name_it(number: str, paths: list[str]) -> None:
    assert paths
    for path in paths:
        assert re.search(rf"{number}\b", (TESTS / path).read_text(encoding="utf-8")), path


def test_every_report_is_in_the_table_once() -> None:
    for each in ([name for name, _, _ in ROWS], [number for _, number, _ in ROWS]):
        assert len(each) > 20
        assert len(each) == len(set(each))


def test_the_reports_of_a_kind_are_in_the_table() -> None:
    named = {
        name for row in re.findall(r"^\| [a-z][^|]*\((B\d+[^)]*)\)", PAGE, re.MULTILINE) for name in row.split(", ")
    }
    assert named
    assert named <= {name for name, _, _ in ROWS}
