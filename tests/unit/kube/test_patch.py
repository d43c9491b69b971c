"""A patch applied to the old value results in exactly the new one."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.kube.patch import Operation, json_patch


def apply(document: Any, operations: list[Operation]) -> Any:
    """The parts of RFC 6902 that the patches use; errors of the RFC are errors."""
    document = copy.deepcopy(document)
    for operation in operations:
        if not operation["path"]:
            assert operation["op"] == "replace"
            document = operation["value"]
            continue
        assert operation["path"].startswith("/")
        *steps, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"][1:].split("/")]
        place = document
        for step in steps:
            assert isinstance(place, dict), f"nothing to go down into at {step!r}"
            place = place[step]
        match operation["op"]:
            case "add" if isinstance(place, list):
                assert last == "-"
                place.append(operation["value"])
            case "add":
                place[last] = operation["value"]
            case "replace":
                assert last in place
                place[last] = operation["value"]
            case "remove" if isinstance(place, list):
                del place[int(last)]
            case "remove":
                del place[last]
            case other:
                pytest.fail(f"unknown operation {other!r}")
    return document


def written(value: Any) -> str:
    """JSON, which distinguishes 1, 1.0 and true, unlike Python."""
    return json.dumps(value, sort_keys=True)


scalars = st.one_of(
    st.none(), st.sampled_from([0, 1, 0.0, 1.0, False, True, 2]), st.sampled_from(["", "a", "ü"]), st.integers()
)
keys = st.one_of(st.sampled_from(["a", "b", "", "/", "~", "~1", "~0", "a/b", "-", "0"]), st.text(max_size=3))
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[Any, Any]:
    """A value, and a changed version of it that is mostly equal."""
    old = draw(documents)

    def change(value: Any) -> Any:
        changed = value
        match draw(st.integers(0, 8)):
            case 0:
                changed = draw(documents)
            case 1 | 2 | 3 if type(value) in {bool, int, float} and abs(value) < 2**53:
                changed = draw(st.sampled_from([bool, int, float]))(value)
            case 4 if isinstance(value, list):
                changed = value + draw(st.lists(documents, max_size=3))
            case 8 if isinstance(value, list):
                changed = value[draw(st.integers(0, len(value))) :] + draw(st.lists(documents, max_size=2))
            case 5 if isinstance(value, dict):
                changed = {**value, draw(keys): draw(documents)}
            case _ if isinstance(value, list):
                changed = [change(item) for item in value]
            case _ if isinstance(value, dict):
                changed = {key: change(item) for key, item in value.items()}
        return changed

    return old, change(old)


@given(neighbours())
def test_applying_the_patch_results_in_the_new_value(pair: tuple[Any, Any]) -> None:
    old, new = pair
    before = written(old), written(new)
    operations = json_patch(old, new)
    assert written(apply(old, operations)) == written(new)
    assert (written(old), written(new)) == before
    assert bool(operations) == (written(old) != written(new))


@given(documents, documents)
def test_a_patch_between_unrelated_values_results_in_the_new_value(old: Any, new: Any) -> None:
    assert written(apply({"root": old}, json_patch({"root": old}, {"root": new}))) == written({"root": new})


@given(st.lists(documents, min_size=1, max_size=5), st.lists(documents, min_size=1, max_size=5))
def test_appending_to_a_list_is_one_operation_for_each_new_item(old: list[Any], more: list[Any]) -> None:
    operations = json_patch({"status": {"events": old}}, {"status": {"events": old + more}})
    assert operations == [{"op": "add", "path": "/status/events/-", "value": item} for item in more]


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, [{"op": "replace", "path": "/a", "value": 1.0}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a": [1]}, {"a": [True]}, [{"op": "replace", "path": "/a", "value": [True]}]),
        ({"a": [1]}, {"a": [1.0, 2]}, [{"op": "replace", "path": "/a", "value": [1.0, 2]}]),
        ({"a": [{"b": 0}]}, {"a": [{"b": False}]}, [{"op": "replace", "path": "/a", "value": [{"b": False}]}]),
        ({}, {"a": None}, [{"op": "add", "path": "/a", "value": None}]),
        ({"a": 1}, {"a": None}, [{"op": "replace", "path": "/a", "value": None}]),
        ({"a": None}, {}, [{"op": "remove", "path": "/a"}]),
        ({}, {"perdure.dev/x": 1}, [{"op": "add", "path": "/perdure.dev~1x", "value": 1}]),
        ({"a~b": 1}, {}, [{"op": "remove", "path": "/a~0b"}]),
        ({"~1": 1}, {"~1": 2}, [{"op": "replace", "path": "/~01", "value": 2}]),
        ({"": 1}, {"": 2}, [{"op": "replace", "path": "/", "value": 2}]),
        ({"a": []}, {"a": [1, 2]}, [{"op": "replace", "path": "/a", "value": [1, 2]}]),
        ({"a": [1, 2]}, {"a": [2]}, [{"op": "remove", "path": "/a/0"}]),
        ({"a": [1, 2, 3, 4]}, {"a": [4, 5]}, [{"op": "replace", "path": "/a", "value": [4, 5]}]),
        (
            {"a": {"b": {"c": 1, "d": 2}}},
            {"a": {"b": {"c": 3, "d": 2}}},
            [{"op": "replace", "path": "/a/b/c", "value": 3}],
        ),
        (1, [1], [{"op": "replace", "path": "", "value": [1]}]),
    ],
    ids=[
        "nothing has changed",
        "an integer becomes a float",
        "an integer becomes a boolean",
        "the same inside a list of the same length",
        "the same inside a list that grows",
        "the same deep inside a list",
        "a null that comes",
        "a value that becomes null",
        "a null that goes",
        "a key with a slash",
        "a key with a tilde",
        "a key that looks escaped",
        "an empty key",
        "the first items of a list",
        "a list that loses its head",
        "a list of which little is left",
        "only the member that has changed",
        "the whole document",
    ],
)
def test_the_patch_has_the_expected_operations(old: Any, new: Any, want: list[Operation]) -> None:
    got = json_patch(old, new)
    assert written(got) == written(want)
    assert written(apply(old, got)) == written(new)


def test_every_path_has_the_prefix() -> None:
    assert json_patch({"a": [1]}, {"a": [1, 2], "b": 3}, "/status") == [
        {"op": "add", "path": "/status/a/-", "value": 2},
        {"op": "add", "path": "/status/b", "value": 3},
    ]


def test_removing_the_head_of_a_long_list_does_not_resend_the_rest() -> None:
    old = [{"eventId": n, "input": "x" * 200} for n in range(250)]
    operations = json_patch({"events": old}, {"events": [*old[200:], {"eventId": 250}]})
    assert operations == [{"op": "remove", "path": "/events/0"}] * 200 + [
        {"op": "add", "path": "/events/-", "value": {"eventId": 250}}
    ]
    assert [o["op"] for o in json_patch({"events": old}, {"events": old[249:]})] == ["replace"]


MANY = 10_001
"""More operations than the API server takes in one patch."""


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        (
            {"big": {str(n): 0 for n in range(MANY)}, "small": 1},
            {"big": {str(n): 1 for n in range(MANY)}, "small": 2},
            ["/big", "/small"],
        ),
        ({"list": [0]}, {"list": list(range(MANY))}, ["/list"]),
        ({str(n): {"a": {"b": 0}} for n in range(MANY)}, {str(n): {"a": {"b": 1}} for n in range(MANY)}, [""]),
    ],
    ids=["an object of which everything changes", "a list that grows", "one change in each of many objects"],
)
def test_a_value_that_needs_too_many_operations_is_replaced(old: Any, new: Any, want: list[str]) -> None:
    operations = json_patch(old, new)
    assert [operation["path"] for operation in operations] == want
    assert apply(old, operations) == new
