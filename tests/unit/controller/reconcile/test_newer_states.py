"""An operator does not touch what a newer version has written: it would drop what it does not know, and sign the loss.

Found in a review: `decode_state` accepted a state with one more field, and the next commit recorded it without the field.
"""

import asyncio
import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import inspect

from perdure import __version__
from perdure.api.kinds.operation import Reset
from perdure.api.labels import CONTINUES_ANNOTATION, PARENT_ANNOTATION, START_ANNOTATION
from perdure.api.reasons import ConditionReason
from perdure.api.state_versions import NEWEST
from perdure.api.times import format_time
from perdure.controller.errors import RefusedError
from perdure.controller.reconcile.newer_states import NewerStateReports
from perdure.controller.recorded_state import stored_state
from perdure.controller.runs.resets import reset
from perdure.engine import history, inputs
from perdure.kube.clock import now
from perdure.observe.metrics import REGISTRY
from perdure.runtime import status_encoding
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import adopted
from perdure.runtime.commits import OF_RUNS, OF_SCHEDULES, committed, edited
from support.stored_forms import STORED, parts
from unit.controller.shop import Json, Store, halfway, operator, pods, reason, schedule, succeed, until

if TYPE_CHECKING:
    from perdure.engine.inputs import Answer

KEY, LIMIT, POLICY, NIGHTLY = "workflowruns/order", "workflowlimits/oven", "retrypolicies/calm", "schedules/nightly"
ONE_STEP: Json = {"steps": [{"name": "x", "return": {"output": 1}}]}


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: getattr(kind, "__name__", "AnyEvent"))
def test_every_stored_type_refuses_unknown_fields(kind: Any) -> None:
    found = {cls: each for cls, each in parts(kind).items() if not isinstance(each, inspect.EnumType)}
    assert found
    for cls, described in found.items():
        assert isinstance(described, inspect.StructType), f"{cls} accepts unknown fields"
        assert cls.__struct_config__.forbid_unknown_fields, f"{cls} accepts unknown fields"


# Runs


def newer_run(change: Callable[[Json], Any]) -> Callable[[Json], None]:
    """A change of a run as a newer operator commits it: with a correct digest."""

    def write(run: Json) -> None:
        change(run)
        status = run["status"]
        commit = status.pop("commit")
        run["status"] = committed(status, OF_RUNS, commit["uid"], commit["number"])
        assert not edited(run["status"], OF_RUNS)
        run["status"]["commit"] |= {key: run.pop(key) for key in ("form", "digest") if key in run}

    return write


def in_state(**fields: Any) -> Callable[[Json], None]:
    return lambda run: run["status"]["state"].update(fields)


def in_activity(run: Json) -> None:
    for activity in run["status"]["state"]["activities"].values():
        activity["heartbeatGrace"] = 5


def in_memory(run: Json) -> None:
    run["status"]["state"]["memory"]["checkpoints"] = {"a": 1}


def in_event(run: Json) -> None:
    run["status"]["history"]["events"][0]["revision"] = "two-abc"


def another_event(run: Json) -> None:
    run["status"]["history"]["events"][-1]["eventType"] = "WorkflowExecutionHibernated"


def in_annotation(run: Json) -> None:
    run["metadata"]["annotations"] = {
        CONTINUES_ANNOTATION: '{"name":"a","runId":"b","firstRunId":"b","revision":"two-abc"}'
    }


def in_definition(run: Json) -> None:
    del run["status"]["revision"]
    run["status"]["definition"] = {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}], "tracing": "on"}


def in_spec(run: Json) -> None:
    run["spec"]["hibernation"] = {"after": "1h"}


def another_policy(run: Json) -> None:
    tie = '{"name":"a","runId":"b","workflowId":"a","initiatedEventId":2,"parentClosePolicy":"Suspend"}'
    run["metadata"]["annotations"] = {PARENT_ANNOTATION: tie}


def in_reference(run: Json) -> None:
    reference = {"hash": "0" * 64, "name": f"payload-{'a' * 32}", "sizeBytes": 20_000, "encoding": "zstd"}
    run["status"]["history"]["events"][0]["input"] = {"payloads": reference}


