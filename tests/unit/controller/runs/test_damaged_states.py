"""The operator reports a status that another client has written, and does not act on it."""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure.api.kinds.operation import Reset
from perdure.api.labels import ACCEPT_STATE_ANNOTATION, DEAD_LETTER_ANNOTATION, DEAD_LETTER_LABEL
from perdure.api.reasons import ConditionReason
from perdure.api.times import format_time
from perdure.controller.errors import RefusedError
from perdure.controller.runs.resets import reset
from perdure.kube.clock import now
from perdure.observe.metrics import REGISTRY
from perdure.runtime import status_encoding
from perdure.runtime.commits import RESTORED_LABEL
from unit.controller.shop import Json, Store, halfway, operator, pods, reason, schedule, succeed, until

LONG_AGO = "2020-01-01T00:00:00Z"

EDITS: dict[str, Callable[[Json, Json], Json]] = {
    "removed": lambda _now, _before: {},
    "an older one put back": lambda _now, before: before,
    "another definition": lambda now, _before: {
        **now,
        "definition": {"steps": [{"name": "x", "return": {"output": 1}}]},
    },
    "a completion time": lambda now, _before: {**now, "completionTime": LONG_AGO, "phase": "Completed"},
    "a state that closed": lambda now, _before: {
        **now,
        "completionTime": LONG_AGO,
        "phase": "Completed",
        "state": {**now["state"], "status": "Completed", "activities": {}},
    },
    "a step that did not finish": lambda now, _before: {**now, "state": {**now["state"], "activities": {}}},
}


def damaged() -> float:
    """How many damaged WorkflowRuns the metrics count."""
    labels = {"namespace": "shop", "kind": "WorkflowRun"}
    return REGISTRY.get_sample_value("perdure_state_damaged_total", labels) or 0.0


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
async def test_an_edit_is_reported_and_no_work_is_repeated(store: Store, edit: Callable[[Json, Json], Json]) -> None:
    async with operator(store):
        before = await halfway(store)
        good = store.status()
        found = damaged()
        store.edit("workflowruns/order", lambda run: run.update(status=edit(good, before)))
        await until(reason(store, "StateDamaged"))
        assert store.condition()["status"] == "Unknown"
        await until(lambda: store.events_of("StateDamaged"))
        assert damaged() == found + 1
        assert len(pods(store)) == 2
        assert not [key for key in store.deleted if key.startswith("workflowruns/")]
        # It is restored despite later writes, and continues where it was.
        store.edit("workflowruns/order", lambda run: run.update(status=good))
        await until(reason(store, "Running"))
        succeed(store, pods(store)[1])
        await until(reason(store, "Completed"))
        assert len(pods(store)) == 2
        assert store.events_of("StateDamaged") == 1


@pytest.mark.parametrize("name", ["another definition", "a completion time", "a step that did not finish"])
async def test_an_edit_while_no_operator_runs_is_reported(store: Store, name: str) -> None:
    async with operator(store):
        before = await halfway(store)
    good = store.status()
    store.edit("workflowruns/order", lambda run: run.update(status=EDITS[name](good, before)))
    async with operator(store):
        await until(reason(store, "StateDamaged"))
    async with operator(store):
        store.edit("workflowruns/order", lambda run: run.update(status=good))
        await until(reason(store, "Running"))
        succeed(store, pods(store)[1])
        await until(reason(store, "Completed"))
    assert len(pods(store)) == 2


async def test_a_finished_run_whose_completion_time_was_forged_is_kept(store: Store) -> None:
    store.create("workflowruns", "order", spec={"inline": {"steps": [{"name": "x", "return": {"output": 1}}]}})
    async with operator(store):
        await until(reason(store, "Completed"))
        good = store.status()
        store.edit("workflowruns/order", lambda run: run["status"].update(completionTime=LONG_AGO))
        await until(reason(store, "StateDamaged"))
        assert store.status()["phase"] == "Completed"
        store.edit("workflowruns/order", lambda run: run.update(status=good))
        await until(reason(store, "Completed"))
        assert not store.deleted
        # One that was written by a commit counts.
        store.edit("workflowruns/order", lambda run: run["spec"].update(ttlSecondsAfterFinished=0))
        await until(lambda: store.deleted == ["workflowruns/order"])


