"""Traces of edits in a status, and their detection."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api.crdgen import custom_resource_definition
from perdure.api.kinds.schedule import Schedule
from perdure.api.kinds.workflowrun import WorkflowRun
from perdure.api.labels import ACCEPT_STATE_ANNOTATION
from perdure.api.models import Resource
from perdure.runtime.commits import OF_RUNS, OF_SCHEDULES, RESTORED_LABEL, Witness, canonical, committed, edited

Json = dict[str, Any]

UID = "0b7d1b5e-0000-4000-8000-000000000001"


def status(events: int = 3, **fields: Any) -> Json:
    """The status of a run after a number of events, before it is committed."""
    history = {"events": [{"eventId": n} for n in range(1, events + 1)], "nextEventId": events + 1}
    return {"phase": "Running", "state": {"nextEventId": events + 1}, "history": history, **fields}


def at(number: int, uid: str = UID, **fields: Any) -> Json:
    """The status that commit `number` has written."""
    return committed(status(number + 2, **fields), OF_RUNS, uid, number - 1)


def run(stored: Json | None, *, labels: Json | None = None, annotations: Json | None = None) -> Json:
    meta = {"uid": UID, "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": meta} if stored is None else {"metadata": meta, "status": stored}


def witness(*statuses: Json, starts_work: bool = True) -> Witness:
    """One that has seen these statuses."""
    found = Witness(OF_RUNS, UID, starts_work=starts_work)
    for each in statuses:
        assert found.damage(run(each)) == ""
    return found


def accepting(damage: str) -> Json:
    """The annotation that a message requires."""
    return {ACCEPT_STATE_ANNOTATION: damage.rpartition("to `")[2].rstrip("`")}


def test_a_committed_status_is_intact() -> None:
    assert witness().damage(run(at(1))) == ""
    assert witness(at(1)).damage(run(at(2))) == ""
    assert witness().damage(run(None)) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"state": {"nextEventId": 6, "status": "Completed"}},
        {"definition": {"steps": []}},
        {"completionTime": "2020-01-01T00:00:00Z"},
        {"phase": "Completed"},
        {"output": "forged"},
        {"failure": {"message": "forged"}},
        {"runId": "another"},
        {"history": {"events": [], "nextEventId": 6}},
        {"startTime": "2020-01-01T00:00:00Z"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_edit_of_a_covered_field_is_detected(change: Json) -> None:
    damage = witness().damage(run({**at(3), **change}))
    assert damage.startswith("The status was edited after commit 3")
    assert edited({**at(3), **change}, OF_RUNS)


def test_an_edit_of_a_display_field_is_ignored() -> None:
    for change in ({"conditions": [{"type": "Odd"}]}, {"observedGeneration": 9}, {"pendingActivities": []}):
        assert witness(at(3)).damage(run({**at(3), **change})) == ""


def test_a_removed_field_is_detected() -> None:
    stored = at(3, definition={"steps": [1]})
    del stored["definition"]
    assert "edited" in witness().damage(run(stored))


@pytest.mark.parametrize("known", [False, True], ids=["by its digest alone", "by one that has seen it"])
def test_a_partially_forged_commit_is_detected(*, known: bool) -> None:
    stored = at(3)
    forged = {**stored, "commit": {**stored["commit"], "number": 9}}
    assert "edited after commit 9" in witness(*([stored] if known else [])).damage(run(forged))


def test_an_older_status_is_detected_after_a_newer_one_was_seen() -> None:
    assert "An older status was written back: commit 2, after commit 5" in witness(at(2), at(5)).damage(run(at(2)))
    # The same number with another content: the digest was computed by someone else.
    assert "commit 5, after commit 5" in witness(at(5)).damage(run(at(5, output="forged")))


def test_own_writes_count_as_seen() -> None:
    witness_ = witness(at(2))
    written = witness_.commit(status(7), at(2))
    assert written["commit"]["number"] == 3
    witness_.recorded(written)
    assert "commit 2, after commit 3" in witness_.damage(run(at(2)))


@pytest.mark.parametrize("stored", [None, {}, {"phase": "Pending", "conditions": []}], ids=["none", "empty", "bare"])
def test_a_removed_status_is_detected_after_it_was_seen(stored: Json | None) -> None:
    assert "The status was removed after commit 4" in witness(at(4)).damage(run(stored))


def test_a_status_of_an_earlier_version_is_intact() -> None:
    legacy = status(5)
    assert witness().damage(run(legacy)) == ""
    assert witness(legacy).damage(run(status(6))) == ""
    assert "lacks event 5" in witness(legacy).damage(run(status(3)))
    assert "removed" in witness(legacy).damage(run(None))


def test_a_removed_commit_is_detected() -> None:
    """Without it, an edit would need no digest."""
    damage = witness(at(4)).damage(run(status(7, output="forged")))
    assert damage.startswith("The status was edited after commit 4: `status.commit` was removed")


def test_the_first_commit_has_the_number_1() -> None:
    assert witness().commit(status(1), {})["commit"]["number"] == 1


def test_a_status_of_another_object_is_detected() -> None:
    other = "0b7d1b5e-0000-4000-8000-000000000002"
    damage = witness().damage(run(at(4, uid=other)))
    assert other in damage
    assert "restore from a backup" in damage
    assert edited(at(4, uid=other), OF_RUNS) == ""  # a restored closed run still expires


def test_a_run_restored_by_velero_without_its_status_does_not_start() -> None:
    restored = run(None, labels={RESTORED_LABEL: "monday"})
    assert "`monday`" in witness().damage(restored)
    assert witness(starts_work=False).damage(restored) == ""


@pytest.mark.parametrize(
    ("before", "stored", "labels"),
    [
        ((), {**at(3), "definition": {"steps": []}}, {}),
        ((at(5),), at(2), {}),
        ((), at(4, uid="another"), {}),
        ((at(5),), None, {}),
        ((), None, {RESTORED_LABEL: "monday"}),
    ],
    ids=["edited", "older", "of another object", "removed", "restored"],
)
def test_an_administrator_can_accept_exactly_the_current_status(
    before: tuple[Json, ...], stored: Json | None, labels: Json
) -> None:
    witness_ = witness(*before)
    damage = witness_.damage(run(stored, labels=labels))
    annotations = accepting(damage)
    # The condition that reports the damage is part of the status by now.
    reported = {**(stored or {"phase": "Pending"}), "conditions": [{"type": "Succeeded", "message": damage}]}
    assert witness_.damage(run(reported, labels=labels)) == damage
    changed = {**reported, "state": {"nextEventId": 99}, "runId": "another"}
    assert witness_.damage(run(changed, labels=labels, annotations=annotations))
    assert witness_.damage(run(reported, labels=labels, annotations=annotations)) == ""
    assert witness_.accepted
    assert witness_.commit(status(9), reported)["commit"]["uid"] == UID


@pytest.mark.parametrize(("kind", "fields"), [(WorkflowRun, OF_RUNS), (Schedule, OF_SCHEDULES)])
def test_covered_fields_have_no_defaults(kind: type[Resource], fields: tuple[str, ...]) -> None:
    """The API server adds defaults when it reads an object, which would invalidate the digest of a commit without them."""
    schema = custom_resource_definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    status = schema["properties"]["status"]["properties"]
    assert set(fields) <= set(status)
    found = {path for field in fields for path in defaults(status[field], field)}
    assert found <= {"history.nextEventId", "history.segments", "history.sizeBytes"}  # always written


def defaults(schema: Json, path: str) -> Iterator[str]:
    if "default" in schema:
        yield path
    for name, inner in schema.get("properties", {}).items():
        yield from defaults(inner, f"{path}.{name}")
    if "items" in schema:
        yield from defaults(schema["items"], f"{path}[]")


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def as_the_api_server(value: Any) -> Any:
    """A stored value: Go reads numbers as 64-bit integers if they fit, and otherwise as floating point."""
    if isinstance(value, dict):
        return {key: as_the_api_server(item) for key, item in reversed(value.items())}
    if isinstance(value, list):
        return [as_the_api_server(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return float(value)
    return value


@given(_VALUES)
def test_the_digest_survives_storage(value: Any) -> None:
    try:
        before = canonical([value])
    except ValueError:  # a text with half a character, which no request can hold
        return
    assert canonical([as_the_api_server(value)]) == before
    assert canonical([copy.deepcopy(value)]) == before


@pytest.mark.parametrize(
    ("ours", "its"),
    [(1.0, 1), (-0.0, 0), (1e16, 10**16), (2**64, 18446744073709551616.0), (1e300, 1e300), (0.1, 0.1), (1e-7, 1e-07)],
)
def test_a_number_is_hashed_in_its_stored_form(ours: Any, its: Any) -> None:
    assert canonical({"a": [ours, "x"]}) == canonical({"a": [its, "x"]})
    assert canonical({"a": ours}) != canonical({"a": str(ours)})