TOO_NEW = f"state version {NEWEST + 1}, and this operator reads versions 1 to {NEWEST}"
FORMS: dict[str, tuple[Callable[[Json], Any], str]] = {
    "a field of the state": (in_state(hibernated=True), "`status.state`: Object contains unknown field `hibernated`"),
    "a status of the run": (in_state(status="Hibernated"), "Invalid enum value 'Hibernated'"),
    "a field of an activity": (in_activity, "unknown field `heartbeatGrace`"),
    "a field of the memory": (in_memory, "unknown field `checkpoints`"),
    "a field of an event": (in_event, "`status.history.events`: Object contains unknown field `revision`"),
    "a type of event": (another_event, "WorkflowExecutionHibernated"),
    "a field of the status": (lambda run: run["status"].update(hibernated=True), "unknown field `status.hibernated`"),
    "a state version": (lambda run: run["status"].update(stateVersion=NEWEST + 1), TOO_NEW),
    "a state version and a digest of another kind": (
        lambda run: (run["status"].update(stateVersion=NEWEST + 1), run.update(digest="blake3:00")),
        TOO_NEW,
    ),
    "a reference to a payload": (in_reference, "unknown field `encoding` in a reference to a payload"),
    "a field of the definition": (in_definition, "unknown field `status.definition.tracing`"),
    "a field of the spec": (in_spec, "unknown field `spec.hibernation`"),
    "a field of the history": (lambda run: run["status"]["history"].update(archive=1), "`status.history.archive`"),
    "a field of the commit": (lambda run: run.update(form=2), "`status.commit.form`"),
    "a value in an annotation": (another_policy, f"annotation `{PARENT_ANNOTATION}`: Invalid enum value 'Suspend'"),
    "a field of an annotation": (in_annotation, f"annotation `{CONTINUES_ANNOTATION}`: Object contains unknown field"),
}


def others(status: Json) -> Json:
    """A status without its conditions."""
    return {key: value for key, value in status.items() if key != "conditions"}


def conditions(store: Store, key: str = KEY) -> dict[str, Json]:
    return {each["type"]: each for each in store.status(key).get("conditions") or ()}


def counted(kind: str) -> float:
    return REGISTRY.get_sample_value("perdure_newer_state_total", {"namespace": "shop", "kind": kind}) or 0.0


@pytest.mark.parametrize(("form", "message"), FORMS.values(), ids=FORMS)
async def test_a_run_of_a_newer_version_is_reported_and_left_as_it_is(
    store: Store, form: Callable[[Json], Any], message: str
) -> None:
    async with operator(store):
        await halfway(store)
    good = copy.deepcopy(store.objects[KEY])
    store.edit(KEY, newer_run(form))
    newer, found = store.status(), counted("WorkflowRun")
    async with operator(store) as manager:
        await until(lambda: "NewerState" in conditions(store))
        both = conditions(store)
        assert (both["NewerState"]["status"], both["NewerState"]["reason"]) == ("True", "NewerState")
        assert (both["Succeeded"]["status"], both["Succeeded"]["reason"]) == ("Unknown", "NewerState")
        assert "A newer version of Perdure has written the object" in both["NewerState"]["message"]
        assert message in both["NewerState"]["message"]
        assert f"Upgrade the operator to a version after {__version__}, or" in both["NewerState"]["message"]
        await until(lambda: store.events_of("NewerState"))
        assert counted("WorkflowRun") == found + 1
        # A request stays pending, and neither it nor the end of a pod changes anything.
        answers: list[Answer] = []
        entry = manager.directory.get(good["metadata"]["uid"])
        assert entry is not None
        cancel = inputs.CancelRequested(request_id="later", reason="", identity="test")
        await manager.runs.deliver(entry, cancel, answers.append)
        succeed(store, pods(store)[1])
        await settled(store)
        assert others(store.status()) == others(newer)
        assert (answers, len(pods(store)), store.deleted) == ([], 2, [])
        assert store.events_of("NewerState") == 1
    async with operator(store) as manager:  # a restart
        await until(lambda: counted("WorkflowRun") == found + 2)
        assert others(store.status()) == others(newer)
        entry = await until(lambda: manager.directory.get(good["metadata"]["uid"]))
        await manager.runs.deliver(entry, cancel, answers.append)
        # The newer operator is done with it, in the form that both know.
        status = status_encoding.decode(good)["status"]
        del status["commit"]
        known = committed(status, OF_RUNS, newer["commit"]["uid"], newer["commit"]["number"])
        store.edit(KEY, lambda run: run.update(copy.deepcopy({**good, "status": known})))
        await until(lambda: answers)
        await until(lambda: store.status().get("completionTime"))
    assert answers[0].ok
    assert "NewerState" not in conditions(store)
    assert store.events_of("StateDamaged") == 0


