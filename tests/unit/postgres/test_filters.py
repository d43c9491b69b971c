"""Filters select the same runs in PostgreSQL as in memory, whatever they contain."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.api.phases import RunKind
from perdure.archive.filters import And, InvalidQueryError
from perdure.archive.records import RunRecord
from perdure.frontend.visibility.lists import converter, lists_of
from perdure.frontend.visibility.query_language import parse, quoted
from perdure.postgres.archive import Connection, PostgresArchive
from support.archived_runs import BEGIN, NAMESPACE, finished, row
from support.postgres import PostgresServer

TYPES = {"City": "Keyword", "Tags": "KeywordList", "Note": "Text", "Size": "Int", "Rate": "Double", "Paid": "Bool"}
TYPES["Due"] = "Datetime"
TEXTS = ["", "a", "A", "ab", "b'c", "x%_", "\\", "é", "\N{GRINNING FACE}", "a\0b", "'; DROP TABLE perdure.runs; --"]


def attributes(**values: Any) -> dict[str, Any]:
    return {name: {"type": TYPES[name], "value": value} for name, value in values.items()}


RUNS = [
    finished("none"),
    finished("one", attributes=attributes(City="a", Tags=["a", "b"], Size=1, Rate=0.5, Paid=True)),
    finished("two", attributes=attributes(City="A", Tags=[], Size=-3, Rate=2, Paid=False, Note="a")),
    finished("six", attributes=attributes(City="a\0b", Tags=["é", "x%_"], Due="2026-03-01T12:00:00.000001Z")),
    finished("ten", attributes=attributes(City="", Size=2**62, Due="2027-01-01T00:00:00Z", Rate=1e300)),
    finished("few", attributes=attributes(Rate=0.1)),
    finished("odd", attributes=attributes(Rate=1e-320)),
    finished("bad", attributes=attributes(City="'; DROP TABLE perdure.runs; --", Note="ab"), status="Failed"),
    *(finished(f"t{n}", begin=BEGIN + timedelta(days=n), workflowType=text) for n, text in enumerate(TEXTS) if text),
]
RECORDS = [row(run).record for run in RUNS]

_texts = st.sampled_from(TEXTS).map(quoted)
_numbers = st.sampled_from(["0", "1", "-3", "2", "0.5", "0.1", "1e-320", "1e300", "1e999", str(2**62), "9" * 40])
_times = st.sampled_from(["2026-03-01T12:00:00Z", "2026-03-01T12:00:00.000001Z", "2030-01-01T00:00:00+02:00"])
_VALUES = {
    **dict.fromkeys(("City", "Tags", "Note", "WorkflowId", "WorkflowType", "RunId", "TaskQueue"), _texts),
    **dict.fromkeys(("ParentWorkflowId", "RootWorkflowId", "BuildIds", "FirstRunId"), _texts),
    **dict.fromkeys(("Size", "Rate", "HistoryLength", "HistorySizeBytes", "ExecutionDuration"), _numbers),
    **dict.fromkeys(("Due", "StartTime", "CloseTime", "ExecutionTime"), _times.map(quoted)),
    "Paid": st.sampled_from(["true", "false"]),
    "ExecutionStatus": st.sampled_from(["'Completed'", "'Failed'", "'Running'"]),
}


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(sorted(_VALUES)))
    values = _VALUES[name]
    match draw(st.integers(0, 5)):
        case 0:
            return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 1:
            negated = draw(st.sampled_from(["", "NOT "]))
            return f"{name} {negated}IN ({', '.join(draw(st.lists(values, min_size=1, max_size=3)))})"
        case 2:
            return f"{name} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(values)} AND {draw(values)}"
        case 3:
            return f"{name} {draw(st.sampled_from(['', 'NOT ']))}STARTS_WITH {draw(_texts)}"
        case _:
            return f"{name} {draw(st.sampled_from(['=', '!=', '<', '<=', '>', '>=']))} {draw(values)}"


_queries = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda each: f"NOT ({each})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: f"({' '.join(parts)})"),
    ),
    max_leaves=6,
)


class Fields:
    """The fields of a record."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def __getitem__(self, name: str) -> Any:
        return self._record.field(name)


@pytest.fixture
async def filled(server: PostgresServer) -> AsyncIterator[PostgresArchive]:
    server.statement("DROP SCHEMA IF EXISTS perdure CASCADE")
    async with PostgresArchive(Connection(conninfo=server.conninfo), timedelta(0)).run() as archive:
        await archive.store(list(map(row, RUNS)))
        yield archive


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=_queries)
async def test_filters_select_the_same_runs_in_postgresql_as_in_memory(filled: PostgresArchive, query: str) -> None:
    try:
        condition = parse(query, converter(TYPES), lists_of(TYPES)).condition
    except InvalidQueryError:
        return
    wanted = {each.run_id for each in RECORDS if condition.holds(Fields(each))}
    found = await filled.page(NAMESPACE, RunKind.WORKFLOW, condition, after=None, limit=100)
    assert {each.record.run_id for each in found} == wanted, query
    counted = await filled.count(NAMESPACE, RunKind.WORKFLOW, condition, without=())
    assert sum(counted.values()) == len(wanted)


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("Rate >= 0.1 AND Rate < 0.5", {"uid-few"}),
        ("Rate <= 0.1", {"uid-few", "uid-odd"}),
        ("Rate < 0.1", {"uid-odd"}),
        ("Rate BETWEEN 1e-320 AND 1e-320", {"uid-odd"}),
        ("Rate > 0.1 AND Rate <= 0.5", {"uid-one"}),
    ],
)
async def test_a_bound_that_no_floating_point_number_is_exactly_is_equal_to_itself(
    filled: PostgresArchive, query: str, want: set[str]
) -> None:
    condition = parse(query, converter(TYPES), lists_of(TYPES)).condition
    found = await filled.page(NAMESPACE, RunKind.WORKFLOW, condition, after=None, limit=100)
    assert {each.record.run_id for each in found} == want


@pytest.mark.parametrize(
    "query",
    [
        "WorkflowId = 'x'' OR ''1''=''1'",
        "City = '\\'; DELETE FROM perdure.runs; --'",
        "`City') OR TRUE --` = 'a'",
        "`%s` = 'a'",
        "City = '%s' OR City = '%(name)s' OR City = '{}'",
        "`\"; DROP TABLE perdure.runs; --` IS NULL AND City = 'nobody'",
    ],
)
async def test_a_filter_never_becomes_sql(filled: PostgresArchive, query: str) -> None:
    condition = parse(query, converter(TYPES), lists_of(TYPES)).condition
    assert await filled.page(NAMESPACE, RunKind.WORKFLOW, condition, after=None, limit=100) == []
    assert len(await filled.page(NAMESPACE, RunKind.WORKFLOW, And(()), after=None, limit=100)) == len(RUNS)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("condition", "index"),
    [
        ("namespace = 'a' AND left(workflow_id, 256) = 'x' AND workflow_id = 'x'", "left"),
        ("""attributes @> '{"City": "a"}'""", "attributes"),
        ("namespace = 'a' AND kind = 'workflow' AND (start_time, run_id) < (now(), 'x')", "start_time"),
    ],
)
def test_an_index_serves(server: PostgresServer, condition: str, index: str) -> None:
    plan = server.statement(f"SET enable_seqscan = off; EXPLAIN SELECT FROM perdure.runs WHERE {condition}")
    assert "Index Scan" in plan
    assert index in next(line for line in plan.splitlines() if "Index Scan" in line)