async def test_a_forged_output_of_a_child_does_not_reach_its_parent(store: Store) -> None:
    child = {"steps": [{"name": "x", "return": {"output": "good"}}]}
    steps = [{"name": "child", "childWorkflow": {"workflow": {"name": "child"}}}]
    store.create("workflows", "child", spec=child)
    store.create("workflowruns", "order", spec={"inline": {"steps": steps}})
    made = "workflowruns/order-2"
    forged: list[Json] = []

    def forge(plural: str, obj: Json, deleted: bool) -> None:
        if obj["metadata"]["name"] == "order-2" and (obj.get("status") or {}).get("output") == "good" and not forged:
            forged.append(obj["status"])
            store.objects[made]["status"]["output"] = "forged"
            obj = copy.deepcopy(store.objects[made])
        passed(plural, obj, deleted)

    async with operator(store):
        passed, store.watch = store.watch, forge
        await until(reason(store, "StateDamaged", made))
        assert store.condition()["reason"] == "Running"
        store.edit(made, lambda run: run.update(status=forged[0]))
        await until(reason(store, "Completed"))
    closing = store.status()["history"]["events"]
    assert [event["result"] for event in closing if event["eventType"] == "ChildWorkflowExecutionCompleted"] == ["good"]


async def test_a_forged_outcome_of_a_redrive_is_ignored(store: Store) -> None:
    letter = store.create("deadletters", "letter", spec={"activity": "work"})
    again = {"inline": {"steps": [{"name": "x", "return": {"output": "good"}}]}}
    store.create("workflowruns", "order", spec=again, labels={DEAD_LETTER_LABEL: letter["metadata"]["uid"]})
    meta = store.objects["workflowruns/order"]["metadata"]
    meta |= {"name": "letter-redrive-1", "annotations": {DEAD_LETTER_ANNOTATION: "letter"}}
    made = "workflowruns/letter-redrive-1"
    store.objects[made] = store.objects.pop("workflowruns/order")
    forged: list[Json] = []

    def forge(plural: str, obj: Json, deleted: bool) -> None:
        if plural == "workflowruns" and (obj.get("status") or {}).get("output") == "good" and not forged:
            forged.append(obj["status"])
            store.objects[made]["status"]["output"] = "forged"
            obj = copy.deepcopy(store.objects[made])
        passed(plural, obj, deleted)

    passed, store.watch = store.watch, forge
    async with operator(store):
        passed, store.watch = store.watch, forge
        await until(reason(store, "StateDamaged", made))
        await until(reason(store, "RedriveRunning", "deadletters/letter"))
        store.edit(made, lambda run: run.update(status=forged[0]))
        await until(reason(store, "RedriveSucceeded", "deadletters/letter"))
    assert store.status("deadletters/letter")["output"] == "good"


async def test_a_reset_does_not_continue_an_edited_history(store: Store) -> None:
    store.create("workflowruns", "order", spec={"inline": {"steps": [{"name": "x", "return": {"output": 1}}]}})
    async with operator(store) as manager:
        await until(reason(store, "Completed"))
        run = status_encoding.decode(store.objects["workflowruns/order"])
        run["status"]["history"]["events"][0]["input"] = "forged"
        with pytest.raises(RefusedError, match="damaged") as caught:
            await reset(manager.client, manager.services.definitions, run, Reset(event_id=1), request_id="asked")
    assert caught.value.reason is ConditionReason.STATE_DAMAGED