async def settled(store: Store, key: str = KEY) -> None:
    """Wait until the operator has done what it wants to do."""
    version = ""
    while version != (version := store.objects[key]["metadata"]["resourceVersion"]):
        for _ in range(20):
            await asyncio.sleep(0.005)


async def test_a_closed_run_of_a_newer_version_keeps_its_outcome_and_is_not_removed(store: Store) -> None:
    store.create("workflowruns", "order", spec={"inline": ONE_STEP})
    async with operator(store):
        await until(reason(store, "Completed"))
    store.edit(KEY, newer_run(in_state(archived=True)))
    store.edit(KEY, lambda run: run["spec"].update(ttlSecondsAfterFinished=0))
    newer = store.status()
    async with operator(store):
        await until(lambda: "NewerState" in conditions(store))
        await settled(store)
    assert others(store.status()) == others(newer)
    assert (conditions(store)["Succeeded"]["status"], conditions(store)["Succeeded"]["reason"]) == ("True", "Completed")
    assert store.deleted == []


async def test_a_parent_does_not_take_the_outcome_of_a_child_of_a_newer_version(store: Store) -> None:
    store.create("workflows", "child", spec=ONE_STEP)
    steps = [{"name": "child", "childWorkflow": {"workflow": {"name": "child"}}}]
    store.create("workflowruns", "order", spec={"inline": {"steps": steps}})
    made, forms = "workflowruns/order-2", list[Json]()

    def upgrade(plural: str, obj: Json, deleted: bool) -> None:
        if obj["metadata"]["name"] == "order-2" and (obj.get("status") or {}).get("completionTime") and not forms:
            forms.append(status_encoding.decode(copy.deepcopy(obj))["status"])
            newer = status_encoding.decode(copy.deepcopy(store.objects[made]))
            newer_run(lambda run: run["status"]["history"]["events"][-1].update(archive="2026/11"))(newer)
            store.objects[made]["status"] = newer["status"]
            obj = copy.deepcopy(store.objects[made])
        passed(plural, obj, deleted)

    async with operator(store):
        passed, store.watch = store.watch, upgrade
        await until(lambda: made in store.objects and "NewerState" in conditions(store, made))
        assert store.condition()["reason"] == "Running"
        store.edit(made, lambda run: run.update(status=forms[0]))
        await until(reason(store, "Completed"))
    assert "NewerState" not in conditions(store, made)


NEW: dict[str, Callable[[Json], Any]] = {
    "its spec": lambda spec: spec.update(hibernation={"after": "1h"}),
    "its definition": lambda spec: spec["inline"].update(tracing="on"),
}


@pytest.mark.parametrize("change", NEW.values(), ids=NEW)
async def test_a_run_that_only_a_newer_version_can_start_waits(store: Store, change: Callable[[Json], Any]) -> None:
    spec: Json = {"inline": copy.deepcopy(ONE_STEP)}
    change(spec)
    store.create("workflowruns", "order", spec=spec)
    async with operator(store):
        await until(lambda: "NewerState" in conditions(store))
        await settled(store)
        assert set(store.status()) == {"conditions"}
        store.edit(KEY, lambda run: run.update(spec={"inline": ONE_STEP}))
        await until(reason(store, "Completed"))


