"""Temporal's list filter."""

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.archive.filters import InvalidQueryError
from perdure.frontend.visibility.query_language import nanoseconds, parse

RUN: dict[str, Any] = {
    "WorkflowType": "Order",
    "WorkflowId": "order-17",
    "ExecutionStatus": "Running",
    "StartTime": datetime(2026, 3, 1, tzinfo=UTC),
    "CloseTime": None,
    "Number": 5,
    "Done": False,
    "Tags": ["red", "green"],
    "Odd": {"of": "no order"},
}


def matches(query: str) -> bool:
    return parse(query).test(lambda name: RUN[name])


@pytest.mark.parametrize(
    "query",
    [
        "",
        "WorkflowType = 'Order'",
        'WorkflowType="Order" and Number=5',
        "WorkflowType != 'Trip'",
        "`WorkflowId` STARTS_WITH 'order-'",
        "WorkflowId NOT STARTS_WITH 'trip'",
        "ExecutionStatus IN ('Failed', 'Running')",
        "ExecutionStatus NOT IN ('Failed')",
        "StartTime > '2026-02-01T00:00:00Z' AND StartTime < '2026-04-01T00:00:00+02:00'",
        "StartTime BETWEEN '2026-02-01T00:00:00Z' AND '2026-04-01T00:00:00Z'",
        "CloseTime IS NULL AND StartTime IS NOT NULL",
        "(WorkflowType = 'Trip' OR Number >= 5) AND NOT (Number > 5)",
        "WorkflowType = 'Trip' AND Number = 1 OR Number = 5",
        "Done = false",
        "Tags = 'red' AND Tags != 'blue'",
        "Number BETWEEN 5 AND 5",
        "ExecutionStatus = 'Running' GROUP BY ExecutionStatus",
    ],
)
def test_matching_queries(query: str) -> None:
    assert matches(query)


@pytest.mark.parametrize("times", [1, 2, 3_999, 4_000])
def test_conditions_can_be_negated_many_times(times: int) -> None:
    assert matches("NOT " * times + "Number = 5") is (times % 2 == 0)


@pytest.mark.parametrize(
    "query",
    [
        "WorkflowType = 'Trip'",
        "Number > 5",
        "Tags = 'blue'",
        "CloseTime > '2026-01-01T00:00:00Z'",
        "Done = true",
        "Odd = 1",
        "Odd > 1 OR Odd < 1 OR Odd >= 'x' AND Odd BETWEEN 1 AND 2",
        "Number = " + "1" * 100,
        "NOT WorkflowType = 'Order'",
        "WorkflowType = 'Trip' OR (Number = 5 AND Done = true)",
    ],
)
def test_queries_that_do_not_match(query: str) -> None:
    assert not matches(query)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("WorkflowType = Order", "expected a value"),
        ("WorkflowType", "too early"),
        ("WorkflowType LIKE 'x'", "not supported"),
        ("ORDER BY StartTime", "order by"),
        ("Number = 1 ORDER BY StartTime", "order by"),
        ("GROUP BY WorkflowType", "only supported for ExecutionStatus"),
        ("(Number = 1", "expected"),
        ("Number = 1)", "syntax error"),
        ("Number = 'x'; drop", "syntax error"),
        ("WorkflowId = " + "1" * 5_000, "more than 100 digits"),
        ("(" * 60 + "Number = 1" + ")" * 60, "too deep"),
    ],
)
def test_an_invalid_query_is_an_error(query: str, message: str) -> None:
    with pytest.raises(InvalidQueryError, match=message):
        parse(query)


def test_a_missing_list_is_empty() -> None:
    assert parse("Labels != 'red'", lists={"Labels"}).test({"Labels": None}.__getitem__)
    assert not parse("Labels != 'red'").test({"Labels": None}.__getitem__)


def test_an_invalid_time_is_an_error() -> None:
    with pytest.raises(InvalidQueryError, match="RFC 3339"):
        matches("StartTime > 'yesterday'")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h", 3_600),
        ("1h30m", 5_400),
        ("300ms", 0.3),
        ("-1.5h", -5_400),
        ("2d", 172_800),
        ("01:00:05", 3_605),
        ("5", 5e-9),
    ],
)
def test_durations_are_parsed_as_by_temporal(text: str, seconds: float) -> None:
    assert nanoseconds(text) == round(seconds * 1e9)


@pytest.mark.parametrize("text", ["", "h", "1 h", "one hour", "1h30", "1" * 200])
def test_an_invalid_duration_is_none(text: str) -> None:
    assert nanoseconds(text) is None


TAGS = [f"{number:x}" for number in range(330)]


@pytest.mark.parametrize(
    "query",
    [
        " OR ".join(["Tags = 'z'"] * 1_100),
        "NOT (" + " AND ".join(["Tags != 'z'"] * 1_000) + ")",
        "Tags IN (" + ",".join(f"'z{number}'" for number in range(2_000)) + ")",
        "(Tags = 'x' OR Tags = 'y') OR Tags IN ('z')",
    ],
)
def test_values_of_one_field_are_compared_together(query: str) -> None:
    found = parse(query)
    assert not found.test({"Tags": TAGS}.__getitem__)
    assert found.budget.total == len(TAGS) + 1


def test_a_filter_that_compares_too_many_values_of_a_run_is_rejected() -> None:
    found = parse(" AND ".join(["Tags STARTS_WITH '1'"] * 500))
    assert found.test({"Tags": ["1"]}.__getitem__)
    with pytest.raises(InvalidQueryError, match="100,000 values of one run"):
        found.test({"Tags": TAGS}.__getitem__)


async def test_a_filter_that_compares_too_many_values_is_rejected() -> None:
    found = parse("Tags STARTS_WITH 'x'")
    found.budget.total = 50_000_000 - 2 * 331
    for _ in range(2):
        assert not found.test({"Tags": TAGS}.__getitem__)
        await found.budget.yield_turn()
    with pytest.raises(InvalidQueryError, match="more than 50,000,000 values"):
        found.test({"Tags": TAGS}.__getitem__)
