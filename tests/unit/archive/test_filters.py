"""Conditions of list filters on the values of one run."""

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.archive.filters import Among, And, AnyOf, Condition, InvalidQueryError, Not, Or, Ordered

TIME = datetime(2026, 3, 1, tzinfo=UTC)
RUN: dict[str, Any] = {"CloseTime": None, "Number": 5, "Labels": None}


def among(name: str, *wanted: Any, negated: bool = False, optional: bool = False) -> Among:
    return Among(name, wanted, optional=optional, negated=negated)


CLOSED = among("CloseTime", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    "condition",
    [
        CLOSED,
        among("CloseTime", "2026-01-01T00:00:00Z", negated=True),
        Ordered("CloseTime", [(">", "2026-01-01T00:00:00Z")], optional=False, negated=True),
        Not(CLOSED),
        Not(And((CLOSED, among("Number", 5)))),
        Not(Or((CLOSED, among("Number", 6)))),
    ],
)
def test_a_comparison_with_a_missing_field_is_neither_true_nor_false(condition: Condition) -> None:
    assert condition.holds(RUN) is None


@pytest.mark.parametrize("condition", [Not(And((CLOSED, among("Number", 6)))), Or((CLOSED, among("Number", 5)))])
def test_the_other_operand_decides_if_a_field_is_missing(condition: Condition) -> None:
    assert condition.holds(RUN) is True


@pytest.mark.parametrize(
    "condition",
    [among("Labels", "red", optional=True, negated=True), Not(among("Labels", "red", optional=True))],
)
def test_a_missing_list_is_empty(condition: Condition) -> None:
    assert condition.holds(RUN) is True
    assert condition.holds({"Labels": ["blue"]}) is True
    assert condition.holds({"Labels": ["red"]}) is False


def test_a_value_that_is_no_time_is_an_error() -> None:
    with pytest.raises(InvalidQueryError, match="RFC 3339"):
        Ordered("StartTime", [(">", "yesterday")], optional=False, negated=False).holds({"StartTime": TIME})


@pytest.mark.parametrize(
    ("value", "equal", "other"),
    [
        ("a", "a", "A"),
        ("5", 5, 5.5),
        ("TRUE", True, False),
        (5, 5.0, "5.0"),
        (5, "5", 6),
        (5.0, "5.0", "5"),
        (True, True, 1),
        (True, "tRuE", False),
        (["b", 5], 5, True),
        ([True, ["c"]], "c", "b"),
        (TIME, "2026-03-01T01:00:00+01:00", "2026-03-01T00:00:01Z"),
    ],
)
def test_values_of_different_types_are_equal_if_their_text_is_equal(value: Any, equal: Any, other: Any) -> None:
    assert AnyOf([other, equal]).matches(value)
    assert not AnyOf([other]).matches(value)
    assert not AnyOf([]).matches(value)
