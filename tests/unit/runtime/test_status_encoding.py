"""The status of a run as it is stored: bulky fields as JSON texts, which readers get as values."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from perdure.engine.state import Code, RunState
from perdure.language.memory import Memory
from perdure.runtime import status_encoding
from perdure.runtime.commits import OF_RUNS, committed, edited
from support.recorded_runs import NAMES, recorded

Json = dict[str, Any]


def run_of(status: Json) -> Json:
    return {"kind": "WorkflowRun", "metadata": {"name": "r"}, "status": status}


def read(status: Json) -> Json:
    found: Json = status_encoding.decode(run_of(status))["status"]
    return found


OPEN: Json = {
    "phase": "Running",
    "definition": {"steps": [{"name": "charge"}]},
    "history": {"events": [{"eventId": 1, "input": 1.0}, {"eventId": 2}], "nextEventId": 3},
    "state": {
        "workflowId": "[1]",
        "nextEventId": 3,
        "activities": {"2": {"activityId": "charge", "attempt": 1}, "5": {"activityId": "ship", "attempt": 2}},
        "requests": ["{}"],
        "memory": {"frames": {"": {"steps": {}}}, "vars": {"x": "{}", "y": None}, "now": "2026-01-01T00:00:00Z"},
        "code": {"workflowType": "{}", "updates": {"u": {"acceptedEventId": 4}}, "task": {"attempt": 3}},
    },
}


def test_only_bulky_fields_are_stored_as_text() -> None:
    assert status_encoding.encode(OPEN) == {
        "phase": "Running",
        "definition": '{"steps":[{"name":"charge"}]}',
        "history": {"events": ['{"eventId":1,"input":1.0}', '{"eventId":2}'], "nextEventId": 3},
        "state": {
            "workflowId": "[1]",
            "nextEventId": 3,
            "activities": {"2": '{"activityId":"charge","attempt":1}', "5": '{"activityId":"ship","attempt":2}'},
            "requests": '["{}"]',
            "memory": {
                "frames": {"": '{"steps":{}}'},
                "vars": '{"x":"{}","y":null}',
                "now": "2026-01-01T00:00:00Z",
            },
            "code": {"workflowType": "{}", "updates": {"u": '{"acceptedEventId":4}'}, "task": '{"attempt":3}'},
        },
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_read_in_either_form(name: str) -> None:
    run = recorded(name)
    before = copy.deepcopy(run)
    texts = {**run, "status": status_encoding.encode(run["status"])}
    assert texts != run
    assert status_encoding.decode(texts) == status_encoding.decode(run) == run == before


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.text(max_size=5), values, max_size=3), max_size=3), values)
def test_user_values_are_unchanged(events: list[Json], value: Any) -> None:
    state = {"memory": {"vars": {"value": value}}, "successorRefused": "{}"}
    status = {"history": {"events": events}, "state": state, "output": value}
    assert read(status_encoding.encode(status)) == status


def test_the_text_of_a_value_is_reused() -> None:
    after = {**OPEN, "history": {**OPEN["history"], "events": [*OPEN["history"]["events"], {"eventId": 3}]}}
    texts = status_encoding.Texts()
    old, new = texts.encode(OPEN), texts.encode(after)
    assert (old, new) == (status_encoding.encode(OPEN), status_encoding.encode(after))
    assert all(a is b for a, b in zip(old["history"]["events"], new["history"]["events"], strict=False))
    assert texts.size_of(after) == status_encoding.Texts().size_of(after)


def test_a_status_can_have_both_forms() -> None:
    texts = status_encoding.encode(OPEN)
    mixed = copy.deepcopy(OPEN)
    mixed["history"]["events"][1] = texts["history"]["events"][1]
    mixed["state"]["activities"]["5"] = texts["state"]["activities"]["5"]
    assert read(mixed) == OPEN


def test_other_objects_are_unchanged() -> None:
    for obj in ({"kind": "Schedule", "status": {"state": {"requests": "[]"}}}, {"kind": "WorkflowRun"}, {}):
        assert status_encoding.decode(obj) is obj


@pytest.mark.parametrize("text", ["", "{", "null", "12", "nothing", '"{}"'])
def test_a_text_that_is_not_an_object_counts_as_an_edit(text: str) -> None:
    stored = status_encoding.encode(committed(OPEN, OF_RUNS, "u", 0))
    assert edited(read(stored), OF_RUNS) == ""
    stored["history"]["events"][0] = text
    assert edited(read(stored), OF_RUNS).startswith("The status was edited")


FOLDED = (inspect.DictType, inspect.StructType, inspect.VarTupleType, inspect.ListType)


def parts(kind: type[msgspec.Struct]) -> set[str]:
    """The fields of a struct that are stored as objects or lists."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return {
        field.encode_name
        for field in found.fields
        for each in (field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,))
        if isinstance(each, FOLDED)
    }


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        (RunState, lambda part: part),
        (Code, lambda part: {"code": part}),
        (Memory, lambda part: {"memory": part}),
    ],
    ids=["state", "code", "memory"],
)
def test_every_growing_part_of_the_state_is_stored_as_text(
    kind: type[msgspec.Struct], wrap: Callable[[Json], Json]
) -> None:
    for name in parts(kind) - {"code"}:
        status = {"state": wrap({name: {"member": {"deep": 1}}})}
        assert status_encoding.encode(status) != status, name
