"""Relations between a reset run and the original: object, chain, children."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.api.kinds.workflowrun import WorkflowRun
from perdure.api.labels import CONTINUES_ANNOTATION, PARENT_ANNOTATION, PARENT_RUN_ID_LABEL, RESET_ANNOTATION
from perdure.api.names import reset_name
from perdure.controller.directory import Directory
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import Ancestor, ResetOrigin, adopted, first_run_id, parent_of, reset_of, reset_run

Json = dict[str, Any]


def run(name: str = "order", **annotations: Json) -> Json:
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkflowRun",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "labels": {"team": "a"},
            "annotations": {key: json.dumps(value) for key, value in annotations.items()},
        },
        "spec": {"workflow": {"name": "flow"}, "input": {"x": 1}, "startDelay": "5s", "startPaused": True},
    }


def asked(*ancestors: tuple[str, int]) -> ResetOrigin:
    lineage = tuple(Ancestor(name=name, run_id=f"uid-{name}", event_id=n) for name, n in ancestors)
    return ResetOrigin(request_id="op", lineage=lineage)


def test_the_new_run_has_the_same_workflow_id_and_chain_and_starts_immediately() -> None:
    made = reset_run(run(), asked(("order", 7)), "order-reset-x")
    assert WorkflowRun.parse(made).spec.workflow_id == "order"
    assert made["spec"] == {"workflow": {"name": "flow"}, "input": {"x": 1}, "workflowId": "order"}
    assert made["metadata"]["labels"] == {"team": "a"}
    assert reset_of(made) == asked(("order", 7))
    made["metadata"]["uid"] = "new"
    assert first_run_id(made) == "uid-order"
    continued = {"perdure.dev/continues": {"name": "b", "runId": "b", "firstRunId": "first"}}
    assert CONTINUES_ANNOTATION in continued
    made = reset_run(run(**continued), asked(("order", 7)), "order-reset-x")
    made["metadata"]["uid"] = "new"
    assert first_run_id(made) == "first"


def test_an_invalid_reset_annotation_is_ignored() -> None:
    assert reset_of(run(**{RESET_ANNOTATION: {"requestId": "x", "lineage": []}})) is None
    assert reset_of(run(**{RESET_ANNOTATION: {"x": 1}})) is None


def test_a_transferred_child_has_another_parent_and_owner() -> None:
    tie = {"name": "order", "workflowId": "order", "runId": "uid-order", "initiatedEventId": 5}
    child = run("child", **{PARENT_ANNOTATION: tie})
    foreign = {"kind": "Other", "name": "o", "uid": "o"}
    child["metadata"]["ownerReferences"] = [{"kind": "WorkflowRun", "name": "order", "uid": "uid-order"}, foreign]
    parent = RunRef(namespace="shop", name="order-reset-x", uid="new", workflow_id="order")
    changed = adopted(child, parent)["metadata"]
    assert changed["resourceVersion"] == "7"
    assert changed["labels"][PARENT_RUN_ID_LABEL] == "new"
    assert changed["ownerReferences"] == [{"kind": "WorkflowRun", "name": "order-reset-x", "uid": "new"}, foreign]
    found = parent_of({**child, "metadata": {**child["metadata"], **changed}})
    assert found is not None
    assert (found.name, found.run_id, found.initiated_event_id) == ("order-reset-x", "new", 5)


def test_a_lagging_watch_does_not_return_a_transferred_child() -> None:
    def child(parent: str, version: str) -> Json:
        tie = {"name": "p", "workflowId": "p", "runId": parent, "initiatedEventId": 5}
        found = run("child", **{PARENT_ANNOTATION: tie})
        found["metadata"]["resourceVersion"] = version
        return found

    directory = Directory()
    directory.put(child("old", "7"))
    directory.put(child("new", "8"))
    directory.put(child("old", "7"))
    assert directory.children_of("shop", "old") == []
    assert [entry.name for entry in directory.children_of("shop", "new")] == ["child"]


def test_the_origin_of_an_event_is_the_run_that_recorded_it() -> None:
    reset = asked(("a", 100), ("b", 50))
    assert [reset.origin(n) for n in (1, 50, 51, 100)] == ["uid-a", "uid-a", None, None]
    reset = asked(("a", 50), ("b", 100))
    assert [reset.origin(n) for n in (1, 50, 51, 100, 101)] == ["uid-a", "uid-a", "uid-b", "uid-b", None]


@given(st.text("abc-", min_size=1, max_size=250).filter(lambda n: n[0] != "-" != n[-1]), st.text(), st.text())
def test_the_name_depends_on_the_request_and_has_bounded_length(name: str, one: str, other: str) -> None:
    first = reset_name(name, one)
    assert len(first) <= 253
    assert (first == reset_name(name, other)) is (one == other)
    again = reset_name(first, other)
    assert again == reset_name(name, other) or len(name) > 200