async def test_a_schedule_does_not_take_the_outcome_of_a_run_of_a_newer_version(store: Store) -> None:
    forms = list[Json]()
    every_second = {**schedule()["spec"], "intervals": [{"every": "1s"}], "overlapPolicy": "Skip"}

    def upgrade(plural: str, obj: Json, deleted: bool) -> None:
        if plural == "workflowruns" and (obj.get("status") or {}).get("completionTime") and not forms:
            forms.append(status_encoding.decode(copy.deepcopy(obj)))
            stored = store.objects[f"workflowruns/{obj['metadata']['name']}"]
            newer = status_encoding.decode(copy.deepcopy(stored))
            newer_run(in_state(archived=True))(newer)
            stored["status"] = newer["status"]
            obj = copy.deepcopy(stored)
        passed(plural, obj, deleted)

    async with operator(store):
        passed, store.watch = store.watch, upgrade
        store.create("schedules", "nightly", spec=every_second)
        await until(lambda: forms)
        made = f"workflowruns/{forms[0]['metadata']['name']}"
        await until(lambda: "NewerState" in conditions(store, made))
        assert [each["name"] for each in store.status(NIGHTLY)["state"]["running"]] == [forms[0]["metadata"]["name"]]
        store.edit(made, lambda run: run.update(status=forms[0]["status"]))
        await until(lambda: store.status(NIGHTLY)["state"].get("recent", [{}])[0].get("status") == "Completed")


async def test_a_finished_child_is_kept_while_a_newer_version_may_need_it_for_its_parent(store: Store) -> None:
    store.create("workflows", "child", spec=ONE_STEP)
    child = {"workflow": {"name": "child"}, "input": {}}
    steps = [{"name": "child", "childWorkflow": child}, {"name": "wait", "sleep": {"duration": "1h"}}]
    store.create("workflowruns", "order", spec={"inline": {"steps": steps}})
    async with operator(store):
        await until(lambda: store.status("workflowruns/order-2").get("completionTime"))
        await until(lambda: not store.status()["state"].get("children"))
    store.edit(KEY, newer_run(in_state(hibernated=True)))
    store.edit("workflowruns/order-2", lambda run: run["spec"].update(ttlSecondsAfterFinished=0))
    async with operator(store):
        await until(lambda: "NewerState" in conditions(store))
        await settled(store)
        assert store.deleted == []
        store.edit(KEY, newer_run(lambda run: run["status"]["state"].pop("hibernated")))
    async with operator(store):
        await until(lambda: store.deleted == ["workflowruns/order-2"])


async def test_a_pod_of_a_closed_run_of_a_newer_version_is_not_released(store: Store) -> None:
    async with operator(store):
        await halfway(store)
        store.create("operations", "end", spec={"target": {"kind": "WorkflowRun", "name": "order"}, "terminate": {}})
    held = {"finalizers": ["perdure.dev/outcome"]}
    store.edit(KEY, newer_run(in_state(status="Terminated", closeTime="2026-01-01T00:00:00Z", hibernated=True)))
    store.edit(KEY, lambda run: run["status"].update(phase="Terminated", completionTime="2026-01-01T00:00:00Z"))
    store.edit(KEY, newer_run(lambda _run: None))
    last = f"pods/{pods(store)[1]}"
    store.edit(last, lambda pod: pod["metadata"].update(held))
    async with operator(store):
        await until(lambda: "NewerState" in conditions(store))
        await settled(store)
    assert store.objects[last]["metadata"]["finalizers"] == held["finalizers"]
    assert last not in store.deleted


async def test_a_schedule_with_options_of_a_newer_version_starts_nothing(store: Store) -> None:
    due = {**schedule()["spec"], "intervals": [{"every": "1s"}]}
    due["workflowRunTemplate"] = {"spec": {"workflow": {"type": "Order", "taskQueue": "orders"}}}
    store.create("schedules", "nightly", spec=due)
    options = {START_ANNOTATION: '{"memo": {"a": 1}, "fairness": {"x": 1}}'}
    store.objects[NIGHTLY]["metadata"]["annotations"] = options
    async with operator(store):
        await until(reason(store, "NewerState", NIGHTLY))
        assert f"annotation `{START_ANNOTATION}`" in store.condition(NIGHTLY)["message"]
        store.edit(NIGHTLY, lambda obj: obj["metadata"].update(annotations={}))
        await until(lambda: [key for key in store.created if key.startswith("workflowruns/")])


@pytest.mark.parametrize("form", [in_state(archived=True), in_event], ids=["its state", "its history"])
async def test_a_run_of_a_newer_version_is_not_reset(store: Store, form: Callable[[Json], None]) -> None:
    store.create("workflowruns", "order", spec={"inline": ONE_STEP})
    async with operator(store) as manager:
        await until(reason(store, "Completed"))
        run = status_encoding.decode(copy.deepcopy(store.objects[KEY]))
        newer_run(form)(run)
        with pytest.raises(RefusedError, match="A newer version of Perdure has written the object") as caught:
            await reset(manager.client, manager.services.definitions, run, Reset(event_id=1), request_id="asked")
    assert caught.value.reason is ConditionReason.NEWER_STATE


