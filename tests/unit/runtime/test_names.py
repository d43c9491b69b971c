"""Derived names are locks: always the same, never shared."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api.names import MAX_WORKFLOW_ID, attempt_in, child_workflow_id, label_value, pod_name

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

RUN_PART = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
RUNS = st.lists(RUN_PART, min_size=1, max_size=25).map(".".join).filter(lambda name: len(name) <= 253)
NUMBERS = st.integers(min_value=1, max_value=10**9)


@pytest.mark.parametrize(
    ("run", "event", "attempt", "want"),
    [
        pytest.param("order-42", 5, 1, "order-42-5-1", id="a short name of a run stays readable"),
        pytest.param("a", 1, 2, "a-1-2", id="the numbers follow the name"),
        pytest.param("a-1", 2, 3, "a-1-2-3", id="a run whose name ends with a number keeps it"),
        pytest.param("x" * 59, 1, 1, "x" * 59 + "-1-1", id="63 characters still fit"),
    ],
)
def test_short_names_are_unchanged(run: str, event: int, attempt: int, want: str) -> None:
    assert pod_name(run, event, attempt) == want


@pytest.mark.parametrize(
    "run",
    [
        pytest.param("order.42", id="dots are no part of a hostname"),
        pytest.param("x" * 60, id="one character too long"),
        pytest.param("x" * 253, id="as long as a name can be"),
        pytest.param("-".join(["x"] * 60), id="a cut that would end with a dash"),
    ],
)
def test_long_names_are_truncated_and_end_with_a_hash(run: str) -> None:
    name = pod_name(run, 7, 1)
    assert re.search(r"-7-1-h[a-z2-7]{10}$", name)
    assert name == pod_name(run, 7, 1)


def test_names_with_dots_differ_from_similar_names() -> None:
    assert len({pod_name(run, 1, 1) for run in ("a.b", "a-b", "a.b-1", "a-b.1")}) == 4


def test_a_truncated_name_cannot_be_produced_by_another_run() -> None:
    taken = pod_name("order.42", 5, 1)
    for run in (taken, taken.rsplit("-", 1)[0], taken.removesuffix("-5-1")):
        assert all(pod_name(run, event, attempt) != taken for event in (1, 5) for attempt in (1, 5))


@given(run=RUNS, event=NUMBERS, attempt=NUMBERS)
def test_every_name_is_a_dns_label(run: str, event: int, attempt: int) -> None:
    name = pod_name(run, event, attempt)
    assert len(name) <= 63
    assert DNS_LABEL.fullmatch(name)
    assert attempt_in(name) == (event, attempt)


@given(st.lists(st.tuples(RUNS | st.sampled_from(["a", "a-1", "a-1-2"]), NUMBERS, NUMBERS), min_size=2, unique=True))
def test_different_attempts_have_different_names(attempts: list[tuple[str, int, int]]) -> None:
    assert len({pod_name(*attempt) for attempt in attempts}) == len(attempts)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("order-42", "order-42", id="a valid value stays"),
        pytest.param("order.42_A", "order.42_A", id="dots, underscores and capitals are valid"),
        pytest.param("", "", id="so is nothing"),
        pytest.param("x" * 63, "x" * 63, id="63 characters fit"),
    ],
)
def test_valid_label_values_are_unchanged(text: str, want: str) -> None:
    assert label_value(text) == want


@given(st.text(max_size=300))
def test_every_label_value_is_valid(text: str) -> None:
    value = label_value(text)
    assert len(value) <= 63
    assert LABEL_VALUE.fullmatch(value)


def test_truncated_label_values_differ() -> None:
    assert label_value("x" * 64) != label_value("x" * 65)
    assert label_value("a b") != label_value("a/b")


def test_the_workflow_id_of_a_child_contains_parent_and_step() -> None:
    assert child_workflow_id("order", "uid", "pay.card") == "order/uid/pay.card"
    exact = "x" * (MAX_WORKFLOW_ID - len("/uid/pay"))
    assert child_workflow_id(exact, "uid", "pay") == f"{exact}/uid/pay"


def test_workflow_ids_of_nested_children_are_bounded_and_unique() -> None:
    ids, parent = set(), "root"
    for level in range(500):
        siblings = [child_workflow_id(parent, f"{level:036}", step) for step in ("again", "other")]
        assert all(len(name) <= MAX_WORKFLOW_ID and name.startswith("root/") for name in siblings)
        ids.update(siblings)
        parent = siblings[0]
    assert len(ids) == 1_000


def test_the_hash_of_a_workflow_id_never_changes() -> None:
    """Open runs have recorded it: another one would not replay."""
    found = child_workflow_id("r" * 990, "00000000-0000-4000-8000-000000000001", "again")
    assert found == "r" * 200 + "/hpjmujw2wj5deovxjswo3"
