"""Revisions: names and hashes by content, and which runs need one."""

from typing import Any

import pytest

from perdure.api.names import MAX_RUN_NAME, is_name, revision_name
from perdure.api.state_versions import NEWEST
from perdure.runtime.revisions import Content, Reference, fault, is_needed_by, newer_part, number_of

STEPS = {"steps": [{"name": "a", "set": {"x": 1}}]}
ORDER = Content(workflow="order", definition=STEPS)


def test_a_revision_is_named_by_its_workflow_and_its_content() -> None:
    same = Content(workflow="order", definition={"steps": [{"set": {"x": 1.0}, "name": "a"}]})
    assert ORDER.reference() == same.reference(), "as the API server writes it"
    others = [
        Content(workflow="order", definition={"steps": []}),
        Content(workflow="orders", definition=STEPS),
        Content(workflow=None, definition=STEPS),
        Content(workflow="order", definition=STEPS, written={"steps": [], "blocks": []}),
    ]
    assert len({each.reference() for each in (ORDER, *others)}) == 5
    assert ORDER.reference().name.startswith("order-")
    assert others[2].reference().name.startswith("inline-")


@pytest.mark.parametrize("workflow", ["a" * 253, f"{'a' * 239}.{'b' * 13}", "a.b", "bank/a", None])
def test_a_revision_has_a_valid_name(workflow: str | None) -> None:
    name = revision_name(workflow, "0f" * 32)
    assert is_name(name)
    assert len(name) <= MAX_RUN_NAME


def test_a_stored_revision_has_the_same_content_and_number() -> None:
    content = Content(workflow="order", definition=STEPS, written={"blocks": []})
    built = content.build("shop", 7)
    assert Content.of(built) == content
    assert fault(built) == ""
    assert number_of(built["metadata"]) == built["spec"]["number"] == 7
    reference = content.reference()
    assert Reference.of({"revision": reference.stored()}) == reference
    assert Reference.of({}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"definition": {"steps": []}},
        {"workflow": "refund"},
        {"written": {"steps": []}},
        {"hash": f"sha256:{'0' * 64}"},
    ],
    ids=str,
)
def test_a_forged_revision_is_found_out(change: dict[str, Any]) -> None:
    forged = ORDER.build("shop", 1)
    forged["spec"] |= change
    assert "does not match its name and hash" in fault(forged)


def test_a_revision_with_the_name_of_another_one_is_found_out() -> None:
    forged = Content(workflow="order", definition={"steps": []}).build("shop", 1)
    forged["metadata"]["name"] = ORDER.reference().name
    assert "does not match its name and hash" in fault(forged)


def test_a_revision_of_a_newer_version_is_left_to_it() -> None:
    built = ORDER.build("shop", 1)
    assert newer_part(built, NEWEST) == ""
    assert "unknown field `spec.signature`" in newer_part({**built, "spec": built["spec"] | {"signature": "s"}}, NEWEST)
    newer = {**built, "spec": built["spec"] | {"stateVersion": NEWEST + 1}}
    assert f"state version {NEWEST + 1}" in newer_part(newer, NEWEST)


NAME = ORDER.reference().name
STARTED = {"state": {"status": "Running"}}


@pytest.mark.parametrize(
    ("run", "needed"),
    [
        ({"spec": {"workflow": {"name": "order"}}}, True),
        ({"spec": {"workflow": {"name": "order"}}, "status": {"phase": "Pending"}}, True),
        ({"spec": {"workflow": {"name": "shop/order"}}}, True),
        ({"spec": {"workflow": {"name": "bank/order"}}}, False),
        ({"spec": {"workflow": {"name": "refund"}}}, False),
        ({"spec": {"inline": STEPS}}, False),
        ({"spec": {"workflow": {"name": "order"}}, "status": STARTED}, False),
        ({"spec": {"workflow": {"name": "order"}}, "status": {**STARTED, "revision": {"name": NAME}}}, True),
        ({"spec": {"workflow": {"name": "order"}}, "status": {**STARTED, "revision": {"name": "order-0"}}}, False),
        ({"spec": {"workflow": {"name": "order", "revision": NAME}}, "status": STARTED}, True),
    ],
    ids=[
        "new",
        "waiting",
        "its namespace",
        "another namespace",
        "another Workflow",
        "inline",
        "of an earlier version",
        "refers",
        "another",
        "names",
    ],
)
def test_a_run_needs_what_it_refers_to_and_what_it_may_start_with(run: dict[str, Any], *, needed: bool) -> None:
    assert is_needed_by({"metadata": {"namespace": "shop"}, **run}, NAME, "order") is needed


def test_a_run_with_a_definition_of_its_own_may_start_with_any_such_revision() -> None:
    assert is_needed_by({"spec": {"inline": STEPS}}, "inline-0", None)
    assert not is_needed_by({"spec": {"workflow": {"name": "order"}}}, "inline-0", None)
    assert not is_needed_by({"spec": {"inline": STEPS}, "status": STARTED}, "inline-0", None)
