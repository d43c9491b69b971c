"""The table of reports in `tests/reports.md`: its tests exist, and each names the report that it rebuilds."""

import re

import pytest

from support.manuals import REPOSITORY

TESTS = REPOSITORY / "tests"
ROWS = [
    (row[0], row[1], re.findall(r"\]\(([^)]+\.py)\)", row[0]))
    for row in re.findall(
        r"^(\| \[[^\]]*(#\d+)\].*)$", (TESTS / "reports.md").read_text(encoding="utf-8"), re.MULTILINE
    )
]


@pytest.mark.parametrize(
    ("number", "paths"), [(number, paths) for _, number, paths in ROWS], ids=[row[1] for row in ROWS]
)
def test_the_tests_of_a_report_name_it(number: str, paths: list[str]) -> None:
    assert paths
    for path in paths:
        assert re.search(rf"{number}\b", (TESTS / path).read_text(encoding="utf-8")), path


def test_every_report_is_in_the_table_once() -> None:
    numbers = [number for _, number, _ in ROWS]
    assert len(numbers) > 20
    assert len(numbers) == len(set(numbers))
