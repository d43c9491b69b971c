"""54 points of Temporal's semantics are easily got wrong. The name of a test begins with the numbers of those that it tries."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
NUMBERED = re.compile(r"^(?:async )?def test_((?:\d+_)+)", re.MULTILINE)


def test_each_of_the_points_has_a_test() -> None:
    names = [name for file in TESTS.rglob("test_*.py") for name in NUMBERED.findall(file.read_text(encoding="utf-8"))]
    tried = {int(number) for name in names for number in name.split("_") if number}
    assert tried == set(range(1, 55))