def test_a_state_with_an_unknown_field_that_no_operator_signed_is_damaged() -> None:
    state = {"startTime": "2026-01-01T00:00:00Z", "nextEventId": 2, "hibernated": True}
    status = {"state": state, "history": {"nextEventId": 2}}
    with pytest.raises(Exception, match="cannot be read") as caught:
        stored_state({"metadata": {}, "status": status})
    assert type(caught.value).__name__ == "DamagedStateError"


def test_an_adopted_child_keeps_the_fields_of_its_parent_annotation_that_a_newer_version_wrote() -> None:
    parent = {"name": "old", "runId": "o", "workflowId": "w", "initiatedEventId": 2, "revision": "two-abc"}
    child = {
        "metadata": {"resourceVersion": "1", "annotations": {PARENT_ANNOTATION: msgspec.json.encode(parent).decode()}}
    }
    patch = adopted(child, RunRef(namespace="shop", name="new", uid="n", workflow_id="w"))
    stored = msgspec.json.decode(patch["metadata"]["annotations"][PARENT_ANNOTATION])
    assert stored == {**parent, "name": "new", "runId": "n"}


def test_a_decoded_state_is_the_whole_state() -> None:
    state = {"startTime": "2026-01-01T00:00:00Z"}
    history.decode_state(state)
    with pytest.raises(msgspec.ValidationError, match="unknown field `hibernated`"):
        history.decode_state({**state, "hibernated": True})


# Schedules, limits, and circuit breakers


async def test_a_schedule_of_a_newer_version_is_reported_and_left_as_it_is(store: Store) -> None:
    store.create("schedules", "nightly", **schedule())
    async with operator(store):
        await until(reason(store, "Accepted", NIGHTLY))
    good = store.status(NIGHTLY)
    past = format_time(now() - timedelta(days=3))  # so that runs are due
    state = {**good["state"], "cursor": past, "handledAfter": past, "zones": ["Europe/Berlin"]}
    commit = good["commit"]
    newer = committed(
        {key: value for key, value in {**good, "state": state}.items() if key != "commit"},
        OF_SCHEDULES,
        commit["uid"],
        commit["number"],
    )
    store.edit(NIGHTLY, lambda obj: obj.update(status=newer))
    async with operator(store):
        await until(reason(store, "NewerState", NIGHTLY))
        assert "unknown field `zones`" in store.condition(NIGHTLY)["message"]
        store.edit(NIGHTLY, lambda obj: obj["metadata"].update(generation=2))
        await settled(store, NIGHTLY)
        assert others(store.status(NIGHTLY)) == others(newer)
        assert not [key for key in store.created if key.startswith("workflowruns/")]
        store.edit(NIGHTLY, lambda obj: obj.update(status=good))
        await until(reason(store, "Accepted", NIGHTLY))
    assert store.events_of("NewerState") == 1


@pytest.mark.parametrize("annotation", ["{}", '{"name": 9}', "[]", "{", '{"name": "a", "runId": "b"}'])
async def test_an_annotation_that_no_version_can_read_counts_as_missing(store: Store, annotation: str) -> None:
    store.create("workflowruns", "order", spec={"inline": ONE_STEP})
    store.objects[KEY]["metadata"]["annotations"] = {CONTINUES_ANNOTATION: annotation}
    async with operator(store):
        await until(reason(store, "Completed"))


def test_a_report_that_the_newer_operator_removes_is_repeated_with_growing_delays() -> None:
    reports, start = NewerStateReports("WorkflowRun", "shop"), datetime(2026, 1, 1, tzinfo=UTC)
    times = [second for second in range(3_600) if reports.due({}, start + timedelta(seconds=second))]
    assert times == [0, 10, 30, 70, 150, 310, 630, 1_270, 2_550]
    marked = {"conditions": [{"type": "NewerState", "reason": "NewerState"}]}
    assert not reports.due(marked, start + timedelta(days=1))
    waiting = {"conditions": [{"type": "Succeeded", "reason": "NewerState"}]}
    assert reports.due(waiting, start + timedelta(days=1)), "a run that waits for a limit is not reported itself"