async def test_a_run_of_an_earlier_version_without_a_commit_continues(store: Store) -> None:
    async with operator(store):
        await halfway(store)
    store.edit("workflowruns/order", lambda run: run["status"].pop("commit"))
    async with operator(store):
        succeed(store, pods(store)[1])
        await until(reason(store, "Completed"))
    assert store.status()["commit"]["number"] >= 1
    assert (len(pods(store)), store.events_of("StateDamaged")) == (2, 0)


async def test_a_restored_run_continues_only_when_its_status_is_accepted(store: Store) -> None:
    async with operator(store):
        await halfway(store)
    backup = store.objects.pop("workflowruns/order")
    for name in pods(store):
        store.objects.pop(f"pods/{name}", None)
    # As Velero does it: the object, and then its status.
    store.create("workflowruns", "order", spec=backup["spec"], labels={RESTORED_LABEL: "monday"})
    async with operator(store):
        await until(reason(store, "StateDamaged"))
        assert "monday" in store.condition()["message"]
        store.edit("workflowruns/order", lambda run: run.update(status=backup["status"]))
        await until(lambda: backup["metadata"]["uid"] in store.condition().get("message", ""))
        accepted = store.condition()["message"].rpartition("to `")[2].rstrip("`")
        assert len(pods(store)) == 2
        annotations = {ACCEPT_STATE_ANNOTATION: accepted}
        store.edit("workflowruns/order", lambda run: run["metadata"].update(annotations=annotations))
        await until(lambda: len(pods(store)) == 3)  # the second step once more, and the first not
        assert pods(store)[2] == pods(store)[1]
        succeed(store, pods(store)[2])
        await until(reason(store, "Completed"))
        assert store.status()["runId"] == store.objects["workflowruns/order"]["metadata"]["uid"]


@pytest.mark.parametrize("how", ["removed", "put back", "edited"])
async def test_an_edited_schedule_repeats_no_times(store: Store, how: str) -> None:
    store.create("schedules", "nightly", **schedule())
    key, past = "schedules/nightly", format_time(now() - timedelta(days=3))
    async with operator(store):
        await until(reason(store, "Accepted", key))
        old = store.status(key)
        old["state"]["cursor"] = old["state"]["handledAfter"] = past
        asked = {"request": "r1", "ok": True}
        store.edit(key, lambda obj: obj["spec"].update(notes="changed", intervals=[{"every": "2h"}]))
        store.edit(key, lambda obj: obj["metadata"].update(generation=2))
        await until(lambda: store.status(key)["commit"]["number"] > 1)
        good = store.status(key)
        edits: dict[str, Callable[[Json], Any]] = {
            "removed": lambda obj: obj.pop("status"),
            "put back": lambda obj: obj.update(status={**good, "commit": old["commit"], "state": old["state"]}),
            "edited": lambda obj: obj["status"]["state"].update(cursor=past, answered=[asked]),
        }
        store.edit(key, edits[how])
        await until(reason(store, "StateDamaged", key))
        await until(lambda: store.events_of("StateDamaged"))
        store.edit(key, lambda obj: obj.update(status=good))
        await until(reason(store, "Accepted", key))
    assert store.events_of("StateDamaged") == 1
    assert not [key for key in store.created if key.startswith("workflowruns/")]


async def test_a_schedule_with_an_unreadable_state_restarts_from_now_when_accepted(store: Store) -> None:
    store.create("schedules", "nightly", **schedule())
    key = "schedules/nightly"
    async with operator(store):
        await until(reason(store, "Accepted", key))
        long_ago = format_time(now() - timedelta(days=3))
        store.edit(key, lambda obj: obj["metadata"].update(creationTimestamp=long_ago))
        store.edit(key, lambda obj: obj["status"]["state"].update(cursor="yesterday"))
        await until(reason(store, "StateDamaged", key))
        accepted = store.condition(key)["message"].rpartition("to `")[2].rstrip("`")
        annotations = {ACCEPT_STATE_ANNOTATION: accepted}
        store.edit(key, lambda obj: obj["metadata"].update(annotations=annotations))
        await until(reason(store, "Accepted", key))
    assert not [key for key in store.created if key.startswith("workflowruns/")]
