"""A real API server accepts and rejects manifests with clear messages: the table of `admission.yaml`."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiException

from perdure.runtime import status_encoding
from support.admission import CASES, assert_part, manifest
from support.cluster.namespace import Cluster
from support.cluster.objects import refusal

pytestmark = pytest.mark.cluster

Json = dict[str, Any]

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def namespace(kubectl: Cluster) -> Iterator[str]:
    """A temporary namespace in a cluster that has the CRDs of this checkout."""
    # The test does not apply them: then the next `helm upgrade` would conflict with its field manager.
    other = [file.name for file in sorted((CHECKOUT / "crds").glob("*.yaml")) if not is_installed(kubectl, file)]
    if other:
        pytest.fail(f"The cluster does not have the CRDs of this checkout ({', '.join(other)}). Run `make install`.")
    name = f"admission-{secrets.token_hex(4)}"
    kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    kubectl.objects.delete("namespace", "", name)


def is_installed(kubectl: Cluster, file: Path) -> bool:
    want = yaml.safe_load(file.read_text(encoding="utf-8"))
    found = kubectl.objects.get("crd", "", want["metadata"]["name"])
    return found is not None and bool(found["spec"]["versions"] == want["spec"]["versions"])


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_admission(kubectl: Cluster, namespace: str, kind: str, case: Json) -> None:
    # Not applied: `apply` drops every null before it sends the object.
    asked = manifest(kind, case)
    if "refused" not in case:
        assert_part(case.get("stored", {}), kubectl.objects.create(namespace, asked, dryRun="All"), kind)
        return
    with pytest.raises(ApiException) as caught:
        kubectl.objects.create(namespace, asked, dryRun="All")
    for part in [*case["refused"], *case.get("server", [])]:
        assert part in refusal(caught.value)


RUN = {"workflow": {"name": "x"}, "input": {"guest": "Ada", "nights": [1, 2]}, "searchAttributes": {"a": "b"}}
SEGMENT = {
    "workflowRun": {"name": "order-42", "workflowId": "orders/42", "runId": "0b1c"},
    "index": 0,
    "firstEventId": 1,
    "lastEventId": 1,
    "events": [{"eventId": 1, "details": {"a": 1}}],
    "hash": "9f86d081884c7d659a2feaa0c55ad015",
}
PAYLOAD = {"hash": "0" * 64, "sizeBytes": 3, "part": 0, "data": "YWJj"}
OPERATION = {"target": {"kind": "WorkflowRun", "name": "none"}, "signal": {"name": "approved", "input": {"by": "me"}}}
DEAD_LETTER = {
    "workflowRun": {"name": "order-42", "workflowId": "orders/42", "runId": "0b1c"},
    "step": "hotel",
    "activity": "reserve-hotel",
    "input": {"a": 1},
    "failure": {"type": "NoRoom"},
    "attempts": 3,
    "failedTime": "2026-01-02T00:00:00Z",
}
SCHEDULE = {"paused": True, "workflowRunTemplate": {"spec": {"workflow": {"name": "x"}}}}
STORED = {
    "WorkflowRun": RUN,
    "HistorySegment": SEGMENT,
    "Payload": PAYLOAD,
    "Operation": OPERATION,
    "DeadLetter": DEAD_LETTER,
    "Schedule": SCHEDULE,
    "RetryPolicy": {"exponential": {}},
}


@pytest.fixture(scope="module")
def stored(kubectl: Cluster, namespace: str) -> str:
    """The namespace, with one object of each kind that is asked to change."""
    for kind, spec in STORED.items():
        kubectl.objects.create(namespace, manifest(kind, {"spec": spec}))
    return namespace


CHANGES = [
    pytest.param("WorkflowRun", {"ttlSecondsAfterFinished": 60}, None, id="the TTL of a run can change"),
    pytest.param("WorkflowRun", {"ttlSecondsAfterFailure": 60}, None, id="the TTL of a failed run can change"),
    pytest.param("WorkflowRun", {"runTimeout": "1h"}, "`spec` must not change", id="a field cannot be added to a run"),
    pytest.param(
        "WorkflowRun", {"searchAttributes": None}, "`spec` must not change", id="a field cannot be removed from a run"
    ),
    pytest.param("WorkflowRun", {"taskTimeout": "20s"}, "`spec` must not change", id="a field of a run is immutable"),
    pytest.param(
        "WorkflowRun", {"workflow": {"name": "y"}}, "`spec` must not change", id="the workflow of a run is immutable"
    ),
    pytest.param("WorkflowRun", {"input": {"guest": "Bob"}}, "an Operation", id="the input of a run is immutable"),
    pytest.param(
        "WorkflowRun", {"input": {"more": 1}}, "`spec` must not change", id="the input of a run cannot be extended"
    ),
    pytest.param("WorkflowRun", {"input": None}, "`spec` must not change", id="the input of a run cannot be removed"),
    pytest.param(
        "Operation", {"signal": {"name": "refused"}}, "`spec` must not change", id="an operation is immutable"
    ),
    pytest.param(
        "Operation", {"signal": {"input": 1}}, "create another one", id="the input of an operation is immutable"
    ),
    pytest.param(
        "Operation",
        {"ttlSecondsAfterFinished": 1},
        "`spec` must not change",
        id="the TTL of an operation cannot change",
    ),
    pytest.param("HistorySegment", {"index": 1}, "the record of what happened", id="a segment is immutable"),
    pytest.param(
        "HistorySegment", {"events": [{"eventId": 2}]}, "the record of", id="the events of a segment are immutable"
    ),
    pytest.param("Payload", {"data": "YWJk"}, "histories refer to it", id="a payload is immutable"),
    pytest.param("DeadLetter", {"input": {"a": 2}}, "the record of what failed", id="a dead letter is immutable"),
    pytest.param("Schedule", {"paused": False, "overlapPolicy": "AllowAll"}, None, id="a schedule can change"),
    pytest.param("Schedule", {"overlapPolicy": "Never"}, "spec.overlapPolicy", id="a schedule cannot become invalid"),
    pytest.param(
        "RetryPolicy",
        {"cloudScheduler": {}},
        "must have exactly one of `exponential` and `cloudScheduler`",
        id="a policy cannot have two kinds of backoff",
    ),
    pytest.param(
        "RetryPolicy",
        {"exponential": None, "cloudScheduler": {}},
        None,
        id="a policy can change its kind of backoff",
    ),
]


@pytest.mark.parametrize(("kind", "change", "want_said"), CHANGES)
def test_changes(kubectl: Cluster, stored: str, kind: str, change: Json, want_said: str | None) -> None:
    def patch() -> None:
        kubectl.objects.patch(kind, stored, "one", {"spec": change}, dryRun="All")

    if want_said is None:
        patch()
        return
    with pytest.raises(ApiException) as caught:
        patch()
    assert want_said in refusal(caught.value)


def try_status(kubectl: Cluster, namespace: str, status: Json) -> Json:
    """The run with this status, in a dry run."""
    change = {"status": status}
    return kubectl.objects.patch("workflowrun", namespace, "one", change, subresource="status", dryRun="All")


NOW = "2026-01-02T00:00:00Z"
SUCCEEDED = {"type": "Succeeded", "status": "True", "reason": "Completed", "message": "", "lastTransitionTime": NOW}


def test_a_status_keeps_free_form_fields(kubectl: Cluster, stored: str) -> None:
    status = {
        "phase": "Running",
        "state": {"anything": [1, {"nested": True}]},
        "history": {"events": [{"eventId": 1, "attributes": {"input": [1, None]}}], "nextEventId": 2},
        "failure": {"type": "A", "cause": {"type": "B", "details": {"deep": [1]}}},
        "output": [1, "2"],
        "definition": {"steps": []},
    }
    for form in (status, status_encoding.encode(status)):
        assert_part(status, try_status(kubectl, stored, form)["status"], "status")


def test_a_status_with_an_unknown_phase_is_rejected(kubectl: Cluster, stored: str) -> None:
    with pytest.raises(ApiException) as caught:
        try_status(kubectl, stored, {"phase": "Sleeping"})
    assert "status.phase" in refusal(caught.value)
    assert "ContinuedAsNew" in refusal(caught.value)


def test_duplicate_condition_types_are_rejected(kubectl: Cluster, stored: str) -> None:
    with pytest.raises(ApiException) as caught:
        try_status(kubectl, stored, {"conditions": [SUCCEEDED, SUCCEEDED]})
    assert "Duplicate value" in refusal(caught.value)


@pytest.mark.parametrize(
    ("kind", "wide", "want_titles"),
    [
        ("workflowrun", False, "NAME PHASE PROGRESS REASON AWAITS COMPLETED AGE"),
        (
            "wfr",
            True,
            (
                "NAME PHASE PROGRESS REASON AWAITS STARTED COMPLETED"
                " WORKFLOW ACTIVITY OPERATION WORKFLOW-ID SCHEDULE REVISION MESSAGE AGE"
            ),
        ),
        ("wsch", False, "NAME READY SPEC PAUSED LAST NEXT AGE"),
        ("rpol", False, "NAME READY CIRCUIT WAITS AGE"),
        ("wop", False, "NAME VERB NAME WORKFLOW-ID PHASE REASON AGE"),
        ("dlt", False, "NAME RUN STEP ATTEMPTS REDRIVEN AGE"),
        ("hseg", False, "NAME RUN INDEX FIRST LAST BYTES AGE"),
    ],
)
def test_columns(kubectl: Cluster, stored: str, kind: str, wide: bool, want_titles: str) -> None:
    output = ("--output=wide",) if wide else ()
    table = kubectl("get", kind, "--namespace", stored, *output)
    assert table.splitlines()[0].split() == want_titles.split()


def test_printed_columns_name_the_workflow_of_yaml_and_code_runs(kubectl: Cluster, namespace: str) -> None:
    for name, workflow in (("named", {"name": "flow"}), ("coded", {"type": "Order", "taskQueue": "orders"})):
        run = manifest(
            "WorkflowRun", {"metadata": {"name": name}, "spec": {"workflow": workflow, "workflowId": "Cart 7"}}
        )
        kubectl.objects.create(namespace, run)
    titles, *lines = kubectl("get", "wfr", "named", "coded", "--namespace", namespace, "--output=wide").splitlines()
    first, last = titles.index("WORKFLOW"), titles.index("SCHEDULE")
    assert [line[first:last].strip().split(maxsplit=1) for line in lines] == [["flow", "Cart 7"], ["Order", "Cart 7"]]


def test_runs_can_be_selected_by_field(kubectl: Cluster, stored: str) -> None:
    get = ("get", "wfr", "--namespace", stored, "--output=name", "--field-selector")
    assert kubectl(*get, "spec.workflow.name=x").split() == ["workflowrun.perdure.dev/one"]
    assert kubectl(*get, "spec.workflow.name=y") == ""
    assert kubectl(*get, "status.phase=Completed") == ""


def test_the_category_lists_every_kind(kubectl: Cluster, stored: str) -> None:
    names = kubectl("get", "perdure", "--namespace", stored, "--output=name").split()
    assert {name.split(".")[0] for name in names} >= {kind.lower() for kind in STORED}


@pytest.mark.usefixtures("namespace")
def test_explain_shows_unit_default_and_values(kubectl: Cluster) -> None:
    assert "Default: 0s, no limit" in kubectl("explain", "workflowrun.spec.executionTimeout")
    assert "BufferOne" in kubectl("explain", "schedule.spec.overlapPolicy")
