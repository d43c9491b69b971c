"""Lists of runs whose status was edited into an invalid one."""

import asyncio
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.api.search_attributes import attribute_field
from perdure.archive.records import record_of
from perdure.controller.directory import Directory
from perdure.frontend.visibility.index import Visibility, VisibilityRecord
from perdure.frontend.visibility.query_language import parse
from support.recorded_runs import recorded

Json = dict[str, Any]
RUN: Json = recorded("whole")
CODE = {
    "workflowType": "Order",
    "taskQueue": "orders",
    "searchAttributes": {"Price": {"type": "Double", "value": "1.5"}, "City": "Oslo"},
    "memo": {"note": {"payloads": [{"metadata": {"encoding": "json/plain"}, "data": "Imh1aCI="}]}},
}
PLACES = (
    ("startTime",),
    ("firstDecisionTime",),
    ("closeTime",),
    ("successor",),
    ("startSuccessor",),
    ("code",),
    ("code", "workflowType"),
    ("code", "taskQueue"),
    ("code", "searchAttributes"),
    ("code", "searchAttributes", "Price"),
    ("code", "searchAttributes", "Price", "value"),
    ("code", "memo"),
    ("code", "memo", "note"),
    ("code", "memo", "note", "payloads"),
    ("code", "memo", "note", "payloads", 0),
    ("code", "memo", "note", "payloads", 0, "metadata"),
    ("code", "memo", "note", "payloads", 0, "data"),
)
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(["", "yesterday", "2030-01-01T00:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "é"]),
    st.just([]),
    st.just([1, "x"]),
    st.just({}),
    st.just({"type": "Double", "value": "much"}),
    st.just({"payloads": [1, {"data": "no base64"}]}),
)


def find(visibility: Visibility, text: str = "") -> list[str]:
    found, untold = asyncio.run(visibility.find(RUN["metadata"]["namespace"], parse(text)))
    assert untold == []
    return [run_id for _, run_id in found]


@given(place=st.sampled_from(PLACES), junk=JUNK)
def test_a_damaged_run_is_listed_and_does_not_hide_others(place: tuple[str | int, ...], junk: Any) -> None:
    damaged = deepcopy(RUN)
    damaged["status"]["state"]["code"] = deepcopy(CODE)
    part: Any = damaged["status"]["state"]
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = junk
    intact = deepcopy(RUN)
    intact["metadata"]["uid"] = "whole"
    directory, visibility = Directory(), Visibility()
    for run in (damaged, intact):
        directory.put(run)
        visibility.update(run)
    assert set(find(visibility)) == {RUN["metadata"]["uid"], "whole"}
    for run_id in (RUN["metadata"]["uid"], "whole"):
        record = visibility.get(RUN["metadata"]["namespace"], run_id)
        assert record is not None
        assert record.info().execution.run_id == run_id
    assert len(directory.uids()) == 2


def test_a_run_that_waits_for_its_workflow_id_is_not_listed_until_it_begins() -> None:
    index = Visibility()
    waits = deepcopy(RUN)
    waits["status"] = {"phase": "Pending", "conditions": []}
    index.update(waits)
    assert find(index) == []
    begun = deepcopy(RUN)
    begun["metadata"]["resourceVersion"] = str(int(waits["metadata"]["resourceVersion"]) + 1)
    index.update(begun)
    assert find(index) == [begun["metadata"]["uid"]]


def test_a_search_attribute_of_another_type_is_ignored() -> None:
    odd = {
        "Price": {"type": "Double", "value": "abc"},
        "Cost": {"type": "Double", "value": {}},
        "Due": {"type": "Datetime", "value": "soon"},
        "Local": {"type": "Datetime", "value": "2026-01-01T00:00:00"},
    }
    for name in ("Price", "Cost", "Due"):
        assert attribute_field(odd, name) is None
        assert not parse(f"{name} > 1").test(lambda name: attribute_field(odd, name))
    assert parse("Local = '2026-01-01T00:00:00Z'").test(lambda name: attribute_field(odd, name))


def test_a_run_without_a_memo_and_search_attributes_has_empty_ones() -> None:
    """The Go SDK reads them without a check, because Temporal always sends them."""
    info = record_of(RUN, VisibilityRecord).info()
    assert info.HasField("memo")
    assert info.HasField("search_attributes")


async def test_a_list_yields_to_the_event_loop_between_runs() -> None:
    visibility, tags = Visibility(), [f"{number:x}" for number in range(300)]
    for number in range(8):
        run = deepcopy(RUN)
        run["metadata"]["uid"] = f"run-{number}"
        run["status"]["state"] |= {
            "closeTime": None,
            "code": {"workflowType": "Order", "searchAttributes": {"T": tags}},
        }
        del run["status"]["completionTime"]
        visibility.update(run)
    query = parse(" AND ".join(["T STARTS_WITH '1'"] * 100))
    finding = asyncio.create_task(visibility.find(RUN["metadata"]["namespace"], query))
    turns = 0
    while not finding.done():
        turns += 1
        await asyncio.sleep(0)
    assert len((await finding)[0]) == 8
    assert turns >= 8
